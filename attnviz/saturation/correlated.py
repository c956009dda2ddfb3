"""What rows give in which one key is the query's own: drawn from the scores' exact distribution, without any vector.

Given the query's length, a stranger's component along the query is normal, and so is the own key's, around ρ times the
length. What a key has across the query only matters for its length, whose square is a chi-square variable. So rows of
scores need a few numbers a key, whatever d_k is.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from attnviz import inputs
from attnviz.saturation.measure import SWEEP, jacobian_norm, spread
from attnviz.saturation.scalings import SCALINGS, Scaling

_ROWS_KEYS = 2**14
_LEAST_ROWS, _MOST_ROWS = 128, 1024
# Rows stand for equal shares of what decides most: so many draws make one share.
_SHARE = 64


class Setting(NamedTuple):
    """Hold what the rows depend on; names as in ``normal_source`` and ``measure``."""

    keys: int
    variance_q: float
    variance_k: float
    correlation: float
    power: float
    temperature: float


class _Draws(NamedTuple):
    """Hold fixed numbers: ``[rows, keys]`` normal ones, and chi-square ones for each d_k of the sweep.

    ``length`` ``[d_k, rows]`` has d_k degrees of freedom, ``across`` ``[d_k, rows]`` and ``beside`` ``[d_k, rows,
    keys]`` one fewer.
    """

    normal: Tensor
    arriving: Tensor
    length: Tensor
    across: Tensor
    beside: Tensor


def _draws(keys: int) -> _Draws:
    """Cut the numbers for ``keys`` out of those for the next power of two: a slider that moves draws none anew."""
    drawn = _drawn(1 << (keys - 1).bit_length())
    return _Draws(
        drawn.normal[:, :keys], drawn.arriving[:, :keys], drawn.length, drawn.across, drawn.beside[..., :keys]
    )


@lru_cache(maxsize=12)
def _drawn(keys: int) -> _Draws:
    rows = max(_LEAST_ROWS, min(_MOST_ROWS, _ROWS_KEYS // keys))
    normal, arriving = inputs.random_normal((2, rows, keys), 7)
    chance = np.random.default_rng(7)
    normal[:, 0] = torch.special.ndtri((torch.tensor(chance.permutation(rows)) + 0.5) / rows)
    order = chance.permutation(rows)

    def chi_square(freedom: int, shape: tuple[int, ...]) -> Tensor:
        return torch.tensor(chance.chisquare(freedom, shape) if freedom else np.zeros(shape), dtype=torch.float32)

    def shares(freedom: int) -> Tensor:
        return chi_square(freedom, (rows * _SHARE,)).sort().values.unflatten(0, (rows, _SHARE)).median(-1).values[order]

    return _Draws(
        normal,
        arriving,
        torch.stack([shares(d_k) for d_k in SWEEP]),
        torch.stack([chi_square(d_k - 1, (rows,)) for d_k in SWEEP]),
        torch.stack([chi_square(d_k - 1, (rows, keys)) for d_k in SWEEP]),
    )


class _Rows(NamedTuple):
    """Hold the keys of rows and the length of their query.

    Args:
        along: ``[d_k, rows, keys]``, a key's component along the query in units of σ_k.
        rest: ``[keys]``, the share of a key's variance that is left across the query.
        cosine: ``[d_k, rows, keys]``.
        length: ``[d_k, rows, 1]``, the query's, in units of σ_q.
    """

    along: Tensor
    rest: Tensor
    cosine: Tensor
    length: Tensor


@lru_cache(maxsize=4)
def _rows(keys: int, correlation: float) -> _Rows:
    drawn = _draws(keys)
    length = drawn.length.sqrt()[..., None]
    left = 1.0 - correlation * correlation
    along = drawn.normal.expand(len(SWEEP), -1, -1).clone()
    along[..., :1] = correlation * length + left**0.5 * along[..., :1]
    rest = torch.ones(keys)
    rest[0] = left
    return _Rows(along, rest, along / (along.square() + rest * drawn.beside).sqrt(), length)


class _Softened(NamedTuple):
    """Hold what a scaling makes of rows: scores and weights ``[d_k, rows, keys]``, its factor ``[d_k, 1]``."""

    rows: _Rows
    scaling: Scaling
    setting: Setting
    factor: Tensor
    scores: Tensor
    weights: Tensor

    @property
    def entropy(self) -> Tensor:
        return torch.special.entr(self.weights).sum(-1)


# A slider waits for them: only what is shown is worked out.
_FIELDS: Mapping[str, Callable[[_Softened], Tensor]] = {
    "spread": lambda made: spread(made.scores),
    "top": lambda made: made.weights.amax(-1).mean(-1),
    "entropy": lambda made: made.entropy.mean(-1),
    "effective": lambda made: made.entropy.exp().mean(-1),
    "jacobian": lambda made: jacobian_norm(made.weights).mean(-1),
    "gradient": lambda made: (made.factor * _reaching(made)).median(-1).values,
}


@lru_cache(maxsize=128)
def of_own_key(scaling: str, setting: Setting, field: str) -> np.ndarray | None:
    """Say what rows with one correlated key give with a scaling: a field of ``Point`` along the sweep.

    A scaling by lengths gives None where a vector has no length.
    """
    if SCALINGS[scaling].normalize and not (setting.variance_q > 0 and setting.variance_k > 0):
        return None
    return _FIELDS[field](_softened(scaling, setting)).double().numpy()


@lru_cache(maxsize=len(SCALINGS))
def _softened(name: str, setting: Setting) -> _Softened:
    scaling, rows = SCALINGS[name], _rows(setting.keys, setting.correlation)
    unit = (setting.variance_q * setting.variance_k) ** 0.5
    factor = torch.tensor([scaling.factor(d_k, setting.keys, setting.power) for d_k in SWEEP])
    factor = factor[:, None] / setting.temperature
    scores = factor[..., None] * (rows.cosine if scaling.normalize else rows.length * rows.along * unit)
    return _Softened(rows, scaling, setting, factor, scores, torch.softmax(scores, -1))


def _reaching(made: _Softened) -> Tensor:
    """Give the length ``[d_k, rows]`` of the gradient at the query, but for the factor.

    It is Σ b_j k_j for gradients b_j at the scores; along the query and across it apart. A cosine feels nothing along
    the query, and the less the longer the query is.
    """
    rows, setting, weights = made.rows, made.setting, made.weights
    drawn = _draws(setting.keys)
    back = weights * (drawn.arriving - (weights * drawn.arriving).sum(-1, keepdim=True))
    if made.scaling.normalize:
        free = torch.tensor([max(1, d_k - 1) for d_k in SWEEP])[:, None]
        across = (back.square() * (1.0 - rows.cosine.square()).clamp_min(0.0)).sum(-1) * drawn.across / free
        return across.sqrt() / (rows.length[..., 0] * setting.variance_q**0.5)
    along, across = (back * rows.along).sum(-1), (back.square() * rows.rest).sum(-1) * drawn.across
    return (along.square() + across).sqrt() * setting.variance_k**0.5
