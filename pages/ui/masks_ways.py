"""The conventions section: what each way makes of the mask, differences in colour and numbers, what libraries do."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import streamlit as st

from attnviz import units
from attnviz.mask_view.conventions import Comparison, Way, compare, window_of
from attnviz.mask_view.view import View
from attnviz.mask_view.ways_script import ways_script
from pages.ui import layout, masks_maps
from pages.ui.bus import Group
from pages.ui.controls import Panel
from pages.ui.heatmap import Chosen, heatmap
from pages.ui.heatmap.frame import Grid, Map
from pages.ui.translate import counted, say, table

HEIGHT = 340
FLAT_HEIGHT = 270


def bare(view: View) -> View:
    """Give the view with nothing in it that a comparison does not depend on."""
    return replace(masks_maps.bare(view), convention=view.convention, empty=view.empty, seed=view.seed)


def weights(view: View, language: str) -> Grid:
    """Give the weights of every way that gives any."""
    found = compare(bare(view))
    high = max((float(np.nan_to_num(values).max()) for _, values, _ in _drawn(found)), default=1.0) or 1.0
    names = {"ways": len(found.ways), "nans": sum(way.nans for way in found.ways), **_where(view, found)}
    maps = tuple(_map(way, values, found, language, low=0.0, high=high) for way, values, _ in _drawn(found))
    caption, alt = (say(language, f"masks.ways.{word}", **names) for word in ("caption", "alt"))
    cut = _cut(view, found)
    if cut is not None:
        where = say(language, f"masks.ways.{cut}", **names)
        caption, alt = f"{where} · {caption}", f"{where}. {alt}"
    return Grid(maps, caption, alt)


def _cut(view: View, found: Comparison) -> str | None:
    """Give the key of what is said where not the grid of the view is compared: a part of it, or a smaller one."""
    part = found.part
    if part.shape == (view.length, view.key_length):
        return None
    return "part" if part.look == view.look else "smaller"


def _where(view: View, found: Comparison) -> dict[str, object]:
    """Give the words for what is compared and for the grid of the view."""
    part = found.part
    spans = {name: f"{first}–{stop - 1}" for name, (first, stop) in (("rows", part.rows), ("cols", part.cols))}
    return {"shape": " × ".join(map(str, part.shape)), "whole": masks_maps.shape(view), **spans}


def differences(view: View, language: str) -> Grid:
    """Give each way's weights less this app's."""
    found = compare(bare(view))
    most = max((way.most for way in found.ways), default=0.0) or 1.0
    maps = tuple(
        _map(way, values, found, language, low=-most, high=most, palette="diverging")
        for way, _, values in _drawn(found)
    )
    alt = "; ".join(f"{name(way, language)}: {units.number(way.most)}" for way, _, _ in _drawn(found))
    caption = say(language, "masks.ways.difference")
    return Grid(maps, caption, f"{caption} {alt}")


def name(way: Way, language: str) -> str:
    """Name a way."""
    return say(language, f"masks.way.{way.key}")


def short(way: Way, language: str) -> str:
    """Name a way above its map, which is narrow where there are many."""
    return table(language, "masks.short").get(way.key) or name(way, language)


def _drawn(found: Comparison) -> list[tuple[Way, np.ndarray, np.ndarray]]:
    """Give the ways that did not fail, with their weights and differences."""
    return [
        (way, way.weights, way.difference)
        for way in found.ways
        if way.weights is not None and way.difference is not None
    ]


def _map(
    way: Way,
    values: np.ndarray,
    found: Comparison,
    language: str,
    *,
    low: float,
    high: float,
    palette: str = "sequential",
) -> Map:
    rows, cols = (
        masks_maps.axis(language, dim, stop - first, first)
        for dim, (first, stop) in (("query", found.part.rows), ("key", found.part.cols))
    )
    return Map(way.key, short(way, language), values, rows, cols, palette=palette, low=low, high=high)


def first(view: View) -> str:
    """Give the key of the first way, which is the one that a selection names."""
    return compare(bare(view)).ways[0].key


def show(
    panel: Panel,
    group: Group,
    parts: Mapping[str, Grid],
    selected: Chosen | None,
    select: Callable[[Chosen | None], None],
) -> None:
    """Draw the comparison, say what it shows, and list what libraries do."""
    view = panel.settled.view
    panel.control("convention", segmented=True, bare=True)
    if view.convention in ("fill", "meaning", "floats"):
        panel.control("empty")
    found = compare(bare(view))
    for part in ("main", "difference"):
        heatmap(
            parts[part],
            part=part,
            key=f"masks.ways.{part}.{view.convention}",
            height=HEIGHT if len(parts[part].maps) > 4 else FLAT_HEIGHT,
            group=group,
            words=table(panel.language, "heatmap"),
            selected=selected,
            on_select=select,
        )
        if part == "main":
            st.markdown(panel.title(f"ways.{_sentence(view, found)}", **_numbers(view, found, panel.language)))
    st.markdown("\n".join(_rows(panel, found)))
    opened = layout.fold(panel.title("ways.code"), icon=":material/code:", key="masks.ways")
    if opened is not None:
        opened.markdown(panel.title("ways.code_lead"))
        opened.code(ways_script(view), language="python", wrap_lines=True)
    st.subheader(panel.title("libraries.title"), anchor=False)
    st.markdown(panel.title("libraries.table"))


def _sentence(view: View, found: Comparison) -> str:
    """Give the key of what is said: a comparison in which nothing can differ says so."""
    if view.convention == "fill" and found.allowed.any(1).all():
        return "fill_even"
    if view.convention == "corner" and (_seen(found.way("top_left")) == _seen(found.way("bottom_right"))).all():
        return "corner_same"
    return view.convention


def _numbers(view: View, found: Comparison, language: str) -> dict[str, object]:
    """Give the numbers of a comparison's sentence, counted from what was computed."""
    if view.convention == "fill":
        return {"least": units.number(1 / found.allowed.shape[1]), "keys": found.allowed.shape[1]}
    if view.convention == "window":
        one, other = (_pairs(found.way(key), language) for key in ("with_self", "plus_self"))
        window = window_of(view)
        return {"window": window, "back": counted(language, "key", window), "pairs": one, "more": other}
    if view.convention == "corner":
        one, other = (_pairs(found.way(key), language) for key in ("top_left", "bottom_right"))
        torch_is = units.count(int(_seen(found.way("is_causal"))[0].sum()))
        rows, cols = (counted(language, *side) for side in zip(("query", "key"), found.part.shape, strict=True))
        return {"rows": rows, "cols": cols, "one": one, "other": other, "first": torch_is}
    if view.convention == "meaning":
        kept = counted(language, "pair", int(found.allowed.sum()))
        return {"kept": kept, "turned": _pairs(found.way("turned_sdpa"), language)}
    lost = found.way("zero_one").weights
    assert lost is not None
    rows = found.allowed.any(1)
    share = float(np.where(found.allowed, 0.0, lost)[rows].sum() / max(1, rows.sum()))
    return {"share": units.percent(share), "hidden": units.count(int((~found.allowed).sum()))}


def _seen(way: Way) -> np.ndarray:
    assert way.weights is not None
    return way.weights > 0


def _pairs(way: Way, language: str) -> str:
    return counted(language, "pair", int(_seen(way).sum()))


def _rows(panel: Panel, found: Comparison) -> list[str]:
    """Write what each way gives as a table: NaN, how far from this app, and what failed in its own words."""
    words = [panel.title(f"ways.{word}") for word in ("way", "nan", "most", "elsewhere")]
    lines = ["| " + " | ".join(words) + " |", "| :--- | ---: | ---: | ---: |"]
    for way in found.ways:
        cells = [name(way, panel.language)]
        if way.weights is None:
            cells += [layout.escape(panel.title("ways.failed", problem=way.problem)), "", ""]
        else:
            cells += [units.count(way.nans), _plain(way.most), _plain(way.elsewhere)]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _plain(size: float) -> str:
    # A minus sign, unlike a hyphen, is no place to break the number.
    return f"{size:.2e}".replace("-", "−") if size else "0"
