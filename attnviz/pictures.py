"""Stages of a call as arrays to draw: any region, pooled where it is larger than the screen."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from attnviz.arrays import to_numpy
from attnviz.call import Call
from attnviz.maps.pooling import factors, pool_axis
from attnviz.stage_list import STAGES
from attnviz.stages import MASKED, NO_KEY, VALUE, Fused, Rows, row_blocks

MAX_SIDE = 1024


@dataclass(frozen=True)
class Request:
    """Ask for one stage of some heads.

    Args:
        stage: Key of ``STAGES``.
        heads: Query heads to draw, by index.
        max_side: Largest side of a drawn map; larger regions are pooled.
        reduce: ``max`` or ``mean``.
        average: Give the mean over the heads as one map instead of one map per head.
        rows: Region of the first axis, start and stop; None is all of it.
        cols: Region of the second axis.
    """

    stage: str
    heads: tuple[int, ...]
    max_side: int = MAX_SIDE
    reduce: str = "max"
    average: bool = False
    rows: tuple[int, int] | None = None
    cols: tuple[int, int] | None = None


@dataclass(frozen=True)
class Picture:
    """Hold the arrays of one request.

    Args:
        request: What was asked for, with its region filled in.
        values: float32 ``[maps, rows, cols]``.
        state: uint8 of the same shape, ``VALUE``, ``MASKED`` or ``NO_KEY``; None where every cell has a value.
        pool: How many cells of each axis a drawn cell stands for.
        no_key_rows: Rows of the region without a key, most of any drawn head.
    """

    request: Request
    values: np.ndarray
    state: np.ndarray | None
    pool: tuple[int, int]
    no_key_rows: int = 0


class _Windows:
    """Reduce cells in windows as their rows come, keeping no more than one unfinished row of windows.

    Args:
        pool: Rows and columns per window.
        op: ``max``, ``sum``, or ``extreme`` for the value farthest from 0 whatever its sign.
    """

    def __init__(self, pool: tuple[int, int], op: str):
        (self._size, self._width), self._op = pool, op
        self._reduce = {"max": torch.amax, "sum": torch.sum, "extreme": extreme}[op]
        self._done: list[Tensor] = []
        self._open: Tensor | None = None
        self._held = 0

    def add(self, block: Tensor) -> None:
        """Take the next rows, ``[maps, rows, cols]``."""
        if self._held:
            first = min(self._size - self._held, block.shape[1])
            self._join(self._reduce(block[:, :first], 1), first)
            block = block[:, first:]
        whole = block.shape[1] // self._size * self._size
        if whole:
            self._keep(pool_axis(block[:, :whole], 1, self._size, self._reduce))
        if whole < block.shape[1]:
            self._join(self._reduce(block[:, whole:], 1), block.shape[1] - whole)

    def _join(self, part: Tensor, rows: int) -> None:
        if self._open is not None:
            part = self._open + part if self._op == "sum" else self._reduce(torch.stack((self._open, part)), 0)
        self._open, self._held = part, self._held + rows
        if self._held == self._size:
            self._close()

    def _close(self) -> None:
        assert self._open is not None
        self._keep(self._open[:, None])
        self._open, self._held = None, 0

    def _keep(self, part: Tensor) -> None:
        # Columns last: there are fewer rows now. Not only at the end: rows of full width would be many bytes by then.
        self._done.append(pool_axis(part, 2, self._width, self._reduce))

    def finish(self) -> Tensor:
        """Give all windows, ``[maps, windows, windows]``."""
        if self._held:
            self._close()
        return self._done[0] if len(self._done) == 1 else torch.cat(self._done, 1)


def extreme(cells: Tensor, dim: int, keepdim: bool = False) -> Tensor:
    """Give the value farthest from 0 along an axis; NaN where there is one."""
    high, low = cells.amax(dim, keepdim), cells.amin(dim, keepdim)
    return torch.where(high < -low, low, high)


class _Canvas:
    """Collect one request's maps from blocks of rows of any height, holding pooled rows only."""

    def __init__(self, request: Request, rows: tuple[int, int], cols: tuple[int, int]):
        self.request = replace(request, rows=rows, cols=cols)
        self.rows, self.cols = rows, cols
        self.pool = factors(rows[1] - rows[0], cols[1] - cols[0], request.max_side)
        self._op = "max" if request.reduce == "max" else "sum"
        # The largest of many signed values would be positive throughout.
        signed = self._op == "max" and STAGES[request.stage].signed
        self._values = _Windows(self.pool, "extreme" if signed else self._op)
        self._counts = _Windows(self.pool, self._op)
        self._keyed = _Windows((self.pool[0], 1), "max")
        self._masked = False
        self._no_key_rows = torch.zeros(1, dtype=torch.int64)

    def add(self, values: Tensor, allowed: Tensor | None) -> None:
        """Take the next rows.

        Args:
            values: ``[maps, rows, all columns]``; where cells are not allowed, weights are 0.
            allowed: bool ``[maps | 1, rows, all columns]`` for stages behind the mask, else None.
        """
        values = values[..., self.cols[0] : self.cols[1]].to(torch.float32)
        if self.request.average:
            values, allowed = self._average(values, allowed)
        if allowed is not None:
            self._masked = True
            bits = allowed.contiguous().view(torch.uint8)  # reductions of bool are an order of magnitude slower
            keyed = bits.amax(-1, keepdim=True)  # over all keys: a row is empty only if no key is left anywhere
            self._keyed.add(keyed)
            self._no_key_rows = self._no_key_rows + (keyed == 0).sum((1, 2)).cpu()
            bits = bits[..., self.cols[0] : self.cols[1]]
            if self.request.stage != "weights":  # those are 0 there already, and never below
                values = torch.where(allowed[..., self.cols[0] : self.cols[1]], values, 0.0)
            self._counts.add(bits if self._op == "max" else bits.to(torch.float32))
        elif self._op == "sum":
            self._counts.add(torch.ones(1, values.shape[1], values.shape[2], device=values.device))
        self._values.add(values)

    def _average(self, values: Tensor, allowed: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Give the mean over the heads; scores count in those heads alone whose own masks let them."""
        if allowed is None or allowed.shape[0] == 1:
            return values.mean(0, keepdim=True), allowed
        if self.request.stage == "masked":
            counted = allowed[..., self.cols[0] : self.cols[1]]
            number = counted.sum(0, keepdim=True).clamp(min=1)
            return torch.where(counted, values, 0.0).sum(0, keepdim=True) / number, allowed.any(0, keepdim=True)
        return values.mean(0, keepdim=True), allowed.any(0, keepdim=True)

    def finish(self) -> Picture:
        """Give the picture once every row was added."""
        values = self._values.finish()
        if not self._masked and self._op == "max":
            return Picture(self.request, to_numpy(values), None, self.pool)
        counts = self._counts.finish()
        if self._op == "sum":
            values = values / counts
        if not self._masked:
            return Picture(self.request, to_numpy(values), None, self.pool)
        state = ((counts == 0).view(torch.uint8) * MASKED).expand(values.shape)
        keyed = self._keyed.finish()
        no_key_rows = int(self._no_key_rows.max())
        if no_key_rows:
            state = torch.where(keyed == 0, NO_KEY, state)
        if self.request.stage != "weights" or self._op == "sum":
            values = torch.where(state == VALUE, values, 0.0)
        return Picture(self.request, to_numpy(values), to_numpy(state), self.pool, no_key_rows)


class Drawn(NamedTuple):
    """Give the pictures in the order asked for, and the seconds that the attention itself took."""

    pictures: tuple[Picture, ...]
    seconds: float
    blocks: int


def draw(call: Call, requests: Sequence[Request], ran: Fused | None = None) -> Drawn:
    """Compute the stages asked for in one pass over the query rows.

    Memory is O(block + pictures): no L × L array is held unless it fits one block.

    Args:
        call: The attention call.
        requests: The pictures to make.
        ran: The fused result of the same call, if its backend is a fused one.
    """
    canvases = [_canvas(call, request) for request in requests]
    pending = [canvas for canvas in canvases if not STAGES[canvas.request.stage].given]
    seconds, blocks = (0.0 if ran is None else ran.seconds), 0
    if pending:
        heads = tuple(sorted({head for canvas in pending for head in canvas.request.heads}))
        span = (min(c.rows[0] for c in pending), max(c.rows[1] for c in pending))
        for rows in row_blocks(call, heads, span, ran):
            blocks += 1
            seconds += rows.seconds if ran is None else 0.0
            for canvas in pending:
                _add_rows(canvas, rows, heads)
            del rows  # else one block would still be held while the next is computed
    for canvas in canvases:
        if canvas not in pending:
            _add_projection(canvas, call)
    return Drawn(tuple(canvas.finish() for canvas in canvases), seconds, blocks)


def _canvas(call: Call, request: Request) -> _Canvas:
    rows, cols = call.extent(request.stage)
    return _Canvas(request, request.rows or (0, rows), request.cols or (0, cols))


def _add_rows(canvas: _Canvas, rows: Rows, heads: tuple[int, ...]) -> None:
    """Hand a block's rows to a canvas, cut to its region and its heads."""
    start, stop = max(rows.start, canvas.rows[0]), min(rows.stop, canvas.rows[1])
    if start >= stop:
        return
    cut = slice(start - rows.start, stop - rows.start)
    wanted = canvas.request.heads
    chosen = slice(None) if wanted == heads else [heads.index(head) for head in wanted]
    values = rows.stage(canvas.request.stage)[0][chosen, cut]
    if canvas.request.stage in ("masked", "weights"):
        allowed = rows.allowed[0, :, cut]
        canvas.add(values, allowed if allowed.shape[0] == 1 else allowed[chosen])
    elif canvas.request.stage == "output":
        has_key = rows.allowed[0, :, cut].any(-1, keepdim=True).expand(-1, -1, values.shape[-1])
        canvas.add(values, has_key if has_key.shape[0] == 1 else has_key[chosen])
    else:
        canvas.add(values, None)


def _add_projection(canvas: _Canvas, call: Call) -> None:
    """Hand a stage that is there already to a canvas; a KV head is drawn for each query head that reads it."""
    tensor = call.given(canvas.request.stage)
    group = call.heads // tensor.shape[1]
    chosen = [head // group for head in canvas.request.heads]
    canvas.add(tensor[0, chosen, canvas.rows[0] : canvas.rows[1]], None)
