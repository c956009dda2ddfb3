"""Choose the language and the page; every page runs inside this frame."""

import sys
from pathlib import Path

# Streamlit puts this file's folder on the path; the packages live one above it.
ROOT = str(Path(__file__).resolve().parent.parent)
if ROOT not in sys.path:
    sys.path.insert(0, ROOT)

import streamlit as st  # noqa: E402

from pages import PAGES  # noqa: E402
from pages.ui import link  # noqa: E402
from pages.ui.translate import say  # noqa: E402

# So many names fit on one line beside the sidebar of a projector's 1,280 pixels.
MOST_SIDE_BY_SIDE = 8

language = link.language()
st.set_page_config(page_title=say(language, "app.title"), page_icon=f"{ROOT}/pages/ui/icon.svg", layout="wide")
first = next(iter(PAGES.values()))[0].key
pages = {
    section: [
        st.Page(
            f"{entry.key}.py",
            title=say(language, f"{entry.key}.nav"),
            icon=entry.icon,
            url_path=entry.key,
            default=entry.key == first,
        )
        for entry in entries
    ]
    for section, entries in PAGES.items()
}
# A few pages stand side by side, one click away; more of them need their sections.
side_by_side = [page for group in pages.values() for page in group]
page = st.navigation(side_by_side, position="top")
if len(side_by_side) > MOST_SIDE_BY_SIDE:
    # A closed section hides its pages: the one that holds the current page names it, which only the first call tells.
    names = {section: say(language, f"section.{section}") if section else "" for section in pages}
    here = {section: f"{name} · {page.title}" for section, name in names.items() if name and page in pages[section]}
    page = st.navigation({(names | here)[section]: group for section, group in pages.items()}, position="top")
page.run()
