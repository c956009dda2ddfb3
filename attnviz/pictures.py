"""Stages of a call as arrays to draw: any region, pooled where it is larger than the screen."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, max_pool2d

from attnviz.arrays import to_numpy
from attnviz.stages import MASKED, NO_KEY, STAGES, VALUE, Call, Fused, Rows, row_blocks

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


def _factor(length: int, max_side: int) -> int:
    return max(1, math.ceil(length / max_side))


def _pool(values: Tensor, pool: tuple[int, int], reduce: str) -> Tensor:
    """Pool ``[maps, rows, cols]``; windows that reach over the edge count only the cells there are."""
    if pool == (1, 1):
        return values
    pooled = max_pool2d if reduce == "max" else avg_pool2d
    return pooled(values[:, None], pool, ceil_mode=True)[:, 0]


class _Canvas:
    """Collect one request's maps from blocks of rows of any height, holding pooled cells only."""

    def __init__(self, request: Request, rows: tuple[int, int], cols: tuple[int, int]):
        self.request = replace(request, rows=rows, cols=cols)
        self.rows, self.cols = rows, cols
        self.pool = (_factor(rows[1] - rows[0], request.max_side), _factor(cols[1] - cols[0], request.max_side))
        self._waiting: list[tuple[Tensor, Tensor | None]] = []
        self._done: list[tuple[Tensor, Tensor | None]] = []
        self._empty_rows: list[Tensor] = []

    def add(self, values: Tensor, allowed: Tensor | None) -> None:
        """Take the next rows: values ``[maps, rows, cols]`` and, for stages behind the mask, which cells count."""
        values = values[..., self.cols[0] : self.cols[1]].to(torch.float32)
        if self.request.average:
            values = values.mean(0, keepdim=True)
        if allowed is not None:
            self._empty_rows.append(~allowed.any(-1))  # a row has no key when none is left outside the region either
            allowed = allowed[..., self.cols[0] : self.cols[1]]
            values = values.masked_fill(~allowed, -math.inf if self.request.reduce == "max" else 0.0)
            counts = _pool(allowed.to(torch.float32), (1, self.pool[1]), self.request.reduce)
        else:
            counts = None
        self._waiting.append((_pool(values, (1, self.pool[1]), self.request.reduce), counts))
        self._flush(last=False)

    def _flush(self, *, last: bool) -> None:
        """Pool the rows that are complete."""
        if not self._waiting:
            return
        values, counts = (_joined([pair[part] for pair in self._waiting], 1) for part in (0, 1))
        assert values is not None
        ready = values.shape[1] if last else values.shape[1] // self.pool[0] * self.pool[0]
        if ready:
            rows = (self.pool[0], 1)
            done = _pool(values[:, :ready], rows, self.request.reduce)
            self._done.append((done, None if counts is None else _pool(counts[:, :ready], rows, self.request.reduce)))
        rest = None if counts is None else counts[:, ready:]
        self._waiting = [(values[:, ready:], rest)] if ready < values.shape[1] else []

    def finish(self) -> Picture:
        """Give the picture once every row was added."""
        self._flush(last=True)
        values, counts = (_joined([pair[part] for pair in self._done], 1) for part in (0, 1))
        assert values is not None
        if counts is None:
            return Picture(self.request, to_numpy(values), None, self.pool)
        empty = _joined(self._empty_rows, 1)
        assert empty is not None
        if self.request.reduce == "mean":
            values = values / counts
        padded = _pool(empty[..., None].to(torch.float32).neg(), (self.pool[0], 1), "max")
        state = torch.where(counts > 0, VALUE, torch.where(padded < 0, NO_KEY, MASKED)).to(torch.uint8)
        values = values.masked_fill(counts == 0, 0.0)
        state = state.expand(values.shape)
        return Picture(self.request, to_numpy(values), to_numpy(state), self.pool, int(empty.sum(-1).max()))


def _joined(parts: list[Tensor | None] | list[Tensor], dim: int) -> Tensor | None:
    present = [part for part in parts if part is not None]
    if not present:
        return None
    return present[0] if len(present) == 1 else torch.cat(present, dim)


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
    pending = [c for c in canvases if STAGES[c.request.stage].rows == "query" and c.request.stage != "query"]
    seconds, blocks = (0.0 if ran is None else ran.seconds), 0
    if pending:
        heads = tuple(sorted({head for canvas in pending for head in canvas.request.heads}))
        span = (min(c.rows[0] for c in pending), max(c.rows[1] for c in pending))
        for rows in row_blocks(call, heads, span, ran):
            blocks += 1
            seconds += rows.seconds if ran is None else 0.0
            for canvas in pending:
                _add_rows(canvas, rows, heads)
    for canvas in canvases:
        if canvas not in pending:
            _add_projection(canvas, call)
    return Drawn(tuple(canvas.finish() for canvas in canvases), seconds, blocks)


def _canvas(call: Call, request: Request) -> _Canvas:
    stage = STAGES[request.stage]
    rows = call.q_len if stage.rows == "query" else call.kv_len
    width = call.value.shape[-1] if stage.key in ("value", "output") else call.query.shape[-1]
    cols = call.kv_len if stage.cols == "key" else width
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
    """Hand Q, K or V to a canvas; a KV head is drawn for each query head that reads it."""
    tensor = {"query": call.query, "key": call.key, "value": call.value}[canvas.request.stage]
    group = call.heads // tensor.shape[1]
    chosen = [head // group for head in canvas.request.heads]
    canvas.add(tensor[0, chosen, canvas.rows[0] : canvas.rows[1]], None)
