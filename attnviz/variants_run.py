"""What the variants page shows of a view: weight maps before and after sharing, and what each variant takes."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from torch import Tensor

from attnviz import inputs
from attnviz.arrays import to_numpy
from attnviz.config import dtype_size
from attnviz.conversion import convert
from attnviz.cost import cost
from attnviz.masks import MASKS
from attnviz.variants import VARIANTS
from attnviz.variants.base import AttentionOutput
from attnviz.variants.grouped import GroupedConfig
from attnviz.variants_view import View, quarter
from attnviz.view import variant_key
from attnviz.view_run import WIDTH

LATENT, ROTARY = 512, 64


class Shared(NamedTuple):
    """Hold what sharing makes of a layer on the view's sentence.

    ``weights`` and ``before`` are float ``[heads, tokens, tokens]``, with the KV heads of the view and with one for
    every head; ``allowed`` is bool ``[tokens, tokens]``; ``error`` is the norm of the difference of the two outputs
    over the norm of the output before.
    """

    weights: np.ndarray
    before: np.ndarray
    allowed: np.ndarray
    error: float


class Taken(NamedTuple):
    """Hold what one variant takes: weights of one layer, and the cache of all layers in bytes.

    ``elements`` are what one layer keeps of one token; ``error`` as in ``Shared``, None where none is measured.
    """

    variant: str
    kv_heads: int | None
    parameters: int
    elements: int
    per_token: int
    per_context: int
    error: float | None


def shared(view: View) -> Shared:
    """Give the maps of every head and the output error, with the view's own KV heads."""
    before = _attended(view.heads, view.heads, view.d_k, "mean", view.tokens, view.seed)
    after = _attended(view.heads, view.kv_heads, view.d_k, view.method, view.tokens, view.seed)
    weights, plain = (_weights(one) for one in (after, before))
    allowed = np.tril(np.ones((len(view.tokens), len(view.tokens)), bool))
    return Shared(weights, plain, allowed, _error(after, before))


def _weights(attended: AttentionOutput) -> np.ndarray:
    assert attended.core.weights is not None  # eager gives them
    return to_numpy(attended.core.weights[0])


def _error(after: AttentionOutput, before: AttentionOutput) -> float:
    got, want = after.output.double(), before.output.double()
    return float((got - want).norm() / want.norm())


@lru_cache(maxsize=2)
def _layer(heads: int, d_k: int, seed: int) -> tuple[GroupedConfig, dict[str, Tensor]]:
    """Give an MHA layer with random weights; 64 heads of 256 are 64 MiB."""
    mha = VARIANTS["mha"]
    sizes = mha.config(hidden_size=WIDTH, num_attention_heads=heads, head_dim=d_k, biases=False)
    return sizes, mha.weights(sizes, seed=seed)


@lru_cache(maxsize=64)
def _attended(heads: int, kv_heads: int, d_k: int, method: str, tokens: tuple[str, ...], seed: int) -> AttentionOutput:
    """Attend with the layer's KV heads merged into so many; as many as there are stay as they are."""
    sizes, weights = _layer(heads, d_k, seed)
    if kv_heads < heads:
        sizes, weights = convert(sizes, weights, kv_heads, method, seed=seed)
    x = inputs.token_vectors(tokens, WIDTH, seed)[None]
    causal = MASKS["causal"].build()
    return VARIANTS["gqa"].attend(sizes, weights, x, allowed=causal, backend="eager")


def of_view(view: View) -> Taken:
    """Give what the view's own layer takes."""
    return _grouped(view, view.kv_heads)


def table(view: View) -> tuple[Taken, ...]:
    """Give MHA, GQA, MQA and MLA at the view's sizes.

    GQA has the view's KV heads where those are grouped; a number of heads that cannot be grouped has no GQA.
    """
    wanted = view.kv_heads if 1 < view.kv_heads < view.heads else quarter(view.heads)
    kv_heads = [view.heads, *([wanted] if 1 < wanted < view.heads else []), *([1] if view.heads > 1 else [])]
    return (*(_grouped(view, one) for one in kv_heads), _latent(view))


def _grouped(view: View, kv_heads: int) -> Taken:
    key = variant_key(view.heads, kv_heads)
    sizes = VARIANTS[key].config(
        hidden_size=view.width, num_attention_heads=view.heads, num_key_value_heads=kv_heads, head_dim=view.d_k,
        biases=False,
    )  # fmt: skip
    before = _attended(view.heads, view.heads, view.d_k, "mean", view.tokens, view.seed)
    after = _attended(view.heads, kv_heads, view.d_k, view.method, view.tokens, view.seed)
    return _taken(view, key, kv_heads, sizes, _error(after, before))


def _latent(view: View) -> Taken:
    """Give MLA with the latent of DeepSeek-V2 and V3, and heads of the view's d_k beside the rotary part."""
    sizes = VARIANTS["mla"].config(
        hidden_size=view.width, num_attention_heads=view.heads, kv_lora_rank=LATENT, qk_rope_head_dim=ROTARY,
        head_dim=view.d_k + ROTARY, v_head_dim=view.d_k,
    )  # fmt: skip
    return _taken(view, "mla", None, sizes, None)


def _taken(view: View, key: str, kv_heads: int | None, sizes: object, error: float | None) -> Taken:
    one = cost(key, sizes, q_len=1, kv_len=1, dtype=view.dtype)
    whole = cost(key, sizes, q_len=1, kv_len=view.context, dtype=view.dtype)
    return Taken(
        key, kv_heads, one.parameters, one.kv_cache_bytes // dtype_size(view.dtype), view.layers * one.kv_cache_bytes,
        view.layers * whole.kv_cache_bytes, error,
    )  # fmt: skip
