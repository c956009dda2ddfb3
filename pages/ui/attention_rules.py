"""Controls of what changes tensors and scores on the way: position encoding and score modification."""

from collections.abc import Mapping
from types import MappingProxyType

import streamlit as st

from attnviz.families import FAMILIES, Family
from attnviz.knobs import Knob, Number
from attnviz.mistakes import MISTAKES
from attnviz.positions import POSITIONS, PositionKind
from attnviz.score_mods import SCORE_MODS, ScoreModKind
from attnviz.settings import own_knobs
from attnviz.view import View
from pages.ui import layout, link
from pages.ui.controls import Panel
from pages.ui.translate import say

RULES: Mapping[str, Mapping[str, Family | PositionKind | ScoreModKind]] = MappingProxyType(
    {"variant": FAMILIES, "position": POSITIONS, "score_mod": SCORE_MODS}
)
# Entries that are nothing special.
PLAIN = ("none", "grouped")
# Pages that show the variants which this page's picker does not have.
ELSEWHERE = ("variants", "linear")


def control(panel: Panel, name: str) -> None:
    """Draw a choice; below one of ``RULES`` what it does, its source, and the knobs that no one drags."""
    panel.control(name)
    chosen = getattr(panel.settled.view, name)
    if name == "variant":
        st.caption(panel.title("rules.others"))
        _elsewhere(panel)
    if name not in RULES or chosen in PLAIN:
        return
    entry = RULES[name][chosen]
    said = layout.escape(entry.help.say(panel.language))
    st.caption(f"{said} [{panel.title('rules.source')}]({entry.source})")
    for own, knob in own_knobs(name, chosen).items():
        if not _is_live(name, knob):
            panel.control(own)


def _elsewhere(panel: Panel) -> None:
    """Lead to the pages of what has none of this page's stages."""
    with st.container(horizontal=True, gap="small"):
        for page in ELSEWHERE:
            st.page_link(
                f"{page}.py", label=say(panel.language, f"{page}.nav"), icon=":material/arrow_forward:",
                query_params={link.LANGUAGE: panel.language},
            )  # fmt: skip


def _is_live(choice: str, knob: Knob) -> bool:
    """Say whether the picture follows a knob of an entry: numbers, and the sizes of a variant."""
    return isinstance(knob, Number) or choice == "variant"


def live_names(view: View) -> list[str]:
    """Name the knobs of the chosen entries that the picture follows."""
    return [
        name
        for choice in RULES
        for name, knob in own_knobs(choice, getattr(view, choice)).items()
        if _is_live(choice, knob)
    ]


def labels(view: View, language: str) -> list[str]:
    """Name the chosen entries for people, and a mistake that is switched on as such."""
    chosen = [(entries, getattr(view, choice)) for choice, entries in RULES.items()]
    named = [entries[key].label.say(language) for entries, key in chosen if key not in PLAIN]
    if view.mistake == "none":
        return named
    return [say(language, "attention.mistake.tag", name=MISTAKES[view.mistake].label), *named]
