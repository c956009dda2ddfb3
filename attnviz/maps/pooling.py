"""Pooling of maps that are larger than the screen, as their rows come block by block."""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor


def factors(height: int, width: int, max_side: int) -> tuple[int, int]:
    """Give how many rows and columns a drawn cell must stand for so that no side exceeds ``max_side``."""
    return math.ceil(height / max_side), math.ceil(width / max_side)


def pool_cells(cells: Tensor, factor: tuple[int, int], reduce: Callable[..., Tensor]) -> Tensor:
    """Pool ``[heads, rows, cols]``, rows first: that way runs of memory are reduced, which is several times faster."""
    return pool_axis(pool_axis(cells, 1, factor[0], reduce), 2, factor[1], reduce)


def pool_axis(cells: Tensor, axis: int, factor: int, reduce: Callable[..., Tensor]) -> Tensor:
    """Reduce runs of ``factor`` cells along an axis; the last run may be shorter."""
    if cells.dtype == torch.bool:
        cells = cells.view(torch.uint8)
    if factor == 1:
        return cells
    length = cells.shape[axis]
    whole = length // factor * factor
    parts = []
    if whole:
        parts.append(reduce(cells.narrow(axis, 0, whole).unflatten(axis, (-1, factor)), axis + 1))
    if whole < length:
        parts.append(reduce(cells.narrow(axis, whole, length - whole), axis, keepdim=True))
    return parts[0] if len(parts) == 1 else torch.cat(parts, axis)


def cell_counts(size: tuple[int, int], factor: tuple[int, int], device: torch.device) -> Float[Tensor, "rows cols"]:
    """Count the cells that each pooled cell stands for."""
    rows, cols = (
        (length - torch.arange(0, length, step, device=device)).clamp(max=step).to(torch.float32)
        for length, step in zip(size, factor, strict=True)
    )
    return torch.outer(rows, cols)


class Total:
    """Collect pooled rows; blocks inside one pooled row are merged into it."""

    def __init__(self, rows: int, is_max: bool):
        self.rows, self.is_max = rows, is_max
        self._cells: Tensor | None = None

    @property
    def cells(self) -> Tensor:
        """What was collected, ``[heads, rows, ...]``."""
        assert self._cells is not None
        return self._cells

    def add(self, part: Tensor, first: int) -> None:
        """Take pooled rows ``[heads, some, ...]`` that begin at pooled row ``first``."""
        if self._cells is None and part.shape[1] == self.rows:
            self._cells = part
            return
        if self._cells is None:
            lowest = -math.inf if self.is_max and part.is_floating_point() else 0
            self._cells = part.new_full((part.shape[0], self.rows, *part.shape[2:]), lowest)
        target = self._cells[:, first : first + part.shape[1]]
        torch.maximum(target, part, out=target) if self.is_max or not part.is_floating_point() else target.add_(part)
