"""The real app, drawn the usual way: ``st.plotly_chart`` for both pictures, Streamlit's own sliders.

What ``measure_repaint.py`` compares with. Everything else is the same code, the same data and the same server settings.
"""

import gc
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
import streamlit as st
import torch
from plotly.subplots import make_subplots

from pages.ui import attention_picture, attention_sections, controls
from pages.ui.bus import Group
from pages.ui.heatmap.frame import Grid

ACROSS = 4


def draw(grid: Grid, *, part: str, group: Group, key: str, **_: object) -> None:
    """Draw a grid as one Plotly figure of float32 heatmaps; the large one's title says which settings it shows."""
    maps = grid.maps
    across = min(ACROSS, len(maps))
    figure = make_subplots(-(-len(maps) // across), across)
    for index, shown in enumerate(maps):
        trace = go.Heatmap(z=np.asarray(shown.values, np.float32), showscale=index == 0)
        figure.add_trace(trace, row=index // across + 1, col=index % across + 1)
    figure.update_yaxes(autorange="reversed")
    title = json.dumps(dict(group.params)) if part == attention_picture.MAIN else None
    figure.update_layout(title_text=title, height=attention_sections.PICTURE_HEIGHT)
    st.plotly_chart(figure, key=key)


def slide(
    name: str,
    label: str,
    value: float,
    *,
    low: float,
    high: float,
    key: str,
    on_value: Callable[[float], None],
    stops: Sequence[int] | None = None,
    step: float | None = None,
    **_: object,
) -> float:
    """Draw a slider that reaches Streamlit at every key press, as ``st.slider`` does."""
    widget = f"{key}.plain"
    st.session_state[widget] = value

    def take() -> None:
        on_value(st.session_state[widget])

    if stops:
        return st.select_slider(label, sorted({*stops, value}), key=widget, on_change=take)
    return st.slider(label, low, high, step=step, key=widget, on_change=take)


attention_sections.heatmap = draw
controls.live_slider = slide
torch.set_num_threads(1)
gc.collect()
gc.freeze()

app = st.App(str(Path(__file__).resolve().parents[3] / "pages/router.py"))
