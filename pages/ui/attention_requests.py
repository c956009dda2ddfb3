"""Which pictures a view needs, and how large they may be within one message."""

import json
from functools import lru_cache

from attnviz import pictures
from attnviz.stage_list import STAGES
from attnviz.view import View
from pages.ui.heatmap.frame import MOST_BYTES

MAIN, STRIP = "main", "stages"
STRIP_SIDE = 64
MAIN_CELLS = 1024 * 1024
# What a frame holds besides codes and names: the description of each map, settings with caption, words of the page.
MAP_BYTES, SETTING_BYTES, PAGE_BYTES = 512, 2_000, 12_000
# Names that would take more than this are left out; the maps then show indices.
NAME_BYTES = 600_000


def map_keys(view: View) -> tuple[str, ...]:
    """Give the keys of the main picture's maps: one for each head drawn, or the average."""
    return ("mean",) if view.head == "mean" else tuple(str(head) for head in view.drawn_heads)


def strip_head(view: View) -> int:
    """Give the head whose stages the strip shows: the selected cell's, else the one drawn, else the first."""
    if view.cell:
        return view.cell[0]
    return view.drawn_heads[0] if view.head not in ("all", "mean") else 0


def _side(view: View, maps: int) -> int:
    """Give the largest side of a main map, so that all maps, their names and the strip stay within one message."""
    settings = _json_bytes((view.text, view.context)) + SETTING_BYTES
    # The route sends the strip along; the page sends its words, and the settings once more, but the strip apart.
    beside = max(len(view.stages) * (2 * STRIP_SIDE**2 + MAP_BYTES), PAGE_BYTES + settings)
    named = sum(map(_json_bytes, set(names(view).values())))
    room = MOST_BYTES - beside - settings - named - maps * MAP_BYTES
    return max(16, min(pictures.MAX_SIDE, int((min(MAIN_CELLS, room // 2) / maps) ** 0.5)))


def names(view: View) -> dict[str, tuple[str, ...]]:
    """Give the tokens of both sides by dimension; none for random input and where they are too much for a message."""
    found = {dim: tokens for dim in ("query", "key") if (tokens := view.tokens(dim)) is not None}
    return found if sum(map(_json_bytes, found.values())) <= NAME_BYTES else {}


@lru_cache(maxsize=8)
def _json_bytes(words: tuple[str, ...]) -> int:
    return len(json.dumps(words, ensure_ascii=False).encode("utf-8", "surrogatepass"))


def requests(view: View) -> list[pictures.Request]:
    """List the pictures of a view: the large one, then every stage of one head."""
    heads, average = view.drawn_heads, view.head == "mean"
    side = _side(view, 1 if average else len(heads))
    main = pictures.Request(view.stage, heads, side, view.reduce, average=average)
    # The largest of many signed values is positive: a thumbnail of them would show one colour.
    reduces = {key: "mean" if STAGES[key].signed else "max" for key in view.stages}
    return [main, *(pictures.Request(key, (strip_head(view),), STRIP_SIDE, reduces[key]) for key in view.stages)]
