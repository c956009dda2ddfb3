"""What skipping empty tiles is worth: our own tiled kernel timed with and without it, within about a second."""

import time
from collections import deque
from dataclasses import dataclass
from statistics import median

import torch
from torch import Tensor

from attnviz import inputs, units
from attnviz.backends.flash import trace
from attnviz.mask_view.scores import drawn_mask
from attnviz.mask_view.survey import survey, tiles
from attnviz.mask_view.view import View
from attnviz.text import Refusal, Text

WIDTH = 64
# A tile takes about a tenth of a millisecond of Python beside its arithmetic.
MOST_TILES, MOST_CELLS = 2048, 2**22
ROUNDS, BUDGET_S = 5, 0.8

_TOO_MANY = Text(
    "Timed up to {tiles} tiles and {cells} cells, so that the page does not wait; this view has {have_tiles} and "
    "{have_cells}. Raise the tile or lower the length.",
    "为避免页面等待，只对不超过 {tiles} 个块、{cells} 个格计时；当前有 {have_tiles} 个块、{have_cells} 个格。"
    "请增大块或减小长度。",
)


@dataclass(frozen=True)
class Timing:
    """Hold the median seconds of a call with and without skipping, and of how many rounds."""

    skipping_s: float
    whole_s: float
    rounds: int

    @property
    def ratio(self) -> float:
        """How many times faster skipping is."""
        return self.whole_s / self.skipping_s


def measure(view: View) -> Timing:
    """Time one head of width ``WIDTH`` with the view's mask and tile, both ways in turn: a busy machine slows both.

    Raises:
        Refusal: If that would take too long.
    """
    count = tiles(survey(view.build_mask(), view.look, tile=view.tile))
    have = count.full + count.partial + count.empty
    if have > MOST_TILES or count.cells > MOST_CELLS:
        limits = {"tiles": units.count(MOST_TILES), "cells": units.short_count(MOST_CELLS)}
        raise Refusal(_TOO_MANY.fill(**limits, have_tiles=units.count(have), have_cells=units.short_count(count.cells)))
    query = inputs.random_normal((1, view.length, WIDTH), view.seed)[:, None]
    key = inputs.random_normal((1, view.key_length, WIDTH), view.seed + 1)[:, None]
    skipping: list[float] = []
    whole: list[float] = []
    began = time.perf_counter()
    while not whole or (len(whole) < ROUNDS and time.perf_counter() - began < BUDGET_S):
        skipping.append(_once(view, query, key, True))
        whole.append(_once(view, query, key, False))
    return Timing(median(skipping), median(whole), len(whole))


@torch.no_grad()
def _once(view: View, query: Tensor, key: Tensor, skip: bool) -> float:
    mask = drawn_mask(view)
    began = time.perf_counter()
    deque(trace(query, key, key, allowed=mask, align=view.align, tile=(view.tile, view.tile), skip=skip), maxlen=0)
    return max(time.perf_counter() - began, 1e-9)
