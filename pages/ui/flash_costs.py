"""The flash page's folded sections on what flash costs: bytes, FLOPs, and how exact the answer is."""

import numpy as np
import streamlit as st
import torch

from attnviz import units
from attnviz.figures.flash_costs import Line, costs, errors
from attnviz.flash_view import precision as exactness
from attnviz.flash_view import traffic
from attnviz.flash_view.traffic import A100, Curve, Work
from attnviz.flash_view.view import View
from pages.ui import layout
from pages.ui.controls import Panel
from pages.ui.plot import plot
from pages.ui.translate import kernel, table

_THEOREM = "rgba(128,128,128,0.9)"
# Of eager, flash and torch: the same in every chart.
_COLOURS = ("theme-1", "theme-0", "theme-2")
_SHOWN_LENGTHS = (512, 1024, 4096, 8192)


def bytes_section(panel: Panel) -> None:
    """Count bytes between slow and fast memory, against the size of fast memory and against the length."""
    opened = layout.fold(panel.title("traffic.title"), icon=":material/swap_vert:", key="flash.fold.traffic")
    if opened is None:
        return
    view = panel.settled.view
    with opened:
        st.markdown(panel.title("traffic.lead"))
        panel.control("tokens", segmented=True)
        memory, length = traffic.against_memory(view), traffic.against_length(view)
        left, right = st.columns(2, gap="medium")
        with left:
            _against_memory(panel, view, memory)
        with right:
            _against_length(panel, view, length)
        st.markdown(panel.title("traffic.formulas", **beyond(int(view.tokens), view.d_k)))
        if np.isnan(memory.masked).any() or np.isnan(memory.counted).any():
            st.caption(panel.title("traffic.uncounted"))


def pays(curve: Curve) -> str:
    """Say where flash moves less: ``crossing``, from a size on; at every size, ``ever``; or ``never``."""
    less = curve.predicted < curve.eager
    return "ever" if less.all() else "crossing" if less.any() else "never"


def beyond(tokens: int, d_k: int) -> dict[str, str]:
    """Say where Theorem 2 ends, from where on all queries make one block, and the bytes that are left then."""
    places = {
        "bound": traffic.ITEM * tokens * d_k,
        "fit": traffic.tile_bytes(tokens, min(tokens, d_k), d_k),
        "least": traffic.predicted_bytes(tokens, d_k, tokens),
    }
    return {name: units.binary_bytes(place) for name, place in places.items()}


def growth(values: np.ndarray) -> float:
    """Give how many times as much the last doubling of the length takes."""
    return float(values[-1] / values[-2])


def _against_memory(panel: Panel, view: View, curve: Curve) -> None:
    tokens, first = int(view.tokens), int(np.isfinite(curve.counted).argmax())
    within = curve.at <= traffic.ITEM * tokens * view.d_k
    theorem = np.where(within, curve.counted[first] * curve.at[first] / curve.at, np.nan)
    lines = [
        Line(panel.title("traffic.eager"), curve.eager, "theme-1"),
        Line(panel.title("traffic.predicted"), curve.predicted, "theme-0"),
        Line(panel.title("traffic.counted"), curve.counted, "theme-0", "markers"),
    ]
    # Of one size of memory there is no slope to see.
    if np.isfinite(theorem).sum() > 1:
        lines.insert(2, Line(panel.title("traffic.theorem"), theorem, _THEOREM, dash="dash"))
    if view.mask != "full":
        lines.append(Line(panel.title("traffic.masked"), curve.masked, "theme-2", "markers", symbol="diamond"))
    cross = traffic.least_memory(tokens, view.d_k)
    fields = {"tokens": units.count(tokens), "d_k": view.d_k, "memory": units.binary_bytes(cross or 0)}
    caption = panel.title(f"traffic.{pays(curve)}", **fields)
    at_a100 = int(np.abs(np.log(curve.at / A100)).argmin())
    alt = panel.title(
        "traffic.memory_alt",
        memory=units.binary_bytes(int(curve.at[at_a100])),
        flash=units.binary_bytes(curve.predicted[at_a100]),
        eager=units.binary_bytes(curve.eager[at_a100]),
    )
    own = traffic.tile_bytes(*_own_tile(view), view.d_k)
    marks = {panel.title("traffic.a100"): float(A100)}
    if curve.at[0] <= own <= curve.at[-1]:
        marks |= {panel.title("traffic.tile"): float(own)}
    figure = costs(
        curve.at.astype(float), lines, x_title=panel.title("traffic.memory"), y_title=panel.title("traffic.moved"),
        x_ticks={float(at): units.binary_bytes(int(at)) for at in curve.at[::2]}, y_ticks=_ticks(lines), marks=marks,
        hover=[_said(line.y, curve.at) for line in lines],
    )  # fmt: skip
    _plot(panel, "by_memory", figure, caption, alt)


def _own_tile(view: View) -> tuple[int, int]:
    return min(view.tile_rows, view.length), min(view.tile_cols, view.key_length)


def _against_length(panel: Panel, view: View, curve: Curve) -> None:
    held = {
        way: np.array([float(traffic.held_bytes(int(at), view.d_k, way)) for at in curve.at])
        for way in ("eager", "flash")
    }
    lines = [
        Line(panel.title("traffic.eager"), curve.eager, "theme-1"),
        Line(panel.title("traffic.predicted"), curve.predicted, "theme-0"),
        Line(panel.title("traffic.counted"), curve.counted, "theme-0", "markers"),
        *(
            [Line(panel.title("traffic.masked"), curve.masked, "theme-2", "markers", symbol="diamond")]
            if view.mask != "full"
            else []
        ),
        Line(panel.title("traffic.held_eager"), held["eager"], "theme-1", dash="dot"),
        Line(panel.title("traffic.held_flash"), held["flash"], "theme-0", dash="dot"),
    ]
    fields = {
        "before": units.count(int(curve.at[-2])),
        "after": units.count(int(curve.at[-1])),
        "eager": units.ratio(growth(curve.eager)),
        "flash": units.ratio(growth(curve.predicted)),
        "held": units.ratio(growth(held["flash"])),
    }
    caption = panel.title("traffic.growth", **fields)
    masked = growth(curve.masked)
    if view.mask != "full" and np.isfinite(masked):
        caption += panel.title("traffic.growth_masked", masked=units.ratio(masked))
    figure = costs(
        curve.at.astype(float), lines, x_title=panel.title("traffic.length"), y_title=panel.title("traffic.bytes"),
        x_ticks={float(at): units.short_length(at) for at in _SHOWN_LENGTHS}, y_ticks=_ticks(lines),
        hover=[[f"{units.count(int(at))} · {units.binary_bytes(y)}" for at, y in zip(curve.at, line.y, strict=True)]
               for line in lines],
    )  # fmt: skip
    _plot(panel, "by_length", figure, caption, caption)


def _said(values: np.ndarray, at: np.ndarray) -> list[str]:
    return [f"{units.binary_bytes(int(place))} · {units.binary_bytes(y)}" for place, y in zip(at, values, strict=True)]


def _ticks(lines: list[Line]) -> dict[float, str]:
    """Give powers of 16 bytes that lie among the courses."""
    every = np.concatenate([line.y[np.isfinite(line.y)] for line in lines])
    powers = range(0, 64, 2)
    inside = [2.0**power for power in powers if every.min() / 2 <= 2.0**power <= every.max() * 2]
    return {place: units.binary_bytes(place) for place in inside}


def _plot(panel: Panel, name: str, figure: dict, caption: str, alt: str) -> None:
    words = table(panel.language, "plot")
    plot(figure, key=f"flash.{name}", label=panel.title("traffic.title"), alt=alt, caption=caption, words=words)


def flops_section(panel: Panel) -> None:
    """Count the arithmetic of the view, and say where flash does more of it."""
    opened = layout.fold(panel.title("flops.title"), icon=":material/calculate:", key="flash.fold.flops")
    if opened is None:
        return
    view = panel.settled.view
    flash, eager = traffic.flash_work(view), traffic.eager_work(view)
    with opened:
        st.markdown(flops_table(panel, eager, flash))
        word = "more" if flash.total > eager.total else "less" if flash.products < eager.products else "fewer"
        share = units.percent(abs(flash.total / eager.total - 1))
        st.markdown(panel.title(f"flops.{word}", share=share))
        st.markdown(panel.title("flops.backward"))
        st.caption(panel.title("flops.note", length=view.length, key_length=view.key_length, d_k=view.d_k))


def flops_table(panel: Panel, eager: Work, flash: Work) -> str:
    """Give the counts as a table in Markdown."""
    heading = ["", panel.title("flops.eager"), panel.title("flops.flash"), panel.title("flops.ratio")]
    lines = ["| " + " | ".join(heading) + " |", "|:--|--:|--:|--:|"]
    for name in (*Work._fields, "total"):
        one, other = getattr(eager, name), getattr(flash, name)
        cells = [units.count(one), units.count(other), units.ratio(other / one) if one else "–"]
        lines.append("| " + " | ".join([panel.title(f"flops.{name}"), *cells]) + " |")
    return "\n".join(lines)


def precision_section(panel: Panel) -> None:
    """Show how far each way is from float64 in each data type."""
    opened = layout.fold(panel.title("precision.title"), icon=":material/target:", key="flash.fold.precision")
    if opened is None:
        return
    found = exactness.precision(panel.settled.view)
    names = {way: panel.title(f"precision.{way}") for way in exactness.WAYS}
    grain = [torch.finfo(getattr(torch, dtype)).eps * found.largest for dtype in exactness.DTYPES]
    figure = errors(
        {names[way]: [found.errors[dtype][way].largest for dtype in exactness.DTYPES] for way in exactness.WAYS},
        exactness.DTYPES, grain, x_title=panel.title("precision.axis"), grain_name=panel.title("precision.grain"),
        colours=_COLOURS,
    )  # fmt: skip
    caption = panel.title("precision.caption", rows=units.count(found.size[0]), cols=units.count(found.size[1]))
    with opened:
        st.markdown(panel.title("precision.lead"))
        left, right = st.columns([1.2, 1], gap="medium")
        with left:
            plot(
                figure, key="flash.errors", label=panel.title("precision.title"), alt=precision_alt(panel, names),
                caption=caption, words=table(panel.language, "plot"), height=260,
            )  # fmt: skip
        with right:
            st.markdown(precision_table(panel, names))
            ran = kernel(panel.language, found.errors["float32"]["sdpa"].kernel)
            st.caption(panel.title("precision.kernel", kernel=layout.escape(ran)))
        st.markdown(panel.title("precision.words"))


def precision_alt(panel: Panel, names: dict[str, str]) -> str:
    """Say the differences in words."""
    found = exactness.precision(panel.settled.view)
    said = [
        f"{dtype}: " + ", ".join(f"{names[way]} {units.number(found.errors[dtype][way].largest, 2)}" for way in names)
        for dtype in exactness.DTYPES
    ]
    return "; ".join(said)


def precision_table(panel: Panel, names: dict[str, str]) -> str:
    """Give largest and relative differences as a table in Markdown."""
    found = exactness.precision(panel.settled.view)
    lines = ["| | " + " | ".join(names.values()) + " |", "|:--" + "|--:" * len(names) + "|"]
    for dtype in exactness.DTYPES:
        for field in ("largest", "relative"):
            cells = [units.number(getattr(found.errors[dtype][way], field), 2) for way in names]
            lines.append(f"| {dtype}, {panel.title(f'precision.{field}')} | " + " | ".join(cells) + " |")
    return "\n".join(lines)
