"""What can be counted about a mask: keys of each query, pairs in each drawn cell or tile; in memory of one block."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from attnviz.arrays import to_numpy
from attnviz.maps.pooling import factors, pool_axis
from attnviz.masks import Mask, offset

Span = tuple[int, int]

# Cells of a rule evaluated at once: its temporaries then stay in the processor's cache.
PIECE = 2**18


@dataclass(frozen=True)
class Look:
    """Say which grid of a mask is looked at.

    Args:
        q_len: Number of queries.
        kv_len: Number of keys.
        align: ``top_left`` or ``bottom_right``.
        batch: Number of sequences of the call.
        sequence: The one looked at.
        head: The head looked at.
    """

    q_len: int
    kv_len: int
    align: str = "top_left"
    batch: int = 1
    sequence: int = 0
    head: int = 0

    @property
    def offset(self) -> int:
        """Where query 0 stands on the keys' axis."""
        return offset(self.q_len, self.kv_len, self.align)


class Survey(NamedTuple):
    """Hold what was counted.

    ``keys`` is int64 ``[rows]``: how many keys each query of the region sees, over all keys there are. ``counts`` is
    int64 ``[drawn rows, drawn cols]``: pairs that may attend in each drawn cell, which stands for ``factor`` rows and
    columns. ``rows`` and ``cols`` are the region. ``looks_back`` says whether any query may attend to itself or to a
    key before it.
    """

    keys: np.ndarray
    counts: np.ndarray
    factor: tuple[int, int]
    rows: Span
    cols: Span
    looks_back: bool

    @property
    def sizes(self) -> np.ndarray:
        """Give the pairs that each drawn cell stands for; the last of a row or column may be smaller."""
        sides = (
            np.minimum(step, length - np.arange(0, length, step))
            for step, length in zip(
                self.factor, (self.rows[1] - self.rows[0], self.cols[1] - self.cols[0]), strict=True
            )
        )
        return np.multiply.outer(*sides)

    @property
    def pairs(self) -> int:
        """Pairs that may attend, of the whole rows."""
        return int(self.keys.sum())

    @property
    def empty_rows(self) -> int:
        """Rows without a key."""
        return int((self.keys == 0).sum())

    @property
    def only_future(self) -> bool:
        """There are pairs that may attend, and every one has its key after its query."""
        return self.pairs > 0 and not self.looks_back


def region(mask: Mask, look: Look, rows: Span, cols: Span) -> Tensor:
    """Give one part of the grid, bool ``[rows, cols]`` on the CPU."""
    fitted = mask.at(look.batch, look.kv_len)
    queries = torch.arange(rows[0] + look.offset, rows[1] + look.offset)[:, None]
    keys = torch.arange(*cols)[None]
    made = fitted.rule(torch.tensor(look.sequence), torch.tensor(look.head), queries, keys)
    return made.expand(queries.shape[0], keys.shape[1])


def visible(mask: Mask, look: Look, rows: Span) -> Span:
    """Give the outermost keys that these queries can see, from the band alone; may be empty."""
    left, right = mask.band
    first = 0 if left is None else min(look.kv_len, max(0, rows[0] + look.offset - left))
    stop = look.kv_len if right is None else max(0, min(look.kv_len, rows[1] + look.offset + right))
    return first, max(stop, first)


def steps(mask: Mask, look: Look) -> int:
    """Give how many rows are gone through at once: so many that what they can see is about one piece."""
    first, stop = visible(mask, look, (0, look.q_len))
    tall = PIECE // max(1, stop - first)
    if None not in mask.band:
        # A block of a band is as much wider than the band as it is tall.
        width = sum(side or 0 for side in mask.band)
        tall = max(tall, (math.isqrt(width**2 + 4 * PIECE) - width) // 2)
    return min(max(1, tall), look.q_len)


def survey(
    mask: Mask,
    look: Look,
    *,
    rows: Span | None = None,
    cols: Span | None = None,
    max_side: int = 1024,
    tile: int | None = None,
) -> Survey:
    """Go through a mask's grid, or some of it, once.

    Args:
        mask: The mask.
        look: Its grid.
        rows: First query of the region and the one after the last; None is all.
        cols: First key and the one after the last; None is all.
        max_side: A region with a longer side is pooled.
        tile: Side of a drawn cell, instead of what ``max_side`` says.

    Returns:
        The counts; memory is one block of rows and what is returned.
    """
    rows, cols = rows or (0, look.q_len), cols or (0, look.kv_len)
    height, width = rows[1] - rows[0], cols[1] - cols[0]
    factor = factors(height, width, max_side) if tile is None else (tile, tile)
    counts = torch.zeros(math.ceil(height / factor[0]), math.ceil(width / factor[1]), dtype=torch.int32)
    keys = torch.zeros(height, dtype=torch.int32)
    mask, step, looks_back = mask.at(look.batch, look.kv_len), steps(mask, look), False
    for start in range(*rows, step):
        part = (start, min(start + step, rows[1]))
        seen = visible(mask, look, part)
        if seen[0] == seen[1]:
            continue
        cells = region(mask, look, part, seen).to(torch.uint8)
        at = torch.arange(part[0] - rows[0], part[1] - rows[0])
        keys[at] = cells.sum(1, dtype=torch.int32)
        looks_back = looks_back or bool(torch.tril(cells, part[0] + look.offset - seen[0]).any())
        first, stop = max(seen[0], cols[0]), min(seen[1], cols[1])
        if first >= stop:
            continue
        # From the border of a drawn cell on, so that each sum is one of them.
        whole = (first - cols[0]) // factor[1] * factor[1] + cols[0]
        inside = torch.nn.functional.pad(cells[:, first - seen[0] : stop - seen[0]], (first - whole, 0))
        pooled = pool_axis(inside, 1, factor[1], _total)
        place = (whole - cols[0]) // factor[1]
        counts[:, place : place + pooled.shape[1]].index_add_(0, at // factor[0], pooled.to(torch.int32))
    return Survey(_wide(keys), _wide(counts), factor, rows, cols, looks_back)


def _wide(counts: Tensor) -> np.ndarray:
    return to_numpy(counts).astype(np.int64)


def coarser(found: Survey, max_side: int) -> Survey:
    """Give the same counts in larger cells, at most ``max_side`` along a side."""
    height, width = found.counts.shape
    step = factors(height, width, max_side)
    rows, cols = (np.arange(0, size, by) for size, by in zip(found.counts.shape, step, strict=True))
    counts = np.add.reduceat(np.add.reduceat(found.counts, rows, 0), cols, 1)
    return found._replace(counts=counts, factor=(found.factor[0] * step[0], found.factor[1] * step[1]))


def _total(cells: Tensor, axis: int, keepdim: bool = False) -> Tensor:
    return cells.sum(axis, dtype=torch.int32, keepdim=keepdim)


class Tiles(NamedTuple):
    """Count the tiles of a grid: all cells allowed, some, none; and what a tiled kernel does with them.

    ``computed`` pairs are those of the full and partial tiles, ``pairs`` those of them that count.
    """

    full: int
    partial: int
    empty: int
    computed: int
    cells: int
    pairs: int

    @property
    def skipped(self) -> float:
        """Share of the cells that lie in empty tiles."""
        return 1.0 - self.computed / self.cells


def tiles(found: Survey) -> Tiles:
    """Count the tiles of a survey that was made with ``tile``."""
    sizes = found.sizes
    full, empty = found.counts == sizes, found.counts == 0
    return Tiles(
        int(full.sum()),
        int((~full & ~empty).sum()),
        int(empty.sum()),
        int(sizes[~empty].sum()),
        int(sizes.sum()),
        int(found.counts.sum()),
    )
