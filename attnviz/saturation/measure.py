"""What the softmax makes of scores: how far it has collapsed, what gradient is left, what left the dtype's range."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from attnviz import inputs
from attnviz.saturation.scalings import SCALINGS, Scaling, every_score
from attnviz.saturation.sources import Source

SWEEP = tuple(2**power for power in range(11))


class Point(NamedTuple):
    """Hold what was measured over all rows at one d_k with one scaling.

    Means over the rows that stayed finite: ``top`` weight, ``entropy`` (nats), ``effective`` number of keys (e to the
    entropy), ``jacobian`` (Frobenius norm of the softmax's derivative). ``spread`` is the standard deviation of the
    scores. ``gradient`` is the length of what reaches a query when each weight receives an independent normal gradient:
    the median row, with the mean as ``gradient_mean``. ``depth`` is −ln of the median weight,
    ``depth_most`` of the least one, before it is rounded to the dtype; ``largest`` the largest |score|. ``overflowed``
    and ``zeros`` are shares of rows that are not finite and of weights that are exactly 0.
    """

    spread: float
    top: float
    entropy: float
    effective: float
    gradient: float
    gradient_mean: float
    jacobian: float
    depth: float
    depth_most: float
    largest: float
    overflowed: float
    zeros: float


def jacobian_norm(weights: Tensor) -> Tensor:
    """Give ‖diag(w) − w wᵀ‖ of each row ``[..., keys]``: no score moves any weight where it is 0.

    Written so that a row with one weight near 1 does not cancel: diagonal w_i (1 − w_i), beside it w_i w_j.
    """
    square = weights.square()
    rest = square.sum(-1, keepdim=True) - square
    return ((weights * (1.0 - weights)).square().sum(-1) + (square * rest).sum(-1)).sqrt()


def measure(
    query: Tensor, key: Tensor, scalings: Mapping[str, Scaling], *, power: float, temperature: float, seed: int
) -> dict[str, Point]:
    """Run attention's scores and softmax in the dtype of ``query`` with each scaling, and look at what comes out.

    Args:
        query: ``[groups, queries, d_k]``.
        key: ``[groups, keys, d_k]``.
        scalings: The scalings by their key.
        power: The exponent of the custom one.
        temperature: The scores are divided by it.
        seed: Seed of the gradients that arrive at the weights.
    """
    rule = _Rule(power, temperature, seed)
    return {name: Point(*row) for name, row in _measured(query, key, scalings, rule, Point._fields).items()}


class _Rule(NamedTuple):
    power: float
    temperature: float
    seed: int


class _Rows(NamedTuple):
    """Hold finite scores and weights ``[scalings, rows, keys]`` and gradients' lengths ``[scalings, rows]``."""

    scores: Tensor
    weights: Tensor
    lengths: Tensor

    @property
    def depth(self) -> Tensor:
        # From the scores: of a stored weight that is 0 no logarithm says how far out of range it was.
        return (self.scores.logsumexp(-1, keepdim=True) - self.scores).flatten(1)

    @property
    def entropy(self) -> Tensor:
        return torch.special.entr(self.weights).sum(-1)


def spread(scores: Tensor) -> Tensor:
    """Give the standard deviation of all scores of each first index ``[n, rows, keys]``."""
    # torch's own std goes through the scores one by one and takes as long as the softmax.
    flat = scores.flatten(1)
    return (flat - flat.mean(-1, keepdim=True)).square().mean(-1).sqrt()


# How each field of ``Point`` comes out of the rows, one number for each scaling.
_FIELDS: Mapping[str, Callable[[_Rows], Tensor]] = {
    "spread": lambda rows: spread(rows.scores),
    "top": lambda rows: rows.weights.amax(-1).mean(-1),
    "entropy": lambda rows: rows.entropy.mean(-1),
    "effective": lambda rows: rows.entropy.exp().mean(-1),
    "gradient": lambda rows: rows.lengths.median(-1).values,
    "gradient_mean": lambda rows: rows.lengths.mean(-1),
    "jacobian": lambda rows: jacobian_norm(rows.weights).mean(-1),
    "depth": lambda rows: rows.depth.median(-1).values,
    "depth_most": lambda rows: rows.depth.amax(-1),
    "largest": lambda rows: rows.scores.abs().amax((-2, -1)),
    "overflowed": lambda rows: torch.zeros(len(rows.scores)),
    "zeros": lambda rows: (rows.weights == 0).float().mean((-2, -1)),
}
_OF_GRADIENT = frozenset({"gradient", "gradient_mean"})


def _measured(
    query: Tensor, key: Tensor, scalings: Mapping[str, Scaling], rule: _Rule, fields: Sequence[str]
) -> dict[str, list[float]]:
    """Give the asked fields for each scaling.

    All scalings go through at once: tensors this small cost little more than the call, and a slider waits for them.
    """
    differentiate = not _OF_GRADIENT.isdisjoint(fields)
    leaves = [query.detach().clone().requires_grad_() if differentiate else query for _ in scalings]
    scores = every_score(leaves, key, scalings.values(), power=rule.power, temperature=rule.temperature)
    weights = torch.softmax(scores, -1)
    lengths = _reaching(weights, leaves, rule.seed) if differentiate else None
    if lengths is not None:
        # A query of length 0 has no direction, and its cosines no gradient.
        pointless = (query == 0).all(-1).flatten()
        lengths[[scaling.normalize for scaling in scalings.values()]] += torch.where(pointless, torch.nan, 0.0)
    scores, weights = (tensor.detach().float().flatten(1, 2) for tensor in (scores, weights))
    lengths = scores.new_full(scores.shape[:2], float("nan")) if lengths is None else lengths
    kept = torch.isfinite(scores.abs().amax(-1)) & torch.isfinite(weights.amax(-1))
    if kept.all():
        return dict(zip(scalings, _columns(_Rows(scores, weights, lengths), fields), strict=True))
    found = {}
    for index, name in enumerate(scalings):
        rows = kept[index]
        if rows.any():
            (row,) = _columns(_Rows(*(part[index, rows][None] for part in (scores, weights, lengths))), fields)
        else:
            row = [float("inf" if field == "largest" else "nan") for field in fields]
        lost = 1.0 - float(rows.float().mean())
        found[name] = [lost if field == "overflowed" else value for field, value in zip(fields, row, strict=True)]
    return found


def _reaching(weights: Tensor, leaves: Sequence[Tensor], seed: int) -> Tensor:
    """Give the length ``[scalings, rows]`` of what reaches each query when every weight receives a normal gradient."""
    arriving = inputs.random_normal(weights.shape[1:], seed + 1).to(weights.dtype).expand_as(weights)
    reached = torch.stack(torch.autograd.grad(weights, leaves, arriving))
    return torch.linalg.vector_norm(reached.float().flatten(1, 2), dim=-1)


def _columns(rows: _Rows, fields: Sequence[str]) -> list[list[float]]:
    """Give the asked fields of each scaling."""
    return torch.stack([_FIELDS[field](rows) for field in fields], 1).tolist()


class Curves(NamedTuple):
    """Hold a sweep: the d_k, and for each scaling and each measured field of ``Point`` the values along them."""

    d_k: np.ndarray
    values: Mapping[str, Mapping[str, np.ndarray]]


def sweep(
    source: Source,
    *,
    d_ks: Sequence[int] = SWEEP,
    dtype: torch.dtype = torch.float32,
    power: float = 0.25,
    temperature: float = 1.0,
    seed: int = 0,
    fields: Sequence[str] = Point._fields,
) -> Curves:
    """Measure every scaling at every d_k.

    Args:
        source: Gives queries and keys of a d_k.
        d_ks: The d_k, rising.
        dtype: What scores and weights are computed in.
        power: Exponent of the custom scaling.
        temperature: The scores are divided by it.
        seed: Seed of the gradients that arrive at the weights.
        fields: The fields of ``Point`` to measure; the gradient's cost as much as all others together.
    """
    rule = _Rule(power, temperature, seed)
    points: dict[str, list[list[float]]] = {name: [] for name in SCALINGS}
    for d_k in d_ks:
        query, key = (tensor.to(dtype) for tensor in source(d_k))
        for name, row in _measured(query, key, SCALINGS, rule, fields).items():
            points[name].append(row)
    values = {name: dict(zip(fields, np.array(along, float).T, strict=True)) for name, along in points.items()}
    return Curves(np.array(d_ks), values)
