"""What the page of ``plot_app`` and its live route both draw."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import plotly.graph_objects as go

from attnviz.knobs import Integer
from attnviz.text import same
from pages.ui.heatmap.frame import pack
from pages.ui.plot.spec import spec, with_figures

D = Integer("d", same("d"), 4, low=1, high=64)


def curve(d: int) -> dict[str, Any]:
    """Give d sin(x) and, in ink, d cos(x); the title says which d."""
    x = np.linspace(0, 6, 61)
    figure = go.Figure(
        [go.Scatter(x=x, y=d * np.sin(x), name="<sine>"), go.Scatter(x=x, y=d * np.cos(x), name="cosine")]
    )
    drawn = figure.update_layout(title=f"d = {d}", xaxis_title="x", yaxis_title="y").to_dict()
    # A colour of the page's theme, which plotly.py knows nothing of.
    drawn["data"][1]["line"] = {"color": "theme-text"}
    return drawn


def alternative(d: int) -> str:
    """Give the text alternative."""
    return f"A sine that reaches {d}."


def picture(params: Mapping[str, str]) -> bytes:
    """Give a frame with no maps and one figure."""
    d = D.parse(params["d"])
    return with_figures(pack("curve", params, {}), {"curve": spec(curve(d), alt=alternative(d))})
