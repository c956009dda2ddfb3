"""Why many heads: a token that needs several positions at once, read by one head and by several, together as wide.

Every position holds a value of ``WIDTH`` numbers. Of so many positions wanted, the token needs the first numbers of the
first one's value, the next ones of the next, and so on: together ``WIDTH`` again. However many heads there are, they
are as wide together, so the layers have equally many weights. A head that serves m positions can only give one
weighted sum of their values: with values that have nothing in common, 1 − 1/m of what was wanted stays out of reach
for whatever weights it gives and whatever matrix stands behind it: by symmetry none does better than one factor.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from attnviz.arrays import to_numpy
from attnviz.backends import BACKENDS

WIDTH, PLACES = 64, 24
HEADS = (1, 2, 4, 8, 16, 32)
# Half of the trials fit a factor for each head and the sharpness, the other half measure.
TRIALS = 1024
# Score of a wanted position: higher ones make sharper weights, and raise what else looks alike.
SCORES = (4.0, 8.0, 12.0, 16.0, 24.0, 32.0)


class Read(NamedTuple):
    """Hold what so many heads retrieve.

    ``error`` is the norm of what is missing over the norm of what was wanted; ``weights`` are those of one trial,
    ``[heads, PLACES]``; ``score`` is the score of a wanted position that suits these heads best.
    """

    heads: int
    error: float
    predicted: float
    weights: np.ndarray
    score: float


class Retrieval(NamedTuple):
    """Hold the wanted positions of the trial that is drawn, and what each number of heads makes of the task."""

    places: tuple[int, ...]
    reads: tuple[Read, ...]


@lru_cache(maxsize=8)
def retrieval(wanted: int, seed: int) -> Retrieval:
    """Retrieve ``wanted`` positions at once with each number of ``HEADS``.

    Args:
        wanted: Positions needed at once, a power of two up to the largest of ``HEADS``.
        seed: Of keys, values and positions.
    """
    generator = torch.Generator().manual_seed(seed)
    keys = torch.randn(TRIALS, PLACES, WIDTH, generator=generator)
    values = torch.randn(TRIALS, PLACES, WIDTH, generator=generator)
    places = torch.rand(TRIALS, PLACES, generator=generator).argsort(1)[:, :wanted]
    reads = tuple(_read(heads, keys, values, places) for heads in HEADS)
    return Retrieval(tuple(sorted(map(int, places[0]))), reads)


def predicted(heads: int, wanted: int) -> float:
    """Give the error that averaging alone leaves: each head serves ``wanted / heads`` positions, at least one."""
    return max(0.0, 1 - heads / wanted) ** 0.5


def _read(heads: int, keys: Tensor, values: Tensor, places: Tensor) -> Read:
    """Retrieve with so many heads, at the sharpness that suits them best."""
    wanted = places.shape[1]
    target = _targets(values, places).unflatten(1, (heads, -1))
    query, key, value = _inputs(heads, keys, values, places)
    half = TRIALS // 2
    best: tuple[float, float, float, Tensor] | None = None
    for score in SCORES:
        core = BACKENDS["eager"].attend(query * score, key, value, scale=1.0)
        output = core.output[:, :, 0]
        factor = (output * target)[:half].sum((0, 2)) / output[:half].square().sum((0, 2))
        missed = (output * factor[:, None] - target).square().sum((1, 2))
        fitted = float(missed[:half].sum())
        if best is None or fitted < best[0]:
            assert core.weights is not None  # eager gives them
            error = float(missed[half:].sum() / target[half:].square().sum()) ** 0.5
            best = fitted, error, score, core.weights[0, :, 0]
    assert best is not None
    return Read(heads, best[1], predicted(heads, wanted), to_numpy(best[3]), best[2])


def _targets(values: Tensor, places: Tensor) -> Tensor:
    """Give what is wanted, ``[trials, WIDTH]``: of each wanted position its own run of numbers."""
    wanted = places.shape[1]
    picked = values.take_along_dim(places[..., None], 1).unflatten(2, (wanted, WIDTH // wanted))
    return picked.diagonal(dim1=1, dim2=2).transpose(1, 2).flatten(1)


def _inputs(heads: int, keys: Tensor, values: Tensor, places: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Give query, key and value of every head, ``[trials, heads, 1 | PLACES, WIDTH / heads]``.

    The query is the shortest that meets the key of every position the head serves with a score of one: the others'
    scores are then as small as they can be.
    """
    key, value = (tensor.unflatten(2, (heads, -1)).transpose(1, 2) for tensor in (keys, values))
    served = _served(heads, places)
    met = key.take_along_dim(served[..., None], 2)
    shares = torch.linalg.solve(met @ met.mT, met.new_ones(*met.shape[:3], 1))
    return (met.mT @ shares).mT, key, value


def _served(heads: int, places: Tensor) -> Tensor:
    """Give the positions that each head serves, ``[trials, heads, positions]``: those of its own numbers."""
    wanted = places.shape[1]
    if heads >= wanted:
        return places.repeat_interleave(heads // wanted, 1)[..., None]
    return places.unflatten(1, (heads, wanted // heads))
