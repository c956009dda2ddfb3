"""Benchmark: time and memory of the variants on this machine, measured beside predicted."""

from attnviz.benchmark_view import settle
from pages.ui import benchmark_sections, benchmark_sweep, layout, link
from pages.ui.bus import Group
from pages.ui.controls import Panel

panel = Panel("benchmark", link.language(), settle)
group = Group("benchmark", "/live/benchmark", panel.settled.link() | {"lang": panel.language})

layout.header(panel)
layout.remarks(panel.remarks)
benchmark_sections.side_controls(panel, group)
benchmark_sections.live_controls(panel, group)
if panel.settled.view.show == "quick":
    benchmark_sections.quick(panel, group)
else:
    benchmark_sweep.sweep(panel)
benchmark_sections.words(panel)
panel.write_link()
