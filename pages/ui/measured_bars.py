"""Bars of time or of peak memory for what a request compares, with what is predicted: a figure and its words."""

from collections.abc import Mapping, Sequence

from attnviz import units
from attnviz.benchmark import Contestant, Failure, Point, Probe, Request, Result, Speed, declared_peak, desk, predict
from attnviz.figures.measured import Bar
from attnviz.figures.measured import bars as bars_figure
from pages.ui.plot.spec import Drawn
from pages.ui.translate import table


def points(shown: Result | None, count: int) -> list[Point | None]:
    """Give a point for each of ``count`` contestants, also of what was measured before a failure."""
    known = shown.partial if isinstance(shown, Failure) else shown
    return [None] * count if known is None else list(known.points)


def draw_bars(language: str, request: Request, shown: Result | None, *, memory: bool) -> Drawn:
    """Give the bars of a request.

    Args:
        language: Language of the words.
        request: The request.
        shown: What is known of it, or None.
        memory: Whether the peak is drawn, not the time.
    """
    words = table(language, "measure")
    known = points(shown, len(request.contestants))
    speed = None if memory else desk().speed(Probe(request.dtype, request.threads, request.device))
    expected = [_expected(request, contestant, speed, memory=memory) for contestant in request.contestants]
    give = _memory_bar if memory else _time_bar
    rows = [give(words, *each) for each in zip(request.contestants, known, expected, strict=True)]
    mark = words["predicted" if memory else "least"]
    label, base = (units.binary_bytes, 4) if memory else (units.short_seconds, units.TIME_MARKS)
    figure = bars_figure(rows, predicted=mark, label=label, base=base)
    caption = _caption(words, known, memory)
    numbers = "; ".join(f"{row.name}: {row.text}" for row in rows)
    return Drawn(figure, caption, f"{caption}. {numbers}")


def _expected(request: Request, contestant: Contestant, speed: Speed | None, *, memory: bool) -> int | float | None:
    """Give what is predicted: the declared peak of a core, or the least time by the roofline of this device."""
    if memory:
        return declared_peak(contestant, request)
    if speed is None:
        return None
    taken = predict(contestant, request)
    return speed.seconds(taken.flops, taken.bytes_moved)


def _memory_bar(words: Mapping[str, str], of: Contestant, point: Point | None, expected: int | float | None) -> Bar:
    if point is None or point.peak_bytes is None:
        return _without(words, of, point, expected, "" if expected is None else units.binary_bytes(expected))
    return Bar(of.label, point.peak_bytes, predicted=expected, text=units.binary_bytes(point.peak_bytes))


def _time_bar(words: Mapping[str, str], of: Contestant, point: Point | None, expected: int | float | None) -> Bar:
    taken = None if point is None else point.latency_s
    if point is None or taken is None:
        return _without(words, of, point, expected, "" if expected is None else f"≥ {units.short_seconds(expected)}")
    ratio = "" if point.ratio in (None, 1.0) else f" · {units.number(point.ratio or 1.0, 2)}×"
    text = f"{units.seconds(taken.median)}{ratio}"
    return Bar(of.label, taken.median, taken.lower, taken.upper, expected, text, taken.noisy)


def _without(
    words: Mapping[str, str], of: Contestant, point: Point | None, expected: int | float | None, text: str
) -> Bar:
    """Give a bar of which nothing has been measured: not yet, or not at all."""
    refused = point is not None and point.failure is not None
    return Bar(of.label, predicted=expected, text=words["not_run"] if refused else text and f"({text})")


def _caption(words: Mapping[str, str], known: Sequence[Point | None], memory: bool) -> str:
    """Say what is drawn and how it was measured."""
    title = words["memory" if memory else "time"]
    if memory:
        methods = {point.memory_method for point in known if point is not None and point.memory_method}
        named = ", ".join(words[f"method.{method.replace(' ', '_')}"] for method in sorted(methods))
        return f"{title} · {named}" if named else title
    taken = [point.latency_s for point in known if point is not None and point.latency_s is not None]
    if not taken:
        return title
    noise = f" · {words['noisy']}" if any(one.noisy for one in taken) else ""
    runs = min(one.runs for one in taken)
    return f"{title} · {words['rounds'].format(runs=runs) if runs > 1 else words['round']}{noise}"
