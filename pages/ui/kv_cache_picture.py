"""The live pictures of the KV cache page: what the page shows and what the live route sends."""

from collections.abc import Mapping

import numpy as np

from attnviz.kv_cache_view.view import settle
from pages.ui import asked, kv_cache_charts, kv_cache_lessons, kv_cache_maps
from pages.ui.heatmap.frame import MASKED_STATE, VALUE_STATE, Map, pack
from pages.ui.plot.spec import specs, with_figures
from pages.ui.translate import say

FIGURE = "kv_cache"
MAIN, SIZES, FITS = "main", "sizes", "fits"


def frame(params: Mapping[str, str]) -> bytes:
    """Give the bytes of the page's pictures, and of those of the open sections that ``parts`` names.

    Raises:
        Refusal: For settings that cannot be read.
    """
    view, language, given = asked.read(params, settle, ("lang", "parts"))
    wanted = set(params.get("parts", "").split(","))
    drawn = {
        SIZES: kv_cache_charts.sizes(view, language),
        FITS: kv_cache_charts.accelerators(view, language),
    } | {part: draw(view, language) for part, draw in kv_cache_lessons.CHARTS.items() if part in wanted}
    grids = {part: draw(view, language) for part, draw in kv_cache_lessons.GRIDS.items() if part in wanted}
    figures = specs(drawn)
    return with_figures(pack(FIGURE, given, {MAIN: kv_cache_maps.main_grid(view, language)} | grids), figures)


def cell(params: Mapping[str, str]) -> dict[str, object]:
    """Say what one cell of a picture is: ``part``, ``map``, ``row`` and ``col`` name it.

    Raises:
        Refusal: For settings that cannot be read and cells outside the maps.
    """
    view, language, _ = asked.read(params, settle, ("parts", *asked.OF_CELL))
    grids = {MAIN: kv_cache_maps.main_grid, **kv_cache_lessons.GRIDS}
    part = asked.one_of(params, "part", grids, MAIN)
    maps = {drawn.key: drawn for drawn in grids[part](view, language).maps}
    drawn = maps[asked.one_of(params, "map", maps)]
    row, col = asked.place(params, (drawn.values.shape[0], drawn.values.shape[1]))
    is_masked = drawn.state is not None and drawn.state[row, col] == MASKED_STATE
    value = "" if is_masked else _value(drawn, part, float(drawn.values[row, col]), language)
    return {"value": value, "state": MASKED_STATE if is_masked else VALUE_STATE, "row": row, "col": col}


def _value(drawn: Map, part: str, value: float, language: str) -> str:
    """Give a cell in words where its values have names, as a sequence where they count those, else as a number."""
    named = dict(drawn.kinds)
    if named:
        return named[value]
    if part == kv_cache_lessons.PAGED:
        return say(language, "kv_cache.paged.of", sequence=int(value) - 1)
    return np.format_float_positional(np.float32(value), trim="-")
