"""What skipping empty tiles is worth: our own tiled kernel timed with and without it, within about a second."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from attnviz import inputs, units
from attnviz.backends.flash import trace
from attnviz.benchmark.calls import Made
from attnviz.benchmark.clock import Clock, Runner, rounds
from attnviz.benchmark.result import NOISY, Latency
from attnviz.mask_view.scores import drawn_mask
from attnviz.mask_view.survey import survey, tiles
from attnviz.mask_view.view import View
from attnviz.text import Refusal, Text

WIDTH = 64
# A tile takes about a tenth of a millisecond of Python beside its arithmetic.
MOST_TILES, MOST_CELLS = 2048, 2**22
ROUNDS, BUDGET_S = 15, 0.8

_TOO_MANY = Text(
    "Timed up to {tiles} tiles and {cells} cells, so that the page does not wait; this view has {have_tiles} and "
    "{have_cells}. Raise the tile or lower the length.",
    "为避免页面等待，只对不超过 {tiles} 个块、{cells} 个格计时；当前有 {have_tiles} 个块、{have_cells} 个格。"
    "请增大块或减小长度。",
)


@dataclass(frozen=True)
class Timing:
    """Hold the seconds of a call with and without skipping, and how many times faster skipping is.

    ``ratio`` is the median of the ratios taken round by round, ``lower`` and ``upper`` are their quartiles.
    """

    skipping_s: Latency
    whole_s: Latency
    ratio: float
    lower: float
    upper: float

    @classmethod
    def of(cls, skipping: Sequence[float], whole: Sequence[float]) -> "Timing":
        """Summarise the samples of both ways, one of each in every round."""
        ratios = Latency.of([slow / fast for fast, slow in zip(skipping, whole, strict=True)])
        return cls(Latency.of(skipping), Latency.of(whole), ratios.median, ratios.lower, ratios.upper)

    @property
    def noisy(self) -> bool:
        """Whether the middle half of the times or of the ratios spreads over more than 0.3 of its median."""
        return self.skipping_s.noisy or self.whole_s.noisy or self.upper - self.lower > NOISY * self.ratio


@torch.no_grad()
def measure(view: View) -> Timing:
    """Time one head of width ``WIDTH`` with the view's mask and tile, both ways in turn: a busy machine slows both.

    Both are warmed up first, and a short call is repeated until a sample fills what the clock can tell apart.

    Raises:
        Refusal: If that would take too long.
    """
    count = tiles(survey(view.build_mask(), view.look, tile=view.tile))
    have = count.full + count.partial + count.empty
    if have > MOST_TILES or count.cells > MOST_CELLS:
        limits = {"tiles": units.count(MOST_TILES), "cells": units.short_count(MOST_CELLS)}
        raise Refusal(_TOO_MANY.fill(**limits, have_tiles=units.count(have), have_cells=units.short_count(count.cells)))
    clock = Clock("cpu")
    skipping, whole = (Runner(Made(_call(view, skip))) for skip in (True, False))
    for runner in (skipping, whole):
        clock.first(runner)
        clock.warm_up(runner)
    deque(rounds(clock, (skipping, whole), ROUNDS, BUDGET_S), maxlen=0)
    return Timing.of(skipping.samples, whole.samples)


def _call(view: View, skip: bool) -> Callable[[], None]:
    mask = drawn_mask(view)
    query = inputs.random_normal((1, view.length, WIDTH), view.seed)[:, None]
    key = inputs.random_normal((1, view.key_length, WIDTH), view.seed + 1)[:, None]
    options = {"allowed": mask, "align": view.align, "tile": (view.tile, view.tile), "skip": skip}
    return lambda: deque(trace(query, key, key, **options), maxlen=0).clear()
