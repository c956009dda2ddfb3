"""What a view of a mask takes, predicted before anything is allocated, and the refusal of what is too much."""

from collections.abc import Callable
from dataclasses import dataclass

from attnviz import device, units
from attnviz.guard import SHARE
from attnviz.maps.rows import BLOCK_CELLS
from attnviz.mask_view.scores import WIDTH
from attnviz.mask_view.settings import HEADS
from attnviz.mask_view.survey import PIECE, steps, visible
from attnviz.mask_view.view import View
from attnviz.text import Refusal, Text

# Cells of a simple rule that one CPU core goes through in about half a second.
MOST_CELLS = 2**28
# What one block of rows takes whatever its size, in such cells.
BLOCK_WORK = 2**16
# Bytes of a rule's temporaries.
PIECE_BYTES = 48
# The same for scores before and after their modification: bytes of each in a block, and times a simple rule's time.
SCORE_BYTES, SCORE_WORK = 24, 8
MOST_DRAWN = 1024
# Reach is drawn pair by pair, never several to a pixel.
MOST_REACH = MOST_DRAWN

_TOO_MUCH = Text(
    "Refused before allocating anything: a grid of {length} × {key_length} would take {need} and going through {cells} "
    "cells; the limits are {most} ({share} % of the free memory) and {most_cells} cells. {hint}",
    "在分配内存之前已拒绝：{length} × {key_length} 的网格约需 {need}，并要遍历 {cells} 个格；"
    "上限为 {most}（空闲内存的 {share} %）和 {most_cells} 个格。{hint}",
)
_NEAREST = Text("The nearest length that fits is {size}.", "能放下的最接近长度是 {size}。")
_REACH = Text(
    "Reach needs as many keys as queries, and every pair is a cell of its own, for which there is room up to {most} "
    "tokens; this view has {length} × {key_length}. Set both lengths to {size}.",
    "可达范围要求键与查询个数相同，且每一对 token 各占一格，因此最多画 {most} 个 token；"
    "当前为 {length} × {key_length}，请把两个长度都设为 {size}。",
)


@dataclass(frozen=True)
class Prediction:
    """Predict one view: ``total`` bytes held at its peak, and ``cells`` of work in units of a simple rule's cell."""

    total: int
    cells: int


def predict(view: View) -> Prediction:
    """Predict a view's memory and work from its settings alone."""
    drawn = min(view.length, MOST_DRAWN) * min(view.key_length, MOST_DRAWN)
    # Counts and states of the drawn cells, keys of each query, one block of rows and its temporaries.
    total = drawn * 32 + view.length * 24 + PIECE_BYTES * max(PIECE, view.key_length)
    cells = _cells(view) * view.build_mask().work
    if view.score_mod != "none" and view.section == "mask":
        # Queries and keys of every head, and one block of scores with their bias; every pair is gone through.
        total += 8 * HEADS * WIDTH * (view.length + view.key_length) + SCORE_BYTES * BLOCK_CELLS
        cells += SCORE_WORK * view.length * view.key_length
    return Prediction(total, cells)


def _cells(view: View) -> int:
    """Give how many cells are looked at: those within the band, in whole blocks of rows."""
    mask, look = view.build_mask(), view.look
    if mask.band == (None, None):
        return view.length * view.key_length
    step = steps(mask, look)
    # A band widens and narrows at the ends alone: a few blocks stand for all of them.
    starts = range(0, view.length, step)
    sample = starts[:: max(1, len(starts) // 256)]
    widths = [stop - first for first, stop in (visible(mask, look, (at, min(at + step, view.length))) for at in sample)]
    return max(round(sum(widths) / len(widths) * view.length), BLOCK_WORK * len(starts))


def check(view: View, free_bytes: int | None = None) -> Prediction:
    """Give the prediction, or refuse the view.

    Args:
        view: The view.
        free_bytes: Free memory; looked up when None.

    Raises:
        Refusal: If it would take more than ``SHARE`` of the free memory or ``MOST_CELLS``, or its section draws no such
            grid; the sentence gives the numbers and the nearest length that fits.
    """
    if view.section == "reach" and not (view.is_square and view.length <= MOST_REACH):
        sizes = {"length": units.count(view.length), "key_length": units.count(view.key_length)}
        size = min(view.length, view.key_length, MOST_REACH)
        raise Refusal(_REACH.fill(most=units.count(MOST_REACH), size=size, **sizes))
    most = int((device.free_bytes("cpu") if free_bytes is None else free_bytes) * SHARE)

    def fits(candidate: View) -> bool:
        prediction = predict(candidate)
        return prediction.total <= most and prediction.cells <= MOST_CELLS

    prediction = predict(view)
    if fits(view):
        return prediction
    size = _largest(view, fits)
    raise Refusal(
        _TOO_MUCH.fill(
            length=units.count(view.length),
            key_length=units.count(view.key_length),
            need=units.binary_bytes(prediction.total),
            cells=units.short_count(prediction.cells),
            most=units.binary_bytes(most),
            share=f"{SHARE:.0%}".rstrip("%"),
            most_cells=units.short_count(MOST_CELLS),
            hint=_NEAREST.fill(size=units.count(size)) if size else Text("", ""),
        )
    )


def _largest(view: View, fits: Callable[[View], bool]) -> int:
    """Give the largest length below the view's that fits, the keys cut along with it; 0 if none does."""
    low, high = 0, max(view.length, view.key_length)
    while high - low > 1:
        middle = (low + high) // 2
        cut = view.resized(min(view.length, middle), min(view.key_length, middle))
        low, high = (middle, high) if fits(cut) else (low, middle)
    return low
