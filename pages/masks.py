"""Masks: who may attend to whom, what it costs, and what each library makes of it."""

from attnviz.mask_view import guard
from attnviz.mask_view.view import settle
from attnviz.text import Refusal
from pages.ui import layout, link, masks_details, masks_sections
from pages.ui.bus import Group
from pages.ui.controls import Panel

panel = Panel("masks", link.language(), settle)
group = Group("masks", "/live/masks", panel.settled.link() | {"lang": panel.language})

layout.header(panel)
layout.remarks(panel.remarks)
layout.open_sidebar()
masks_sections.top_controls(panel, group)
try:
    guard.check(panel.settled.view)
except Refusal as refused:
    masks_sections.refused(panel, group, refused)
else:
    masks_sections.show(panel, group)
masks_sections.side_controls(panel)
masks_details.explanation(panel, group)
panel.write_link()
