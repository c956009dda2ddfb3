"""The devices of this machine: which there are, what they can compute, and how much memory is free on them."""

import ctypes
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import torch
from torch.nn.functional import scaled_dot_product_attention

from attnviz.text import Refusal, Text
from attnviz.units import DTYPES

_ABSENT = Text(
    "device must be one of {options}, got {value!r}.", "device 应为以下之一：{options}，收到的是 {value!r}。"
)
_CGROUP_ROOT = Path("/sys/fs/cgroup")
_PROC = Path("/proc")


@cache
def present() -> tuple[str, ...]:
    """Give the devices that really compute here, fastest first: cuda (and cuda:1 …), mps, cpu.

    A GPU that is there but cannot run a kernel of this PyTorch build is left out.
    """
    names = [f"cuda:{index}" if index else "cuda" for index in range(torch.cuda.device_count())]
    if torch.backends.mps.is_available():
        names.append("mps")
    return (*(name for name in names if _computes(name, "float32")), "cpu")


def default_device() -> str:
    """Give the fastest device present."""
    return present()[0]


@cache
def dtypes(name: str) -> tuple[str, ...]:
    """Give the data types a device can do attention in, by running a tiny call in each.

    Args:
        name: One of ``present()``.

    Raises:
        Refusal: If the device is not present.
    """
    resolve(name)
    return tuple(dtype for dtype in DTYPES if _computes(name, dtype))


def default_dtype(name: str) -> str:
    """Give the data type to start with on a device: float32, which every device present can do.

    Raises:
        Refusal: If the device is not present.
    """
    resolve(name)
    return "float32"


def resolve(name: str) -> torch.device:
    """Give the device of this name.

    Raises:
        Refusal: If it is not one of ``present()``; the message lists these.
    """
    if name not in present():
        raise Refusal(_ABSENT.fill(options=", ".join(present()), value=name))
    return torch.device(name)


@cache
def model(name: str) -> str:
    """Give what the hardware is called, such as the GPU's product name.

    Raises:
        Refusal: If the device is not present.
    """
    device = resolve(name)
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    info = _read(_PROC / "cpuinfo")
    named = [line.partition(":")[2].strip() for line in info.splitlines() if line.startswith("model name")]
    return named[0] if named else platform.processor() or platform.machine()


def total_bytes(name: str) -> int:
    """Give a device's memory in bytes; for the CPU no more than this process may have in its container.

    Raises:
        Refusal: If the device is not present.
    """
    device = resolve(name)
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    if device.type == "mps":
        return torch.mps.recommended_max_memory()
    return min(_machine_bytes()[0], *(limit for limit, _ in _cgroups(_PROC, _CGROUP_ROOT)), sys.maxsize)


def free_bytes(name: str) -> int:
    """Give the bytes that can still be allocated on a device.

    On a GPU what PyTorch holds but does not use counts as free. On the CPU caches that the system gives back count as
    free, and the limit of each control group (container) this process is in is respected.

    Raises:
        Refusal: If the device is not present.
    """
    device = resolve(name)
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    system = min(_machine_bytes()[1], *(limit - used for limit, used in _cgroups(_PROC, _CGROUP_ROOT)), sys.maxsize)
    if device.type == "mps":
        # The GPU shares the machine's memory, so both bounds hold.
        system = min(system, torch.mps.recommended_max_memory() - torch.mps.current_allocated_memory())
    return max(0, system)


def _computes(name: str, dtype: str) -> bool:
    """Say whether attention of two tokens runs on a device in a data type and gives finite numbers."""
    try:
        x = torch.ones(1, 1, 2, 8, device=name, dtype=getattr(torch, dtype))
        weights = torch.softmax(x @ x.transpose(-1, -2), dim=-1)
        result = scaled_dot_product_attention(x, x, x) + weights @ x
        return bool(torch.isfinite(result).all())
    except (RuntimeError, TypeError):
        # That is how torch says that a device lacks a type or a kernel.
        return False


def _machine_bytes() -> tuple[int, int]:
    """Give the machine's memory and how much of it is free, in bytes."""
    if sys.platform == "win32":
        return _windows_bytes()
    if sys.platform == "darwin":
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        told = subprocess.run(["/usr/bin/vm_stat"], capture_output=True, text=True, check=True, timeout=10).stdout
        return total, _vm_stat_free(told)
    info = _meminfo(_read(_PROC / "meminfo"))
    if "MemTotal" in info and "MemAvailable" in info:
        return info["MemTotal"], info["MemAvailable"]
    page = os.sysconf("SC_PAGE_SIZE")
    return os.sysconf("SC_PHYS_PAGES") * page, os.sysconf("SC_AVPHYS_PAGES") * page


def _meminfo(text: str) -> dict[str, int]:
    """Read ``/proc/meminfo``: name → bytes."""
    rows = (line.split() for line in text.splitlines())
    return {row[0].rstrip(":"): int(row[1]) * 1024 for row in rows if len(row) == 3 and row[2] == "kB"}


def _vm_stat_free(text: str) -> int:
    """Read macOS's ``vm_stat``: free pages and those given back on demand, in bytes."""
    first, *lines = text.splitlines()
    page = next(int(word) for word in first.split() if word.isdigit())
    pages = {
        name: int(value.strip().rstrip(".")) for name, _, value in (line.partition(":") for line in lines) if value
    }
    wanted = ("Pages free", "Pages inactive", "Pages speculative", "Pages purgeable")
    return page * sum(pages.get(name, 0) for name in wanted)


def _windows_bytes() -> tuple[int, int]:
    """Ask Windows for the machine's memory and how much of it is free, in bytes."""
    # The structure is nine numbers: two of 32 bits (its own size, load in per cent), then seven of 64, the first two of
    # which are the physical memory and what is available of it.
    status = (ctypes.c_uint64 * 8)()
    ctypes.cast(status, ctypes.POINTER(ctypes.c_uint32))[0] = ctypes.sizeof(status)
    if sys.platform != "win32" or not ctypes.windll.kernel32.GlobalMemoryStatusEx(ctypes.byref(status)):
        raise OSError("the system does not tell how much memory there is")
    return status[1], status[2]


def _cgroups(proc: Path, root: Path) -> Iterator[tuple[int, int]]:
    """Give limit and use, in bytes, of each control group with a memory limit that this process is in.

    Files that can be dropped from memory do not count as used. Version 1 has its memory groups in a folder of their
    own, version 2 has all in one; a limit of a parent holds as well.

    Source: https://docs.kernel.org/admin-guide/cgroup-v2.html and
        https://docs.kernel.org/admin-guide/cgroup-v1/memory.html
    """
    files = {
        "v1": ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        "v2": ("memory.max", "memory.current", "inactive_file"),
    }
    for line in _read(proc / "self" / "cgroup").splitlines():
        number, controllers, path = line.split(":", 2)
        if number == "0" and not controllers:
            top, (limit_file, used_file, dropped) = root, files["v2"]
        elif "memory" in controllers.split(","):
            top, (limit_file, used_file, dropped) = root / "memory", files["v1"]
        else:
            continue
        # Inside a container the path may be the host's; then only the top folder exists, which is the container's own.
        folder = top / path.lstrip("/")
        for place in (folder, *folder.parents):
            if not place.is_relative_to(top):
                break
            limit, used = _read(place / limit_file).strip(), _read(place / used_file).strip()
            if limit.isdigit() and used.isdigit():
                rows = dict(row.split() for row in _read(place / "memory.stat").splitlines())
                yield int(limit), max(0, int(used) - int(rows.get(dropped, 0)))


def _read(path: Path) -> str:
    """Give a system file's text; one that is not there or not for us has none."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
