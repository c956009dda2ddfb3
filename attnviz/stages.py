"""One attention call as named stages, drawn from the very blocks that were computed."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from attnviz.backends import BACKENDS
from attnviz.backends.eager import score
from attnviz.call import Call
from attnviz.masks import block
from attnviz.mistakes import Mistake

# Scores of one block of query rows are held at once; 2^21 of them are 8 MiB in float32.
BLOCK_SCORES = 2**21
VALUE, MASKED, NO_KEY = 0, 1, 2


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
    if call.backend == "eager" or call.mistake is not None:
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
    allowed = _allowed(call, heads, start, stop)
    synchronize(query.device)
    begun = time.perf_counter()
    bias, softcap, factor = call.terms(heads, start, stop)
    if ran is None:
        core = BACKENDS["eager"].attend(
            query, key, value, allowed=allowed, bias=bias, scale=call.before * factor, softcap=softcap
        )
        assert core.weights is not None and core.scores is not None
        changed, weights, output = core.scores, core.weights, core.output
        if call.mistake is not None:
            weights = _mistaken(call, call.mistake, heads, changed, weights, allowed)
            output = _mix(weights, value)
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
        output = _mix(weights, value)
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
        call.before,
        bias,
        call.score_mod is not None,
    )


def _mix(weights: Tensor, value: Tensor) -> Tensor:
    """Give the values summed with the weights, each KV head for its run of query heads."""
    group = weights.shape[1] // value.shape[1]
    return (weights.to(value.dtype).unflatten(1, (-1, group)) @ value[:, :, None]).flatten(1, 2)


def _mistaken(
    call: Call, mistake: Mistake, heads: Sequence[int], changed: Tensor, weights: Tensor, allowed: Tensor
) -> Tensor:
    """Give the weights as the mistake makes them of the right ones, or of the scores."""
    if mistake.by_column:
        assert call.columns is not None
        columns = call.columns[:, list(heads), None]
        weights = torch.where(allowed, torch.exp(changed.to(columns.dtype) - columns), 0.0).to(changed.dtype)
    return weights * mistake.after(call.factor)


def prepared(call: Call) -> Call:
    """Give the call with the statistics of its columns where its mistake needs them: one more pass over every row."""
    if call.mistake is None or not call.mistake.by_column:
        return call
    dtype = torch.promote_types(call.query.dtype, torch.float32)
    columns = call.query.new_full((1, call.heads, call.kv_len), float("-inf"), dtype=dtype)
    for rows in row_blocks(replace(call, mistake=None), range(call.heads), (0, call.q_len)):
        scores = torch.where(rows.allowed, rows.changed.to(dtype), float("-inf"))
        columns = torch.logaddexp(columns, torch.logsumexp(scores, 2))
        del rows, scores  # else one block would still be held while the next is computed
    return replace(call, columns=columns)


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


def spans(heads: int, kv_len: int, rows: tuple[int, int]) -> Iterator[tuple[int, int]]:
    """Cut query rows into blocks of about ``BLOCK_SCORES`` scores."""
    step = max(1, BLOCK_SCORES // (heads * kv_len))
    for start in range(rows[0], rows[1], step):
        yield start, min(start + step, rows[1])


def row_blocks(call: Call, heads: Sequence[int], rows: tuple[int, int], ran: Fused | None = None) -> Iterator[Rows]:
    """Compute the stages block by block of query rows, holding about ``BLOCK_SCORES`` scores at a time."""
    for start, stop in spans(len(heads), call.kv_len, rows):
        yield rows_of(call, heads, start, stop, ran)
