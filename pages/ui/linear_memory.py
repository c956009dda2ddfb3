"""What the call holds at its peak at each length: the memory of the linear page's costs, predicted and measured."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from attnviz import units
from attnviz.benchmark import Point
from attnviz.figures.measured import Curve, curves
from attnviz.linear_view import cost
from attnviz.linear_view.settings import View
from pages.ui.plot.spec import Drawn
from pages.ui.translate import say, table

HEIGHT = 330
# The length at which both are named: where linear attention was reported to take more.
NAMED = 1024
Peaks = dict[str, dict[int, int]]
T = TypeVar("T")


def taken(points: Mapping[str, Mapping[int, Point]], of: Callable[[Point], T | None]) -> dict[str, dict[int, T]]:
    """Give what of the points of each kind is known, by length."""
    found = {kind: {length: of(point) for length, point in each.items()} for kind, each in points.items()}
    return {kind: {at: one for at, one in each.items() if one is not None} for kind, each in found.items()}


def drawn(view: View, found: Peaks, language: str) -> Drawn:
    """Draw the predicted peak of each kind as a line, and those that were measured as dots."""
    words = table(language, "linear.cost")
    # Between the lengths that are measured, too: the fused kernel takes larger pieces from some length on.
    lengths = sorted({round(32 * 2 ** (step / 8)) for step in range(57)})
    rows = [
        Curve(words[kind], list(found[kind]), list(found[kind].values()),
              predicted=(lengths, cost.peaks(view, kind, lengths)))
        for kind in cost.WEIGHED
    ]  # fmt: skip
    figure = curves(
        rows, x_title=words["length"], predicted=words["memory_predicted"], label=units.binary_bytes, base=4,
        ticks=(cost.LENGTHS, [units.short_length(length) for length in cost.LENGTHS]),
    )  # fmt: skip
    figure["layout"] |= {"height": HEIGHT}
    of_both = found if any(found.values()) else _predicted(view)
    key = "memory_measured" if any(found.values()) else "memory"
    both = [length for length in of_both["softmax"] if length in of_both["linear"]]
    if not both:
        return Drawn(figure, words["memory_title"], words["memory_title"])
    at = NAMED if NAMED in both else both[-1]
    named = {kind: units.binary_bytes(of_both[kind][at]) for kind in cost.WEIGHED if at in of_both[kind]}
    caption = words[key].format(
        length=units.count(at), linear=named["linear"], softmax=named["softmax"],
        more=_more([at for at in both if of_both["linear"][at] > of_both["softmax"][at]], both, language),
    )  # fmt: skip
    numbers = ", ".join(f"{words[kind]} {size}" for kind, size in named.items())
    return Drawn(
        figure, caption, words["alt"].format(title=words["memory_title"], length=units.count(at), numbers=numbers)
    )


def _predicted(view: View) -> Peaks:
    return {kind: dict(zip(cost.LENGTHS, cost.peaks(view, kind, cost.LENGTHS), strict=True)) for kind in cost.WEIGHED}


def _more(more: Sequence[int], both: Sequence[int], language: str) -> str:
    """Say at which of the lengths linear attention takes more."""
    words = table(language, "linear.cost")
    if not more or len(more) == len(both):
        return words["more_always" if more else "more_never"]
    if list(more) == list(both[: len(more)]):
        return words["more_up_to"].format(length=units.count(more[-1]))
    return words["more_at"].format(lengths=words["comma"].join(map(units.count, more)))


def words(view: View, language: str) -> str:
    """Say why a causal form takes the memory that it takes, in numbers of the view."""
    held = cost.every_state(view, NAMED)
    mine = cost.peaks(view, "linear", (NAMED,))[0]
    return say(
        language, "linear.cost.memory_note", length=units.count(NAMED), held=units.binary_bytes(held),
        times=units.ratio(held / mine),
    )  # fmt: skip
