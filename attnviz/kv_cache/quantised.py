"""Caches in fewer bits: each vector is divided by its own scale and rounded, really, to what the type can hold."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from attnviz.registry import Registry
from attnviz.text import Text

Packed = tuple[Tensor, ...]

_FP8 = torch.float8_e4m3fn


@dataclass(frozen=True)
class Storage:
    """Describe how a cache's vectors lie in memory.

    Args:
        key: Plain key.
        label: What it is called on screen.
        help: How a vector is rounded.
        pack: Gives the tensors that are kept of ``[..., width]``; each has all axes but the last as they were.
        unpack: Gives the vectors back from these, the width and the dtype.
        source: URL of where it is described.
    """

    key: str
    label: Text
    help: Text
    pack: Callable[[Tensor], Packed] = field(repr=False)
    unpack: Callable[[Packed, int, torch.dtype], Tensor] = field(repr=False)
    source: str

    def round_trip(self, tensor: Tensor) -> Tensor:
        """Give what is left of vectors ``[..., width]`` after they were kept like this."""
        return self.unpack(self.pack(tensor), tensor.shape[-1], tensor.dtype)


def _scale(tensor: Tensor, most: float) -> Tensor:
    """Give each vector's scale, ``[..., 1]`` float32: its largest entry becomes ``most``; a vector of zeros has 1."""
    largest = tensor.abs().amax(-1, keepdim=True).to(torch.float32)
    return torch.where(largest > 0, largest / most, 1.0)


def _pack_int8(tensor: Tensor) -> Packed:
    scale = _scale(tensor, 127.0)
    return (tensor / scale).round().clamp(-127, 127).to(torch.int8), scale


def _pack_fp8(tensor: Tensor) -> Packed:
    most = torch.finfo(_FP8).max
    scale = _scale(tensor, most)
    return (tensor / scale).clamp(-most, most).to(torch.float32).to(_FP8), scale


def _unpack_scaled(packed: Packed, width: int, dtype: torch.dtype) -> Tensor:
    values, scale = packed
    # In float32 first: 8 bits times a scale is exact there to its last bit, and half types have less.
    return (values.to(torch.float32) * scale).to(dtype)


def _pack_int4(tensor: Tensor) -> Packed:
    scale = _scale(tensor, 7.0)
    codes = ((tensor / scale).round().clamp(-7, 7) + 8).to(torch.uint8)
    if codes.shape[-1] % 2:
        codes = torch.nn.functional.pad(codes, (0, 1))
    # Two entries share a byte.
    return codes[..., 0::2] | codes[..., 1::2] << 4, scale


def _unpack_int4(packed: Packed, width: int, dtype: torch.dtype) -> Tensor:
    codes, scale = packed
    both = torch.stack((codes & 15, codes >> 4), dim=-1).flatten(-2)[..., :width]
    return ((both.to(torch.float32) - 8) * scale).to(dtype)


STORAGES: Registry[Storage] = Registry(
    "cache storage",
    (
        Storage(
            "plain",
            Text("As computed", "原样保存"),
            Text("Keeps the dtype of the layer.", "沿用该层的数据类型。"),
            lambda tensor: (tensor,),
            lambda packed, width, dtype: packed[0],
            "https://arxiv.org/abs/1911.02150",
        ),
        Storage(
            "int8",
            Text("int8", "int8"),
            Text(
                "256 steps of equal size for each vector, and its scale.",
                "每个向量用 256 个等距的值表示，另存一个缩放系数。",
            ),
            _pack_int8,
            _unpack_scaled,
            "https://arxiv.org/abs/2208.07339",
        ),
        Storage(
            "fp8",
            Text("fp8 (e4m3)", "fp8 (e4m3)"),
            Text("3 bits of mantissa: finer near zero than int8.", "3 位尾数：接近零处比 int8 更细。"),
            _pack_fp8,
            _unpack_scaled,
            "https://arxiv.org/abs/2209.05433",
        ),
        Storage(
            "int4",
            Text("int4", "int4"),
            Text(
                "15 steps for each vector, two entries in a byte, and its scale.",
                "每个向量用 15 个值表示，两个分量占一个字节，另存一个缩放系数。",
            ),
            _pack_int4,
            _unpack_int4,
            "https://arxiv.org/abs/2303.06865",
        ),
    ),
)
