"""Time calls in turn, round by round, so that a busy neighbour slows all of them alike."""

import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch

from attnviz.benchmark.calls import Made
from attnviz.benchmark.result import Latency

if sys.platform != "win32":
    import resource

# A sample repeats its call until it takes this long: the clock and a first wake-up weigh nothing then.
SAMPLE_S = 5e-3
MOST_REPEATS = 4096
WARM_S, SLOW_S = 0.05, 0.5
LEAST_ROUNDS, PATIENCE = 3, 4
# Twice the level-2 cache of the largest GPU of today.
_FLUSH_BYTES = 256 * 2**20


@dataclass
class Runner:
    """Hold one call with its samples: seconds of one call each, and the share in which the system worked."""

    made: Made
    repeats: int = 1
    once_s: float = 0.0
    samples: list[float] = field(default_factory=list)
    system_s: float = 0.0
    spent_s: float = 0.0

    @property
    def latency(self) -> Latency | None:
        """Summary of the samples so far."""
        return Latency.of(self.samples) if self.samples else None

    @property
    def system_share(self) -> float | None:
        """Share of the time in which the system worked, or None where it does not say."""
        return self.system_s / self.spent_s if self.spent_s and sys.platform != "win32" else None


class Clock:
    """Time calls on one device."""

    def __init__(self, device: str):
        self._kind = torch.device(device).type
        self._flush = torch.empty(_FLUSH_BYTES, dtype=torch.uint8, device=device) if self._kind == "cuda" else None

    def first(self, runner: Runner) -> str:
        """Run a call for the first time, and give the name of what ran."""
        begun = time.perf_counter()
        with runner.made.around():
            core = runner.made.call()
        runner.once_s = time.perf_counter() - begun
        return "" if core is None else core.kernel

    def warm_up(self, runner: Runner) -> None:
        """Run a call by time, unless one takes as long as that, and find how often it has to run to fill a sample."""
        begun = time.perf_counter()
        while runner.once_s < SLOW_S and time.perf_counter() - begun < WARM_S:
            runner.once_s = self._sample(runner, 1)
        runner.repeats = min(MOST_REPEATS, max(1, round(SAMPLE_S / max(runner.once_s, 1e-9))))

    def take(self, runner: Runner) -> None:
        """Take one sample."""
        before, begun = _system_s(), time.perf_counter()
        runner.samples.append(self._sample(runner, runner.repeats))
        runner.system_s += _system_s() - before
        runner.spent_s += time.perf_counter() - begun

    def _sample(self, runner: Runner, repeats: int) -> float:
        call = runner.made.call
        with runner.made.around():
            if self._flush is not None:
                return self._events(call, repeats)
            self._wait()
            begun = time.perf_counter()
            for _ in range(repeats):
                call()
            self._wait()
            return (time.perf_counter() - begun) / repeats

    def _wait(self) -> None:
        if self._kind == "mps":
            torch.mps.synchronize()

    def _events(self, call: Callable[[], object], repeats: int) -> float:
        """Time on the GPU's own clock, with nothing of the last call left in its cache."""
        assert self._flush is not None
        pairs = []
        for _ in range(repeats):
            self._flush.zero_()
            begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begun.record()
            call()
            ended.record()
            pairs.append((begun, ended))
        torch.cuda.synchronize()
        return sum(begun.elapsed_time(ended) for begun, ended in pairs) / repeats / 1e3


def rounds(clock: Clock, runners: Sequence[Runner], most: int, budget_s: float) -> Iterator[int]:
    """Sample all calls in turn; give the number of each round when it is done.

    No round begins after the budget, once there were three; of very slow calls fewer do.
    """
    begun = time.perf_counter()
    for number in range(1, most + 1):
        for runner in runners:
            clock.take(runner)
        yield number
        spent = time.perf_counter() - begun
        if spent > (budget_s if number >= LEAST_ROUNDS else PATIENCE * budget_s):
            return


def ratio(mine: Sequence[float], first: Sequence[float]) -> float | None:
    """Give the median of the ratios taken round by round: what slows a round slows both."""
    pairs = [own / base for own, base in zip(mine, first, strict=False) if base]
    return statistics.median(pairs) if pairs else None


def _system_s() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_stime if sys.platform != "win32" else 0.0
