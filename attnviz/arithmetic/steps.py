"""The arithmetic of one cell, number by number."""

import math
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from attnviz.arithmetic.records import Cell, Change, Drawn, OutputTerm, Product
from attnviz.masks import block
from attnviz.mistakes import MISTAKES
from attnviz.score_mods import Terms
from attnviz.stages import Call, Fused, Rows, keep, rows_of

# Keys widened to float64 at once: 2^20 entries are 8 MiB.
_PART_ENTRIES = 2**20


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
    scores = _scores(query_vector, call.key[0, kv_head])
    scores[key] = (query_vector * key_vector).sum()
    changes = _changes(call.terms((head,), query, query + 1), scores * call.before)
    row = line = _softmax(changes[-1].row if changes else scores * call.before, allowed)
    mistake, place, seen = call.mistake or MISTAKES["none"], key, allowed
    factor = mistake.after(call.factor) if mistake.scale_at == "after" else None
    if mistake.by_column:
        row, line, seen = _columns(call, head, query, key, key_vector)
        place = query
    dropped = _dropped(call, head, query)
    shares = row.weights * (1.0 if factor is None else factor) * (1.0 if dropped is None else dropped)
    return Cell(
        head=head,
        kv_head=kv_head,
        query=query,
        key=key,
        products=_products(call, head, query, key, query_vector, key_vector),
        score=float(scores[key]),
        scale=call.before,
        scaled=float(scores[key]) * call.before,
        changes=tuple(Change(step.kind, float(step.amount[key]), float(step.row[key])) for step in changes),
        allowed=bool(allowed[key]),
        keys_seen=int(seen.sum()),
        row_maximum=line.maximum,
        maximum_key=line.place,
        exponent=float(line.exponents[place]),
        row_sum=line.total,
        weight=float(row.weights[key]),
        by_column=mistake.by_column,
        late_factor=factor,
        dropout_factor=None if dropped is None else float(dropped[key]),
        output=_output(shares, call.value[0, kv_head, :, :values], key),
        value_width=call.value.shape[-1],
        drawn=_drawn(rows, key, values),
    )


def _drawn(rows: Rows, key: int, values: int) -> Drawn:
    changed, weights, output = rows.changed[0, 0, 0, key], rows.weights[0, 0, 0, key], rows.output[0, 0, 0, :values]
    return Drawn(float(changed), float(weights), tuple(output.tolist()))


def _dropped(call: Call, head: int, query: int) -> Tensor | None:
    """Give what dropout multiplies each weight of a row by; None without dropout."""
    if call.dropout == 0.0:
        return None
    return _wide(keep(call, (head,), query, query + 1)[0, 0, 0]) / (1.0 - call.dropout)


def _columns(call: Call, head: int, query: int, key: int, key_vector: Tensor) -> tuple["_Softmax", "_Softmax", Tensor]:
    """Give a row of a softmax over the queries, the softmax of the key's column, and the queries that may be in it.

    The key's own column is worked out; of the other keys' columns the call has kept the sums.
    """
    scores = _scores(key_vector, call.query[0, head]) * call.before
    changes = _changes(call.terms((head,), 0, call.q_len, (key, key + 1)), scores)
    sizes = {"q_len": call.q_len, "kv_len": call.kv_len, "align": call.align, "heads": call.heads}
    may = block(call.mask, (0, call.q_len), (key, key + 1), device=call.query.device, **sizes)[0, :, :, 0]
    may = (may if may.shape[0] == 1 else may[head : head + 1])[0].cpu()
    column = _softmax(changes[-1].row if changes else scores, may)
    weights = _wide(rows_of(replace(call, dropout=0.0), (head,), query, query + 1).weights[0, 0, 0])
    weights[key] = column.weights[query]
    return column._replace(weights=weights), column, may


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


def _changes(terms: Terms, line: Tensor) -> list[_Step]:
    """Give what the score modification does to a row or column of scaled scores: factor, cap, bias, in this order."""
    bias, softcap, factor = terms
    steps = []
    if factor != 1.0:
        line = line * factor
        steps.append(_Step("factor", torch.full_like(line, factor), line))
    if softcap is not None:
        line = softcap * torch.tanh(line / softcap)
        steps.append(_Step("cap", torch.full_like(line, softcap), line))
    if bias is not None:
        added = _wide(bias.flatten())
        line = line + added
        steps.append(_Step("bias", added, line))
    return steps


class _Softmax(NamedTuple):
    """Hold the steps of a softmax over a row or column; ``maximum`` is None where nothing is allowed in it."""

    maximum: float | None
    place: int | None
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
