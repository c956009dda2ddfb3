"""From many KV heads to few: three ways to make the shared head of a group, and what each costs in output error."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from attnviz.config import check_divides
from attnviz.registry import Registry
from attnviz.text import Text
from attnviz.variants import VARIANTS
from attnviz.variants.base import Tensors
from attnviz.variants.drawing import projection
from attnviz.variants.grouped import GroupedConfig

# Streams of their own, so that no seed gives a random head that the layer already has.
_RANDOM_STREAMS = {"key": 101, "value": 102}


@dataclass(frozen=True)
class Method:
    """Describe one way to make a group's head.

    Args:
        key: Plain key.
        label: What it is called on screen.
        help: One sentence on what it does.
        merge: Takes ``[in, groups, heads of a group, width]`` (a bias has in = 1), the name and a seed, and gives
            ``[in, groups, width]``.
        source: URL of where it is compared.
    """

    key: str
    label: Text
    help: Text
    merge: Callable[[Tensor, str, int], Tensor] = field(repr=False)
    source: str = "https://arxiv.org/abs/2305.13245"


class Converted(NamedTuple):
    """Hold a layer with fewer KV heads: its configuration and weights, for the variant ``gqa``."""

    config: GroupedConfig
    weights: dict[str, Tensor]


def _random(heads: Tensor, name: str, seed: int) -> Tensor:
    """Draw new heads as large as the old ones; a bias starts at zero."""
    rows, groups, _, width = heads.shape
    if name not in _RANDOM_STREAMS:
        return torch.zeros_like(heads[:, :, 0])
    drawn = projection(seed, _RANDOM_STREAMS[name], groups, width, rows).to(heads)
    return drawn.unflatten(1, (groups, width)) * (heads.norm() / math.sqrt(heads.numel()) * math.sqrt(rows))


METHODS: Registry[Method] = Registry(
    "conversion",
    (
        Method(
            "mean",
            Text("Mean of the group", "组内平均"),
            Text("The projection matrices of the group's heads are averaged.", "对组内各头的投影矩阵取平均。"),
            lambda heads, name, seed: heads.mean(2),
        ),
        Method(
            "first",
            Text("First head of the group", "组内第一个头"),
            Text("One head stays and the others are dropped.", "保留一个头，丢弃其余的头。"),
            lambda heads, name, seed: heads[:, :, 0],
        ),
        Method(
            "random",
            Text("New random head", "随机新头"),
            Text(
                "The head is drawn afresh, as large as those it stands for.",
                "重新随机生成一个头，数值大小与原来的头相当。",
            ),
            _random,
        ),
    ),
)


def convert(
    config: GroupedConfig, weights: Tensors, kv_heads: int, method: str = "mean", *, seed: int = 0
) -> Converted:
    """Give the layer with fewer KV heads; queries and output stay as they are.

    Args:
        config: Of a variant whose query heads may share KV heads, such as MHA.
        weights: Its weights.
        kv_heads: KV heads wanted, a divisor of those there are; 1 gives MQA.
        method: Key of ``METHODS``.
        seed: Of the random heads.

    Raises:
        Refusal: If ``kv_heads`` does not divide the KV heads there are.
        KeyError: If the method is not known.

    Source:
        GQA, section 2.1 and figure 4, https://arxiv.org/abs/2305.13245
    """
    check_divides("kv_heads", kv_heads, "num_key_value_heads", config.num_key_value_heads)
    merge = METHODS[method].merge
    group = config.num_key_value_heads // kv_heads
    fewer = dict(weights)
    for name in ("key", "value", "key_bias", "value_bias"):
        if name in weights:
            heads = torch.atleast_2d(weights[name]).unflatten(1, (kv_heads, group, -1))
            fewer[name] = merge(heads, name, seed).reshape(*weights[name].shape[:-1], -1)
    return Converted(replace(config, num_key_value_heads=kv_heads), fewer)


def conversion_error(
    config: GroupedConfig,
    weights: Tensors,
    x: Tensor,
    kv_heads: int,
    method: str = "mean",
    *,
    seed: int = 0,
    **call: Any,
) -> float:
    """Give how far the converted layer's output is from the layer's own on the same input.

    Args:
        config: As in ``convert``.
        weights: As in ``convert``.
        x: ``[batch, length, hidden_size]``.
        kv_heads: As in ``convert``.
        method: As in ``convert``.
        seed: As in ``convert``.
        call: Other arguments of ``Variant.attend``, such as ``allowed`` and ``position``.

    Returns:
        Norm of the difference over the norm of the layer's own output; 0 is no change.
    """
    variant = VARIANTS["gqa"]
    want = variant.attend(config, weights, x, **call).output.double()
    got = variant.attend(*convert(config, weights, kv_heads, method, seed=seed), x, **call).output.double()
    return float((got - want).norm() / want.norm())
