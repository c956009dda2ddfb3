"""The walk through the tiles as the page shows it: the order of all tiles, and one row's running state."""

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from attnviz.backends import BACKENDS
from attnviz.backends.flash import Step, plan, trace
from attnviz.flash_view.view import View
from attnviz.inputs import random_normal
from attnviz.masks import block


class Walk(NamedTuple):
    """Hold the order of the tiles.

    Args:
        order: int ``[tiles of queries, tiles of keys]``: at which step a tile is worked off, from 1; 0 where never.
        whole: bool likewise: every pair of the tile may attend, so that no mask is put on it.
        read: Bytes of each step.
        places: The tile of each step: index along the queries and along the keys.
        cols: First key of each step and the one after the last: where the mask's band ends within a tile, its part.
    """

    order: np.ndarray
    whole: np.ndarray
    read: tuple[int, ...]
    places: tuple[tuple[int, int], ...]
    cols: tuple[tuple[int, int], ...]

    @property
    def steps(self) -> int:
        """How many tiles are worked off."""
        return len(self.places)


class Now(NamedTuple):
    """Say where a step stands.

    Args:
        step: Tiles worked off so far.
        place: The tile just worked off; before the first step the one to come, None where no tile is ever visited.
        block: Which block of queries is worked on.
        done: Tiles of this block worked off so far.
        query: The query that is followed.
    """

    step: int
    place: tuple[int, int] | None
    block: int
    done: int
    query: int


class Row(NamedTuple):
    """Hold one query's running state after each tile of its block, and where it has to arrive.

    Args:
        keys: int ``[tiles]``: keys passed by then.
        maximum: ``[tiles]``, -inf while no key was seen.
        total: ``[tiles]``, relative to the maximum.
        output: ``[tiles, d_k]``, divided by the sum; 0 while no key was seen.
        distance: ``[tiles]``: largest difference of an entry of the output from the exact row.
        last_maximum: The row's largest score, by eager in float64; -inf in a row without a key.
        last_total: The sum of its exponentials, likewise.
        exact: ``[d_k]``, eager's output in float64.
    """

    keys: np.ndarray
    maximum: np.ndarray
    total: np.ndarray
    output: np.ndarray
    distance: np.ndarray
    last_maximum: float
    last_total: float
    exact: np.ndarray


@lru_cache(maxsize=4)
def _drawn(length: int, key_length: int, d_k: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    made = random_normal((length + 2 * key_length, d_k), seed)
    query, key, value = made.split((length, key_length, key_length))
    return query[None, None], key[None, None], value[None, None]


def tensors(view: View) -> tuple[Tensor, Tensor, Tensor]:
    """Give query, key and value, float32 ``[1, 1, length, d_k]``: independent normal numbers."""
    return _drawn(view.length, view.key_length, view.d_k, view.seed)


def walk(view: View) -> Walk:
    """Give the order in which the view's tiles are worked off."""
    return _walk(view.shape)


@lru_cache(maxsize=32)
def _walk(view: View) -> Walk:
    order, whole = np.zeros(view.grid, dtype=np.int64), np.zeros(view.grid, dtype=bool)
    read, places, cols = [], [], []
    for step, tile in enumerate(plan(*shapes(view), allowed=view.build_mask(), align=view.align, tile=view.tile), 1):
        place = tile.rows[0] // view.tile_rows, tile.cols[0] // view.tile_cols
        order[place], whole[place] = step, tile.keep is None
        read.append(tile.read)
        places.append(place)
        cols.append(tile.cols)
    return Walk(order, whole, tuple(read), tuple(places), tuple(cols))


def shapes(view: View) -> tuple[Tensor, Tensor, Tensor]:
    """Give query, key and value of the view's shape that take no memory, for a plan, which reads none of them."""
    nothing = torch.zeros(1, 1, 1, 1)
    query, key = (nothing.expand(1, 1, length, view.d_k) for length in (view.length, view.key_length))
    return query, key, key


def now(view: View) -> Now:
    """Give where the view's step stands."""
    found = walk(view)
    step = view.step
    place = found.places[max(0, step - 1)] if found.places else None
    at = place[0] if place else 0
    done = int(((found.order[at] > 0) & (found.order[at] <= step)).sum())
    height = min(view.tile_rows, view.length - at * view.tile_rows)
    return Now(step, place, at, done, at * view.tile_rows + min(view.row, height - 1))


def row(view: View) -> Row:
    """Run the trace over the current block of queries, and give the row that is followed."""
    at = now(view)
    return _row(view.still, at.block, at.query - at.block * view.tile_rows)


@lru_cache(maxsize=64)
def _row(view: View, at: int, index: int) -> Row:
    exact, logsumexp, highest = _exact(view, at)
    target = exact[index]
    maximum, total, output, keys = [], [], [], []
    for step in _steps(view, at):
        maximum.append(float(step.maximum[0, 0, index]))
        total.append(float(step.total[0, 0, index]))
        output.append((step.output[0, 0, index] / (total[-1] or 1.0)).numpy().copy())
        keys.append(step.cols[1])
    outputs = np.array(output, dtype=np.float64).reshape(len(output), view.d_k)
    distance = np.abs(outputs - target).max(-1)
    last_total = float(np.exp(logsumexp[index] - highest[index])) if np.isfinite(highest[index]) else 0.0
    return Row(
        np.array(keys), np.array(maximum), np.array(total), outputs, distance, float(highest[index]), last_total, target
    )  # fmt: skip


def span(view: View, at: int) -> tuple[int, int]:
    """Give the queries of a block: the first and the one after the last."""
    return at * view.tile_rows, min((at + 1) * view.tile_rows, view.length)


def _steps(view: View, at: int) -> Iterator[Step]:
    options = {"align": view.align, "scale": view.scale, "tile": view.tile, "rows": span(view, at)}
    return trace(*tensors(view), allowed=view.build_mask(), **options)


@lru_cache(maxsize=16)
def _exact(view: View, at: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Give a block's output, log-sum-exp and largest allowed scores by eager in float64."""
    rows = span(view, at)
    query, key, value = (tensor.double() for tensor in tensors(view))
    allowed = block(
        view.build_mask(), rows, (0, view.key_length), q_len=view.length, kv_len=view.key_length, align=view.align
    )
    found = BACKENDS["eager"].attend(query[:, :, slice(*rows)], key, value, allowed=allowed, scale=view.scale)
    assert found.scores is not None and found.logsumexp is not None
    highest = found.scores.masked_fill(~allowed, -torch.inf).amax(-1)
    output, logsumexp, most = (tensor[0, 0].numpy() for tensor in (found.output, found.logsumexp, highest))
    return output, logsumexp, most
