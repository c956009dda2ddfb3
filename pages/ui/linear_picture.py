"""The linear view as pictures with their words: what the page shows and what the live route sends."""

from collections.abc import Mapping

import numpy as np

from attnviz import units
from attnviz.linear_view.run import both, states
from attnviz.linear_view.settings import View, settle
from pages.ui import asked, linear_charts
from pages.ui.heatmap.frame import MASKED_STATE, VALUE_STATE, Axis, Grid, Map, pack
from pages.ui.plot.spec import specs, with_figures
from pages.ui.translate import counted, say

FIGURE = "linear"
WEIGHTS, STATE = "weights", "state"
# Share of the sum of squares from which one feature is said to hold most of a state.
HEAVY = 0.5


def weights(view: View, language: str) -> Grid:
    """Give the weights of softmax and those that the feature map implies, on the same queries, keys and scale."""
    found = both(view)
    rows, cols = (Axis(dim, say(language, f"attention.axis.{dim}"), view.length) for dim in ("query", "key"))
    state = np.where(np.tri(view.length, dtype=bool), VALUE_STATE, MASKED_STATE).astype(np.uint8)
    name = view.map.label.say(language)
    title = say(language, "linear.weights.linear", map=name)
    least, most = float(found.linear.min()), max(1.0, float(np.abs(found.linear).max()))
    # One bar of colours stands for both: where weights may be negative, 0 is in the middle of both.
    palette = "sequential" if view.map.is_positive else "diverging"
    drawn = tuple(
        Map(key, called, values, rows, cols, state, palette=palette,
            low=0.0 if view.map.is_positive else -high, high=high)
        for key, called, values, high in (
            ("softmax", "softmax", found.softmax, 1.0),
            ("linear", title, found.linear, 1.0 if view.map.is_positive else most),
        )
    )  # fmt: skip
    fields = {
        "error": units.percent(found.error), "map": name, "rows": found.nothing, "least": units.number(least, 2),
        "most": units.number(float(found.linear.max()), 2), "lost": units.count(found.lost),
        "features": units.count(found.features),
    }  # fmt: skip
    said = {"caption": True, "signed": least < 0, "lost": found.lost > 0, "nothing": found.nothing > 0}
    caption = " ".join(say(language, f"linear.weights.{key}", **fields) for key, holds in said.items() if holds)
    last = {"softmax": f"{found.softmax[-1].max():.3g}", "linear": f"{found.linear[-1].max():.3g}"}
    tokens = counted(language, "token", view.length)
    return Grid(drawn, caption, say(language, "linear.weights.alt", **fields, **last, tokens=tokens))


def state(view: View, language: str) -> Grid:
    """Give both states after the tokens taken in so far, in colours that stay for the whole sequence."""
    found = states(view)
    value = Axis("value", say(language, "linear.axis.value"), view.d_k)
    drawn = []
    for key, values, most, width in (
        ("linear", found.linear, found.linear_most, view.width),
        ("delta", found.delta, found.delta_most, view.d_k),
    ):
        side = Axis("feature", say(language, f"linear.axis.{'feature' if key == 'linear' else 'key'}"), width)
        reach = most or 1.0
        title = say(language, f"linear.state.{key}")
        drawn.append(Map(f"state_{key}", title, values, side, value, palette="diverging", low=-reach, high=reach))
    numbers = view.width * (view.d_k + 1)
    fields = {
        "step": view.step, "rows": view.width, "cols": view.d_k, "numbers": units.count(numbers),
        "cache": units.count(2 * view.step * view.d_k), "even": units.count(numbers // (2 * view.d_k) + 1),
    }  # fmt: skip
    energy = np.square(found.linear, dtype=np.float64).sum(1)
    share = float(energy.max() / (energy.sum() or 1.0))
    heavy = {"feature": int(energy.argmax()), "share": units.percent(share)}
    # Colours that reach to one feature's entries leave the others pale.
    said = ["caption", *(["heavy"] if view.width > 1 and share > HEAVY else [])]
    return Grid(
        tuple(drawn),
        " ".join(say(language, f"linear.state.{key}", **fields, **heavy) for key in said),
        say(language, "linear.state.alt", **fields, linear=f"{np.abs(found.linear).max():.3g}",
            delta=f"{np.abs(found.delta).max():.3g}"),
    )  # fmt: skip


def frame(params: Mapping[str, str]) -> bytes:
    """Give the bytes of the maps, the states and the curves below them.

    Raises:
        Refusal: For settings that cannot be read.
    """
    view, language, given = asked.read(params, settle)
    figures = specs(linear_charts.draw(view, language))
    grids = {WEIGHTS: weights(view, language), STATE: state(view, language)}
    return with_figures(pack(FIGURE, given, grids), figures)


def cell(params: Mapping[str, str]) -> dict[str, object]:
    """Give the exact value of one cell: ``map``, ``row`` and ``col`` say which.

    Raises:
        Refusal: For settings that cannot be read and cells outside the map.
    """
    view, language, _ = asked.read(params, settle, asked.OF_CELL)
    drawn = {one.key: one for grid in (weights(view, language), state(view, language)) for one in grid.maps}
    one = drawn[asked.one_of(params, "map", drawn)]
    row, col = asked.place(params, (one.values.shape[0], one.values.shape[1]))
    there = VALUE_STATE if one.state is None else int(one.state[row, col])
    value = np.format_float_positional(np.float32(one.values[row, col]), trim="-") if there == VALUE_STATE else ""
    return {"value": value, "state": there, "row": row, "col": col}
