"""The parts of the attention page: controls, picture, numbers, words."""

from collections.abc import Mapping, Sequence

import numpy as np
import streamlit as st

from attnviz import units
from attnviz.figures.attention import row_bars
from attnviz.guard import Prediction
from attnviz.settings import mask_knobs
from attnviz.stages import STAGES, Census, Fused, row_detail
from attnviz.view import census, run
from pages.ui import attention_picture, layout
from pages.ui.bus import Group
from pages.ui.controls import Panel
from pages.ui.heatmap import heatmap
from pages.ui.translate import table

PICTURE_HEIGHT = 420
STRIP_HEIGHT = 420
SOURCES = (
    ("Vaswani et al. 2017, Attention Is All You Need, §3.2", "https://arxiv.org/abs/1706.03762"),
    ("Ainslie et al. 2023, GQA", "https://arxiv.org/abs/2305.13245"),
    ("Shazeer 2019, Fast Transformer Decoding (MQA)", "https://arxiv.org/abs/1911.02150"),
    ("torch.nn.functional.scaled_dot_product_attention",
     "https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html"),
    ("Dao et al. 2022, FlashAttention", "https://arxiv.org/abs/2205.14135"),
)  # fmt: skip


def side_controls(panel: Panel) -> None:
    """Draw the controls that no one drags while looking at the picture."""
    view = panel.settled.view
    with st.sidebar:
        st.subheader(panel.title("group.input"), anchor=False)
        panel.control("input")
        if view.input == "sentence":
            panel.control("text")
        panel.control("attention")
        if view.attention == "cross" and view.input == "sentence":
            panel.control("context")
        panel.control("seed")
        st.subheader(panel.title("group.mask"), anchor=False)
        panel.control("mask")
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
    for column, name in zip(st.columns(len(names)), names, strict=True):
        with column:
            if name == "kv_heads":
                divisors = [n for n in range(1, view.heads + 1) if view.heads % n == 0]
                panel.live(name, group, high=view.heads, stops=divisors)
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
    first = int(head) if head.isdigit() else view.drawn_heads[0]
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
    columns = st.columns(3)
    columns[0].metric(panel.title("row.sum"), f"{detail.total:.6g}")
    columns[1].metric(panel.title("row.entropy"), f"{detail.entropy:.3f}", help=panel.title("row.nats"))
    columns[2].metric(
        panel.title("row.effective"), f"{detail.effective_keys:.2f}", help=panel.title("row.effective_help")
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


def numbers(panel: Panel, prediction: Prediction) -> None:
    """Show what the view takes, and that a fused kernel used the very weights that are drawn."""
    view = panel.settled.view
    call, ran = run(view)
    st.subheader(panel.title("numbers.title"), anchor=False)
    columns = st.columns(4)
    parts = {name: units.binary_bytes(getattr(prediction, name)) for name in ("inputs", "kept", "block")}
    columns[0].metric(
        panel.title("numbers.taken"), units.binary_bytes(prediction.total), help=panel.title("numbers.taken_help", **parts)
    )
    scores = view.heads * view.length * view.key_length * call.query.element_size()
    columns[1].metric(
        panel.title("numbers.scores"), units.binary_bytes(scores), help=panel.title("numbers.scores_help")
    )
    columns[2].metric(
        panel.title("numbers.work"), units.flops(prediction.flops), help=panel.title("numbers.work_help")
    )
    counted = census(view)
    if counted is not None and counted.difference is not None:
        columns[3].metric(
            panel.title("numbers.difference"),
            f"{counted.difference:.2e}",
            help=panel.title("numbers.difference_help"),
        )
    for note in _remarks(panel, ran, counted):
        st.caption(note)


def _remarks(panel: Panel, ran: Fused | None, counted: Census | None) -> list[str]:
    """Say what else happened: the kernel that ran, rows out of range or without a key, weights that underflowed."""
    view = panel.settled.view
    said = [] if ran is None else [panel.title("numbers.kernel", kernel=ran.kernel)]
    if counted is None:
        return said
    if counted.not_finite:
        said.append(panel.title("numbers.overflow", rows=units.count(counted.not_finite), dtype=view.dtype))
    if counted.no_key:
        said.append(panel.title("numbers.no_key", rows=units.count(counted.no_key)))
    if counted.underflowed:
        said.append(panel.title("numbers.underflow", cells=units.count(counted.underflowed), dtype=view.dtype))
    return said


def explanation(panel: Panel) -> None:
    """Say in words what the picture shows, where the input comes from, and the sources."""
    view = panel.settled.view
    st.subheader(panel.title("words.title"), anchor=False)
    st.markdown(panel.title("words.qkv"))
    st.markdown(panel.title("words.steps"))
    st.markdown(panel.title("words.heads"))
    if "window" in panel.settled.knobs:
        st.markdown(panel.title("words.window"))
    st.caption(panel.title("untrained") if view.input == "sentence" else panel.title("random", seed=view.seed))
    layout.sources(panel.language, SOURCES)
