"""The KV cache page's folded sections: the classic bug, what a cache may drop, its memory, the encoder's, the code."""

from collections.abc import Callable, Mapping

import streamlit as st

from attnviz import units
from attnviz.kv_cache import STORAGES
from attnviz.kv_cache_view import lessons
from attnviz.kv_cache_view.snippet import decode_snippet
from attnviz.kv_cache_view.view import View
from pages.ui import folds, kv_cache_lessons, kv_cache_measured, layout, translate
from pages.ui.bus import Group
from pages.ui.controls import Panel
from pages.ui.heatmap import heatmap
from pages.ui.kv_cache_lessons import ALIGN, CROSS, CROSS_SIZES, LAYOUTS, PAGED, STORAGE
from pages.ui.plot import plot

# Section → the settings that it alone uses: a link that changes one opens it.
SECTIONS: Mapping[str, tuple[str, ...]] = {
    "work": (),
    "latency": ("decode_context",),
    "align": (),
    "layouts": (),
    "storage": (),
    "paged": ("lengths", "block", "reserve"),
    "cross": ("source",),
    "code": (),
}
ICONS: Mapping[str, str] = {
    "work": ":material/stacked_line_chart:",
    "latency": ":material/timer:",
    "align": ":material/bug_report:",
    "layouts": ":material/width_normal:",
    "storage": ":material/compress:",
    "paged": ":material/grid_view:",
    "cross": ":material/compare_arrows:",
    "code": ":material/code:",
}
# The pictures of a section that follow the sliders.
PARTS: Mapping[str, tuple[str, ...]] = {
    "align": (ALIGN,),
    "layouts": (LAYOUTS,),
    "storage": (STORAGE,),
    "paged": (PAGED,),
    "cross": (CROSS, CROSS_SIZES),
}
HEIGHTS: Mapping[str, int] = {ALIGN: 330, LAYOUTS: 400, PAGED: 360, CROSS: 380}
PHONE_HEIGHTS: Mapping[str, int] = {ALIGN: 560, LAYOUTS: 860, PAGED: 480, CROSS: 600}
# Two maps below each other on a phone, with so much for each token and for what stands around the rows.
PHONE_ROW, PHONE_AROUND = 30, 240
SOURCES = (
    ("Shazeer 2019, Fast Transformer Decoding, §2.4 and §3 (what decoding reads)", "https://arxiv.org/abs/1911.02150"),
    ("Pope et al. 2022, Efficiently Scaling Transformer Inference, §3.3 (KV cache memory)", "https://arxiv.org/abs/2211.05102"),
    ("DeepSeek-AI 2024, DeepSeek-V2, §2.1 (latent cache)", "https://arxiv.org/abs/2405.04434"),
    ("PyTorch, scaled_dot_product_attention (is_causal is top-left)", "https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html"),
    ("FlashAttention, changes in 2.1 (causal is bottom-right)", "https://github.com/Dao-AILab/flash-attention#21-change-behavior-of-causal-flag"),
    ("Kwon et al. 2023, PagedAttention, §3 and §4", "https://arxiv.org/abs/2309.06180"),
    ("Xiao et al. 2023, Efficient Streaming Language Models with Attention Sinks, §3", "https://arxiv.org/abs/2309.17453"),
)  # fmt: skip


def open_parts(panel: Panel) -> str:
    """Name the pictures that are on the page beside the two main ones, as the live route takes them."""
    return ",".join(part for name, parts in PARTS.items() if _is_open(panel, name) for part in parts)


def _is_open(panel: Panel, name: str) -> bool:
    """Say whether a section is open in this run, before it is drawn."""
    return folds.is_open(f"kv_cache.fold.{name}", _is_asked(panel, name))


def _is_asked(panel: Panel, name: str) -> bool:
    """Say whether a link changes what stands in a section alone."""
    settled = panel.settled
    return any(settled.values[setting] != settled.defaults[setting] for setting in SECTIONS[name])


def show(panel: Panel, group: Group) -> None:
    """Offer every section folded, then say in words what the page shows."""
    draw: Mapping[str, Callable[[Panel, Group], None]] = {
        "work": kv_cache_measured.work,
        "latency": kv_cache_measured.latency,
        "align": _align, "layouts": _layouts, "storage": _storage, "paged": _paged, "cross": _cross, "code": _code,
    }  # fmt: skip
    for name, section in draw.items():
        opened = layout.fold(
            panel.title(f"{name}.title"), icon=ICONS[name], key=f"kv_cache.fold.{name}", expanded=_is_asked(panel, name)
        )
        if opened is not None:
            with opened:
                section(panel, group)
    st.subheader(panel.title("words.title"), anchor=False)
    for name in ("saves", "valid", "reads", "grows"):
        st.markdown(panel.title(f"words.{name}"))
    st.caption(panel.title("words.drawn"))
    layout.sources(panel.language, SOURCES)


def _grid(panel: Panel, group: Group, part: str) -> None:
    own = translate.table(panel.language, f"kv_cache.{part}")
    marks = {name: own[name] for name in ("masked", "no_key") if name in own}
    crossing, tokens = part == CROSS, len(panel.settled.view.tokens)
    phone = max(PHONE_HEIGHTS[part], PHONE_ROW * tokens + PHONE_AROUND) if crossing else PHONE_HEIGHTS[part]
    heatmap(
        kv_cache_lessons.GRIDS[part](panel.settled.view, panel.language), part=part, group=group,
        key=f"kv_cache.{part}.map", height=HEIGHTS[part], scale=1.15, phone_height=phone,
        layout="rows" if crossing else "grid",
        words=translate.table(panel.language, "heatmap") | marks,
    )  # fmt: skip


def _chart(panel: Panel, group: Group, part: str) -> None:
    drawn = kv_cache_lessons.CHARTS[part](panel.settled.view, panel.language)
    plot(
        drawn.figure, key=f"kv_cache.{part}.chart", label=drawn.caption, alt=drawn.alt, caption=drawn.caption,
        words=translate.table(panel.language, "plot"), height=300, group=group, part=part,
    )  # fmt: skip


def _align(panel: Panel, group: Group) -> None:
    """Show the classic bug: one query over a cache with torch's causal flag."""
    st.markdown(panel.title("align.lead"))
    _grid(panel, group, ALIGN)
    st.code(_ALIGN_CODE.format(wrong=panel.title("align.wrong"), right=panel.title("align.better")), language="python")
    st.markdown(panel.title("align.words"))


_ALIGN_CODE = """\
F.scaled_dot_product_attention(q_new, k_cache, v_cache, is_causal=True)  # {wrong}
F.scaled_dot_product_attention(q_new, k_cache, v_cache)                  # {right}
"""


def _layouts(panel: Panel, group: Group) -> None:
    st.markdown(panel.title("layouts.lead"))
    _grid(panel, group, LAYOUTS)
    st.markdown(panel.title("layouts.words"))


def _storage(panel: Panel, group: Group) -> None:
    """Show what fewer bits save and cost."""
    st.markdown(panel.title("storage.lead"))
    table, chart = st.columns([1, 1.2], gap="medium", vertical_alignment="center")
    with table:
        st.markdown(_storage_table(panel, panel.settled.view))
    with chart:
        _chart(panel, group, STORAGE)
    st.caption(panel.title("storage.note"))


def _storage_table(panel: Panel, view: View) -> str:
    found = lessons.rounded(view)
    heading = [panel.title(f"storage.{name}") for name in ("kept", "bytes", "share", "error")]
    lines = ["| " + " | ".join(heading) + " |", "|:--|--:|--:|--:|"]
    for key, one in found.items():
        cells = (
            f"[{layout.escape(STORAGES[key].label.say(panel.language))}]({STORAGES[key].source})",
            units.binary_bytes(one.cache_bytes),
            units.percent(one.cache_bytes / found["plain"].cache_bytes),
            units.percent(one.errors[view.step]) if key != "plain" else "0",
        )
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _paged(panel: Panel, group: Group) -> None:
    """Show memory taken in one piece for each sequence, and block by block."""
    st.markdown(panel.title("paged.lead"))
    lengths, reserve, block = st.columns([2, 1, 1.4], vertical_alignment="bottom")
    with lengths:
        panel.control("lengths")
    with reserve:
        panel.control("reserve")
    with block:
        panel.live("block", group)
    _grid(panel, group, PAGED)
    st.markdown(panel.title("paged.words"))


def _cross(panel: Panel, group: Group) -> None:
    """Show the cache of an encoder's tokens, which never grows."""
    st.markdown(panel.title("cross.lead"))
    panel.control("source")
    # As wide as the page, so that every token of both sentences has its name.
    _grid(panel, group, CROSS)
    _chart(panel, group, CROSS_SIZES)


def _code(panel: Panel, group: Group) -> None:
    st.markdown(panel.title("code.lead"))
    st.code(decode_snippet(panel.settled.view.scene), language="python")
