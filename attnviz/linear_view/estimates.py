"""Random features as an estimate of softmax: how far off with how many of them, measured and expected."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from attnviz.backends import BACKENDS
from attnviz.linear_view.run import tokens
from attnviz.linear_view.settings import View
from attnviz.masks import MASKS
from attnviz.variants.linear import linear_attention
from attnviz.variants.state.features import FEATURE_MAPS, directions

COUNTS = (4, 16, 64, 256, 1024, 4096)
DRAWS = 8


class Estimates(NamedTuple):
    """Hold errors at each number of features.

    ``kernel`` is the median over pairs of the relative error of the estimate of exp(q·k/√d), root mean square over the
    draws; ``expected`` the same from the formula for independent directions; ``output`` the norm of the difference of
    the outputs over the norm of softmax's, median over draws; ``elu`` that of elu + 1, which estimates nothing.
    """

    kernel: np.ndarray
    expected: np.ndarray
    output: np.ndarray
    elu: float


def measure(view: View) -> Estimates:
    """Measure the view's sequence."""
    return _measured(view.d_k, view.size, view.length, view.seed)


@lru_cache(maxsize=16)
@torch.no_grad()
def _measured(d_k: int, size: float, length: int, seed: int) -> Estimates:
    view = View("performer", 1, d_k, size, length, COUNTS[-1], seed, "features", ())
    query, key, value = tokens(view)
    causal = MASKS["causal"].build()
    exact = BACKENDS["eager"].attend(query, key, value, allowed=causal).output
    q, k, v = (part[0, 0].double() for part in (query, key, value))
    off, apart = np.zeros((len(COUNTS), DRAWS, length, length)), np.zeros((len(COUNTS), DRAWS))
    for draw in range(DRAWS):
        (asked, asked_by), (held, held_by) = (_scaled(part * d_k**-0.25, _rows(d_k, seed + draw)) for part in (q, k))
        truth = (q @ k.mT * d_k**-0.5 - asked_by - held_by.mT).exp()
        # What a query is scaled by cancels in its row; what a key is scaled by does not.
        left = (held_by - held_by.max()).exp().mT
        for at, count in enumerate(COUNTS):
            estimate = asked[:, :count] @ held[:, :count].mT / count
            off[at, draw] = (estimate / truth - 1).square()
            weights = (estimate * left).tril()
            total = weights.sum(-1, keepdim=True)
            output = torch.where(total > 0, weights @ v / total, 0.0)
            apart[at, draw] = float((output - exact[0, 0]).norm() / exact.norm())
    maps = FEATURE_MAPS["elu"].maps(1.0)
    elu = linear_attention(query, key, value, maps=maps, allowed=causal, normalize=True).output
    expected = np.array([_expected(query, key, d_k, count) for count in COUNTS])
    kernel = np.median(np.sqrt(off.mean(1)).reshape(len(COUNTS), -1), axis=1)
    return Estimates(kernel, expected, np.median(apart, axis=1), float((elu - exact).norm() / exact.norm()))


def _scaled(x: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Give exp(w·x - |x|²/2) for each direction over the largest of them, and the logarithm of that one.

    Large vectors would leave the range even of float64.
    """
    exponent = x @ rows.double().mT - x.square().sum(-1, keepdim=True) / 2
    largest = exponent.amax(-1, keepdim=True)
    return (exponent - largest).exp_(), largest


@lru_cache(maxsize=64)
def _rows(d_k: int, seed: int) -> Tensor:
    """Draw the directions once for all sizes and lengths."""
    return directions(COUNTS[-1], d_k, seed=seed)


def _expected(query: Tensor, key: Tensor, d_k: int, count: int) -> float:
    """Give the median over pairs of √((exp(|q + k|²/√d) - 1) / m), the relative standard deviation.

    Source:
        Choromanski et al. 2020, Lemma 2, https://arxiv.org/abs/2009.14794
    """
    length = (query[0, 0, :, None] + key[0, 0, None]).double().square().sum(-1) * d_k**-0.5
    return float((length.expm1() / count).sqrt().median())
