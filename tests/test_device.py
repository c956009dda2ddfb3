"""Devices, and how much memory they have left."""

from pathlib import Path

import pytest
import torch

from attnviz import device
from attnviz.config import DTYPES
from attnviz.text import Refusal

GIB = 2**30


def test_the_cpu_is_always_present_and_last():
    assert device.present()[-1] == "cpu"
    assert len(set(device.present())) == len(device.present())


def test_the_default_device_is_the_fastest_present():
    assert device.default_device() == device.present()[0]
    assert (device.default_device() == "cpu") == (
        not torch.cuda.is_available() and not torch.backends.mps.is_available()
    )


@pytest.mark.parametrize("name", device.present())
class TestEachDevice:
    """What holds on every device of the machine that runs the tests."""

    def test_it_resolves(self, name):
        assert str(device.resolve(name)) == name

    def test_its_data_types_really_compute(self, name):
        assert "float32" in device.dtypes(name)
        assert set(device.dtypes(name)) <= set(DTYPES)
        for dtype in device.dtypes(name):
            x = torch.ones(2, 2, device=name, dtype=getattr(torch, dtype))
            assert (x @ x).cpu().float().tolist() == [[2.0, 2.0], [2.0, 2.0]]

    def test_its_default_type_is_one_of_them(self, name):
        assert device.default_dtype(name) in device.dtypes(name)

    def test_its_free_memory_is_part_of_its_memory(self, name):
        assert 0 < device.free_bytes(name) <= device.total_bytes(name)

    def test_it_has_a_name(self, name):
        assert device.model(name)


def test_the_cpu_does_every_type():
    assert device.dtypes("cpu") == tuple(DTYPES)


@pytest.mark.parametrize("call", [device.resolve, device.dtypes, device.default_dtype, device.free_bytes, device.model])
def test_an_absent_device_is_refused_with_those_present(call):
    with pytest.raises(Refusal) as caught:
        call("cuda:9")
    assert str(caught.value) == f"device must be one of {', '.join(device.present())}, got 'cuda:9'."
    assert "device 应为" in caught.value.text.zh


def test_a_device_that_cannot_compute_is_left_out(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(device, "_computes", lambda name, dtype: name == "cuda")
    device.present.cache_clear()
    try:
        assert device.present() == ("cuda", "cpu")
    finally:
        device.present.cache_clear()


@pytest.mark.parametrize("error", [RuntimeError("no kernel image"), TypeError("no float64 here")])
def test_a_type_that_raises_is_one_the_device_cannot_do(monkeypatch, error):
    def fail(*args, **options):
        raise error

    monkeypatch.setattr(device, "scaled_dot_product_attention", fail)
    assert not device._computes("cpu", "float32")


def test_a_type_that_gives_no_number_is_one_the_device_cannot_do(monkeypatch):
    monkeypatch.setattr(device, "scaled_dot_product_attention", lambda q, k, v: q * float("nan"))
    assert not device._computes("cpu", "float32")


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def test_cgroup_version_2_counts_parents_and_leaves_out_what_can_be_dropped(tmp_path):
    write(
        tmp_path,
        {
            "proc/self/cgroup": "0::/app/worker\n",
            "memory.max": "1\n",
            "memory.current": "1\n",
            "fs/memory.max": "1\n",
            "fs/app/memory.max": f"{8 * GIB}\n",
            "fs/app/memory.current": f"{5 * GIB}\n",
            "fs/app/memory.stat": f"anon 7\ninactive_file {GIB}\n",
            "fs/app/worker/memory.max": "max\n",
            "fs/app/worker/memory.current": "100\n",
        },
    )
    assert list(device._cgroups(tmp_path / "proc", tmp_path / "fs")) == [(8 * GIB, 4 * GIB)]


def test_cgroup_version_2_in_a_container_of_its_own(tmp_path):
    write(
        tmp_path,
        {"proc/self/cgroup": "0::/\n", "fs/memory.max": f"{GIB}", "fs/memory.current": "50", "fs/memory.stat": ""},
    )
    assert list(device._cgroups(tmp_path / "proc", tmp_path / "fs")) == [(GIB, 50)]


def test_cgroup_version_1_with_the_hosts_path_finds_the_containers_own_folder(tmp_path):
    write(
        tmp_path,
        {
            "proc/self/cgroup": "9:name=systemd:/x\n5:cpu,memory:/docker/abc\n3:cpuset:/docker/abc\n0::/\n",
            "fs/memory/memory.limit_in_bytes": f"{2 * GIB}\n",
            "fs/memory/memory.usage_in_bytes": f"{GIB}\n",
            "fs/memory/memory.stat": f"inactive_file 1\ntotal_inactive_file {GIB // 4}\n",
            "fs/cpuset/docker/abc/memory.limit_in_bytes": "1",
        },
    )
    assert list(device._cgroups(tmp_path / "proc", tmp_path / "fs")) == [(2 * GIB, GIB * 3 // 4)]


def test_no_control_groups_no_limits(tmp_path):
    assert list(device._cgroups(tmp_path, tmp_path)) == []


def test_the_tightest_limit_bounds_the_cpus_free_memory(monkeypatch, tmp_path):
    write(
        tmp_path,
        {
            "self/cgroup": "0::/a\n",
            "meminfo": f"MemTotal: {16 * 2**20} kB\nMemFree: 1 kB\nMemAvailable: {8 * 2**20} kB\nHugePages_Total: 0\n",
            "a/memory.max": f"{4 * GIB}",
            "a/memory.current": f"{GIB}",
        },
    )
    monkeypatch.setattr(device.sys, "platform", "linux")
    monkeypatch.setattr(device, "_PROC", tmp_path)
    monkeypatch.setattr(device, "_CGROUP_ROOT", tmp_path)
    assert (device.total_bytes("cpu"), device.free_bytes("cpu")) == (4 * GIB, 3 * GIB)
    write(tmp_path, {"a/memory.max": "max"})
    assert (device.total_bytes("cpu"), device.free_bytes("cpu")) == (16 * GIB, 8 * GIB)
    write(tmp_path, {"a/memory.max": f"{GIB // 2}"})
    assert device.free_bytes("cpu") == 0


def test_vm_stat_counts_pages_that_are_given_back():
    told = (
        "Mach Virtual Memory Statistics: (page size of 16384 bytes)\n"
        "Pages free:                               10.\n"
        "Pages active:                            500.\n"
        "Pages inactive:                            5.\n"
        "Pages speculative:                         3.\n"
        "Pages purgeable:                           2.\n"
        '"Translation faults":               99999999.\n'
    )
    assert device._vm_stat_free(told) == 20 * 16384
