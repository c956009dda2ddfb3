"""Scaled dot-product attention, stage by stage, following the slider."""

from attnviz import guard
from attnviz.text import Refusal
from attnviz.view import settle
from pages.ui import attention_cell, attention_details, attention_mistake, attention_sections, layout, link
from pages.ui.bus import Group
from pages.ui.controls import Panel

panel = Panel("attention", link.language(), settle)
group = Group("attention", "/live/attention", panel.settled.link() | {"lang": panel.language})

layout.header(panel)
layout.remarks(panel.remarks)
layout.open_sidebar()
attention_sections.live_controls(panel, group)
prediction = None
try:
    prediction = guard.check(panel.settled.view)
except Refusal as refused:
    layout.refusal(refused, panel.language)
else:
    attention_mistake.banner(panel)
    attention_sections.picture(panel, group)
attention_sections.side_controls(panel)
if prediction is not None:
    attention_cell.arithmetic(panel)
    attention_cell.shapes(panel)
    attention_details.numbers(panel, prediction)
    attention_details.snippet(panel)
attention_details.explanation(panel)
panel.write_link()
