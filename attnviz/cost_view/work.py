"""What a view of the cost page comes to: four ways to call a layer, all layers, devices, unequal batches."""

from dataclasses import replace
from typing import Any, NamedTuple

from attnviz import config
from attnviz.backends import BACKENDS
from attnviz.benchmark import Probe, Request
from attnviz.benchmark.pairs import PAIRS
from attnviz.cost import Cost, cost
from attnviz.cost_view.settings import KV_HEADS, SCENARIOS, View, shares
from attnviz.device import default_device, dtypes
from attnviz.presets import LayerKind
from attnviz.text import Refusal, Text

_HEADS = Text(
    "Heads: {heads} cannot be shared equally by {devices} devices.", "{heads} 个头不能平均分给 {devices} 个设备。"
)
_KV_HEADS = Text(
    "KV heads: {heads} cannot be shared equally by {devices} devices: one number must divide the other.",
    "{heads} 个 KV 头不能平均分给 {devices} 个设备：两个数须有一个整除另一个。",
)
# What is measured here must end soon; what is longer stays predicted.
MOST_MEASURED = 1024


def priced(view: View, scenario: str, dtype: str | None = None) -> Cost:
    """Give what the layer that is drawn costs in a scenario, in the view's data type or another."""
    other = view if dtype is None else replace(view, dtype=dtype)
    return _of(other, view.window, view.queries(scenario), view.context, view.batch)


def plain(view: View) -> tuple[str, ...]:
    """Name the scenarios for which torch has no fused kernel on a CPU: values of another width than their keys."""
    backend = BACKENDS.get(PAIRS[view.pair].backend)
    if backend is None or "math" not in backend.kernel_bytes:
        return ()
    shapes = {name: view.variant.core_heads(view.sizes, view.queries(name), view.context) for name in SCENARIOS}
    return tuple(name for name, shape in shapes.items() if shape.v_head_dim != shape.head_dim)


class Whole(NamedTuple):
    """Hold what the attention of all layers comes to.

    Args:
        layers: How many there are; layers without keys and values are not among them.
        parameters: Their weights.
        token_bytes: What one more token of one sequence adds to the cache; in a window that is full, nothing.
        cache_bytes: What the context keeps of the whole batch, a layer with a window no more than that.
        reserved_bytes: The same if every layer kept every token.
        step: FLOPs and bytes moved by one step of decoding.
    """

    layers: int
    parameters: int
    token_bytes: int
    cache_bytes: int
    reserved_bytes: int
    step: tuple[int, int]


def whole(view: View, *, layers: int | None = None) -> Whole:
    """Add up the layers, a published model's each as it is; ``layers`` takes so many like the one that is drawn."""
    alike = layers or view.layers
    kinds = view.kinds if layers is None else (LayerKind(layers, view.window),)
    flops = moved = cached = added = 0
    for count, window in kinds:
        step = _of(view, window, 1, view.context, view.batch)
        flops, moved = flops + count * step.flops, moved + count * step.bytes_moved
        cached += count * step.kv_cache_bytes
        held, grown = (_of(view, window, 1, view.context + more, 1).kv_cache_bytes for more in (0, 1))
        added += count * (grown - held)
    full = _of(view, None, 1, view.context, view.batch)
    return Whole(alike, alike * full.parameters, added, cached, alike * full.kv_cache_bytes, (flops, moved))


def _of(view: View, window: int | None, q_len: int, kv_len: int, batch: int, sizes: Any = None) -> Cost:
    """Give what the view's layer costs with a window, or one of other sizes."""
    return cost(
        view.variant, view.sizes if sizes is None else sizes, q_len=q_len, kv_len=kv_len, batch=batch,
        dtype=view.dtype, backend=PAIRS[view.pair].backend, window=window,
    )  # fmt: skip


class Share(NamedTuple):
    """Hold what one of several devices takes when the heads are split among them.

    Args:
        devices: How many take part.
        kv_heads: KV heads that each holds, None where a latent or a state takes their place.
        one: Costs of one device in the scenario of prefill.
        step: The same for decode.
        reduced_bytes: What each sends and receives in one prefill to add up the outputs, by a ring.
        step_bytes: The same for one step of decoding.
    """

    devices: int
    kv_heads: int | None
    one: Cost
    step: Cost
    reduced_bytes: int
    step_bytes: int


def split(view: View) -> Share:
    """Split the heads over the view's devices.

    Each device holds its heads' columns of query, key and value and rows of the output matrix, so that one sum over
    all devices ends the layer. Where KV heads are fewer than the devices, each is held by several; what all heads
    share, such as a latent, is held by all.

    Raises:
        Refusal: If the devices do not divide the heads, or neither of KV heads and devices divides the other.

    Source:
        Shoeybi et al. 2019, Megatron-LM, section 3, https://arxiv.org/abs/1909.08053
        Bytes of a ring: Patarasuk, Yuan 2009, https://doi.org/10.1016/j.jpdc.2008.09.002
    """
    if view.heads % view.devices:
        raise Refusal(_HEADS.fill(heads=view.heads, devices=view.devices))
    whole = view.sizes
    own = {**view.contestant.sizes, "num_attention_heads": view.heads // view.devices, "head_dim": whole.head_dim}
    kv_heads = None
    if shares(view.variant):
        shared = whole.num_key_value_heads
        if shared % view.devices and view.devices % shared:
            raise Refusal(_KV_HEADS.fill(heads=shared, devices=view.devices))
        kv_heads = max(1, shared // view.devices)
        own[KV_HEADS] = kv_heads
    part = view.variant.config(**own)
    one, step = (_of(view, view.window, q_len, view.context, view.batch, part) for q_len in (view.context, 1))
    row = view.batch * whole.hidden_size * config.dtype_size(view.dtype)
    ring = [2 * (view.devices - 1) * row * n // view.devices for n in (view.context, 1)]
    return Share(view.devices, kv_heads, one, step, *ring)


class Batch(NamedTuple):
    """Hold what sequences take together: tokens, FLOPs of prefilling them, bytes cached, bytes moved by one step."""

    tokens: int
    flops: int
    cache_bytes: int
    step_bytes: int


class Unequal(NamedTuple):
    """Hold a batch of unequal lengths, padded to the longest and each at its own length."""

    padded: Batch
    packed: Batch


def unequal(view: View) -> Unequal:
    """Give what padding costs; both ways one step of decoding reads the weights once for the whole batch."""
    longest = max(view.lengths)
    return Unequal(*(_together(view, lengths) for lengths in ((longest,) * len(view.lengths), view.lengths)))


def _together(view: View, lengths: tuple[int, ...]) -> Batch:
    prompts = [_of(view, view.window, length, length, 1) for length in lengths]
    steps = [_of(view, view.window, 1, length, 1) for length in lengths]
    moved = steps[0].weight_bytes + sum(step.bytes_moved - step.weight_bytes for step in steps)
    flops, cached = sum(one.flops for one in prompts), sum(one.kv_cache_bytes for one in prompts)
    return Batch(sum(lengths), flops, cached, moved)


def probe(view: View) -> Probe:
    """Give what asks for the speed of the fastest device here; a CPU is measured in float32, its best type."""
    device = default_device()
    known = device != "cpu" and view.dtype in dtypes(device)
    return Probe(view.dtype if known else "float32", device=device)


def measurable(view: View) -> tuple[Request, ...]:
    """Give a request for each scenario on this machine: one sequence, with a context that ends soon.

    Of a layer with a window no more tokens than it holds: what would lie outside it takes part in nothing.
    """
    context = min(view.context, MOST_MEASURED, view.window or MOST_MEASURED)
    own = probe(view)
    shared = {"dtype": own.dtype, "device": own.device, "budget_s": 0.5, "rounds": 7}
    return tuple(Request((view.contestant,), min(view.queries(name), context), context, **shared) for name in SCENARIOS)
