"""A small training on a page: started by a button, drawn as it runs, stopped at any moment."""

import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from pages.ui.controls import Panel

STEPS = 400
# So long a fragment's run works before it draws: short enough for Stop and for other visitors to get their turn.
CHUNK_S = 0.2
EVERY_S = 0.35


class Steps(Protocol):
    """Be trained step by step."""

    @property
    def steps(self) -> int:
        """How many steps were made."""
        ...

    def step(self) -> None:
        """Make one more."""
        ...


class Running(NamedTuple):
    """Hold a visitor's training and what it was started with; it is gone when they change something."""

    settings: Hashable
    race: Any
    running: bool


@dataclass(frozen=True)
class Training:
    """Describe one page's training.

    Args:
        panel: The page.
        words: Its table of words in the page's, with ``start``, ``resume``, ``stop``, ``hint`` and ``progress``.
        settings: What it depends on; another value asks for another training.
        make: Begins one.
        draw: Draws what one has shown so far.
    """

    panel: Panel
    words: str
    settings: Hashable
    make: Callable[[], Steps]
    draw: Callable[[Any], None]

    @property
    def _store(self) -> str:
        return f"{self.panel.page}.race"

    @property
    def held(self) -> Running | None:
        """The visitor's training if it is one of these settings."""
        held = st.session_state.get(self._store)
        return held if held is not None and held.settings == self.settings else None

    @property
    def is_running(self) -> bool:
        """Whether it goes on by itself."""
        return self.held is not None and self.held.running

    def controls(self, start: DeltaGenerator, stop: DeltaGenerator) -> None:
        """Draw the two buttons."""
        over = self.held is None or self.held.race.steps >= STEPS
        start.button(
            self._say("start" if over else "resume"), on_click=self._start, disabled=self.is_running,
            key=f"{self.panel.page}.start", type="primary", width="stretch",
        )  # fmt: skip
        stop.button(
            self._say("stop"), on_click=self._stop, disabled=not self.is_running, key=f"{self.panel.page}.stop",
            width="stretch",
        )  # fmt: skip

    def follow(self) -> None:
        """Draw progress and pictures, once a part of a second while it runs."""
        st.fragment(self._progress, run_every=EVERY_S if self.is_running else None)()

    def _say(self, name: str, **fields: object) -> str:
        return self.panel.title(f"{self.words}.{name}", **fields)

    def _start(self) -> None:
        held = self.held
        race = held.race if held is not None and held.race.steps < STEPS else self.make()
        st.session_state[self._store] = Running(self.settings, race, True)

    def _stop(self) -> None:
        held = st.session_state.get(self._store)
        if held is not None:
            st.session_state[self._store] = held._replace(running=False)

    def _progress(self) -> None:
        """Work for a moment if it is on, then draw what it has shown so far."""
        held = self.held
        if held is None:
            st.info(self._say("hint"), icon=":material/play_arrow:")
            return
        if held.running:
            begun = time.perf_counter()
            while held.race.steps < STEPS and time.perf_counter() - begun < CHUNK_S:
                held.race.step()
        steps = held.race.steps
        st.progress(steps / STEPS, text=self._say("progress", done=steps, steps=STEPS))
        if steps:
            self.draw(held.race)
        if steps >= STEPS and held.running:
            self._stop()
            st.rerun()
