"""The training on the page: say the first token again, started by a button, drawn as it runs, stopped at any moment."""

import time
from typing import NamedTuple

import streamlit as st

from attnviz.recurrence import Recall
from attnviz.recurrence.recall import CLASSES, WIDTH
from attnviz.why_view import View
from pages.ui import why_attention_picture
from pages.ui.controls import Panel
from pages.ui.plot import plot
from pages.ui.translate import table

STEPS = 400
# So long a fragment's run works before it draws: short enough for Stop and for other visitors to get their turn.
CHUNK_S = 0.25
EVERY_S = 0.4
# Steps that a point is the mean of.
LAST = 20
_STORE = "why_attention.race"


class Running(NamedTuple):
    """Hold a visitor's training and what it was started with; it is gone when they change something."""

    settings: tuple[int, int]
    race: Recall
    running: bool


def section(panel: Panel) -> None:
    """Draw the controls of the training and its curve, once a part of a second while it runs."""
    view = panel.settled.view
    held = _held(view)
    running = held is not None and held.running
    length, start, stop = st.columns([2, 1, 1], vertical_alignment="bottom")
    with length:
        panel.control("recall")
    begin = "recall.start" if held is None or held.race.steps >= STEPS else "recall.resume"
    start.button(
        panel.title(begin), on_click=lambda: _start(view), disabled=running, key="why_attention.start", type="primary",
        width="stretch",
    )  # fmt: skip
    stop.button(
        panel.title("recall.stop"), on_click=_stop, disabled=not running, key="why_attention.stop", width="stretch"
    )
    st.caption(panel.title("recall.lead", length=view.recall, classes=CLASSES, width=WIDTH))
    st.fragment(_progress, run_every=EVERY_S if running else None)(panel)


def _settings(view: View) -> tuple[int, int]:
    return view.recall, view.seed


def _held(view: View) -> Running | None:
    """Give the visitor's training if it is one of these settings."""
    held = st.session_state.get(_STORE)
    return held if held is not None and held.settings == _settings(view) else None


def _start(view: View) -> None:
    held = _held(view)
    race = held.race if held is not None and held.race.steps < STEPS else Recall(*_settings(view))
    st.session_state[_STORE] = Running(_settings(view), race, True)


def _stop() -> None:
    held = st.session_state.get(_STORE)
    if held is not None:
        st.session_state[_STORE] = held._replace(running=False)


def _progress(panel: Panel) -> None:
    """Work for a moment if the training is on, then draw what it has shown so far."""
    held = _held(panel.settled.view)
    if held is None:
        st.info(panel.title("recall.hint"), icon=":material/play_arrow:")
        return
    if held.running:
        begun = time.perf_counter()
        while held.race.steps < STEPS and time.perf_counter() - begun < CHUNK_S:
            held.race.step()
    steps = held.race.steps
    st.progress(steps / STEPS, text=panel.title("recall.progress", done=steps, steps=STEPS))
    if steps:
        one = why_attention_picture.recalled(held.race, LAST, panel.language)
        plot(
            one.figure, key="why_attention.recalled", label=one.caption, alt=one.alt, caption=one.caption,
            words=table(panel.language, "plot"),
        )  # fmt: skip
    if steps >= STEPS and held.running:
        _stop()
        st.rerun()
