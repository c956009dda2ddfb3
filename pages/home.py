"""The first page: what attnviz is, in pictures that compute, and where to begin."""

from attnviz.home_view import settle
from pages.ui import home_sections, layout, link
from pages.ui.bus import Group
from pages.ui.controls import Panel

home_sections.pass_on()
panel = Panel("home", link.language(), settle)
home_sections.open_chosen(panel)
group = Group("home", "/live/home", panel.settled.link() | {"lang": panel.language})

layout.header(panel)
layout.remarks(panel.remarks)
home_sections.slider(panel, group)
home_sections.miniatures(panel, group)
home_sections.paths(panel)
home_sections.machine(panel)
panel.write_link()
