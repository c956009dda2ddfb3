"""The pages of the app, in the order of the navigation."""

from typing import NamedTuple


class PageEntry(NamedTuple):
    """Name one page: its key is its file, its address, its locale table and its test.

    ``charts`` says that its first picture is a chart, whose library the browser had better load from the start.
    """

    key: str
    icon: str
    charts: bool = False


# Section key → its pages; the first page of all is the default one and lives at "/". A section without a name has no
# heading in the navigation.
PAGES: dict[str, tuple[PageEntry, ...]] = {
    "": (PageEntry("home", ":material/home:"),),
    "understand": (
        PageEntry("why_attention", ":material/timeline:", charts=True),
        PageEntry("attention", ":material/grid_on:"),
        PageEntry("saturation", ":material/show_chart:"),
        PageEntry("masks", ":material/filter_b_and_w:"),
    ),
    "variants": (
        PageEntry("variants", ":material/hub:"),
        PageEntry("flash", ":material/bolt:"),
        PageEntry("linear", ":material/functions:"),
        PageEntry("kv_cache", ":material/database:"),
    ),
    "measure": (
        PageEntry("benchmark", ":material/timer:", charts=True),
        PageEntry("cost", ":material/payments:", charts=True),
    ),
}


def entries() -> tuple[PageEntry, ...]:
    """Give every page in order."""
    return tuple(entry for section in PAGES.values() for entry in section)


def keys() -> frozenset[str]:
    """Give the key of every page there is."""
    return frozenset(entry.key for entry in entries())
