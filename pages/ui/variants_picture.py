"""The variants view as pictures with their words: what the page shows and what the live route sends."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from attnviz import units
from attnviz.figures.variants import latent_wiring, wiring
from attnviz.variant_view import guard
from attnviz.variant_view.run import of_view, whole
from attnviz.variant_view.view import View, settle
from pages.ui import asked, translate
from pages.ui.heatmap.frame import MASKED_STATE, VALUE_STATE, pack
from pages.ui.plot.spec import Drawn, specs, with_figures
from pages.ui.translate import say
from pages.ui.variants_maps import maps, variant_name

FIGURE = "variants"
WIRES, MAPS = "wires", "maps"


def wires(view: View, language: str) -> Drawn:
    """Give the figure of which query head reads which keys and values, and what that takes."""
    taken = of_view(view)
    fields = {
        "variant": variant_name(taken.variant, language),
        "heads": view.heads,
        "kv_heads": view.kv_heads,
        "queries": translate.counted(language, "query_head", view.heads),
        "shared": translate.counted(language, "kv_head", view.kv_heads),
        "numbers": translate.counted(language, "number", view.latent),
        "group": view.heads // view.kv_heads,
        "rope": view.rope,
        "token": units.binary_bytes(taken.per_token),
        "share": units.percent(taken.per_token / whole(view).per_token),
    }
    part = f"variants.wires.{view.variant}"
    caption, alt = (say(language, f"{part}.{name}", **fields) for name in ("caption", "alt"))
    return Drawn(_figure(view, language), caption, alt)


def _figure(view: View, language: str) -> Mapping[str, Any]:
    names = {"grouped": ("kv", "hover"), "additive": ("kv", "hover", "scorer")}
    asked = names.get(view.variant, ("reads", "made", "kept", "rotary"))
    words = {name: say(language, f"variants.wires.{name}") for name in asked}
    words["query"] = translate.counted(language, "query_head", view.heads)
    if view.variant == "mla":
        return latent_wiring(view.heads, view.latent, view.rope, hover=words.pop("reads"), **words)
    kv_heads = view.kv_heads if view.variant == "grouped" else view.heads
    words["shared"] = translate.counted(language, "kv_head", kv_heads)
    return wiring(view.heads, kv_heads, **words)


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
    drawn = {one.key: one for one in maps(view, language).maps}
    row, col = asked.place(params, (len(view.tokens), len(view.tokens)))
    values = drawn[asked.one_of(params, "map", drawn)].values
    allowed = col <= row
    value = np.format_float_positional(np.float32(values[row, col]), trim="-") if allowed else ""
    return {"value": value, "state": VALUE_STATE if allowed else MASKED_STATE, "row": row, "col": col}
