"""KV cache: what decoding computes and what it reads, and how much memory that takes."""

from attnviz.kv_cache_view.view import settle
from pages.ui import kv_cache_details, kv_cache_sections, layout, link
from pages.ui.bus import Group
from pages.ui.controls import Panel

panel = Panel("kv_cache", link.language(), settle)
parts = kv_cache_details.open_parts(panel)
group = Group("kv_cache", "/live/kv_cache", panel.settled.link() | {"lang": panel.language, "parts": parts})

layout.header(panel)
layout.remarks(panel.remarks)
kv_cache_sections.side_controls(panel, group)
kv_cache_sections.decoding(panel, group)
kv_cache_sections.memory(panel, group)
kv_cache_details.show(panel, group)
panel.write_link()
