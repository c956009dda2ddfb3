"""Figures of the flash page's walk, as the plain data and layout of Plotly figures: they follow sliders."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from attnviz import units
from attnviz.figures.outline import comb, strokes

Figure = dict[str, Any]

HEIGHT = 350
# Half-way grey stands on light and dark ground alike.
_GREY = "rgba(128,128,128,0.9)"
_UPPER, _LOWER = [0.57, 0.93], [0.1, 0.42]
# Up to so many entries of an output have a bar of their own.
_BARS = 128
# Below float32's own grain a distance is as good as none.
LEAST = 1e-9
# An axis spans at least this share of the numbers on it: below, its ticks would differ in their last digits alone.
_NARROWEST = 0.2


def statistics(
    keys: np.ndarray,
    lines: Sequence[tuple[str, np.ndarray, float]],
    *,
    done: int,
    last: int,
    x_title: str,
    exact: str,
) -> Figure:
    """Draw two running numbers of a row against the keys passed, one above the other, each with where it has to arrive.

    Args:
        keys: ``[tiles]``: keys passed after each tile.
        lines: Title, values ``[tiles]`` and eager's value of the upper and the lower number.
        done: Tiles worked off so far; what comes after is dotted.
        last: Number of keys there are.
        x_title: Title of the axis of keys.
        exact: What eager's value is called.
    """
    data: list[Figure] = []
    layout = _layout(x_title, last)
    for index, (title, values, target) in enumerate(lines):
        axis = "y" if index == 0 else "y2"
        data += _course(keys, values, done, axis, "x" if index == 0 else "x2")
        if np.isfinite(target):
            data.append(_level(target, last, exact, axis, "x" if index == 0 else "x2"))
        layout["annotations"].append(_title(title, index))
        finite = [*values[np.isfinite(values)], *([target] if np.isfinite(target) else [])]
        layout["yaxis" if index == 0 else "yaxis2"] |= _scale(*_range(finite))
    return {"data": data, "layout": layout}


def output(
    keys: np.ndarray,
    now: np.ndarray,
    exact: np.ndarray,
    distance: np.ndarray,
    *,
    done: int,
    last: int,
    titles: tuple[str, str],
    names: tuple[str, str],
    x_title: str,
) -> Figure:
    """Draw a row's running output beside the exact one, and below it how far it is after each tile.

    Args:
        keys: ``[tiles]``: keys passed after each tile.
        now: ``[width]``, the output divided by the sum.
        exact: ``[width]``.
        distance: ``[tiles]``.
        done: Tiles worked off so far.
        last: Number of keys there are.
        titles: Titles of the two.
        names: What the running and the exact output are called.
        x_title: Title of the axis of keys.
    """
    hover = {"hoveron": "points", "hovertemplate": "%{customdata} · %{y:.5g}<extra>%{fullData.name}</extra>"}
    entries = np.arange(len(now))
    if len(now) <= _BARS:
        x, y = comb(entries, now, 0.0, 0.9)
        bars = {"x": x, "y": y, "customdata": np.repeat(entries, 4), "fill": "toself", "fillcolor": "theme-0",
                "line": {"width": 0}}  # fmt: skip
    else:
        bars = {"x": entries, "y": now, "customdata": entries, "line": {"color": "theme-0"}}
    x, y = strokes(entries, exact, 1.6)
    marks = {"x": x, "y": y, "customdata": np.repeat(entries, 3), "line": {"color": "theme-1", "width": 2.5}}
    data: list[Figure] = [
        {"type": "scatter", "mode": "lines", **hover, **bars, "name": names[0]},
        {"type": "scatter", "mode": "lines", **hover, **marks, "name": names[1]},
        *_course(keys, np.maximum(distance, LEAST), done, "y2", "x2", said=distance),
    ]
    layout = _layout(x_title, last)
    layout["annotations"] = [_title(title, index) for index, title in enumerate(titles)]
    layout["xaxis"] = {"anchor": "y", "showgrid": False, **_scale(-0.7, len(now) - 0.3, whole=True)}
    reach = 1.1 * float(max(np.abs(now).max(initial=0), np.abs(exact).max(initial=0))) or 1.0
    layout["yaxis"] |= _scale(-reach, reach)
    layout["yaxis2"] |= {
        "type": "log", "range": [math.log10(LEAST) - 1.0, max(1.0, math.log10(distance.max(initial=1.0)) + 0.4)],
        "tickvals": [1, 1e-3, 1e-6, LEAST],
        "ticktext": ["1", "1e−3", "1e−6", "0" if distance.min(initial=1.0) < LEAST else "1e−9"],
    }  # fmt: skip
    return {"data": data, "layout": layout}


def _layout(x_title: str, last: int) -> Figure:
    keys = _scale(0.0, last * 1.03, whole=True)
    return {
        "showlegend": False, "height": HEIGHT, "margin": {"l": 46, "r": 10, "t": 0, "b": 0}, "annotations": [],
        "xaxis": {**keys, "anchor": "y"},
        "xaxis2": {**keys, "anchor": "y2", "title": {"text": x_title, "standoff": 4}},
        "yaxis": {"domain": _UPPER, "zeroline": False},
        "yaxis2": {"domain": _LOWER, "zeroline": False, "anchor": "x2"},
    }  # fmt: skip


def _title(text: str, index: int) -> Figure:
    place = {"x": 0, "xref": "paper", "xanchor": "left", "y": (_UPPER if index == 0 else _LOWER)[1], "yref": "paper"}
    return {**place, "yanchor": "bottom", "yshift": 2, "showarrow": False, "text": f"<b>{text}</b>"}


def _course(
    keys: np.ndarray, values: np.ndarray, done: int, y_axis: str, x_axis: str, said: np.ndarray | None = None
) -> list[Figure]:
    """Give a number's course: solid as far as it has come, dotted beyond, the last one large.

    ``said`` is what the pointer reads where a value cannot stand at its own place.
    """
    values = np.where(np.isfinite(values), values, np.nan)
    said = values if said is None else said
    hover = "%{x} · %{customdata:.5g}<extra></extra>"
    common = {"type": "scatter", "xaxis": x_axis, "yaxis": y_axis, "hovertemplate": hover}
    look = {"color": "theme-0", "width": 2}
    sizes = [7] * max(0, done - 1) + [13] * min(1, done)
    return [
        {**common, "x": keys[max(0, done - 1) :], "y": values[max(0, done - 1) :],
         "customdata": said[max(0, done - 1) :], "mode": "lines", "opacity": 0.5,
         "line": look | {"dash": "dot"}},
        {**common, "x": keys[:done], "y": values[:done], "customdata": said[:done],
         "mode": "lines+markers", "line": look,
         "marker": {"color": "theme-0", "size": sizes, "opacity": 1}},
    ]  # fmt: skip


def _level(value: float, last: int, name: str, y_axis: str, x_axis: str) -> Figure:
    return {
        "type": "scatter", "mode": "lines", "x": [0, last * 1.03], "y": [value, value], "xaxis": x_axis,
        "yaxis": y_axis, "name": name, "line": {"color": "theme-1", "width": 2, "dash": "dash"},
        "hovertemplate": "%{y:.5g}<extra>%{fullData.name}</extra>",
    }  # fmt: skip


def _range(values: Sequence[float]) -> tuple[float, float]:
    """Give a range in which no line lies on the edge, and that is no narrower than its ticks can tell."""
    low, high = (float(min(values)), float(max(values))) if values else (0.0, 1.0)
    room = max(0.12 * (high - low), _NARROWEST * max(abs(low), abs(high)) / 2) or 0.5
    return low - room, high + room


def _scale(low: float, high: float, *, whole: bool = False) -> Figure:
    """Give an axis from ``low`` to ``high`` with two to five round ticks, each as short as it can be told apart."""
    size = 10.0 ** math.floor(math.log10((high - low) / 5))
    step = next(part * size for part in (1, 2, 5, 10, 20) if (high - low) / (part * size) < 5)
    step = max(1.0, step) if whole else step
    places = [step * at for at in range(math.ceil(low / step), math.floor(high / step) + 1)]
    # As many digits as the largest of them has down to the size of a step; places of a step have no others.
    digits = 1 + max(0, round(math.log10(max(map(abs, places)) or 1.0) - math.log10(step) + 0.5))
    return {"range": [low, high], "tickvals": places, "ticktext": [units.number(place, digits) for place in places]}
