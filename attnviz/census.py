"""What can be counted about an attention call: one row in detail, and all rows at a glance."""

import math
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from attnviz.stages import Call, Fused, keep, row_blocks, rows_of, spans


class RowDetail(NamedTuple):
    """Hold one query's row: float64 ``[kv_len]`` scores and weights, bool ``allowed``, and what they add up to.

    ``entropy`` is that of the weights as shares of their sum, which dropout and mistakes take away from 1, in nats;
    ``effective_keys`` is its exponential, the number of equal weights with that entropy; 0 where no weight is.
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
    total = float(weights.sum())
    entropy = float(torch.special.entr(weights / total if total > 0 else weights).sum())
    return RowDetail(
        rows.changed[0, 0, 0].to("cpu", torch.float64),
        weights,
        rows.allowed[0, 0, 0].cpu(),
        total,
        entropy,
        0.0 if total == 0 else math.exp(entropy) if math.isfinite(entropy) else math.nan,
    )


class Census(NamedTuple):
    """Count what went on in a whole call, over all heads.

    ``pairs`` of query and key may attend, ``not_finite`` rows left the range of the dtype, ``no_key`` rows have no
    key, ``underflowed`` allowed weights are exactly 0. ``row_sums`` are the least and the largest sum of a finite row
    with a key; None where there is no such row. ``difference`` is the largest absolute difference between a fused
    output and the recomputed weights times V: it says whether the map that is drawn is the one the kernel used; None
    for a backend that shows its weights.
    """

    pairs: int
    not_finite: int
    no_key: int
    underflowed: int
    difference: float | None
    row_sums: tuple[float, float] | None = None


def census(call: Call, ran: Fused | None) -> Census:
    """Go through every row of the call once, in blocks; no L × L array is held.

    Args:
        call: The call.
        ran: Its fused result, if a fused backend ran.
    """
    pairs = not_finite = no_key = underflowed = 0
    largest, sums = 0.0, _Range()
    for rows in row_blocks(call, range(call.heads), (0, call.q_len), ran):
        finite = torch.isfinite(rows.weights).all(-1)
        pairs += int(rows.allowed.sum()) * (finite.shape[1] // rows.allowed.shape[1])
        sums.add(rows.weights.sum(-1, dtype=torch.float64)[finite & rows.allowed.any(-1)])
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
    return Census(pairs, not_finite, no_key, underflowed, None if ran is None else largest, sums.span)


class _Range:
    """Keep the least and the largest of the numbers that come by."""

    def __init__(self) -> None:
        self.span: tuple[float, float] | None = None

    def add(self, numbers: Tensor) -> None:
        """Take some more numbers."""
        if numbers.numel():
            low, high = float(numbers.min()), float(numbers.max())
            self.span = (low, high) if self.span is None else (min(low, self.span[0]), max(high, self.span[1]))


class Sums(NamedTuple):
    """Hold the least and the largest sum of rows with a key, and of columns with a query; None where there is none."""

    row_sums: tuple[float, float] | None
    column_sums: tuple[float, float] | None


class Comparison(NamedTuple):
    """Compare a computation with a mistake or dropout with the right one, which has neither.

    ``cosine`` is the cosine of the angle between the two outputs, each taken as one vector of all heads, queries and
    dimensions; NaN where one is zero or not finite. ``difference`` is the largest absolute difference of an entry.
    ``dropped`` is the share of the allowed weights that dropout set to zero, ``mean_sum`` the mean sum of a row with a
    key; NaN where nothing is allowed.
    """

    mistaken: Sums
    right: Sums
    cosine: float
    difference: float
    dropped: float
    mean_sum: float


def compare(call: Call, ran: Fused | None = None) -> Comparison:
    """Go through every row of a call and of the same without mistake and dropout, one block at a time.

    Args:
        call: The call.
        ran: Its fused result, if a fused backend ran.
    """
    calls, heads = (call, replace(call, mistake=None, columns=None, dropout=0.0)), range(call.heads)
    rows_seen, counted = (_Range(), _Range()), _Counted(call)
    columns = [torch.zeros(call.heads, call.kv_len, dtype=torch.float64, device=call.query.device) for _ in calls]
    reached = torch.zeros(call.heads, call.kv_len, dtype=torch.bool, device=call.query.device)
    products, largest = torch.zeros(3, dtype=torch.float64), 0.0
    for start, stop in spans(call.heads, call.kv_len, (0, call.q_len)):
        outputs = []
        for index, each in enumerate(calls):
            rows = rows_of(each, heads, start, stop, ran)
            sums = rows.weights.sum(-1, dtype=torch.float64)[rows.allowed.any(-1).expand(1, call.heads, -1)]
            rows_seen[index].add(sums)
            if each is call:
                counted.add(sums, rows.allowed, start, stop)
            columns[index] += rows.weights[0].sum(1, dtype=torch.float64)
            reached |= rows.allowed[0].any(1)
            outputs.append(rows.output.to("cpu", torch.float64).flatten())
            del rows
        mistaken, right = outputs
        products += torch.stack((mistaken @ right, mistaken @ mistaken, right @ right))
        largest = max(largest, float((mistaken - right).abs().max()))
    column_seen = (_Range(), _Range())
    for seen, sums in zip(column_seen, columns, strict=True):
        seen.add(sums[reached])
    both, one, other = products.tolist()
    sums = tuple(Sums(rows.span, cols.span) for rows, cols in zip(rows_seen, column_seen, strict=True))
    cosine = both / math.sqrt(one * other) if one * other > 0 else math.nan
    return Comparison(sums[0], sums[1], cosine, largest, counted.dropped, counted.mean_sum)


class _Counted:
    """Count what dropout is expected to do: the weights that it sets to zero, and the mean sum of a row."""

    def __init__(self, call: Call) -> None:
        self.call, self.allowed, self.gone, self.rows, self.total = call, 0, 0, 0, 0.0

    def add(self, sums: Tensor, allowed: Tensor, start: int, stop: int) -> None:
        """Take the sums of the rows with a key, and who may attend to whom, of the rows ``start`` to ``stop``."""
        self.rows, self.total = self.rows + sums.numel(), self.total + float(sums.sum())
        self.allowed += int(allowed.sum()) * (self.call.heads // allowed.shape[1])
        if self.call.dropout > 0:
            self.gone += int((allowed & ~keep(self.call, range(self.call.heads), start, stop)).sum())

    @property
    def dropped(self) -> float:
        """The share of the allowed weights that dropout set to zero."""
        return self.gone / self.allowed if self.allowed else math.nan

    @property
    def mean_sum(self) -> float:
        """The mean sum of a row with a key."""
        return self.total / self.rows if self.rows else math.nan
