"""What the declarations say a contestant takes, before anything is allocated."""

import math
from dataclasses import dataclass

from attnviz.backends import BACKENDS
from attnviz.benchmark.request import Contestant, Request
from attnviz.config import dtype_size
from attnviz.cost import cost
from attnviz.variants import VARIANTS

# Forward, and backward's two products for each of forward's.
_BACKWARD = 3


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
    (q_len, masked), itemsize = asked(contestant, request), dtype_size(request.dtype)
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
    spread = batch * made(contestant, q_len, kv_len) * itemsize
    # A layer counts what its own form makes, written and read.
    moved += 0 if contestant.has_form and contestant.what != "core" else 2 * spread
    if request.mode == "forward+backward":
        flops, moved = _BACKWARD * flops, _BACKWARD * moved
    # An expanded form counts what it makes itself.
    peak = taken.peak_bytes + (0 if contestant.has_form else spread)
    return Predicted(flops, moved, peak, inputs)


def made(contestant: Contestant, q_len: int, kv_len: int) -> int:
    """Count the numbers of keys and values that are made for every head of one sequence, then written and read."""
    variant = VARIANTS[contestant.variant]
    if contestant.has_form:
        return variant.made(contestant.config, q_len, kv_len)
    shape = variant.heads(contestant.config)
    spreads = shape.kv_heads < shape.heads and (contestant.what == "core" or q_len < kv_len)
    if contestant.kv == "packed" or not spreads:
        return 0
    return shape.heads * kv_len * (shape.head_dim + shape.v_head_dim)


def asked(contestant: Contestant, request: Request) -> tuple[int, bool]:
    """Give how many tokens ask, and whether a dense mask is given."""
    q_len = {"decode": 1 if contestant.cached else request.keys}.get(contestant.what, request.q_len)
    keeps = contestant.backend in BACKENDS and bool(VARIANTS[contestant.variant].score_passes(str(contestant.backend)))
    return q_len, keeps and (request.mask != "full" or not contestant.cached)
