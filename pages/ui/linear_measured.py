"""What mixing the tokens takes on this machine, measured at each length: the linear page's costs beside the FLOPs."""

from collections.abc import Sequence

import streamlit as st

from attnviz import units
from attnviz.benchmark import Latency, Point, Request, Result
from attnviz.figures.measured import Curve, curves
from attnviz.linear_view import cost
from attnviz.linear_view.settings import View
from pages.ui import linear_memory, measured
from pages.ui.bus import Group
from pages.ui.controls import Panel
from pages.ui.measured_bars import points
from pages.ui.plot import plot
from pages.ui.plot.spec import Drawn
from pages.ui.translate import say, table

HEIGHT = linear_memory.HEIGHT
Known = dict[str, dict[int, Latency]]


def section(panel: Panel, flops: Drawn, group: Group) -> None:
    """Offer the measurement, and draw what is counted and predicted, with what is known of it.

    Args:
        panel: The page's panel.
        flops: The chart of FLOPs, which follows the sliders.
        group: The live group that it follows.
    """
    words = table(panel.language, "linear.cost")
    asked = cost.requests(panel.settled.view, {kind: words[kind] for kind in cost.WEIGHED})
    measured.section(panel, "cost", asked, lambda requests, shown: _draw(panel, flops, group, requests, shown))


def _draw(panel: Panel, flops: Drawn, group: Group, requests: Sequence[Request], shown: Sequence[Result]) -> None:
    view, language = panel.settled.view, panel.language
    points = known(requests, shown)
    left, right = st.columns(2, gap="medium")
    with left:
        _plot(panel, "flops", flops, group)
    with right:
        weighed = linear_memory.taken(points, lambda point: point.peak_bytes)
        _plot(panel, "memory", linear_memory.drawn(view, weighed, language))
    found = linear_memory.taken(points, lambda point: point.latency_s)
    if not any(found.values()):
        st.caption(panel.title("cost.hint"))
        st.caption(f"{panel.title('cost.note')} {linear_memory.words(view, language)}")
        return
    left, right = st.columns(2, gap="medium")
    with left:
        _plot(panel, "time", drawn(view, found, language))
    for key in ("note", "time_note"):
        right.caption(panel.title(f"cost.{key}"))
    right.caption(linear_memory.words(view, language))


def _plot(panel: Panel, key: str, one: Drawn, group: Group | None = None) -> None:
    plot(
        one.figure, key=f"linear.{key}", label=one.caption, alt=one.alt, caption=one.caption,
        words=table(panel.language, "plot"), height=HEIGHT, group=group, part=None if group is None else key,
    )  # fmt: skip


def known(requests: Sequence[Request], shown: Sequence[Result]) -> dict[str, dict[int, Point]]:
    """Give what is known of each kind, by length."""
    found: dict[str, dict[int, Point]] = {kind: {} for kind in cost.WEIGHED}
    for request, result in zip(requests, shown, strict=False):
        kinds = cost.kinds(request.q_len)
        for kind, point in zip(kinds, points(result, len(kinds)), strict=True):
            if point is not None:
                found[kind][request.q_len] = point
    return found


def drawn(view: View, found: Known, language: str) -> Drawn:
    """Draw the times of each kind, and what its FLOPs alone would take as fast as softmax's at the longest length."""
    words = table(language, "linear.cost")
    longest = max((length for times in found.values() for length in times), default=0)
    rate = cost.flops(view, longest)["softmax"] / found["softmax"][longest].median if longest in found["softmax"] else 0
    lengths = [length for length in cost.LENGTHS if length <= longest]
    shown = []
    for kind, times in found.items():
        line = [cost.flops(view, length)[kind] / rate for length in lengths] if rate and kind in cost.KINDS else None
        every = list(times.values())
        shown.append(
            Curve(
                words[kind], list(times), [one.median for one in every], [one.lower for one in every],
                [one.upper for one in every], [one.noisy for one in every], None if line is None else (lengths, line),
            )
        )  # fmt: skip
    figure = curves(
        shown, x_title=words["length"], predicted=words["predicted"], label=units.seconds,
        noisy=say(language, "measure.hollow"),
        ticks=(cost.LENGTHS, [units.short_length(length) for length in cost.LENGTHS]),
    )  # fmt: skip
    figure["layout"] |= {"height": HEIGHT}
    caption = _caption(found, longest, language)
    numbers = ", ".join(
        f"{words[kind]} {units.seconds(times[longest].median)}" for kind, times in found.items() if longest in times
    )
    title = words["time_title"]
    return Drawn(figure, caption, words["alt"].format(title=title, length=units.count(longest), numbers=numbers))


def _caption(found: Known, longest: int, language: str) -> str:
    """Say from which length on linear attention was faster, of those at which both were measured."""
    words = table(language, "linear.cost")
    both = [length for length in found["softmax"] if length in found["linear"]]
    if not both:
        return words["time_title"]
    softmax, linear = ([found[kind][length].median for length in both] for kind in ("softmax", "linear"))
    cross = cost.crossed(both, softmax, linear)
    runs = min(found[kind][length].runs for kind in ("softmax", "linear") for length in both)
    return words["time" if cross else "time_never"].format(
        cross=units.count(cross or 0), runs=runs, longest=units.count(longest)
    )
