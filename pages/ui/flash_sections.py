"""The flash page: controls, the grid of tiles beside one row's running state, and the words."""

from collections.abc import Mapping

import streamlit as st

from attnviz.flash_view.settings import mask_knobs
from attnviz.flash_view.walk import walk
from pages.ui import flash_bug, flash_costs, flash_picture, flash_weights, flash_words, layout
from pages.ui.bus import Group
from pages.ui.controls import Panel
from pages.ui.flash_picture import OUTPUT, STATISTICS, TILES
from pages.ui.heatmap import heatmap
from pages.ui.plot import plot
from pages.ui.translate import table

PICTURE_HEIGHT = 410
# Between two tiles while the walk plays by itself: slow enough to follow, and short walks take their time.
PLAY_MS, PLAY_LEAST_MS, PLAY_WHOLE_MS = 700, 60, 18_000
# Room for each name with its arrow for going back: where there is less, it breaks in two.
_WIDTHS = {"en": (1.28, 1.04, 1.16, 1.27, 1.27), "zh": (1.34, 1.02, 1.37, 1.1, 1.1)}
SOURCES = (
    ("Dao et al. 2022, FlashAttention, Algorithm 1, Theorems 1 and 2", "https://arxiv.org/abs/2205.14135"),
    ("Dao 2023, FlashAttention-2, Algorithm 1, §3.1", "https://arxiv.org/abs/2307.08691"),
    ("Milakov, Gimelshein 2018, Online normalizer calculation for softmax, Algorithm 3", "https://arxiv.org/abs/1805.02867"),
    ("Rabe, Staats 2021, Self-attention Does Not Need O(n²) Memory", "https://arxiv.org/abs/2112.05682"),
)  # fmt: skip


def side_controls(panel: Panel, group: Group) -> None:
    """Draw the controls of the mask and of the input."""
    view = panel.settled.view
    with st.sidebar:
        st.subheader(panel.title("group.mask"), anchor=False)
        panel.control("mask", bare=True)
        for name in mask_knobs(view.mask):
            panel.control(name)
        st.subheader(panel.title("group.shape"), anchor=False)
        panel.live("key_length", group)
        if view.length != view.key_length:
            panel.control("align")
        panel.live("d_k", group)
        st.subheader(panel.title("group.scores"), anchor=False)
        panel.live("sharpness", group)
        panel.control("seed")


def live_controls(panel: Panel, group: Group) -> None:
    """Draw the sliders that the pictures follow, the one of the steps first."""
    view = panel.settled.view
    steps = walk(view).steps
    pace = max(PLAY_LEAST_MS, min(PLAY_MS, PLAY_WHOLE_MS // max(1, steps)))
    # Where a name breaks all the same, the sliders stay in line.
    columns = st.columns(_WIDTHS[panel.language], vertical_alignment="bottom")
    height = min(view.tile_rows, view.length)
    with columns[0]:
        panel.live("step", group, high=max(1, steps), play=True, beat=pace)
    with columns[1]:
        if height > 1:
            panel.live("row", group, high=height - 1)
        else:
            st.caption(panel.title("row.single"))
    with columns[2]:
        panel.live("length", group)
    for column, name, length in zip(
        columns[3:], ("tile_rows", "tile_cols"), (view.length, view.key_length), strict=True
    ):
        with column:
            panel.live(name, group, high=length)


def picture(panel: Panel, group: Group) -> None:
    """Draw the grid of tiles and the row that is followed."""
    view, words = panel.settled.view, table(panel.language, "plot")
    drawn = flash_picture.figures_of(view, panel.language)
    left, middle, right = st.columns([1.25, 1, 1], gap="medium")
    with left:
        heatmap(
            flash_picture.tiles(view, panel.language), part=TILES, group=group, key="flash.tiles",
            words=table(panel.language, "heatmap") | {"masked": panel.title("tiles.never")}, height=PICTURE_HEIGHT,
            on_select=lambda chosen: _take_tile(panel, chosen),
        )  # fmt: skip
    for column, part in ((middle, STATISTICS), (right, OUTPUT)):
        one = drawn[part]
        with column:
            plot(
                one.figure, key=f"flash.{part}", label=panel.title(f"row.{part}_label"), alt=one.alt,
                caption=one.caption, words=words, group=group, part=part,
            )  # fmt: skip


def sections(panel: Panel, group: Group) -> None:
    """Draw what is folded away below the picture."""
    st.caption(panel.title("follows"))
    flash_costs.bytes_section(panel)
    flash_costs.flops_section(panel)
    flash_costs.precision_section(panel)
    flash_weights.section(panel, group)
    flash_bug.section(panel, group)
    flash_words.snippet(panel)
    flash_words.claims(panel)


def _take_tile(panel: Panel, chosen: Mapping[str, object] | None) -> None:
    """Go to the step of the tile that was clicked; one that is never loaded has none."""
    found, (rows, cols) = walk(panel.settled.view), panel.settled.view.grid
    row, col = (chosen or {}).get("query"), (chosen or {}).get("key")
    if isinstance(row, int) and isinstance(col, int) and row < rows and col < cols and found.order[row, col]:
        panel.set("step", int(found.order[row, col]))


def words(panel: Panel) -> None:
    """Say what is seen and why, and give the sources."""
    st.subheader(panel.title("words.title"), anchor=False)
    for name in ("seen", "rescale", "skip"):
        st.markdown(panel.title(f"words.{name}"))
    layout.sources(panel.language, SOURCES)
