"""Quantities against a size, measured as dots and predicted as lines: plain data and layout of a Plotly figure."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

Figure = dict[str, Any]

COLOURS = ("#0b5cad", "#c44601", "#00795a", "#8a2d8f", "#8c6500")
HEIGHT = 330
_GREY = "rgba(128,128,128,0.9)"


class Curve(NamedTuple):
    """Hold one curve.

    Args:
        name: What it is called; curves of one name share one entry of the legend.
        x: ``[points]``.
        y: ``[points]``; NaN where there is nothing.
        colour: Place among the colours.
        measured: Dots joined by a thin line; else a dashed line without dots.
    """

    name: str
    x: Sequence[float] | np.ndarray
    y: Sequence[float] | np.ndarray
    colour: int
    measured: bool = True


def curves(
    shown: Sequence[Curve],
    *,
    x_title: str,
    ticks: Mapping[float, str],
    log: bool = False,
    x_log: bool = True,
    height: int = HEIGHT,
    limits: tuple[float, float] | None = None,
    marks: Mapping[float, str] | None = None,
    levels: Mapping[str, float] | None = None,
    y_text: Mapping[float, str] | None = None,
    colours: Sequence[str] = COLOURS,
) -> Figure:
    """Draw curves over a size.

    Args:
        shown: The curves.
        x_title: Title of the horizontal axis.
        ticks: Places on it → what stands there.
        log: Whether the vertical axis is logarithmic.
        x_log: Whether the horizontal one is.
        height: Height in CSS pixels.
        limits: Its range; None fits it.
        marks: Places on the horizontal axis → words beside a dotted line there.
        levels: Words → height of a dashed line.
        y_text: Places on the vertical axis → what stands there; None leaves them to Plotly.
        colours: The colours.
    """
    data = _traces(shown, colours)
    low, high = limits or _fitted([np.asarray(curve.y, dtype=float) for curve in shown], log)
    y_axis: Figure = {"range": [np.log10(low), np.log10(high)] if log else [low, high], "nticks": 6}
    if log:
        y_axis |= {"type": "log"}
        y_text = y_text or _plain(low, high)
    if y_text:
        y_axis |= {"tickvals": list(y_text), "ticktext": list(y_text.values())}
    shapes, notices = _marked(marks or {}, levels or {}, log, x_log)
    layout = {
        "height": height,
        "margin": {"l": 8, "r": 12, "t": 8, "b": 8},
        "xaxis": {"type": "log" if x_log else "linear", "title": {"text": x_title, "standoff": 4},
                  "tickvals": list(ticks), "ticktext": list(ticks.values()), "tickangle": 0},
        "yaxis": y_axis,
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "font": {"size": 14}},
        "showlegend": True,
        "shapes": shapes,
        "annotations": notices,
    }  # fmt: skip
    return {"data": data, "layout": layout}


def _traces(shown: Sequence[Curve], colours: Sequence[str]) -> list[Figure]:
    """Give a trace for each curve; a name stands in the legend once."""
    names: set[str] = set()
    data: list[Figure] = []
    for curve in shown:
        style = {"color": colours[curve.colour], "width": 1.5 if curve.measured else 2.5}
        data.append(
            {
                "type": "scatter", "x": np.asarray(curve.x), "y": np.asarray(curve.y, dtype=float), "name": curve.name,
                "mode": "lines+markers" if curve.measured else "lines", "legendgroup": curve.name,
                "line": style | ({} if curve.measured else {"dash": "dash"}), "marker": {"size": 9},
                "showlegend": curve.measured and curve.name not in names,
                "hovertemplate": "%{x:,} · %{y:.4g}<extra>%{fullData.name}</extra>",
            }
        )  # fmt: skip
        names.add(curve.name)
    return data


def powers_of_two(low: int, high: int, every: int = 1) -> dict[float, str]:
    """Give ticks at powers of two from ``low`` to ``high``, every so many of them."""
    first, last = low.bit_length() - 1, high.bit_length() - 1
    return {float(2**power): f"{2**power:,}" for power in range(first, last + 1, every)}


def _plain(low: float, high: float) -> dict[float, str]:
    """Give ticks of a logarithmic axis as plain numbers: 1, 2 and 5 times the powers of ten, or the powers alone."""
    powers = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    steps = (1, 2, 5) if high / low < 60 else (1,)
    return {step * 10.0**power: f"{step * 10.0**power:g}" for power in powers for step in steps}


def _fitted(columns: Sequence[np.ndarray], log: bool) -> tuple[float, float]:
    """Give a range that holds every finite value, and on a logarithmic axis every positive one."""
    every = np.concatenate(columns)
    every = every[np.isfinite(every) & ((every > 0) if log else True)]
    if every.size == 0:
        return (0.1, 1.0) if log else (0.0, 1.0)
    if not log:
        return min(0.0, float(every.min())), float(every.max()) * 1.08 or 1.0
    return float(every.min()) / 1.6, float(every.max()) * 1.6


def _marked(
    marks: Mapping[float, str], levels: Mapping[str, float], log: bool, x_log: bool
) -> tuple[list[Figure], list[Figure]]:
    """Give lines across the figure, with their words."""
    shapes: list[Figure] = [
        {"type": "line", "x0": at, "x1": at, "yref": "paper", "y0": 0, "y1": 1,
         "line": {"color": _GREY, "width": 2, "dash": "dot"}}
        for at in marks
    ]  # fmt: skip
    notices: list[Figure] = [
        {"x": float(np.log10(at)) if x_log else at, "yref": "paper", "y": 1, "text": words, "showarrow": False,
         "xanchor": "left", "yanchor": "top", "xshift": 4}
        for at, words in marks.items() if words
    ]  # fmt: skip
    for words, level in levels.items():
        shapes.append(
            {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": level, "y1": level,
             "line": {"color": _GREY, "width": 2, "dash": "dash"}}
        )  # fmt: skip
        notices.append(
            {"xref": "paper", "x": 1, "y": float(np.log10(level)) if log else level, "text": words,
             "showarrow": False, "xanchor": "right", "yanchor": "bottom"}
        )  # fmt: skip
    return shapes, notices
