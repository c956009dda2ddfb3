"""A roofline: what speed a device can give to work of a certain intensity, and where given work stands."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from attnviz import units

Figure = dict[str, Any]
HEIGHT = 390
_GREY = "rgba(128,128,128,0.9)"
_SYMBOLS = ("circle", "square", "diamond", "triangle-up")


class Roof(NamedTuple):
    """Hold one device: its peak in FLOP/s and its bandwidth in bytes per second; ``own`` is this machine."""

    name: str
    flops: float
    bandwidth: float
    own: bool = False


def roofline(
    roofs: Sequence[Roof],
    work: Mapping[str, float],
    measured: Mapping[str, tuple[float, float]],
    *,
    x_title: str,
    measured_name: str,
) -> Figure:
    """Draw roofs over intensity, work as marks on each of them, and measured points.

    Args:
        roofs: The devices.
        work: Name → FLOPs per byte.
        measured: Name → (FLOPs per byte, FLOP/s) as measured on this machine.
        x_title: Title of the axis of intensity.
        measured_name: What the measured points are called.

    Source:
        Williams, Waterman, Patterson 2009, https://doi.org/10.1145/1498765.1498785
    """
    places = [*work.values(), *(x for x, _ in measured.values()), *(roof.flops / roof.bandwidth for roof in roofs)]
    low, high = min([*places, 1.0]) / 3, max([*places, 100.0]) * 4
    data: list[Figure] = []
    for index, roof in enumerate(roofs):
        ridge = roof.flops / roof.bandwidth
        xs = sorted({low, min(max(ridge, low), high), high})
        colour = _GREY if roof.own else f"theme-{index % 8}"
        line = {"color": colour, "width": 2.5, "dash": "dash" if roof.own else "solid"}
        data.append({"type": "scatter", "mode": "lines", "x": xs, "y": [_reached(roof, x) for x in xs], "line": line,
                     "name": roof.name, "hoverinfo": "skip"})  # fmt: skip
    for index, (name, x) in enumerate(work.items()):
        symbol = _SYMBOLS[index % len(_SYMBOLS)]
        data.append({
            "type": "scatter", "mode": "markers", "x": [x] * len(roofs), "y": [_reached(roof, x) for roof in roofs],
            "name": name, "marker": {"symbol": symbol, "size": 10, "color": _GREY},
            "text": [roof.name for roof in roofs],
            "hovertemplate": "%{text}: %{y:.3~s}FLOP/s · %{x:.3~g} FLOP/B<extra>%{fullData.name}</extra>",
        })  # fmt: skip
    if measured:
        names, points = list(measured), list(measured.values())
        symbols = [f"{_SYMBOLS[list(work).index(name) % len(_SYMBOLS)]}-open" for name in names]
        data.append({
            "type": "scatter", "mode": "markers", "x": [x for x, _ in points], "y": [y for _, y in points],
            "name": measured_name, "text": names, "marker": {"symbol": symbols, "size": 14, "line": {"width": 3}},
            "hovertemplate": "%{text}: %{y:.3~s}FLOP/s · %{x:.3~g} FLOP/B<extra></extra>",
        })  # fmt: skip
    axis = {"type": "log", "exponentformat": "SI", "dtick": 1}
    heights = [y for trace in data for y in trace["y"]]
    powers = [10.0**power for power in range(math.floor(math.log10(min(heights))), 19)]
    names_of = [units.flops_per_second(value) for value in powers]
    layout = {
        "height": HEIGHT, "margin": {"l": 8, "r": 12, "t": 22, "b": 8}, "annotations": _named(roofs, work, high),
        "xaxis": {**axis, "title": {"text": x_title}, "range": [math.log10(low), math.log10(high)]},
        "yaxis": {"type": "log", "automargin": True, "tickvals": powers, "ticktext": names_of},
        "legend": {"orientation": "h", "x": 0, "y": -0.24, "yanchor": "top", "font": {"size": 12}},
    }  # fmt: skip
    return {"data": data, "layout": layout}


def _named(roofs: Sequence[Roof], work: Mapping[str, float], right: float) -> list[Figure]:
    """Name each roof at its flat end, and each work above its mark on the highest roof."""
    notices: list[Figure] = []
    for index, roof in enumerate(roofs):
        colour = {} if roof.own else {"color": f"theme-{index % 8}"}
        notices.append(
            {"x": math.log10(right), "y": math.log10(roof.flops), "xanchor": "right", "yanchor": "bottom",
             "text": roof.name, "font": {"size": 13, **colour}}
        )  # fmt: skip
    for name, x in work.items():
        top = max((_reached(roof, x) for roof in roofs), default=None)
        if top is not None:
            notices.append(
                {"x": math.log10(x), "y": math.log10(top), "xanchor": "center", "yanchor": "bottom", "yshift": 6,
                 "text": name, "font": {"size": 13}}
            )  # fmt: skip
    # On a phone they would lie over one another; the legend stands in for them there.
    return [{"name": "wide", "xref": "x", "yref": "y", "showarrow": False, **notice} for notice in notices]


def _reached(roof: Roof, intensity: float) -> float:
    return min(roof.flops, intensity * roof.bandwidth)
