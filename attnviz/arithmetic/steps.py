"""The arithmetic of one cell, number by number."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from attnviz.stages import Call, Fused, keep, rows_of

# Keys widened to float64 at once: 2^20 entries are 8 MiB.
_PART_ENTRIES = 2**20


@dataclass(frozen=True)
class Product:
    """Hold one dimension of the dot product: q_i, k_i and q_i · k_i; and both before a rotation, if there is one."""

    dimension: int
    query: float
    key: float
    product: float
    unturned: tuple[float, float] | None = None


@dataclass(frozen=True)
class Change:
    """Hold one step of a score modification: ``factor``, ``cap`` or ``bias``, its amount, and the score after it."""

    kind: str
    amount: float
    result: float


@dataclass(frozen=True)
class OutputTerm:
    """Hold one dimension of the output row: what this key adds to it, what the other keys add, and their sum."""

    dimension: int
    value: float
    term: float
    others: float
    total: float


@dataclass(frozen=True)
class Drawn:
    """Hold what the call itself computed for the cell, in its own dtype: this is what the picture shows."""

    scaled: float
    weight: float
    output: tuple[float, ...]

    @property
    def is_finite(self) -> bool:
        """Whether the cell stayed within the range of the dtype."""
        return math.isfinite(self.weight) and all(map(math.isfinite, self.output))


@dataclass(frozen=True)
class Cell:
    """Hold every step from two vectors to a share of a value, in float64.

    Args:
        head: Query head.
        kv_head: Head of keys and values that it reads.
        query: Index of the query.
        key: Index of the key.
        products: The dot product, one entry for each dimension, in their order.
        score: Their sum, q · k.
        scale: What the scores are multiplied by.
        scaled: ``score * scale``.
        changes: What a score modification then does to it, step by step.
        allowed: Whether the query may attend to this key.
        keys_seen: Number of keys that the query may attend to.
        row_maximum: Largest final score among them; None when there is none.
        maximum_key: Key that has it (the first); None when there is none.
        exponent: exp(final − row_maximum), 0 for a masked key.
        row_sum: Sum of the exponents of the row.
        weight: ``exponent / row_sum`` as softmax gives it, 0 for a masked key.
        dropout_factor: What dropout multiplies the weight by, 0 or 1/(1 − p); None without dropout.
        output: The first dimensions of the output row.
        value_width: How many dimensions it has.
        drawn: What the call itself gave.
    """

    head: int
    kv_head: int
    query: int
    key: int
    products: tuple[Product, ...]
    score: float
    scale: float
    scaled: float
    changes: tuple[Change, ...]
    allowed: bool
    keys_seen: int
    row_maximum: float | None
    maximum_key: int | None
    exponent: float
    row_sum: float
    weight: float
    dropout_factor: float | None
    output: tuple[OutputTerm, ...]
    value_width: int
    drawn: Drawn

    @property
    def final(self) -> float:
        """The score that enters the softmax."""
        return self.changes[-1].result if self.changes else self.scaled

    @property
    def share(self) -> float:
        """What the value is multiplied by: the weight, after dropout where there is one."""
        return self.weight if self.dropout_factor is None else self.weight * self.dropout_factor

    def largest(self, count: int) -> tuple[Product, ...]:
        """Give the products that move the score most, the largest absolute value first; equal ones in their order."""
        return tuple(sorted(self.products, key=lambda entry: -abs(entry.product))[:count])


def cell(call: Call, head: int, query: int, key: int, ran: Fused | None = None, *, values: int = 4) -> Cell:
    """Work out one cell from the call's own numbers, each widened to float64 first.

    Args:
        call: The call.
        head: Query head.
        query: Query.
        key: Key.
        ran: The fused result of the same call, if a fused backend ran.
        values: How many dimensions of the output row to give, at most.

    Raises:
        ValueError: If an index lies outside the call.

    Source:
        Vaswani et al. 2017, section 3.2.1, https://arxiv.org/abs/1706.03762
    """
    for name, index, limit in (("head", head, call.heads), ("query", query, call.q_len), ("key", key, call.kv_len)):
        if not 0 <= index < limit:
            raise ValueError(f"{name} must be a whole number from 0 to {limit - 1}, got {index!r}")
    kv_head = head // (call.heads // call.key.shape[1])
    rows = rows_of(call, (head,), query, query + 1, ran)
    allowed = rows.allowed[0, 0, 0].cpu()
    query_vector, key_vector = _wide(call.query[0, head, query]), _wide(call.key[0, kv_head, key])
    products = query_vector * key_vector
    scores = _scores(query_vector, call.key[0, kv_head])
    scores[key] = products.sum()
    changes = _changes(call, head, query, scores * call.factor)
    row = _softmax(changes[-1].row if changes else scores * call.factor, allowed)
    factors = None
    if call.dropout > 0.0:
        factors = _wide(keep(call, (head,), query, query + 1)[0, 0, 0]) / (1.0 - call.dropout)
    shares = row.weights if factors is None else row.weights * factors
    return Cell(
        head=head,
        kv_head=kv_head,
        query=query,
        key=key,
        products=_products(call, head, query, key, query_vector, key_vector),
        score=float(scores[key]),
        scale=call.factor,
        scaled=float(scores[key]) * call.factor,
        changes=tuple(Change(step.kind, float(step.amount[key]), float(step.row[key])) for step in changes),
        allowed=bool(allowed[key]),
        keys_seen=int(allowed.sum()),
        row_maximum=row.maximum,
        maximum_key=row.maximum_key,
        exponent=float(row.exponents[key]),
        row_sum=row.total,
        weight=float(row.weights[key]),
        dropout_factor=None if factors is None else float(factors[key]),
        output=_output(shares, call.value[0, kv_head, :, :values], key),
        value_width=call.value.shape[-1],
        drawn=Drawn(
            float(rows.changed[0, 0, 0, key]),
            float(rows.weights[0, 0, 0, key]),
            tuple(rows.output[0, 0, 0, :values].tolist()),
        ),
    )


def _products(
    call: Call, head: int, query: int, key: int, query_vector: Tensor, key_vector: Tensor
) -> tuple[Product, ...]:
    """Give the dot product dimension by dimension."""
    columns = [range(len(query_vector)), query_vector.tolist(), key_vector.tolist()]
    columns.append((query_vector * key_vector).tolist())
    if call.unturned is not None:
        group = call.heads // call.key.shape[1]
        before = _wide(call.unturned[0][0, head, query]), _wide(call.unturned[1][0, head // group, key])
        columns.append(list(zip(before[0].tolist(), before[1].tolist(), strict=True)))
    return tuple(map(Product, *columns))


class _Step(NamedTuple):
    """Hold one step of a score modification for a whole row."""

    kind: str
    amount: Tensor
    row: Tensor


def _changes(call: Call, head: int, query: int, row: Tensor) -> list[_Step]:
    """Give what the score modification does to a row of scaled scores: factor, cap, bias, in this order."""
    bias, softcap, factor = call.terms((head,), query, query + 1)
    steps = []
    if factor != 1.0:
        row = row * factor
        steps.append(_Step("factor", torch.full_like(row, factor), row))
    if softcap is not None:
        row = softcap * torch.tanh(row / softcap)
        steps.append(_Step("cap", torch.full_like(row, softcap), row))
    if bias is not None:
        added = _wide(bias[0, 0, 0])
        row = row + added
        steps.append(_Step("bias", added, row))
    return steps


class _Softmax(NamedTuple):
    """Hold the steps of one row's softmax; ``maximum`` is None where no key may be attended to."""

    maximum: float | None
    maximum_key: int | None
    exponents: Tensor
    total: float
    weights: Tensor


def _softmax(scaled: Tensor, allowed: Tensor) -> _Softmax:
    if not bool(allowed.any()):
        nothing = torch.zeros_like(scaled)
        return _Softmax(None, None, nothing, 0.0, nothing)
    place = int(scaled.masked_fill(~allowed, -math.inf).argmax())
    exponents = torch.where(allowed, torch.exp(scaled - scaled[place]), 0.0)
    total = exponents.sum()
    return _Softmax(float(scaled[place]), place, exponents, float(total), exponents / total)


def _wide(tensor: Tensor) -> Tensor:
    return tensor.to("cpu").to(torch.float64)  # in two steps: not every device has float64


def _scores(query: Tensor, keys: Tensor) -> Tensor:
    """Give a query's dot product with every key, ``[kv_len]``, widening some keys at a time."""
    step = max(1, _PART_ENTRIES // keys.shape[1])
    return torch.cat([_wide(part) @ query for part in keys.split(step)])


def _output(shares: Tensor, values: Tensor, key: int) -> tuple[OutputTerm, ...]:
    """Give each dimension of Σ_j w_j v_j, with this key's term apart from the others'."""
    terms = shares[:, None] * _wide(values)
    others = terms.clone()
    others[key] = 0.0
    return tuple(
        map(
            OutputTerm,
            range(values.shape[1]),
            _wide(values[key]).tolist(),
            terms[key].tolist(),
            others.sum(0).tolist(),
            terms.sum(0).tolist(),
        )
    )
