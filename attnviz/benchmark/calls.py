"""A contestant as a call without arguments: its tensors made, its mask built, nothing left to do but compute."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from attnviz import masks
from attnviz.backends import BACKENDS, CoreOutput
from attnviz.benchmark.request import Contestant, Request
from attnviz.masks import MASKS, Mask
from attnviz.variants import VARIANTS, Variant
from attnviz.variants.base import AttentionOutput

_KERNELS = {
    "math": SDPBackend.MATH,
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
}
_SEED = 0
BLANK = "meta"  # a device of torch whose tensors have shapes and no memory


@dataclass(frozen=True)
class Made:
    """Hold a contestant that is ready to run.

    Args:
        call: Computes once and gives the core's answer.
        around: Gives what the calls run inside of.
    """

    call: Callable[[], CoreOutput | None]
    around: Callable[[], AbstractContextManager[Any]] = field(default=nullcontext)


@dataclass(frozen=True)
class _Shape:
    """Hold what all contestants of a request share, with the lengths that one of them takes."""

    request: Request
    q_len: int
    kv_len: int

    @property
    def options(self) -> dict[str, Any]:
        return {"dtype": getattr(torch, self.request.dtype), "device": self.request.device}

    @property
    def align(self) -> str:
        return "top_left" if self.q_len == self.kv_len else "bottom_right"

    def draw(self, *shape: int) -> Tensor:
        """Give normal numbers, drawn where they are needed: this is about time, not about values."""
        return torch.randn(shape, **self.options)


def lengths(contestant: Contestant, request: Request) -> tuple[int, int]:
    """Give how many tokens ask and how many are attended to."""
    if contestant.what != "decode":
        return request.q_len, request.keys
    return (1 if contestant.cached else request.keys), request.keys


def make(contestant: Contestant, request: Request, kv_len: int | None = None) -> Made:
    """Make a contestant's tensors and its call.

    Args:
        contestant: The contestant.
        request: The request that it belongs to.
        kv_len: Another number of keys than the request's.
    """
    blank = request.device == BLANK
    if not blank:
        torch.manual_seed(_SEED)
    request = request if kv_len is None else replace(request, kv_len=kv_len, q_len=min(request.q_len, kv_len))
    shape = _Shape(request, *lengths(contestant, request))
    variant, config = VARIANTS[contestant.variant], contestant.config
    weights = (
        blank_weights(variant, config, shape.options) if blank else variant.weights(config, seed=_SEED, **shape.options)
    )
    allowed = _allowed(variant, config, contestant, shape)
    if contestant.what == "core" and _has_core(variant):
        call, inputs = _core(variant, config, weights, contestant, shape, allowed)
    else:
        call, inputs = _layer(variant, config, weights, contestant, shape, allowed)
    call = _with_backward(call, inputs) if request.mode == "forward+backward" else _to_core(call)
    kernel = _KERNELS.get(contestant.kernel)
    return Made(call, nullcontext if kernel is None else lambda: sdpa_kernel(kernel))


def blank_weights(variant: Variant, config: Any, options: dict[str, Any]) -> dict[str, Tensor]:
    """Give tensors that lie as the weights do, the input's axis last but where heads are merged; nothing is drawn."""
    matrices = {}
    for name, (rows, cols) in variant.matrices(config).items():
        merges = name == "output"
        matrices[name] = torch.empty(rows, cols, **options) if merges else torch.empty(cols, rows, **options).T
    return matrices | {name: torch.empty(size, **options) for name, size in variant.vectors(config).items()}


def _has_core(variant: Variant) -> bool:
    return type(variant).mix is not Variant.mix


def _allowed(variant: Variant, config: Any, contestant: Contestant, shape: _Shape) -> Tensor | Mask | None:
    """Give the mask as this contestant takes it: as a matrix where the backend keeps the score matrix anyway."""
    request = shape.request
    # All tokens at once are one token at a time only if none sees what follows it.
    key = "causal" if contestant.what == "decode" and not contestant.cached else request.mask
    if key == "full":
        return None
    mask = MASKS[key].build(**(request.mask_knobs if key == request.mask else {}))
    if contestant.backend not in BACKENDS or not variant.score_passes(str(contestant.backend)):
        return mask
    heads = variant.heads(config).heads
    sizes = {"batch": request.batch, "heads": heads, "device": request.device}
    return masks.dense(mask, shape.q_len, shape.kv_len, align=shape.align, **sizes)


def _core(
    variant: Variant, config: Any, weights: dict, contestant: Contestant, shape: _Shape, allowed: Tensor | Mask | None
) -> tuple[Callable[[], Any], list[Tensor]]:
    """Give the call of the core, and the tensors that a gradient is taken to."""
    tensors = [
        shape.draw(*size) for size in variant.core_shapes(config, shape.request.batch, shape.q_len, shape.kv_len)
    ]
    spread = _spread(variant, config, contestant)
    terms = {"allowed": allowed, "align": shape.align, "score_mod": None, "scale": None}

    def call() -> CoreOutput:
        query, *kept = tensors
        given = (query, *spread(kept))
        return variant.mix(config, weights, given, **terms, backend=str(contestant.backend))

    return call, tensors


def _spread(variant: Variant, config: Any, contestant: Contestant) -> Callable[[Sequence[Tensor]], Sequence[Tensor]]:
    """Give what makes keys and values for every head, where plain code would."""
    heads, kv_heads, *_ = variant.heads(config)
    if contestant.kv == "packed" or kv_heads == heads:
        return lambda kept: kept
    return lambda kept: [one.repeat_interleave(heads // kv_heads, dim=1) for one in kept]


def _layer(
    variant: Variant, config: Any, weights: dict, contestant: Contestant, shape: _Shape, allowed: Tensor | Mask | None
) -> tuple[Callable[[], Any], list[Tensor]]:
    """Give the call of the whole layer, and the tensors that a gradient is taken to.

    Behind a cache the new tokens' keys and values are projected, and the cache, which has room for them already, is
    attended to as it lies: no step copies it to make it longer, as no engine does.
    """
    x = shape.draw(shape.request.batch, shape.q_len, config.hidden_size)
    terms: dict[str, Any] = {"allowed": allowed, "align": shape.align, "backend": contestant.backend}
    inputs = [x, *weights.values()]
    if shape.q_len >= shape.kv_len:
        return lambda: variant.attend(config, weights, x, **terms), inputs
    sizes = variant.cache(config, shape.kv_len)
    if sizes == variant.cache(config, shape.kv_len + 1):
        # A state of fixed size takes the tokens in as it answers; only the variant knows what is in it.
        one = shape.draw(shape.request.batch, 1, config.hidden_size)
        state = variant.attend(config, weights, one, allowed=MASKS["causal"].build(), backend=contestant.backend).cache
        return lambda: variant.attend(config, weights, x, **terms, cache=state), inputs
    cache = {name: shape.draw(shape.request.batch, *size) for name, size in sizes.items()}
    made, other = (variant.acts_on(config, shape.q_len, shape.kv_len, new) for new in (shape.q_len, 0))
    fresh = [name for name in made if made[name] != other[name]]
    none, spread = x[:, :0], _spread(variant, config, contestant)

    def call() -> AttentionOutput:
        for name in fresh:
            torch.matmul(x, weights[name])
        return variant.attend(config, weights, x, context=none, cache=cache, **terms)

    def expanded() -> AttentionOutput:
        for name in fresh:
            torch.matmul(x, weights[name])
        query, *_ = variant.project(config, weights, x, none)
        terms_of_core = {"allowed": allowed, "align": shape.align, "score_mod": None, "scale": None}
        kept = spread(list(cache.values()))
        core = variant.mix(config, weights, (query, *kept), **terms_of_core, backend=str(contestant.backend))
        output = torch.matmul(core.output.transpose(1, 2).flatten(2), weights["output"])
        return AttentionOutput(output, core, {})

    heads, kv_heads, *_ = variant.heads(config)
    return (expanded if contestant.kv == "expanded" and kv_heads < heads else call), inputs


def _to_core(call: Callable[[], Any]) -> Callable[[], CoreOutput]:
    """Give the call with the core's answer alone, of a layer too."""

    def answer() -> CoreOutput:
        given = call()
        return given.core if isinstance(given, AttentionOutput) else given

    return answer


def _with_backward(call: Callable[[], Any], inputs: list[Tensor]) -> Callable[[], CoreOutput]:
    """Give the call followed by the gradients to its inputs, that of its output being ones."""
    for tensor in inputs:
        tensor.requires_grad_()
    shape = call().output
    ones = torch.ones_like(shape.detach())
    del shape

    def both() -> CoreOutput:
        given = call()
        torch.autograd.grad(given.output, inputs, ones, allow_unused=True)
        return given.core if isinstance(given, AttentionOutput) else given

    return both
