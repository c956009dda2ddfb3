"""The maps of the variants page: every head of a layer, what narrowing changes of it, or three layers side by side."""

from dataclasses import replace

import numpy as np

from attnviz import units
from attnviz.conversion import METHODS
from attnviz.families import variant_key
from attnviz.variant_view.layers import Shared, narrowed, side_by_side
from attnviz.variant_view.run import STATES, Taken
from attnviz.variant_view.settings import LATENT, VARIANTS
from attnviz.variant_view.view import View
from attnviz.variants import VARIANTS as KINDS
from attnviz.variants.latent.sizes import LatentConfig
from pages.ui.heatmap.frame import MASKED_STATE, VALUE_STATE, Axis, Grid, Map
from pages.ui.translate import counted, say

# Above so many heads a map is too narrow for words in its title.
COMPACT = 12


def maps(view: View, language: str) -> Grid:
    """Give what the view shows: three layers side by side, every head of its own, or what it changes of them."""
    drawn = compared(view, language) if view.show == "compare" else single(view, language)
    if not view.cell or view.cell[0] in view.shown:
        return drawn
    # Its query and key are marked in every map: without a word that looks as if something here were selected.
    head, query, key, *_ = view.cell
    elsewhere = say(language, "variants.maps.elsewhere", head=head, query=query, target=key)
    return replace(drawn, caption=f"{elsewhere} {drawn.caption}")


def compared(view: View, language: str) -> Grid:
    """Give some heads of MHA, of the layer with the view's KV heads, and of MQA, a line each, with their errors."""
    layers = side_by_side(view)
    heads, drawn = view.shown, []
    for place, layer in enumerate(layers):
        group = view.heads // layer.kv_heads
        for head in heads:
            title = say(language, "attention.head_kv", head=head, kv=head // group)
            drawn.append(_map(view, key_of(head, place), title, layer.weights[head], language))
    lines = tuple(_line(view, place, layer, language) for place, layer in enumerate(layers))
    caption = say(language, "variants.compare.caption")
    alt = "; ".join(f"{name}: {note}" for name, note in lines)
    fields = {"lines": alt, "first": heads[0], "last": heads[-1], "tokens": _tokens(view, language)}
    single = "_one" if view.heads == 1 else ""
    return Grid(tuple(drawn), caption, say(language, f"variants.compare.alt{single}", **fields), lines)


def _tokens(view: View, language: str) -> str:
    return counted(language, "token", len(view.tokens))


def key_of(head: int, layer: int) -> str:
    """Name a map of those side by side; where one layer stands alone its maps are named by the head."""
    return f"{layer}.{head}"


def _line(view: View, place: int, layer: Shared, language: str) -> tuple[str, str]:
    """Name a layer, and say how far its output is from MHA's; at an end of its slider the middle one has a twin."""
    name = f"{variant_key(view.heads, layer.kv_heads).upper()} {view.heads}/{layer.kv_heads}"
    part = "whole" if place == 0 else "error"
    if place == 1 and layer.kv_heads in (1, view.heads):
        part = "below" if layer.kv_heads == 1 else "above"
    return name, say(language, f"variants.compare.{part}", error=units.percent(layer.error))


def _map(view: View, key: str, title: str, values: np.ndarray, language: str, reach: float | None = None) -> Map:
    """Give one head's map; ``reach`` is the largest size of a difference, None of weights."""
    tokens = len(view.tokens)
    rows, cols = (Axis(dim, say(language, f"attention.axis.{dim}"), tokens, 0, view.tokens) for dim in ("query", "key"))
    state = np.where(np.tri(tokens, dtype=bool), VALUE_STATE, MASKED_STATE).astype(np.uint8)
    look = ("sequential", 0.0, 1.0) if reach is None else ("diverging", -reach, reach)
    palette, low, high = look
    return Map(key, title, values, rows, cols, state, palette=palette, low=low, high=high)


def single(view: View, language: str) -> Grid:
    """Give the shown heads' maps of the view's layer, or their differences to those of the layer before."""
    found = narrowed(view)
    signed = view.show == "change"
    values = found.weights - found.before if signed else found.weights
    reach = (float(np.abs(values).max()) or 1.0) if signed else None
    drawn = tuple(
        _map(view, str(head), _title(view, head, language), values[head], language, reach) for head in view.shown
    )
    return Grid(drawn, _caption(view, language, found.error), _alt(view, values, language))


def _title(view: View, head: int, language: str) -> str:
    """Name a head, with the KV head that it reads where heads can share one, in the fewest signs where many are."""
    if view.variant != "grouped":
        return say(language, "attention.head", head=head) if view.heads <= COMPACT else str(head)
    kv = head // (view.heads // view.kv_heads)
    return say(language, "attention.head_kv", head=head, kv=kv) if view.heads <= COMPACT else f"{head}→{kv}"


def _caption(view: View, language: str, error: float) -> str:
    """Say how the layer was narrowed and how far its output is from the one before."""
    is_compact = view.heads > COMPACT and view.variant == "grouped"
    compact = f" {say(language, 'variants.maps.compact')}" if is_compact else ""
    fields = {
        "error": units.percent(error), "latent": view.latent, "method": METHODS[view.method].label.say(language),
    }  # fmt: skip
    is_whole = {"grouped": view.kv_heads == view.heads, "mla": view.latent == LATENT}.get(view.variant, False)
    part = "whole" if is_whole else "caption"
    return say(language, f"variants.maps.{view.variant}.{part}", **fields) + compact


def _alt(view: View, values: np.ndarray, language: str) -> str:
    shown = values[view.shown.start : view.shown.stop]
    place, row, col = (int(index) for index in np.unravel_index(int(np.abs(shown).argmax()), shown.shape))
    single = "_one" if view.heads == 1 else ""
    return say(
        language, f"variants.maps.alt{single}", heads=view.heads, first=view.shown[0], last=view.shown[-1],
        tokens=_tokens(view, language), largest=f"{shown[place, row, col]:.3g}", head=view.shown[place], row=row,
        col=col,
    )  # fmt: skip


def mha_of(sizes: LatentConfig, language: str) -> str:
    """Say which MHA a layer of MLA is compared with, and what its own keys and values would be."""
    width = counted(language, "number", sizes.qk_nope_head_dim)
    fields = {"width": width, "rope": sizes.qk_rope_head_dim, "expanded": units.count(sizes.expanded)}
    return say(language, "variants.numbers.mha", **fields)


def named(taken: Taken, heads: int, language: str) -> str:
    """Name a variant with its heads where these tell it from others, as in "GQA 8/2"."""
    name = variant_name(taken.variant, language)
    return name if taken.kv_heads is None else f"{name} {heads}/{taken.kv_heads}"


def variant_name(variant: str, language: str) -> str:
    """Give a variant's short name."""
    if variant in STATES:
        return KINDS[variant].label.say(language)
    return VARIANTS["additive"].say(language) if variant == "additive" else variant.upper()
