"""Weights that a fused call never wrote down, from its row statistics: any region, and the proof that they are its own.

A fused call returns each row's log-sum-exp L. A weight is then exp(score - L): no softmax is needed, and no other cell.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from attnviz.backends import BACKENDS, CoreOutput
from attnviz.flash_view.view import View
from attnviz.flash_view.walk import tensors
from attnviz.maps.pooling import factors, pool_cells
from attnviz.masks import block

Span = tuple[int, int]
# Cells worked out at once.
_PIECE = 2**21


class Region(NamedTuple):
    """Hold weights ``[rows, cols]`` as float32, what each cell is (0 a weight, 1 masked, 2 no key), and the pooling."""

    values: np.ndarray
    state: np.ndarray
    pool: tuple[int, int]


class Proof(NamedTuple):
    """Hold how well the weights fit the fused call, over every row.

    Args:
        sums: Largest difference of a row's sum from 1, rows without a key left out.
        output: Largest difference of weights · v from the fused output.
        eager: Largest difference of a weight from eager's.
        empty: Rows without a key; their weights and output are 0.
    """

    sums: float
    output: float
    eager: float
    empty: int


def fused(view: View) -> CoreOutput:
    """Give output and log-sum-exp of our tiled backend."""
    return _fused(view.call)


@lru_cache(maxsize=4)
def _fused(view: View) -> CoreOutput:
    return BACKENDS["flash"].attend(*tensors(view), allowed=view.build_mask(), align=view.align, scale=view.scale)


def weights(view: View, rows: Span, cols: Span) -> tuple[Tensor, Tensor]:
    """Give the weights of a region, float32 ``[rows, cols]``, and where a query may attend, bool likewise."""
    query, key, _ = tensors(view)
    logsumexp = fused(view).logsumexp
    assert logsumexp is not None
    scores = query[0, 0, slice(*rows)] @ key[0, 0, slice(*cols)].T * view.scale
    sizes = {"q_len": view.length, "kv_len": view.key_length, "align": view.align}
    allowed = block(view.build_mask(), rows, cols, **sizes)[0, 0]
    # A row without a key has -inf, and every cell of it is masked: its exponentials are thrown away.
    found = torch.exp(scores - logsumexp[0, 0, slice(*rows), None])
    return torch.where(allowed, found, 0.0), allowed


def region(view: View, rows: Span, cols: Span, max_side: int) -> Region:
    """Give the weights of a region as they are drawn, pooled to their largest where a side is longer than allowed."""
    return _region(view.call, rows, cols, max_side)


@lru_cache(maxsize=8)
def _region(view: View, rows: Span, cols: Span, max_side: int) -> Region:
    pool = factors(rows[1] - rows[0], cols[1] - cols[0], max_side)
    step = max(1, _PIECE // (cols[1] - cols[0]) // pool[0]) * pool[0]
    values, seen = [], []
    for start in range(rows[0], rows[1], step):
        found, allowed = weights(view, (start, min(start + step, rows[1])), cols)
        values.append(pool_cells(found[None], pool, torch.amax)[0])
        seen.append(pool_cells(allowed[None], pool, torch.amax)[0])
    alive = pool_cells(torch.isfinite(_statistics(view)[None, slice(*rows), None]), (pool[0], 1), torch.amax)[0] > 0
    masked = torch.cat(seen) == 0
    state = torch.where(masked, torch.where(alive, 1, 2), 0).to(torch.uint8)
    return Region(torch.cat(values).numpy(), state.numpy(), pool)


def _statistics(view: View) -> Tensor:
    logsumexp = fused(view).logsumexp
    assert logsumexp is not None
    return logsumexp[0, 0]


def proof(view: View) -> Proof:
    """Hold the recomputed weights to the fused output and to eager, block of rows by block of rows."""
    return _proof(view.call)


@lru_cache(maxsize=16)
def _proof(view: View) -> Proof:
    query, key, value = tensors(view)
    result, sizes = fused(view), {"q_len": view.length, "kv_len": view.key_length, "align": view.align}
    alive = torch.isfinite(_statistics(view))
    sums = output = eager = 0.0
    step = max(1, _PIECE // view.key_length)
    for start in range(0, view.length, step):
        rows = start, min(start + step, view.length)
        at = slice(*rows)
        found, _ = weights(view, rows, (0, view.key_length))
        allowed = block(view.build_mask(), rows, (0, view.key_length), **sizes)
        other = BACKENDS["eager"].attend(query[:, :, at], key, value, allowed=allowed, scale=view.scale)
        assert other.weights is not None
        total = found.sum(-1)[alive[at]]
        sums = max(sums, float((total - 1).abs().max()) if len(total) else 0.0)
        output = max(output, float((found @ value[0, 0] - result.output[0, 0, at]).abs().max()))
        eager = max(eager, float((found - other.weights[0, 0]).abs().max()))
    return Proof(sums, output, eager, int((~alive).sum()))
