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
from pages.ui import asked, masks_maps, masks_ways
from pages.ui.heatmap.frame import Grid, pack
from pages.ui.plot.spec import spec, with_figures
from pages.ui.translate import counted, say

FIGURE = "masks"
GALLERY, MAIN, CHANGE, DIFFERENCE = "gallery", "main", "change", "difference"
PLAIN, PLAIN_MASKS = "plain", ("causal", "padding")
CHART = "chart"


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


def frame(params: Mapping[str, str]) -> bytes:
    """Give the bytes of a section's pictures, or of a part of the mask where ``rows`` and ``cols`` ask for it.

    Raises:
        Refusal: For settings that cannot be read and views that are too large.
    """
    is_region = bool({"rows", "cols"} & params.keys())
    view, language, given = asked.read(params, settle, asked.OF_REGION if is_region else ("lang",), guard.check)
    if is_region:
        asked.one_of(params, "part", (MAIN,) if view.section == "mask" else (), MAIN)
        rows, cols = asked.span(params, "rows", view.length), asked.span(params, "cols", view.key_length)
        found = survey(view.build_mask(), view.look, rows=rows, cols=cols, max_side=masks_maps.MAIN_SIDE)
        name = masks_maps.title(view, language)
        return pack(FIGURE, given, {MAIN: Grid((masks_maps.share_map("mask", name, found, language),))})
    parts, figures = grids(view, language)
    packed = pack(FIGURE, given, parts)
    return with_figures(packed, figures) if figures else packed


def cell(params: Mapping[str, str]) -> dict[str, object]:
    """Say what one cell of a picture is: ``part``, ``map``, ``row`` and ``col`` name it.

    Raises:
        Refusal: For settings that cannot be read and cells outside the map.
    """
    view, language, _ = asked.read(params, settle, asked.OF_CELL, guard.check)
    answer = {MAIN: _CELLS.get(view.section), CHANGE: _change_cell, DIFFERENCE: _way_cell}
    answer |= {GALLERY: _thumb_cell, PLAIN: _plain_cell}
    there = {part: work for part, work in answer.items() if work is not None}
    return there[asked.one_of(params, "part", there, MAIN)](view, params, language)


def _mask_cell(view: View, params: Mapping[str, str], language: str) -> dict[str, object]:
    row, col = asked.place(params, (view.length, view.key_length))
    allowed = bool(region(view.build_mask(), view.look, (row, row + 1), (col, col + 1)))
    return {
        "value": say(language, "masks.may") if allowed else "",
        "state": 0 if allowed else 1,
        "row": row,
        "col": col,
    }


def _thumb_cell(view: View, params: Mapping[str, str], language: str) -> dict[str, object]:
    key = asked.one_of(params, "map", tuple(MASKS))
    return _mask_cell(view if key == view.mask else masks_maps.thumb_view(key), params, language)


def _plain_cell(view: View, params: Mapping[str, str], language: str) -> dict[str, object]:
    return _mask_cell(masks_maps.plain_view(asked.one_of(params, "map", PLAIN_MASKS)), params, language)


def _change_cell(view: View, params: Mapping[str, str], language: str) -> dict[str, object]:
    row, col = asked.place(params, (view.length, view.key_length))
    difference, together, allowed = scores.cell(view, row, col)
    value = difference if params.get("map") == "change" else together
    is_shown = allowed or params.get("map") == "change"
    text = np.format_float_positional(np.float32(value), trim="-") if is_shown else ""
    return {"value": text, "state": 0 if is_shown else 1, "row": row, "col": col}


def _tile_cell(view: View, params: Mapping[str, str], language: str) -> dict[str, object]:
    row, col = asked.place(params, (-(-view.length // view.tile), -(-view.key_length // view.tile)))
    return {"value": tile_text(view, row, col, language), "state": 0, "row": row, "col": col}


def tile_text(view: View, row: int, col: int, language: str) -> str:
    """Say what a tile is and how many of its pairs may attend."""
    rows = (row * view.tile, min((row + 1) * view.tile, view.length))
    cols = (col * view.tile, min((col + 1) * view.tile, view.key_length))
    cells = region(view.build_mask(), view.look, rows, cols)
    pairs, size = int(cells.sum()), cells.numel()
    word = "full" if pairs == size else "partial" if pairs else "empty"
    return say(language, f"masks.blocks.{word}", pairs=units.count(pairs), size=counted(language, "pair", size))


def _reach_cell(view: View, params: Mapping[str, str], language: str) -> dict[str, object]:
    row, col = asked.place(params, (view.length, view.key_length))
    first = int(masks_maps.reach(view, language)[1].first[row, col])
    value = say(language, "masks.reach.after", layer=first) if first else ""
    return {"value": value, "state": 0 if first else 1, "row": row, "col": col}


def _way_cell(view: View, params: Mapping[str, str], language: str) -> dict[str, object]:
    found = masks_ways.compare(masks_ways.bare(view))
    ways = {way.key: way for way in found.ways if way.weights is not None}
    key = asked.one_of(params, "map", tuple(ways))
    rows, cols = found.part.rows, found.part.cols
    row, col = asked.place(params, (rows[1], cols[1]), (rows[0], cols[0]))
    values = ways[key].difference if params.get("part") == DIFFERENCE else ways[key].weights
    assert values is not None
    return {"value": f"{values[row - rows[0], col - cols[0]]:.6g}", "state": 0, "row": row, "col": col}


_CELLS = {"mask": _mask_cell, "blocks": _tile_cell, "reach": _reach_cell, "conventions": _way_cell}
