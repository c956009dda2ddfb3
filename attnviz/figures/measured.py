"""Measured beside predicted, as the plain data and layout of a Plotly figure: bars at one shape, curves over sizes."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

Figure = dict[str, Any]
Amount = int | float

COLOURS = 8
_BAR_HEIGHT, _FRAME_HEIGHT = 34, 76
# Of a chart of curves: without its legend, a row of that, letters that a row holds, and what a sample line takes.
_PLOT_HEIGHT, _LEGEND_ROW, _LEGEND_LETTERS, _BESIDE = 320, 28, 48, 8
_MOST_MARKS, _MOST_TICKS = 5, 16
_MARGIN = {"l": 8, "r": 16, "t": 6, "b": 8}
_GREY = "rgba(128,128,128,0.9)"
_LONE = {"symbol": "line-ew-open", "size": 26, "line": {"width": 2}}
_REFUSED = {"symbol": "square-x-open", "size": 11, "line": {"width": 1.5}}
_DASHES, _DOTS = {"width": 2, "dash": "dash"}, {"width": 1.5, "dash": "dot"}


class Bar(NamedTuple):
    """Hold one bar; ``low`` and ``high`` are the quartiles, ``text`` what stands at its end.

    Without a ``value`` there is only what is predicted, or nothing but the text.
    """

    name: str
    value: Amount | None = None
    low: Amount | None = None
    high: Amount | None = None
    predicted: Amount | None = None
    text: str = ""
    noisy: bool = False


class Curve(NamedTuple):
    """Hold one curve: measured dots with their quartiles, a predicted line, and the line through the dots.

    ``xs``, ``ys``, ``lows``, ``highs`` and ``noisy`` are of the dots; each line is (xs, ys) or None; ``refused`` are
    places (x, y, why) where nothing was measured, and only the prediction is known.
    """

    name: str
    xs: Sequence[Amount]
    ys: Sequence[Amount]
    lows: Sequence[Amount] = ()
    highs: Sequence[Amount] = ()
    noisy: Sequence[bool] = ()
    predicted: tuple[Sequence[Amount], Sequence[Amount]] | None = None
    fitted: tuple[Sequence[Amount], Sequence[Amount]] | None = None
    refused: Sequence[tuple[Amount, Amount, str]] = ()


def bars(
    rows: Sequence[Bar], *, predicted: str, label: Callable[[float], str], base: int | Sequence[float] = 10
) -> Figure:
    """Draw a bar for each row on a logarithmic axis, the first on top, with a mark where it was predicted.

    Args:
        rows: The bars.
        predicted: What the mark is called.
        label: Gives a value of the axis in words.
        base: The axis has marks at powers of this, or at some of these places.
    """
    names = [row.name for row in rows]
    colours = [f"theme-{index % COLOURS}" for index in range(len(rows))]
    measured: Figure = {
        "type": "bar", "orientation": "h", "y": names, "x": [row.value for row in rows], "showlegend": False,
        "marker": {"color": colours, "opacity": [0.45 if row.noisy else 0.9 for row in rows], "line": {"width": 0}},
        "error_x": {
            "type": "data", "symmetric": False, "thickness": 1.5, "width": 4, "color": _GREY,
            "array": [_beyond(row.high, row.value) for row in rows],
            "arrayminus": [_beyond(row.value, row.low) for row in rows],
        },
        "hoverinfo": "skip",
    }  # fmt: skip
    mark: Figure = {
        "type": "scatter", "mode": "markers", "y": names, "x": [row.predicted for row in rows], "name": predicted,
        "marker": {"symbol": "line-ns-open", "size": 20, "color": _GREY, "line": {"width": 3, "color": _GREY}},
        "hoverinfo": "skip", "showlegend": any(row.predicted is not None for row in rows),
    }  # fmt: skip
    reach = _reach([number for row in rows for number in (row.value, row.low, row.high, row.predicted)])
    notes = [
        {
            "x": 1, "xref": "paper", "xanchor": "right", "y": row.name, "yref": "y", "showarrow": False,
            "text": row.text, "font": {"size": 14}, "align": "right",
        }
        for row in rows
    ]  # fmt: skip
    layout = {
        "height": _FRAME_HEIGHT + _BAR_HEIGHT * len(rows), "margin": {**_MARGIN, "t": 34}, "bargap": 0.35,
        "annotations": notes, "xaxis": {**_axis(reach, label, base), "domain": [0, _left_of(row.text for row in rows)]},
        "yaxis": {"autorange": "reversed", "automargin": True, "type": "category", "categoryarray": names},
        "legend": {"orientation": "h", "x": 0, "y": 1.0, "yanchor": "bottom"},
    }  # fmt: skip
    return {"data": [measured, mark], "layout": layout}


def _left_of(texts: Iterable[str]) -> float:
    """Give the share of the width that bars have left of the longest text, so that it lies over none of them."""
    return 1 - min(0.5, max(0.34, 0.025 * max(map(len, texts), default=0)))


def curves(
    rows: Sequence[Curve],
    *,
    x_title: str,
    predicted: str,
    fitted: str = "",
    refused: str = "",
    label: Callable[[float], str],
    base: int | Sequence[float] = 10,
    crossings: Mapping[str, tuple[Amount, Amount]] | None = None,
    ticks: tuple[Sequence[Amount], Sequence[str]] | None = None,
    noisy: str = "",
) -> Figure:
    """Draw curves on two logarithmic axes.

    Args:
        rows: The curves.
        x_title: Title of the axis of sizes.
        predicted: What the dashed lines are called.
        fitted: What the dotted lines are called.
        refused: What the marks of points that were not measured are called.
        label: Gives a value of the upright axis in words.
        base: The upright axis has marks at powers of this, or at some of these places.
        crossings: Words → where two curves cross.
        ticks: Places on the axis of sizes and what they are called.
        noisy: What hollow dots are called; empty leaves them without a name.
    """
    data = [trace for index, row in enumerate(rows) for trace in _curve(row, f"theme-{index % COLOURS}", label)]
    data += _samples(rows, predicted, fitted, refused)
    if noisy and any(any(row.noisy) for row in rows):
        data.append({**_entry(noisy, _GREY), "mode": "markers",
                     "marker": {"color": _GREY, "size": 9, "symbol": "circle-open"}})  # fmt: skip
    for words, (x, y) in (crossings or {}).items():
        data.append({"type": "scatter", "mode": "markers", "x": [x], "y": [y], "text": [words],
                     "showlegend": False, "hovertemplate": "%{text}<extra></extra>",
                     "marker": {"symbol": "x-thin-open", "size": 12, "color": _GREY,
                                "line": {"width": 2}}})  # fmt: skip
    x_axis: Figure = {"type": "log", "title": {"text": x_title}}
    if ticks is not None:
        low, high = math.log10(ticks[0][0]), math.log10(ticks[0][-1])
        every = -(-len(ticks[0]) // _MOST_TICKS)
        x_axis |= {"tickvals": list(ticks[0])[::every], "ticktext": list(ticks[1])[::every],
                   "range": [low - 0.08, high + 0.12]}  # fmt: skip
    held = [y for row in rows for y in (*row.ys, *row.lows, *row.highs, *(row.predicted[1] if row.predicted else ()))]
    named = [one["name"] for one in data if one.get("showlegend", True)]
    layout = {
        "height": _PLOT_HEIGHT + _LEGEND_ROW * _legend_rows(named),
        "margin": {**_MARGIN, "t": 30}, "xaxis": x_axis,
        "yaxis": {**_axis(_reach(held), label, base), "automargin": True},
        "legend": {"orientation": "h", "x": 0, "y": 1.0, "yanchor": "bottom", "maxheight": 0.85},
    }  # fmt: skip
    return {"data": data, "layout": layout}


def _samples(rows: Sequence[Curve], predicted: str, fitted: str, refused: str) -> list[Figure]:
    """Give what the legend says of lines and marks that every curve may have; they are nowhere in the chart."""
    nowhere: Figure = {"type": "scatter", "x": [None], "y": [None]}
    data: list[Figure] = []
    if any(row.predicted is not None for row in rows):
        data.append({**nowhere, "mode": "lines", "name": predicted, "line": {"color": _GREY, **_DASHES}})
    if any(row.fitted is not None for row in rows):
        data.append({**nowhere, "mode": "lines", "name": fitted, "line": {"color": _GREY, **_DOTS}})
    if any(row.refused for row in rows):
        data.append({**nowhere, "mode": "markers", "name": refused, "marker": {**_REFUSED, "color": _GREY}})
    return data


def _legend_rows(names: Sequence[str]) -> int:
    """Guess how many rows a legend takes on a phone; the powers that a name ends with come later and take room too."""
    rows, used = 0, _LEGEND_LETTERS
    for name in names:
        letters = len(name.partition("<sup>")[0]) + _BESIDE
        rows, used = (rows + 1, letters) if used + letters > _LEGEND_LETTERS else (rows, used + letters)
    return rows


def _curve(row: Curve, colour: str, label: Callable[[float], str]) -> list[Figure]:
    """Draw one curve: its lines, and over them its dots."""
    data: list[Figure] = []
    hidden = {"showlegend": False, "legendgroup": row.name, "hoverinfo": "skip", "type": "scatter", "mode": "lines"}
    for line, style in ((row.predicted, _DASHES), (row.fitted, _DOTS)):
        if line is not None:
            # A line through one point would not be seen.
            lone = {"mode": "markers", "marker": {"color": colour, **_LONE}} if len(line[0]) == 1 else {}
            data.append(
                {**hidden, "x": list(line[0]), "y": list(line[1]), "opacity": 0.8,
                 "line": {"color": colour, **style}, **lone}
            )  # fmt: skip
    spread = {}
    if row.lows:
        spread = {
            "error_y": {
                "type": "data", "symmetric": False, "thickness": 1, "width": 3, "color": colour,
                "array": [_beyond(high, value) for high, value in zip(row.highs, row.ys, strict=True)],
                "arrayminus": [_beyond(value, low) for low, value in zip(row.lows, row.ys, strict=True)],
            }
        }  # fmt: skip
    symbols = ["circle-open" if noisy else "circle" for noisy in row.noisy] or "circle"
    # A legend takes the shape of a curve's first dot: hollow, it would stand for the whole curve; and it leaves out a
    # curve without dots.
    apart = symbols[0] == "circle-open" or len(row.xs) == 0
    if apart:
        data.append({**_entry(row.name, colour), "legendgroup": row.name})
    data.append(
        {"type": "scatter", "mode": "lines+markers", "x": list(row.xs), "y": list(row.ys), "name": row.name,
         "showlegend": not apart,
         "legendgroup": row.name, "marker": {"color": colour, "size": 9, "symbol": symbols},
         "line": {"color": colour, "width": 1.5},
         "hovertemplate": "%{x} · %{y:.3~s}<extra>%{fullData.name}</extra>", **spread}
    )  # fmt: skip
    if row.refused:
        xs, ys, why = zip(*row.refused, strict=True)
        data.append(
            {"type": "scatter", "mode": "markers", "x": list(xs), "y": list(ys), "text": list(why),
             "showlegend": False, "legendgroup": row.name, "marker": {**_REFUSED, "color": colour},
             "hovertemplate": "%{text}<extra></extra>"}
        )  # fmt: skip
    return data


def _entry(name: str, colour: str) -> Figure:
    """Give a curve of which only the legend shows something."""
    return {"type": "scatter", "mode": "markers+lines", "x": [None], "y": [None], "name": name,
            "marker": {"color": colour, "size": 9, "symbol": "circle"},
            "line": {"color": colour, "width": 1.5}}  # fmt: skip


def _beyond(high: Amount | None, low: Amount | None) -> Amount:
    return max(0.0, high - low) if high is not None and low is not None else 0.0


def _reach(numbers: Sequence[Amount | None]) -> list[float]:
    """Give the range, in powers of ten, of a logarithmic axis that holds these numbers; at least two powers wide.

    Without any number it is empty: there is nothing that marks could stand for.
    """
    held = [number for number in numbers if number is not None and number > 0]
    if not held:
        return [0.0, 0.0]
    low, high = math.log10(min(held)), math.log10(max(held))
    # A bar on a logarithmic axis has no natural foot: the smallest one is given some room.
    return [min(low - 0.4, high - 2), high + 0.15]


def _axis(reach: Sequence[float], label: Callable[[float], str], base: int | Sequence[float]) -> Figure:
    if reach[0] == reach[1]:
        return {"type": "log", "range": [0, 1], "tickvals": [], "ticktext": []}
    marks = _marks(reach, base)
    return {"type": "log", "range": list(reach), "tickvals": marks, "ticktext": list(map(label, marks))}


def _marks(reach: Sequence[float], base: int | Sequence[float]) -> list[float]:
    """Give the places that lie on an axis: powers of a base or some out of a list, about five at most."""
    if isinstance(base, int):
        step = math.log10(base)
        powers = range(math.ceil(reach[0] / step), math.floor(reach[1] / step) + 1)
        places = [(power, float(base) ** power) for power in powers]
    else:
        places = [(index, place) for index, place in enumerate(base) if reach[0] <= math.log10(place) <= reach[1]]
    every = max(1, -(-len(places) // _MOST_MARKS))
    return [place for number, place in places if number % every == 0]
