"""The arithmetic of one cell, number by number, and the shapes that a view's tensors pass through."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from attnviz import view_run
from attnviz.backends import BACKENDS
from attnviz.stages import Call, Fused, keep, rows_of
from attnviz.variants import VARIANTS
from attnviz.view import View

# Keys widened to float64 at once: 2^20 entries are 8 MiB.
_PART_ENTRIES = 2**20


@dataclass(frozen=True)
class Product:
    """Hold one dimension of the dot product: q_i, k_i and q_i · k_i."""

    dimension: int
    query: float
    key: float
    product: float


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
        allowed: Whether the query may attend to this key.
        keys_seen: Number of keys that the query may attend to.
        row_maximum: Largest scaled score among them; None when there is none.
        maximum_key: Key that has it (the first); None when there is none.
        exponent: exp(scaled − row_maximum), 0 for a masked key.
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
    row = _softmax(scores * call.factor, allowed)
    factors = None
    if call.dropout > 0.0:
        factors = _wide(keep(call, (head,), query, query + 1)[0, 0, 0]) / (1.0 - call.dropout)
    shares = row.weights if factors is None else row.weights * factors
    return Cell(
        head=head,
        kv_head=kv_head,
        query=query,
        key=key,
        products=tuple(
            map(Product, range(len(products)), query_vector.tolist(), key_vector.tolist(), products.tolist())
        ),
        score=float(scores[key]),
        scale=call.factor,
        scaled=float(scores[key]) * call.factor,
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


@dataclass(frozen=True)
class Entry:
    """Hold one line of the ledger.

    Args:
        step: Key of the step: ``tokens``, ``context``, ``projection``, ``split``, ``scores``, ``weights``, ``mix``,
            ``merge`` or ``out``.
        name: What the tensor is called, in LaTeX.
        shape: Its size on each axis.
        axes: What each axis counts: ``batch``, ``length``, ``queries``, ``keys``, ``width``, ``heads``, ``kv_heads``
            or ``d_k``, or two of them that are one axis. ``length`` is both queries and keys.
    """

    step: str
    name: str
    shape: tuple[int, ...]
    axes: tuple[str, ...]


def ledger(view: View) -> tuple[Entry, ...]:
    """List the shape of every tensor from the token vectors to the layer's output; the worked example has no layer.

    Query, key and value are the view's own. The rest is the same code run once more on torch's meta device, where
    tensors have a shape and no numbers: nothing as large as queries × keys is allocated.

    Args:
        view: A settled view that passed ``guard.check``.
    """
    call, config = view_run.make_call(view), view_run.make_config(view)
    variant, cross = VARIANTS[view.variant], view.attention == "cross"
    query, key, value = (tensor.to("meta") for tensor in (call.query, call.key, call.value))
    core = BACKENDS["eager"].attend(query, key, value, scale=call.scale)
    assert core.scores is not None and core.weights is not None
    matrices = {name: torch.empty(size, device="meta") for name, size in variant.matrices(config).items()}
    tokens = torch.empty(1, view.length, config.hidden_size, device="meta")
    context = torch.empty(1, view.key_length, config.hidden_size, device="meta") if cross else tokens
    merged = core.output.transpose(1, 2).flatten(2).to(torch.float32)
    side, own, other = ("y", "queries", "keys") if cross else ("x", "length", "length")
    q_axes, kv_axes = ("batch", "heads", "queries", "d_k"), ("batch", "kv_heads", "keys", "d_k")
    pairs = ("batch", "heads", "queries", "keys")
    lines: Sequence[tuple[str, str, Tensor, tuple[str, ...]]] = (
        ("tokens", "x", tokens, ("batch", own, "width")),
        *((("context", "y", context, ("batch", other, "width")),) if cross else ()),
        ("projection", "x W_Q", tokens @ matrices["query"], ("batch", own, "heads · d_k")),
        ("projection", f"{side} W_K", context @ matrices["key"], ("batch", other, "kv_heads · d_k")),
        ("projection", f"{side} W_V", context @ matrices["value"], ("batch", other, "kv_heads · d_k")),
        ("split", "Q", call.query, q_axes),
        ("split", "K", call.key, kv_axes),
        ("split", "V", call.value, kv_axes),
        ("scores", r"Q K^\top", core.scores, pairs),
        ("weights", "A", core.weights, pairs),
        ("mix", "A V", core.output, q_axes),
        ("merge", "C", merged, ("batch", own, "heads · d_k")),
        ("out", "C W_O", merged @ matrices["output"], ("batch", own, "width")),
    )
    # The worked example's queries, keys and values are given, not projected.
    left_out = ("tokens", "context", "projection", "out") if view.input == "worked" else ()
    return tuple(Entry(step, name, tuple(t.shape), axes) for step, name, t, axes in lines if step not in left_out)
