"""The walk through the tiles as a picture: the grid, and one row's running state; what the live route sends."""

from collections.abc import Mapping

import numpy as np

from attnviz import units
from attnviz.figures import flash as figures
from attnviz.flash_view import guard
from attnviz.flash_view.settle import settle
from attnviz.flash_view.view import View
from attnviz.flash_view.walk import Now, Row, Walk, now, row, span, walk
from pages.ui import asked, flash_weights
from pages.ui.flash_weights import FUSED, WEIGHTS, fused_map, weight_map
from pages.ui.heatmap.frame import MASKED_STATE, Axis, Grid, Map, pack
from pages.ui.plot.spec import Drawn, specs, with_figures
from pages.ui.translate import say

FIGURE = "flash"
TILES, STATISTICS, OUTPUT = "tiles", "statistics", "output"
# Where on the colours a tile stands that was just worked off, was before, or will be.
CURRENT, DONE, TO_COME = 1.0, 0.55, 0.15
_KINDS = ((CURRENT, "current"), (DONE, "done"), (TO_COME, "to_come"))


def tiles(view: View, language: str) -> Grid:
    """Give the grid of tiles: worked off, the current one, still to come, and never loaded."""
    found, at = walk(view), now(view)
    values = np.where(found.order <= at.step, DONE, TO_COME).astype(np.float32)
    if at.step:
        values[found.places[at.step - 1]] = CURRENT
    state = np.where(found.order == 0, MASKED_STATE, 0).astype(np.uint8)
    kinds = tuple((value, say(language, f"flash.tiles.{word}")) for value, word in _KINDS)
    rows, cols = (
        Axis(dim, say(language, f"flash.axis.{dim}_tile"), length)
        for dim, length in zip(("query", "key"), view.grid, strict=True)
    )
    drawn = Map(TILES, say(language, "flash.tiles.title"), values, rows, cols, state, low=0.0, high=1.0, kinds=kinds)
    return Grid((drawn,), *tile_lines(view, found, at, language))


def tile_lines(view: View, found: Walk, at: Now, language: str) -> tuple[str, str]:
    """Give the line under the grid and its text alternative."""
    count = found.order.size
    fields = {"step": at.step, "steps": found.steps, "count": units.count(count)}
    fields |= {"skipped": units.count(count - found.steps), "share": units.percent(1 - found.steps / count)}
    read = units.binary_bytes(sum(found.read[: at.step]))
    alt = say(language, "flash.tiles.alt", rows=view.grid[0], cols=view.grid[1], **fields)
    return say(language, "flash.tiles.caption", read=read, **fields), alt


def figures_of(view: View, language: str) -> dict[str, Drawn]:
    """Give the figures of the row that is followed."""
    found, at = row(view), now(view)
    return {STATISTICS: _statistics(view, found, at, language), OUTPUT: _output(view, found, at, language)}


def _statistics(view: View, found: Row, at: Now, language: str) -> Drawn:
    shown = {"maximum": (found.maximum, found.last_maximum), "total": (found.total, found.last_total)}
    figure = figures.statistics(
        found.keys,
        [(say(language, f"flash.row.{name}"), *course) for name, course in shown.items()],
        done=at.done,
        last=view.key_length,
        x_title=say(language, "flash.row.keys"),
        exact=say(language, "flash.row.exact"),
    )
    numbers = {
        name: units.number(float(course[at.done - 1]), 4) if at.done else "–" for name, (course, _) in shown.items()
    }
    ends = {f"last_{name}": units.number(last, 4) for name, (_, last) in shown.items()}
    word = "statistics" if np.isfinite(found.last_maximum) else "statistics_none"
    caption = say(language, f"flash.row.{word}", query=at.query)
    return Drawn(figure, caption, say(language, "flash.row.statistics_alt", query=at.query, **numbers, **ends))


def _output(view: View, found: Row, at: Now, language: str) -> Drawn:
    current = found.output[at.done - 1] if at.done else np.zeros(view.d_k)
    distance = float(np.abs(current - found.exact).max())
    fields = {"done": at.done, "tiles": len(found.keys), "distance": units.number(distance, 2)}
    figure = figures.output(
        found.keys,
        current,
        found.exact,
        found.distance,
        done=at.done,
        last=view.key_length,
        titles=(say(language, "flash.row.output"), say(language, "flash.row.distance", **fields)),
        names=(say(language, "flash.row.now"), say(language, "flash.row.exact")),
        x_title=say(language, "flash.row.keys"),
    )
    sees = np.isfinite(found.last_maximum)
    word = "no_key" if not len(found.keys) else "progress" if sees else "progress_none"
    return Drawn(figure, say(language, f"flash.row.{word}", **fields), say(language, "flash.row.output_alt", **fields))


def frame(params: Mapping[str, str]) -> bytes:
    """Give the bytes of a view's pictures, or of a part of its weights where ``rows`` and ``cols`` ask for it.

    Raises:
        Refusal: For settings that cannot be read and views that are too large.
    """
    if {"rows", "cols"} & params.keys():
        return _region(params)
    view, language, given = asked.read(params, settle, check=guard.check)
    figures = specs(figures_of(view, language))
    return with_figures(pack(FIGURE, given, {TILES: tiles(view, language)}), figures)


def _region(params: Mapping[str, str]) -> bytes:
    view, language, given = asked.read(params, settle, asked.OF_REGION, guard.check)
    part = asked.one_of(params, "part", (WEIGHTS, FUSED))
    asked.one_of(params, "map", (part,), part)
    make, width = (weight_map, view.key_length) if part == WEIGHTS else (fused_map, view.d_k)
    spans = asked.span(params, "rows", view.length), asked.span(params, "cols", width)
    return pack(FIGURE, given, {part: Grid((make(view, *spans, language=language),))})


def cell(params: Mapping[str, str]) -> dict[str, object]:
    """Say what one tile is, or give one weight or entry: ``part``, ``map``, ``row`` and ``col`` name it.

    Raises:
        Refusal: For settings that cannot be read and cells outside the map.
    """
    view, language, _ = asked.read(params, settle, asked.OF_CELL, guard.check)
    if (name := params.get("part")) in (WEIGHTS, FUSED):
        asked.one_of(params, "map", (name,), name)
        width = view.key_length if name == WEIGHTS else view.d_k
        return flash_weights.cell(view, name, *asked.place(params, (view.length, width)))
    place = asked.place(params, view.grid)
    state = MASKED_STATE if walk(view).order[place] == 0 else 0
    return {"value": tile_text(view, place, language), "state": state, "row": place[0], "col": place[1]}


def tile_text(view: View, place: tuple[int, int], language: str) -> str:
    """Say which queries and keys a tile holds, when its turn is, and whether a mask is put on it."""
    found = walk(view)
    rows, step = span(view, place[0]), int(found.order[place])
    cols = place[1] * view.tile_cols, min((place[1] + 1) * view.tile_cols, view.key_length)
    # The band of a mask may end within a tile: then only that part of it is loaded.
    cols = found.cols[step - 1] if step else cols
    word = "skipped" if step == 0 else "whole" if found.whole[place] else "partial"
    fields = {"rows": f"{rows[0]}–{rows[1] - 1}", "cols": f"{cols[0]}–{cols[1] - 1}", "step": step}
    return say(language, f"flash.tiles.{word}", **fields)
