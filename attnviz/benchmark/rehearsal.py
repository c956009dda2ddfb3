"""What a call would hold, found by going through it once without memory: torch's meta device has shapes, no numbers.

The very code that is measured runs, its gradient too, so that what it takes and drops comes in its own order; nothing is
fitted. What kernels take and give back inside they do not say there; of those that run here it is known and added.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from attnviz.backends.sdpa_memory import gradient_scratch, scratch
from attnviz.benchmark.calls import BLANK, make
from attnviz.benchmark.memory import StorageCounter
from attnviz.benchmark.request import Contestant, Request

_aten = torch.ops.aten
# A number written in Python becomes one of float64, and one of the tensor's type beside it.
_NUMBER = 8
_WITH_NUMBER = frozenset(
    getattr(_aten, name).Tensor for name in ("add", "add_", "sub", "sub_", "mul", "mul_", "div", "div_")
) | frozenset(getattr(_aten, name).Scalar for name in ("eq", "ne", "gt", "ge", "lt", "le"))
# Whose gradient reads the number again.
_KEEPS_NUMBER = frozenset((_aten.mul.Tensor, _aten.mul_.Tensor, _aten.div.Tensor, _aten.div_.Tensor))
# Owners of a storage that only a gradient's buffer holds: that buffer, and the tensor that is looked at here.
_OWN = 2


def rehearse(contestant: Contestant, request: Request) -> int:
    """Give the most that a contestant's call holds at once on a CPU, on one thread.

    What is asked of a number is answered by zero or no: a rehearsal takes the path on which no row is without a key.
    """
    blank = replace(request, contestants=(contestant,), device=BLANK)
    with torch.set_grad_enabled(request.mode != "forward"):
        with Rehearsal():
            made = make(contestant, blank)
        with Rehearsal() as counter:
            kept = made.call()
    del kept
    return counter.most


class Rehearsal(StorageCounter):
    """Count what operations on blank tensors would take, with what their kernels take inside."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one operation as the CPU would."""
        if func is _aten._local_scalar_dense.default:
            return False if args[0].dtype is torch.bool else 0
        if func is _aten._fused_sdp_choice.default:
            return _choice(*args, **(kwargs or {}))
        if func is _aten.add.Tensor and _owned(args):
            # A gradient's buffer that nobody else holds is added to in place, but for tensors without memory.
            return args[0]
        result = super().__torch_dispatch__(func, types, args, kwargs)
        if func in _INSIDE:
            self._touch(_INSIDE[func](*args))
        elif func in _WITH_NUMBER and not isinstance(args[1], Tensor):
            self._number(func, args[0])
        return result

    def _touch(self, size: int) -> None:
        self.most = max(self.most, self.now + size)

    def _number(self, func: Any, tensor: Tensor) -> None:
        """Count a factor, which a gradient holds until it has multiplied by it too."""
        again = _goes_back() and func in _KEEPS_NUMBER
        self._touch((0 if again else _NUMBER) + (tensor.itemsize if tensor.itemsize < _NUMBER else 0))
        if again:
            self.now -= _NUMBER
        elif func in _KEEPS_NUMBER and tensor.requires_grad and torch.is_grad_enabled():
            self.now += _NUMBER


def _goes_back() -> bool:
    """Say whether a gradient is being worked out."""
    return torch._C._current_graph_task_id() != -1


def _owned(args: tuple[Any, ...]) -> bool:
    """Say whether two gradients meet of which the first may be overwritten."""
    if not _goes_back() or not all(isinstance(one, Tensor) for one in args):
        return False
    first, second = args
    uses = torch._C._storage_Use_Count(first.untyped_storage()._cdata)
    return first.shape == second.shape and first._base is None and uses == _OWN


def _choice(query: Tensor, key: Tensor, value: Tensor, *others: Any, **options: Any) -> int:
    """Ask torch which kernel it would run on the CPU, with tensors of these shapes that hold one row."""
    rows = [torch.empty(part.shape[-1], dtype=part.dtype).expand(part.shape) for part in (query, key, value)]
    mask = others[0] if others else options.pop("attn_mask", None)
    blank = None if mask is None else torch.empty(mask.shape[-1], dtype=mask.dtype).expand(mask.shape)
    return torch._fused_sdp_choice(*rows, blank, *others[1:], **options)


def _empty_rows(scores: Tensor, *_: Any) -> int:
    """Give what finding rows without a key takes: a byte for each score and each row, and a number."""
    return scores.numel() + scores.numel() // max(1, scores.shape[-1]) + scores.itemsize


def _solved(matrix: Tensor, *_: Any) -> int:
    """Give what a triangular system takes: a copy of a matrix whose rows and columns both lie apart."""
    as_it_is = matrix.is_contiguous() or matrix.mT.is_contiguous()
    return 0 if as_it_is else math.prod(matrix.shape) * matrix.itemsize


def _flash(query: Tensor, key: Tensor, *_: Any) -> int:
    return scratch(query.shape[2], key.shape[2], query.shape[3], query.itemsize)


def _flash_gradient(grad: Tensor, query: Tensor, key: Tensor, *_: Any) -> int:
    """Give what the fused gradient takes: its tiles, and a copy of what comes in where that is no row of tokens."""
    copied = 0 if grad.transpose(1, 2).is_contiguous() else grad.numel() * grad.itemsize
    return copied + gradient_scratch(query.shape[2], key.shape[2], query.itemsize)


_INSIDE: Mapping[Any, Callable[..., int]] = MappingProxyType(
    {
        _aten._safe_softmax.default: _empty_rows,
        _aten.linalg_solve_triangular.default: _solved,
        _aten._scaled_dot_product_flash_attention_for_cpu.default: _flash,
        _aten._scaled_dot_product_flash_attention_for_cpu_backward.default: _flash_gradient,
    }
)
