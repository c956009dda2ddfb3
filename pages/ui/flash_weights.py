"""The flash page's section on weights: those that were never written down, beside the fused output."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import streamlit as st

from attnviz import units
from attnviz.flash_view import weights as recomputed
from attnviz.flash_view.view import View
from attnviz.flash_view.weights import Span
from attnviz.maps.pooling import factors, pool_cells
from attnviz.pictures import extreme
from pages.ui import layout
from pages.ui.bus import Group
from pages.ui.controls import Panel
from pages.ui.heatmap import heatmap
from pages.ui.heatmap.frame import Axis, Grid, Map
from pages.ui.translate import say, table

WEIGHTS, FUSED = "weights", "fused"
# Drawn cells along a side; a part that is zoomed into comes sharper.
SIDE = 256
HEIGHT = 340
# Most weights of a row are far below its largest: on a linear scale they would all look alike.
_RANGE: Mapping[str, Any] = MappingProxyType({"log": True, "low": 1e-5, "high": 1.0})


def section(panel: Panel, group: Group) -> None:
    """Draw the weights beside the fused output, with the proof that they belong together."""
    opened = layout.fold(panel.title("weights.title"), icon=":material/grid_on:", key="flash.fold.weights")
    if opened is None:
        return
    view = panel.settled.view
    found = recomputed.proof(view)
    with opened:
        st.markdown(panel.title("weights.lead"))
        # Two ranges: a colour bar is for the maps of one picture, so that each has its own.
        for column, (part, drawn) in zip(st.columns(2, gap="medium"), grids(view, panel.language).items(), strict=True):
            with column:
                words = table(panel.language, "heatmap")
                heatmap(
                    drawn, part=part, group=group, key=f"flash.{part}", height=HEIGHT, words=words, shares_rows=True,
                    own_zoom=part == FUSED,
                )  # fmt: skip
        st.caption(panel.title("weights.held", rows=units.count(view.length), cols=units.count(view.key_length)))
        for column, name in zip(st.columns(3), ("sums", "output", "eager"), strict=True):
            column.metric(
                panel.title(f"weights.{name}"),
                units.number(getattr(found, name), 2),
                help=panel.title(f"weights.{name}_help"),
            )
        if found.empty:
            st.caption(panel.title("weights.empty", empty=units.count(found.empty)))


def grids(view: View, language: str) -> dict[str, Grid]:
    """Give all weights, and the fused output of the same call."""
    drawn, returned = (make(view, (0, view.length), language=language) for make in (weight_map, fused_map))
    fields = {"rows": view.length, "cols": view.key_length, "width": view.d_k}
    fields |= {"highest": units.number(float(drawn.values.max()), 3), "most": units.number(returned.high or 0.0, 3)}
    return {
        name: Grid(
            (one,),
            say(language, f"flash.weights.{name}_caption", **fields),
            say(language, f"flash.weights.{name}_alt", **fields),
        )
        for name, one in ((WEIGHTS, drawn), (FUSED, returned))
    }


def fused_map(view: View, rows: Span, cols: Span | None = None, *, language: str) -> Map:
    """Give a part of the fused output; colours reach as far to both sides as the whole output's largest entry does."""
    output = recomputed.fused(view).output[0, 0]
    cols = cols or (0, view.d_k)
    pool = factors(rows[1] - rows[0], cols[1] - cols[0], SIDE)
    values = pool_cells(output[None, slice(*rows), slice(*cols)], pool, extreme)[0].numpy()
    most = float(output.abs().max()) or 1.0
    axes = _axis(language, "query", rows, "row"), _axis(language, "feature", cols, "entry")
    return Map(
        FUSED, say(language, "flash.weights.fused"), values, *axes, pool=pool, palette="diverging", low=-most, high=most
    )


def weight_map(view: View, rows: Span, cols: Span | None = None, *, language: str) -> Map:
    """Give the weights of a region."""
    cols = cols or (0, view.key_length)
    found = recomputed.region(view, rows, cols, SIDE)
    axes = _axis(language, "query", rows, "row"), _axis(language, "key", cols, "col")
    return Map(WEIGHTS, say(language, "flash.weights.map"), found.values, *axes, found.state, found.pool, **_RANGE)


def _axis(language: str, dim: str, side: Span, word: str) -> Axis:
    return Axis(dim, say(language, f"flash.weights.{word}"), side[1] - side[0], side[0])


def cell(view: View, name: str, row: int, col: int) -> dict[str, object]:
    """Give one weight, worked out anew, or one entry of the fused output."""
    if name == FUSED:
        return {
            "value": f"{float(recomputed.fused(view).output[0, 0, row, col]):.6g}",
            "state": 0,
            "row": row,
            "col": col,
        }
    found, allowed = recomputed.weights(view, (row, row + 1), (col, col + 1))
    state = 0 if bool(allowed) else 1
    return {"value": "" if state else f"{float(found):.6g}", "state": state, "row": row, "col": col}
