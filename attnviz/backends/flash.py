"""Attention tile by tile with an online softmax: the method of FlashAttention in plain PyTorch, one step at a time.

For each block of queries the keys come by in tiles. With m the running maximum, l the running sum and o the running
output, a tile of scores s and its values v change them to

    m' = max(m, max s),   l' = l · exp(m - m') + Σ exp(s - m'),   o' = o · exp(m - m') + exp(s - m') · v

and at the end the output is o / l and the log-sum-exp m + log l. No [q_len, kv_len] matrix ever exists.
"""

from collections import deque
from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from attnviz.backends.base import Backend, CoreOutput, Pass
from attnviz.backends.call import Call, Span, check, group
from attnviz.backends.tiles import Tile, blocks, tiles
from attnviz.config import Shape
from attnviz.ledger import Ledger
from attnviz.masks import Mask
from attnviz.score_mods import LateBias
from attnviz.text import Refusal, Text

TILE = _ROWS, _COLS = 256, 256
_NO_GRADIENT = Text(
    "backend flash computes no gradients: call it under torch.no_grad(), or take eager or sdpa.",
    "flash 后端不计算梯度：请在 torch.no_grad() 下调用，或改用 eager、sdpa。",
)
_TILE = Text(
    "tile must be two whole numbers of at least 1, got {tile}.", "tile 应为两个不小于 1 的整数，收到的是 {tile}。"
)
_WITHIN = Text(
    "rows must be a first query and a later one to stop before, within 0 to {size}, got {rows}.",
    "rows 应为 0 到 {size} 之间先小后大的两个位置，收到的是 {rows}。",
)


class Step(NamedTuple):
    """Hold the state after one tile. The tensors are the running ones: valid until the next step; copy to keep.

    Args:
        rows: First query of the tile and the one after the last.
        cols: First key and the one after the last.
        state: ``full`` (every cell counts) or ``partial`` (some are masked).
        exponentials: exp(score - maximum) of the tile's cells, 0 where masked.
        maximum: Running maximum of each row; -inf while it has seen no key.
        total: Running sum of exponentials, relative to ``maximum``.
        output: Running weighted sum of values, not yet divided by ``total``.
        read: Bytes of query, key and value that the tile took from slow memory, see ``Tile``.
    """

    rows: Span
    cols: Span
    state: str
    exponentials: Float[Tensor, "batch heads rows cols"]
    maximum: Float[Tensor, "batch heads rows"]
    total: Float[Tensor, "batch heads rows"]
    output: Float[Tensor, "batch heads rows value_width"]
    read: int


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    allowed: Tensor | Mask | None = None,
    align: str = "top_left",
    bias: Tensor | LateBias | None = None,
    scale: float | None = None,
    softcap: float | None = None,
) -> CoreOutput:
    """Compute attention by running through ``trace``, so that what is drawn is what is computed.

    Args:
        query: [batch, heads, q_len, head_dim].
        key: [batch, kv_heads, kv_len, head_dim]; kv_heads divides heads.
        value: [batch, kv_heads, kv_len, value width].
        allowed: Mask, or bool broadcastable to [batch, heads, q_len, kv_len]; True = may attend; None = everything.
        align: Where query 0 of a ``Mask`` stands when q_len ≠ kv_len: ``top_left`` or ``bottom_right``.
        bias: Float, broadcastable likewise; -inf means "not allowed". Or a ``LateBias``, asked for tile by tile.
        scale: Factor of the scores; None means 1/sqrt(head_dim).
        softcap: Bound c > 0 of the scores, c · tanh(score / c); None for none.

    Returns:
        Output and log-sum-exp; extra memory is one tile of scores and a few rows.

    Raises:
        Refusal: If an argument breaks a rule, or a gradient is asked for: this form has none.

    Source:
        Dao et al. 2022, algorithm 1, https://arxiv.org/abs/2205.14135; queries outside, keys inside as in
        Dao 2023, algorithm 1, https://arxiv.org/abs/2307.08691
    """
    call = check(query, key, value, allowed, align, bias, scale, softcap)
    dtype = torch.promote_types(query.dtype, torch.float32)
    output = query.new_zeros(*query.shape[:3], value.shape[3])
    logsumexp = query.new_full(query.shape[:3], float("-inf"), dtype=dtype)
    # Rows that no tile reaches keep 0 and -inf.
    for (start, stop), steps in groupby(_steps(call, _ROWS, _COLS), key=lambda step: step.rows):
        last = deque(steps, maxlen=1)[0]
        divisor = last.total.masked_fill(last.total == 0.0, 1.0)
        output[:, :, start:stop] = last.output / divisor[..., None]
        logsumexp[:, :, start:stop] = last.maximum + last.total.log()
    return CoreOutput(output, logsumexp=logsumexp, kernel=f"tiled {_ROWS} × {_COLS}")


def trace(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    allowed: Tensor | Mask | None = None,
    align: str = "top_left",
    bias: Tensor | LateBias | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    tile: tuple[int, int] = (_ROWS, _COLS),
    skip: bool = True,
    rows: Span | None = None,
) -> Iterator[Step]:
    """Give the state after each tile, block of queries by block of queries.

    Tiles without a cell that counts are left out: where the mask's band says so, before anything is made of them.

    Args:
        query: As in ``attend``, and so are all others.
        key: Keys.
        value: Values.
        allowed: Mask or bool tensor.
        align: Where query 0 of a ``Mask`` stands.
        bias: Additive scores.
        scale: Factor of the scores.
        softcap: Bound of the scores.
        tile: Queries and keys of a tile, each at least 1.
        skip: Whether tiles without a cell that counts are left out; without it they are computed like any other, to
            see what leaving them out is worth.
        rows: First query to walk through and the one after the last; None walks through all.

    Raises:
        Refusal: As in ``attend``, or if ``tile`` is not two numbers of at least 1, or ``rows`` no part of the queries.
    """
    call = _checked_walk(check(query, key, value, allowed, align, bias, scale, softcap), tile, rows)
    return _steps(call, *tile, skip=skip, within=rows)


def plan(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    allowed: Tensor | Mask | None = None,
    align: str = "top_left",
    tile: tuple[int, int] = (_ROWS, _COLS),
    skip: bool = True,
) -> Iterator[Tile]:
    """Give the tiles that ``trace`` visits with the same arguments, in its order, without computing anything of them.

    Raises:
        Refusal: As in ``trace``.
    """
    call = _checked_walk(check(query, key, value, allowed, align, None, None, None), tile, None)
    return (one for rows in blocks(call, tile[0]) for one in tiles(call, rows, tile[1], skip))


def _checked_walk(call: Call, tile: tuple[int, int], rows: Span | None) -> Call:
    """Refuse a tile without a size, and rows that are not there."""
    if len(tile) != 2 or min(tile) < 1:
        raise Refusal(_TILE.fill(tile=tile))
    if rows is not None and not 0 <= rows[0] < rows[1] <= call.query.shape[2]:
        raise Refusal(_WITHIN.fill(rows=rows, size=call.query.shape[2]))
    return call


def _steps(
    call: Call, tile_rows: int, tile_cols: int, *, skip: bool = True, within: Span | None = None
) -> Iterator[Step]:
    """Check that no gradient is wanted, now and not at the first step, and give the steps."""
    if torch.is_grad_enabled() and any(
        isinstance(tensor, Tensor) and tensor.requires_grad for tensor in (call.query, call.key, call.value, call.bias)
    ):
        raise Refusal(_NO_GRADIENT)
    return _walk(call, tile_rows, tile_cols, skip, within)


@torch.no_grad()
def _walk(call: Call, tile_rows: int, tile_cols: int, skip: bool, within: Span | None) -> Iterator[Step]:
    """Go through the tiles; scores are computed in float32, or float64 for float64 input."""
    batch, heads = call.query.shape[:2]
    _, kv_heads, kv_len, value_width = call.value.shape
    dtype = torch.promote_types(call.query.dtype, torch.float32)
    # Batch and KV head in one axis, for bmm; the queries of the heads that share a KV head are stacked as its rows.
    key = call.key.to(dtype).flatten(0, 1).transpose(1, 2)
    value = call.value.to(dtype).flatten(0, 1)
    for rows in blocks(call, tile_rows, within):
        shape = (batch, heads, rows[1] - rows[0])
        query = group(call.query[:, :, rows[0] : rows[1]].to(dtype) * call.scale, kv_heads).flatten(0, 1)
        scratch = query.new_empty(len(key) * query.shape[1] * min(tile_cols, kv_len))
        maximum = query.new_full((*query.shape[:2], 1), float("-inf"))
        total = query.new_zeros(maximum.shape)
        output = query.new_zeros((*query.shape[:2], value_width))
        for _, cols, keep, bias, read in tiles(call, rows, tile_cols, skip):
            cells = scratch[: query.shape[0] * query.shape[1] * (cols[1] - cols[0])].view(*query.shape[:2], -1)
            torch.bmm(query, key[..., cols[0] : cols[1]], out=cells)
            _adjust(cells.view(*shape, -1), call.softcap, keep, bias)
            _absorb(cells, value[:, cols[0] : cols[1]], maximum, total, output)
            state = "full" if keep is None else "partial"
            running = (cells.view(*shape, -1), maximum.view(shape), total.view(shape), output.view(*shape, -1))
            yield Step(rows, cols, state, *running, read)


def _adjust(
    cells: Float[Tensor, "batch heads rows cols"], softcap: float | None, keep: Tensor | None, bias: Tensor | None
) -> None:
    """Put softcap, bias and mask on a tile of scores, in place."""
    if softcap is not None:
        cells.div_(softcap).tanh_().mul_(softcap)
    if bias is not None:
        cells.add_(bias)
    if keep is not None:
        cells.masked_fill_(~keep, float("-inf"))


def _absorb(
    cells: Float[Tensor, "groups rows cols"],
    value: Float[Tensor, "groups cols value_width"],
    maximum: Float[Tensor, "groups rows 1"],
    total: Float[Tensor, "groups rows 1"],
    output: Float[Tensor, "groups rows value_width"],
) -> None:
    """Take a tile of scores into the running state; all in place, and the scores become exponentials."""
    higher = torch.maximum(maximum, cells.amax(-1, keepdim=True))
    # A row that has seen no key has maximum -inf, and -inf - -inf is NaN: measure it from 0 instead.
    origin = higher.masked_fill(torch.isneginf(higher), 0.0)
    cells.sub_(origin).exp_()
    shrink = maximum.sub_(origin).exp_()
    total.mul_(shrink).add_(cells.sum(-1, keepdim=True))
    torch.baddbmm(output.mul_(shrink), cells, value, out=output)
    maximum.copy_(higher)


def _peak_bytes(shape: Shape, itemsize: int, masked: bool) -> int:
    """Predict the call's peak: the results, and three blocks of queries (this one, the next, the one just written out).

    Mask and bias are read tile by tile and count for nothing.
    """
    size, width = max(4, itemsize), shape.value[3]
    heads = shape.batch * shape.heads
    results = heads * shape.q_len * (width * itemsize + size)
    state = min(3 * _ROWS, shape.q_len) * (min(_COLS, shape.kv_len) + width + 2)
    own = min(_ROWS, shape.q_len) * (shape.head_dim + 4)
    widened = 0 if itemsize == size else shape.batch * shape.kv_heads * shape.kv_len * (shape.head_dim + width)
    return results + size * (heads * (state + own) + widened)


def _forward(ledger: Ledger, given: Pass) -> None:
    """Take what a pass takes: the results, which are left, and for a while the rest of the predicted peak."""
    # Keys of several sequences are copied to lie head by head; those of shorter numbers are made wide in any case.
    given.take_copies(ledger, "key_copy", "value_copy")
    ledger.touch(_peak_bytes(given.shape, given.itemsize, given.masked))
    ledger.drop("key_copy", "value_copy")
    ledger.take(output=given.output, logsumexp=given.rows * max(4, given.itemsize))


FLASH = Backend(
    "flash",
    Text("Flash (own tiles)", "Flash（自己实现的分块）"),
    Text(
        "Goes through tiles with a running maximum and sum, in plain PyTorch: memory grows with length, not length².",
        "用普通 PyTorch 逐块计算，维护当前最大值与和：内存随长度线性增长，而非平方。",
    ),
    "https://arxiv.org/abs/2205.14135",
    attend,
    _peak_bytes,
    forward=_forward,
)
