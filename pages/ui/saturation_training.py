"""The training race on the saturation page: started by a button, drawn as it runs, stopped at any moment."""

import time
from typing import NamedTuple

import numpy as np
import streamlit as st

from attnviz.figures.saturation import training
from attnviz.saturation import SCALINGS
from attnviz.saturation.training import CLASSES, PAIRS, Race
from attnviz.saturation_view import View
from pages.ui import saturation_picture
from pages.ui.controls import Panel
from pages.ui.plot import plot
from pages.ui.translate import table

STEPS = 400
# So long a fragment's run works before it draws: short enough for Stop and for other visitors to get their turn.
CHUNK_S = 0.2
EVERY_S = 0.35
_STORE = "saturation.race"
# A loss worse than this many times guessing has run away, and the axis no longer follows it.
RUN_AWAY = 3.0
# The last steps that a result is an average of.
LAST = 20


class Running(NamedTuple):
    """Hold a visitor's race and what it was started with; it is gone when they change something."""

    settings: tuple[int, float, float, int]
    race: Race
    running: bool


def section(panel: Panel) -> None:
    """Draw the controls of the training and its curves, once a part of a second while it runs."""
    view = panel.settled.view
    held = _held(view)
    panel_columns = st.columns([1.2, 1, 1, 3], vertical_alignment="bottom")
    with panel_columns[0]:
        panel.control("rate")
    running = held is not None and held.running
    with panel_columns[1]:
        st.button(
            panel.title("training.start" if held is None or held.race.steps >= STEPS else "training.resume"),
            on_click=lambda: _start(view),
            disabled=running,
            key="saturation.start",
            type="primary",
            width="stretch",
        )
    with panel_columns[2]:
        st.button(
            panel.title("training.stop"), on_click=_stop, disabled=not running, key="saturation.stop", width="stretch"
        )
    st.caption(
        panel.title("training.lead", pairs=PAIRS, classes=CLASSES, d_k=view.d_k, chance=f"{np.log(CLASSES):.2f}")
    )
    st.fragment(_progress, run_every=EVERY_S if running else None)(panel)


def _settings(view: View) -> tuple[int, float, float, int]:
    return view.d_k, view.power, view.rate, view.seed


def _held(view: View) -> Running | None:
    """Give the visitor's race if it is one of these settings."""
    held = st.session_state.get(_STORE)
    return held if held is not None and held.settings == _settings(view) else None


def _start(view: View) -> None:
    held = _held(view)
    race = held.race if held is not None and held.race.steps < STEPS else None
    if race is None:
        d_k, power, rate, seed = _settings(view)
        race = Race(d_k=d_k, power=power, rate=rate, seed=seed)
    st.session_state[_STORE] = Running(_settings(view), race, True)


def _stop() -> None:
    held = st.session_state.get(_STORE)
    if held is not None:
        st.session_state[_STORE] = held._replace(running=False)


def _progress(panel: Panel) -> None:
    """Work for a moment if the race is on, then draw what it has shown so far."""
    held = _held(panel.settled.view)
    if held is None:
        st.info(panel.title("training.hint"), icon=":material/play_arrow:")
        return
    if held.running:
        begun = time.perf_counter()
        while held.race.steps < STEPS and time.perf_counter() - begun < CHUNK_S:
            held.race.step()
    steps = held.race.steps
    done = steps >= STEPS
    st.progress(steps / STEPS, text=panel.title("training.progress", done=steps, steps=STEPS))
    if steps:
        _curves(panel, held.race)
        st.markdown(result(panel, held.race))
    if done and held.running:
        _stop()
        st.rerun()


def _curves(panel: Panel, race: Race) -> None:
    names = saturation_picture.names(panel.settled.view, panel.language)
    for column, field in zip(st.columns(2, gap="medium"), ("loss", "gradient"), strict=True):
        shown = {key: np.array([getattr(step, field) for step in race.shown[key]]) for key in SCALINGS}
        title = panel.title(f"training.{field}")
        figure = training(
            shown, names=names, x_title=panel.title("training.step"), log=field == "gradient", steps=STEPS,
            most=RUN_AWAY * float(np.log(CLASSES)) if field == "loss" else None, colours=saturation_picture.COLOURS,
        )  # fmt: skip
        last = ", ".join(f"{names[key]} {values[-1]:.3g}" for key, values in shown.items())
        with column:
            plot(
                figure, key=f"saturation.{field}", label=title, caption=title, words=table(panel.language, "plot"),
                alt=panel.title("training.alt", title=title, step=race.steps, numbers=last),
            )  # fmt: skip


def result(panel: Panel, race: Race) -> str:
    """Say what the run shows so far, and nothing else: each scaling's last losses, least first."""
    names = saturation_picture.names(panel.settled.view, panel.language)
    last = {key: race.shown[key][-LAST:] for key in SCALINGS}
    losses = {key: float(np.mean([step.loss for step in steps])) for key, steps in last.items()}
    right = {key: float(np.mean([step.right for step in steps])) for key, steps in last.items()}
    ordered = sorted(losses, key=lambda key: (np.isnan(losses[key]), losses[key]))
    lines = []
    for key in ordered:
        lost = [step for step, one in enumerate(race.shown[key], 1) if not np.isfinite(one.loss)]
        if lost:
            lines.append(panel.title("training.lost", name=names[key], step=lost[0]))
            continue
        fields = {"loss": f"{losses[key]:.3f}", "right": f"{100 * right[key]:.0f} %"}
        lines.append(panel.title("training.line", name=names[key], **fields))
    return panel.title("training.result", step=race.steps, last=min(LAST, race.steps)) + "\n" + "\n".join(lines)
