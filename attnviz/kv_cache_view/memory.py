"""What a published model's cache takes, what it would take with other variants, and which accelerators hold it."""

import math
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from attnviz.cost import nearest_size
from attnviz.hardware import HARDWARE, Hardware
from attnviz.kv_cache_view.knobs import CACHE_BITS
from attnviz.kv_cache_view.view import View
from attnviz.presets import PARAMETERS, Preset
from attnviz.variant_view.settings import LATENT, ROTARY
from attnviz.variants import VARIANTS

# GQA as most models have it, where the heads allow it.
USUAL_KV_HEADS = 8
POINTS_PER_OCTAVE = 4
LEAST_CONTEXT, LONGEST_CURVE = 256, 2**20


class Curve(NamedTuple):
    """Hold what the model's layers would cache with one variant.

    Args:
        key: ``own`` for the model as it is, ``ignored`` for it with its windows ignored, else a variant.
        kv_heads: Its KV heads, None where it keeps a latent.
        contexts: Tokens of each sequence.
        sizes: Bytes at these.
        size: Bytes at the view's context.
    """

    key: str
    kv_heads: int | None
    contexts: tuple[int, ...]
    sizes: tuple[int, ...]
    size: int


# No memory holds so many tokens of a cache that grows.
ENDLESS = 2**60


class Fit(NamedTuple):
    """Hold what some accelerators of one kind hold: their memory, and the largest view of this model in it.

    ``memory`` is what their drivers report, by the data sheet where no report is known.
    ``context`` is for the view's batch and ``batch`` for its context; None where not even one fits, ``ENDLESS`` where
    full windows take no more.
    """

    hardware: Hardware
    memory: int
    fits: bool
    context: int | None
    batch: int | None


class Rate(NamedTuple):
    """Hold how a model's cache grows, in numbers kept: ``steady`` for every token, ``sliding`` while in the window."""

    steady: int
    sliding: int
    window: int

    def bytes(self, tokens: int, batch: int, dtype: str) -> int:
        """Give what it takes in a type of ``CACHE_BITS``, scales not counted."""
        kept = self.steady * tokens + self.sliding * min(tokens, self.window)
        return -(-batch * kept * CACHE_BITS[dtype] // 8)


def rate(preset: Preset, windows: bool) -> Rate:
    """Give how a model's cache grows, from what its variant declares of one token."""
    one = sum(math.prod(shape) for shape in VARIANTS[preset.variant].cache(preset.config, 1).values())
    kinds = preset.kinds(windows=windows)
    steady = sum(kind.layers for kind in kinds if kind.window is None)
    sliding = sum(kind.layers for kind in kinds if kind.window is not None)
    return Rate(one * steady, one * sliding, preset.window or 0)


def cache_bytes(preset: Preset, tokens: int, batch: int, dtype: str, windows: bool) -> int:
    """Give what a model's cache takes."""
    return rate(preset, windows).bytes(tokens, batch, dtype)


def weight_bytes(view: View) -> int:
    """Give what the model's weights take."""
    return -(-PARAMETERS[view.model] * int(view.weight_bits) // 8)


def taken(view: View) -> int:
    """Give what the view's cache takes."""
    return cache_bytes(view.preset, view.context, view.batch, view.cache_dtype, view.windows)


def per_token(view: View) -> int:
    """Give what one more token of one sequence takes while no window is full."""
    return cache_bytes(view.preset, 1, 1, view.cache_dtype, view.windows)


def grouped(preset: Preset, variant: str, kv_heads: int) -> Preset:
    """Give the model with so many KV heads on every layer that has any.

    MLA's rotary key stands beside its d_k and goes with the latent, as in table 1 of https://arxiv.org/abs/2405.04434.
    """
    old = dict(preset.sizes)
    sizes = {
        name: old[name] for name in ("hidden_size", "num_attention_heads", "head_dim", "v_head_dim") if name in old
    }
    if preset.variant == "mla":
        sizes |= {"head_dim": preset.config.qk_nope_head_dim}
    return replace(preset, variant=variant, sizes=sizes | {"num_key_value_heads": kv_heads})


def latent(preset: Preset) -> Preset:
    """Give the model with the latent of DeepSeek-V2 and V3 in place of keys and values."""
    old = preset.config
    sizes = {
        "hidden_size": old.hidden_size, "num_attention_heads": old.num_attention_heads, "kv_lora_rank": LATENT,
        "qk_rope_head_dim": ROTARY, "head_dim": old.head_dim + ROTARY, "v_head_dim": old.head_dim,
    }  # fmt: skip
    return replace(preset, variant="mla", sizes=sizes)


def versions(view: View) -> dict[str, tuple[Preset, bool]]:
    """Give the model as it is, with its windows ignored or kept, and with each other variant; whether windows count."""
    preset = view.preset
    heads = preset.config.num_attention_heads
    found = {"own": (preset, view.windows)}
    if preset.sliding_layers:
        found["kept" if not view.windows else "ignored"] = (preset, not view.windows)
    if preset.variant != "mha":
        found["mha"] = (grouped(preset, "mha", heads), view.windows)
    if preset.variant != "gqa" and heads % USUAL_KV_HEADS == 0 and heads > USUAL_KV_HEADS:
        found["gqa"] = (grouped(preset, "gqa", USUAL_KV_HEADS), view.windows)
    if preset.variant != "mqa":
        found["mqa"] = (grouped(preset, "mqa", 1), view.windows)
    if preset.variant != "mla":
        found["mla"] = (latent(preset), view.windows)
    return found


def curves(view: View) -> tuple[Curve, ...]:
    """Give bytes against context for the model and for what it could have been."""
    contexts = _contexts(max(view.context, LONGEST_CURVE))
    drawn = []
    for key, (preset, windows) in versions(view).items():
        grows = rate(preset, windows)
        sizes = tuple(grows.bytes(n, view.batch, view.cache_dtype) for n in contexts)
        size = grows.bytes(view.context, view.batch, view.cache_dtype)
        kv_heads = None if preset.variant == "mla" else preset.config.num_key_value_heads
        drawn.append(Curve(key, kv_heads, contexts, sizes, size))
    return tuple(drawn)


@lru_cache(maxsize=8)
def _contexts(longest: int) -> tuple[int, ...]:
    found, exponent = [], 0
    while not found or found[-1] < longest:
        found.append(round(LEAST_CONTEXT * 2 ** (exponent / POINTS_PER_OCTAVE)))
        exponent += 1
    return tuple(found)


def fits(view: View) -> tuple[Fit, ...]:
    """Give for every accelerator whether the view's model and cache are in its memory, and how much could be."""
    weights, grows = weight_bytes(view), rate(view.preset, view.windows)
    need = grows.bytes(view.context, view.batch, view.cache_dtype)
    found = []
    for hardware in HARDWARE.values():
        memory = hardware.total_bytes * view.gpus
        room = memory - weights
        context = nearest_size(lambda n, room=room: grows.bytes(n, view.batch, view.cache_dtype) <= room, 1, ENDLESS)
        batch = nearest_size(lambda n, room=room: grows.bytes(view.context, n, view.cache_dtype) <= room, 1, ENDLESS)
        found.append(Fit(hardware, memory, need <= room, context, batch))
    return tuple(found)
