"""The frame around every page: header, remarks, refusals, sources."""

import logging
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import streamlit as st
from streamlit import runtime
from streamlit.delta_generator import DeltaGenerator

from attnviz.text import LANGUAGES, Refusal
from pages.ui import link
from pages.ui.copy_link import copy_link
from pages.ui.folds import fold as fold
from pages.ui.translate import say

if TYPE_CHECKING:
    from pages.ui.controls import Panel

_log = logging.getLogger(__name__)

# As character references these are text to every reader of Markdown; a backslash does not stop Streamlit's own signs.
_MARKUP = frozenset("\\`*_{}[]()<>#+-.!|~$:&\"'")
# A link that is wrong in every setting would otherwise push the page off the screen.
MOST_REMARKS = 3
# As long as a browser takes on two cores from a page's first words to its painted picture.
PICTURE_S = 0.25
LANGUAGE_NAMES: Mapping[str, str] = {"en": "English", "zh": "中文"}


def header(panel: "Panel", lead: str = "lead") -> None:
    """Show the page's title, what to see in one sentence (``lead``), and the language, link and reset buttons."""
    words, tools = st.columns([3, 2], vertical_alignment="top")
    with words:
        st.title(panel.title("title"), anchor=False)
        st.markdown(panel.title(lead))
    with tools, st.container(horizontal=True, horizontal_alignment="right", gap="small"):
        _language_switch(panel.language)
        copy_link(
            panel.link() | {link.LANGUAGE: panel.language},
            label=say(panel.language, "app.copy_link"),
            copied=say(panel.language, "app.copied"),
            failed=say(panel.language, "app.copy_failed"),
            key=f"{panel.page}.copy",
        )
        st.button(say(panel.language, "app.reset"), on_click=panel.reset, key=f"{panel.page}.reset")
    # What is known only at the end of the run is said here; empty, it takes no room.
    panel.late = st.container()


def open_sidebar() -> None:
    """Open the side bar before anything is in it, so that the picture does not move once it is filled."""
    st.sidebar.container()


def picture_first() -> None:
    """Give a new visitor's browser time to draw what the page has so far, before the rest takes its share of it.

    A browser builds all that has come in one go: sent at once, thirty controls keep the picture waiting.
    """
    # Without a server (in a test of the script alone) there is no browser to wait for.
    if "app.has_picture" not in st.session_state and runtime.exists():
        time.sleep(PICTURE_S)
    st.session_state["app.has_picture"] = True


def _language_switch(language: str) -> None:
    key = "app.language"
    st.session_state[key] = language

    def change() -> None:
        # A second click on the chosen one takes the choice away; it then simply stays.
        link.switch_language(st.session_state[key] or language)

    st.segmented_control(
        say(language, "app.language"),
        LANGUAGES,
        format_func=LANGUAGE_NAMES.__getitem__,
        key=key,
        on_change=change,
        label_visibility="collapsed",
    )


def remarks(sentences: Sequence[str], where: DeltaGenerator | None = None) -> None:
    """Show what could not be read and what had to follow, literally; beyond a few they wait in a closed section."""
    if not sentences:
        return
    (where or st).warning(_paragraphs(sentences[:MOST_REMARKS]), icon=":material/info:")
    rest = sentences[MOST_REMARKS:]
    if rest:
        st.expander(say(link.language(), "app.more_remarks", count=len(rest)), icon=":material/info:").markdown(
            _paragraphs(rest)
        )


def _paragraphs(sentences: Sequence[str]) -> str:
    return "\n\n".join(escape(sentence) for sentence in sentences)


def refusal(refused: Refusal, language: str) -> None:
    """Show why a request is not carried out."""
    st.error(escape(refused.text.say(language)), icon=":material/block:")


def failed(error: Exception) -> bool:
    """Say in one sentence that a page failed, and keep the traceback in the server's log.

    Returns:
        True: nothing else is shown of the error.
    """
    _log.error("a page failed", exc_info=error)
    st.error(say(link.language(), "app.failed"), icon=":material/error:")
    return True


def escape(text: str) -> str:
    """Make text literal in Markdown: nothing in it becomes markup, a formula, an icon or a link."""
    return "".join(f"&#{ord(char)};" if char in _MARKUP else char for char in text)


def sources(language: str, entries: Sequence[tuple[str, str]]) -> None:
    """List the sources of a page's claims: title and address."""
    st.caption(say(language, "app.sources") + "  \n" + "  \n".join(f"[{name}]({url})" for name, url in entries))
