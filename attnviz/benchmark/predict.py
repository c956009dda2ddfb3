"""What the declarations say a contestant takes, before anything is allocated."""

import math
from dataclasses import dataclass

from attnviz import units
from attnviz.backends import BACKENDS
from attnviz.benchmark.request import Contestant, Request
from attnviz.benchmark.result import Failure
from attnviz.config import Shape, dtype_size
from attnviz.cost import cost
from attnviz.variants import VARIANTS, Work

# Of the free memory; the rest is the app's and everyone else's.
MEMORY_SHARE = 0.7
# FLOP/s that one thread, or one GPU, will hardly pass: a call that would take too long even so is not begun.
_OPTIMISTIC = {"cpu": 1.5e11, "mps": 2e13, "cuda": 1e15}
# Forward, and backward's two products for each of forward's.
_BACKWARD = 3
# Where nobody declares it: a gradient of everything that was made, beside it.
_BACKWARD_MEMORY = 3


@dataclass(frozen=True)
class Predicted:
    """Hold what one call takes by declaration.

    Args:
        flops: Of the matrix products.
        bytes_moved: Traffic with main memory if each tensor is written once and read once.
        peak_bytes: What the attention core allocates at its peak in a forward pass, results included.
        input_bytes: What is there before the call: tokens or query, key and value, cache and weights.
    """

    flops: int
    bytes_moved: int
    peak_bytes: int
    input_bytes: int

    @property
    def intensity(self) -> float:
        """FLOPs per byte moved."""
        return self.flops / self.bytes_moved


def predict(contestant: Contestant, request: Request) -> Predicted:
    """Predict a contestant of a request from its variant's declarations.

    Raises:
        Refusal: If a size breaks a rule.
    """
    variant, config = VARIANTS[contestant.variant], contestant.config
    kv_len, batch = request.keys, request.batch
    (q_len, masked), itemsize = _asked(contestant, request), dtype_size(request.dtype)
    taken = cost(
        variant,
        config,
        q_len=q_len,
        kv_len=kv_len,
        batch=batch,
        dtype=request.dtype,
        backend=contestant.backend,
        masked=masked,
        causal=not masked and request.mask == "causal",
    )
    mask = q_len * kv_len if masked else 0
    shapes = variant.core_shapes(config, batch, q_len, kv_len)
    tensors = sum(math.prod(shape) for shape in shapes) * itemsize
    if contestant.what == "core":
        flops = batch * variant.mix_flops(config, q_len, kv_len)
        output = batch * math.prod((variant.heads(config).heads, q_len, variant.heads(config).v_head_dim)) * itemsize
        scores = variant.score_passes(str(contestant.backend)) * taken.score_bytes
        moved, inputs = tensors + output + scores, tensors + taken.weight_bytes + mask
    else:
        flops, moved = taken.flops, taken.bytes_moved
        inputs = taken.weight_bytes + taken.kv_cache_bytes + tensors + mask
    made = batch * _made(contestant, q_len, kv_len) * itemsize
    # What an expanded form projects is counted as written with its projections already.
    moved += made if contestant.has_form and contestant.what != "core" else 2 * made
    if request.mode == "forward+backward":
        flops, moved = _BACKWARD * flops, _BACKWARD * moved
    # An expanded form counts what it makes itself.
    peak = taken.peak_bytes + (0 if contestant.has_form else made)
    return Predicted(flops, moved, peak, inputs)


def _made(contestant: Contestant, q_len: int, kv_len: int) -> int:
    """Count the numbers of keys and values that are made for every head of one sequence, then written and read."""
    shape = VARIANTS[contestant.variant].heads(contestant.config)
    spreads = shape.kv_heads < shape.heads and (contestant.what == "core" or q_len < kv_len)
    if contestant.kv == "packed" or not (spreads or contestant.has_form):
        return 0
    return shape.heads * kv_len * (shape.head_dim + shape.v_head_dim)


def declared_peak(contestant: Contestant, request: Request) -> int | None:
    """Give the peak that is declared for what a request measures, or None where nobody declares one."""
    if contestant.kernel != "auto":
        return _kernel_peak(contestant, request)
    if contestant.what == "core" and request.mode == "forward":
        return predict(contestant, request).peak_bytes
    if contestant.what == "decode" and dtype_size(request.dtype) < 4 and request.device == "cpu":
        return None  # the scratch of the CPU's matrix library is many times what such a step holds
    q_len, masked = _asked(contestant, request)
    rule = request.mask if contestant.what != "decode" else "full" if contestant.cached else "causal"
    spreads = bool(_made(contestant, q_len, request.keys)) and not contestant.has_form
    work = Work(
        q_len,
        request.keys,
        request.batch,
        dtype_size(request.dtype),
        masked,
        causal=not masked and rule == "causal" and q_len == request.keys,
        layer=contestant.what != "core",
        gradient=request.mode != "forward",
        spread=spreads,
    )
    return VARIANTS[contestant.variant].whole_peak_bytes(contestant.config, work, str(contestant.backend))


def _kernel_peak(contestant: Contestant, request: Request) -> int | None:
    """Give what one of torch's kernels, asked for by name, is known to take for a forward pass of the core."""
    known = BACKENDS[contestant.backend].kernel_bytes if contestant.backend in BACKENDS else {}
    if contestant.what != "core" or request.mode != "forward" or contestant.kernel not in known:
        return None
    heads, kv_heads, head_dim, v_head_dim = VARIANTS[contestant.variant].heads(contestant.config)
    shape = Shape(request.batch, heads, kv_heads, request.q_len, request.keys, head_dim, v_head_dim)
    return known[contestant.kernel](shape, dtype_size(request.dtype), request.mask != "full")


def _asked(contestant: Contestant, request: Request) -> tuple[int, bool]:
    """Give how many tokens ask, and whether a dense mask is given."""
    q_len = {"decode": 1 if contestant.cached else request.keys}.get(contestant.what, request.q_len)
    keeps = contestant.backend in BACKENDS and bool(VARIANTS[contestant.variant].score_passes(str(contestant.backend)))
    return q_len, keeps and (request.mask != "full" or not contestant.cached)


def no_backward(contestant: Contestant, request: Request) -> Failure | None:
    """Say that a gradient is asked of a backend that has none; None if it may run."""
    own = [key for key in VARIANTS[contestant.variant].backends if key in BACKENDS]
    others = [key for key in own if BACKENDS[key].backward is not None]
    if request.mode == "forward" or contestant.backend not in own or contestant.backend in others:
        return None
    return Failure("no_backward", " or ".join(others), " 或 ".join(others))


def too_large(contestant: Contestant, request: Request, free_bytes: int) -> Failure | None:
    """Say why a contestant is not begun: it would not fit the free memory, or not end in time; None if it may run."""
    taken = predict(contestant, request)
    peak = declared_peak(contestant, request)
    if peak is None:
        peak = taken.peak_bytes * (_BACKWARD_MEMORY if request.mode != "forward" else 1)
    need = taken.input_bytes + peak
    most = int(MEMORY_SHARE * free_bytes)
    if need > most:
        sizes = {"need": units.binary_bytes(need), "most": units.binary_bytes(most)}
        return Failure(
            "too_large",
            "it would take {need} of memory, and {most} may be taken".format(**sizes),
            "需要 {need} 内存，最多可用 {most}".format(**sizes),
        )
    kind = request.device.partition(":")[0]
    speed = _OPTIMISTIC.get(kind, _OPTIMISTIC["cuda"]) * (request.threads if kind == "cpu" else 1)
    # It runs three times at least: to warm up, to be timed and to be weighed.
    seconds = 3 * taken.flops / speed
    if seconds > request.limit_s:
        times = {"need": units.seconds(seconds), "most": units.seconds(request.limit_s)}
        return Failure(
            "too_large",
            "it would take more than {need}, and {most} are allowed".format(**times),
            "至少需要 {need}，上限为 {most}".format(**times),
        )
    return None
