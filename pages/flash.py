"""FlashAttention as the computation it is: tile by tile, with a running softmax."""

from attnviz.flash_view import guard
from attnviz.flash_view.settle import settle
from attnviz.text import Refusal
from pages.ui import flash_sections, layout, link
from pages.ui.bus import Group
from pages.ui.controls import Panel

panel = Panel("flash", link.language(), settle)
group = Group("flash", "/live/flash", panel.settled.link() | {"lang": panel.language})

layout.header(panel)
layout.remarks(panel.remarks)
flash_sections.side_controls(panel, group)
flash_sections.live_controls(panel, group)
try:
    guard.check(panel.settled.view)
except Refusal as refused:
    layout.refusal(refused, panel.language)
else:
    flash_sections.picture(panel, group)
    flash_sections.sections(panel, group)
flash_sections.words(panel)
panel.write_link()
