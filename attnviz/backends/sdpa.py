"""Attention by torch's fused call, helped where it is weak: masks of known shape, shared KV heads, row statistics."""

from collections.abc import Iterator
from types import MappingProxyType
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from torch.nn.attention import SDPBackend

from attnviz.backends import eager, products
from attnviz.backends.base import Backend, CoreOutput, LateCoreOutput
from attnviz.backends.call import CPU, DTYPES, LEAST_CAUSAL_SCALE, Call, Span, check, group
from attnviz.backends.sdpa_memory import FEW_QUERIES, backward, forward, peak_bytes, plain_bytes, rows_at_once
from attnviz.masks import Mask, tile_state
from attnviz.score_mods import LateBias
from attnviz.text import Text

_NAMES = {
    SDPBackend.MATH.value: "math",
    SDPBackend.FLASH_ATTENTION.value: "flash",
    SDPBackend.EFFICIENT_ATTENTION.value: "efficient",
    SDPBackend.CUDNN_ATTENTION.value: "cudnn",
}
_FLASH = SDPBackend.FLASH_ATTENTION.value
_BLOCK_ROWS = 256  # queries per call where a mask is cut into row blocks
_WINDOW_ROWS = 64  # and where each query sees a window: fewer rows waste fewer cells at its edges
# What a boolean mask turns into, ready made: making the two numbers takes longer than a small mask's own pass.
_OPEN_SHUT = MappingProxyType(
    {dtype: (torch.zeros((), dtype=dtype), torch.tensor(float("-inf"), dtype=dtype)) for dtype in DTYPES}
)


class _Part(NamedTuple):
    """Hold what one fused call gives; ``logsumexp`` is None when its kernel keeps none."""

    output: Float[Tensor, "batch heads rows value_width"]
    logsumexp: Float[Tensor, "batch heads rows"] | None
    kernel: str


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
    """Compute attention by ``scaled_dot_product_attention`` and say which of its kernels ran.

    A causal ``Mask`` becomes ``is_causal``; any other ``Mask`` is cut into row blocks over the keys that they can see,
    so that no [q_len, kv_len] matrix exists. A few queries over shared KV heads are stacked over their KV head, which
    reads the cache once. Softcap, which torch's call lacks, is computed exactly by plain operations in row blocks.

    Args:
        query: [batch, heads, q_len, head_dim].
        key: [batch, kv_heads, kv_len, head_dim]; kv_heads divides heads.
        value: [batch, kv_heads, kv_len, value width].
        allowed: Mask, or bool broadcastable to [batch, heads, q_len, kv_len]; True = may attend; None = everything.
        align: Where query 0 of a ``Mask`` stands when q_len ≠ kv_len: ``top_left`` or ``bottom_right``.
        bias: Float, broadcastable likewise; -inf means "not allowed". Or a ``LateBias``, asked for block by block.
        scale: Factor of the scores; None means 1/sqrt(head_dim).
        softcap: Bound c > 0 of the scores, c · tanh(score / c); None for none.

    Returns:
        Output and log-sum-exp, without weights and scores. torch's CPU flash kernel returns the log-sum-exp in the same
        call (its 0 for a row without a key is corrected to -inf); for the other kernels it is worked out in row blocks
        when it is first read.

    Raises:
        Refusal: If an argument breaks a rule; names the argument, the rule and what was received.

    Source:
        https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html
    """
    call = check(query, key, value, allowed, align, bias, scale, softcap)
    if softcap is not None:
        return _capped(call)
    allowed = call.allowed
    is_rule = isinstance(allowed, Mask)
    causal = is_rule and call.bias is None and allowed.is_causal and call.offset == 0
    causal = causal and call.scale >= LEAST_CAUSAL_SCALE
    if not causal and (is_rule or isinstance(call.bias, LateBias)):
        return _in_blocks(call)
    mask = None if causal else _additive(call, (0, query.shape[2]), (0, key.shape[2]))
    part = _fused(call, query, key, value, mask, causal)
    if part.logsumexp is None:
        return LateCoreOutput(part.output, part.kernel, lambda: _statistics(call))
    return CoreOutput(part.output, logsumexp=part.logsumexp, kernel=part.kernel)


def _fused(call: Call, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool) -> _Part:
    """Run torch's call once; stack the queries of heads that share keys when there are few of them.

    Args:
        call: Gives the scale.
        query: Some rows of the query.
        key: The keys that they may see.
        value: Their values.
        mask: Additive, four axes, or None.
        causal: Whether ``is_causal`` stands for the mask.
    """
    batch, heads, q_len, _ = query.shape
    kv_heads = key.shape[1]
    packed = kv_heads != heads and q_len <= FEW_QUERIES and not causal
    if packed:
        query = group(query, kv_heads)
        mask = None if mask is None else _stack(mask, heads, kv_heads, q_len)
    if packed and mask is None and products.pay(query, key, value):
        output, lse = products.attend(query, key, value, call.scale)
        return _unpacked(_Part(output, lse, products.KERNEL), (batch, heads, q_len))
    shared = query.shape[1] != kv_heads
    choice = torch._fused_sdp_choice(query, key, value, mask, 0.0, causal, scale=call.scale, enable_gqa=shared)
    if choice == _FLASH and query.device.type in CPU:
        # The very kernel that F.scaled_dot_product_attention would run, by its own name, for its second result.
        output, lse = torch._scaled_dot_product_flash_attention_for_cpu(
            query, key, value, 0.0, causal, attn_mask=mask, scale=call.scale
        )
        if mask is not None:
            lse = _mark_empty(lse, mask)
    else:
        output = F.scaled_dot_product_attention(
            query, key, value, mask, 0.0, causal, scale=call.scale, enable_gqa=shared
        )
        lse = None
        if mask is not None and query.device.type not in CPU:
            # Only the CPU kernels are known (and tested) to give 0 by themselves in a row without a key.
            output = output.masked_fill(torch.isneginf(mask).all(-1, keepdim=True), 0.0)
    part = _Part(output, lse, _NAMES.get(choice, "fused"))
    return _unpacked(part, (batch, heads, q_len)) if packed else part


def _unpacked(part: _Part, shape: tuple[int, int, int]) -> _Part:
    """Give each query head its rows back."""
    output = part.output.reshape(*shape, part.output.shape[3])
    lse = None if part.logsumexp is None else part.logsumexp.reshape(shape)
    return _Part(output, lse, f"packed decode · {part.kernel}")


def _stack(mask: Tensor, heads: int, kv_heads: int, q_len: int) -> Tensor:
    """Give the additive mask of stacked queries; one that is the same for every row stays [batch | 1, 1, 1, kv_len]."""
    if mask.shape[1] == 1 and mask.shape[2] == 1:
        return mask
    spread = mask.expand(-1, heads, q_len, -1)
    return spread.reshape(mask.shape[0], kv_heads, heads // kv_heads * q_len, mask.shape[3])


def _additive(call: Call, rows: Span, cols: Span) -> Tensor | None:
    """Give mask and bias of a region as one additive mask with -inf where nothing may be seen, or None."""
    keep = call.keep(rows, cols)
    bias = call.added(rows, cols)
    if keep is None:
        return bias
    opened, shut = _OPEN_SHUT[call.query.dtype]
    return torch.where(keep, opened if bias is None else bias, shut)


def _mark_empty(lse: Tensor, mask: Tensor) -> Tensor:
    """Put -inf where no key is allowed; torch's CPU kernel reports 0 there.

    An exact 0 is rare elsewhere, so the mask is read only when there is one.
    """
    if torch.count_nonzero(lse).item() == lse.numel():
        return lse
    return lse.masked_fill(torch.isneginf(mask).all(-1), float("-inf"))


def _in_blocks(call: Call) -> CoreOutput:
    """Run the fused call on blocks of queries, each over the keys that it can see, without a [q_len, kv_len] matrix."""
    rule = call.allowed if isinstance(call.allowed, Mask) else None
    size = _BLOCK_ROWS if rule is None or None in rule.band else _WINDOW_ROWS
    if isinstance(call.bias, LateBias):
        size = min(size, _rows_at_once(call))
    parts: list[_Part] = []
    mask, known = None, None
    for rows in _row_blocks(call.query.shape[2], size):
        cols = call.visible(rows)
        if cols[0] == cols[1]:
            parts.append(_nothing(call, rows))
            continue
        # Two blocks of an exact band with the same size and the same step between first query and first key look alike.
        alike = (rows[1] - rows[0], cols[1] - cols[0], rows[0] - cols[0])
        if rule is None or not rule.exact or call.bias is not None or alike != known:
            clear = rule is not None and rule.exact and tile_state(rule, rows, cols, offset=call.offset) == "full"
            mask, known = _additive(call._replace(allowed=None) if clear else call, rows, cols), alike
        query = call.query[:, :, rows[0] : rows[1]]
        key, value = call.key[:, :, cols[0] : cols[1]], call.value[:, :, cols[0] : cols[1]]
        parts.append(_fused(call, query, key, value, mask, False))
    return _join(call, parts)


def _nothing(call: Call, rows: Span) -> _Part:
    """Give the answer of queries that no key can be seen from."""
    shape = (*call.query.shape[:2], rows[1] - rows[0])
    dtype = torch.promote_types(call.query.dtype, torch.float32)
    return _Part(
        call.query.new_zeros(*shape, call.value.shape[3]), call.query.new_full(shape, float("-inf"), dtype=dtype), ""
    )


def _join(call: Call, parts: list[_Part]) -> CoreOutput:
    """Put the row blocks together."""
    names = [part.kernel for part in parts if part.kernel] or ["nothing to see"]
    kernel = " + ".join(dict.fromkeys(names)) + (" · row blocks" if len(parts) > 1 else "")
    output = parts[0].output if len(parts) == 1 else torch.cat([part.output for part in parts], dim=2)
    statistics = [part.logsumexp for part in parts if part.logsumexp is not None]
    if len(statistics) < len(parts):
        return LateCoreOutput(output, kernel, lambda: _statistics(call))
    return CoreOutput(output, logsumexp=torch.cat(statistics, dim=2), kernel=kernel)


def _capped(call: Call) -> CoreOutput:
    """Compute a call with softcap by the reference's own steps, some rows at a time."""
    outputs, statistics = [], []
    for rows in _row_blocks(call.query.shape[2], _rows_at_once(call)):
        cols = call.visible(rows)
        if cols[0] == cols[1]:
            output, lse, _ = _nothing(call, rows)
        else:
            keep, bias = call.terms(rows, cols)
            key, value = call.key[:, :, cols[0] : cols[1]], call.value[:, :, cols[0] : cols[1]]
            query = call.query[:, :, rows[0] : rows[1]]
            output, _, _, lse = eager.compute(query, key, value, keep, bias, call.scale, call.softcap)
        outputs.append(output)
        statistics.append(lse)
    return CoreOutput(
        torch.cat(outputs, dim=2), logsumexp=torch.cat(statistics, dim=2), kernel="eager in row blocks (softcap)"
    )


def _statistics(call: Call) -> Float[Tensor, "batch heads q_len"]:
    """Work out the log-sum-exp some rows at a time, in float32 at least."""
    dtype = torch.promote_types(call.query.dtype, torch.float32)
    key = call.key.to(dtype)
    parts = []
    for rows in _row_blocks(call.query.shape[2], _rows_at_once(call)):
        cols = call.visible(rows)
        keep, bias = call.terms(rows, cols)
        query = call.query[:, :, rows[0] : rows[1]].to(dtype)
        scores = eager.score(query, key[:, :, cols[0] : cols[1]], bias, call.scale, None)
        parts.append(torch.logsumexp(scores if keep is None else torch.where(keep, scores, float("-inf")), -1))
    return torch.cat(parts, dim=2)


def _rows_at_once(call: Call) -> int:
    """Give how many queries fit the cells that plain operations may hold."""
    batch, heads = call.query.shape[:2]
    return rows_at_once(batch, heads, call.key.shape[2])


def _row_blocks(q_len: int, size: int) -> Iterator[Span]:
    """Give the blocks of queries in order."""
    for start in range(0, q_len, size):
        yield start, min(start + size, q_len)


SDPA = Backend(
    "sdpa",
    Text("SDPA (PyTorch's fused call)", "SDPA（PyTorch 融合实现）"),
    Text(
        "Calls torch's scaled_dot_product_attention, which picks a kernel; the page names the one that ran.",
        "调用 torch 的 scaled_dot_product_attention，由它选择内核；页面会写明实际运行的内核。",
    ),
    "https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html",
    attend,
    peak_bytes,
    kernel_bytes=MappingProxyType({"math": plain_bytes}),
    forward=forward,
    backward=backward,
)
