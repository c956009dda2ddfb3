"""A canvas for one head's map or a grid of them, fed two bytes a cell and coloured in the browser."""

from collections.abc import Callable, Mapping
from pathlib import Path

import streamlit as st
from streamlit.components.v2 import component

from pages.ui.bus import Group, with_bus
from pages.ui.heatmap.frame import Grid, pack

WORD_KEYS = (
    "masked",
    "no_key",
    "no_key_row",
    "nan",
    "inf",
    "below",
    "pooled_max",
    "pooled_mean",
    "max_of",
    "mean_of",
    "lowest",
    "highest",
    "own_range",
    "reset_zoom",
    "keys_help",
    "broken",
)

_HTML = """
<div data-part="root" class="heatmap">
  <div data-part="stage" class="stage" role="img" tabindex="0">
    <canvas data-part="base"></canvas>
    <canvas data-part="over" class="over"></canvas>
    <div data-part="tip" class="tip" aria-hidden="true" hidden></div>
    <button data-part="reset" class="reset" type="button" hidden></button>
  </div>
  <div data-part="chosen" class="chosen" role="status"></div>
  <div data-part="legend" class="legend"></div>
  <div data-part="caption" class="caption"></div>
  <div data-part="problem" class="problem" role="alert"></div>
</div>
"""

_CSS = """
.heatmap { font-family: var(--st-font); color: var(--st-text-color); font-size: 0.875rem; line-height: 1.4; }
.stage { position: relative; touch-action: pan-y pinch-zoom; user-select: none; cursor: crosshair; outline: none; }
.stage:focus-visible { box-shadow: 0 0 0 2px var(--st-primary-color); border-radius: 2px; }
canvas { display: block; position: absolute; inset: 0 auto auto 0; }
.over { pointer-events: none; }
.tip {
  position: absolute; z-index: 5; pointer-events: none; max-width: 20rem; padding: 0.375rem 0.625rem;
  background: var(--st-background-color); color: var(--st-text-color);
  border: 1px solid var(--st-border-color); border-radius: var(--st-base-radius); font-size: 0.875rem;
  white-space: pre-wrap; overflow-wrap: anywhere; box-shadow: 0 2px 8px rgb(0 0 0 / 20%);
}
.tip strong { font-size: 1.125rem; font-variant-numeric: tabular-nums; }
.reset {
  position: absolute; right: 4.75rem; top: 1.4rem; font: inherit; padding: 0.125rem 0.5rem; cursor: pointer;
  background: var(--st-background-color); color: var(--st-text-color);
  border: 1px solid var(--st-border-color); border-radius: var(--st-base-radius);
}
.reset[hidden], .tip[hidden] { display: none; }
.chosen { min-height: 1.4em; font-variant-numeric: tabular-nums; overflow-wrap: anywhere; white-space: pre-wrap; }
.chosen:empty, .legend:empty, .caption:empty, .problem:empty { display: none; }
.legend { display: flex; flex-wrap: wrap; gap: 0.125rem 1rem; }
.legend i {
  display: inline-block; width: 0.875rem; height: 0.875rem; margin-right: 0.375rem; vertical-align: -0.125rem;
  border: 1px solid color-mix(in srgb, var(--st-text-color) 45%, transparent);
}
.caption { color: color-mix(in srgb, var(--st-text-color) 75%, var(--st-background-color)); }
.problem { color: var(--st-red-text-color, var(--st-red-color)); }
"""

_COMPONENT = component(
    "attnviz_heatmap",
    html=_HTML,
    css=_CSS,
    js=with_bus((Path(__file__).parent / "heatmap.js").read_text(encoding="utf-8")),
)

Chosen = Mapping[str, object]


def _chosen(key: str) -> Chosen | None:
    """Give what was just clicked: the map and an index per axis; None when the selection was taken away.

    A client may send anything: indices that are no whole numbers are left out.
    """
    state = st.session_state.get(key)
    message = state.get("select") if isinstance(state, Mapping) else None
    if not isinstance(message, Mapping) or not isinstance(message.get("map"), str):
        return None
    indices = {dim: message.get(dim) for dim in ("query", "key", "feature")}
    whole = {dim: i for dim, i in indices.items() if isinstance(i, int) and not isinstance(i, bool) and i >= 0}
    return {"map": message["map"], **whole}


def heatmap(
    grid: Grid,
    *,
    part: str,
    group: Group,
    key: str,
    words: Mapping[str, str],
    height: int,
    selected: Chosen | None = None,
    on_select: Callable[[Chosen | None], None] | None = None,
    layout: str = "grid",
    picks: str = "cell",
    chosen: str | None = None,
) -> None:
    """Draw a grid of maps that follows its group's sliders.

    Args:
        grid: What to draw.
        part: Its name in the group's live frames.
        group: The live group of this run.
        key: Key of the element.
        words: Texts in the page's language under ``WORD_KEYS``.
        height: Height of the picture in CSS pixels.
        selected: The selected cell: "map" and an index for "query", "key" or "feature".
        on_select: Takes the cell that was clicked, or None when the selection was cleared; called before the run.
        layout: ``grid``, or ``strip`` for thumbnails of different shapes without axes.
        picks: ``cell`` to select cells, ``map`` to report the clicked map only.
        chosen: Key of the map whose title is emphasised.

    Raises:
        ValueError: If a word is missing, or the grid is too large for one message.
    """
    missing = [word for word in WORD_KEYS if word not in words]
    if missing:
        raise ValueError(f"words must have {', '.join(WORD_KEYS)}, got none for {', '.join(missing)}")

    def receive() -> None:
        if on_select is not None:
            on_select(_chosen(key))

    config = {
        **group.data(),
        "part": part,
        "words": {word: words[word] for word in WORD_KEYS},
        "height": height,
        "selected": None if selected is None else dict(selected),
        "layout": layout,
        "picks": picks,
        "chosen": chosen,
    }
    _COMPONENT(key=key, data=pack(group.name, group.params, {part: grid}, config), on_select_change=receive)
