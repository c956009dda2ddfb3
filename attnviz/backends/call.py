"""What every backend is given: the arguments, checked in one place, and how to read mask and bias piece by piece."""

import math
from typing import NamedTuple, NoReturn

import torch
from jaxtyping import Float
from torch import Tensor

from attnviz.masks import ALIGNMENTS, Mask, block, offset
from attnviz.score_mods import LateBias
from attnviz.text import Refusal, Text, same

CPU = ("cpu", "meta")  # on blank tensors, which have no memory, a call takes the path that it takes on the CPU
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
# torch's fused call scales, in float32, behind its causal mask: only a scale that stays above 0 leaves -inf as it is.
LEAST_CAUSAL_SCALE = torch.finfo(torch.float32).tiny
Span = tuple[int, int]

_BAD = Text("{name} must be {rule}, got {value}.", "{name} 应为{rule}，收到的是 {value}。")
_AXES = Text(
    "float32, bfloat16, float16 or float64 with axes [batch, heads, length, head_dim]",
    " float32、bfloat16、float16 或 float64 张量，各轴为 [批, 头, 长度, head_dim]",
)
_FILLED = Text("at least 1 long on every axis", "每个轴的长度都至少为 1 的张量")
_KEY = Text(
    "[{batch}, kv_heads, kv_len, {width}] as query has it", "与 query 相符的 [{batch}, kv_heads, kv_len, {width}]"
)
_VALUE = Text(
    "[{batch}, {heads}, {length}, any width] as key has it", "与 key 相符的 [{batch}, {heads}, {length}, 任意宽度]"
)
_ALIKE = Text(
    "of the dtype and on the device of query ({dtype}, {device})", "与 query 同类型、同设备的张量（{dtype}，{device}）"
)
_DIVIDES = Text("a divisor of the {heads} query heads", "查询头数 {heads} 的约数")
_MASK = Text("a Mask or a boolean tensor in which True means 'may attend'", " Mask 或布尔张量（True 表示允许关注）")
_BIAS = Text("a floating-point tensor", "浮点张量")
_SPREADS = Text("broadcastable to {shape}", "可广播到 {shape} 的张量")
_ALIGN = Text("one of top_left, bottom_right", " top_left 或 bottom_right")
_SCALE = Text("a finite number or None", "有限数或 None")
_SOFTCAP = Text("a finite number above 0 or None", "大于 0 的有限数或 None")


class Call(NamedTuple):
    """Hold the checked arguments of one call; ``allowed`` and ``bias`` have four axes, any of size 1."""

    query: Tensor
    key: Tensor
    value: Tensor
    allowed: Tensor | Mask | None
    align: str
    bias: Tensor | LateBias | None
    scale: float
    softcap: float | None

    @property
    def offset(self) -> int:
        """Give the key position at which query 0 of a ``Mask`` stands."""
        return offset(self.query.shape[2], self.key.shape[2], self.align)

    def visible(self, rows: Span) -> Span:
        """Give the outermost keys that these queries can see, from the band of a ``Mask`` alone; may be empty."""
        kv_len = self.key.shape[2]
        if not isinstance(self.allowed, Mask):
            return 0, kv_len
        left, right = self.allowed.band
        first = 0 if left is None else max(0, rows[0] + self.offset - left)
        stop = kv_len if right is None else min(kv_len, rows[1] + self.offset + right)
        return min(first, kv_len), max(stop, min(first, kv_len))

    def keep(self, rows: Span, cols: Span) -> Tensor | None:
        """Give what ``allowed`` says of one region, or None when it allows everything.

        Args:
            rows: First query and the one after the last.
            cols: First key and the one after the last.

        Returns:
            bool [batch | 1, heads | 1, rows | 1, cols | 1].
        """
        allowed = self.allowed
        if isinstance(allowed, Mask):
            batch, heads, q_len, _ = self.query.shape
            return block(
                allowed,
                rows,
                cols,
                q_len=q_len,
                kv_len=self.key.shape[2],
                align=self.align,
                batch=batch,
                heads=heads,
                device=self.query.device,
            )
        return None if allowed is None else cut(allowed, rows, cols)

    def added(self, rows: Span, cols: Span) -> Tensor | None:
        """Give the bias of one region, [batch | 1, heads | 1, rows | 1, cols | 1], in the dtype of the query."""
        if isinstance(self.bias, LateBias):
            return self.bias.region(rows, cols).to(self.query.dtype)
        return None if self.bias is None else cut(self.bias, rows, cols)

    def terms(self, rows: Span, cols: Span) -> tuple[Tensor | None, Tensor | None]:
        """Give mask and bias of one region, with every -inf of the bias moved into the mask.

        Returns:
            bool [batch | 1, heads | 1, rows | 1, cols | 1] or None, and the finite bias, likewise, or None.
        """
        keep, bias = self.keep(rows, cols), self.added(rows, cols)
        if bias is None:
            return keep, None
        banned = torch.isneginf(bias)
        if banned.any():
            keep = ~banned if keep is None else keep & ~banned
            bias = bias.masked_fill(banned, 0.0)
        return keep, bias


def check(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    allowed: Tensor | Mask | None,
    align: str,
    bias: Tensor | LateBias | None,
    scale: float | None,
    softcap: float | None,
) -> Call:
    """Check the arguments of a call and fill in the default scale, 1/sqrt(head_dim).

    Raises:
        Refusal: If an argument breaks a rule; names the argument, the rule and what was received.
    """
    _check_inputs(query, key, value)
    batch, heads, q_len, width = query.shape
    if align not in ALIGNMENTS:
        _refuse("align", _ALIGN, repr(align))
    if scale is None:
        scale = 1.0 / math.sqrt(width)
    elif not _finite(scale):
        _refuse("scale", _SCALE, repr(scale))
    if softcap is not None and not (_finite(softcap) and softcap > 0):
        _refuse("softcap", _SOFTCAP, repr(softcap))
    if allowed is not None or bias is not None:
        shape = (batch, heads, q_len, key.shape[2])
        allowed = _check_allowed(allowed, shape)
        bias = _check_bias(bias, shape, query.dtype)
    return Call(query, key, value, allowed, align, bias, scale, softcap)


def cut(tensor: Tensor, rows: Span, cols: Span) -> Tensor:
    """Give a region of a broadcastable four-axis tensor; an axis of size 1 stays as it is."""
    _, _, q_len, kv_len = tensor.shape
    if q_len > 1 and rows != (0, q_len):
        tensor = tensor[:, :, rows[0] : rows[1]]
    return tensor[..., cols[0] : cols[1]] if kv_len > 1 and cols != (0, kv_len) else tensor


def group(query: Float[Tensor, "batch heads q_len width"], kv_heads: int) -> Float[Tensor, "batch kv_heads rows width"]:
    """Stack the query heads that share a KV head as rows of one head, so that keys and values need no copies.

    Head i uses KV head ``i // (heads // kv_heads)``; a contiguous query is not copied.
    """
    batch, heads, q_len, width = query.shape
    return query if heads == kv_heads else query.reshape(batch, kv_heads, heads // kv_heads * q_len, width)


def _check_inputs(query: Tensor, key: Tensor, value: Tensor) -> None:
    """Check axes, sizes, dtype and device of the three tensors; in one expression, since every call pays for it."""
    sizes, key_sizes, value_sizes = query.shape, key.shape, value.shape
    if not (
        len(sizes) == len(key_sizes) == len(value_sizes) == 4
        and query.dtype in DTYPES
        and query.dtype == key.dtype == value.dtype
        and query.device == key.device == value.device
        and sizes[0] == key_sizes[0]
        and sizes[3] == key_sizes[3]
        and key_sizes[:3] == value_sizes[:3]
        and 0 not in sizes
        and 0 not in value_sizes
        and sizes[1] % key_sizes[1] == 0
    ):
        _explain(query, key, value)


def _explain(query: Tensor, key: Tensor, value: Tensor) -> None:
    """Refuse by the first rule that is broken."""
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        if tensor.dim() != 4 or tensor.dtype not in DTYPES:
            _refuse(name, _AXES, _describe(tensor))
        if not tensor.numel():
            _refuse(name, _FILLED, _describe(tensor))
    batch, heads, _, width = query.shape
    key_batch, kv_heads, kv_len, key_width = key.shape
    if key_batch != batch or key_width != width:
        _refuse("key", _KEY.fill(batch=batch, width=width), _describe(key))
    if value.shape[:3] != key.shape[:3]:
        _refuse("value", _VALUE.fill(batch=batch, heads=kv_heads, length=kv_len), _describe(value))
    if heads % kv_heads:
        _refuse("kv_heads", _DIVIDES.fill(heads=heads), str(kv_heads))
    for name, tensor in (("key", key), ("value", value)):
        if tensor.dtype != query.dtype or tensor.device != query.device:
            _refuse(name, _ALIKE.fill(dtype=query.dtype, device=query.device), f"{tensor.dtype}, {tensor.device}")


def _check_allowed(allowed: Tensor | Mask | None, shape: tuple[int, ...]) -> Tensor | Mask | None:
    """Check the mask; give it four axes, or None where it allows everything."""
    if isinstance(allowed, Mask):
        return None if allowed.is_full else allowed
    if allowed is None:
        return None
    if not isinstance(allowed, Tensor) or allowed.dtype != torch.bool:
        _refuse("allowed", _MASK, _describe(allowed))
    return _four_axes("allowed", allowed, shape)


def _check_bias(bias: Tensor | LateBias | None, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor | LateBias | None:
    """Check the bias; give it four axes and the dtype of the scores, or leave it where it is made region by region."""
    if bias is None or isinstance(bias, LateBias):
        return bias
    if not isinstance(bias, Tensor) or not bias.is_floating_point():
        _refuse("bias", _BIAS, _describe(bias))
    return _four_axes("bias", bias, shape).to(dtype)


def _four_axes(name: str, tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Give the tensor leading axes of size 1 up to four, checked against the shape that it must spread to."""
    sizes = tensor.shape
    missing = 4 - len(sizes)
    exact = missing >= 0 and sizes == shape[missing:]
    if not exact and (missing < 0 or any(a not in (1, b) for a, b in zip(sizes, shape[missing:], strict=True))):
        _refuse(name, _SPREADS.fill(shape=list(shape)), _describe(tensor))
    return tensor.expand((1,) * missing + (-1,) * len(sizes)) if missing else tensor


def _finite(number: object) -> bool:
    return isinstance(number, (int, float)) and not isinstance(number, bool) and math.isfinite(number)


def _describe(thing: object) -> str:
    """Give a wrong argument in a few words."""
    if isinstance(thing, Tensor):
        return f"{list(thing.shape)} {str(thing.dtype).removeprefix('torch.')}"
    return type(thing).__name__


def _refuse(name: str, rule: Text, value: str) -> NoReturn:
    raise Refusal(_BAD.fill(name=same(name), rule=rule, value=same(value)))
