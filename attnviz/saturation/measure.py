"""What the softmax makes of scores: how far it has collapsed, what gradient is left, what left the dtype's range."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from attnviz import inputs
from attnviz.saturation.scalings import SCALINGS, Scaling, scaled_scores
from attnviz.saturation.sources import Source

SWEEP = tuple(2**power for power in range(11))


class Point(NamedTuple):
    """Hold what was measured over all rows at one d_k with one scaling.

    Means over the rows that stayed finite: ``top`` weight, ``entropy`` (nats), ``effective`` number of keys (e to the
    entropy), ``jacobian`` (Frobenius norm of the softmax's derivative). ``spread`` is the standard deviation of the
    scores. ``gradient`` is the length of what reaches a query when each weight receives an independent normal gradient:
    the median row, with the mean as ``gradient_mean``. ``gap`` is how far the median score lies below its row's
    largest, ``gap_most`` the farthest one; ``largest`` the largest |score|. ``overflowed`` and ``zeros`` are shares of
    rows that are not finite and of weights that are exactly 0.
    """

    spread: float
    top: float
    entropy: float
    effective: float
    gradient: float
    gradient_mean: float
    jacobian: float
    gap: float
    gap_most: float
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


def measure(query: Tensor, key: Tensor, scaling: Scaling, *, power: float, temperature: float, seed: int) -> Point:
    """Run attention's scores and softmax in the dtype of ``query`` and look at what comes out.

    Args:
        query: ``[groups, queries, d_k]``.
        key: ``[groups, keys, d_k]``.
        scaling: The scaling.
        power: Its exponent where it is the custom one.
        temperature: The scores are divided by it.
        seed: Seed of the gradients that arrive at the weights.
    """
    leaf = query.detach().requires_grad_()
    scores = scaled_scores(leaf, key, scaling, power=power, temperature=temperature)
    weights = torch.softmax(scores, -1)
    arriving = inputs.random_normal(weights.shape, seed + 1).to(weights.dtype)
    (reached,) = torch.autograd.grad(weights, leaf, arriving)
    scores, weights = scores.detach().float().flatten(0, 1), weights.detach().float().flatten(0, 1)
    kept = torch.isfinite(scores).all(-1) & torch.isfinite(weights).all(-1)
    overflowed = 1.0 - float(kept.float().mean())
    if not kept.any():
        unknown = dict.fromkeys(Point._fields, float("nan"))
        return Point(**unknown | {"largest": float("inf"), "overflowed": overflowed})
    scores, weights = scores[kept], weights[kept]
    lengths = torch.linalg.vector_norm(reached.float().flatten(0, 1)[kept], dim=-1)
    entropy = torch.special.entr(weights).sum(-1)
    below = scores.amax(-1, keepdim=True) - scores
    return Point(
        spread=float(scores.std(correction=0)),
        top=float(weights.amax(-1).mean()),
        entropy=float(entropy.mean()),
        effective=float(entropy.exp().mean()),
        gradient=float(lengths.median()),
        gradient_mean=float(lengths.mean()),
        jacobian=float(jacobian_norm(weights).mean()),
        gap=float(below.median()),
        gap_most=float(below.amax()),
        largest=float(scores.abs().amax()),
        overflowed=overflowed,
        zeros=float((weights == 0).float().mean()),
    )


class Curves(NamedTuple):
    """Hold a sweep: the d_k, and for each scaling and each field of ``Point`` the values along them."""

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
) -> Curves:
    """Measure every scaling at every d_k.

    Args:
        source: Gives queries and keys of a d_k.
        d_ks: The d_k, rising.
        dtype: What scores and weights are computed in.
        power: Exponent of the custom scaling.
        temperature: The scores are divided by it.
        seed: Seed of the gradients that arrive at the weights.
    """
    points: dict[str, list[Point]] = {name: [] for name in SCALINGS}
    for d_k in d_ks:
        query, key = (tensor.to(dtype) for tensor in source(d_k))
        for name, scaling in SCALINGS.items():
            points[name].append(measure(query, key, scaling, power=power, temperature=temperature, seed=seed))
    values = {
        name: dict(zip(Point._fields, np.array(measured, float).T, strict=True)) for name, measured in points.items()
    }
    return Curves(np.array(d_ks), values)
