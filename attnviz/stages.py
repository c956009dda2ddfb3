"""One attention call as named stages, drawn from the very blocks that were computed."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from attnviz.backends import BACKENDS
from attnviz.masks import Mask, block
from attnviz.registry import Registry
from attnviz.text import Text, same

# Scores of one block of query rows are held at once; 2^21 of them are 8 MiB in float32.
BLOCK_SCORES = 2**21
VALUE, MASKED, NO_KEY = 0, 1, 2

Dim = Literal["query", "key", "feature"]


@dataclass(frozen=True)
class Stage:
    """Describe one stage: what it is called, what its axes are, and whether its values have a sign."""

    key: str
    label: Text
    help: Text
    rows: Dim
    cols: Dim
    signed: bool = True


STAGES: Registry[Stage] = Registry(
    "stage",
    (
        Stage("query", same("Q"), Text("What each token looks for.", "每个 token 在找什么。"), "query", "feature"),
        Stage("key", same("K"), Text("What each token is found by.", "每个 token 凭什么被找到。"), "key", "feature"),
        Stage(
            "scores",
            same("QKᵀ"),
            Text("Dot product of every query with every key.", "每个查询与每个键的点积。"),
            "query",
            "key",
        ),
        Stage(
            "scaled",
            Text("× scale", "× 缩放"),
            Text("Scores times the scale.", "分数乘以缩放系数。"),
            "query",
            "key",
        ),
        Stage("masked", Text("mask", "掩码"), Text("Scores that count.", "计入的分数。"), "query", "key"),
        Stage(
            "weights",
            same("softmax"),
            Text("Each row turned into shares of 1.", "每一行变成总和为 1 的份额。"),
            "query",
            "key",
            signed=False,
        ),
        Stage("value", same("V"), Text("What each token hands over.", "每个 token 交出的内容。"), "key", "feature"),
        Stage("output", same("· V"), Text("Values summed with the weights.", "按权重对值求和。"), "query", "feature"),
    ),
)


@dataclass(frozen=True)
class Call:
    """Hold everything one attention call depends on.

    Args:
        query: ``[1, heads, q_len, d_k]``.
        key: ``[1, kv_heads, kv_len, d_k]``.
        value: ``[1, kv_heads, kv_len, d_v]``.
        mask: Who may attend to whom.
        align: ``top_left`` or ``bottom_right``.
        scale: Factor on the scores; None means 1/√d_k.
        backend: Key of ``BACKENDS``.
        dropout: Share of weights set to zero, 0 to below 1.
        seed: Seed of the dropout.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    mask: Mask
    align: str = "top_left"
    scale: float | None = None
    backend: str = "eager"
    dropout: float = 0.0
    seed: int = 0

    @property
    def heads(self) -> int:
        """Number of query heads."""
        return self.query.shape[1]

    @property
    def q_len(self) -> int:
        """Number of queries."""
        return self.query.shape[2]

    @property
    def kv_len(self) -> int:
        """Number of keys."""
        return self.key.shape[2]

    @property
    def factor(self) -> float:
        """The scale as a number."""
        return self.query.shape[3] ** -0.5 if self.scale is None else self.scale

    def of_heads(self, heads: Sequence[int]) -> tuple[Tensor, Tensor, Tensor]:
        """Give query, key and value of some query heads, with the KV heads that these read."""
        if list(heads) == list(range(self.heads)):
            return self.query, self.key, self.value
        group = self.heads // self.key.shape[1]
        kv = [head // group for head in heads]
        index = list(heads)
        return self.query[:, index], self.key[:, kv], self.value[:, kv]


class Fused(NamedTuple):
    """What a fused backend gave for the whole call.

    ``output`` is ``[1, heads, q_len, d_v]``, ``logsumexp`` ``[1, heads, q_len]``; ``seconds`` is the time it took.
    """

    output: Tensor
    logsumexp: Tensor
    kernel: str
    seconds: float


class Rows(NamedTuple):
    """Hold the stages of one block of query rows, every tensor ``[1, heads, rows, …]``."""

    start: int
    stop: int
    query: Tensor
    key: Tensor
    scaled: Tensor
    weights: Tensor
    output: Tensor
    allowed: Tensor
    seconds: float

    def stage(self, key: str) -> Tensor:
        """Give one stage of the block; ``masked`` carries the scaled scores, ``allowed`` says which of them count."""
        if key == "scores":
            return product(self.query, self.key)
        return {"scaled": self.scaled, "masked": self.scaled, "weights": self.weights, "output": self.output}[key]


def synchronize(device: torch.device) -> None:
    """Wait for a device that works behind the caller's back, so that a clock reads what was done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def fused(call: Call) -> Fused | None:
    """Run the whole call with a fused backend; None for a backend that shows its weights itself."""
    if call.backend == "eager":
        return None
    device = call.query.device
    synchronize(device)
    begun = time.perf_counter()
    core = BACKENDS[call.backend].attend(
        call.query, call.key, call.value, allowed=call.mask, align=call.align, scale=call.scale
    )
    synchronize(device)
    seconds = time.perf_counter() - begun
    assert core.logsumexp is not None
    return Fused(core.output, core.logsumexp, core.kernel, seconds)


def keep(call: Call, heads: Sequence[int], start: int, stop: int) -> Tensor:
    """Draw which weights dropout keeps: a hash of seed, head, row and column, so that any block or row agrees."""
    device = call.query.device
    head = torch.tensor(heads, dtype=torch.int64, device=device)[:, None, None]
    row = torch.arange(start, stop, device=device)[:, None]
    col = torch.arange(call.kv_len, device=device)
    mixed = row * 0x9E3779B1 + col * 0x85EBCA77 + head * 0xC2B2AE3D + (call.seed + 1) * 0x27D4EB2F
    for shift, factor in ((15, 0x2C1B3C6D), (12, 0x297A2D39)):
        mixed = ((mixed ^ (mixed >> shift)) * factor) & 0xFFFFFFFF
    mixed = mixed ^ (mixed >> 15)
    return (mixed >= call.dropout * 2**32)[None]


def rows_of(call: Call, heads: Sequence[int], start: int, stop: int, ran: Fused | None = None) -> Rows:
    """Compute every stage for the query rows ``start`` to ``stop`` of some heads.

    With a fused result the weights are recomputed from scores and the rows' log-sum-exp, and the output is the fused
    one; otherwise all of it is what the eager backend just returned.

    Args:
        call: The call.
        heads: Query heads, by index.
        start: First query row.
        stop: Row after the last.
        ran: The fused result of the same call, if a fused backend ran.
    """
    query, key, value = call.of_heads(heads)
    query = query[:, :, start:stop]
    group = query.shape[1] // key.shape[1]
    allowed = block(
        call.mask,
        (start, stop),
        (0, call.kv_len),
        q_len=call.q_len,
        kv_len=call.kv_len,
        align=call.align,
        heads=call.heads,
        device=query.device,
    )
    if allowed.shape[1] > 1:
        allowed = allowed[:, list(heads)]
    synchronize(query.device)
    begun = time.perf_counter()
    if ran is None:
        core = BACKENDS["eager"].attend(query, key, value, allowed=allowed, scale=call.scale)
        assert core.weights is not None and core.scores is not None
        scaled, weights, output = core.scores, core.weights, core.output
    else:
        # Fused kernels hold scores in float32, so that none overflows float16; neither must those worked out again.
        exact = torch.promote_types(query.dtype, torch.float32)
        query, key = query.to(exact), key.to(exact)
        scaled = product(query, key) * call.factor
        lse = ran.logsumexp[:, list(heads), start:stop, None].to(exact)
        weights = torch.where(allowed, torch.exp(scaled - lse), 0.0)
        output = ran.output[:, list(heads), start:stop]
    if call.dropout > 0.0:
        weights = torch.where(keep(call, heads, start, stop), weights / (1.0 - call.dropout), 0.0)
        output = (weights.to(value.dtype).unflatten(1, (-1, group)) @ value[:, :, None]).flatten(1, 2)
    synchronize(query.device)
    seconds = time.perf_counter() - begun
    return Rows(start, stop, query, key, scaled, weights, output, allowed, seconds)


def product(query: Tensor, key: Tensor) -> Tensor:
    """Give QKᵀ, ``[1, heads, q_len, kv_len]``; each KV head serves an equal run of query heads."""
    group = query.shape[1] // key.shape[1]
    return (query.unflatten(1, (-1, group)) @ key[:, :, None].transpose(-1, -2)).flatten(1, 2)


def row_blocks(call: Call, heads: Sequence[int], rows: tuple[int, int], ran: Fused | None = None) -> Iterator[Rows]:
    """Compute the stages block by block of query rows, holding about ``BLOCK_SCORES`` scores at a time."""
    step = max(1, BLOCK_SCORES // (len(heads) * call.kv_len))
    for start in range(rows[0], rows[1], step):
        yield rows_of(call, heads, start, min(start + step, rows[1]), ran)
