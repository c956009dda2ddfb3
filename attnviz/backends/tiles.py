"""The tiles that the walk of flash visits, in its order: which are left out, and what each one brings in."""

from collections.abc import Iterator
from typing import NamedTuple

from torch import Tensor

from attnviz.backends.call import Call, Span
from attnviz.masks import Mask, tile_state


class Tile(NamedTuple):
    """Describe one tile before anything is computed of it.

    Args:
        rows: First query and the one after the last.
        cols: First key and the one after the last.
        keep: bool [batch | 1, heads | 1, rows, cols], True = may attend; None where every cell counts.
        bias: Finite bias, likewise; None without one.
        read: Bytes of query, key and value that it takes from slow memory, all heads and sequences together; the block
            of queries comes with its first tile and then stays. Mask and bias are not counted.
    """

    rows: Span
    cols: Span
    keep: Tensor | None
    bias: Tensor | None
    read: int


def blocks(call: Call, tile_rows: int, within: Span | None = None) -> Iterator[Span]:
    """Give the blocks of queries in order, from the first query of ``within`` to its last."""
    first, last = within or (0, call.query.shape[2])
    for start in range(first, last, tile_rows):
        yield start, min(start + tile_rows, last)


def tiles(call: Call, rows: Span, tile_cols: int, skip: bool) -> Iterator[Tile]:
    """Give the tiles of one block of queries that have a cell which counts; all of them where none is to be skipped."""
    batch, heads, _, width = call.query.shape
    _, kv_heads, kv_len, value_width = call.value.shape
    size = call.query.element_size() * batch
    block = size * heads * (rows[1] - rows[0]) * width
    column = size * kv_heads * (width + value_width)
    # Tiles outside the band do not come here: the walk stays within the keys that a block of queries can see.
    first, stop = call.visible(rows) if skip else (0, kv_len)
    if first == stop:
        return
    for grid in range(first // tile_cols * tile_cols, stop, tile_cols):
        cols = (max(grid, first), min(grid + tile_cols, stop))
        terms = _terms(call, rows, cols, skip)
        if terms is None:
            continue
        yield Tile(rows, cols, *terms, block + column * (cols[1] - cols[0]))
        block = 0


def _terms(call: Call, rows: Span, cols: Span, skip: bool) -> tuple[Tensor | None, Tensor | None] | None:
    """Give mask and bias of a tile (mask None when every cell counts), or None when no cell does and it is skipped."""
    if isinstance(call.allowed, Mask) and tile_state(call.allowed, rows, cols, offset=call.offset) == "full":
        call = call._replace(allowed=None)
    keep, bias = call.terms(rows, cols)
    if keep is None or keep.all():
        return None, bias
    return (keep, bias) if not skip or keep.any() else None
