"""How fast this device multiplies matrices and how fast it moves bytes: the two lines of its roofline."""

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch

from attnviz.benchmark.request import check_choice
from attnviz.config import check_size, dtype_size

# Large enough to fill the caches and the cores, small enough for a moment on one thread.
_SIDE = {"cpu": 1024, "mps": 4096, "cuda": 8192}
_BYTES = {"cpu": 2**27, "mps": 2**28, "cuda": 2**30}
_TRIES, _LEAST_TRIES, _ENOUGH_S = 20, 3, 0.2
_STREAMS = 2


@dataclass(frozen=True)
class Speed:
    """Hold what a device reached: FLOP/s of a matrix product and bytes per second of a copy, the best of some tries."""

    flops: float
    bandwidth: float

    def seconds(self, flops: int, bytes_moved: int) -> float:
        """Give the least time that a call can take: what its arithmetic or what its traffic takes.

        Source:
            Williams, Waterman, Patterson 2009, the roofline model, https://doi.org/10.1145/1498765.1498785
        """
        return max(flops / self.flops, bytes_moved / self.bandwidth)

    def to_json(self) -> dict[str, Any]:
        """Give the speed as plain values."""
        return asdict(self)


@dataclass(frozen=True)
class Probe:
    """Ask for the speed of a device.

    Args:
        dtype: As torch has it.
        threads: Of torch on the CPU.
        device: One of ``device.present()``.
        limit_s: Seconds after which it ends as a ``Failure``.

    Raises:
        Refusal: If a field breaks its rule.
    """

    dtype: str = "float32"
    threads: int = 1
    device: str = "cpu"
    limit_s: int | float = 60.0

    def __post_init__(self) -> None:
        dtype_size(self.dtype)
        check_size("threads", self.threads)
        check_choice("device", self.device.partition(":")[0], tuple(_SIDE))

    def to_json(self) -> dict[str, Any]:
        """Give the question as plain values."""
        return {"probe": asdict(self)}

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> "Probe":
        """Read what ``to_json`` gave."""
        return cls(**given["probe"])


def probe(asked: Probe) -> Speed:
    """Measure the speed, in this process."""
    torch.set_num_threads(asked.threads)
    kind, dtype = asked.device.partition(":")[0], getattr(torch, asked.dtype)
    with torch.no_grad():
        flops = _flops(kind, dtype, asked.device)
        source = torch.ones(_BYTES[kind], dtype=torch.uint8, device=asked.device)
        target = torch.empty_like(source)
        bandwidth = _STREAMS * _BYTES[kind] / _best(lambda: target.copy_(source), kind)
    return Speed(flops, bandwidth)


def _flops(kind: str, dtype: torch.dtype, device: str) -> float:
    """Give the FLOP/s of a product, of smaller matrices where this type is slow: many CPUs compute no float16."""
    side, found = _SIDE[kind] // 8, 0.0
    while side <= _SIDE[kind]:
        square = torch.ones(side, side, dtype=dtype, device=device)
        product = torch.empty_like(square)
        took = _best(lambda one=square, into=product: torch.matmul(one, one, out=into), kind)
        found = max(found, 2 * side**3 / took)
        if 8 * _LEAST_TRIES * took > _ENOUGH_S:
            break  # twice the side takes eight times as long
        side *= 2
    return found


def _best(call: Callable[[], object], kind: str) -> float:
    """Give the shortest of some times: the speed that a roof stands for is the one that was reached."""
    times: list[float] = []
    started = time.perf_counter()
    while len(times) < _TRIES and (len(times) < _LEAST_TRIES or time.perf_counter() - started < _ENOUGH_S):
        _wait(kind)
        begun = time.perf_counter()
        call()
        _wait(kind)
        times.append(time.perf_counter() - begun)
    return min(times[1:])


def _wait(kind: str) -> None:
    if kind == "cuda":
        torch.cuda.synchronize()
    elif kind == "mps":
        torch.mps.synchronize()
