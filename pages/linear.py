"""Linear attention: another function than softmax, with a state of fixed size."""

from attnviz.linear_view.settings import settle
from pages.ui import layout, linear_sections, link
from pages.ui.bus import Group
from pages.ui.controls import Panel

panel = Panel("linear", link.language(), settle)
group = Group("linear", "/live/linear", panel.settled.link() | {"lang": panel.language})

layout.header(panel)
layout.remarks(panel.remarks)
linear_sections.live_controls(panel, group)
linear_sections.pictures(panel, group)
linear_sections.below(panel, group)
linear_sections.words(panel)
panel.write_link()
