"""What a visitor has had measured: the job that works on it, and what an earlier one that ended early had found."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from attnviz.benchmark import Failure, Job, Measurement, Point, Request, Result

# What does not fit or cannot be computed has its own sentence; it is not the measuring that ended.
CUT_SHORT = ("cancelled", "abandoned", "crashed", "time", "closed")
# Of these another try makes sense; what took too long would again.
_WORTH_A_TRY = ("cancelled", "abandoned", "crashed")


@dataclass(frozen=True)
class Held:
    """Hold a measurement that may go on where an earlier one ended.

    Args:
        requests: What is measured.
        job: Measures all of it, or what the earlier one left out.
        before: What that one had found, a result for each request; empty where there was none.
    """

    requests: tuple[Request, ...]
    job: Job
    before: tuple[Result, ...] = ()

    @property
    def results(self) -> tuple[Result, ...]:
        """Results of the requests that have ended, in order; after an earlier job one for each, as far as is known."""
        return self._with(self.job.results)

    @property
    def shown(self) -> tuple[Result, ...]:
        """Give ``results`` with what is known of the request that is being measured."""
        return self._with(self.job.shown)

    @property
    def ended(self) -> int:
        """How many requests have ended, whatever came of them."""
        return len(self.requests) - len(self.job.requests) + len(self.job.results)

    @property
    def missing(self) -> tuple[int, ...]:
        """Numbers of the requests that were not measured and could be."""
        known = self.results
        return (*_left_out(known), *range(len(known), len(self.requests)))

    def _with(self, newer: Sequence[Result]) -> tuple[Result, ...]:
        """Put newer results over what was there before; what still waits shows what is known of it."""
        if not self.before:
            return tuple(newer)
        places, known = _left_out(self.before), list(self.before)
        for number, place in enumerate(places):
            old, request = known[place], self.requests[place]
            known[place] = _over(old, newer[number]) if number < len(newer) else _waiting(old, request)
        return tuple(known)


def _left_out(results: Sequence[Result]) -> tuple[int, ...]:
    """Give the numbers of the results that are none, or not yet, for no reason of their own."""
    return tuple(
        number
        for number, one in enumerate(results)
        if (one.reason in _WORTH_A_TRY if isinstance(one, Failure) else not one.complete)
    )


def _partial(result: Result) -> Measurement | None:
    return result.partial if isinstance(result, Failure) else result


def _over(old: Result, new: Result) -> Result:
    """Give a newer result, with the points that only the old one has while or where it has none."""
    known = _partial(old)
    if known is None or (isinstance(new, Measurement) and new.complete):
        return new
    newer = _partial(new)
    if newer is not None:
        pairs = zip(newer.points, known.points, strict=True)
        points = tuple(one if one.latency_s or one.failure else other for one, other in pairs)
        known = replace(newer, points=points)
    return replace(new, partial=known) if isinstance(new, Failure) else known


def _waiting(old: Result, request: Request) -> Measurement:
    """Give what is known of a request that waits for another try: without the reason why it ended."""
    nothing = Measurement(tuple(Point(one.label) for one in request.contestants))
    return replace(_partial(old) or nothing, complete=False)
