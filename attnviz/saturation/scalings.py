"""What is done to q·k before the softmax, so that its spread does not grow with d_k."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from attnviz.registry import Registry
from attnviz.text import Text, same


@dataclass(frozen=True)
class Scaling:
    """Describe a scaling: factor of the scores, and whether queries and keys are first brought to length 1.

    Args:
        key: Its key in links.
        label: What it is called on screen.
        help: One sentence on it.
        factor: (d_k, number of keys, power) → what the scores are multiplied by.
        source: Where it was proposed.
        normalize: Whether q and k are divided by their length.
    """

    key: str
    label: Text
    help: Text
    factor: Callable[[int, int, float], float]
    source: str
    normalize: bool = False


def _gain(d_k: int, keys: int, power: float) -> float:
    """Give the start value of QK-norm's learnt factor, log2(L² − L)."""
    return math.log2(keys * keys - keys) if keys > 1 else 1.0


SCALINGS: Registry[Scaling] = Registry(
    "scaling",
    (
        Scaling(
            "sqrt",
            same("1/√d_k"),
            Text("Divides by the spread that the scores have.", "除以分数本身的标准差。"),
            lambda d_k, keys, power: d_k**-0.5,
            "https://arxiv.org/abs/1706.03762",
        ),
        Scaling(
            "none",
            Text("no scaling", "不缩放"),
            Text("Takes q·k as it is.", "直接使用 q·k。"),
            lambda d_k, keys, power: 1.0,
            "https://arxiv.org/abs/1706.03762",
        ),
        Scaling(
            "linear",
            same("1/d_k"),
            Text(
                "Keeps the score of a query and a key that agree, whose q·k grows like d_k itself.",
                "使彼此相关的查询与键得分不变：它们的 q·k 随 d_k 线性增长。",
            ),
            lambda d_k, keys, power: 1.0 / d_k,
            "https://arxiv.org/abs/2203.03466",
        ),
        Scaling(
            "custom",
            same("d_k^−p"),
            Text("Divides by d_k to a power of your own.", "除以 d_k 的任意次幂。"),
            lambda d_k, keys, power: d_k**-power,
            "https://arxiv.org/abs/2203.03466",
        ),
        Scaling(
            "qk_norm",
            same("QK-norm"),
            Text(
                "Brings q and k to length 1; the cosine is multiplied by a learnt number that starts at log₂(L² − L).",
                "先把 q 和 k 归一到长度 1，再把余弦乘以一个可学习的数，其初值为 log₂(L² − L)。",
            ),
            _gain,
            "https://arxiv.org/abs/2010.04245",
            normalize=True,
        ),
    ),
)


def scaled_scores(query: Tensor, key: Tensor, scaling: Scaling, *, power: float, temperature: float) -> Tensor:
    """Give the scores as softmax takes them, in the dtype of the query.

    Args:
        query: ``[groups, queries, d_k]``.
        key: ``[groups, keys, d_k]``.
        scaling: The scaling.
        power: Its exponent where it is the custom one.
        temperature: The scores are divided by it.

    Returns:
        ``[groups, queries, keys]``.
    """
    return every_score([query], key, [scaling], power=power, temperature=temperature)[0]


def every_score(
    queries: Sequence[Tensor], key: Tensor, scalings: Iterable[Scaling], *, power: float, temperature: float
) -> Tensor:
    """Give the scores of each scaling with its own queries; where they are the same tensor they are multiplied once.

    Args:
        queries: For each scaling ``[groups, queries, d_k]``.
        key: ``[groups, keys, d_k]``.
        scalings: The scalings.
        power: The exponent of the custom one.
        temperature: The scores are divided by it.

    Returns:
        ``[scalings, groups, queries, keys]``.
    """
    products: dict[tuple[int, bool], Tensor] = {}
    scores = []
    for query, scaling in zip(queries, scalings, strict=True):
        kind = id(query), scaling.normalize
        if kind not in products:
            pair = (query / _length(query), key / _length(key)) if scaling.normalize else (query, key)
            products[kind] = pair[0] @ pair[1].mT
        factor = scaling.factor(query.shape[-1], key.shape[-2], power) / temperature
        scores.append(products[kind] * factor)
    return torch.stack(scores)


def _length(vectors: Tensor) -> Tensor:
    """Give each vector's length, never 0, squared and summed in float32: squares leave float16 early."""
    length = torch.linalg.vector_norm(vectors.float(), dim=-1, keepdim=True)
    return length.clamp_min(torch.finfo(vectors.dtype).tiny).to(vectors.dtype)
