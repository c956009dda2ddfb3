"""What can be said of the scores before anything is run: their spread, and what normal scores of it would give."""

from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np
import torch

from attnviz import config, inputs
from attnviz.saturation.measure import jacobian_norm
from attnviz.saturation.scalings import Scaling

# Standard deviations at which rows of normal scores are looked at; between them it is a matter of interpolation.
_SPREADS = tuple(10 ** (step / 6) for step in range(-18, 25))
_ROWS_KEYS = 2**15


def spread(
    scaling: Scaling,
    d_ks: Sequence[int],
    *,
    keys: int,
    variance_q: float,
    variance_k: float,
    correlation: float,
    power: float,
    temperature: float,
) -> np.ndarray | None:
    """Give the standard deviation of the scores over all pairs of query and key, or None where there is no formula.

    A product of two independent entries has mean 0 and variance σ_q² σ_k², and d_k of them add up. One of ``keys`` is
    the query's own, with mean ρ σ_q σ_k and variance (1 + ρ²) σ_q² σ_k² per dimension. Two independent directions have
    a cosine of variance 1/d_k whatever the lengths.

    Source: Vaswani et al. 2017, §3.2.1, footnote 4, https://arxiv.org/abs/1706.03762
    """
    d_k = np.array(d_ks, float)
    factor = np.array([scaling.factor(int(width), keys, power) for width in d_ks]) / temperature
    if scaling.normalize:
        return factor / np.sqrt(d_k) if correlation == 0.0 and variance_q > 0 and variance_k > 0 else None
    mean = correlation * d_k
    square = d_k * (1 + correlation**2 / keys) + mean**2 / keys
    return factor * np.sqrt((square - (mean / keys) ** 2) * variance_q * variance_k)


def of_normal_scores(spreads: np.ndarray, keys: int) -> Mapping[str, np.ndarray]:
    """Say what rows of independent normal scores give: fields of ``Point`` by name, for each standard deviation.

    There is no closed form; rows with fixed numbers stand in for the average. ``push`` is the length of the gradient at
    the scores (median row) when each weight receives an independent normal one.
    """
    table = _table(keys)
    place = np.log(np.clip(spreads, _SPREADS[0], _SPREADS[-1]))
    return {name: np.interp(place, np.log(_SPREADS), column) for name, column in table.items()}


@lru_cache(maxsize=16)
def _table(keys: int) -> Mapping[str, np.ndarray]:
    rows = max(16, min(1024, _ROWS_KEYS // keys))
    normal, arriving = inputs.random_normal((2, rows, keys), 7)
    columns: dict[str, list[float]] = {"top": [], "entropy": [], "effective": [], "jacobian": [], "push": []}
    for deviation in _SPREADS:
        weights = torch.softmax(normal * deviation, -1)
        entropy = torch.special.entr(weights).sum(-1)
        back = weights * (arriving - (weights * arriving).sum(-1, keepdim=True))
        columns["top"].append(float(weights.amax(-1).mean()))
        columns["entropy"].append(float(entropy.mean()))
        columns["effective"].append(float(entropy.exp().mean()))
        columns["jacobian"].append(float(jacobian_norm(weights).mean()))
        columns["push"].append(float(torch.linalg.vector_norm(back, dim=-1).median()))
    return {name: np.array(column) for name, column in columns.items()}


def underflow(dtype: str) -> float:
    """Give −ln of the weight below which it is stored as exactly 0: of half the least number.

    Softmax works in float32 at least and rounds to the dtype at the end, so this is the range of the stored weight,
    whose −ln is that of e to the distance from the row's largest score plus the ln of the row's sum.
    """
    info = torch.finfo(getattr(torch, _checked(dtype)))
    return float(-np.log(info.smallest_normal) - np.log(info.eps) + np.log(2.0))


def overflow(dtype: str) -> float:
    """Give the largest score that the dtype can hold."""
    return float(torch.finfo(getattr(torch, _checked(dtype))).max)


def _checked(dtype: str) -> str:
    if dtype not in config.DTYPES:
        raise ValueError(f"dtype must be one of {', '.join(config.DTYPES)}, got {dtype!r}")
    return dtype
