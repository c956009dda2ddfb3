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


def measure(
    query: Tensor, key: Tensor, scalings: Mapping[str, Scaling], *, power: float, temperature: float, seed: int
) -> dict[str, Point]:
    """Run attention's scores and softmax in the dtype of ``query`` with each scaling, and look at what comes out.

    All scalings go through at once: tensors this small cost little more than the call, and a slider waits for them.

    Args:
        query: ``[groups, queries, d_k]``.
        key: ``[groups, keys, d_k]``.
        scalings: The scalings by their key.
        power: The exponent of the custom one.
        temperature: The scores are divided by it.
        seed: Seed of the gradients that arrive at the weights.
    """
    leaves = [query.detach().clone().requires_grad_() for _ in scalings]
    scores = torch.stack(
        [
            scaled_scores(leaf, key, scaling, power=power, temperature=temperature)
            for leaf, scaling in zip(leaves, scalings.values(), strict=True)
        ]
    )
    weights = torch.softmax(scores, -1)
    arriving = inputs.random_normal(weights.shape[1:], seed + 1).to(weights.dtype).expand_as(weights)
    reached = torch.stack(torch.autograd.grad(weights, leaves, arriving))
    lengths = torch.linalg.vector_norm(reached.float().flatten(1, 2), dim=-1)
    scores, weights = (tensor.detach().float().flatten(1, 2) for tensor in (scores, weights))
    kept = torch.isfinite(scores.abs().amax(-1)) & torch.isfinite(weights.amax(-1))
    if kept.all():
        return dict(zip(scalings, _points(scores, weights, lengths), strict=True))
    found = {}
    for index, name in enumerate(scalings):
        rows = kept[index]
        if not rows.any():
            unknown = dict.fromkeys(Point._fields, float("nan"))
            found[name] = Point(**unknown | {"largest": float("inf"), "overflowed": 1.0})
            continue
        (point,) = _points(scores[index, rows][None], weights[index, rows][None], lengths[index, rows][None])
        found[name] = point._replace(overflowed=1.0 - float(rows.float().mean()))
    return found


def _points(scores: Tensor, weights: Tensor, lengths: Tensor) -> list[Point]:
    """Give the numbers of each scaling from finite scores and weights ``[scalings, rows, keys]`` and its gradients."""
    entropy = torch.special.entr(weights).sum(-1)
    below = scores.amax(-1, keepdim=True) - scores
    flat = scores.flatten(1)
    columns = {
        # torch's own std goes through the scores one by one and takes as long as the softmax.
        "spread": (flat - flat.mean(-1, keepdim=True)).square().mean(-1).sqrt(),
        "top": weights.amax(-1).mean(-1),
        "entropy": entropy.mean(-1),
        "effective": entropy.exp().mean(-1),
        "gradient": lengths.median(-1).values,
        "gradient_mean": lengths.mean(-1),
        "jacobian": jacobian_norm(weights).mean(-1),
        "gap": below.flatten(1).median(-1).values,
        "gap_most": below.flatten(1).amax(-1),
        "largest": flat.abs().amax(-1),
        "overflowed": torch.zeros(len(scores)),
        "zeros": (weights == 0).float().flatten(1).mean(-1),
    }
    return [Point(*row) for row in torch.stack([columns[name] for name in Point._fields], 1).tolist()]


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
        measured = measure(query, key, SCALINGS, power=power, temperature=temperature, seed=seed)
        for name, point in measured.items():
            points[name].append(point)
    values = {name: dict(zip(Point._fields, np.array(along, float).T, strict=True)) for name, along in points.items()}
    return Curves(np.array(d_ks), values)
