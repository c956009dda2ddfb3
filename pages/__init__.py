"""The pages of the app, in the order of the navigation."""

from typing import NamedTuple


class PageEntry(NamedTuple):
    """Name one page: its key is its file, its address, its locale table and its test."""

    key: str
    icon: str


# Section key → its pages; the first page of all is the default one and lives at "/".
PAGES: dict[str, tuple[PageEntry, ...]] = {
    "understand": (PageEntry("attention", ":material/grid_on:"),),
}


def entries() -> tuple[PageEntry, ...]:
    """Give every page in order."""
    return tuple(entry for section in PAGES.values() for entry in section)
