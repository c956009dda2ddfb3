"""The saturation page: controls, the rows of weights, and what is shown below them."""

import numpy as np
import streamlit as st

from attnviz.saturation import SCALINGS
from attnviz.saturation.snippet import saturation_snippet
from attnviz.saturation.training_snippet import training_snippet
from attnviz.saturation_view import View, curves
from pages.ui import layout, saturation_picture, saturation_training
from pages.ui.bus import Group
from pages.ui.controls import Panel
from pages.ui.plot import plot
from pages.ui.saturation_picture import STRIPS, Drawn
from pages.ui.strips import strips
from pages.ui.training import STEPS
from pages.ui.translate import table

SOURCES = (
    ("Vaswani et al. 2017, Attention Is All You Need, §3.2.1 and footnote 4", "https://arxiv.org/abs/1706.03762"),
    ("Henry et al. 2020, Query-Key Normalization for Transformers, §2", "https://arxiv.org/abs/2010.04245"),
    ("Dehghani et al. 2023, Scaling Vision Transformers to 22 Billion Parameters, §2", "https://arxiv.org/abs/2302.05442"),
    ("Yang et al. 2022, Tensor Programs V (1/d_k attention), Appendix J.2.1", "https://arxiv.org/abs/2203.03466"),
    ("torch.finfo", "https://docs.pytorch.org/docs/stable/type_info.html"),
)  # fmt: skip


def side_controls(panel: Panel, group: Group) -> None:
    """Draw the controls of what queries and keys are like, and of the computation."""
    with st.sidebar:
        st.subheader(panel.title("group.vectors"), anchor=False)
        for name in ("variance_q", "variance_k", "correlation"):
            panel.live(name, group)
        panel.live("seed", group, play=True)
        st.subheader(panel.title("group.compute"), anchor=False)
        panel.live("dtype", group)
        panel.control("samples")


def live_controls(panel: Panel, group: Group) -> None:
    """Draw the sliders that the pictures follow."""
    for column, name in zip(st.columns(4), ("d_k", "keys", "temperature", "power"), strict=True):
        with column:
            panel.live(name, group)


def picture(panel: Panel, group: Group) -> None:
    """Draw the rows of weights, and below them what was chosen."""
    view = panel.settled.view
    drawn = saturation_picture.draw(view, panel.language)
    rows = drawn.pop(STRIPS)
    _strips(panel, group, rows, key=STRIPS, charts=True)
    layout.picture_first()
    panel.control("show", segmented=True, bare=True)
    if view.show == "training":
        saturation_training.section(panel)
        return
    st.caption(panel.title(f"legend.{view.show}"))
    # The rows with the names have left the screen where the charts are on it.
    _strips(panel, group, rows, key="names", names_only=True)
    for column, (part, one) in zip(st.columns(len(drawn), gap="medium"), drawn.items(), strict=True):
        with column:
            _plot(panel, group, part, one)
    for note in _remarks(panel, view):
        st.caption(note)


def _strips(
    panel: Panel, group: Group, rows: Drawn, *, key: str, charts: bool = False, names_only: bool = False
) -> None:
    strips(
        rows.figure,
        key=f"saturation.{key}",
        alt=rows.alt,
        caption=rows.caption,
        words=table(panel.language, "strips"),
        group=group,
        part=STRIPS,
        charts=charts,
        names_only=names_only,
    )


def _plot(panel: Panel, group: Group, part: str, one: Drawn) -> None:
    plot(
        one.figure,
        key=f"saturation.{part}",
        label=one.caption,
        alt=one.alt,
        caption=one.caption,
        words=table(panel.language, "plot"),
        group=group,
        part=part,
    )


def _remarks(panel: Panel, view: View) -> list[str]:
    """Say where rows overflowed and weights underflowed, and where a theory is missing."""
    swept, called = curves(view), saturation_picture.names(view, panel.language)
    said = []
    for field, words in (("overflowed", "remark.overflow"), ("zeros", "remark.underflow")):
        worst = {key: swept.values[key][field] > 0 for key in SCALINGS}
        everywhere = panel.title("remark.everywhere")
        met = [f"{called[key]} ({span(swept.d_k, where, everywhere)})" for key, where in worst.items() if where.any()]
        if met:
            said.append(panel.title(words, dtype=view.dtype, where=panel.title("remark.comma").join(met)))
    if view.correlation != 0.0:
        said.append(panel.title("remark.correlated"))
    if view.keys == 1:
        said.append(panel.title("remark.one_key"))
    return said


def span(d_k: np.ndarray, where: np.ndarray, everywhere: str) -> str:
    """Say at which of the swept d_k something holds: from one on, up to one, or between."""
    places = where.nonzero()[0]
    first, last = places[0], places[-1]
    if where.all():
        return everywhere
    if len(places) <= last - first:  # with gaps between
        return "d_k " + ", ".join(str(d_k[place]) for place in places)
    if last == len(d_k) - 1:
        return f"d_k ≥ {d_k[first]}"
    if first == 0:
        return f"d_k ≤ {d_k[last]}"
    return f"d_k {d_k[first]}–{d_k[last]}" if first < last else f"d_k {d_k[first]}"


def words(panel: Panel) -> None:
    """Say what is seen and why, give the lines of PyTorch, and the sources."""
    st.subheader(panel.title("words.title"), anchor=False)
    for name in ("spread", "gradient", "training", "limits"):
        st.markdown(panel.title(f"words.{name}"))
    opened = layout.fold(panel.title("snippet.title"), icon=":material/code:", key="saturation.snippet")
    if opened is not None:
        opened.markdown(panel.title("snippet.training" if panel.settled.view.show == "training" else "snippet.lead"))
        opened.code(code(panel.settled.view), language="python")
    layout.sources(panel.language, SOURCES)


def code(view: View) -> str:
    """Give the script of what a view shows."""
    if view.show == "training":
        return training_snippet(d_k=view.d_k, power=view.power, rate=view.rate, seed=view.seed, steps=STEPS)
    return saturation_snippet(
        d_k=view.d_k, keys=view.keys, samples=int(view.samples), variance_q=view.variance_q, variance_k=view.variance_k,
        correlation=view.correlation, temperature=view.temperature, power=view.power, dtype=view.dtype, seed=view.seed,
        show=view.show,
    )  # fmt: skip
