"""Why attention: what recurrent nets and convolutions do with distance, measured beside it."""

from attnviz.why_view import settle
from pages.ui import layout, link, why_attention_sections
from pages.ui.bus import Group
from pages.ui.controls import Panel

panel = Panel("why_attention", link.language(), settle)
group = Group("why_attention", "/live/why_attention", panel.settled.link() | {"lang": panel.language})

layout.header(panel)
layout.remarks(panel.remarks)
why_attention_sections.live_controls(panel, group)
why_attention_sections.pictures(panel, group)
why_attention_sections.measured(panel)
why_attention_sections.words(panel)
panel.write_link()
