"""The cost page's settings, and what they come to."""

from attnviz.cost_view.settings import KNOBS, OWN, SCENARIOS, SETS, View, settle
from attnviz.cost_view.work import (
    Batch,
    Share,
    Unequal,
    Whole,
    measurable,
    plain,
    priced,
    probe,
    split,
    unequal,
    whole,
)

__all__ = [
    "KNOBS",
    "OWN",
    "SCENARIOS",
    "SETS",
    "Batch",
    "Share",
    "Unequal",
    "View",
    "Whole",
    "measurable",
    "plain",
    "priced",
    "probe",
    "settle",
    "split",
    "unequal",
    "whole",
]
