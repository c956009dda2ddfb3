"""The upper part of the attention page: controls, picture and the selected row."""

from collections.abc import Mapping, Sequence

import numpy as np
import streamlit as st

from attnviz.census import row_detail
from attnviz.figures.attention import row_bars
from attnviz.settings import mask_knobs
from attnviz.stages import STAGES
from attnviz.view_run import run
from pages.ui import attention_picture, layout
from pages.ui.bus import Group
from pages.ui.controls import Panel
from pages.ui.heatmap import heatmap
from pages.ui.translate import table

PICTURE_HEIGHT = 420
STRIP_HEIGHT = 420


def side_controls(panel: Panel) -> None:
    """Draw the controls that no one drags while looking at the picture."""
    view = panel.settled.view
    with st.sidebar:
        st.subheader(panel.title("group.input"), anchor=False)
        panel.control("input", bare=True)
        if view.input == "sentence":
            panel.control("text")
        panel.control("attention")
        if view.attention == "cross" and view.input == "sentence":
            panel.control("context")
        panel.control("seed")
        st.subheader(panel.title("group.mask"), anchor=False)
        panel.control("mask", bare=True)
        for name in mask_knobs(view.mask):
            if name != "window":
                panel.control(name)
        if view.length != view.key_length:
            panel.control("align")
        st.subheader(panel.title("group.score"), anchor=False)
        panel.control("scale")
        panel.control("dropout")
        st.subheader(panel.title("group.compute"), anchor=False)
        panel.control("backend")
        panel.control("dtype")
        panel.control("device")
        st.subheader(panel.title("group.picture"), anchor=False)
        panel.control("log")
        panel.control("own_range")
        panel.control("reduce")


def live_controls(panel: Panel, group: Group) -> None:
    """Draw the sliders that the picture follows."""
    view, knobs = panel.settled.view, panel.settled.knobs
    names = ["length", *(["key_length"] if view.attention == "cross" else []), "d_k", "heads", "kv_heads"]
    names += ["window"] if "window" in knobs else []
    names += ["scale_value"] if view.scale == "custom" else []
    # More than four in a row leave no room for their names.
    for first in range(0, len(names), 4):
        for column, name in zip(st.columns(4), names[first : first + 4], strict=False):
            with column:
                _slider(panel, group, name)


def _slider(panel: Panel, group: Group, name: str) -> None:
    view = panel.settled.view
    if name == "kv_heads":
        panel.live(name, group, high=view.heads, stops=[n for n in range(1, view.heads + 1) if view.heads % n == 0])
    elif name == "window":
        panel.live(name, group, high=view.key_length)
    else:
        panel.live(name, group)


def picture(panel: Panel, group: Group) -> None:
    """Draw the strip of stages, the large picture and the selected row beside each other."""
    view = panel.settled.view
    words = table(panel.language, "heatmap")
    drawn = attention_picture.grids(view, panel.language)
    left, right = st.columns([3.3, 1.35], gap="medium")
    common = {"group": group, "words": words, "selected": _selected(panel)}
    with left:
        which, heads = st.columns([4.4, 1])
        with which:
            panel.control("stage", segmented=True, bare=True)
        with heads:
            shown = ["all", *(["mean"] if view.heads > 1 else []), *map(str, range(view.heads))]
            panel.control("head", options=shown, bare=True)
        strip, main = st.columns([1, 3.2], gap="small")
        with strip:
            heatmap(
                drawn[attention_picture.STRIP],
                part=attention_picture.STRIP,
                key="attention.strip",
                layout="strip",
                picks="map",
                chosen=view.stage,
                height=STRIP_HEIGHT,
                on_select=lambda chosen: _enlarge(panel, chosen),
                **common,
            )
        with main:
            heatmap(
                drawn[attention_picture.MAIN],
                part=attention_picture.MAIN,
                key="attention.main",
                height=PICTURE_HEIGHT,
                on_select=lambda chosen: _select(panel, chosen),
                **common,
            )
    with right:
        row(panel)


def _selected(panel: Panel) -> Mapping[str, object] | None:
    """Give the selected cell as the maps mark it: by the index on each kind of axis."""
    cell = panel.settled.view.cell
    if not cell:
        return None
    return {"map": str(cell[0]), "query": cell[1]} | ({"key": cell[2]} if len(cell) > 2 else {})


def _select(panel: Panel, chosen: Mapping[str, object] | None) -> None:
    """Take a cell that was clicked in the large picture."""
    view = panel.settled.view
    query = None if chosen is None else chosen.get("query")
    if chosen is None or query is None:
        panel.set("cell", None)
        return
    head = str(chosen.get("map", "0"))
    first = int(head) if head.isascii() and head.isdigit() else view.drawn_heads[0]
    indices: Sequence[object] = (first, query, *(() if chosen.get("key") is None else (chosen["key"],)))
    panel.set("cell", tuple(int(str(index)) for index in indices))


def _enlarge(panel: Panel, chosen: Mapping[str, object] | None) -> None:
    """Make the stage that was clicked in the strip the large picture."""
    if chosen is not None and chosen.get("map") in STAGES:
        panel.set("stage", str(chosen["map"]))


def row(panel: Panel) -> None:
    """Show the selected row's weights as bars, with their sum, entropy and effective number of keys."""
    view = panel.settled.view
    if not view.cell:
        st.info(panel.title("row.hint"), icon=":material/touch_app:")
        return
    head, query = view.cell[:2]
    call, ran = run(view)
    detail = row_detail(call, head, query, ran)
    st.markdown("**" + layout.escape(panel.title("row.title", query=query, head=head)) + "**")
    weights, allowed = detail.weights.numpy(), detail.allowed.numpy()
    if not allowed.any():
        st.warning(panel.title("row.no_key"))
    elif not np.isfinite(detail.total):
        st.warning(panel.title("row.not_finite", dtype=view.dtype))
    st.markdown(
        panel.title(
            "row.summary",
            sum=f"{detail.total:.6g}",
            entropy=f"{detail.entropy:.4g}",
            effective=f"{detail.effective_keys:.4g}",
        ),
        help=panel.title("row.effective_help"),
    )
    if view.dropout > 0:
        st.caption(panel.title("row.dropout", factor=f"{1 / (1 - view.dropout):.4g}"))
    tokens = view.tokens("key") or tuple(str(index) for index in range(view.key_length))
    figure = row_bars(
        weights,
        tokens,
        allowed=allowed,
        selected=view.cell[2] if len(view.cell) > 2 else None,
        x_title=panel.title("row.weight"),
        y_title=panel.title("row.key"),
        masked_word=panel.title("row.masked"),
    )
    st.plotly_chart(figure, key="attention.row", config={"displayModeBar": False})
    st.button(panel.title("row.clear"), on_click=lambda: panel.set("cell", None), key="attention.clear")
