"""The flash page's code, and what popular texts say of flash, each with what this page measures."""

from dataclasses import replace

import numpy as np
import streamlit as st

from attnviz import units
from attnviz.flash_view import precision as exactness
from attnviz.flash_view import traffic, weights
from attnviz.flash_view.snippet import flash_snippet
from attnviz.flash_view.view import View
from pages.ui import flash_costs, layout
from pages.ui.controls import Panel

CLAIMS = ("approximate", "same", "linear_flops", "linear_bytes", "memory", "always", "no_weights")
# FLOPs are compared at these lengths, in tiles of the page's size, without a mask.
_SHORT, _LONG = 512, 1024


def snippet(panel: Panel) -> None:
    """Give the view as plain PyTorch."""
    opened = layout.fold(panel.title("snippet.title"), icon=":material/code:", key="flash.fold.snippet")
    if opened is not None:
        opened.markdown(panel.title("snippet.lead"))
        opened.code(flash_snippet(panel.settled.view), language="python")


def claims(panel: Panel) -> None:
    """Answer what is often said of flash with numbers that were just measured."""
    opened = layout.fold(panel.title("claims.title"), icon=":material/fact_check:", key="flash.fold.claims")
    if opened is None:
        return
    said = measured(panel.settled.view)
    with opened:
        for name in CLAIMS:
            answer = f"{name}_{said['pays']}" if name == "always" else f"{name}_true"
            st.markdown(f"**{panel.title(f'claims.{name}')}** {panel.title(f'claims.{answer}', **said)}")
        st.caption(panel.title("claims.note"))


def measured(view: View) -> dict[str, str]:
    """Measure what the claims are answered with."""
    errors = exactness.precision(view).errors
    length, memory = traffic.against_length(view), traffic.against_memory(view)
    held = [traffic.held_bytes(int(at), view.d_k, "flash") for at in length.at]
    cross = traffic.least_memory(int(view.tokens), view.d_k)
    proof = weights.proof(view)
    work = [traffic.flash_work(_full(view, tokens)).total for tokens in (_SHORT, _LONG)]
    added = round((held[-1] - held[-2]) / int(length.at[-1] - length.at[-2]))
    at = int(np.flatnonzero(np.isfinite(memory.counted))[0])
    return {
        "float32": units.number(errors["float32"]["flash"].largest, 2),
        "eager32": units.number(errors["float32"]["eager"].largest, 2),
        "flash16": units.number(errors["bfloat16"]["flash"].largest, 2),
        "eager16": units.number(errors["bfloat16"]["eager"].largest, 2),
        "short": units.count(_SHORT), "long": units.count(_LONG), "flops": units.ratio(work[1] / work[0]),
        "before": units.count(int(length.at[-2])), "after": units.count(int(length.at[-1])),
        "moved": units.ratio(flash_costs.growth(length.predicted)),
        "part": units.ratio(float(length.predicted[-1] / length.eager[-1])),
        "held": units.binary_bytes(held[-1]), "added": units.count(added),
        "tokens": units.count(int(view.tokens)), "memory": units.binary_bytes(int(memory.at[at])),
        "share": units.ratio(float(memory.counted[at] / memory.eager[at])),
        "pays": flash_costs.pays(memory), "crossing": units.binary_bytes(cross or 0),
        "proof": units.number(proof.output, 2), "weight": units.number(proof.eager, 2),
    }  # fmt: skip


def _full(view: View, tokens: int) -> View:
    """Give the view without a mask at another length, in tiles that there are not too many of."""
    tile = (max(side, tokens // 64) for side in view.tile)
    rows, cols = tile
    return replace(
        view, mask="full", mask_settings=(), length=tokens, key_length=tokens, tile_rows=rows, tile_cols=cols
    )
