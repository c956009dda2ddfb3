"""Figures of what flash costs and how exact it is, as the plain data and layout of Plotly figures."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

Figure = dict[str, Any]

HEIGHT = 340
_GREY = "rgba(128,128,128,0.9)"
# Within this factor of each other two names would stand on each other.
_CLOSE = 8.0
_HOVER = "%{text}<extra>%{fullData.name}</extra>"


class Line(NamedTuple):
    """Describe one course of bytes.

    Args:
        name: What it is called.
        y: ``[points]``, NaN where there is none.
        colour: "theme-0" and so on, or any colour.
        mode: ``lines`` for a formula, ``markers`` for what was counted.
        dash: Of a line.
        symbol: Of a marker.
    """

    name: str
    y: np.ndarray
    colour: str
    mode: str = "lines"
    dash: str = "solid"
    symbol: str = "circle"


def costs(
    x: np.ndarray,
    lines: Sequence[Line],
    *,
    x_title: str,
    y_title: str,
    x_ticks: Mapping[float, str],
    y_ticks: Mapping[float, str],
    hover: Sequence[Sequence[str]],
    marks: Mapping[str, float] | None = None,
) -> Figure:
    """Draw courses of bytes on two logarithmic axes.

    Args:
        x: ``[points]``.
        lines: The courses.
        x_title: Title of the horizontal axis.
        y_title: Title of the vertical axis.
        x_ticks: Place → what stands there.
        y_ticks: Likewise.
        hover: What the hover says of each point, course by course.
        marks: Name → place of a vertical line.
    """
    data = []
    for line, said in zip(lines, hover, strict=True):
        there = np.isfinite(line.y)
        look: Figure = (
            {"line": {"color": line.colour, "width": 2, "dash": line.dash}}
            if line.mode == "lines"
            else {"marker": {"color": line.colour, "size": 9, "symbol": line.symbol, "line": {"width": 1.5}}}
        )
        text = [one for one, is_there in zip(said, there, strict=True) if is_there]
        shown = {"x": x[there], "y": line.y[there], "text": text}
        data.append({"type": "scatter", "mode": line.mode, "name": line.name, "hovertemplate": _HOVER, **shown, **look})
    shapes, notices = [], []
    places = sorted((marks or {}).values())
    for name, place in (marks or {}).items():
        # Of two lines close by, the left one has its name on its left, or lower where there is no room.
        close = place == places[0] and len(places) > 1 and places[1] / place < _CLOSE
        outside = close and place / x[0] >= _CLOSE
        look = {"color": _GREY, "width": 1.5, "dash": "dot"}
        shapes.append({"type": "line", "yref": "paper", "x0": place, "x1": place, "y0": 0, "y1": 1, "line": look})
        notices.append(
            {"x": np.log10(place), "y": 1, "yref": "paper", "text": name, "showarrow": False,
             "xanchor": "right" if outside else "left", "xshift": -3 if outside else 3,
             "yanchor": "top", "yshift": -18 if close and not outside else 0}
        )  # fmt: skip
    legend = {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0}
    return {
        "data": data,
        "layout": {
            "height": HEIGHT, "showlegend": True, "legend": legend, "margin": {"l": 8, "r": 8, "t": 8, "b": 8},
            "shapes": shapes, "annotations": notices,
            "xaxis": _log_axis(x_title, x_ticks), "yaxis": _log_axis(y_title, y_ticks) | {"automargin": True},
        },
    }  # fmt: skip


def _log_axis(title: str, ticks: Mapping[float, str]) -> Figure:
    named = {"text": title, "standoff": 4}
    return {"type": "log", "title": named, "tickvals": list(ticks), "ticktext": list(ticks.values())}


def errors(
    largest: Mapping[str, Sequence[float]],
    dtypes: Sequence[str],
    grain: Sequence[float],
    *,
    colours: Sequence[str],
    x_title: str,
    grain_name: str,
) -> Figure:
    """Draw each way's largest difference from float64, a line of dots for each dtype.

    Args:
        largest: Way → one number for each dtype; exactly 0 stands at the left end, under its name.
        dtypes: Names of the dtypes.
        grain: Spacing of numbers around the largest entry of the output, in each dtype.
        colours: A colour for each of the three ways.
        x_title: Title of the axis of differences.
        grain_name: What the spacing is called.
    """
    every = np.array([*largest.values(), grain], dtype=np.float64)
    # Where no row sees a key, everything is 0: there is nothing to give the axis its ends.
    positive = every[every > 0] if every.any() else np.array([1e-8, 1e-3])
    low, high = float(np.log10(positive.min())), float(np.log10(positive.max()))
    ticks = {10.0**power: f"1e{power}".replace("-", "−") for power in range(int(np.ceil(low)), int(high + 0.6) + 1)}
    if not every.all():
        # Exactly 0 has no place among powers of ten: it gets one of its own, with its name under it.
        low -= 1.0
        ticks = {10.0**low: "0"} | {place: text for place, text in ticks.items() if place > 10.0 ** (low + 0.6)}
    data: list[Figure] = [
        {"type": "scatter", "mode": "markers", "x": list(grain), "y": list(dtypes), "name": grain_name,
         "customdata": list(grain),
         "marker": {"symbol": "line-ns-open", "size": 26, "color": _GREY, "line": {"width": 2}}}
    ]  # fmt: skip
    for (name, values), colour, symbol in zip(largest.items(), colours, ("circle", "diamond", "square"), strict=True):
        shown = {"x": [max(value, 10.0**low) for value in values], "y": list(dtypes), "customdata": list(values)}
        look = {"color": colour, "size": 12, "symbol": symbol, "opacity": 0.9}
        data.append({"type": "scatter", "mode": "markers", **shown, "name": name, "marker": look})
    for trace in data:
        trace["hovertemplate"] = "%{customdata:.3g}<extra>%{fullData.name}</extra>"
    x_axis = {**_log_axis(x_title, ticks), "range": [low - 0.4, high + 0.6], "tickangle": 0}
    legend = {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0}
    layout = {"height": 260, "showlegend": True, "legend": legend, "margin": {"l": 8, "r": 8, "t": 8, "b": 8}}
    y_axis = {"type": "category", "autorange": "reversed", "automargin": True}
    return {"data": data, "layout": {**layout, "xaxis": x_axis, "yaxis": y_axis}}
