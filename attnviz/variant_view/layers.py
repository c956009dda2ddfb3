"""The layers that the variants page draws: each begins as one whole layer with seeded weights, and is then narrowed.

    grouped    MHA, its key and value heads merged into fewer
    mla        a latent of 512 and a rotary key of 64, of which only the first numbers are kept
    additive   MHA's queries, keys and values, scored by v · tanh(q + k)

So whatever changes on the maps comes from the narrowing, never from other weights.
"""

import math
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from attnviz import inputs
from attnviz.arrays import to_numpy
from attnviz.conversion import convert
from attnviz.masks import MASKS
from attnviz.positions import POSITIONS, Position
from attnviz.variant_view.settings import LATENT, ROTARY
from attnviz.variant_view.view import View
from attnviz.variants import VARIANTS
from attnviz.variants.grouped import GroupedConfig
from attnviz.variants.latent.sizes import LatentConfig
from attnviz.view_run import WIDTH

Tokens = tuple[str, ...]
Weights = dict[str, Tensor]
# A whole layer of up to this many weights (128 MiB in float32) is kept for the next slider move.
KEPT_WEIGHTS = 2**25


class Attended(NamedTuple):
    """Hold every head's weights, ``[heads, tokens, tokens]``, and the layer's output, ``[tokens, WIDTH]``."""

    weights: np.ndarray
    output: np.ndarray


class Narrowed(NamedTuple):
    """Hold what a view's narrowing makes of a layer on the view's sentence.

    ``weights`` and ``before`` are float ``[heads, tokens, tokens]``; ``allowed`` is bool ``[tokens, tokens]``;
    ``error`` is the norm of the difference of the two outputs over the norm of the output before.
    """

    weights: np.ndarray
    before: np.ndarray
    allowed: np.ndarray
    error: float


class Shared(NamedTuple):
    """Hold what so many KV heads make of the view's MHA: every head's weights, and the output error as above."""

    kv_heads: int
    weights: np.ndarray
    error: float


def side_by_side(view: View) -> tuple[Shared, ...]:
    """Give MHA, the layer with the view's KV heads, and MQA, all of the same weights; one head is one layer."""
    counts = (view.heads, view.kv_heads, 1) if view.heads > 1 else (1,)
    before, *_ = found = [shared(view, kv_heads) for kv_heads in counts]
    return tuple(Shared(kv_heads, one.weights, error(one, before)) for kv_heads, one in zip(counts, found, strict=True))


def shared(view: View, kv_heads: int) -> Attended:
    """Attend with the view's MHA, its KV heads merged into so many."""
    method = view.method if kv_heads < view.heads else "mean"
    return grouped(view.heads, view.d_k, kv_heads, method, view.tokens, view.seed)


def narrowed(view: View) -> Narrowed:
    """Give the maps of every head and the output error of the view's variant against what it is compared with."""
    before, after = _sides(view)
    allowed = np.tril(np.ones((len(view.tokens), len(view.tokens)), bool))
    return Narrowed(after.weights, before.weights, allowed, error(after, before))


def _sides(view: View) -> tuple[Attended, Attended]:
    sizes, place = (view.heads, view.d_k), (view.tokens, view.seed)
    if view.variant == "mla":
        return latent(*sizes, LATENT, view.rope, *place), latent(*sizes, view.latent, view.rope, *place)
    whole = shared(view, view.heads)
    return whole, additive(*sizes, *place) if view.variant == "additive" else shared(view, view.kv_heads)


def error(after: Attended, before: Attended) -> float:
    """Give the norm of the difference of two outputs over the norm of the one before."""
    got, want = after.output.astype(np.float64), before.output.astype(np.float64)
    return float(np.linalg.norm(got - want) / np.linalg.norm(want))


@lru_cache(maxsize=64)
def grouped(heads: int, d_k: int, kv_heads: int, method: str, tokens: Tokens, seed: int) -> Attended:
    """Attend with MHA's KV heads merged into so many; as many as there are stay as they are."""
    sizes, weights = grouped_layer(heads, d_k, seed)
    if kv_heads < heads:
        sizes, weights = convert(sizes, weights, kv_heads, method, seed=seed)
    return _attended("gqa", sizes, weights, tokens, seed)


@lru_cache(maxsize=64)
def latent(heads: int, d_k: int, width: int, rope: int, tokens: Tokens, seed: int) -> Attended:
    """Attend with a latent of ``width`` and a rotary key of ``rope``, the first numbers of the whole ones."""
    sizes, weights = latent_layer(heads, d_k, width, rope, seed)
    return _attended("mla", sizes, weights, tokens, seed, POSITIONS["rope"].build())


@lru_cache(maxsize=64)
def additive(heads: int, d_k: int, tokens: Tokens, seed: int) -> Attended:
    """Attend with MHA's own queries, keys and values, scored by a small network."""
    return _attended("additive", *grouped_layer(heads, d_k, seed), tokens, seed)


def _attended(
    variant: str, sizes: Any, weights: Weights, tokens: Tokens, seed: int, position: Position | None = None
) -> Attended:
    """Attend causally; no more of it is kept than is drawn."""
    x = inputs.token_vectors(tokens, WIDTH, seed)[None]
    causal = MASKS["causal"].build()
    found = VARIANTS[variant].attend(sizes, weights, x, allowed=causal, position=position, backend="eager")
    assert found.core.weights is not None  # eager gives them
    return Attended(to_numpy(found.core.weights[0]), to_numpy(found.output[0]))


def grouped_layer(heads: int, d_k: int, seed: int) -> tuple[GroupedConfig, Weights]:
    """Give an MHA layer without biases, with the score vectors that additive attention has beside it."""
    make = _grouped_layer if 4 * WIDTH * heads * d_k <= KEPT_WEIGHTS else _grouped_layer.__wrapped__
    return make(heads, d_k, seed)


@lru_cache(maxsize=1)
def _grouped_layer(heads: int, d_k: int, seed: int) -> tuple[GroupedConfig, Weights]:
    variant = VARIANTS["additive"]
    sizes = variant.config(hidden_size=WIDTH, num_attention_heads=heads, head_dim=d_k, biases=False)
    return sizes, variant.weights(sizes, seed=seed)


def latent_layer(heads: int, d_k: int, width: int, rope: int, seed: int) -> tuple[LatentConfig, Weights]:
    """Give an MLA layer whose latent and rotary key are the first numbers of the whole layer's.

    Keys and values are made of fewer numbers then, and their matrices grow so that their entries keep unit variance.
    """
    weights = VARIANTS["mla"].parameters(latent_sizes(heads, d_k))
    make = _latent_layer if weights <= KEPT_WEIGHTS else _latent_layer.__wrapped__
    sizes, whole = make(heads, d_k, seed)
    cut = dict(whole)
    cut["latent"], cut["latent_norm"] = whole["latent"][:, :width], whole["latent_norm"][:width]
    for name in ("key", "value"):
        cut[name] = whole[name][:width] * math.sqrt(LATENT / width)
    cut["rope_key"] = whole["rope_key"][:, :rope]
    cut["query"] = whole["query"].unflatten(1, (heads, sizes.head_dim))[..., : d_k + rope].flatten(1)
    return replace(sizes, head_dim=d_k + rope, kv_lora_rank=width, qk_rope_head_dim=rope), cut


def latent_sizes(heads: int, d_k: int) -> LatentConfig:
    """Give the sizes of the whole MLA layer."""
    return VARIANTS["mla"].config(
        hidden_size=WIDTH, num_attention_heads=heads, head_dim=d_k + ROTARY, v_head_dim=d_k, kv_lora_rank=LATENT,
        qk_rope_head_dim=ROTARY,
    )  # fmt: skip


@lru_cache(maxsize=1)
def _latent_layer(heads: int, d_k: int, seed: int) -> tuple[LatentConfig, Weights]:
    sizes = latent_sizes(heads, d_k)
    return sizes, VARIANTS["mla"].weights(sizes, seed=seed)
