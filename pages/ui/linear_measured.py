"""What mixing the tokens costs on this machine, measured at each length: the right half of the linear page's costs."""

from collections.abc import Sequence

import streamlit as st

from attnviz import units
from attnviz.benchmark import Latency, Request, Result
from attnviz.figures.measured import Curve, curves
from attnviz.linear_view import cost
from attnviz.linear_view.settings import View
from pages.ui import measured
from pages.ui.controls import Panel
from pages.ui.plot import plot
from pages.ui.plot.spec import Drawn
from pages.ui.translate import table

HEIGHT = 330
Known = dict[str, dict[int, Latency]]


def section(panel: Panel) -> None:
    """Offer the measurement, and draw what is known of it."""
    words = table(panel.language, "linear.cost")
    asked = cost.requests(panel.settled.view, {kind: words[kind] for kind in cost.KINDS})
    measured.section(panel, "cost", asked, lambda requests, shown: _draw(panel, requests, shown))


def _draw(panel: Panel, requests: Sequence[Request], shown: Sequence[Result]) -> None:
    found = known(requests, shown)
    if not any(found.values()):
        st.caption(panel.title("cost.hint"))
        return
    one = drawn(panel.settled.view, found, panel.language)
    plot(
        one.figure, key="linear.time", label=one.caption, alt=one.alt, caption=one.caption,
        words=table(panel.language, "plot"), height=HEIGHT,
    )  # fmt: skip


def known(requests: Sequence[Request], shown: Sequence[Result]) -> Known:
    """Give the times that are known of each kind, by length."""
    found: Known = {kind: {} for kind in cost.KINDS}
    for request, result in zip(requests, shown, strict=False):
        for kind, point in zip(cost.KINDS, measured.points(result, len(cost.KINDS)), strict=True):
            if point is not None and point.latency_s is not None:
                found[kind][request.q_len] = point.latency_s
    return found


def drawn(view: View, found: Known, language: str) -> Drawn:
    """Draw the times of each kind, and what its FLOPs alone would take as fast as softmax's at the longest length."""
    words = table(language, "linear.cost")
    longest = max((length for times in found.values() for length in times), default=0)
    rate = cost.flops(view, longest)["softmax"] / found["softmax"][longest].median if longest in found["softmax"] else 0
    lengths = [length for length in cost.LENGTHS if length <= longest]
    shown = []
    for kind, times in found.items():
        line = [cost.flops(view, length)[kind] / rate for length in lengths] if rate else None
        every = list(times.values())
        shown.append(
            Curve(
                words[kind], list(times), [one.median for one in every], [one.lower for one in every],
                [one.upper for one in every], [one.noisy for one in every], None if line is None else (lengths, line),
            )
        )  # fmt: skip
    figure = curves(
        shown, x_title=words["length"], predicted=words["predicted"], label=units.seconds,
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
