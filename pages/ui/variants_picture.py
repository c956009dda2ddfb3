"""The variants view as pictures with their words: what the page shows and what the live route sends."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from attnviz import units
from attnviz.conversion import METHODS
from attnviz.figures.variants import latent_wiring, wiring
from attnviz.variant_view import guard
from attnviz.variant_view.layers import narrowed
from attnviz.variant_view.run import STATES, Taken, of_view, whole
from attnviz.variant_view.settings import LATENT, VARIANTS
from attnviz.variant_view.view import View, settle
from attnviz.variants import VARIANTS as KINDS
from pages.ui import asked
from pages.ui.heatmap.frame import MASKED_STATE, VALUE_STATE, Axis, Grid, Map, pack
from pages.ui.plot.spec import Drawn, specs, with_figures
from pages.ui.translate import say

FIGURE = "variants"
WIRES, MAPS = "wires", "maps"
# Above so many heads a map is too narrow for words in its title.
COMPACT = 12


def wires(view: View, language: str) -> Drawn:
    """Give the figure of which query head reads which keys and values, and what that takes."""
    taken = of_view(view)
    fields = {
        "variant": variant_name(taken.variant, language),
        "heads": view.heads,
        "kv_heads": view.kv_heads,
        "group": view.heads // view.kv_heads,
        "latent": view.latent,
        "rope": view.rope,
        "token": units.binary_bytes(taken.per_token),
        "share": units.percent(taken.per_token / whole(view).per_token),
    }
    part = f"variants.wires.{view.variant}"
    caption, alt = (say(language, f"{part}.{name}", **fields) for name in ("caption", "alt"))
    return Drawn(_figure(view, language), caption, alt)


def _figure(view: View, language: str) -> Mapping[str, Any]:
    names = {"grouped": ("query", "shared", "hover"), "additive": ("query", "shared", "hover", "scorer")}
    asked = names.get(view.variant, ("query", "reads", "made", "kept", "rotary"))
    words = {name: say(language, f"variants.wires.{name}") for name in asked}
    if view.variant == "mla":
        return latent_wiring(view.heads, view.latent, view.rope, hover=words.pop("reads"), **words)
    return wiring(view.heads, view.kv_heads if view.variant == "grouped" else view.heads, **words)


def maps(view: View, language: str) -> Grid:
    """Give every head's map with the view's KV heads, or its difference to that of the heads before."""
    found = narrowed(view)
    signed = view.show == "change"
    values = found.weights - found.before if signed else found.weights
    reach = float(np.abs(values).max()) or 1.0
    state = np.where(found.allowed, VALUE_STATE, MASKED_STATE).astype(np.uint8)
    rows, cols = (
        Axis(dim, say(language, f"attention.axis.{dim}"), len(view.tokens), 0, view.tokens) for dim in ("query", "key")
    )
    drawn = tuple(
        Map(
            str(head), _title(view, head, language), values[head], rows, cols, state,
            palette="diverging" if signed else "sequential", low=-reach if signed else 0.0, high=reach,
        )
        for head in range(view.heads)
    )  # fmt: skip
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
        "heads": view.heads, "error": units.percent(error), "latent": view.latent,
        "method": METHODS[view.method].label.say(language),
    }  # fmt: skip
    is_whole = {"grouped": view.kv_heads == view.heads, "mla": view.latent == LATENT}.get(view.variant, False)
    part = "whole" if is_whole else "caption"
    return say(language, f"variants.maps.{view.variant}.{part}", **fields) + compact


def _alt(view: View, values: np.ndarray, language: str) -> str:
    head, row, col = (int(place) for place in np.unravel_index(int(np.abs(values).argmax()), values.shape))
    return say(
        language, "variants.maps.alt", heads=view.heads, tokens=len(view.tokens),
        largest=f"{values[head, row, col]:.3g}", head=head, row=row, col=col,
    )  # fmt: skip


def named(taken: Taken, heads: int, language: str) -> str:
    """Name a variant with its heads where these tell it from others, as in "GQA 8/2"."""
    name = variant_name(taken.variant, language)
    return name if taken.kv_heads is None else f"{name} {heads}/{taken.kv_heads}"


def variant_name(variant: str, language: str) -> str:
    """Give a variant's short name."""
    if variant in STATES:
        return KINDS[variant].label.say(language)
    return VARIANTS["additive"].say(language) if variant == "additive" else variant.upper()


def frame(params: Mapping[str, str]) -> bytes:
    """Give the bytes of both pictures.

    Raises:
        Refusal: For settings that cannot be read, and sizes that are too much.
    """
    view, language, given = asked.read(params, settle, check=guard.check)
    wired = wires(view, language)
    figures = specs({WIRES: wired})
    return with_figures(pack(FIGURE, given, {MAPS: maps(view, language)}), figures)


def cell(params: Mapping[str, str]) -> dict[str, object]:
    """Give the exact value of one cell: ``map``, ``row`` and ``col`` say which.

    Raises:
        Refusal: For settings that cannot be read and cells outside the map.
    """
    view, language, _ = asked.read(params, settle, asked.OF_CELL, guard.check)
    tokens = len(view.tokens)
    sides = (("map", view.heads), ("row", tokens), ("col", tokens))
    head, row, col = (asked.index(params, name, length) for name, length in sides)
    drawn = maps(view, language).maps[head]
    allowed = col <= row
    value = np.format_float_positional(np.float32(drawn.values[row, col]), trim="-") if allowed else ""
    return {"value": value, "state": VALUE_STATE if allowed else MASKED_STATE, "row": row, "col": col}
