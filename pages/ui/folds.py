"""Sections that can be closed, on every page: what is closed is not computed, and what a person opens is in the link.

A section opens when a setting that it alone uses is changed, when someone opens it, or when a link's ``open`` names it
by the last part of its key, several separated by commas. Only the last two stand in the link: a setting stands there
itself.
"""

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from attnviz.text import Text
from pages.ui import link

OPEN = "open"
# More than any page has; whatever else a link carries is looked at no further.
_MOST_NAMES, _MOST_LETTERS = 32, 40
_UNKNOWN = Text(
    "open must name closed sections of this page as it is now ({options}), got {value}.",
    "open 应为本页当前可展开的小节（{options}），收到的是 {value}。",
)


def _store(page: str, what: str) -> str:
    return f"folds.{page}.{what}"


def _name(key: str) -> str:
    return key.rpartition(".")[2]


def arrive(page: str, asked: str) -> None:
    """Take what a link that just arrived says of the page's sections: those it does not name close again."""
    names = [name.strip()[:_MOST_LETTERS] for name in asked.split(",", _MOST_NAMES)[:_MOST_NAMES]]
    st.session_state[_store(page, OPEN)] = list(dict.fromkeys(name for name in names if name))
    st.session_state[_store(page, "unseen")] = True


def begin(page: str) -> None:
    """Begin a run, in which no section has been drawn yet."""
    st.session_state[_store(page, "drawn")] = []


def finish(page: str) -> Text | None:
    """End a run: forget what a link named and the page does not have, and say so."""
    names, drawn = _names(page), st.session_state[_store(page, "drawn")]
    if not st.session_state.pop(_store(page, "unseen"), False):
        return None
    strange = [name for name in names if name not in drawn]
    names[:] = [name for name in names if name in drawn]
    if not strange:
        return None
    return _UNKNOWN.fill(options=", ".join(drawn) or "–", value=repr(strange[0]))


def settings(page: str) -> dict[str, str]:
    """Give what the link says of the sections."""
    names = _names(page)
    return {OPEN: ",".join(names)} if names else {}


def _names(page: str) -> list[str]:
    return st.session_state.setdefault(_store(page, OPEN), [])


def is_open(key: str, expanded: bool = False) -> bool:
    """Say whether a section is open in this run, before it is drawn; arguments as for ``fold``."""
    named = _name(key) in _names(key.partition(".")[0])
    if named != st.session_state.get(f"{key}.named", False):
        return named or expanded
    return bool(st.session_state.get(key, expanded))


def fold(label: str, *, icon: str, key: str, expanded: bool = False) -> DeltaGenerator | None:
    """Put a section that can be closed on the page; give its container while it is open, else None.

    What is closed is neither computed nor sent: code and formulas bring a tenth of a second of libraries each, which
    would stand before the first picture.

    Args:
        label: Its title.
        icon: A Material icon as Streamlit writes it.
        key: Its key in the session: the page, and at the end the name that a link calls it by.
        expanded: Whether it is to be open; once it was, it no longer closes by itself.
    """
    page, name = key.partition(".")[0], _name(key)
    st.session_state[_store(page, "drawn")].append(name)
    # Under someone's hand, back at its default, a setting must not fold away.
    once = f"{key}.once"
    st.session_state[once] = expanded or st.session_state.get(once, False)
    named = name in _names(page)
    if named != st.session_state.get(f"{key}.named", False):
        # Another link came in, or the way back was taken.
        st.session_state[key] = named or expanded
        st.session_state[f"{key}.named"] = named

    def toggled() -> None:
        link.from_control()
        names, is_now = _names(page), bool(st.session_state[key])
        names[:] = [other for other in names if other != name] + ([name] if is_now else [])
        st.session_state[f"{key}.named"] = is_now

    container = st.expander(label, st.session_state[once], icon=icon, key=key, on_change=toggled)
    return container if container.open else None
