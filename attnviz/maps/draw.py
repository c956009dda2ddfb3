"""Streamed attention maps: any region, pooled to the size of a screen, in memory of one block of query rows."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from attnviz.arrays import to_numpy
from attnviz.config import check_divides
from attnviz.maps.pooling import Total, cell_counts, factors, pool_axis, pool_cells
from attnviz.maps.rows import Job, Span, blocks, compute
from attnviz.masks import Mask
from attnviz.score_mods import ScoreMod
from attnviz.text import Refusal, Text, same

STAGES = ("scores", "scaled", "masked", "weights")
VALUE, MASKED, NO_KEY = 0, 1, 2
MAX_SIDE = 1024

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
    _check(stage, query, key, batch, allowed, max_side, reduce)
    chosen, kv = _choose(heads, query, key)
    job = Job(
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


def _check(
    stage: str, query: Tensor, key: Tensor, batch: int, allowed: Tensor | Mask | None, max_side: int, reduce: str
) -> None:
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


def _draw(job: Job, max_side: int, reduce: str) -> PooledMap:
    """Compute block by block and keep pooled cells only."""
    height, width = job.rows[1] - job.rows[0], job.cols[1] - job.cols[0]
    pool = factors(height, width, max_side)
    is_max = reduce == "max"
    merge, fill = (torch.amax, -math.inf) if is_max else (torch.sum, 0.0)
    values, counts, keyed = (Total(math.ceil(height / pool[0]), is_max) for _ in range(3))
    for span in blocks(job, pool[0]):
        part, keep, has_key = compute(job, span)
        first = (span[0] - job.rows[0]) // pool[0]
        if keep is not None and has_key is not None:
            if job.stage == "masked":
                part = part.masked_fill_(~keep, fill)
            kept = pool_cells(keep, pool, merge)
            counts.add(kept if is_max else kept.to(torch.float32), first)
            keyed.add(pool_axis(has_key, 1, pool[0], torch.amax), first)
        values.add(pool_cells(part, pool, merge).to(torch.float32), first)
    mapped = values.cells
    if not job.is_masked:
        if not is_max and pool != (1, 1):
            mapped = mapped / cell_counts((height, width), pool, mapped.device)
        return PooledMap(to_numpy(mapped), None, pool)
    # A mask that ignores the heads has one grid for all of them: so has what was pooled of it.
    empty = counts.cells == 0
    if not is_max:
        mapped = mapped / counts.cells.masked_fill(empty, 1.0)
    elif job.stage == "masked":
        mapped = mapped.masked_fill(empty, 0.0)
    state = empty.to(torch.uint8) + (empty & (keyed.cells[..., None] == 0)).to(torch.uint8)
    return PooledMap(to_numpy(mapped), np.broadcast_to(to_numpy(state), mapped.shape), pool)


def _refuse(name: str, rule: Text, value: object) -> Refusal:
    return Refusal(_BAD.fill(name=same(name), rule=rule, value=same(str(value))))
