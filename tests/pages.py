"""Pages as a visitor meets them, without a browser: opened by a link, read as text, moved by their widgets."""

import base64
import html
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
from streamlit.testing.v1 import AppTest

from attnviz.text import LANGUAGES
from pages import entries
from pages.ui.heatmap.frame import unpack
from pages.ui.translate import say

ROUTER = Path(__file__).resolve().parent.parent / "pages/router.py"
TEXTS = ("title", "subheader", "markdown", "caption", "info", "warning", "error", "metric", "code")


def visit(lang: str = "en", *, page: str = "attention", **settings: str) -> AppTest:
    """Open a page by a link."""
    app = AppTest.from_file(str(ROUTER), default_timeout=120)
    if page != entries()[0].key:
        app.switch_page(f"{page}.py")
    return go(app, settings, lang)


def go(app: AppTest, settings: Mapping[str, str], lang: str = "en") -> AppTest:
    """Put another link into the address, as the back button and a paste do."""
    app.query_params = {name: [value] for name, value in settings.items()} | {"lang": [lang]}
    return check(app.run())


def check(app: AppTest) -> AppTest:
    """Hold a run to having drawn the page: no exception, a title."""
    assert not app.exception, [entry.value for entry in app.exception]
    # A page that fails says so in one sentence of its own; that is no success either.
    assert not {entry.value for entry in app.error} & {say(language, "app.failed") for language in LANGUAGES}
    assert len(app.title) == 1
    return app


def said(app: AppTest) -> str:
    """Give every text of the page."""
    entries = [entry for kind in TEXTS for entry in app.get(kind)]
    words = [f"{getattr(entry, 'label', '')} {entry.value} {getattr(entry, 'help', '')}" for entry in entries]
    return "\n".join([*words, *(str(figure["layout"]["meta"].get("caption", "")) for figure in plots(app).values())])


def plots(app: AppTest) -> dict[str, dict[str, Any]]:
    """Give the figures of the page's plots by their key."""
    found = [entry for entry in cast("Any", app.main) if getattr(entry, "key", None) and hasattr(entry, "proto")]
    texts = {entry.key: getattr(entry.proto, "json", "") for entry in found}
    return {key: json.loads(json.loads(text)["figure"]) for key, text in texts.items() if '"figure"' in text}


def plain(text: str) -> str:
    """Read the character references that keep text literal in Markdown, as a browser does."""
    return html.unescape(text)


def link(app: AppTest) -> dict[str, str]:
    """Give the settings in the address as it now stands, without the language."""
    values = {name: value[0] if isinstance(value, list) else value for name, value in app.query_params.items()}
    return {name: value for name, value in values.items() if name != "lang"}


def component(app: AppTest, key: str) -> Any:
    """Give one of our own components as the page described it."""
    found = [entry for entry in cast("Any", app.main) if getattr(entry, "key", None) == key]
    assert len(found) == 1, key
    return found[0]


def shown(app: AppTest, key: str = "attention.main") -> tuple[dict, dict[str, list[np.ndarray]]]:
    """Give header and codes of a picture that the page sends along."""
    return unpack(component(app, key).proto.bytes)


def numbers(column: Any) -> list[Any]:
    """Give a figure's column of numbers, which travels as base64 where it was an array."""
    if isinstance(column, dict):
        return np.frombuffer(base64.b64decode(column["bdata"]), column["dtype"]).tolist()
    return list(column)


def widgets(app: AppTest) -> dict[str, object]:
    """Give the value of every control by its key, the language's own left out."""
    kinds = ("selectbox", "text_area", "text_input", "number_input", "slider", "toggle", "button_group")
    found = {entry.key: entry.value for kind in kinds for entry in app.get(kind)}
    return {key: value for key, value in found.items() if key != "app.language"}


def keys(app: AppTest) -> set[str]:
    """Give the keys of all elements."""
    found: list[Any] = [*app.main, *app.sidebar]
    return {key for entry in found if (key := getattr(entry, "key", None))}
