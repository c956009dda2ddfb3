"""The upper part of the attention page: controls and picture, with the selected row beside it."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import streamlit as st

from attnviz import pins
from attnviz.families import FAMILIES
from attnviz.settings import ROLES, mask_knobs
from attnviz.text import Refusal
from pages.ui import attention_compare, attention_mistake, attention_picture, attention_row, attention_rules, layout
from pages.ui.bus import Group
from pages.ui.controls import Panel
from pages.ui.heatmap import heatmap
from pages.ui.translate import table

PICTURE_HEIGHT = 390
STRIP_HEIGHT = 390
# What positions and score modifications add takes more lines.
LONG_STRIP, LONG_STRIP_HEIGHT = 10, 450
# Section of the side bar → its icon and its settings.
FOLDED: Mapping[str, tuple[str, tuple[str, ...]]] = MappingProxyType(
    {
        "change": (":material/tune:", ("variant", "position", "score_mod", "mistake")),
        "compute": (":material/memory:", ("backend", "dtype", "device")),
        "picture": (":material/palette:", ("log", "own_range", "reduce")),
    }
)


def side_controls(panel: Panel) -> None:
    """Draw the controls that no one drags while looking at the picture."""
    view = panel.settled.view
    with st.sidebar:
        roles = {key: (role.label.say(panel.language), role.settings) for key, role in ROLES.items()}
        panel.bundle("role", panel.title("role"), roles)
        st.subheader(panel.title("group.input"), anchor=False)
        panel.control("input", bare=True)
        if view.input == "sentence":
            panel.control("text")
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
        for name, (icon, settings) in FOLDED.items():
            # Closed, what few people need takes no room and no time; a link that changes it opens it.
            changed = any(panel.settled.values[each] != panel.settled.defaults[each] for each in settings)
            opened = layout.fold(panel.title(f"group.{name}"), icon=icon, key=f"attention.{name}", expanded=changed)
            if opened is not None:
                with opened:
                    for each in settings:
                        attention_rules.control(panel, each)


def live_controls(panel: Panel, group: Group) -> None:
    """Draw the sliders that the picture follows."""
    view, knobs = panel.settled.view, panel.settled.knobs
    names = ["length", *(["key_length"] if view.attention == "cross" else []), "d_k", "heads"]
    names += ["kv_heads"] if FAMILIES[view.variant].shares else []
    names += ["window"] if "window" in knobs else []
    names += ["scale_value"] if view.scale == "custom" else []
    names += attention_rules.live_names(view)
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
    elif name == "rope":
        panel.live(name, group, high=view.d_k)
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
            panel.control("stage", options=view.stages, segmented=True, bare=True)
        strip, main = st.columns([1, 3.2], gap="small")
        with strip:
            heatmap(
                drawn[attention_picture.STRIP],
                part=attention_picture.STRIP,
                key="attention.strip",
                layout="strip",
                picks="map",
                chosen=view.stage,
                height=STRIP_HEIGHT if len(view.stages) <= LONG_STRIP else LONG_STRIP_HEIGHT,
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
    layout.picture_first()
    with heads:
        shown = ["all", *(["mean"] if view.heads > 1 else []), *map(str, range(view.heads))]
        panel.control("head", options=shown, bare=True)
    with right:
        attention_mistake.signs(panel)
        _pin(panel)
        attention_row.row(panel, group)


def _pin(panel: Panel) -> None:
    """Offer to set the view aside; once one is, to see it, and what changed since."""
    view = panel.settled.view
    if not view.pin:
        st.button(
            panel.title("pin"), icon=":material/keep:", help=panel.title("pin_help"), key="attention.pin_now",
            on_click=_set_aside, args=(panel,),
        )  # fmt: skip
        return
    panel.control("compare", segmented=True, bare=True)
    again, away = st.columns(2)
    again.button(panel.title("pin_again"), key="attention.pin_again", on_click=_set_aside, args=(panel,))
    away.button(panel.title("unpin"), key="attention.unpin", on_click=lambda: panel.set("pin", None))
    changed = " · ".join(attention_compare.changed(view, panel.language))
    st.caption(layout.escape(changed) if changed else panel.title("pin_next"))


def _set_aside(panel: Panel) -> None:
    try:
        panel.set("pin", pins.write(panel.settled.link(), panel.settled.view.length))
    except Refusal as refused:
        panel.remark(refused.text)


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
    if chosen is not None and chosen.get("map") in panel.settled.view.stages:
        panel.set("stage", str(chosen["map"]))
