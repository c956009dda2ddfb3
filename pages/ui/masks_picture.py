"""What the masks page's live route sends: the picture of a section, its figures, and the words of one cell."""

from collections.abc import Mapping

import numpy as np
import plotly.graph_objects as go

from attnviz import units
from attnviz.figures.masks import keys_chart, reach_chart
from attnviz.mask_view import guard, scores
from attnviz.mask_view.survey import region, survey
from attnviz.mask_view.view import View, settle
from attnviz.masks import MASKS
from attnviz.text import Refusal, Text
from pages.ui import masks_maps, masks_ways
from pages.ui.heatmap.frame import Grid, pack
from pages.ui.plot.spec import spec, with_figures
from pages.ui.translate import say

FIGURE = "masks"
GALLERY, MAIN, CHANGE, DIFFERENCE = "gallery", "main", "change", "difference"
PLAIN, PLAIN_MASKS = "plain", ("causal", "padding")
CHART = "chart"
_OF_CELL = ("lang", "part", "map", "row", "col")
_OF_REGION = ("lang", "part", "map", "rows", "cols")

_REGION = Text("{name} must be two whole numbers start-stop inside the map, got {value}.",
               "{name} 应为图内的两个整数 start-stop，收到的是 {value}。")  # fmt: skip
_INDEX = Text("{name} must be a whole number from 0 to {high}, got {value}.",
              "{name} 应为 0 到 {high} 之间的整数，收到的是 {value}。")  # fmt: skip
_ONE_OF = Text("{name} must be one of {options}, got {value}.", "{name} 应为以下之一：{options}，收到的是 {value}。")


def grids(view: View, language: str) -> tuple[dict[str, Grid], dict[str, str]]:
    """Compute a section's pictures by their part, and its figures as the browser takes them.

    Args:
        view: A settled view that passed ``guard.check``.
        language: Language of the words.
    """
    parts, figures = {GALLERY: masks_maps.gallery(view, language)}, {}
    if view.section == "mask":
        parts[MAIN] = masks_maps.mask(view, language)
        if view.score_mod != "none":
            parts[CHANGE] = masks_maps.changed(view, language)
        figures[CHART] = keys_figure(view, language)
    elif view.section == "blocks":
        parts[MAIN] = masks_maps.blocks(view, language)[0]
    elif view.section == "reach":
        parts[MAIN] = masks_maps.reach(view, language)[0]
        figures[CHART] = reach_figure(view, language)
    elif view.section == "conventions":
        parts[MAIN], parts[DIFFERENCE] = masks_ways.weights(view, language), masks_ways.differences(view, language)
    return parts, figures


def keys_chart_of(view: View, language: str) -> tuple[go.Figure, str]:
    """Give the chart of the keys of each query, and its text alternative."""
    keys = masks_maps.counted(view).keys
    names = {"x_title": say(language, "masks.axis.query"), "y_title": say(language, "masks.keys")}
    alt = say(
        language,
        "masks.keys_alt",
        low=units.count(int(keys.min())),
        high=units.count(int(keys.max())),
        empty=units.count(int((keys == 0).sum())),
    )
    return keys_chart(keys, none_name=say(language, "masks.no_key"), **names), alt


def keys_figure(view: View, language: str) -> str:
    """Give the chart of the keys of each query as the browser takes it."""
    figure, alt = keys_chart_of(view, language)
    return spec(figure, alt=alt)


def reach_chart_of(view: View, language: str) -> tuple[go.Figure, str]:
    """Give the chart of how far a query sees after each number of layers, and its text alternative."""
    _, found = masks_maps.reach(view, language)
    names = [say(language, f"masks.reach.{word}") for word in ("mean_name", "most_name", "bound_name")]
    figure = reach_chart(
        found.mean, found.most, masks_maps.reach_bound(view), names=names, x_title=say(language, "masks.reach.layers")
    )
    return figure, say(
        language, "masks.reach.chart_alt", layers=view.layers, mean=units.number(found.mean[-1], 4), high=found.most[-1]
    )


def reach_figure(view: View, language: str) -> str:
    """Give the chart of reach as the browser takes it."""
    figure, alt = reach_chart_of(view, language)
    return spec(figure, alt=alt)


def read(params: Mapping[str, str], own: tuple[str, ...]) -> tuple[View, str, dict[str, str]]:
    """Read a live request, ``own`` names aside: the view, the language, and the settings as they came.

    Raises:
        Refusal: For the first setting that cannot be read, and for a view that is too large.
    """
    given = {name: text for name, text in params.items() if name not in own}
    settled = settle(given)
    if settled.problems:
        raise Refusal(settled.problems[0])
    guard.check(settled.view)
    return settled.view, "zh" if params.get("lang") == "zh" else "en", given


def frame(params: Mapping[str, str]) -> bytes:
    """Give the bytes of a section's pictures, or of a part of the mask where ``rows`` and ``cols`` ask for it.

    Raises:
        Refusal: For settings that cannot be read and views that are too large.
    """
    is_region = bool({"rows", "cols"} & params.keys())
    view, language, given = read(params, _OF_REGION if is_region else ("lang",))
    if is_region:
        if view.section != "mask" or params.get("part", MAIN) != MAIN:
            raise Refusal(_ONE_OF.fill(name="part", options=MAIN, value=repr(params.get("part", "")[:40])))
        rows, cols = _span(params, "rows", view.length), _span(params, "cols", view.key_length)
        found = survey(view.build_mask(), view.look, rows=rows, cols=cols, max_side=masks_maps.MAIN_SIDE)
        name = masks_maps.title(view, language)
        return pack(FIGURE, given, {MAIN: Grid((masks_maps.share_map("mask", name, found, language),))})
    parts, figures = grids(view, language)
    packed = pack(FIGURE, given, parts)
    return with_figures(packed, figures) if figures else packed


def _span(params: Mapping[str, str], name: str, length: int) -> tuple[int, int]:
    parts = params.get(name, f"0-{length}").split("-")
    if len(parts) == 2 and all(part.isascii() and part.isdigit() and len(part) <= 9 for part in parts):
        start, stop = int(parts[0]), int(parts[1])
        if 0 <= start < stop <= length:
            return start, stop
    raise Refusal(_REGION.fill(name=name, value=repr(params.get(name, "")[:40])))


def cell(params: Mapping[str, str]) -> dict[str, object]:
    """Say what one cell of a picture is: ``part``, ``map``, ``row`` and ``col`` name it.

    Raises:
        Refusal: For settings that cannot be read and cells outside the map.
    """
    view, language, _ = read(params, _OF_CELL)
    answer = {MAIN: _CELLS.get(view.section), CHANGE: _change_cell, DIFFERENCE: _way_cell}
    answer |= {GALLERY: _thumb_cell, PLAIN: _plain_cell}
    part = params.get("part", MAIN)
    work = answer.get(part)
    if work is None:
        raise Refusal(_ONE_OF.fill(name="part", options=", ".join(answer), value=repr(part[:40])))
    return work(view, params, language)


def _place(params: Mapping[str, str], sides: tuple[int, int]) -> tuple[int, int]:
    place = []
    for name, length in zip(("row", "col"), sides, strict=True):
        text = params.get(name, "")
        if not (text.isascii() and text.isdigit() and len(text) <= 9 and int(text) < length):
            raise Refusal(_INDEX.fill(name=name, high=length - 1, value=repr(text[:40])))
        place.append(int(text))
    return place[0], place[1]


def _mask_cell(view: View, params: Mapping[str, str], language: str) -> dict[str, object]:
    row, col = _place(params, (view.length, view.key_length))
    allowed = bool(region(view.build_mask(), view.look, (row, row + 1), (col, col + 1)))
    return {
        "value": say(language, "masks.may") if allowed else "",
        "state": 0 if allowed else 1,
        "row": row,
        "col": col,
    }


def _thumb_cell(view: View, params: Mapping[str, str], language: str) -> dict[str, object]:
    key = _one_of(params, tuple(MASKS))
    return _mask_cell(view if key == view.mask else masks_maps.thumb_view(key), params, language)


def _plain_cell(view: View, params: Mapping[str, str], language: str) -> dict[str, object]:
    return _mask_cell(masks_maps.plain_view(_one_of(params, PLAIN_MASKS)), params, language)


def _one_of(params: Mapping[str, str], keys: tuple[str, ...]) -> str:
    """Give the map that is asked about."""
    key = params.get("map", "")
    if key not in keys:
        raise Refusal(_ONE_OF.fill(name="map", options=", ".join(keys), value=repr(key[:40])))
    return key


def _change_cell(view: View, params: Mapping[str, str], language: str) -> dict[str, object]:
    row, col = _place(params, (view.length, view.key_length))
    difference, together, allowed = scores.cell(view, row, col)
    value = difference if params.get("map") == "change" else together
    is_shown = allowed or params.get("map") == "change"
    text = np.format_float_positional(np.float32(value), trim="-") if is_shown else ""
    return {"value": text, "state": 0 if is_shown else 1, "row": row, "col": col}


def _tile_cell(view: View, params: Mapping[str, str], language: str) -> dict[str, object]:
    row, col = _place(params, (-(-view.length // view.tile), -(-view.key_length // view.tile)))
    return {"value": tile_text(view, row, col, language), "state": 0, "row": row, "col": col}


def tile_text(view: View, row: int, col: int, language: str) -> str:
    """Say what a tile is and how many of its pairs may attend."""
    rows = (row * view.tile, min((row + 1) * view.tile, view.length))
    cols = (col * view.tile, min((col + 1) * view.tile, view.key_length))
    cells = region(view.build_mask(), view.look, rows, cols)
    pairs, size = int(cells.sum()), cells.numel()
    word = "full" if pairs == size else "partial" if pairs else "empty"
    return say(language, f"masks.blocks.{word}", pairs=units.count(pairs), size=units.count(size))


def _reach_cell(view: View, params: Mapping[str, str], language: str) -> dict[str, object]:
    row, col = _place(params, (view.length, view.key_length))
    first = int(masks_maps.reach(view, language)[1].first[row, col])
    value = say(language, "masks.reach.after", layer=first) if first else ""
    return {"value": value, "state": 0 if first else 1, "row": row, "col": col}


def _way_cell(view: View, params: Mapping[str, str], language: str) -> dict[str, object]:
    found = masks_ways.compare(masks_ways.bare(view))
    ways = {way.key: way for way in found.ways if way.weights is not None}
    key = _one_of(params, tuple(ways))
    row, col = _place(params, (found.allowed.shape[0], found.allowed.shape[1]))
    values = ways[key].difference if params.get("part") == DIFFERENCE else ways[key].weights
    assert values is not None
    return {"value": f"{values[row, col]:.6g}", "state": 0, "row": row, "col": col}


_CELLS = {"mask": _mask_cell, "blocks": _tile_cell, "reach": _reach_cell, "conventions": _way_cell}
