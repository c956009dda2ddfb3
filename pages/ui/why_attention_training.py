"""The training on the page: say the first token again, with a reader of each kind."""

import streamlit as st

from attnviz import units
from attnviz.recurrence import Recall
from attnviz.recurrence.recall import CLASSES, KINDS, WIDTH, sizes
from pages.ui import why_attention_picture
from pages.ui.controls import Panel
from pages.ui.plot import plot
from pages.ui.training import Training
from pages.ui.translate import table

# Steps that a point is the mean of.
LAST = 20


def section(panel: Panel) -> None:
    """Draw the controls of the training and its curve."""
    view = panel.settled.view
    settings = view.recall, view.seed
    recall = Training(panel, "recall", settings, lambda: Recall(*settings), lambda race: _curve(panel, race))
    length, start, stop = st.columns([2, 1, 1], vertical_alignment="bottom")
    with length:
        panel.control("recall")
    recall.controls(start, stop)
    learned = dict(zip((*KINDS, "places"), map(units.count, sizes(view.recall)), strict=True))
    st.caption(panel.title("recall.lead", length=view.recall, classes=CLASSES, width=WIDTH, **learned))
    recall.follow()


def _curve(panel: Panel, race: Recall) -> None:
    one = why_attention_picture.recalled(race, LAST, panel.language)
    plot(
        one.figure, key="why_attention.recalled", label=one.caption, alt=one.alt, caption=one.caption,
        words=table(panel.language, "plot"),
    )  # fmt: skip
