"""Variants: how many query heads share a KV head, what that changes, and what it saves."""

from attnviz.text import Refusal
from attnviz.variant_view import guard
from attnviz.variant_view.view import settle
from pages.ui import layout, link, variants_heads, variants_race, variants_sections
from pages.ui.bus import Group
from pages.ui.controls import Panel

panel = Panel("variants", link.language(), settle)
group = Group("variants", "/live/variants", panel.settled.link() | {"lang": panel.language})

layout.header(panel, f"lead.{panel.settled.view.variant}")
layout.remarks(panel.remarks)
variants_sections.side_controls(panel, group)
variants_sections.live_controls(panel, group)
try:
    guard.check(panel.settled.view)
except Refusal as refused:
    layout.refusal(refused, panel.language)
else:
    variants_sections.pictures(panel, group)
    variants_sections.numbers(panel)
    variants_heads.section(panel)
    variants_race.section(panel)
variants_sections.words(panel)
panel.write_link()
