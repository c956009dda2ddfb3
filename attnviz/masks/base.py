"""What a mask is: a pure rule over positions, and the grids, blocks and tiles that it gives."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor

from attnviz.knobs import Knob, Value
from attnviz.text import Text

Rule = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
Band = tuple[int | None, int | None]
Span = tuple[int, int]
TileState = Literal["full", "empty", "partial"]

ALIGNMENTS = ("top_left", "bottom_right")
# Rules make a few temporaries per cell; a grid is filled piece by piece, so that only the grid itself is large.
_PIECE = 2**22


@dataclass(frozen=True)
class Mask:
    """Say which query may attend to which key.

    Args:
        rule: Takes batch, head, query and key positions, int64 tensors that broadcast (0-d ones under ``torch.vmap``),
            and gives True where the query may attend. A query's position is counted on the keys' axis.
        band: Outer bound (left, right): a query at q sees at most the keys q - left to q + right; None is unbounded.
        exact: Every key inside the band may be attended, so that the band is the whole mask.
        per_batch: The rule looks at the batch index.
        per_head: The rule looks at the head index.
        fit: For a rule that depends on the call: takes batch size and kv_len, gives the mask for them, and raises
            ValueError where there is none.
        work: How many times the work of a comparison or two the rule takes for a cell.
        inside: What the band leaves open depends on the key alone, not on the query.
    """

    rule: Rule
    band: Band = (None, None)
    exact: bool = False
    per_batch: bool = False
    per_head: bool = False
    fit: "Callable[[int, int], Mask] | None" = field(default=None, repr=False)
    work: int = 1
    inside: bool = False

    def __call__(self, batch: Tensor | int, head: Tensor | int, q_idx: Tensor | int, kv_idx: Tensor | int) -> Tensor:
        """Give whether the query at ``q_idx`` may attend to the key at ``kv_idx``, as a bool tensor."""
        return self.rule(*(torch.as_tensor(index) for index in (batch, head, q_idx, kv_idx)))

    def at(self, batch: int, kv_len: int) -> "Mask":
        """Give this mask for a call of ``batch`` sequences and ``kv_len`` keys.

        Raises:
            ValueError: If it has no meaning for that many sequences.
        """
        return self if self.fit is None else self.fit(batch, kv_len)

    @property
    def is_full(self) -> bool:
        """Every query may attend to every key, by construction."""
        return self.exact and self.band == (None, None)

    @property
    def is_causal(self) -> bool:
        """Every query may attend to itself and all keys before it and to no other, by construction."""
        return self.exact and self.band == (None, 0)

    @property
    def by_key(self) -> bool:
        """Inside the band every query sees the same keys, by construction."""
        return self.exact or self.inside

    def __and__(self, other: "Mask") -> "Mask":
        band = (_least(self.band[0], other.band[0]), _least(self.band[1], other.band[1]))
        joined = _join(self, other, Mask.__and__, torch.logical_and, band, self.exact and other.exact)
        return replace(joined, inside=self.by_key and other.by_key)

    def __or__(self, other: "Mask") -> "Mask":
        band = (_most(self.band[0], other.band[0]), _most(self.band[1], other.band[1]))
        exact = self.exact and other.exact and _touch(self.band, other.band)
        return _join(self, other, Mask.__or__, torch.logical_or, band, exact)

    def __invert__(self) -> "Mask":
        rule, fit = self.rule, self.fit
        return Mask(
            lambda batch, head, q_idx, kv_idx: ~rule(batch, head, q_idx, kv_idx),
            per_batch=self.per_batch,
            per_head=self.per_head,
            fit=None if fit is None else lambda batch, kv_len: ~fit(batch, kv_len),
            work=self.work,
        )


@dataclass(frozen=True)
class MaskKind:
    """Describe a mask that can be picked.

    Args:
        key: Plain key.
        label: Name on screen.
        help: One sentence on who sees what.
        make: Takes the knobs' values by name and gives the mask.
        source: URL of where it was published.
        knobs: What can be set.
        code: Takes the knobs' values by name and gives the rule of the first sequence as lines of plain PyTorch, the
            last one an expression, in the integer tensors ``head``, ``q_idx``, ``kv_idx`` and the number ``kv_len``.
        why: Takes a query's and a key's position and the knobs' values by name, and says in one sentence what decides
            about the pair; None where the comparisons of ``code`` say it.
    """

    key: str
    label: Text
    help: Text
    make: Callable[..., Mask] = field(repr=False)
    source: str
    knobs: tuple[Knob, ...] = ()
    code: Callable[..., str] = field(kw_only=True, repr=False)
    why: Callable[..., Text] | None = field(default=None, kw_only=True, repr=False)

    def build(self, **knobs: object) -> Mask:
        """Give the mask with these settings; what is not given has its default.

        Raises:
            ValueError: If a name is not one of the knobs, or a value is not allowed (a ``Refusal``).
        """
        unknown = [name for name in knobs if name not in {knob.name for knob in self.knobs}]
        if unknown:
            valid = ", ".join(knob.name for knob in self.knobs) or "none"
            raise ValueError(f"{unknown[0]!r} is not a setting of the mask {self.key}; valid: {valid}")
        values: Mapping[str, Value] = {knob.name: knob.parse(knobs.get(knob.name, knob.default)) for knob in self.knobs}
        return self.make(**values)


def offset(q_len: int, kv_len: int, align: str) -> int:
    """Give where query 0 stands on the keys' axis; query i stands at i + offset.

    Args:
        q_len: Number of queries.
        kv_len: Number of keys.
        align: ``top_left`` (first query at the first key) or ``bottom_right`` (last query at the last key).

    Raises:
        ValueError: If ``align`` is neither.
    """
    if align not in ALIGNMENTS:
        raise ValueError(f"align must be one of {', '.join(ALIGNMENTS)}, got {align!r}")
    return 0 if align == "top_left" else kv_len - q_len


def block(
    mask: Mask,
    rows: Span,
    cols: Span,
    *,
    q_len: int,
    kv_len: int,
    align: str = "top_left",
    batch: int = 1,
    heads: int = 1,
    device: str | torch.device = "cpu",
) -> Tensor:
    """Give a region of the mask's grid without the rest of it.

    Args:
        mask: The mask.
        rows: First query and the one after the last.
        cols: First key and the one after the last.
        q_len: Number of queries of the whole grid.
        kv_len: Number of keys of the whole grid.
        align: ``top_left`` or ``bottom_right``.
        batch: Number of sequences.
        heads: Number of query heads.
        device: Where the grid is made.

    Returns:
        bool ``[batch, heads, rows, cols]``, True = may attend; batch or heads is 1 where the mask ignores it.

    Raises:
        ValueError: If a size is negative, the region does not lie in the grid, or the mask does not fit the batch.
    """
    _check_sizes(q_len, kv_len, batch, heads)
    for name, (start, stop), size in (("rows", rows, q_len), ("cols", cols, kv_len)):
        if not 0 <= start <= stop <= size:
            raise ValueError(f"{name} must lie within 0 to {size}, got {start} to {stop}")
    first = offset(q_len, kv_len, align)
    mask = mask.at(batch, kv_len)
    b = torch.arange(batch if mask.per_batch else 1, device=device)[:, None, None, None]
    h = torch.arange(heads if mask.per_head else 1, device=device)[None, :, None, None]
    q = torch.arange(rows[0] + first, rows[1] + first, device=device)[None, None, :, None]
    k = torch.arange(*cols, device=device)[None, None, None, :]
    return mask.rule(b, h, q, k).expand(len(b), h.shape[1], q.shape[2], k.shape[3])


def dense(
    mask: Mask,
    q_len: int,
    kv_len: int,
    *,
    align: str = "top_left",
    batch: int = 1,
    heads: int = 1,
    device: str | torch.device = "cpu",
) -> Tensor:
    """Give the mask's whole grid.

    Args:
        mask: The mask.
        q_len: Number of queries.
        kv_len: Number of keys.
        align: ``top_left`` or ``bottom_right``: where the queries stand when the two differ in number.
        batch: Number of sequences.
        heads: Number of query heads.
        device: Where the grid is made.

    Returns:
        bool ``[batch, heads, q_len, kv_len]``, True = may attend; batch or heads is 1 where the mask ignores it.

    Raises:
        ValueError: If a size is negative or the mask does not fit the batch.
    """
    _check_sizes(q_len, kv_len, batch, heads)
    fitted = mask.at(batch, kv_len)
    leading = (batch if fitted.per_batch else 1, heads if fitted.per_head else 1)
    grid = torch.empty((*leading, q_len, kv_len), dtype=torch.bool, device=device)
    step = max(1, _PIECE // max(1, leading[0] * leading[1] * kv_len))
    sizes = {"q_len": q_len, "kv_len": kv_len, "batch": batch, "heads": heads}
    for start in range(0, q_len, step):
        rows = (start, min(start + step, q_len))
        grid[:, :, rows[0] : rows[1]] = block(mask, rows, (0, kv_len), align=align, device=device, **sizes)
    return grid


def tile_state(mask: Mask, rows: Span, cols: Span, *, offset: int = 0) -> TileState:
    """Say what is known of a tile from the mask's band alone, without making the tile.

    Args:
        mask: The mask.
        rows: First query and the one after the last.
        cols: First key and the one after the last.
        offset: Where query 0 stands on the keys' axis.

    Returns:
        ``full`` or ``empty`` where that is certain, else ``partial``.
    """
    if rows[0] >= rows[1] or cols[0] >= cols[1]:
        return "empty"
    left, right = mask.band
    nearest_left = cols[0] - (rows[1] - 1 + offset)
    nearest_right = cols[1] - 1 - (rows[0] + offset)
    if (left is not None and nearest_right < -left) or (right is not None and nearest_left > right):
        return "empty"
    inside = (left is None or nearest_left >= -left) and (right is None or nearest_right <= right)
    return "full" if mask.exact and inside else "partial"


def _check_sizes(q_len: int, kv_len: int, batch: int, heads: int) -> None:
    for name, size in (("q_len", q_len), ("kv_len", kv_len), ("batch", batch), ("heads", heads)):
        if size < 0:
            raise ValueError(f"{name} must be at least 0, got {size}")


def _least(a: int | None, b: int | None) -> int | None:
    return min((x for x in (a, b) if x is not None), default=None)


def _most(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else max(a, b)


def _touch(a: Band, b: Band) -> bool:
    """Say whether two bands overlap or lie side by side, so that together they are one band."""

    def reaches(right: int | None, left: int | None) -> bool:
        return right is None or left is None or right + 1 >= -left

    return reaches(a[1], b[0]) and reaches(b[1], a[0])


def _join(
    a: Mask,
    b: Mask,
    again: Callable[[Mask, Mask], Mask],
    combine: Callable[[Tensor, Tensor], Tensor],
    band: Band,
    exact: bool,
) -> Mask:
    def rule(batch: Tensor, head: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        return combine(a.rule(batch, head, q_idx, kv_idx), b.rule(batch, head, q_idx, kv_idx))

    def fit(batch: int, kv_len: int) -> Mask:
        return again(a.at(batch, kv_len), b.at(batch, kv_len))

    fits = None if a.fit is None and b.fit is None else fit
    per_batch, per_head = a.per_batch or b.per_batch, a.per_head or b.per_head
    return Mask(rule, band, exact, per_batch, per_head, fits, a.work + b.work)
