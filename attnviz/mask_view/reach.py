"""Reach: through how many layers a token can influence another, when every layer has the same mask."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor


class Reach(NamedTuple):
    """Hold who reaches whom.

    ``first`` is int64 ``[length, length]``: after how many layers the key's token first influences the query's, 0 where
    it does not within the layers gone through. ``mean`` and ``most`` are, for 1, 2, … layers, how many tokens a query
    sees on average and at most; ``settled`` is the number of layers after which nothing new is seen, None where it is
    more than were gone through.
    """

    first: np.ndarray
    mean: tuple[float, ...]
    most: tuple[int, ...]
    settled: int | None


def reach(allowed: Tensor, layers: int) -> Reach:
    """Follow influence through a stack of equal layers.

    What a token holds after a layer is made of the tokens its query may attend to and, by the residual connection, of
    itself. After n layers it depends on everything that a path of n steps leads to.

    Args:
        allowed: bool ``[length, length]``, True = may attend.
        layers: How many layers to go through, at least 1.

    Raises:
        ValueError: If the grid is not square or ``layers`` is below 1.

    Source:
        The receptive field of stacked windows: Longformer, section 3.1, https://arxiv.org/abs/2004.05150;
        Mistral 7B, section 2, https://arxiv.org/abs/2310.06825
    """
    if allowed.dim() != 2 or allowed.shape[0] != allowed.shape[1]:
        raise ValueError(f"allowed must be [length, length], got {list(allowed.shape)}")
    if layers < 1:
        raise ValueError(f"layers must be at least 1, got {layers}")
    length = len(allowed)
    step = [np.flatnonzero(row) for row in (allowed | torch.eye(length, dtype=torch.bool)).numpy()]
    own = np.eye(length, dtype=bool)
    seen, words, first = own, _packed(own), np.zeros((length, length), np.int64)
    mean: list[float] = []
    most: list[int] = []
    settled = None
    for layer in range(1, layers + 1):
        if settled is None:
            further = np.stack([np.bitwise_or.reduce(words[keys], 0) for keys in step])
            settled = layer - 1 if np.array_equal(further, words) else None
            words, seen = further, np.unpackbits(further.view(np.uint8), axis=1, count=length).view(bool)
            first[seen & (first == 0)] = layer
        counts = seen.sum(1)
        mean.append(float(counts.mean()))
        most.append(int(counts.max()))
    return Reach(first, tuple(mean), tuple(most), settled)


def _packed(grid: np.ndarray) -> np.ndarray:
    """Give the rows as words of 64 bits: whole rows are then joined at a stroke, only for the pairs that there are."""
    packed = np.packbits(grid, axis=1)
    return np.pad(packed, ((0, 0), (0, -packed.shape[1] % 8))).view(np.uint64)
