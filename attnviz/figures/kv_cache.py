"""Figures of the KV cache page, as the plain data and layout of Plotly figures: they follow sliders."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from attnviz import units

Figure = dict[str, Any]

HEIGHT, SMALL = 400, 300
_TEXT = 15
# The share of the axis of memory that a bar's size at its end leaves free, on a phone too.
_FREE = 0.4
# So many steps are all named.
_FEW = 8

# Colour and dash of a curve by what it is; the same model has one colour, and dashes tell the others apart without any.
LOOKS = {
    "own": ("theme-0", "solid"), "kept": ("theme-0", "dash"), "ignored": ("theme-0", "dash"), "mha": ("theme-1", "dot"),
    "mqa": ("theme-2", "longdash"), "mla": ("theme-3", "dashdot"), "gqa": ("theme-4", "longdashdot"),
}  # fmt: skip


class Line(NamedTuple):
    """Hold one curve: its kind, one of ``LOOKS``, its name, its points, and the size at the context that is marked."""

    kind: str
    name: str
    xs: Sequence[int]
    ys: Sequence[int]
    size: int


class Bar(NamedTuple):
    """Hold one accelerator: its name, its memory in bytes, whether all fits, and what is said of it."""

    name: str
    memory: int
    fits: bool
    words: str


class Series(NamedTuple):
    """Hold one line over the steps: its name and its points."""

    name: str
    xs: Sequence[int]
    ys: Sequence[float] | Sequence[int]


def size_curves(lines: Sequence[Line], context: int, *, x_title: str) -> Figure:
    """Draw bytes against context, both on logarithmic axes; the first line is the one that is meant.

    Sizes go out as floats: a whole number of more than 64 bits has no place in the JSON that a browser gets.

    Args:
        lines: The curves.
        context: The context that is marked.
        x_title: Title of the contexts' axis.
    """
    data: list[Figure] = []
    for place, line in enumerate(lines):
        colour, dash = LOOKS[line.kind]
        style = {"color": colour, "width": 5 if place == 0 else 2.5, "dash": dash}
        hover = f"{line.name}<br>%{{x:,}}: %{{customdata}}<extra></extra>"
        data.append(
            {
                "type": "scatter", "mode": "lines", "x": list(line.xs), "y": [float(y) for y in line.ys],
                "name": line.name, "line": style, "hovertemplate": hover,
                "customdata": [units.both_bytes(y) for y in line.ys],
            }
        )  # fmt: skip
    # Behind the finger: every curve at the context that is set.
    for place, line in enumerate(lines):
        data.append(
            {
                "type": "scatter", "mode": "markers", "x": [context], "y": [float(line.size)], "showlegend": False,
                "marker": {"color": LOOKS[line.kind][0], "size": 15 if place == 0 else 9}, "name": line.name,
                "customdata": [units.both_bytes(line.size)], "hovertemplate": data[place]["hovertemplate"],
            }
        )  # fmt: skip
    sizes = [size for line in lines for size in (line.ys[0], line.ys[-1], line.size)]
    ends = [min(lines[0].xs[0], context), max(lines[0].xs[-1], context)]
    layout = {
        "height": HEIGHT,
        "margin": {"l": 70, "r": 12, "t": 8, "b": 48},
        "xaxis": {"type": "log", "title": {"text": x_title}, **_ticks(ends, units.short_length, 4), "tickangle": 0},
        "yaxis": {"type": "log", **_ticks(sizes, units.binary_bytes, 4)},
        # Above the plot: inside it, the line of the context would run through its words.
        "legend": {"x": 0, "y": 1.02, "yanchor": "bottom", "font": {"size": _TEXT}},
        "shapes": [
            {"type": "line", "x0": context, "x1": context, "yref": "paper", "y0": 0, "y1": 1,
             "line": {"color": "theme-0", "width": 1, "dash": "dash"}}
        ],
    }  # fmt: skip
    return {"data": data, "layout": layout}


def _ticks(values: Sequence[int], text: Callable[[int], str], every: int) -> Mapping[str, object]:
    """Give ticks at powers of two, every so many of them, with their text."""
    low, high = max(1, min(values)), max(values)
    first, last = low.bit_length() - 1, high.bit_length()
    step = every if last - first > 2 * every else 2
    places = [2**power for power in range(first, last + 1) if power % step == 0]
    return {
        "tickvals": [float(place) for place in places],
        "ticktext": [text(place) for place in places],
        "tickfont": {"size": _TEXT},
    }


def memory_bars(
    bars: Sequence[Bar], weights: int, cache: int, *, weights_name: str, cache_name: str, need_name: str
) -> Figure:
    """Draw the memory of each accelerator, and over all of them what weights and cache need.

    Args:
        bars: The accelerators, smallest first.
        weights: Bytes of the weights.
        cache: Bytes of the cache.
        weights_name: What the weights' part is called, with its size.
        cache_name: What the cache's part is called, with its size.
        need_name: The size of both, for where it lies beyond the axis.
    """
    need, end = weights + cache, _end([bar.memory for bar in bars], weights + cache)
    names = [bar.name for bar in bars]
    common = {
        "type": "bar", "orientation": "h", "y": names, "customdata": [bar.words for bar in bars],
        "hovertemplate": "%{y}: %{customdata}<extra></extra>",
    }  # fmt: skip
    parts = (
        (weights_name, "theme-3", [weights if bar.fits else 0 for bar in bars], 1.0, True),
        (cache_name, "theme-1", [cache if bar.fits else 0 for bar in bars], 1.0, True),
        ("", "theme-0", [bar.memory - need if bar.fits else bar.memory for bar in bars], 0.35, False),
    )
    data = [
        {**common, "x": xs, "name": name, "marker": {"color": colour, "opacity": opacity}, "showlegend": shown}
        for name, colour, xs, opacity, shown in parts
    ]
    line = {
        "type": "line", "x0": min(need, end), "x1": min(need, end), "yref": "paper", "y0": 0, "y1": 1,
        "line": {"color": "theme-1", "width": 3, "dash": "dash"},
    }  # fmt: skip
    layout = {
        "height": HEIGHT,
        "barmode": "stack",
        "bargap": 0.3,
        "margin": {"l": 8, "r": 8, "t": 8, "b": 34},
        "xaxis": {"range": [0, end], "domain": [0, 0.44], **_linear(end), "fixedrange": True},
        "yaxis": {"automargin": True, "autorange": "reversed", "tickfont": {"size": _TEXT}, "fixedrange": True},
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "font": {"size": _TEXT},
                   "traceorder": "normal"},
        "shapes": [line],
        "annotations": [
            *(_beside(bar) for bar in bars),
            *(_longer(end, bar, need) for bar in bars if bar.memory > end),
            *([_beyond(end, need_name)] if need > end else []),
        ],
    }  # fmt: skip
    return {"data": data, "layout": layout}


def _end(memories: Sequence[int], need: int) -> float:
    """Give where the axis of memory ends.

    What is needed is drawn as long as it can be without making the accelerators invisible. One that alone has far more
    than the others would make these so too: its bar is cut, unless it alone holds what is needed.
    """
    second, most = sorted(memories)[-2:] if len(memories) > 1 else (memories[0], memories[0])
    reach = 1.15 * second if most > 1.5 * second and need <= second else most
    return float(max(1.02 * reach, min(1.05 * need, 2 * reach)))


def _longer(end: float, bar: Bar, need: int) -> Figure:
    """Say at the end of the axis how far a bar goes that is cut there; only that it does where the line of need is."""
    size = f"{units.decimal_bytes(bar.memory)} " if need < _FREE * end else ""
    return {
        "x": end, "xanchor": "right", "y": bar.name, "showarrow": False, "text": f"{size}→", "font": {"size": _TEXT},
    }  # fmt: skip


def _beyond(end: float, text: str) -> Figure:
    """Say at the end of the axis that what is needed lies farther out."""
    return {
        "x": end, "y": 0, "yref": "paper", "yanchor": "bottom", "xanchor": "right", "showarrow": False,
        "text": f"{text} →", "font": {"size": _TEXT, "color": "theme-1"},
    }  # fmt: skip


def _beside(bar: Bar) -> Figure:
    """Give what is said of an accelerator, right of its bar's row."""
    text = f"<b>{bar.words}</b>" if bar.fits else bar.words
    return {
        "xref": "paper", "x": 0.46, "xanchor": "left", "y": bar.name, "text": text, "showarrow": False,
        "font": {"size": _TEXT},
    }  # fmt: skip


def _linear(end: int | float) -> Mapping[str, object]:
    """Give a few round ticks of an axis of bytes, in the units in which memory is sold."""
    step = next(size * 10**power for power in range(6, 18) for size in (1, 2, 5) if end / (size * 10**power) <= 2)
    places = [step * n for n in range(int(end // step) + 1)]
    return {
        "tickvals": places,
        "ticktext": [units.decimal_bytes(place) for place in places],
        "tickfont": {"size": _TEXT},
        "tickangle": 0,
    }


def series_chart(
    lines: Sequence[Series], *, x_title: str, text: Callable[[float], str], at: int | None = None, log: bool = False
) -> Figure:
    """Draw values over the steps.

    Args:
        lines: The lines.
        x_title: Title of the steps' axis.
        text: How a value reads.
        at: The step that is marked, or None.
        log: Whether the values' axis is logarithmic; what is zero is then left out.
    """
    data = []
    for place, line in enumerate(lines):
        values = [None if log and value <= 0 else value for value in line.ys]
        data.append(
            {
                "type": "scatter", "mode": "lines+markers", "x": list(line.xs), "y": values, "name": line.name,
                "line": {"color": f"theme-{place}", "width": 3}, "customdata": [text(value) for value in line.ys],
                "hovertemplate": f"{line.name}<br>%{{x}}: %{{customdata}}<extra></extra>",
            }
        )  # fmt: skip
    shown = [value for line in lines for value in line.ys if value > 0] or [1]
    ticks = _decades(min(shown), max(shown)) if log else _steps(max(shown))
    # By itself an axis of a few steps gets halves, rounded: a step named twice.
    steps = sorted({x for line in lines for x in line.xs})
    few = {"tickvals": steps} if len(steps) <= _FEW else {}
    mark = {
        "type": "line", "x0": at, "x1": at, "yref": "paper", "y0": 0, "y1": 1,
        "line": {"color": "theme-0", "width": 1, "dash": "dash"},
    }  # fmt: skip
    layout = {
        "height": SMALL,
        "margin": {"l": 70, "r": 12, "t": 8, "b": 44},
        "xaxis": {"title": {"text": x_title}, "tickfont": {"size": _TEXT}, "tickformat": "d", **few},
        "yaxis": {
            "type": "log" if log else "linear", "tickvals": ticks, "ticktext": [text(tick) for tick in ticks],
            "tickfont": {"size": _TEXT}, **({} if log else {"rangemode": "tozero"}),
        },
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "font": {"size": _TEXT}},
        "showlegend": len(lines) > 1,
        "shapes": [] if at is None else [mark],
    }  # fmt: skip
    return {"data": data, "layout": layout}


def _decades(low: int | float, high: int | float) -> list[float]:
    """Give the powers of ten that hold these values, and a step of three between where there are few."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    places = [10.0**power for power in range(first, last + 1)]
    return places if len(places) > 3 else sorted([*places, *(3 * place for place in places[:-1])])


def _steps(high: int | float) -> list[float]:
    """Give zero and a few even steps, powers of two or halfway between them, up to the value."""
    step = next(size * 2.0**power for power in range(-20, 60) for size in (1, 1.5) if high / (size * 2.0**power) <= 5)
    return [step * n for n in range(math.floor(high / step) + 1)]
