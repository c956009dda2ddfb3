"""What the arithmetic of one cell holds, step by step."""

import math
from dataclasses import dataclass


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
        by_column: A mistake: maximum, sum and keys seen are those of this key's column, over its queries.
        late_factor: A mistake: what the weight is multiplied by after the softmax; None where nothing is.
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
    by_column: bool
    late_factor: float | None
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
        """What the value is multiplied by: the weight, after a late scale and dropout where there are."""
        factors = [factor for factor in (self.late_factor, self.dropout_factor) if factor is not None]
        return math.prod(factors, start=self.weight)

    def largest(self, count: int) -> tuple[Product, ...]:
        """Give the products that move the score most, the largest absolute value first; equal ones in their order."""
        return tuple(sorted(self.products, key=lambda entry: -abs(entry.product))[:count])
