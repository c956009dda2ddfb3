"""A canvas for one head's map or a grid of them, fed two bytes a cell and coloured in the browser."""

from collections.abc import Callable, Mapping
from pathlib import Path

import streamlit as st
from streamlit.components.v2 import component

from pages.ui.bus import Group, note_route, route_is_live, with_bus
from pages.ui.heatmap.frame import Grid, pack
from pages.ui.translate import needed

# Fields: {row} in no_key_row, {rows} and {cols} in pooled_*, {count} in max_of and mean_of.
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
    "from_zero",
    "reset_zoom",
    "keys_help",
    "empty",
    "broken",
)
LAYOUTS, PICKS = ("grid", "rows", "strip"), ("cell", "map")
DIMS = ("query", "key", "feature")
SCRIPTS = ("paint.js", "arrange.js", "draw.js", "marks.js", "point.js", "choose.js", "heatmap.js")

_HTML = """
<div data-part="root" class="heatmap">
  <div data-part="stage" class="stage" role="application" tabindex="0">
    <canvas data-part="base" aria-hidden="true"></canvas>
    <canvas data-part="over" class="over" aria-hidden="true"></canvas>
    <div data-part="tip" class="tip" aria-hidden="true" hidden></div>
    <button data-part="reset" class="reset" type="button" hidden></button>
  </div>
  <div class="under">
    <div data-part="legend" class="legend"></div>
    <div data-part="chosen" class="chosen" role="status"></div>
  </div>
  <div data-part="caption" class="caption"></div>
  <div data-part="problem" class="problem" role="alert"></div>
</div>
"""

_CSS = """
.heatmap {
  font-family: var(--st-font); font-size: calc(0.875rem * var(--scale, 1)); line-height: 1.4;
  color: var(--st-text-color);
}
.stage {
  position: relative; touch-action: pan-x pan-y pinch-zoom; user-select: none; -webkit-user-select: none;
  cursor: crosshair; outline: none; border-radius: 2px;
}
.stage:focus-visible { outline: 2px solid var(--st-primary-color); outline-offset: 2px; }
canvas { display: block; position: absolute; top: 0; left: 0; }
.over { pointer-events: none; }
.tip {
  position: absolute; z-index: 5; pointer-events: none; width: max-content; max-width: 20rem;
  padding: 0.375rem 0.625rem; background: var(--st-background-color); color: var(--st-text-color);
  border: 1px solid var(--st-border-color); border-radius: var(--st-base-radius); font-size: 1.0714em;
  white-space: pre-wrap; overflow-wrap: anywhere; box-shadow: 0 2px 8px rgb(0 0 0 / 20%);
}
.tip strong { display: block; font-size: 1.3333em; font-variant-numeric: tabular-nums; }
.note, .caption { color: color-mix(in srgb, var(--st-text-color) 75%, var(--st-background-color)); }
.note { font-size: 0.875em; }
.reset {
  position: absolute; right: 0; top: -0.25em; font: inherit; line-height: 1.3; padding: 0 0.5em; cursor: pointer;
  background: var(--st-background-color); color: var(--st-text-color);
  border: 1px solid var(--st-border-color); border-radius: var(--st-base-radius);
}
.reset:hover { border-color: var(--st-primary-color); color: var(--st-primary-color); }
.reset:focus-visible { outline: 2px solid var(--st-primary-color); outline-offset: 1px; }
.reset[hidden], .tip[hidden] { display: none; }
.under { display: flex; flex-wrap: wrap; gap: 0 1.5rem; margin-top: 0.25rem; }
.chosen {
  display: flex; flex-wrap: wrap; gap: 0 0.875rem; min-height: 1.4em; white-space: pre-wrap; overflow-wrap: anywhere;
}
.chosen strong { font-variant-numeric: tabular-nums; }
.legend { display: flex; flex-wrap: wrap; gap: 0 1rem; }
.legend:empty { display: none; }
.legend canvas { position: static; display: inline-block; margin-right: 0.375rem; vertical-align: -0.125rem; }
.heatmap[data-picks="map"] .stage { cursor: pointer; }
.heatmap[data-picks="map"] .under, .caption:empty, .problem:empty { display: none; }
.problem { color: var(--st-red-text-color, var(--st-red-color)); }
@media print { .reset, .tip { display: none; } }
"""

_FOLDER = Path(__file__).parent
_COMPONENT = component(
    "attnviz_heatmap",
    html=_HTML,
    css=_CSS,
    js=with_bus("\n".join((_FOLDER / name).read_text(encoding="utf-8") for name in SCRIPTS)),
)

# A picture of more cells (half a megabyte) is not sent with a run of the page when the browser can fetch it faster.
HOLLOW_CELLS = 2**18

Chosen = Mapping[str, object]


def _message(key: str) -> Mapping[str, object]:
    """Give what the browser just sent; it may be anything."""
    state = st.session_state.get(key)
    message = state.get("select") if isinstance(state, Mapping) else None
    return message if isinstance(message, Mapping) else {}


def _whole(value: object) -> int | None:
    """Give a whole number from 0, or None for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53 else None


def _chosen(message: Mapping[str, object]) -> Chosen | None:
    """Give what was just clicked: the map and an index per axis; None when the selection was taken away."""
    if not isinstance(message.get("map"), str):
        return None
    indices = {dim: _whole(message.get(dim)) for dim in DIMS}
    return {"map": message["map"], **{dim: index for dim, index in indices.items() if index is not None}}


def _check(words: Mapping[str, str], layout: str, picks: str) -> None:
    needed(words, WORD_KEYS)
    for name, value, valid in (("layout", layout, LAYOUTS), ("picks", picks, PICKS)):
        if value not in valid:
            raise ValueError(f"{name} must be one of {', '.join(valid)}, got {value!r}")


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
    scale: float = 1.0,
    phone_height: int | None = None,
    shares_rows: bool = False,
    own_zoom: bool = False,
) -> None:
    """Draw a grid of maps that follows its group's sliders.

    Args:
        grid: What to draw.
        part: Its name in the group's live frames.
        group: The live group of this run.
        key: Key of the element.
        words: Texts in the page's language under ``WORD_KEYS``.
        height: The most that the picture with its titles and labels may take, in CSS pixels.
        selected: The selected cell: "map" and an index for "query", "key" or "feature".
        on_select: Takes the cell that was clicked, or None when the selection was cleared; called before the run.
        layout: ``grid``, ``rows`` for maps that share their rows and have columns of their own, or ``strip`` for
            thumbnails of different shapes without axes.
        picks: ``cell`` to select cells, ``map`` to report the clicked map only.
        chosen: Key of the map that is emphasised.
        scale: Size of the text in the picture, 1 or more; 1 is 13 px or what the page's own text size makes of it.
        phone_height: What ``height`` is on a phone, which scrolls, with text of size 1; None is ``height`` there too.
        shares_rows: Whether it zooms into the rows of the group's other pictures that share theirs, and they into its.
        own_zoom: Whether the colours of its one map, to both sides of 0, reach as far as what is zoomed into does.

    Raises:
        ValueError: If a word is missing, a choice is unknown, or the grid is too large for one message.
    """
    _check(words, layout, picks)
    hollow = route_is_live() and sum(drawn.values.size for drawn in grid.maps) > HOLLOW_CELLS
    look = {"height": height, "layout": layout, "picks": picks, "chosen": chosen, "scale": scale}
    look |= {"phone_height": phone_height, "shares_rows": shares_rows, "own_zoom": own_zoom}
    look |= {"part": part, "words": needed(words, WORD_KEYS), "hollow": hollow}
    marks = {"selected": None if selected is None else dict(selected), "seen": st.session_state.get(_seen(group), 0)}
    _COMPONENT(
        key=key,
        data=pack(group.name, group.params, {part: Grid(()) if hollow else grid}, group.data() | look | marks),
        on_select_change=lambda: _receive(key, group, on_select),
        on_lost_change=lambda: note_route(False),
    )


def _seen(group: Group) -> str:
    """Name the stamp of the last selection heard of; the browser holds on to a newer one until the page catches up."""
    return f"{group.name}.heatmap.seen"


def _receive(key: str, group: Group, on_select: Callable[[Chosen | None], None] | None) -> None:
    message = _message(key)
    st.session_state[_seen(group)] = max(st.session_state.get(_seen(group), 0), _whole(message.get("at")) or 0)
    if on_select is not None:
        on_select(_chosen(message))
