"""Associative recall: store n pairs of a key and a value, ask for each of them, and see what comes back."""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from attnviz import inputs
from attnviz.backends import BACKENDS
from attnviz.linear_view.run import maps
from attnviz.linear_view.settings import View
from attnviz.variants.delta import delta_rule
from attnviz.variants.linear import linear_attention

PAIRS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
METHODS = ("softmax", "linear", "sum", "delta")
# So many pairs are asked for at each n, in as many trials as that takes.
_ASKED = 256


class Recall(NamedTuple):
    """Hold, for each method, the relative error and the share of right answers at each number of pairs.

    The error is the root of the mean square of (answer - value) over that of the values. An answer is right if of all
    stored values the asked one is the nearest.
    """

    error: dict[str, np.ndarray]
    right: dict[str, np.ndarray]


def measure(view: View) -> Recall:
    """Store and ask with softmax, the view's feature map, a plain sum and the delta rule, all at width d_k."""
    return _measured(view.feature_map, view.d_k, view.features, view.seed)


@lru_cache(maxsize=16)
@torch.no_grad()
def _measured(feature_map: str, d_k: int, features: int, seed: int) -> Recall:
    view = View(feature_map, 1, d_k, 1.0, 1, features, seed, "recall", ())
    error: dict[str, list[float]] = {name: [] for name in METHODS}
    right: dict[str, list[float]] = {name: [] for name in METHODS}
    for pairs in PAIRS:
        trials = max(1, _ASKED // pairs)
        key = inputs.random_normal((trials, pairs, d_k), seed + 10)[:, None]
        value = inputs.random_normal((trials, pairs, d_k), seed + 11)[:, None]
        for name in METHODS:
            answer = _ask(name, view, key, value)
            error[name].append(float(((answer - value).square().mean() / value.square().mean()).sqrt()))
            nearest = torch.cdist(answer, value).argmin(-1)
            right[name].append(float((nearest == torch.arange(pairs)).float().mean()))
    return Recall(*({name: np.array(numbers) for name, numbers in each.items()} for each in (error, right)))


def _ask(name: str, view: View, key: Tensor, value: Tensor) -> Tensor:
    """Store all pairs, then ask with each key."""
    if name == "softmax":
        return BACKENDS["sdpa"].attend(key, key, value).output
    if name == "linear":
        return linear_attention(key, key, value, maps=maps(view), normalize=True).output
    unit = torch.nn.functional.normalize(key, dim=-1)
    if name == "sum":
        return linear_attention(unit, unit, value).output
    return delta_rule(unit, unit, value, torch.ones(*key.shape[:3], 1)).output


def predicted(d_k: int) -> dict[str, np.ndarray]:
    """Give the expected relative errors of the plain sum and of the delta rule with random keys of length one.

    The square of a product of two such keys is 1/d on average. In a sum each of the n - 1 other pairs adds its value
    times such a product: (n - 1)/d. Under the delta rule at β = 1 a pair is exact when it is written; each later write
    then moves it. With ρ its squared error, c the error's product with the value and a the energy of an answer to a
    strange key, all over the energy of a value, one write gives a ← a + (1 - a)/d, c ← c + (1 - c)/d and
    ρ ← ρ + (1 + a + 2c - 2ρ)/d.
    """
    total = np.sqrt((np.array(PAIRS) - 1) / d_k)
    return {"sum": total, "delta": np.array([_after_writes(pairs, d_k) for pairs in PAIRS])}


@lru_cache(maxsize=4096)
def _after_writes(pairs: int, d_k: int) -> float:
    step = 1 / d_k
    moved = np.zeros(0)
    toward = np.zeros(0)
    answer = 0.0
    for _ in range(pairs):
        moved = moved + (1 + answer + 2 * toward - 2 * moved) * step
        toward = toward + (1 - toward) * step
        answer = answer + (1 - answer) * step
        moved, toward = np.append(moved, 0.0), np.append(toward, 0.0)
    return math.sqrt(float(moved.mean()))
