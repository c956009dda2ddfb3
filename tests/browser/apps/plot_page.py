"""The page of ``plot_app``."""

import streamlit as st

from pages.ui.bus import Group
from pages.ui.live_slider import WORD_KEYS as SLIDER_WORDS
from pages.ui.live_slider import live_slider
from pages.ui.plot import plot
from tests.browser.apps.curve import alternative, curve

WORDS = {
    "download": "Save as PNG",
    "zoom": "Zoom here",
    "pan": "Move about",
    "reset": "Whole picture",
    "zoom_out": "Double-click for all of it",
    "no_chart": "The chart cannot be drawn; these are its numbers.",
}
state = st.session_state
state["runs"] = state.get("runs", 0) + 1
d = state.setdefault("d", 4)


def take(value: float) -> None:
    """Keep a released value."""
    state["d"] = int(value)


group = Group("curve", "/live/curve", {"d": str(d), "lang": "en"})
live_slider(
    "d", "The d", d, low=1, high=64, step=1, group=group, key="d_slider", words=dict.fromkeys(SLIDER_WORDS, "word"),
    on_value=take,
)  # fmt: skip
plot(curve(d), key="curve", label="Curve", alt=alternative(d), words=WORDS, height=240, group=group, part="curve")
plot(curve(2), key="still", label="Still", alt="It stays.", words=WORDS, height=200)
st.text(f"runs: {state['runs']}")
