"""Figures of the saturation page, as the plain data and layout of a Plotly figure (``go.Figure(...)`` takes them).

They follow a slider, and checking every property of a figure would cost more than the computation that it shows.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Figure = dict[str, Any]
Arrays = Mapping[str, np.ndarray]

# The first colours of the light theme; the page names its theme's own instead.
COLOURS = ("#0b5cad", "#c44601", "#00795a", "#8a2d8f", "#8c6500")
BINS = 80
_GREY = "rgba(128,128,128,0.9)"
_ALLOW = {"ticklabeloverflow": "allow"}  # so that the browser need not measure each label: the margins hold them
_MARGIN = {"l": 8, "r": 12, "t": 6, "b": 8}
# A power of ten below the smallest and above the largest value is room enough on a logarithmic axis.
_FLOOR = 1e-6
# Room at the right for a data type beside its line, where no dot can lie under it.
_LEVEL_NAME = 66


def curve(
    d_k: np.ndarray,
    dots: Arrays,
    lines: Mapping[str, np.ndarray | None],
    *,
    names: Mapping[str, str],
    x_title: str,
    now: int,
    symbols: Mapping[str, Sequence[str]] | None = None,
    second: Arrays | None = None,
    log: bool = False,
    limits: tuple[float, float] | None = None,
    levels: Mapping[str, float] | None = None,
    colours: Sequence[str] = COLOURS,
) -> Figure:
    """Draw one quantity against d_k: measured dots, predicted lines, the d_k that is looked at as a vertical line.

    Args:
        d_k: ``[points]``.
        dots: Scaling → ``[points]`` measured.
        lines: Scaling → ``[points]`` predicted, or None where nothing is.
        names: Scaling → what it is called.
        x_title: Title of the axis of d_k.
        now: The d_k that is looked at.
        symbols: Scaling → the symbol of each dot.
        second: Scaling → a second measured quantity as small triangles.
        log: Whether the quantity's axis is logarithmic.
        limits: Range of the quantity; None fits it.
        levels: Name, a word that fits beside the plot → height of a horizontal line.
        colours: A colour for each scaling.
    """
    data: list[Figure] = [
        {"type": "scatter", "x": d_k, "y": np.where(line > 0, line, np.nan) if log else line, "name": names[name],
         "mode": "lines", "hoverinfo": "skip", "line": {"color": colours[index], "width": 2}}
        for index, name in enumerate(dots) if (line := lines.get(name)) is not None
    ]  # fmt: skip
    every = [symbol for name in dots for symbol in (symbols[name] if symbols else ["circle"] * len(d_k))]
    data.append(_dots(d_k, dots, names, colours, {"size": 9, "symbol": _one_or_all(every)}))
    if second is not None:
        data.append(_dots(d_k, second, names, colours, {"size": 6, "symbol": "triangle-up-open"}))
    low, high = limits or _fitted([*dots.values(), *(second or {}).values()], log)
    y_axis: Figure = {**_ALLOW, "range": [np.log10(low), np.log10(high)] if log else [low, high], "nticks": 6}
    if log:
        y_axis |= {"type": "log", **_powers(low, high)}
    x_axis = {**_ALLOW, "type": "log", "tickvals": [1, 4, 16, 64, 256, 1024], "title": {"text": x_title, "standoff": 4}}
    shapes, notices = _levels(levels or {}, low, high, log)
    shapes.append(
        {"type": "line", "xref": "x", "yref": "paper", "x0": now, "x1": now, "y0": 0, "y1": 1,
         "line": {"color": _GREY, "width": 2, "dash": "dot"}}
    )  # fmt: skip
    margin = _MARGIN | ({"r": _LEVEL_NAME} if levels else {})
    layout = {"xaxis": x_axis, "yaxis": y_axis, "showlegend": False, "margin": margin, "height": 250}
    return {"data": data, "layout": {**layout, "shapes": shapes, "annotations": notices}}


def _dots(d_k: np.ndarray, values: Arrays, names: Mapping[str, str], colours: Sequence[str], look: Figure) -> Figure:
    """Give the dots of all scalings as one trace: the browser takes a millisecond for each trace, dots or not."""
    each = [colours[index] for index in range(len(values)) for _ in d_k]
    return {
        "type": "scatter", "mode": "markers", "x": np.tile(d_k, len(values)), "y": np.concatenate([*values.values()]),
        "text": [names[name] for name in values for _ in d_k],
        "marker": {**look, "color": each, "line": {"width": 1.5, "color": each}},
        "hovertemplate": "%{x} · %{y:.4g}<extra>%{text}</extra>",
    }  # fmt: skip


def _one_or_all(values: Sequence[str]) -> str | list[str]:
    """Give the one value where all are the same, which is drawn faster."""
    return values[0] if len(set(values)) == 1 else list(values)


def _powers(low: float, high: float) -> Figure:
    """Give the ticks of a logarithmic axis: 1, 2 and 5 times the powers of ten, or some of the powers alone."""
    exponents = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    steps = (1, 2, 5) if high / low < 60 else (1,)
    ticks = [step * 10.0**exponent for exponent in exponents[:: max(1, len(exponents) // 6)] for step in steps]
    return {"tickvals": ticks, "ticktext": [f"{tick:g}".replace("e-0", "e-").replace("e+", "e") for tick in ticks]}


def _fitted(columns: Sequence[np.ndarray], log: bool) -> tuple[float, float]:
    """Give a range that holds every finite value, a power of ten at least on a logarithmic axis."""
    every = np.concatenate(columns)
    every = every[np.isfinite(every) & ((every > 0) if log else True)]
    if every.size == 0:
        return (0.1, 1.0) if log else (0.0, 1.0)
    if not log:
        return min(0.0, float(every.min())), float(every.max()) * 1.08 or 1.0
    high = float(every.max()) * 1.5
    return max(float(every.min()) / 1.5, high * _FLOOR), high


def _levels(levels: Mapping[str, float], low: float, high: float, log: bool) -> tuple[list[Figure], list[Figure]]:
    """Give a horizontal line for each level in sight, its name beside it, below and above the line in turn."""
    shapes, notices = [], []
    for index, (words, level) in enumerate(levels.items()):
        if not low <= level <= high:
            continue
        shapes.append(
            {"type": "line", "xref": "paper", "yref": "y", "x0": 0, "x1": 1, "y0": level, "y1": level,
             "line": {"color": _GREY, "width": 1.5, "dash": "dash"}}
        )  # fmt: skip
        notices.append(
            {"xref": "paper", "yref": "y", "x": 1, "y": np.log10(level) if log else level, "text": words,
             "showarrow": False, "xanchor": "left", "yanchor": ("bottom", "top")[index % 2]}
        )  # fmt: skip
    return shapes, notices


def densities(
    scores: Arrays,
    normals: Mapping[str, Sequence[tuple[float, float, float]] | None],
    *,
    names: Mapping[str, str],
    x_title: str,
    colours: Mapping[str, str],
    reach: float,
    highest: float | None = None,
    rarest: float | None = None,
) -> Figure:
    """Draw how scores are distributed, in steps, over the normal distributions that theory expects.

    Args:
        scores: Name → all scores.
        normals: Name → (share, mean, standard deviation) of each normal part, or None where nothing is expected.
        names: Name → what it is called.
        x_title: Title of the axis of scores.
        colours: Name → colour.
        reach: The axis goes from −reach to reach.
        highest: Where the axis of densities ends; None fits it.
        rarest: Where a logarithmic axis of densities begins; None draws a linear one from 0.
    """
    data: list[Figure] = []
    for name, values in scores.items():
        middles, counted = _steps(values, reach)
        # Areas of several distributions would hide one another.
        look = {"fill": "tozeroy", "opacity": 0.75} if len(scores) == 1 else {}
        data.append(
            {"type": "scatter", "x": middles, "y": counted, "mode": "lines", "name": names[name],
             "line": {"shape": "hvh", "width": 1.5, "color": colours[name]}, **look,
             "hovertemplate": "%{x:.3g} · %{y:.3g}<extra>%{fullData.name}</extra>"}
        )  # fmt: skip
        parts = [part for part in normals.get(name) or () if part[2] > 0]
        if not parts:
            continue
        bells = [mean + np.linspace(-5.0, 5.0, 121) * deviation for _, mean, deviation in parts]
        fine = np.sort(np.concatenate([[-reach, reach], *bells]))
        expected = sum(
            share * np.exp(-0.5 * ((fine - mean) / deviation) ** 2) / (deviation * np.sqrt(2 * np.pi))
            for share, mean, deviation in parts
        )
        data.append(
            {"type": "scatter", "x": fine, "y": expected, "mode": "lines", "hoverinfo": "skip",
             "name": names[name], "line": {"width": 2.5, "color": colours[name], "dash": "dash"}}
        )  # fmt: skip
    y_axis: Figure = {"range": [0, highest]} if highest else {"rangemode": "tozero"}
    if rarest:
        ends = np.log10([rarest, 1.5 * max(float(np.max(trace["y"])) for trace in data)])
        y_axis = {"type": "log", "range": ends.tolist(), "exponentformat": "power"}
    layout = {"showlegend": False, "margin": _MARGIN, "height": 300, "yaxis": y_axis | {"nticks": 5}}
    return {"data": data, "layout": {**layout, "xaxis": {"title": {"text": x_title}, "range": [-reach, reach]}}}


def _steps(values: np.ndarray, reach: float) -> tuple[np.ndarray, np.ndarray]:
    """Give middles and heights of a histogram as fine as its own values ask for; bins for all would blunt the narrow.

    What is not finite is counted among all, and lies in no bin.
    """
    finite = values[np.isfinite(values) & (np.abs(values) <= reach)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    if high - low <= 1e-6 * reach:  # all alike
        low, high = -reach, reach
    counted, edges = np.histogram(finite, np.linspace(low, high, BINS + 1))
    width = edges[1] - edges[0]
    # An empty bin at either end brings the line down to 0.
    middles = low + (np.arange(BINS + 2) - 0.5) * width
    return middles, np.pad(counted, 1) / max(1, values.size) / width


def training(
    shown: Arrays,
    *,
    names: Mapping[str, str],
    x_title: str,
    log: bool,
    steps: int,
    most: float | None = None,
    colours: Sequence[str] = COLOURS,
) -> Figure:
    """Draw a quantity of the training against its steps, a line for each scaling.

    Args:
        shown: Scaling → ``[steps]``.
        names: Scaling → what it is called.
        x_title: Title of the axis of steps.
        log: Whether the quantity's axis is logarithmic.
        steps: Where the axis of steps ends.
        most: Where the axis of the quantity ends at the latest: a training that runs away leaves it.
        colours: A colour for each scaling.
    """
    data = []
    for index, (name, values) in enumerate(shown.items()):
        data.append(
            {"type": "scatter", "x": np.arange(1, len(values) + 1), "y": values, "mode": "lines", "name": names[name],
             "line": {"width": 2.5, "color": colours[index]},
             "hovertemplate": "%{x} · %{y:.4g}<extra>%{fullData.name}</extra>"}
        )  # fmt: skip
    y_axis: Figure = {"type": "log", "exponentformat": "power", "nticks": 6} if log else {"rangemode": "tozero"}
    finite = [values[np.isfinite(values)].max(initial=0.0) for values in shown.values()]
    if most is not None and max(finite, default=0.0) > most:
        y_axis = {"range": [0, most]}
    layout = {"showlegend": True, "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom"}, "height": 300}
    x_axis = {"title": {"text": x_title}, "range": [0, steps]}
    return {"data": data, "layout": {**layout, "margin": _MARGIN, "yaxis": y_axis, "xaxis": x_axis}}
