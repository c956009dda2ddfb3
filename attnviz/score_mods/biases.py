"""Biases that depend on the distance of query and key: a slope for each head, or a table of buckets."""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnviz.score_mods.base import ScoreMod


def alibi_slopes(heads: int) -> Float[Tensor, " heads"]:
    """Give the slope of each head: a geometric series from 2^(-8/n) to 2^-8.

    For n heads that are no power of two, the series of the power below comes first, then every second slope of the
    series of the power above.

    Source:
        ALiBi, section 3, https://arxiv.org/abs/2108.12409; other head counts: its released code,
        https://github.com/ofirpress/attention_with_linear_biases
    """
    whole = 2 ** int(math.log2(heads))
    exponents = [8 * (i + 1) / whole for i in range(whole)]
    exponents += [8 * (2 * i + 1) / (2 * whole) for i in range(heads - whole)]
    return torch.tensor([2.0**-e for e in exponents])


def t5_bucket(
    distance: Int[Tensor, "..."], *, buckets: int, max_distance: int, bidirectional: bool
) -> Int[Tensor, "..."]:
    """Give the bucket of each distance: one each while near, then logarithmic up to ``max_distance``, then the last.

    Args:
        distance: Key position less query position.
        buckets: Number of buckets; with ``bidirectional`` half of them are for keys behind, half for keys ahead.
        max_distance: Distance from which all share the last bucket.
        bidirectional: Without it, keys ahead share bucket 0 with the query itself.

    Source:
        T5, section 2.1, https://arxiv.org/abs/1910.10683
    """
    if bidirectional:
        buckets //= 2
        first, away = (distance > 0).to(torch.int64) * buckets, distance.abs()
    else:
        first, away = torch.zeros_like(distance), (-distance).clamp(min=0)
    near = max(1, buckets // 2)
    if max_distance <= near:
        return first + away.clamp(max=buckets - 1)
    share = (away.clamp(min=near) / near).log() / math.log(max_distance / near)
    far = near + (share * (buckets - near)).to(torch.int64)
    return first + torch.where(away < near, away, far).clamp(max=buckets - 1)


def alibi() -> ScoreMod:
    """Give the linear bias: slope × distance off every score."""

    def bias(heads: int, which: Sequence[int], distance: Tensor) -> Tensor:
        return -alibi_slopes(heads)[list(which)].to(distance.device)[:, None] * distance.abs()

    return ScoreMod("alibi", bias=bias)


ALIBI_CODE = """\
whole = 2 ** (heads.bit_length() - 1)
exponents = [8 * (i + 1) / whole for i in range(whole)] + [8 * (2 * i + 1) / (2 * whole) for i in range(heads - whole)]
bias = -torch.tensor([2.0**-e for e in exponents])[:, None, None] * distance.abs()  # a slope for each head
"""


def t5_bias(buckets: int, max_distance: int, bidirectional: bool, seed: int) -> ScoreMod:
    """Give the bias that looks each distance up in a table of random numbers."""

    def bias(heads: int, which: Sequence[int], distance: Tensor) -> Tensor:
        # Each head's table is drawn from its own seed, so that more heads leave the first ones as they were.
        tables = [torch.randn(128, generator=torch.Generator().manual_seed(seed * 1009 + h)) for h in which]
        bucket = t5_bucket(distance, buckets=buckets, max_distance=max_distance, bidirectional=bidirectional)
        return torch.stack(tables).to(distance.device)[:, bucket]

    return ScoreMod("t5_bias", bias=bias)


def t5_code(buckets: int, max_distance: int, bidirectional: bool, seed: int) -> str:
    """Write the same bias in plain PyTorch."""
    half = buckets // 2 if bidirectional else buckets
    near = max(1, half // 2)
    ahead = f"(distance > 0) * {half}" if bidirectional else "torch.zeros_like(distance)"
    away = "distance.abs()" if bidirectional else "(-distance).clamp(min=0)"
    if max_distance <= near:
        bucket = f"bucket = {ahead} + away.clamp(max={half - 1})\n"
    else:
        bucket = (
            f"far = (away.clamp(min={near}) / {near}).log() / {math.log(max_distance / near)!r} * {half - near}\n"
            f"bucket = {ahead} + torch.where(away < {near}, away, {near} + far.long()).clamp(max={half - 1})\n"
        )
    return (
        f"away = {away}  # near distances have a bucket each, far ones share them\n"
        f"{bucket}"
        f"seeds = range({seed * 1009}, {seed * 1009} + heads)\n"
        "tables = [torch.randn(128, generator=torch.Generator().manual_seed(each)) for each in seeds]\n"
        "bias = torch.stack(tables)[:, bucket]  # a trained model learns this table; here it is random\n"
    )
