"""Carry out a request in this process: warm up, time in turn, weigh, and say at each step what is known."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch

from attnviz import device
from attnviz.benchmark.calls import Made, make
from attnviz.benchmark.clock import Clock, Runner, ratio, rounds
from attnviz.benchmark.memory import peak_bytes
from attnviz.benchmark.request import Contestant, Request
from attnviz.benchmark.result import Failure, Measurement, Point
from attnviz.benchmark.room import no_backward, too_large
from attnviz.text import Refusal

# So many rounds give the first times; then memory is measured, and the rest of the rounds follows.
FIRST_ROUNDS = 1


@dataclass
class _Entrant:
    contestant: Contestant
    runner: Runner | None = None
    empty: Runner | None = None
    peak: int | None = None
    method: str | None = None
    kernel: str = ""
    failure: Failure | None = None


def run(request: Request) -> Iterator[Measurement]:
    """Measure a request; gives what is known after each step, at last the complete measurement.

    Memory that runs out, and a call that torch cannot do, end one contestant and leave the others.
    """
    torch.set_num_threads(request.threads)
    free = device.free_bytes(request.device)
    entrants = [_Entrant(one) for one in request.contestants]
    clock = Clock(request.device)
    with torch.set_grad_enabled(request.mode != "forward"):
        for entrant in entrants:
            entrant.failure = no_backward(entrant.contestant, request) or too_large(entrant.contestant, request, free)
            if entrant.failure is None:
                _attempt(entrant, lambda entrant=entrant: _prepare(entrant, request, clock))
            yield _snapshot(entrants)
        for entrant in _alive(entrants):
            # What came with the warm-up was not taken in turn.
            assert entrant.runner is not None
            entrant.runner.samples.clear()
        yield from _time(entrants, clock, FIRST_ROUNDS, request.budget_s)
        if request.memory:
            for entrant in _alive(entrants):
                _attempt(entrant, lambda entrant=entrant: _weigh(entrant, request))
                yield _snapshot(entrants)
        yield from _time(entrants, clock, request.rounds - FIRST_ROUNDS, request.budget_s)
    yield replace(_snapshot(entrants), complete=True)


def _alive(entrants: list[_Entrant]) -> list[_Entrant]:
    return [one for one in entrants if one.failure is None]


def _prepare(entrant: _Entrant, request: Request, clock: Clock) -> None:
    contestant = entrant.contestant
    entrant.runner = Runner(make(contestant, request))
    entrant.kernel = clock.first(entrant.runner)
    clock.warm_up(entrant.runner)
    # The first sample comes with the warm-up, so that there is a number to show at once.
    clock.take(entrant.runner)
    if contestant.what == "decode" and contestant.cached:
        entrant.empty = Runner(make(contestant, request, 2))
        clock.first(entrant.empty)
        clock.warm_up(entrant.empty)


def _time(entrants: list[_Entrant], clock: Clock, most: int, budget_s: float) -> Iterator[Measurement]:
    alive = _alive(entrants)
    runners = [runner for one in alive for runner in (one.runner, one.empty) if runner is not None]
    if not runners or most < 1:
        return
    for _ in rounds(clock, runners, most, budget_s):
        yield _snapshot(entrants)


def _weigh(entrant: _Entrant, request: Request) -> None:
    assert entrant.runner is not None  # only what was timed is weighed
    made: Made = entrant.runner.made
    with made.around():
        entrant.peak, entrant.method = peak_bytes(made.call, request.device)


def _attempt(entrant: _Entrant, act: Callable[[], None]) -> None:
    """Do a step of one contestant; what torch refuses is its failure."""
    try:
        act()
    except Refusal as refusal:
        entrant.failure = Failure("refused", refusal.text.en, refusal.text.zh)
    except (MemoryError, torch.OutOfMemoryError) as problem:
        entrant.failure = _out_of_memory(problem)
    except (RuntimeError, TypeError, ValueError, LookupError, ArithmeticError, AssertionError) as problem:
        # torch's CPU allocator says so only in words.
        grown = re.search(r"allocate|out of memory|bad_alloc", str(problem), re.IGNORECASE)
        first = (str(problem).splitlines() or [type(problem).__name__])[0][:200]
        entrant.failure = _out_of_memory(problem) if grown else Failure("error", first)
    if entrant.failure is not None:
        entrant.runner = entrant.empty = None


def _out_of_memory(problem: BaseException) -> Failure:
    asked = re.search(r"(\d[\d.]* ?(?:bytes|[KMGT]iB))", str(problem))
    return Failure("memory", asked.group(1) if asked else type(problem).__name__)


def _snapshot(entrants: list[_Entrant]) -> Measurement:
    first = next((one.runner for one in entrants if one.runner is not None), None)
    base = first.samples if first is not None and entrants[0].runner is first else []
    return Measurement(tuple(_point(one, base) for one in entrants), complete=False)


def _point(entrant: _Entrant, base: list[float]) -> Point:
    runner = entrant.runner
    label = entrant.contestant.label
    if entrant.failure is not None:
        return Point(label, failure=entrant.failure)
    if runner is None:
        return Point(label)
    empty = entrant.empty.latency if entrant.empty is not None else None
    return Point(
        label,
        runner.latency,
        ratio(runner.samples, base),
        entrant.peak,
        entrant.method,
        entrant.kernel,
        None if empty is None else empty.median,
        runner.system_share,
    )
