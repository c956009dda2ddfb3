"""One query's row of weights as a figure: a bar for each key, or a line where there are too many to tell apart."""

from collections.abc import Iterator, Sequence

import numpy as np
import plotly.graph_objects as go

from attnviz.figures.words import literal

# Up to so many keys each has a bar of its own; beyond, the row is drawn in so many steps at most.
BARS = 64
STEPS = 240
NAMES = 32
TOP_KEYS = 5
# Half-way greys, which stand on light and dark ground alike: a masked key is hatched, as in the maps.
_GROUND, _HATCH = "rgba(128,128,128,0.14)", "rgba(128,128,128,0.55)"


def row_bars(
    weights: np.ndarray,
    labels: Sequence[str],
    *,
    allowed: np.ndarray,
    selected: int | None,
    x_title: str,
    y_title: str,
    masked_word: str,
    weight_word: str | None = None,
    selected_word: str = "",
) -> go.Figure:
    """Draw one query's weights over its keys, the selected key in the second colour, masked keys hatched.

    A weight that is exactly 0 says so with the digit; it has no bar, but no hatching either. Of more than ``BARS`` keys
    neighbours share a step as high as the largest of them, and the heaviest keys are named.

    Args:
        weights: ``[kv_len]``.
        labels: Name of each key; repeated names stay separate bars.
        allowed: bool ``[kv_len]``; a masked key has no bar and says so.
        selected: Index of the selected key, or None.
        x_title: Title of the weights' axis.
        y_title: Title of the keys' axis.
        masked_word: What a masked key's hover says.
        weight_word: Name of the weights in a table of the numbers; None takes the axis title.
        selected_word: Name of the selected key's trace likewise.

    Returns:
        Four traces: weights, selected key, masked keys, zeros or names. Colours are the theme's first and second.
    """
    counted = np.where(allowed & np.isfinite(weights), weights, 0.0)
    few = len(weights) <= BARS
    # To the right of the peaks of a long row stand their names.
    top = float(counted.max(initial=0.0)) * (1.06 if few else 1.6) or 1.0
    draw = _bars if few else _line
    traces = draw(np.where(allowed, weights, np.nan), labels, allowed, selected, top, masked_word)
    for trace, name in zip(traces, (weight_word or x_title, selected_word, masked_word, ""), strict=True):
        trace.name = name
    figure = go.Figure(traces)
    shown = _shown(len(weights), selected)
    figure.update_yaxes(
        {"tickvals": shown, "ticktext": [_name(labels, key) for key in shown]} if few else {"nticks": 12}
    )
    figure.update_yaxes(
        range=[len(weights) - 0.5, -0.5],
        title=y_title,
        automargin=True,
        showgrid=False,
        zeroline=False,
    )
    figure.update_xaxes(title=x_title, range=[0, top], zeroline=False)
    height = 120 + int(np.clip(len(weights) * 18, 180, 360))
    return figure.update_layout(
        margin={"l": 8, "r": 8, "t": 8, "b": 8}, height=height, bargap=0.15, barmode="overlay", showlegend=False
    )


def _name(labels: Sequence[str], key: int) -> str:
    """Give a key's name with its index; a name that is the index is said once."""
    return str(key) if labels[key] == str(key) else f"{literal(labels[key])} · {key}"


def _shown(count: int, selected: int | None) -> list[int]:
    """Give the keys that are named along the axis: evenly spaced, the selected one among them."""
    every = max(1, -(-count // NAMES))
    shown = list(range(0, count, every))
    if selected is None or selected in shown:
        return shown
    return sorted([index for index in shown if abs(index - selected) >= every] + [selected])


def _bars(
    weights: np.ndarray,
    labels: Sequence[str],
    allowed: np.ndarray,
    selected: int | None,
    top: float,
    masked_word: str,
) -> list[go.Bar | go.Scatter]:
    """Give a bar for each key; one that is masked is hatched from end to end."""
    position = np.arange(len(weights))
    chosen = position == (-1 if selected is None else selected)
    hover = np.array([_said(key, labels, weights, masked_word, allowed) for key in range(len(weights))])
    zero = allowed & (weights == 0)
    plain = {"orientation": "h", "hoverinfo": "text"}
    return [
        go.Bar(x=weights[mine], y=position[mine], hovertext=hover[mine], **plain)
        for mine in (allowed & ~chosen, allowed & chosen)
    ] + [
        go.Bar(
            x=np.full(int((~allowed).sum()), top),
            y=position[~allowed],
            hovertext=hover[~allowed],
            marker=_hatched(chosen[~allowed]),
            **plain,
        ),
        go.Scatter(
            x=np.zeros(int(zero.sum())),
            y=position[zero],
            text=["0"] * int(zero.sum()),
            mode="text",
            textposition="middle right",
            hoverinfo="skip",
        ),
    ]


def _hatched(chosen: np.ndarray | None = None) -> dict[str, object]:
    line = 0 if chosen is None else np.where(chosen, 2, 0)
    return {
        "color": _GROUND,
        "pattern": {"shape": "/", "fgcolor": _HATCH, "size": 6, "fillmode": "overlay"},
        "line": {"width": line, "color": _HATCH},
    }


def _line(
    weights: np.ndarray,
    labels: Sequence[str],
    allowed: np.ndarray,
    selected: int | None,
    top: float,
    masked_word: str,
) -> list[go.Bar | go.Scatter]:
    """Give the row as an area in steps, each as high as its largest weight, with the heaviest keys named."""
    size = -(-len(weights) // STEPS)
    starts = np.arange(0, len(weights), size)
    stops = np.minimum(starts + size, len(weights))
    filled = np.where(allowed & np.isfinite(weights), weights, -1.0)
    highest = np.maximum.reduceat(filled, starts)
    best = starts + [int(filled[a:b].argmax()) for a, b in zip(starts, stops, strict=True)]
    hover = [_said(int(key), labels, weights, masked_word, allowed) for key in best]
    where = (starts + stops - 1) / 2
    area = go.Scatter(
        x=np.where(highest >= 0, highest, np.nan), y=where, mode="lines", line={"shape": "vh", "width": 1.5},
        fill="tozerox", hovertext=hover, hoverinfo="text", connectgaps=False,
    )  # fmt: skip
    held = [] if selected is None or not allowed[selected] else [selected]
    chosen = go.Bar(
        x=weights[held], y=held, width=max(1.0, len(weights) / 150), orientation="h", hoverinfo="text",
        hovertext=[_said(key, labels, weights, masked_word, allowed) for key in held],
    )  # fmt: skip
    runs = np.array(list(_runs(~np.logical_or.reduceat(allowed, starts))), int).reshape(-1, 2)
    first, last = starts[runs[:, 0]], stops[runs[:, 1] - 1]
    hidden = go.Bar(
        x=np.full(len(runs), top), y=(first + last - 1) / 2, width=last - first, orientation="h",
        hoverinfo="text", hovertext=[masked_word] * len(runs), marker=_hatched(),
    )  # fmt: skip
    named = _heaviest(filled, max(1, len(weights) // 24))
    names = go.Scatter(
        x=filled[named], y=named, mode="markers+text", marker={"size": 5, "color": _HATCH}, hoverinfo="skip",
        text=[_name(labels, key) for key in named], textposition="middle right",
    )  # fmt: skip
    return [area, chosen, hidden, names]


def _said(key: int, labels: Sequence[str], weights: np.ndarray, masked_word: str, allowed: np.ndarray) -> str:
    value = f"{weights[key]:.6g}" if allowed[key] else masked_word
    return f"{_name(labels, key)}<br>{value}"


def _runs(mask: np.ndarray) -> Iterator[tuple[int, int]]:
    """Give start and stop of every stretch of True."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]]).astype(np.int8)))
    yield from ((int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True))


def _heaviest(weights: np.ndarray, apart: int) -> list[int]:
    """Give the keys of the largest positive weights, so far apart that their names do not cover one another."""
    kept: list[int] = []
    for key in np.argsort(-weights, kind="stable")[: 64 * TOP_KEYS]:
        if weights[key] <= 0 or len(kept) == TOP_KEYS:
            break
        if all(abs(int(key) - other) >= apart for other in kept):
            kept.append(int(key))
    return kept
