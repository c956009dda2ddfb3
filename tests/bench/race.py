"""Time several calls against the first one, round by round, so that a busy neighbour slows all of them alike."""

import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

import torch

SAMPLE_S = 5e-3  # a sample repeats its call until it takes this long


class Row(NamedTuple):
    """Hold one call's median time in seconds, and the median and quartiles of its ratios to the first call."""

    name: str
    seconds: float
    ratio: float
    quartiles: tuple[float, float]


def race(calls: dict[str, Callable[[], object]], *, rounds: int = 21) -> list[Row]:
    """Run every call once in each round, on one thread without gradients, after a warm-up.

    Args:
        calls: What to run, by name; ratios are taken to the first.
        rounds: How many rounds, at least 3.
    """
    torch.set_num_threads(1)
    samples: dict[str, list[float]] = {name: [] for name in calls}
    with torch.no_grad():
        repeats = {name: _repeats(call) for name, call in calls.items()}
        for _ in range(rounds):
            for name, call in calls.items():
                samples[name].append(_sample(call, repeats[name]))
    first = next(iter(samples.values()))
    rows = []
    for name, times in samples.items():
        ratios = [mine / base for mine, base in zip(times, first, strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        rows.append(Row(name, statistics.median(times), middle, (low, high)))
    return rows


def show(title: str, rows: list[Row], limits: dict[str, float] | None = None) -> None:
    """Print a table; a limit is the largest ratio that a call may have."""
    print(f"\n{title}\n{'':34}{'median':>12}{'ratio':>9}{'quartiles':>17}{'limit':>8}")
    for name, seconds, ratio, (low, high) in rows:
        limit = (limits or {}).get(name)
        verdict = "" if limit is None else f"{limit:8.2f}  {'ok' if ratio <= limit else 'OVER'}"
        print(f"{name:34}{seconds * 1e6:9.1f} µs{ratio:9.3f}{low:9.3f} ..{high:6.3f}{verdict}")


def _repeats(call: Callable[[], object]) -> int:
    """Warm a call up and find how often it must run to fill a sample."""
    call()
    count = 1
    while _sample(call, count) * count < SAMPLE_S:
        count *= 2
    return count


def _sample(call: Callable[[], object], count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - start) / count
