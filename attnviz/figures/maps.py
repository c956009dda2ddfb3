"""Attention maps as Plotly figures, for notebooks and files: the same colours, ranges and marks as on the page."""

from collections.abc import Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import plotly.graph_objects as go

from attnviz.figures.words import literal

VALUE, MASKED, NO_KEY = 0, 1, 2
_NAN, _INFINITE, _BELOW = 3, 4, 5
NAMES = 32
# Above so many stretches of masked cells the hatching would cost more than the picture; the ground alone then shows it.
MOST_HATCHES = 2_000


class Palette(NamedTuple):
    """Hold the colours of one theme; ``marks`` are masked, no key, NaN, infinite and below the scale."""

    sequential: tuple[str, ...]
    diverging: tuple[str, ...]
    background: str
    text: str
    marks: tuple[str, ...]
    strokes: tuple[str, str]


def _colours(digits: str) -> tuple[str, ...]:
    return tuple(f"#{one}" for one in digits.split())


# The ramps, text and background are those of .streamlit/config.toml; a test holds them together.
PALETTES = MappingProxyType(
    {
        "light": Palette(
            _colours("f4faf8 c5e7db 98d1c9 6eb9c5 409fbf 3182b4 2665a9 1d4c8b 15356e 0e1f52"),
            _colours("7a2f00 ab5416 db7d37 ecb795 f6efe9 e9f0f6 9bc2e5 4893d2 2562a1 0c3470"),
            "#ffffff", "#14181f", ("#ecedee", "#eedec7", "#be0a7c", "#14181f", "#ded0f0"), ("#c2c3c5", "#b06a00"),
        ),
        "dark": Palette(
            _colours("171d28 1f304e 274477 27608a 237d9b 389b9b 57b890 8bcf93 c5e1a1 fbf3b0"),
            _colours("ffc38a df8c4d b05f22 6f4223 33261d 1d2733 274d74 2d76b9 65a2dc 9bd0ff"),
            "#11151b", "#f1f4f7", ("#35393e", "#45381f", "#ff5cc4", "#f1f4f7", "#423062"), ("#4b4f54", "#ffb22e"),
        ),
    }
)  # fmt: skip


def heatmap(
    values: np.ndarray,
    *,
    state: np.ndarray | None = None,
    rows: Sequence[str] | None = None,
    cols: Sequence[str] | None = None,
    title: str = "",
    row_title: str = "query",
    col_title: str = "key",
    words: Sequence[str] = ("masked", "row without a key", "NaN", "infinite", "0, below the scale"),
    signed: bool = False,
    log: bool = False,
    low: float | None = None,
    high: float | None = None,
    theme: str = "light",
) -> go.Figure:
    """Draw a map as the page draws it.

    Args:
        values: ``[rows, cols]``, such as a head's weights.
        state: ``[rows, cols]``: 0 for a value, 1 for a masked cell, 2 for a row without a key; None means all values.
        rows: Names of the rows; None shows indices.
        cols: Names of the columns.
        title: Title of the figure.
        row_title: What a row is.
        col_title: What a column is.
        words: What the hover says of a masked cell, a row without a key, NaN, infinity and a 0 on a log scale.
        signed: Whether values have a sign: the colours then are symmetric about 0.
        log: Whether the colours are logarithmic; for values without a sign.
        low: Value of the first colour; None takes 0, −high where signed, or the least positive value on a log scale.
        high: Value of the last colour; None takes the largest value.
        theme: ``light`` or ``dark``.

    Raises:
        ValueError: If the shapes differ, the theme is not known, or ``log`` and ``signed`` are both asked for.
    """
    state = np.zeros(values.shape, np.uint8) if state is None else state
    if values.ndim != 2 or state.shape != values.shape:
        raise ValueError(f"values and state must be two-dimensional and alike, got {values.shape} and {state.shape}")
    if theme not in PALETTES:
        raise ValueError(f"theme must be one of {', '.join(PALETTES)}, got {theme!r}")
    if log and signed:
        raise ValueError("log must be False for signed values, got log=True and signed=True")
    palette = PALETTES[theme]
    marks = _marks(values, state, log)
    shown = np.where(marks == VALUE, values, np.nan)
    low, high = _range(shown, signed, log, low, high)
    figure = go.Figure([_values(shown, low, high, log, palette, signed), _states(marks, palette, words)])
    figure.add_traces(_hatching(marks, palette))
    for axis, names, name in ((figure.update_xaxes, cols, col_title), (figure.update_yaxes, rows, row_title)):
        axis({"title": name, "showgrid": False, "zeroline": False, "constrain": "domain", **_ticks(names)})
    figure.update_xaxes(range=[-0.5, values.shape[1] - 0.5])
    figure.update_yaxes(range=[values.shape[0] - 0.5, -0.5], scaleanchor="x")
    return figure.update_layout(
        title=literal(title), font={"color": palette.text}, plot_bgcolor=palette.background, barmode="overlay",
        paper_bgcolor=palette.background, showlegend=False, bargap=0, width=640, height=600,
    )  # fmt: skip


def _marks(values: np.ndarray, state: np.ndarray, log: bool) -> np.ndarray:
    """Say of each cell whether it has a colour of the ramp, and else why not."""
    marks = state.astype(np.uint8)
    for kind, found in ((_NAN, np.isnan(values)), (_INFINITE, np.isinf(values)), (_BELOW, log & (values <= 0))):
        marks[(marks == VALUE) & found] = kind
    return marks


def _range(shown: np.ndarray, signed: bool, log: bool, low: float | None, high: float | None) -> tuple[float, float]:
    """Give the values of the first and the last colour, as the page chooses them."""
    counted = shown[np.isfinite(shown)]
    largest = float(np.abs(counted).max(initial=0.0)) or 1.0
    high = largest if high is None else high
    if low is None:
        least = float(counted.min(initial=high)) if log else 0.0
        low = -high if signed else max(min(least, high / 10), high * 1e-12) if log else 0.0
    return low, high


def _values(shown: np.ndarray, low: float, high: float, log: bool, palette: Palette, signed: bool) -> go.Heatmap:
    ramp = palette.diverging if signed else palette.sequential
    bar: dict[str, object] = {"outlinewidth": 0, "tickfont": {"color": palette.text}}
    if log:
        powers = np.arange(np.ceil(np.log10(low)), np.floor(np.log10(high)) + 1)
        bar |= {"tickvals": powers, "ticktext": [f"1e{int(power)}" for power in powers]}
    return go.Heatmap(
        z=np.log10(shown) if log else shown,
        customdata=shown,
        zmin=np.log10(low) if log else low,
        zmax=np.log10(high) if log else high,
        colorscale=list(ramp),
        colorbar=bar,
        hoverongaps=False,
        hovertemplate="%{y} → %{x}<br>%{customdata:.6g}<extra></extra>",
    )


def _states(marks: np.ndarray, palette: Palette, words: Sequence[str]) -> go.Heatmap:
    """Give the cells without a value in the colours of their kind; the hover says which it is."""
    kinds = len(palette.marks)
    scale = [[edge / kinds, colour] for kind, colour in enumerate(palette.marks) for edge in (kind, kind + 1)]
    return go.Heatmap(
        z=np.where(marks == VALUE, np.nan, marks),
        zmin=0.5,
        zmax=kinds + 0.5,
        colorscale=scale,
        showscale=False,
        hoverongaps=False,
        customdata=np.array(["", *words])[marks],
        hovertemplate="%{y} → %{x}<br>%{customdata}<extra></extra>",
    )


def _hatching(marks: np.ndarray, palette: Palette) -> list[go.Bar]:
    """Give the hatching over masked cells and over rows without a key, a bar for each stretch of a row."""
    bars = []
    for kind, shape, stroke in ((MASKED, "/", palette.strokes[0]), (NO_KEY, "\\", palette.strokes[1])):
        edges = np.diff((marks == kind).astype(np.int8), axis=1, prepend=0, append=0)
        row, start = np.nonzero(edges == 1)
        stop = np.nonzero(edges == -1)[1]
        if len(row) == 0 or len(row) > MOST_HATCHES:
            continue
        pattern = {"shape": shape, "fgcolor": stroke, "size": 7, "bgcolor": "rgba(0,0,0,0)"}
        marker = {"color": stroke, "pattern": pattern, "line": {"width": 0}}
        length = stop - start
        bars.append(
            go.Bar(x=length, y=row, base=start - 0.5, orientation="h", width=1, marker=marker, hoverinfo="skip")
        )
    return bars


def _ticks(names: Sequence[str] | None) -> dict[str, object]:
    if names is None:
        return {}
    shown = range(0, len(names), max(1, -(-len(names) // NAMES)))
    return {
        "tickmode": "array",
        "tickvals": list(shown),
        "ticktext": [f"{literal(names[index])} · {index}" for index in shown],
    }
