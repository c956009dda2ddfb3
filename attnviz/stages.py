"""One attention call as named stages, drawn from the very blocks that were computed."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from attnviz.backends import BACKENDS
from attnviz.backends.eager import score
from attnviz.masks import Mask, block
from attnviz.score_mods import ScoreMod, Terms
from attnviz.stage_list import STAGES, present

# Scores of one block of query rows are held at once; 2^21 of them are 8 MiB in float32.
BLOCK_SCORES = 2**21
VALUE, MASKED, NO_KEY = 0, 1, 2


@dataclass(frozen=True)
class Call:
    """Hold everything one attention call depends on.

    Args:
        query: ``[1, heads, q_len, d_k]``, rotated where the position encoding rotates.
        key: ``[1, kv_heads, kv_len, d_k]``, likewise.
        value: ``[1, kv_heads, kv_len, d_v]``.
        mask: Who may attend to whom.
        align: ``top_left`` or ``bottom_right``.
        scale: Factor on the scores; None means 1/√d_k.
        backend: Key of ``BACKENDS``.
        dropout: Share of weights set to zero, 0 to below 1.
        seed: Seed of the dropout.
        score_mod: Change of the scores before the mask; None leaves them as they are.
        unturned: Query and key before they were rotated; None where nothing rotates.
        waves: What was added to the token vectors of the queries, ``[q_len, width]``; None where nothing was.
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
    score_mod: ScoreMod | None = None
    unturned: tuple[Tensor, Tensor] | None = None
    waves: Tensor | None = None

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

    @property
    def stages(self) -> tuple[str, ...]:
        """The stages that this call has, in order."""
        parts = {"waves": self.waves, "turn": self.unturned, "change": self.score_mod}
        return present([name for name, part in parts.items() if part is not None])

    def given(self, stage: str) -> Tensor:
        """Give a stage that is there before any score, ``[1, heads | kv_heads | 1, length, width]``."""
        if stage == "waves":
            assert self.waves is not None
            return self.waves[None, None]
        query, key = (self.query, self.key) if self.unturned is None else self.unturned
        tensors = {"query": query, "key": key, "value": self.value}
        return tensors[stage] if stage in tensors else {"query_turned": self.query, "key_turned": self.key}[stage]

    def extent(self, stage: str) -> tuple[int, int]:
        """Give the sizes of a stage's two axes."""
        entry = STAGES[stage]
        width = (self.given(stage) if entry.given else self.value).shape[-1]
        sizes = {"query": self.q_len, "key": self.kv_len, "feature": width}
        return sizes[entry.rows], sizes[entry.cols]

    def terms(self, heads: Sequence[int], start: int, stop: int) -> Terms:
        """Give what changes the scores of some heads in some rows; the bias is no larger than those scores."""
        if self.score_mod is None:
            return Terms(None, None, 1.0)
        sizes, place = (self.heads, self.q_len, self.kv_len), {"align": self.align, "rows": (start, stop)}
        target = {"dtype": self.query.dtype, "device": self.query.device}
        return self.score_mod.terms(*sizes, which=heads, **place, **target)

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
    """Hold the stages of one block of query rows, every tensor ``[1, heads, rows, …]``.

    ``changed`` are the scores that enter the softmax: scaled, and changed where there is a score modification.
    """

    start: int
    stop: int
    query: Tensor
    key: Tensor
    changed: Tensor
    weights: Tensor
    output: Tensor
    allowed: Tensor
    seconds: float
    factor: float
    bias: Tensor | None
    is_changed: bool

    @property
    def scaled(self) -> Tensor:
        """Scores times the scale: kept where nothing changes them afterwards, else worked out again."""
        return product(self.query, self.key).mul_(self.factor) if self.is_changed else self.changed

    def stage(self, key: str) -> Tensor:
        """Give one stage of the block; ``masked`` carries the final scores, ``allowed`` says which of them count."""
        if key == "scores":
            return product(self.query, self.key)
        if key == "scaled":
            return self.scaled
        if key == "change":
            return self.scaled.neg_().add_(self.changed) if self.bias is None else self.bias
        kept = {"changed": self.changed, "masked": self.changed, "weights": self.weights, "output": self.output}
        return kept[key]


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
    bias, softcap, scale = None, None, call.scale
    if (mod := call.score_mod) is not None:
        place = {"align": call.align, "dtype": call.query.dtype, "device": device}
        bias = mod.late_bias(call.heads, call.q_len, call.kv_len, **place)
        softcap, scale = mod.softcap, call.factor * mod.scale
    core = BACKENDS[call.backend].attend(
        call.query, call.key, call.value, allowed=call.mask, align=call.align, bias=bias, scale=scale, softcap=softcap
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
    allowed = _allowed(call, heads, start, stop)
    synchronize(query.device)
    begun = time.perf_counter()
    bias, softcap, factor = call.terms(heads, start, stop)
    if ran is None:
        core = BACKENDS["eager"].attend(
            query, key, value, allowed=allowed, bias=bias, scale=call.factor * factor, softcap=softcap
        )
        assert core.weights is not None and core.scores is not None
        changed, weights, output = core.scores, core.weights, core.output
    else:
        # Fused kernels hold scores in float32, so that none overflows float16; neither must those worked out again.
        exact = torch.promote_types(query.dtype, torch.float32)
        query, key = query.to(exact), key.to(exact)
        changed = score(query, key, bias, call.factor * factor, softcap)
        lse = ran.logsumexp[:, list(heads), start:stop, None].to(exact)
        weights = torch.where(allowed, torch.exp(changed - lse), 0.0)
        output = ran.output[:, list(heads), start:stop]
    if call.dropout > 0.0:
        weights = torch.where(keep(call, heads, start, stop), weights / (1.0 - call.dropout), 0.0)
        output = (weights.to(value.dtype).unflatten(1, (-1, group)) @ value[:, :, None]).flatten(1, 2)
    synchronize(query.device)
    seconds = time.perf_counter() - begun
    return Rows(
        start,
        stop,
        query,
        key,
        changed,
        weights,
        output,
        allowed,
        seconds,
        call.factor,
        bias,
        call.score_mod is not None,
    )


def _allowed(call: Call, heads: Sequence[int], start: int, stop: int) -> Tensor:
    """Give who may attend to whom in some rows, bool ``[1, 1 | heads, rows, kv_len]``."""
    allowed = block(
        call.mask,
        (start, stop),
        (0, call.kv_len),
        q_len=call.q_len,
        kv_len=call.kv_len,
        align=call.align,
        heads=call.heads,
        device=call.query.device,
    )
    return allowed[:, list(heads)] if allowed.shape[1] > 1 else allowed


def product(query: Tensor, key: Tensor) -> Tensor:
    """Give QKᵀ, ``[1, heads, q_len, kv_len]``; each KV head serves an equal run of query heads."""
    group = query.shape[1] // key.shape[1]
    return (query.unflatten(1, (-1, group)) @ key[:, :, None].transpose(-1, -2)).flatten(1, 2)


def row_blocks(call: Call, heads: Sequence[int], rows: tuple[int, int], ran: Fused | None = None) -> Iterator[Rows]:
    """Compute the stages block by block of query rows, holding about ``BLOCK_SCORES`` scores at a time."""
    step = max(1, BLOCK_SCORES // (len(heads) * call.kv_len))
    for start in range(rows[0], rows[1], step):
        yield rows_of(call, heads, start, min(start + step, rows[1]), ran)
