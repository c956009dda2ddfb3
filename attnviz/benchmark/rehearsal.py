"""What a call would hold, found by going through it once without memory: torch's meta device has shapes, no numbers.

The very code that is measured runs, its gradient too, so that what it takes and drops comes in its own order; nothing
is fitted. What kernels take and give back inside they do not say there; of those that run here it is known and added.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from attnviz.backends.flash import FLASH
from attnviz.backends.sdpa_memory import gradient_scratch, scratch
from attnviz.benchmark.calls import BLANK, make
from attnviz.benchmark.memory import StorageCounter
from attnviz.benchmark.request import Contestant, Request
from attnviz.variants import VARIANTS

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
# Rehearsed in full; what goes on piece by piece behind them goes on alike.
_PIECES = 12
# Views by another name.
_VIEWS = frozenset(("aten::_unsafe_view",))
_Form = tuple[tuple[int, ...], tuple[int, ...], torch.dtype]


def rehearse(contestant: Contestant, request: Request) -> int:
    """Give the most that a contestant's call holds at once on a CPU, on one thread.

    It takes the path on which no row is without a key, see ``_said``. Of a call that goes on piece by piece, only the
    first pieces are rehearsed.
    """
    piece = VARIANTS[contestant.variant].piece(contestant.config, str(contestant.backend))
    length = request.keys
    if piece is None or length <= _PIECES * piece or (request.q_len not in (1, length) and contestant.what != "decode"):
        return max(max(part, default=0) for part in _course(contestant, request))
    fewer, more = (piece * (_PIECES - less) + length % piece for less in (1, 0))
    shorter, longer = (_course(contestant, _of_length(request, short)) for short in (fewer, more))
    steps = (length - more) // piece
    return max(_further(one, other, steps) for one, other in zip(shorter, longer, strict=True))


def _of_length(request: Request, length: int) -> Request:
    return replace(request, q_len=min(request.q_len, length), kv_len=length)


def _course(contestant: Contestant, request: Request) -> tuple[list[int], list[int]]:
    """Give what is held at most in each operation of a call, and in each of its gradient."""
    blank, tiled = replace(request, contestants=(contestant,), device=BLANK), contestant.backend == FLASH.key
    with torch.set_grad_enabled(request.mode != "forward"):
        with Rehearsal(tiled=tiled):
            made = make(contestant, blank)
        with Rehearsal(tiled=tiled) as counter:
            kept = made.call()
    del kept
    return counter.forward, counter.backward


def _further(shorter: Sequence[int], longer: Sequence[int], steps: int) -> int:
    """Give the most held by a call of ``steps`` more pieces than the longer of two, which has one more than the other.

    Each piece does the same, so what is held at any place grows by the same from piece to piece and is largest in the
    first or the last of them. Places are told by how far they are from the beginning or from the end.
    """
    if not shorter:
        return 0
    near = max(1, len(shorter) // 4)
    most, before = max(longer), max(shorter)
    fewer = [before, *shorter[:near], *shorter[-near:]]
    more = [most, *longer[:near], *longer[-near:]]
    return max(last + steps * (last - first) for first, last in zip(fewer, more, strict=True))


class Rehearsal(StorageCounter):
    """Count what operations on blank tensors would take, with what their kernels take inside.

    Args:
        tiled: A call is cut into tiles, and what it asks is whether some of a tile's cells count.
    """

    def __init__(self, *, tiled: bool = False) -> None:
        super().__init__()
        self._tiled, self._said, self._before = tiled, 0, None
        self.forward: list[int] = []
        self.backward: list[int] = []
        self._made: dict[Any, tuple[_Form, ...]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one operation as the CPU would."""
        if func is _aten._local_scalar_dense.default:
            return bool(self._said) if args[0].dtype is torch.bool else self._said
        if func is _aten._fused_sdp_choice.default:
            return _choice(args, kwargs or {})
        if func is _aten.add.Tensor and _owned(args):
            # A gradient's buffer that nobody else holds is added to in place, but for tensors without memory.
            return args[0]
        result = super().__torch_dispatch__(func, types, args, kwargs)
        now = self.now
        self._said = _said(func, args, cells=self._tiled and self._before is not _aten.isneginf.default)
        self._before = func
        if func in _INSIDE:
            now += _INSIDE[func](*args)
        elif func in _WITH_NUMBER and not isinstance(args[1], Tensor):
            now += self._number(func, args[0])
        (self.backward if _goes_back() else self.forward).append(now)
        return result

    def run(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Give an operation's result, of one that ran before on tensors that lie alike without asking torch again."""
        kind = _kind(func)
        if kind != "new":
            return args[0] if kind == "written" else func(*args, **kwargs)
        key = (func, _forms(args), _forms(tuple(kwargs.items())))
        if key in self._made:
            made = [
                torch.empty_strided(shape, stride, dtype=dtype, device=BLANK)
                for shape, stride, dtype in self._made[key]
            ]
            return made[0] if len(func._schema.returns) == 1 else tuple(made)
        result = func(*args, **kwargs)
        several = result if isinstance(result, tuple) else (result,)
        if all(isinstance(one, Tensor) and one.device.type == BLANK for one in several):
            self._made[key] = tuple((tuple(one.shape), one.stride(), one.dtype) for one in several)
        return result

    def _number(self, func: Any, tensor: Tensor) -> int:
        """Give what a factor takes for the moment, which a gradient holds until it has multiplied by it too."""
        again = _goes_back() and func in _KEEPS_NUMBER
        taken = (0 if again else _NUMBER) + (tensor.itemsize if tensor.itemsize < _NUMBER else 0)
        if again:
            self.now -= _NUMBER
        elif func in _KEEPS_NUMBER and tensor.requires_grad and torch.is_grad_enabled():
            self.now += _NUMBER
        return taken


def _said(func: Any, args: Any, *, cells: bool) -> int:
    """Give what is answered where the result of an operation is asked for its number.

    Numbers are not 0, of a tile's ``cells`` some count and others do not, and nothing else is out of the ordinary: no
    row is without a key, and no bias is -inf.
    """
    if func is _aten.count_nonzero.default:
        return args[0].numel()
    return 1 if cells and func is _aten.any.default else 0


@lru_cache(maxsize=512)
def _kind(func: Any) -> str:
    """Say what an operation gives: its first argument, written over; a view or something unusual; or new tensors."""
    arguments, back = func._schema.arguments, func._schema.returns
    written = [one.alias_info is not None and one.alias_info.is_write for one in arguments]
    if written and written[0] and not any(written[1:]) and len(back) == 1:
        return "written"
    return "view" if func._schema.name in _VIEWS or any(one.alias_info for one in back) else "new"


def _forms(of: Any) -> Any:
    """Give what the form of a result depends on, as a key."""
    if isinstance(of, Tensor):
        return tuple(of.shape), of.stride(), of.dtype, of.device.type
    return tuple(_forms(one) for one in of) if isinstance(of, (tuple, list)) else (type(of), of)


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


def _choice(args: Any, kwargs: Mapping[str, Any]) -> int:
    """Ask torch which kernel it would run on the CPU, with tensors of these shapes that hold one row."""
    given = [_row(one) for one in args]
    return torch._fused_sdp_choice(*given, **{name: _row(one) for name, one in kwargs.items()})


def _row(given: Any) -> Any:
    """Give a tensor of one row of memory, read over and over, in a blank one's place."""
    if not isinstance(given, Tensor):
        return given
    return torch.empty(given.shape[-1], dtype=given.dtype).expand(given.shape)


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
