"""One call's stage minus another's, cell by cell; pooled afterwards, so that what is drawn is a difference there is."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch

from attnviz.maps.pooling import factors, pool_cells
from attnviz.pictures import Picture, Request, draw, extreme
from attnviz.stages import MASKED, NO_KEY, VALUE, Call, Fused

# Cells of one call held at once before they are pooled: 32 MiB in float32.
STRIP_CELLS = 2**23


class Side(NamedTuple):
    """Hold one of two calls: the call, its fused result, and the heads of it that are compared or averaged."""

    call: Call
    ran: Fused | None
    heads: tuple[int, ...]


def difference(sides: Sequence[Side], request: Request) -> Picture:
    """Draw the first call minus the second.

    A masked weight is 0, so that only what is masked in both stays masked; any other stage has no difference where
    either of them is masked. Rows are gone through in strips: no L × L array is held.

    Args:
        sides: Two calls; without ``average`` they have the same number of heads each.
        request: What to draw, with its region; both calls have to have it.

    Returns:
        The picture; a pooled cell holds the difference farthest from 0, or the mean of those that count.
    """
    assert request.rows is not None and request.cols is not None
    (start, stop), width = request.rows, request.cols[1] - request.cols[0]
    pool = factors(stop - start, width, request.max_side)
    maps = 1 if request.average else len(sides[0].heads)
    step = max(1, STRIP_CELLS // (maps * width * pool[0])) * pool[0]
    values, states, no_key_rows = [], [], 0
    for first in range(start, stop, step):
        rows = (first, min(first + step, stop))
        pictures = [_exact(side, request, rows) for side in sides]
        value, state = _minus(*pictures, is_weights=request.stage == "weights")
        no_key_rows += max(picture.no_key_rows for picture in pictures)
        pooled = _pooled(value, state, pool, request.reduce)
        values.append(pooled[0])
        states.append(pooled[1])
    state = np.concatenate(states, 1)
    return Picture(request, np.concatenate(values, 1), state if state.any() else None, pool, no_key_rows)


def _exact(side: Side, request: Request, rows: tuple[int, int]) -> Picture:
    whole = max(request.cols[1], rows[1]) if request.cols else rows[1]
    return draw(side.call, [replace(request, heads=side.heads, rows=rows, max_side=whole)], side.ran).pictures[0]


def _minus(one: Picture, other: Picture, *, is_weights: bool) -> tuple[np.ndarray, np.ndarray]:
    """Give values and states of two unpooled pictures' difference."""
    states = [np.zeros(p.values.shape, np.uint8) if p.state is None else p.state for p in (one, other)]
    masked = [state != VALUE for state in states]
    hidden = masked[0] & masked[1] if is_weights else masked[0] | masked[1]
    with np.errstate(invalid="ignore"):  # infinite in both: no number, and drawn as such
        values = np.where(hidden, 0.0, one.values - other.values).astype(np.float32)
    return values, np.where(hidden, np.maximum(*states), VALUE).astype(np.uint8)


def _pooled(values: np.ndarray, state: np.ndarray, pool: tuple[int, int], reduce: str) -> tuple[np.ndarray, np.ndarray]:
    """Pool a strip; a cell is masked where all of its cells are, and has no key where none of their rows has one."""
    if pool == (1, 1):
        return values, state
    cells, marks = torch.from_numpy(values), torch.from_numpy(state)
    lowest = pool_cells(marks, pool, torch.amin)
    hidden = torch.where(lowest == NO_KEY, NO_KEY, torch.where(lowest > VALUE, MASKED, VALUE)).to(torch.uint8)
    if reduce == "max":
        return pool_cells(cells, pool, extreme).numpy(), hidden.numpy()
    count = pool_cells((marks == VALUE).to(torch.float32), pool, torch.sum)
    return (pool_cells(cells, pool, torch.sum) / count.clamp(min=1)).numpy(), hidden.numpy()
