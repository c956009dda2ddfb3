"""The masks page's words: why a pair may attend, what skipping is worth, two plain pictures, and the sources."""

from functools import lru_cache

import numpy as np
import streamlit as st

from attnviz import units
from attnviz.mask_view import timing as times
from attnviz.mask_view.survey import region
from attnviz.mask_view.view import View
from attnviz.mask_view.why import Reason
from attnviz.mask_view.why import why as reasons_of
from attnviz.masks import MASKS
from attnviz.text import Refusal
from pages.ui import layout, masks_maps, masks_picture
from pages.ui.bus import Group
from pages.ui.controls import Panel
from pages.ui.heatmap import heatmap
from pages.ui.heatmap.frame import Axis, Grid, Map
from pages.ui.translate import say, table

PLAIN_HEIGHT = 250
NO_BREAK = "\N{NO-BREAK SPACE}"

SOURCES = (
    ("Vaswani et al. 2017, Attention Is All You Need, §3.2.3", "https://arxiv.org/abs/1706.03762"),
    ("torch.nn.functional.scaled_dot_product_attention",
     "https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html"),
    ("FlexAttention", "https://docs.pytorch.org/docs/stable/nn.attention.flex_attention.html"),
    ("Dao 2023, FlashAttention-2, §3.1.1 (skipped blocks)", "https://arxiv.org/abs/2307.08691"),
    ("Beltagy et al. 2020, Longformer, §3.1 (reach of stacked windows)", "https://arxiv.org/abs/2004.05150"),
)  # fmt: skip


def turned(panel: Panel) -> None:
    """Say so where every pair that may attend has its key after the query: no query sees itself or the past."""
    if masks_maps.counted(panel.settled.view).only_future:
        st.warning(panel.title("only_future"), icon=":material/warning:")


def why(panel: Panel) -> None:
    """Say why the selected pair may attend or not: every comparison of the rule with its numbers."""
    view = panel.settled.view
    if len(view.cell) < 2:
        st.info(panel.title("why.hint"), icon=":material/touch_app:")
        return
    found = reasons_of(view, *view.cell)
    word = "may" if found.allowed else "may_not"
    st.markdown("**" + panel.title(f"why.{word}", query=view.cell[0], target=view.cell[1]) + "**")
    if found.position != view.cell[0]:
        st.caption(panel.title("why.position", position=found.position))
    for reason in found.reasons:
        st.markdown("\n".join(_lines(panel, reason, several=len(found.reasons) > 1 or view.invert)))
    if len(found.reasons) > 1:
        st.caption(panel.title(f"why.{view.join}"))
    if view.invert:
        st.caption(panel.title("why.invert"))
    st.button(panel.title("why.clear"), on_click=lambda: panel.set("cell", None), key="masks.clear")


def _lines(panel: Panel, reason: Reason, *, several: bool) -> list[str]:
    """Write one mask's answer as lines of Markdown."""
    lines = []
    if several:
        lines.append(f"{_mark(reason.allowed)} **{layout.escape(reason.label.say(panel.language))}**\n")
    if reason.sentence is not None:
        lines.append(f"- {_mark(reason.allowed)} {layout.escape(reason.sentence.say(panel.language))}")
    for clause in reason.clauses:
        numbers = layout.escape(clause.numbers.replace(" ", NO_BREAK))
        words = panel.title(f"why.of_{clause.join}") if clause.join else f"`{clause.text}`: {numbers}"
        lines.append(f"{'  ' * clause.depth}- {_mark(clause.holds)} {words}")
    if not reason.clauses and reason.sentence is None:
        lines.append(f"- {_mark(reason.allowed)} {panel.title('why.rule')}")
    return lines


def _mark(holds: bool) -> str:
    return ":green[✓]" if holds else ":red[✗]"


def timing(panel: Panel) -> None:
    """Offer to time the tiled kernel with and without skipping, and show what was measured for this very view."""
    view, key = panel.settled.view, "masks.timing"

    def run() -> None:
        try:
            st.session_state[key] = (_timed(view), times.measure(view))
        except Refusal as refused:
            st.session_state[key] = (_timed(view), refused)

    st.button(panel.title("timing.button"), on_click=run, key="masks.measure", icon=":material/timer:")
    panel.control("seed")
    measured_for, result = st.session_state.get(key, (None, None))
    if measured_for != _timed(view):
        return
    if isinstance(result, Refusal):
        layout.refusal(result, panel.language)
    elif isinstance(result, times.Timing):
        fields = {
            "skipping": units.seconds(result.skipping_s.median),
            "whole": units.seconds(result.whole_s.median),
            "ratio": units.number(result.ratio),
            "lower": units.number(result.lower),
            "upper": units.number(result.upper),
        }
        st.markdown(panel.title("timing.result", **fields))
        if result.noisy:
            st.warning(panel.title("timing.noisy"), icon=":material/warning:")
        st.caption(panel.title("timing.note", rounds=result.whole_s.runs, width=times.WIDTH))


def _timed(view: View) -> tuple[object, ...]:
    return (masks_maps.bare(view), view.tile, view.seed)


def plain(panel: Panel, group: Group) -> None:
    """Tell causal from padding for a learner: two pictures, one line each."""
    st.subheader(panel.title("plain.title"), anchor=False)
    left, right = st.columns([1.1, 1], gap="medium", vertical_alignment="center")
    with left:
        _draw_plain(panel, group)
    right.markdown(panel.title("plain.causal_line"))
    right.markdown(panel.title("plain.padding_line"))


def _draw_plain(panel: Panel, group: Group) -> None:
    heatmap(
        plain_grid(panel.language),
        part=masks_picture.PLAIN,
        # A group of its own: these two follow nothing.
        group=Group("masks.plain", group.url, {}),
        key="masks.plain",
        picks="map",
        height=PLAIN_HEIGHT,
        words=table(panel.language, "heatmap"),
    )


@lru_cache(maxsize=2)
def plain_grid(language: str) -> Grid:
    """Give the two plain pictures: four words, and two fillers behind them."""
    tokens = tuple(say(language, "masks.plain.tokens").split()) + ("[pad]",) * masks_maps.FILLER
    size = len(tokens)
    maps = []
    for key in masks_picture.PLAIN_MASKS:
        view = masks_maps.plain_view(key)
        cells = region(view.build_mask(), view.look, (0, size), (0, size)).numpy()
        rows, cols = (Axis(dim, say(language, f"masks.axis.{dim}"), size, 0, tokens) for dim in ("query", "key"))
        state = (~cells).astype(np.uint8)
        name, kinds = say(language, f"masks.plain.{key}"), ((1.0, say(language, "masks.may")),)
        maps.append(Map(key, name, cells.astype(np.float32), rows, cols, state, low=0.0, high=1.0, kinds=kinds))
    return Grid(tuple(maps), "", say(language, "masks.plain.alt"))


def explanation(panel: Panel, group: Group) -> None:
    """Say in words what the page shows, and the sources."""
    view = panel.settled.view
    if view.section == "mask":
        plain(panel, group)
    st.subheader(panel.title("words.title"), anchor=False)
    kind = MASKS[view.mask]
    st.markdown(f"**{layout.escape(kind.label.say(panel.language))}** – {layout.escape(kind.help.say(panel.language))}")
    st.markdown(panel.title(f"words.{view.section}"))
    own = (kind.label.say(panel.language), kind.source)
    layout.sources(panel.language, (own, *SOURCES))
