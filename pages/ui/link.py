"""Deep links: what the address says, what the session holds, and how one follows the other.

A page's settings are a plain mapping of parameter name to value, kept in the session and mirrored in the address. The
address wins when it was changed from outside (a pasted link, the back button); otherwise the session does. Settings at
their default are left out, so that links stay short, and choices travel as registry keys, never as translated words.
"""

from collections.abc import Mapping

import streamlit as st

from attnviz.text import LANGUAGES, Text

LANGUAGE = "lang"
_LANGUAGE = Text(
    "lang must be one of {options}, got {value}.", "语言（lang）应为以下之一：{options}，收到的是 {value}。"
)
_TWICE = Text(
    "{name} stands in the link more than once; the last one counts: {value}.",
    "{name} 在链接中出现了多次，以最后一个为准：{value}。",
)
_OWN = "link.own"
_SHARED = (LANGUAGE, "embed", "embed_options")


def _address() -> dict[str, str]:
    """Give the address's own settings, without those that belong to the whole app."""
    return {name: st.query_params[name] for name in st.query_params if name not in _SHARED}


def language() -> str:
    """Give the language: the address's, else the one chosen before, else the browser's."""
    asked = st.query_params.get(LANGUAGE)
    if asked in LANGUAGES:
        st.session_state[LANGUAGE] = asked
    elif st.session_state.get(LANGUAGE) not in LANGUAGES:
        st.session_state[LANGUAGE] = "zh" if (st.context.locale or "").lower().startswith("zh") else "en"
    return st.session_state[LANGUAGE]


def problems() -> list[Text]:
    """Say what is wrong with the address itself, and put it right there: what stands twice, an unknown language."""
    found = _twice()
    asked = st.query_params.get(LANGUAGE)
    if asked is None or asked in LANGUAGES:
        return found
    del st.query_params[LANGUAGE]
    return [*found, _LANGUAGE.fill(options=", ".join(LANGUAGES), value=repr(asked[:40]))]


def _twice() -> list[Text]:
    """Name what stands in the address more than once, and leave the last of it, which is what a reader gets."""
    repeated = [name for name in st.query_params if len(st.query_params.get_all(name)) > 1]
    found = []
    for name in repeated:
        value = st.query_params[name]
        st.query_params[name] = value
        found.append(_TWICE.fill(name=name if name.isidentifier() else repr(name[:40]), value=repr(value[:40])))
    return found


def incoming(page: str) -> dict[str, str] | None:
    """Give the address's settings if they came from outside since the last run, else None.

    An empty address on arrival from another page keeps what the session holds: Streamlit clears the address there. A
    run that a control began may carry the address from before the last write, which had not reached the browser yet.
    """
    current = _address()
    own = st.session_state.pop(_OWN, False)
    arrived = st.session_state.get("link.page") != page
    st.session_state["link.page"] = page
    written = st.session_state.get(f"link.{page}")
    if written is not None and (own or (arrived and not current)):
        return None
    return None if current == written else current


def from_control() -> None:
    """Note, before a run begins, that a control of the page began it: what the address then says is no news."""
    st.session_state[_OWN] = True


def write(page: str, settings: Mapping[str, str]) -> None:
    """Put the settings into the address, once and only when they differ: each write is one entry of the history."""
    wanted = dict(settings)
    st.session_state[f"link.{page}"] = wanted
    kept = {name: st.query_params[name] for name in st.query_params if name in _SHARED}
    if _address() != wanted:
        st.query_params.from_dict(kept | wanted)


def switch_language(chosen: str) -> None:
    """Set the language for this session and in the address; every other setting stays."""
    from_control()
    st.session_state[LANGUAGE] = chosen
    st.query_params[LANGUAGE] = chosen
