"""Scaled dot-product attention, stage by stage, following the slider."""

import streamlit as st

from attnviz import guard, stages, units
from attnviz.figures.attention import row_bars
from attnviz.knobs import Integer
from attnviz.settings import KNOBS, mask_knobs
from attnviz.stages import STAGES
from attnviz.text import Refusal
from attnviz.view import Settled, settle
from pages.ui import attention_picture, attention_sections, layout, link
from pages.ui.bus import Group
from pages.ui.controls import Panel

panel = Panel("attention", link.language(), settle)
settled: Settled = panel.settled
view = settled.view
group = Group("attention", "/live/attention", settled.link() | {"lang": panel.language})

layout.header(panel)
layout.remarks(panel.remarks)
attention_sections.side_controls(panel)
attention_sections.live_controls(panel, group)
try:
    prediction = guard.check(view)
except Refusal as refused:
    layout.refusal(refused, panel.language)
else:
    attention_sections.picture(panel, group)
    attention_sections.numbers(panel, prediction)
    attention_sections.snippet(panel)
attention_sections.explanation(panel)
panel.write_link()
