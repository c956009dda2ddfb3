"""Streamed attention maps: any region, pooled to the size of a screen, in memory of one block of query rows."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnviz.arrays import to_numpy
from attnviz.backends import BACKENDS
from attnviz.backends.eager import score
from attnviz.config import check_divides
from attnviz.masks import Mask, block
from attnviz.score_mods import ScoreMod, Terms
from attnviz.text import Refusal, Text, same

Span = tuple[int, int]

STAGES = ("scores", "scaled", "masked", "weights")
VALUE, MASKED, NO_KEY = 0, 1, 2
MAX_SIDE = 1024
# Cells of scores held at once; 2^21 of them are 8 MiB in float32, and a few such blocks live together.
BLOCK_CELLS = 2**21

_BAD = Text("{name} must be {rule}, got {value}.", "{name} 应为{rule}，收到的是 {value}。")
_ONE_OF = Text("one of {options}", "以下之一：{options}")
_REGION = Text("a start and a later stop within 0 to {size}", " 0 到 {size} 之间先小后大的两个位置")
_INDEX = Text("from 0 to {last}", " 0 到 {last}")
_AXES = Text("a tensor with axes [batch, heads, length, head_dim]", "张量，各轴为 [批, 头, 长度, head_dim]")
_BOOL = Text("a Mask or a boolean tensor in which True means 'may attend'", " Mask 或布尔张量（True 表示允许关注）")
_SIDE = Text("at least 1", "不小于 1 的数")
_HEADS = Text("at least one head", "至少一个头")


class PooledMap(NamedTuple):
    """Hold the maps of some heads.

    ``values`` is float32 ``[heads, rows, cols]``, 0 where there is none. ``state`` is uint8 of the same shape: 0 for a
    value, 1 where every cell is masked, 2 where no row has a key; None where every cell has a value. ``pool`` says how
    many query rows and key columns one drawn cell stands for.
    """

    values: np.ndarray
    state: np.ndarray | None
    pool: tuple[int, int]


@dataclass(frozen=True)
class _Job:
    """Hold what to compute of one sequence: query and key are ``[1, heads, length, width]`` of the chosen heads."""

    stage: str
    query: Tensor
    key: Tensor
    heads: Sequence[int]
    all_heads: int
    place: tuple[int, int]
    allowed: Tensor | Mask | None
    align: str
    scale: float
    score_mod: ScoreMod | None
    logsumexp: Tensor | None
    rows: Span
    cols: Span

    @property
    def is_masked(self) -> bool:
        """Cells can be without a value."""
        return self.stage in ("masked", "weights") and self.allowed is not None

    @property
    def softmax(self) -> bool:
        """Whole rows are needed, whatever the region."""
        return self.stage == "weights" and self.logsumexp is None


def attention_map(
    query: Tensor,
    key: Tensor,
    *,
    head: int = 0,
    allowed: Tensor | Mask | None = None,
    align: str = "top_left",
    scale: float | None = None,
    rows: Span | None = None,
    cols: Span | None = None,
    max_side: int = MAX_SIDE,
    reduce: str = "max",
) -> tuple[np.ndarray, tuple[int, int]]:
    """Give the attention weights of one head, or a region of them, without ever holding q_len × kv_len.

    Args:
        query: ``[batch, heads, q_len, head_dim]``; the first sequence is drawn.
        key: ``[batch, kv_heads, kv_len, head_dim]``.
        head: Query head.
        allowed: Mask, or bool broadcastable to ``[batch, heads, q_len, kv_len]``; True = may attend.
        align: ``top_left`` or ``bottom_right``.
        scale: Factor of the scores; None means 1/sqrt(head_dim).
        rows: First query of the region and the one after the last; None is all.
        cols: First key and the one after the last.
        max_side: A region with a longer side is pooled, one that fits is exact.
        reduce: ``max`` or ``mean`` of the allowed cells that a drawn cell stands for.

    Returns:
        float32 ``[rows, cols]`` and how many query rows and key columns one cell stands for.

    Raises:
        Refusal: If an argument breaks a rule; names the argument, the rule and the value received.
    """
    drawn = stage_map(
        "weights",
        query,
        key,
        heads=(head,),
        allowed=allowed,
        align=align,
        scale=scale,
        rows=rows,
        cols=cols,
        max_side=max_side,
        reduce=reduce,
    )
    return drawn.values[0], drawn.pool


def stage_map(
    stage: str,
    query: Tensor,
    key: Tensor,
    *,
    heads: Sequence[int] = (0,),
    batch: int = 0,
    allowed: Tensor | Mask | None = None,
    align: str = "top_left",
    scale: float | None = None,
    score_mod: ScoreMod | None = None,
    logsumexp: Tensor | None = None,
    rows: Span | None = None,
    cols: Span | None = None,
    max_side: int = MAX_SIDE,
    reduce: str = "max",
) -> PooledMap:
    """Give one stage of attention for some heads, or a region of it, pooled where it is larger than ``max_side``.

    Weights come from the eager backend, block by block of query rows; with ``logsumexp`` they are exp(scores −
    logsumexp), which is what a fused backend weighed the values with.

    Args:
        stage: ``scores`` (QKᵀ), ``scaled`` (after scale, softcap and bias), ``masked`` (the same where allowed) or
            ``weights``.
        query: ``[batch, heads, q_len, head_dim]``.
        key: ``[batch, kv_heads, kv_len, head_dim]``.
        heads: Query heads to draw.
        batch: Sequence to draw.
        allowed: As for ``attention_map``.
        align: ``top_left`` or ``bottom_right``.
        scale: Factor of the scores; None means 1/sqrt(head_dim).
        score_mod: Change of the scores before the mask, or None.
        logsumexp: ``[batch, heads, q_len]`` of a fused backend, or None.
        rows: First query of the region and the one after the last; None is all.
        cols: First key and the one after the last.
        max_side: Largest side of a map that is drawn cell by cell.
        reduce: ``max`` or ``mean``; masked cells are left out.

    Raises:
        Refusal: If an argument breaks a rule; names the argument, the rule and the value received.
    """
    if stage not in STAGES:
        raise _refuse("stage", _ONE_OF.fill(options=", ".join(STAGES)), repr(stage))
    if reduce not in ("max", "mean"):
        raise _refuse("reduce", _ONE_OF.fill(options="max, mean"), repr(reduce))
    if max_side < 1:
        raise _refuse("max_side", _SIDE, max_side)
    for name, tensor in (("query", query), ("key", key)):
        if tensor.dim() != 4:
            raise _refuse(name, _AXES, list(tensor.shape))
    if not 0 <= batch < query.shape[0]:
        raise _refuse("batch", _INDEX.fill(last=query.shape[0] - 1), batch)
    if isinstance(allowed, Tensor) and allowed.dtype != torch.bool:
        raise _refuse("allowed", _BOOL, allowed.dtype)
    chosen, kv = _choose(heads, query, key)
    job = _Job(
        stage,
        query[batch : batch + 1, chosen],
        key[batch : batch + 1, kv],
        heads,
        query.shape[1],
        (batch, query.shape[0]),
        None if isinstance(allowed, Mask) and allowed.is_full else allowed,
        align,
        query.shape[3] ** -0.5 if scale is None else scale,
        score_mod,
        None if logsumexp is None else logsumexp[batch : batch + 1, chosen],
        _region("rows", rows, query.shape[2]),
        _region("cols", cols, key.shape[2]),
    )
    return _draw(job, max_side, reduce)


def _choose(heads: Sequence[int], query: Tensor, key: Tensor) -> tuple[slice | list[int], slice | list[int]]:
    """Give the index of the chosen query heads and of the KV head that each of them uses; all heads are not copied."""
    count, kv_heads = query.shape[1], key.shape[1]
    if not heads:
        raise _refuse("heads", _HEADS, "[]")
    for head in heads:
        if not 0 <= head < count:
            raise _refuse("head", _INDEX.fill(last=count - 1), head)
    check_divides("kv_heads", kv_heads, "heads", count)
    if list(heads) == list(range(count)):
        return slice(None), slice(None)
    if len(heads) == 1:
        shared = heads[0] // (count // kv_heads)
        return slice(heads[0], heads[0] + 1), slice(shared, shared + 1)
    return list(heads), [head // (count // kv_heads) for head in heads]


def _region(name: str, span: Span | None, size: int) -> Span:
    start, stop = span or (0, size)
    if not 0 <= start < stop <= size:
        raise _refuse(name, _REGION.fill(size=size), span)
    return start, stop


def _draw(job: _Job, max_side: int, reduce: str) -> PooledMap:
    """Compute block by block and keep pooled cells only."""
    height, width = job.rows[1] - job.rows[0], job.cols[1] - job.cols[0]
    pool = (math.ceil(height / max_side), math.ceil(width / max_side))
    is_max = reduce == "max"
    merge, fill = (torch.amax, -math.inf) if is_max else (torch.sum, 0.0)
    values, counts, keyed = (_Total(math.ceil(height / pool[0]), is_max) for _ in range(3))
    for span in _blocks(job, pool[0]):
        part, keep, has_key = _compute(job, span)
        first = (span[0] - job.rows[0]) // pool[0]
        if keep is not None and has_key is not None:
            if job.stage == "masked":
                part = part.masked_fill_(~keep, fill)
            kept = _pool(keep, pool, merge)
            counts.add(kept if is_max else kept.to(torch.float32), first)
            keyed.add(_pool_axis(has_key, 1, pool[0], torch.amax), first)
        values.add(_pool(part, pool, merge).to(torch.float32), first)
    mapped = values.cells
    if not job.is_masked:
        if not is_max and pool != (1, 1):
            mapped = mapped / _cells((height, width), pool, mapped.device)
        return PooledMap(to_numpy(mapped), None, pool)
    # A mask that ignores the heads has one grid for all of them: so has what was pooled of it.
    empty = counts.cells == 0
    if not is_max:
        mapped = mapped / counts.cells.masked_fill(empty, 1.0)
    elif job.stage == "masked":
        mapped = mapped.masked_fill(empty, 0.0)
    state = empty.to(torch.uint8) + (empty & (keyed.cells[..., None] == 0)).to(torch.uint8)
    return PooledMap(to_numpy(mapped), np.broadcast_to(to_numpy(state), mapped.shape), pool)


class _Total:
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


def _blocks(job: _Job, pool: int) -> Iterator[Span]:
    """Cut the rows so that a block holds whole pooled rows or lies inside one."""
    cols = job.key.shape[2] if job.softmax else job.cols[1] - job.cols[0]
    most = max(1, BLOCK_CELLS // (len(job.heads) * cols))
    # Either some pooled rows at a time, or one pooled row in several parts.
    outer, step = (most // pool * pool, most // pool * pool) if most >= pool else (pool, most)
    for start in range(*job.rows, outer):
        stop = min(start + outer, job.rows[1])
        for inner in range(start, stop, step):
            yield inner, min(inner + step, stop)


def _compute(job: _Job, rows: Span) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Give the region's values of some rows, ``[heads, rows, cols]``, which cells count, and which rows have a key."""
    everything = (0, job.key.shape[2])
    keep = has_key = grid = None
    if job.is_masked:
        grid = _grid(job, rows)
        has_key = grid.any(-1)[0]
        keep = grid[0, ..., job.cols[0] : job.cols[1]]
    query = job.query[:, :, rows[0] : rows[1]]
    if job.softmax:
        bias, softcap, factor = _terms(job, rows, everything)
        # The values only ride along: one number per key.
        core = BACKENDS["eager"].attend(
            query, job.key, job.key[..., :1], allowed=grid, bias=bias, scale=job.scale * factor, softcap=softcap
        )
        assert core.weights is not None
        return core.weights[0, ..., job.cols[0] : job.cols[1]], keep, has_key
    key = job.key[:, :, job.cols[0] : job.cols[1]]
    if job.stage == "scores":
        return score(query, key, None, 1.0, None)[0], None, None
    bias, softcap, factor = _terms(job, rows, job.cols)
    scaled = score(query, key, bias, job.scale * factor, softcap)[0]
    if job.stage != "weights":
        return scaled, keep, has_key
    assert job.logsumexp is not None
    lse = job.logsumexp[0, :, rows[0] : rows[1], None].to(torch.float32)
    # A row without a key has -inf and becomes inf: all of its cells are masked.
    weights = scaled.to(torch.float32).sub_(lse).exp_()
    return (weights if keep is None else weights.masked_fill_(~keep, 0.0)), keep, has_key


def _grid(job: _Job, rows: Span) -> Bool[Tensor, "one heads rows kv_len"]:
    """Give who may attend to whom in some rows, over every key: a row's being empty shows in no smaller region."""
    q_len, kv_len = job.query.shape[2], job.key.shape[2]
    if isinstance(job.allowed, Mask):
        batch, batches = job.place
        sizes = {"q_len": q_len, "kv_len": kv_len, "batch": batches, "heads": job.all_heads}
        grid = block(job.allowed, rows, (0, kv_len), align=job.align, device=job.query.device, **sizes)
    else:
        assert job.allowed is not None
        batch = job.place[0]
        grid = job.allowed[(None,) * (4 - job.allowed.dim())]
        grid = grid.expand(-1, -1, q_len, kv_len)[:, :, rows[0] : rows[1]]
    grid = grid[batch : batch + 1] if grid.shape[0] > 1 else grid
    return grid if grid.shape[1] == 1 else grid[:, list(job.heads)]


def _terms(job: _Job, rows: Span, cols: Span) -> Terms:
    if job.score_mod is None:
        return Terms(None, None, 1.0)
    sizes = (job.all_heads, job.query.shape[2], job.key.shape[2])
    terms = job.score_mod.terms(
        *sizes, align=job.align, rows=rows, cols=cols, dtype=job.query.dtype, device=job.query.device
    )
    return terms if terms.bias is None else terms._replace(bias=terms.bias[:, list(job.heads)])


def _pool(cells: Tensor, pool: tuple[int, int], reduce: Callable[..., Tensor]) -> Tensor:
    """Pool ``[heads, rows, cols]``, rows first: that way runs of memory are reduced, which is several times faster."""
    return _pool_axis(_pool_axis(cells, 1, pool[0], reduce), 2, pool[1], reduce)


def _pool_axis(cells: Tensor, axis: int, factor: int, reduce: Callable[..., Tensor]) -> Tensor:
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


def _cells(size: tuple[int, int], pool: tuple[int, int], device: torch.device) -> Float[Tensor, "rows cols"]:
    """Count the cells that each pooled cell stands for."""
    rows, cols = (
        (length - torch.arange(0, length, factor, device=device)).clamp(max=factor).to(torch.float32)
        for length, factor in zip(size, pool, strict=True)
    )
    return torch.outer(rows, cols)


def _refuse(name: str, rule: Text, value: object) -> Refusal:
    return Refusal(_BAD.fill(name=same(name), rule=rule, value=same(str(value))))
