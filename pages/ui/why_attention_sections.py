"""The page on what attention replaced: controls, curves, the time on this machine, and the story in words."""

import streamlit as st

from attnviz.recurrence.measure import BUDGET_S, time_forward
from attnviz.recurrence.snippet import gradient_snippet
from pages.ui import layout, why_attention_picture, why_attention_training
from pages.ui.bus import Group
from pages.ui.controls import Panel
from pages.ui.plot import plot
from pages.ui.translate import table
from pages.ui.why_attention_picture import Drawn

SOURCES = (
    ("Bengio, Simard, Frasconi 1994, Learning long-term dependencies is difficult", "https://doi.org/10.1109/72.279181"),
    ("Pascanu, Mikolov, Bengio 2012, On the difficulty of training RNNs, §2", "https://arxiv.org/abs/1211.5063"),
    ("Sutskever, Vinyals, Le 2014, Sequence to sequence learning", "https://arxiv.org/abs/1409.3215"),
    ("Bahdanau, Cho, Bengio 2014, Jointly learning to align and translate, §1 and §3", "https://arxiv.org/abs/1409.0473"),
    ("Vaswani et al. 2017, Attention Is All You Need, Table 1", "https://arxiv.org/abs/1706.03762"),
    ("torch.nn.RNN (how its weights are drawn)", "https://docs.pytorch.org/docs/stable/generated/torch.nn.RNN.html"),
)  # fmt: skip


def live_controls(panel: Panel, group: Group) -> None:
    """Draw the sliders that the curves follow."""
    for column, name in zip(st.columns([1, 1, 1, 1, 0.5], vertical_alignment="bottom"),
                            ("length", "gain", "layers", "width", "seed"), strict=True):  # fmt: skip
        with column:
            if name == "seed":
                panel.control(name)
            else:
                panel.live(name, group)


def pictures(panel: Panel, group: Group) -> None:
    """Draw the gradient against distance, and beside it the chain of operations against length."""
    drawn = why_attention_picture.draw(panel.settled.view, panel.language)
    for column, (part, one) in zip(
        st.columns([1.25, 1], gap="medium", vertical_alignment="bottom"), drawn.items(), strict=True
    ):
        with column:
            _plot(panel, part, one, group)
    st.caption(panel.title("note"))


def _plot(panel: Panel, part: str, one: Drawn, group: Group | None = None) -> None:
    plot(
        one.figure, key=f"why_attention.{part}", label=one.caption, alt=one.alt, caption=one.caption,
        words=table(panel.language, "plot"), group=group, part=None if group is None else part,
    )  # fmt: skip


def measured(panel: Panel) -> None:
    """Draw what a person starts: the training, and the time on this machine."""
    left, right = st.columns(2, gap="large")
    with left:
        st.subheader(panel.title("recall.title"), anchor=False)
        why_attention_training.section(panel)
    with right:
        st.subheader(panel.title("time.title"), anchor=False)
        _timing(panel)


def _timing(panel: Panel) -> None:
    view, key = panel.settled.view, "why_attention.timing"
    sizes = view.sizes

    def run() -> None:
        st.session_state[key] = (tuple(sizes), time_forward(sizes))

    st.button(panel.title("time.button"), on_click=run, key="why_attention.measure", icon=":material/timer:")
    measured_for, found = st.session_state.get(key, (None, None))
    if found is not None and measured_for == tuple(sizes):
        _plot(panel, "time", why_attention_picture.timed(found, panel.language))
        st.caption(panel.title("time.note"))
    else:
        st.caption(panel.title("time.hint", seconds=f"{BUDGET_S:g}"))


def words(panel: Panel) -> None:
    """Tell what was before attention, what it changes and where that is; give the lines of PyTorch, and the sources."""
    st.subheader(panel.title("words.title"), anchor=False)
    for name in ("before", "gradient", "steps", "idea"):
        st.markdown(panel.title(f"words.{name}"))
    opened = layout.fold(panel.title("snippet.title"), icon=":material/code:", key="why_attention.snippet")
    if opened is not None:
        view = panel.settled.view
        opened.markdown(panel.title("snippet.lead"))
        opened.code(gradient_snippet(view.sizes, view.length), language="python")
    layout.sources(panel.language, SOURCES)
