"""The curves of the linear page: recall, random features, cost."""

from collections.abc import Mapping

import numpy as np

from attnviz import units
from attnviz.figures.curves import Curve, curves, powers_of_two
from attnviz.linear_view import cost, estimates, recall
from attnviz.linear_view.settings import View
from pages.ui.plot.spec import Drawn
from pages.ui.translate import table

COLOURS = tuple(f"theme-{index}" for index in range(5))
# An axis reaches so far above what was measured; an error below the second is float64's own.
_BEYOND, _ROUNDING = 100.0, 1e-16
# The chart of errors in recall ends here: twice the values, an answer is no answer any more.
_MOST_ERROR = 2.05
# Of recall and cost: the colour of each method.
_COLOUR = {"softmax": 0, "linear": 1, "sum": 4, "delta": 2}


def draw(view: View, language: str) -> dict[str, Drawn]:
    """Compute the curves that the view shows, by part; a timing is not among them."""
    shown = {"recall": _recall, "features": _features, "cost": _cost}
    return shown[view.show](view, language) if view.show in shown else {}


def _recall(view: View, language: str) -> dict[str, Drawn]:
    found, expected = recall.measure(view), recall.predicted(view.d_k)
    words = table(language, "linear.recall")
    names = {key: words[key].format(map=view.map.label.say(language)) for key in recall.METHODS}
    ticks = powers_of_two(1, 512, 2)
    marks = {float(view.d_k): words["mark"]}
    drawn = {}
    for part, values in (("error", found.error), ("right", found.right)):
        shown = [Curve(names[key], recall.PAIRS, values[key], _COLOUR[key]) for key in recall.METHODS]
        if part == "error":
            shown += [Curve(names[key], recall.PAIRS, line, _COLOUR[key], False) for key, line in expected.items()]
        figure = curves(
            shown, x_title=words["pairs"], ticks=ticks, limits=(0.0, _MOST_ERROR) if part == "error" else (0.0, 1.05),
            marks=marks, colours=COLOURS,
        )  # fmt: skip
        place = recall.PAIRS.index(64)
        numbers = ", ".join(f"{names[key]} {values[key][place]:.2f}" for key in recall.METHODS)
        alt = words["alt"].format(title=words[part], pairs=64, numbers=numbers)
        drawn[part] = Drawn(figure, words[part] + (_off_chart(words, names, values) if part == "error" else ""), alt)
    return drawn


def _off_chart(words: Mapping[str, str], names: Mapping[str, str], error: Mapping[str, np.ndarray]) -> str:
    """Say how far those errors go that the chart has no room for."""
    said = [
        words["far"].format(name=names[key], most=units.number(float(values.max()), 2),
                            pairs=units.count(recall.PAIRS[int(values.argmax())]))
        for key, values in error.items() if values.max() > _MOST_ERROR
    ]  # fmt: skip
    return words["off"].format(each=words["comma"].join(said)) if said else ""


def _features(view: View, language: str) -> dict[str, Drawn]:
    found = estimates.measure(view)
    words = table(language, "linear.features")
    ticks = {float(count): f"{count:,}" for count in estimates.COUNTS}
    place = estimates.COUNTS.index(256)
    kernel = [
        Curve(words["measured"], estimates.COUNTS, found.kernel, 0),
        Curve(words["measured"], estimates.COUNTS, found.expected, 0, False),
    ]
    # The formula may lie beyond all that was measured, and beyond all numbers.
    limits = _around([*found.kernel, *np.minimum(found.expected, _BEYOND * found.kernel.max())])
    formula = found.expected[place]
    off = "" if (found.expected <= limits[1]).any() else words["off"].format(
        value=units.number(formula, 2) if np.isfinite(formula) else words["infinite"])  # fmt: skip
    drawn = {
        "kernel": (
            curves(kernel, x_title=words["count"], ticks=ticks, log=True, colours=COLOURS, limits=limits),
            found.kernel,
        ),
        "output": (
            curves(
                [Curve(words["performer"], estimates.COUNTS, found.output, 0)], x_title=words["count"], ticks=ticks,
                log=True, limits=_around([*found.output, found.elu]), colours=COLOURS,
                levels={words["elu"]: found.elu} if found.elu > 0 else {},
            ),
            found.output,
        ),
    }  # fmt: skip
    return {
        part: Drawn(
            figure,
            words[part] + (off if part == "kernel" else ""),
            words["alt"].format(title=words[part], number=f"{numbers[place]:.3g}"),
        )
        for part, (figure, numbers) in drawn.items()
    }


def _around(values: list[float]) -> tuple[float, float]:
    positive = [value for value in values if np.isfinite(value) and value > _ROUNDING] or [1.0]
    return min(positive) / 1.6, max(positive) * 1.6


def _cost(view: View, language: str) -> dict[str, Drawn]:
    """Give FLOPs against length, with the length from which on linear attention has fewer."""
    words = table(language, "linear.cost")
    counted = [cost.flops(view, length) for length in cost.LENGTHS]
    columns = {kind: [each[kind] for each in counted] for kind in cost.KINDS}
    cross = cost.crossover(view)
    inside = cross is not None and cost.LENGTHS[0] <= cross <= cost.LENGTHS[-1]
    figure = curves(
        [Curve(words[kind], cost.LENGTHS, columns[kind], _COLOUR[kind]) for kind in cost.KINDS],
        x_title=words["length"], ticks=powers_of_two(cost.LENGTHS[0], cost.LENGTHS[-1], 2), log=True,
        marks={float(cross): units.count(cross)} if cross is not None and inside else {}, y_text=_flops(columns),
        colours=COLOURS,
    )  # fmt: skip
    caption = words["flops" if cross is not None else "flops_never"].format(
        cross=units.count(cross or 0), heads=cost.HEADS
    )
    numbers = ", ".join(f"{words[kind]} {units.flops(columns[kind][-1])}" for kind in cost.KINDS)
    alt = words["alt"].format(title=words["flops_title"], length=units.count(cost.LENGTHS[-1]), numbers=numbers)
    return {"flops": Drawn(figure, caption, alt)}


def _flops(columns: Mapping[str, list[int]]) -> dict[float, str]:
    every = [value for column in columns.values() for value in column]
    first, last = (int(np.floor(np.log10(value))) for value in (min(every), max(every)))
    return {10.0**power: units.flops(10**power) for power in range(first, last + 2)}
