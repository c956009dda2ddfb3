"""What is said of a measurement: how far it is, and why something has no result."""

from collections.abc import Sequence

from attnviz import units
from attnviz.benchmark import Failure, Job, Probe, Request, Result
from pages.ui import layout
from pages.ui.measured_bars import points
from pages.ui.measured_held import CUT_SHORT, Held
from pages.ui.translate import say, table


def status(language: str, held: Held, done: bool) -> str:
    """Say in one line how far a measurement is."""
    words, job, results = table(language, "measure"), held.job, held.results
    if done:
        if not _any_time(results):
            return words["none"]
        missed = sum(isinstance(one, Failure) and one.reason in CUT_SHORT for one in results)
        if not missed:
            return words["done"]
        if len(held.requests) == 1:
            # What came before stands in the picture: of one request nothing is counted.
            return words["cut"]
        return words["ended"].format(done=len(results) - missed, count=len(results))
    if job.place:
        return words["waiting"].format(place=job.place)
    if not job.begun:
        return words["starting"]
    if len(held.requests) == 1:
        name = _first_call(job)
        return words["running"] if name is None else words["first"].format(name=layout.escape(name))
    said = words["running_many"].format(done=held.ended, count=len(held.requests))
    left = job.left_s
    return said if left is None else f"{said} {words['left'].format(time=units.seconds(max(1, round(left))))}"


def _any_time(results: Sequence[Result]) -> bool:
    """Say whether anything was measured at all."""
    known = [result.partial if isinstance(result, Failure) else result for result in results]
    return any(point.latency_s is not None for one in known if one is not None for point in one.points)


def _first_call(job: Job) -> str | None:
    """Give the name of the contestant whose first time is awaited, or None once all have one."""
    (request,) = job.requests
    if not isinstance(request, Request):
        return None
    known = points(job.partial, len(request.contestants))
    waiting = [
        contestant.label
        for contestant, point in zip(request.contestants, known, strict=True)
        if point is None or (point.latency_s is None and point.failure is None)
    ]
    return waiting[0] if waiting else None


def failures(language: str, requests: Sequence[Request | Probe], shown: Sequence[Result]) -> list[str]:
    """Give each reason once why requests or contestants have no result, with where, as text for Markdown.

    Of a contestant that is too large from a length on, the shortest one's need is said.
    """
    places: dict[str, list[int]] = {}
    sizes: dict[tuple[str, str], tuple[str, list[int]]] = {}
    for index, result in enumerate(shown):
        for label, failure in _each(result):
            words = layout.escape(f"{label}{failure.text.say(language)}")
            if failure.reason == "too_large":
                sizes.setdefault((label, requests[index].dtype), (words, []))[1].append(index)
            else:
                places.setdefault(words, []).append(index)
    return [
        *(f"{_where(language, requests, at)}{words}" for words, at in places.items()),
        *(f"{_where(language, requests, at[:1], more=len(at) > 1)}{words}" for words, at in sizes.values()),
    ]


def _each(result: Result) -> list[tuple[str, Failure]]:
    """Give what failed: contestants with their names where the reasons are theirs, a whole request without one."""
    known = result.partial if isinstance(result, Failure) else result
    own = [] if known is None else [(f"{one.label}: ", one.failure) for one in known.points if one.failure is not None]
    if not isinstance(result, Failure):
        return own
    if result.reason in CUT_SHORT:
        return [("", result), *own]
    return own if len(own) > 1 else [("", result)]


def _where(language: str, requests: Sequence[Request | Probe], at: Sequence[int], more: bool = False) -> str:
    """Name requests by what tells them apart: lengths, and data types where there are several.

    Args:
        language: Language of the words.
        requests: All requests.
        at: Those that are named.
        more: Whether longer ones are meant too.
    """
    asked = [one for one in requests if isinstance(one, Request)]
    if len(asked) < max(2, len(requests)) or (len(at) == len(requests) and not more):
        return ""
    # Requests of one query each, as in decoding, differ in what they see.
    lengths = [one.q_len if len({each.q_len for each in asked}) > 1 else one.keys for one in asked]
    several = len({one.dtype for one in asked}) > 1
    said = []
    for dtype in dict.fromkeys(asked[index].dtype for index in at):
        own = dict.fromkeys(units.count(lengths[index]) for index in at if asked[index].dtype == dtype)
        words = say(language, "measure.longer" if more else "measure.lengths", lengths=", ".join(own))
        said.append(f"{words}, {dtype}" if several else words)
    return f"{'; '.join(said)} – "
