"""The flash page's section on weights: those that were never written down, beside the fused output."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import streamlit as st
import torch

from attnviz import units
from attnviz.flash_view import weights as recomputed
from attnviz.flash_view.view import View
from attnviz.maps.pooling import factors, pool_cells
from pages.ui import layout
from pages.ui.bus import Group
from pages.ui.controls import Panel
from pages.ui.heatmap import heatmap
from pages.ui.heatmap.frame import Axis, Grid, Map
from pages.ui.translate import say, table

WEIGHTS, FUSED = "weights", "output"
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
        heatmap(
            grid(view, panel.language), part=WEIGHTS, group=group, key="flash.maps", height=HEIGHT,
            words=table(panel.language, "heatmap") | {"own_range": panel.title("weights.own_range")},
        )  # fmt: skip
        for column, name in zip(st.columns(3), ("sums", "output", "eager"), strict=True):
            column.metric(
                panel.title(f"weights.{name}"),
                units.number(getattr(found, name), 2),
                help=panel.title(f"weights.{name}_help"),
            )
        if found.empty:
            st.caption(panel.title("weights.empty", empty=units.count(found.empty)))


def grid(view: View, language: str) -> Grid:
    """Give all weights, and the fused output of the same call."""
    rows, cols = (0, view.length), (0, view.key_length)
    output = recomputed.fused(view).output[0, 0]
    pool = factors(view.length, view.d_k, SIDE)
    high = float(output.abs().max()) or 1.0
    shown = Map(
        FUSED, say(language, "flash.weights.fused"), pool_cells(output[None], pool, torch.mean)[0].numpy(),
        _axis(language, "query", rows, "row"), Axis("feature", say(language, "flash.weights.entry"), view.d_k),
        pool=pool, reduce="mean", palette="diverging", low=-high, high=high,
    )  # fmt: skip
    maps = (weight_map(view, rows, cols, language), shown)
    highest = units.number(float(maps[0].values.max()), 3)
    alt = say(language, "flash.weights.alt", rows=view.length, cols=view.key_length, highest=highest)
    return Grid(maps, say(language, "flash.weights.caption"), alt)


def weight_map(view: View, rows: tuple[int, int], cols: tuple[int, int], language: str) -> Map:
    """Give the weights of a region."""
    found = recomputed.region(view, rows, cols, SIDE)
    axes = _axis(language, "query", rows, "row"), _axis(language, "key", cols, "col")
    return Map(WEIGHTS, say(language, "flash.weights.map"), found.values, *axes, found.state, found.pool, **_RANGE)


def _axis(language: str, dim: str, side: tuple[int, int], word: str) -> Axis:
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
