"""Figures of the masks page."""

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

# More points than a chart is wide say nothing more.
MOST_POINTS = 600


def keys_chart(keys: np.ndarray, *, x_title: str, y_title: str, none_name: str) -> go.Figure:
    """Draw how many keys each query sees; rows without a key are marked.

    Args:
        keys: ``[q_len]``.
        x_title: Title of the queries' axis.
        y_title: Title of the keys' axis.
        none_name: What a mark of a row without a key is called.
    """
    step = -(-len(keys) // MOST_POINTS)
    # Every step-th query, and each one without a key as far as there is room.
    shown = np.arange(0, len(keys), step)
    none = np.flatnonzero(keys == 0)
    none = none[:: -(-len(none) // MOST_POINTS)] if len(none) else none
    figure = go.Figure(
        go.Scatter(
            x=shown,
            y=keys[shown],
            mode="lines" if len(shown) > 1 else "markers",
            line={"shape": "hvh"},
            fill="tozeroy",
            hovertemplate=f"{x_title} %{{x}}<br>{y_title}: %{{y}}<extra></extra>",
        )
    )
    if len(none):
        figure.add_scatter(
            x=none,
            y=np.zeros(len(none)),
            mode="markers",
            marker={"symbol": "x", "size": 7},
            hovertemplate=f"{x_title} %{{x}}: {none_name}<extra></extra>",
        )
    figure.update_xaxes(title=x_title, rangemode="tozero")
    figure.update_yaxes(title=y_title, rangemode="tozero")
    figure.update_layout(margin={"l": 8, "r": 8, "t": 8, "b": 8}, showlegend=False)
    return figure


def reach_chart(
    mean: Sequence[float], most: Sequence[int], bound: Sequence[float] | None, *, names: Sequence[str], x_title: str
) -> go.Figure:
    """Draw how many tokens a query sees after 1, 2, … layers.

    Args:
        mean: On average over the queries.
        most: At most.
        bound: What the band predicts for the most, as a line; None where there is no such line.
        names: What the three are called, in this order.
        x_title: Title of the layers' axis.
    """
    layers = np.arange(1, len(mean) + 1)
    figure = go.Figure()
    for values, name, style in (
        (bound, names[2], {"mode": "lines", "line": {"dash": "dot"}}),
        (most, names[1], {"mode": "markers"}),
        (mean, names[0], {"mode": "lines+markers"}),
    ):
        if values is not None:
            figure.add_scatter(x=layers, y=np.asarray(values), name=name, **style)
    figure.update_xaxes(title=x_title, rangemode="tozero", tickformat="d")
    figure.update_yaxes(rangemode="tozero")
    # Three names above each other: beside each other they do not fit where the chart stands.
    legend = {"x": 0, "y": 1, "yanchor": "bottom"}
    figure.update_layout(margin={"l": 8, "r": 8, "t": 70, "b": 8}, legend=legend)
    return figure
