"""Cost: FLOPs, bytes and memory of one layer from its declarations, and the roof that a device puts over it."""

from attnviz.cost_view import settle
from pages.ui import cost_sections, layout, link
from pages.ui.bus import Group
from pages.ui.controls import Panel

panel = Panel("cost", link.language(), settle)
group = Group("cost", "/live/cost", panel.settled.link() | {"lang": panel.language})

layout.header(panel)
layout.remarks(panel.remarks)
cost_sections.side_controls(panel, group)
cost_sections.live_controls(panel, group)
cost_sections.picture(panel, group)
cost_sections.model(panel)
cost_sections.ways(panel)
cost_sections.words(panel)
panel.write_link()
