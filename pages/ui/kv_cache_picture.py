"""The live pictures of the KV cache page: what the page shows and what the live route sends."""

from collections.abc import Mapping

import numpy as np

from attnviz.kv_cache_view.view import View, settle
from attnviz.text import LANGUAGES, Refusal, Text
from pages.ui import kv_cache_charts, kv_cache_lessons, kv_cache_maps
from pages.ui.heatmap.frame import MASKED_STATE, VALUE_STATE, Map, pack
from pages.ui.plot.spec import spec, with_figures
from pages.ui.translate import say

FIGURE = "kv_cache"
MAIN, SIZES, FITS = "main", "sizes", "fits"
_OF_CELL = ("lang", "parts", "part", "map", "row", "col")
_INDEX = Text("{name} must be a whole number from 0 to {high}, got {value}.",
              "{name} 应为 0 到 {high} 之间的整数，收到的是 {value}。")  # fmt: skip
_ONE_OF = Text("{name} must be one of {options}, got {value}.", "{name} 应为以下之一：{options}，收到的是 {value}。")


def read(params: Mapping[str, str], own: tuple[str, ...]) -> tuple[View, str, dict[str, str]]:
    """Read a live request, ``own`` names aside: the view, the language, and the settings as they came.

    Raises:
        Refusal: For the first setting that cannot be read.
    """
    given = {name: text for name, text in params.items() if name not in own}
    settled = settle(given)
    if settled.problems:
        raise Refusal(settled.problems[0])
    return settled.view, params["lang"] if params.get("lang") in LANGUAGES else LANGUAGES[0], given


def frame(params: Mapping[str, str]) -> bytes:
    """Give the bytes of the page's pictures, and of those of the open sections that ``parts`` names.

    Raises:
        Refusal: For settings that cannot be read.
    """
    view, language, given = read(params, ("lang", "parts"))
    asked = set(params.get("parts", "").split(","))
    drawn = {
        SIZES: kv_cache_charts.sizes(view, language),
        FITS: kv_cache_charts.accelerators(view, language),
    } | {part: draw(view, language) for part, draw in kv_cache_lessons.CHARTS.items() if part in asked}
    grids = {part: draw(view, language) for part, draw in kv_cache_lessons.GRIDS.items() if part in asked}
    figures = {part: spec(one.figure, alt=one.alt, caption=one.caption) for part, one in drawn.items()}
    return with_figures(pack(FIGURE, given, {MAIN: kv_cache_maps.main_grid(view, language)} | grids), figures)


def cell(params: Mapping[str, str]) -> dict[str, object]:
    """Say what one cell of a picture is: ``part``, ``map``, ``row`` and ``col`` name it.

    Raises:
        Refusal: For settings that cannot be read and cells outside the maps.
    """
    view, language, _ = read(params, _OF_CELL)
    grids = {MAIN: kv_cache_maps.main_grid, **kv_cache_lessons.GRIDS}
    part = params.get("part", MAIN)
    if part not in grids:
        raise Refusal(_ONE_OF.fill(name="part", options=", ".join(grids), value=repr(part[:40])))
    maps = {drawn.key: drawn for drawn in grids[part](view, language).maps}
    key = params.get("map", "")
    if key not in maps:
        raise Refusal(_ONE_OF.fill(name="map", options=", ".join(maps), value=repr(key[:40])))
    drawn = maps[key]
    row, col = (_index(params, name, size) for name, size in zip(("row", "col"), drawn.values.shape, strict=True))
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


def _index(params: Mapping[str, str], name: str, length: int) -> int:
    text = params.get(name, "")
    if text.isascii() and text.isdigit() and len(text) <= 9 and int(text) < length:
        return int(text)
    raise Refusal(_INDEX.fill(name=name, high=length - 1, value=repr(text[:40])))
