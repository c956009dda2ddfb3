"""Additive attention against the dot product in time and memory: the measured section of the variants page."""

from collections.abc import Sequence

import streamlit as st

from attnviz import units
from attnviz.benchmark import Request, Result
from attnviz.text import Refusal
from attnviz.variant_view import race
from attnviz.variant_view.settings import KNOBS
from pages.ui import layout, measured
from pages.ui.controls import Panel
from pages.ui.translate import counted


def section(panel: Panel) -> None:
    """Offer the measurement in a section that is closed until someone asks for it."""
    view = panel.settled.view
    opened = layout.fold(
        panel.title("race.title"), icon=":material/timer:", key="variants.race",
        expanded=view.timed != KNOBS["timed"].default,
    )  # fmt: skip
    if opened is None:
        return
    with opened:
        st.markdown(panel.title("race.lead", heads=counted(panel.language, "head", view.heads), d_k=view.d_k))
        panel.control("timed", segmented=True)
        try:
            wanted = race.request(view, panel.language)
        except Refusal as refused:
            layout.refusal(refused, panel.language)
            return
        measured.section(panel, "race", [wanted], lambda requests, shown: _draw(panel, requests[0], shown))
        st.markdown(panel.title("race.time"))
        st.markdown(panel.title("race.memory", length=units.count(race.outgrows(view))))


def _draw(panel: Panel, request: Request, shown: Sequence[Result]) -> None:
    known = shown[0] if shown else None
    time, memory = st.columns(2, gap="medium")
    with time:
        measured.bars(panel, "race.time", request, known, memory=False)
    with memory:
        measured.bars(panel, "race.memory", request, known, memory=True)
