"""What can be counted about an attention call: one row in detail, and all rows at a glance."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from attnviz.stages import Call, Fused, row_blocks, rows_of


class RowDetail(NamedTuple):
    """Hold one query's row: float64 ``[kv_len]`` scores and weights, bool ``allowed``, and what they add up to.

    ``entropy`` is in nats; ``effective_keys`` is its exponential, the number of equal weights with that entropy.
    """

    scores: Tensor
    weights: Tensor
    allowed: Tensor
    total: float
    entropy: float
    effective_keys: float


def row_detail(call: Call, head: int, row: int, ran: Fused | None = None) -> RowDetail:
    """Compute one query's row of one head.

    Args:
        call: The call.
        head: Query head.
        row: Query.
        ran: The fused result, if a fused backend ran.
    """
    rows = rows_of(call, (head,), row, row + 1, ran)
    weights = rows.weights[0, 0, 0].to("cpu", torch.float64)
    entropy = float(torch.special.entr(weights).sum())
    return RowDetail(
        rows.changed[0, 0, 0].to("cpu", torch.float64),
        weights,
        rows.allowed[0, 0, 0].cpu(),
        float(weights.sum()),
        entropy,
        math.exp(entropy) if math.isfinite(entropy) else math.nan,
    )


class Census(NamedTuple):
    """Count what went on in a whole call, over all heads.

    ``pairs`` of query and key may attend, ``not_finite`` rows left the range of the dtype, ``no_key`` rows have no key,
    ``underflowed`` allowed weights are exactly 0. ``difference`` is the largest absolute difference between a fused
    output and the recomputed weights times V: it says whether the map that is drawn is the one the kernel used; None
    for a backend that shows its weights.
    """

    pairs: int
    not_finite: int
    no_key: int
    underflowed: int
    difference: float | None


def census(call: Call, ran: Fused | None) -> Census:
    """Go through every row of the call once, in blocks; no L × L array is held.

    Args:
        call: The call.
        ran: Its fused result, if a fused backend ran.
    """
    pairs = not_finite = no_key = underflowed = 0
    largest = 0.0
    for rows in row_blocks(call, range(call.heads), (0, call.q_len), ran):
        finite = torch.isfinite(rows.weights).all(-1)
        pairs += int(rows.allowed.sum()) * (finite.shape[1] // rows.allowed.shape[1])
        not_finite += int((~finite).sum())
        no_key += int((~rows.allowed.any(-1)).expand(finite.shape).sum())
        if call.dropout == 0.0:
            underflowed += int(((rows.weights == 0) & rows.allowed).sum())
        if ran is not None and call.dropout == 0.0:
            group = call.heads // call.value.shape[1]
            weights = rows.weights.to(torch.float32).unflatten(1, (-1, group))
            again = (weights @ call.value[:, :, None].to(torch.float32)).flatten(1, 2)
            largest = max(largest, float((again - rows.output.to(torch.float32)).abs().max()))
            del weights
        del rows, finite  # else one block would still be held while the next is computed
    return Census(pairs, not_finite, no_key, underflowed, None if ran is None else largest)
