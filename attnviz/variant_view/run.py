"""What each variant takes at the sizes of the view: parameters, cache, FLOPs, and the measured error of narrowing."""

from typing import Any, NamedTuple, cast

from attnviz.config import dtype_size, quarter
from attnviz.cost import cost
from attnviz.families import variant_key
from attnviz.variant_view import layers
from attnviz.variant_view.settings import LATENT
from attnviz.variant_view.view import View
from attnviz.variants import VARIANTS
from attnviz.variants.latent import Latent
from attnviz.variants.latent.sizes import LatentConfig

# Those that keep a state instead of keys and values.
STATES = tuple(entry.key for entry in VARIANTS.values() if not entry.grows(entry.config(hidden_size=1)))


class Taken(NamedTuple):
    """Hold what one variant takes: weights of one layer; cache and FLOPs of all layers, in bytes and FLOPs.

    ``kv_heads`` is None of variants that are not told by it. ``elements`` are what one layer keeps of one token;
    ``flops`` are those of one new token behind the whole context; ``error`` as in ``layers.Narrowed``, None where
    nothing was narrowed that could be compared.
    """

    variant: str
    kv_heads: int | None
    parameters: int
    elements: int
    per_token: int
    per_context: int
    flops: int
    error: float | None


def of_view(view: View) -> Taken:
    """Give what the view's own layer takes."""
    if view.variant == "grouped":
        return _grouped(view, view.kv_heads)
    return _latent(view) if view.variant == "mla" else _plain(view, "additive")


def whole(view: View) -> Taken:
    """Give what MHA takes at the view's sizes, which the others are compared with."""
    return _grouped(view, view.heads)


def table(view: View) -> tuple[Taken, ...]:
    """Give every variant at the view's sizes, in the order of their papers' names.

    GQA has the view's KV heads where those are grouped; a number of heads that cannot be grouped has no GQA.
    """
    wanted = view.kv_heads if 1 < view.kv_heads < view.heads else quarter(view.heads)
    kv_heads = [view.heads, *([wanted] if 1 < wanted < view.heads else []), *([1] if view.heads > 1 else [])]
    own = (_plain(view, key) for key in ("additive", *STATES))
    return (*(_grouped(view, one) for one in kv_heads), _latent(view), *own)


def _grouped(view: View, kv_heads: int) -> Taken:
    key = variant_key(view.heads, kv_heads)
    sizes = VARIANTS[key].config(**_common(view), num_key_value_heads=kv_heads)
    before, after = (layers.shared(view, one) for one in (view.heads, kv_heads))
    return _taken(view, key, kv_heads, sizes, layers.error(after, before))


def _common(view: View) -> dict[str, Any]:
    return {
        "hidden_size": view.width, "num_attention_heads": view.heads, "head_dim": view.d_k, "biases": False,
    }  # fmt: skip


def latent_sizes(view: View) -> LatentConfig:
    """Give MLA with the view's latent, and heads of its d_k beside the rotary part; a model's as it is published."""
    if view.preset is not None and view.variant == "mla":
        return view.preset.config
    return VARIANTS["mla"].config(
        hidden_size=view.width, num_attention_heads=view.heads, kv_lora_rank=view.latent, qk_rope_head_dim=view.rope,
        head_dim=view.d_k + view.rope, v_head_dim=view.d_k,
    )  # fmt: skip


def absorbs(view: View) -> bool:
    """Say whether MLA computes one more token behind the context over the latents themselves."""
    return cast("Latent", VARIANTS["mla"]).absorbs(latent_sizes(view), 1, view.context)


def _latent(view: View) -> Taken:
    sizes = latent_sizes(view)
    if view.latent == LATENT:
        return _taken(view, "mla", None, sizes, None)
    place = (view.tokens, view.seed)
    before, after = (layers.latent(view.heads, view.d_k, one, view.rope, *place) for one in (LATENT, view.latent))
    return _taken(view, "mla", None, sizes, layers.error(after, before))


def _plain(view: View, key: str) -> Taken:
    return _taken(view, key, None, VARIANTS[key].config(**_common(view)), None)


def _taken(view: View, key: str, kv_heads: int | None, sizes: object, error: float | None) -> Taken:
    one = cost(key, sizes, q_len=1, kv_len=1, dtype=view.dtype)
    whole = cost(key, sizes, q_len=1, kv_len=view.context, dtype=view.dtype)
    # A state of fixed size is there before the first token and takes no more with any further one.
    token = one.kv_cache_bytes if VARIANTS[key].grows(sizes) else 0
    return Taken(
        key, kv_heads, one.parameters, token // dtype_size(view.dtype), view.layers * token,
        view.layers * whole.kv_cache_bytes, view.layers * whole.flops, error,
    )  # fmt: skip
