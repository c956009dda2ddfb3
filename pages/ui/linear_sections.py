"""The linear page: controls, the two maps beside the states, and what is measured below them."""

from collections.abc import Mapping

import streamlit as st

from attnviz import units
from attnviz.linear_view.run import forms
from attnviz.linear_view.settings import View
from attnviz.linear_view.snippet import linear_snippet
from pages.ui import layout, linear_charts, linear_measured, linear_picture, translate
from pages.ui.bus import Group
from pages.ui.controls import Panel
from pages.ui.heatmap import heatmap
from pages.ui.linear_charts import Drawn
from pages.ui.linear_picture import STATE, WEIGHTS
from pages.ui.plot import plot

HEIGHT = 340
_MAPS = ("softmax", "linear")
_CELL = ("query", "key")
SOURCES = (
    ("Katharopoulos et al. 2020, Transformers are RNNs, §3 (elu + 1)", "https://arxiv.org/abs/2006.16236"),
    ("Choromanski et al. 2020, Performers, §2 and Lemma 2", "https://arxiv.org/abs/2009.14794"),
    ("Schlag et al. 2021, Fast weight programmers, §4 (delta rule, capacity)", "https://arxiv.org/abs/2102.11174"),
    ("Yang et al. 2023, Gated linear attention, §3 (chunks)", "https://arxiv.org/abs/2312.06635"),
    ("Yang et al. 2024, DeltaNet, §3 (chunks)", "https://arxiv.org/abs/2406.06484"),
    ("Peng et al. 2021, Random feature attention", "https://arxiv.org/abs/2103.02143"),
    ("ONNX LinearAttention", "https://onnx.ai/onnx/operators/onnx__LinearAttention.html"),
)


def live_controls(panel: Panel, group: Group) -> None:
    """Draw the feature map and the sliders that the pictures follow."""
    view = panel.settled.view
    chosen, features = st.columns([2.6, 1], vertical_alignment="bottom")
    with chosen:
        panel.control("feature_map", segmented=True)
    if view.map.is_random:
        with features:
            panel.live("features", group)
    widths = {"step": 1.2, "d_k": 1.0, "size": 1.0, "length": 1.0, "seed": 0.6}
    for column, name in zip(st.columns(list(widths.values()), vertical_alignment="bottom"), widths, strict=True):
        with column:
            if name == "seed":
                panel.control(name)
            elif name == "step":
                panel.live(name, group, high=view.length, play=True)
            else:
                panel.live(name, group)


def pictures(panel: Panel, group: Group) -> None:
    """Draw both weight matrices, and beside them the states."""
    view = panel.settled.view
    words = translate.table(panel.language, "heatmap") | {"own_range": panel.title("own_range")}
    left, right = st.columns([1.35, 1], gap="medium")
    with left:
        heatmap(
            linear_picture.weights(view, panel.language), part=WEIGHTS, group=group, key="linear.weights", words=words,
            height=HEIGHT, selected=_selected(view), on_select=lambda chosen: _select(panel, chosen),
        )  # fmt: skip
    with right:
        heatmap(
            linear_picture.state(view, panel.language), part=STATE, group=group, key="linear.state", words=words,
            height=HEIGHT,
        )  # fmt: skip


def _selected(view: View) -> Mapping[str, object] | None:
    """Give the selected cell as the maps mark it."""
    return dict(zip(("map", *_CELL), (_MAPS[view.cell[0]], *view.cell[1:]), strict=True)) if view.cell else None


def _select(panel: Panel, chosen: Mapping[str, object] | None) -> None:
    """Take a cell that was clicked."""
    name = str((chosen or {}).get("map", ""))
    places = [str((chosen or {}).get(axis, "")) for axis in _CELL]
    good = name in _MAPS and all(map(str.isdigit, places))
    panel.set("cell", (_MAPS.index(name), *map(int, places)) if good else None)


def below(panel: Panel, group: Group) -> None:
    """Draw what was chosen to be measured."""
    view = panel.settled.view
    panel.control("show", segmented=True, bare=True)
    if view.show == "forms":
        _forms(panel, view)
        return
    sizes = {"map": view.map.label.say(panel.language), "features": view.width, "d_k": view.d_k}
    st.markdown(panel.title(f"{view.show}.lead", **sizes))
    drawn = linear_charts.draw(view, panel.language)
    if view.show == "cost":
        linear_measured.section(panel, drawn["flops"], group)
        return
    for column, (part, one) in zip(st.columns(2, gap="medium"), drawn.items(), strict=True):
        with column:
            _plot(panel, part, one, group)
    st.caption(panel.title(f"{view.show}.note"))


def _plot(panel: Panel, part: str, one: Drawn, group: Group | None) -> None:
    plot(
        one.figure, key=f"linear.{part}", label=one.caption, alt=one.alt, caption=one.caption,
        words=translate.table(panel.language, "plot"), group=group, part=None if group is None else part,
    )  # fmt: skip


def _forms(panel: Panel, view: View) -> None:
    """Say how far the forms are from each other."""
    st.markdown(panel.title("forms.lead", length=view.length))
    head = [panel.title(f"forms.{name}") for name in ("rule", "form", "how", "single", "double")]
    rows = [head, ["---"] * len(head)]
    for one in forms(view):
        rows.append(
            [
                panel.title(f"forms.{one.rule}"), f"`{one.form}`", panel.title(f"forms.how_{one.form}"),
                *(units.number(number, 2) for number in (one.single, one.double)),
            ]
        )  # fmt: skip
    st.markdown("\n".join(f"| {' | '.join(row)} |" for row in rows))
    st.caption(panel.title("forms.note"))


def words(panel: Panel) -> None:
    """Say what is seen and why, give the lines of PyTorch, and the sources."""
    st.subheader(panel.title("words.title"), anchor=False)
    chosen = panel.settled.view.map
    said = {"map": chosen.label.say(panel.language), "help": chosen.help.say(panel.language), "source": chosen.source}
    st.markdown(panel.title("words.map", **said))
    for name in ("other", "state", "recall", "short"):
        st.markdown(panel.title(f"words.{name}"))
    opened = layout.fold(panel.title("snippet.title"), icon=":material/code:", key="linear.snippet")
    if opened is not None:
        opened.markdown(panel.title("snippet.lead"))
        opened.code(linear_snippet(panel.settled.view), language="python")
    layout.sources(panel.language, SOURCES)
