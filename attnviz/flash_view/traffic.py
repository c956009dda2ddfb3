"""Bytes between slow and fast memory, and FLOPs: counted along the walk, beside eager's and the published formulas.

Slow memory is what a GPU calls HBM, fast memory what is on the chip. A tile must fit into fast memory whole: the block
of queries, keys and values of the tile, its scores, and the rows' running maximum, sum and output.
"""

from bisect import bisect_left
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch

from attnviz.backends import BACKENDS
from attnviz.backends.flash import plan
from attnviz.config import Shape
from attnviz.flash_view.view import View
from attnviz.flash_view.walk import span, walk
from attnviz.masks import MASKS, Mask

ITEM = 4  # bytes of a float32, which all of this page computes in
MEMORIES = tuple(2**power for power in range(13, 23))
LENGTHS = (256, 512, 1024, 2048, 4096, 8192)
# On-chip memory of one streaming multiprocessor of an A100: FlashAttention, section 2.1.
A100 = 192 * 1024
# Tiles of one count: so many of a band take a tenth of a second, of a rule that has to be asked far fewer do.
MOST_OF_BAND, MOST_OF_RULE = 40_000, 10_000
# Cells for which a rule is asked at each size of fast memory.
MOST_CELLS = 2**24


class Curve(NamedTuple):
    """Hold bytes against the size of fast memory, or against the number of tokens for one such size.

    Args:
        at: Sizes of fast memory in bytes, or numbers of tokens.
        counted: Bytes along the walk without a mask, NaN where it has too many steps to be counted.
        masked: The same with the view's mask, NaN where that is not counted.
        predicted: The formula's bytes, without a mask.
        eager: Bytes of attention with the score matrix in slow memory.
    """

    at: np.ndarray
    counted: np.ndarray
    masked: np.ndarray
    predicted: np.ndarray
    eager: np.ndarray


class Work(NamedTuple):
    """Count the arithmetic of one forward pass: multiply-adds of matrix products as 2, the rest one by one.

    Args:
        products: FLOPs of q·kᵀ and of weights · v.
        exponentials: Exponential functions, those that rescale included.
        rescaling: Multiplications of running sums and outputs by exp(m - m').
        divisions: By the sum.
    """

    products: int
    exponentials: int
    rescaling: int
    divisions: int

    @property
    def total(self) -> int:
        """All of it."""
        return sum(self)


def tile_bytes(rows: int, cols: int, d_k: int) -> int:
    """Give what one tile holds in fast memory, in bytes."""
    inputs = rows * d_k + 2 * cols * d_k
    return ITEM * (inputs + rows * cols + rows * (2 + d_k))


def tile_for(memory: int, d_k: int) -> tuple[int, int] | None:
    """Give the tile that reads the least within ``memory`` bytes; None where not even one query and one key fit.

    As in the paper one side takes what there is and the other is at most d_k; ours keeps the queries, so that theirs is
    the long side.

    Source:
        Dao et al. 2022, algorithm 1, line 1, https://arxiv.org/abs/2205.14135
    """
    low, high = 0, memory
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if tile_bytes(middle, min(middle, d_k), d_k) <= memory else (low, middle)
    return (low, min(low, d_k)) if low else None


def predicted_bytes(tokens: int, d_k: int, tile_rows: int) -> int:
    """Predict the bytes of the walk without a mask.

    Queries are read once, keys and values once for each block of queries, output and log-sum-exp are written once.

    Source:
        Dao 2023, algorithm 1, https://arxiv.org/abs/2307.08691
    """
    return ITEM * (tokens * d_k * (2 + 2 * -(-tokens // tile_rows)) + tokens)


def eager_bytes(tokens: int, d_k: int) -> int:
    """Give the bytes of eager attention: q, k, v, output once; scores and weights written and read, once each.

    Source:
        Dao et al. 2022, algorithm 0, https://arxiv.org/abs/2205.14135
    """
    return ITEM * (4 * tokens * d_k + BACKENDS["eager"].score_passes * tokens**2)


def least_memory(tokens: int, d_k: int) -> int | None:
    """Give the least fast memory with which the walk without a mask moves fewer bytes than eager; None if none does."""
    moved = eager_bytes(tokens, d_k)
    rows = 1 + bisect_left(range(1, tokens + 1), True, key=lambda rows: predicted_bytes(tokens, d_k, rows) < moved)
    return tile_bytes(rows, min(rows, d_k), d_k) if rows <= tokens else None


def counted_bytes(tokens: int, d_k: int, tile: tuple[int, int], mask: Mask | None) -> int:
    """Count the bytes of the walk: what every tile reads, and the results, which are written once."""
    nothing = torch.zeros(1, 1, 1, 1).expand(1, 1, tokens, d_k)
    read = sum(one.read for one in plan(nothing, nothing, nothing, allowed=mask, tile=tile))
    return read + ITEM * tokens * (d_k + 1)


def against_memory(view: View) -> Curve:
    """Give bytes against the size of fast memory, for ``view.tokens`` queries and keys."""
    return _against_memory(int(view.tokens), view.d_k, view.mask, view.mask_settings)


@lru_cache(maxsize=16)
def _against_memory(tokens: int, d_k: int, name: str, settings: tuple) -> Curve:
    mask = _mask(name, settings)
    sizes = [(memory, tile) for memory in MEMORIES if (tile := tile_for(memory, d_k)) is not None]
    return _curve([(memory, tokens, tile) for memory, tile in sizes], d_k, mask)


def against_length(view: View) -> Curve:
    """Give bytes against the number of tokens, with an A100's fast memory."""
    return _against_length(view.d_k, view.mask, view.mask_settings)


@lru_cache(maxsize=16)
def _against_length(d_k: int, name: str, settings: tuple) -> Curve:
    tile = tile_for(A100, d_k)
    assert tile is not None
    return _curve([(length, length, tile) for length in LENGTHS], d_k, _mask(name, settings))


def _mask(name: str, settings: tuple) -> Mask:
    return MASKS[name].build(**dict(settings))


def _curve(points: list[tuple[int, int, tuple[int, int]]], d_k: int, mask: Mask) -> Curve:
    columns = list(zip(*(_point(tokens, d_k, tile, mask) for _, tokens, tile in points), strict=True))
    at = np.array([at for at, _, _ in points])
    return Curve(at, *(np.array(column, dtype=np.float64) for column in columns))


def _point(tokens: int, d_k: int, tile: tuple[int, int], mask: Mask) -> Iterator[float]:
    steps = -(-tokens // tile[0]) * -(-tokens // tile[1])
    yield counted_bytes(tokens, d_k, tile, None) if steps <= MOST_OF_BAND else np.nan
    most = MOST_OF_BAND if mask.exact else MOST_OF_RULE
    within = steps <= most and (mask.exact or tokens**2 * mask.work <= MOST_CELLS)
    yield counted_bytes(tokens, d_k, tile, mask) if within else np.nan
    yield predicted_bytes(tokens, d_k, tile[0])
    yield eager_bytes(tokens, d_k)


def held_bytes(tokens: int, d_k: int, backend: str) -> int:
    """Predict what a backend allocates at its peak for one head, results included; measured in the tests."""
    return BACKENDS[backend].peak_bytes(Shape(1, 1, 1, tokens, tokens, d_k), ITEM, False)


def flash_work(view: View) -> Work:
    """Count the arithmetic along the view's walk."""
    cells = rows = 0
    found = walk(view)
    for (block, _), cols in zip(found.places, found.cols, strict=True):
        first, stop = span(view, block)
        rows += stop - first
        cells += (stop - first) * (cols[1] - cols[0])
    return Work(4 * cells * view.d_k, cells + rows, rows * (view.d_k + 1), view.length * view.d_k)


def eager_work(view: View) -> Work:
    """Count the arithmetic of eager attention, which computes every cell, masked or not."""
    cells = view.length * view.key_length
    return Work(4 * cells * view.d_k, cells, 0, cells)
