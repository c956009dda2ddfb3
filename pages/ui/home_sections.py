"""The parts of the first page: the slider, its miniatures, where to begin, and the machine."""

import streamlit as st
import torch

from attnviz import device, settings, units
from pages import keys
from pages.ui import home_picture, layout, link
from pages.ui.bus import Group
from pages.ui.controls import Panel
from pages.ui.heatmap import heatmap
from pages.ui.home_paths import MINIATURES, PATHS, settings_of, steps
from pages.ui.translate import table

HEIGHT = 290
SCALE = 1.15
_CHOSEN = "home.chosen"
_PASSED = "home.passed"
_ICONS = {"learner": ":material/school:", "engineer": ":material/build:", "speaker": ":material/present_to_all:"}
# A link's text begins where the picture below it does.
_STYLE = """<style>
[class*="st-key-home-card"] [data-testid="stPageLink"], [class*="st-key-home-path"] [data-testid="stPageLink"] {
  margin: -0.25rem 0 -0.25rem -0.5rem;
}
[class*="st-key-home-path"] p { font-size: 1.0625rem; }
</style>"""
_ARROW = ":material/arrow_forward:"


def pass_on() -> None:
    """Take a link from the time when the attention page was the first one to that page.

    Going back from there comes by here again and then stays.
    """
    asked = {name: st.query_params[name] for name in st.query_params}
    if not settings.every_name() & asked.keys():
        return
    if st.session_state.get(_PASSED) == asked:
        link.write("home", {})
        return
    st.session_state[_PASSED] = asked
    st.switch_page("attention.py", query_params=asked)


def open_chosen(panel: Panel) -> None:
    """Open the view of the miniature that was just clicked."""
    chosen = st.session_state.pop(_CHOSEN, None)
    for miniature in MINIATURES:
        if miniature.key == chosen:
            st.switch_page("attention.py", query_params=_address(settings_of(miniature, panel.settled.view), panel))


def _address(wanted: dict[str, str], panel: Panel) -> dict[str, str]:
    return {**wanted, link.LANGUAGE: panel.language}


def slider(panel: Panel, group: Group) -> None:
    """Draw the one slider, with what to watch beside it."""
    left, right = st.columns([1.3, 2], gap="medium", vertical_alignment="center")
    with left:
        panel.live("width", group)
    right.markdown(panel.title("watch"))


def miniatures(panel: Panel, group: Group) -> None:
    """Draw the miniatures side by side, each with its link."""
    drawn = home_picture.grids(panel.settled.view, panel.language)
    words = table(panel.language, "heatmap")
    st.html(_STYLE)
    for column, miniature in zip(st.columns(len(MINIATURES), gap="small"), MINIATURES, strict=True):
        with column, st.container(border=True, height="stretch", key=f"home.card.{miniature.key}"):
            st.page_link(
                "attention.py",
                label=f"**{panel.title(f'mini.{miniature.key}.title')}**",
                icon=_ARROW,
                icon_position="right",
                query_params=_address(settings_of(miniature, panel.settled.view), panel),
            )
            heatmap(
                drawn[miniature.key],
                part=miniature.key,
                group=group,
                key=f"home.{miniature.key}",
                words=words,
                height=HEIGHT,
                layout="strip",
                picks="map",
                scale=SCALE,
                on_select=lambda chosen, key=miniature.key: _choose(chosen, key),
            )


def _choose(chosen: object, key: str) -> None:
    if chosen is not None:
        st.session_state[_CHOSEN] = key


def paths(panel: Panel) -> None:
    """Show where a learner, an engineer and a speaker begin."""
    for column, person in zip(st.columns(len(PATHS), gap="small"), PATHS, strict=True):
        with column, st.container(border=True, height="stretch", gap="xsmall", key=f"home.path.{person}"):
            st.markdown(f"{_ICONS[person]} **{panel.title(f'person.{person}')}**")
            for step in steps(person, keys()):
                st.page_link(
                    f"{step.page}.py",
                    label=panel.title(f"step.{step.key}"),
                    icon=_ARROW,
                    icon_position="right",
                    query_params=_address(dict(step.settings), panel),
                )


def machine(panel: Panel) -> None:
    """Name every device found, what it can hold and compute in, and the PyTorch that runs on it."""
    lines = [
        panel.title(
            "device",
            name=name,
            model=device.model(name),
            free=units.binary_bytes(device.free_bytes(name)),
            total=units.binary_bytes(device.total_bytes(name)),
            dtypes=", ".join(device.dtypes(name)),
        )
        for name in device.present()
    ]
    found = "  \n".join(layout.escape(line) for line in lines)
    st.caption(
        f":material/memory: **{panel.title('machine')}** · PyTorch {layout.escape(torch.__version__)}  \n{found}"
    )
