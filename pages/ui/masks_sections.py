"""The upper part of the masks page: controls, gallery, the picture of the chosen section and its numbers."""

from collections.abc import Mapping

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from attnviz import units
from attnviz.mask_view.export import export
from attnviz.mask_view.settings import SECTIONS, mask_knobs, mod_knobs, other_knobs
from attnviz.masks import MASKS
from attnviz.text import Refusal
from pages.ui import layout, masks_details, masks_maps, masks_picture, masks_ways
from pages.ui.bus import Group
from pages.ui.controls import Panel
from pages.ui.heatmap import heatmap
from pages.ui.plot import plot
from pages.ui.translate import table

PICTURE_HEIGHT, CHANGE_HEIGHT, GALLERY_HEIGHT, CHART_HEIGHT = 430, 330, 540, 250
# Larger numbers and smaller shares do not fit into a metric.
SHORT_FROM, LEAST_SHARE = 100_000, 1e-4
# Settings that are moved while looking at the picture.
LIVE = ("window", "radius", "prefix", "sinks", "globals", "dilation", "stride", "chunk", "block", "share")


def side_controls(panel: Panel) -> None:
    """Draw the controls that no one drags while looking at the picture."""
    view = panel.settled.view
    with st.sidebar:
        st.subheader(panel.title("group.mask"), anchor=False)
        panel.control("mask", bare=True)
        for name in mask_knobs(view.mask):
            if name not in LIVE:
                panel.control(name)
        panel.control("invert")
        st.subheader(panel.title("group.join"), anchor=False)
        panel.control("join", bare=True)
        if view.join != "none":
            panel.control("other", bare=True)
            for name in other_knobs(view.other):
                panel.control(name)
        # Heads that only the scores tell apart are alike where no score is drawn.
        has_heads = view.heads > 1 and (view.section == "mask" or view.build_mask().per_head)
        if view.batch > 1 or has_heads or not view.is_square:
            st.subheader(panel.title("group.place"), anchor=False)
        if view.batch > 1:
            panel.control("sequence")
        if has_heads:
            panel.control("head")
        if not view.is_square:
            panel.control("align")
        st.subheader(panel.title("group.score"), anchor=False)
        panel.control("score_mod", bare=True)
        if view.score_mod != "none" and view.section != "mask":
            st.caption(panel.title("score_elsewhere", mask=SECTIONS["mask"].say(panel.language)))
        elif view.score_mod != "none":
            for name in mod_knobs(view.score_mod):
                panel.control(name)
        if view.section == "conventions" or (view.section == "mask" and view.score_mod != "none"):
            panel.control("seed")


def top_controls(panel: Panel, group: Group) -> None:
    """Draw the choice of the section and the sliders that the picture follows."""
    panel.control("section", segmented=True, bare=True)
    view, knobs = panel.settled.view, panel.settled.knobs
    names = ["length", "key_length", *(name for name in mask_knobs(view.mask) if name in LIVE and name in knobs)]
    names += {"blocks": ["tile"], "reach": ["layers"]}.get(view.section, [])
    # More than five in a row leave no room for their names.
    row = min(5, max(4, len(names)))
    for first in range(0, len(names), row):
        for column, name in zip(st.columns(row), names[first : first + row], strict=False):
            with column:
                counts_keys = name in mask_knobs(view.mask) and name not in ("share", "dilation", "radius", "globals")
                panel.live(name, group, high=view.key_length if counts_keys else None)


def show(panel: Panel, group: Group) -> None:
    """Draw the gallery, the section's picture, and what is to be said of it."""
    view = panel.settled.view
    parts, _ = masks_picture.grids(view, panel.language)
    left, right = _columns()
    with left:
        _gallery(panel, group, parts[masks_picture.GALLERY])
    with right:
        draw = {"mask": _mask, "blocks": _blocks, "reach": _reach, "conventions": _ways, "code": _code}
        draw[view.section](panel, group, parts)


def refused(panel: Panel, group: Group, why: Refusal) -> None:
    """Say why a view is not drawn, beside the gallery: another mask may well fit."""
    left, right = _columns()
    with left:
        _gallery(panel, group, masks_maps.gallery(panel.settled.view, panel.language, counted=False))
    with right:
        layout.refusal(why, panel.language)


def _columns() -> list[DeltaGenerator]:
    return st.columns([1.15, 3.4], gap="medium")


def _gallery(panel: Panel, group: Group, grid: masks_picture.Grid) -> None:
    heatmap(
        grid,
        part=masks_picture.GALLERY,
        key="masks.gallery",
        layout="strip",
        picks="map",
        chosen=panel.settled.view.mask,
        height=GALLERY_HEIGHT,
        group=group,
        words=table(panel.language, "heatmap"),
        selected=selection(panel),
        on_select=lambda chosen: _take_mask(panel, chosen),
    )


def _take_mask(panel: Panel, chosen: Mapping[str, object] | None) -> None:
    """Enlarge the mask that was clicked in the gallery."""
    if chosen is not None and chosen.get("map") in MASKS:
        panel.set("mask", str(chosen["map"]))


def _main(panel: Panel, group: Group, parts: Mapping[str, masks_picture.Grid], selects: str = "cell") -> None:
    heatmap(
        parts[masks_picture.MAIN],
        part=masks_picture.MAIN,
        key=f"masks.main.{panel.settled.view.section}",
        height=PICTURE_HEIGHT,
        group=group,
        words=table(panel.language, "heatmap") | _own_words(panel),
        selected=selection(panel),
        on_select=lambda chosen: select(panel, selects, chosen),
    )
    layout.picture_first()


def _own_words(panel: Panel) -> dict[str, str]:
    """Name a cell without a value as the section does: a mask hides it, a tile is empty, a token is not reached."""
    key = {"blocks": "blocks.empty_tile", "reach": "reach.never"}.get(panel.settled.view.section)
    return {} if key is None else {"masked": panel.title(key)}


def selection(panel: Panel) -> Mapping[str, object] | None:
    """Give what is selected as the section's pictures mark it; all of a group have to say the same."""
    view = panel.settled.view
    place = view.picked if view.section == "blocks" else view.cell
    if view.section == "code" or len(place) < 2:
        return None
    key = {"blocks": "tiles", "reach": "reach", "conventions": masks_ways.first(view)}.get(view.section, "mask")
    return {"map": key, "query": place[0], "key": place[1]}


def select(panel: Panel, name: str, chosen: Mapping[str, object] | None) -> None:
    """Take a cell or a tile that was clicked."""
    place = () if chosen is None else tuple(chosen[dim] for dim in ("query", "key") if chosen.get(dim) is not None)
    panel.set(name, tuple(int(str(index)) for index in place) if len(place) == 2 else None)


def _mask(panel: Panel, group: Group, parts: Mapping[str, masks_picture.Grid]) -> None:
    view = panel.settled.view
    picture, numbers = st.columns([2.1, 1.15], gap="medium")
    with picture:
        _main(panel, group, parts)
        if view.score_mod != "none":
            heatmap(
                parts[masks_picture.CHANGE],
                part=masks_picture.CHANGE,
                key="masks.change",
                height=CHANGE_HEIGHT,
                group=group,
                words=table(panel.language, "heatmap") | {"own_range": panel.title("change_range")},
                selected=selection(panel),
                on_select=lambda chosen: select(panel, "cell", chosen),
            )
    with numbers:
        masks_details.why(panel)
        _counts(panel)
        figure, alt = masks_picture.keys_chart_of(view, panel.language)
        _plot(panel, group, figure, alt, panel.title("keys"))


def _counts(panel: Panel) -> None:
    """Show what was counted."""
    view = panel.settled.view
    found = masks_maps.counted(view)
    cells = view.length * view.key_length
    one, two = st.columns(2)
    one.metric(panel.title("pairs"), _short(found.pairs), help=panel.title("pairs_help", cells=units.count(cells)))
    share = found.pairs / cells
    is_tiny = 0 < share < LEAST_SHARE
    two.metric(panel.title("density"), f"<{units.percent(LEAST_SHARE)}" if is_tiny else units.percent(share))
    spread = f"{_short(int(found.keys.min()))} – {_short(int(found.keys.max()))}"
    one.metric(
        panel.title("keys_short"), spread, help=panel.title("keys_help", mean=units.number(found.keys.mean(), 4))
    )
    two.metric(panel.title("empty_rows"), _short(found.empty_rows), help=panel.title("empty_rows_help"))
    if found.empty_rows:
        st.warning(panel.title("empty_warning", rows=units.count(found.empty_rows)), icon=":material/warning:")
    if found.pairs == cells:
        st.caption(panel.title("no_effect"))
    masks_details.turned(panel)


def _short(number: int) -> str:
    """Write a number so that it fits beside another; the line under the picture has it in full."""
    return units.count(number) if number < SHORT_FROM else units.short_count(number)


def _blocks(panel: Panel, group: Group, parts: Mapping[str, masks_picture.Grid]) -> None:
    view = panel.settled.view
    picture, numbers = st.columns([2.1, 1.15], gap="medium")
    with picture:
        _main(panel, group, parts, "picked")
    with numbers:
        if view.picked:
            place = f"{view.picked[0]}, {view.picked[1]}"
            what = masks_picture.tile_text(view, view.picked[0], view.picked[1], panel.language)
            st.info(layout.escape(panel.title("blocks.picked", place=place, what=what)), icon=":material/crop_square:")
        count = masks_maps.blocks(view, panel.language)[1]
        words = masks_maps.tile_words(count)
        one, two = st.columns(2)
        one.metric(panel.title("blocks.skipped_name"), words["skipped"], help=panel.title("blocks.skipped_help"))
        two.metric(panel.title("blocks.useful_name"), words["useful"], help=panel.title("blocks.useful_help"))
        st.markdown(panel.title("blocks.counts", **words))
        masks_details.turned(panel)
        masks_details.timing(panel)


def _reach(panel: Panel, group: Group, parts: Mapping[str, masks_picture.Grid]) -> None:
    view = panel.settled.view
    picture, numbers = st.columns([2.1, 1.15], gap="medium")
    with picture:
        _main(panel, group, parts)
    with numbers:
        _, found = masks_maps.reach(view, panel.language)
        one, two = st.columns(2)
        one.metric(panel.title("reach.most_name"), units.count(found.most[-1]))
        two.metric(panel.title("reach.mean_name"), units.number(found.mean[-1], 4))
        figure, alt = masks_picture.reach_chart_of(view, panel.language)
        _plot(panel, group, figure, alt, panel.title("reach.chart"))
        if found.settled is not None:
            st.caption(panel.title("reach.settled", layers=found.settled))
        masks_details.turned(panel)
        st.markdown(panel.title("reach.words"))


def _ways(panel: Panel, group: Group, parts: Mapping[str, masks_picture.Grid]) -> None:
    masks_details.turned(panel)
    masks_ways.show(panel, group, parts, selection(panel), lambda chosen: select(panel, "cell", chosen))


def _code(panel: Panel, group: Group, parts: Mapping[str, masks_picture.Grid]) -> None:
    """Show the mask as code."""
    masks_details.turned(panel)
    panel.control("form", segmented=True, bare=True)
    view = panel.settled.view
    st.markdown(panel.title(f"code.{view.form}"))
    st.code(export(view), language="python", wrap_lines=True)


def _plot(panel: Panel, group: Group, figure: object, alt: str, label: str) -> None:
    plot(
        figure,  # type: ignore[arg-type]
        key=f"masks.chart.{panel.settled.view.section}",
        label=label,
        alt=alt,
        words=table(panel.language, "plot"),
        height=CHART_HEIGHT,
        group=group,
        part=masks_picture.CHART,
    )
