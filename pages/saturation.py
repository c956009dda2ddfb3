"""Why the scores are divided by √d_k: softmax saturation, measured."""

from attnviz.saturation_view import settle
from pages.ui import layout, link, saturation_sections
from pages.ui.bus import Group
from pages.ui.controls import Panel

panel = Panel("saturation", link.language(), settle)
group = Group("saturation", "/live/saturation", panel.settled.link() | {"lang": panel.language})

layout.header(panel)
layout.remarks(panel.remarks)
layout.open_sidebar()
saturation_sections.live_controls(panel, group)
saturation_sections.picture(panel, group)
saturation_sections.side_controls(panel, group)
saturation_sections.words(panel)
panel.write_link()
