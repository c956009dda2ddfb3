"""A roofline: what speed a device can give to work of a certain intensity, and where given work stands."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from attnviz import units

Figure = dict[str, Any]
HEIGHT = 364
# What the figure is high without its margins, and the height of a line of text, both in pixels.
_PLOT, _LINE = 290, 15
_LEGEND_LINE = 19
# What it is wide on a desktop, and what a letter takes.
_WIDTH, _LETTER = 850, 8
_SEPARATOR = ", "
# Where nothing published says how far a slope goes, it is drawn to a bend that is common among accelerators.
_OPEN_END = 100.0
# Share of the width that is left for the roofs' names.
_NAMES = 0.17
_GREY = "rgba(128,128,128,0.9)"
# Of what was measured: no roof has it.
_INK = "theme-text"
_SYMBOLS = ("circle", "square", "diamond", "triangle-up")


class Roof(NamedTuple):
    """Hold one device.

    Args:
        name: Its name.
        flops: Peak in FLOP/s; None where none is known, which leaves the slope without a roof.
        bandwidth: Bytes per second.
        own: Whether it is this machine.
        work: Name → FLOPs per byte, where it is not what the other roofs are given.
    """

    name: str
    flops: float | None
    bandwidth: float
    own: bool = False
    work: Mapping[str, float] | None = None


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
    ridges = [roof.flops / roof.bandwidth for roof in roofs if roof.flops is not None]
    own = [x for roof in roofs for x in (roof.work or {}).values()]
    places = [*work.values(), *own, *(x for x, _ in measured.values()), *ridges]
    low, high = min([*places, 1.0]) / 3, max([*places, _OPEN_END]) * 2
    ends = [_end(roof, roofs, high) for roof in roofs]
    data = [_line(roof, index, low, end) for index, (roof, end) in enumerate(zip(roofs, ends, strict=True))]
    for index, name in enumerate(work):
        data.append(_marks(name, _SYMBOLS[index % len(_SYMBOLS)], _placed(name, roofs, work, ends)))
    if measured:
        symbols = [f"{_SYMBOLS[list(work).index(name) % len(_SYMBOLS)]}-open" for name in measured]
        data.append({
            "type": "scatter", "mode": "markers", "x": [x for x, _ in measured.values()],
            "y": [y for _, y in measured.values()], "name": measured_name, "text": list(measured),
            "marker": {"symbol": symbols, "size": 14, "color": _INK, "line": {"width": 3, "color": _INK}},
            "hovertemplate": "%{text}: %{y:.3~s}FLOP/s · %{x:.3~g} FLOP/B<extra></extra>",
        })  # fmt: skip
    heights = [math.log10(y) for trace in data for y in trace["y"]] or [0.0, 1.0]
    bottom, top = min(heights) - 0.2, max(heights) + 0.6
    powers = [10.0**power for power in range(math.ceil(bottom), math.floor(top) + 1)]
    left, right = math.log10(low), math.log10(high)
    width = (right - left) / (1 - _NAMES)
    pixels = _PLOT / (top - bottom)
    layout = {
        # On a phone the legend has a line for each name, and stands in for those in the picture.
        "meta": {"narrow_height": HEIGHT + _LEGEND_LINE * len(data)},
        "height": HEIGHT, "margin": {"l": 8, "r": 12, "t": 8, "b": 8},
        "annotations": _named(roofs, ends, pixels) + _above(roofs, work, ends, _WIDTH / width, pixels),
        "xaxis": {"type": "log", "tickformat": "~s", "dtick": 1, "title": {"text": x_title},
                  "range": [left, left + width]},
        "yaxis": {"type": "log", "automargin": True, "tickvals": powers, "range": [bottom, top],
                  "ticktext": [units.flops_per_second(value) for value in powers]},
        "legend": {"orientation": "h", "x": 0, "y": -0.24, "yanchor": "top", "font": {"size": 12}},
    }  # fmt: skip
    return {"data": data, "layout": layout}


def _end(roof: Roof, roofs: Sequence[Roof], high: float) -> float:
    """Give how far a roof is drawn: a slope without one to the first bend of a published roof."""
    if roof.flops is not None:
        return high
    return min((one.flops / one.bandwidth for one in roofs if one.flops is not None and not one.own), default=_OPEN_END)


def _line(roof: Roof, index: int, low: float, end: float) -> Figure:
    bend = end if roof.flops is None else min(max(roof.flops / roof.bandwidth, low), end)
    xs = sorted({low, bend, end})
    dash = "dash" if roof.own else "dot" if roof.flops is None else "solid"
    line = {"color": _colour(roof, index), "width": 2.5, "dash": dash}
    return {"type": "scatter", "mode": "lines", "x": xs, "y": [_reached(roof, x) for x in xs], "line": line,
            "name": roof.name, "hoverinfo": "skip"}  # fmt: skip


def _colour(roof: Roof, index: int) -> str:
    return _GREY if roof.own else f"theme-{index % 8}"


def _placed(
    name: str, roofs: Sequence[Roof], work: Mapping[str, float], ends: Sequence[float]
) -> list[tuple[Roof, float]]:
    """Give the roofs that reach as far as a work, each with the work's intensity there."""
    found = [(roof, (roof.work or work)[name], end) for roof, end in zip(roofs, ends, strict=True)]
    return [(roof, x) for roof, x, end in found if x <= end]


def _marks(name: str, symbol: str, placed: Sequence[tuple[Roof, float]]) -> Figure:
    return {
        "type": "scatter", "mode": "markers", "x": [x for _, x in placed], "y": [_reached(*each) for each in placed],
        "name": name, "marker": {"symbol": symbol, "size": 10, "color": _GREY},
        "text": [roof.name for roof, _ in placed],
        "hovertemplate": "%{text}: %{y:.3~s}FLOP/s · %{x:.3~g} FLOP/B<extra>%{fullData.name}</extra>",
    }  # fmt: skip


def _named(roofs: Sequence[Roof], ends: Sequence[float], pixels: float) -> list[Figure]:
    """Name each roof behind its end, apart from the others; ``pixels`` are those of a power of ten."""
    order = sorted(range(len(roofs)), key=lambda index: _reached(roofs[index], ends[index]))
    heights = _apart([math.log10(_reached(roofs[index], ends[index])) for index in order], _LINE / pixels)
    notices: list[Figure] = []
    for index, height in zip(order, heights, strict=True):
        colour = {} if roofs[index].own else {"color": _colour(roofs[index], index)}
        notices.append(
            {"x": math.log10(ends[index]), "y": height, "xanchor": "left", "yanchor": "middle", "xshift": 4,
             "text": roofs[index].name, "font": {"size": 13, **colour}}
        )  # fmt: skip
    return _wide(notices)


def _above(
    roofs: Sequence[Roof], work: Mapping[str, float], ends: Sequence[float], across: float, pixels: float
) -> list[Figure]:
    """Name each work above its mark on the highest roof, several together where they would stand over one another.

    ``across`` and ``pixels`` are those of a power of ten, sideways and upwards.
    """
    groups: list[tuple[list[str], float, float]] = []
    for name in sorted(work, key=lambda name: work[name]):
        marks = [(_reached(*each), each[1]) for each in _placed(name, roofs, work, ends)]
        if not marks:
            continue
        y, x = (math.log10(value) for value in max(marks))
        if groups:
            names, left, height = groups[-1]
            room = _LETTER * (len(_SEPARATOR.join(names)) + len(name)) / 2
            if (x - left) * across < room and abs(y - height) * pixels < _LINE:
                groups[-1] = ([*names, name], (left * len(names) + x) / (len(names) + 1), max(height, y))
                continue
        groups.append(([name], x, y))
    return _wide(
        [{"x": x, "y": y, "xanchor": "center", "yanchor": "bottom", "yshift": 6, "text": _SEPARATOR.join(names),
          "font": {"size": 13}} for names, x, y in groups]
    )  # fmt: skip


def _wide(notices: Sequence[Figure]) -> list[Figure]:
    # On a phone they would lie over one another; the legend stands in for them there.
    return [{"name": "wide", "xref": "x", "yref": "y", "showarrow": False, **notice} for notice in notices]


def _apart(heights: Sequence[float], gap: float) -> list[float]:
    """Move ascending heights as little as it takes for each to stand a gap above the one before."""
    groups: list[tuple[float, int]] = []
    for index, height in enumerate(heights):
        mean, count = height - index * gap, 1
        while groups and groups[-1][0] > mean:
            above, size = groups.pop()
            mean, count = (above * size + mean * count) / (size + count), size + count
        groups.append((mean, count))
    means = [mean for mean, count in groups for _ in range(count)]
    return [mean + index * gap for index, mean in enumerate(means)]


def _reached(roof: Roof, intensity: float) -> float:
    slope = intensity * roof.bandwidth
    return slope if roof.flops is None else min(roof.flops, slope)
