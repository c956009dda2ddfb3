"""Figures of the attention view."""

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go


def row_bars(
    weights: np.ndarray,
    labels: Sequence[str],
    *,
    allowed: np.ndarray,
    selected: int | None,
    x_title: str,
    y_title: str,
    masked_word: str,
) -> go.Figure:
    """Draw one query's weights as bars, the selected key emphasised.

    Args:
        weights: ``[kv_len]``.
        labels: Name of each key; repeated names stay separate bars.
        allowed: bool ``[kv_len]``; a masked key has no bar and says so.
        selected: Index of the selected key, or None.
        x_title: Title of the weights' axis.
        y_title: Title of the keys' axis.
        masked_word: What a masked key's hover says.
    """
    position = np.arange(len(weights))
    colours = np.where(position == (-1 if selected is None else selected), "#d1495b", "#2a78a8")
    hover = [
        f"{index} · {_literal(label)}<br>{f'{weight:.6g}' if keep else masked_word}"
        for index, (label, weight, keep) in enumerate(zip(labels, weights, allowed, strict=True))
    ]
    figure = go.Figure(
        go.Bar(
            x=np.where(allowed, weights, 0.0),
            y=position,
            orientation="h",
            marker={"color": colours, "line": {"width": 0}},
            hovertext=hover,
            hoverinfo="text",
        )
    )
    every = max(1, -(-len(weights) // 32))
    shown = position[::every]
    figure.update_yaxes(
        autorange="reversed",
        tickmode="array",
        tickvals=shown,
        ticktext=[f"{_literal(labels[int(index)])} · {index}" for index in shown],
        title=y_title,
        automargin=True,
    )
    figure.update_xaxes(title=x_title, rangemode="tozero")
    height = 120 + int(np.clip(len(weights) * 18, 180, 420))
    figure.update_layout(margin={"l": 8, "r": 8, "t": 8, "b": 8}, height=height, bargap=0.15, showlegend=False)
    return figure


def _literal(text: str) -> str:
    """Make a token literal in Plotly, which reads a few HTML tags, entities and $…$ as formulas."""
    safe = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("$", "&#36;")
    return safe.replace("\t", "⇥").replace("\n", "↵")
