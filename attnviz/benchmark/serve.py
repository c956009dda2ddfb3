"""What the measuring process does with a request: hold it to its memory, run it, and turn steps into JSON."""

import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from attnviz import device
from attnviz.benchmark.memory import peak_bytes
from attnviz.benchmark.request import Request
from attnviz.benchmark.result import Failure
from attnviz.benchmark.room import MEMORY_SHARE
from attnviz.benchmark.run import run
from attnviz.benchmark.speed import Probe, probe
from attnviz.text import Refusal

if sys.platform != "win32":
    import resource

# A call may take somewhat more than it declares.
_ROOM = 1.15


def prepare() -> None:
    """Do once what the first request would otherwise wait for."""
    torch.set_num_threads(1)
    torch.matmul(torch.randn(8, 8), torch.randn(8, 8))
    peak_bytes(lambda: torch.ones(8), "cpu")


def answer(asked: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Give a request's steps: measurements so far, at last one marked final, or a failure."""
    given = asked["request"]
    try:
        request = Probe.from_json(given) if "probe" in given else Request.from_json(given)
        device.resolve(request.device)
    except Refusal as refusal:
        yield {"final": True, "failure": Failure("refused", refusal.text.en, refusal.text.zh).to_json()}
        return
    _limit_memory()
    if isinstance(request, Probe):
        yield {"final": True, "speed": probe(request).to_json()}
        return
    for measured in run(request):
        yield {"final": measured.complete, "measurement": measured.to_json()}


def _limit_memory() -> None:
    """Have the system refuse what would go beyond this process's share: an error here, where else it might kill."""
    status = Path("/proc/self/status")
    if sys.platform != "linux" or not status.exists():
        return
    held = re.search(r"VmData:\s+(\d+) kB", status.read_text(encoding="utf-8"))
    if held is None:
        return
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    free = int(_ROOM * MEMORY_SHARE * device.free_bytes("cpu"))
    wanted = int(held.group(1)) * 1024 + free
    resource.setrlimit(resource.RLIMIT_DATA, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard))
