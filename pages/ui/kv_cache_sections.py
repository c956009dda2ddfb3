"""The KV cache page's two pictures with their controls: one step of the decoding, and the memory of a model."""

from collections.abc import Mapping

import streamlit as st

from attnviz import units
from attnviz.kv_cache_view.memory import Fit, fits, per_token, taken, weight_bytes
from attnviz.kv_cache_view.view import View
from attnviz.presets import PARAMETERS
from pages.ui import kv_cache_charts, kv_cache_maps, layout, published, translate
from pages.ui.bus import Group
from pages.ui.controls import Panel
from pages.ui.heatmap import heatmap
from pages.ui.kv_cache_picture import FITS, MAIN, SIZES
from pages.ui.plot import plot
from pages.ui.variants_maps import mha_of

HEIGHT = 385
# Vectors have no labels below; with twenty tokens every one is named.
VECTORS_HEIGHT = 410
# Two or three maps below each other, each as wide as the screen.
PHONE_HEIGHT = 720
CHART_HEIGHT = 400
PROMPT_WIDTH, HEAD_WIDTH = 204, 138
# The step takes what its line leaves, and another line where that is too little for its label.
_STYLE = "<style>div:has(> .st-key-kv_cache-steps) { min-width: min(15.5rem, 100%); }</style>"
# What a published model sets.
SETS = ("context",)


def side_controls(panel: Panel, group: Group) -> None:
    """Draw the controls of the layer, the cache, and the sentence."""
    view = panel.settled.view
    with st.sidebar:
        st.subheader(panel.title("group.layer"), anchor=False)
        panel.control("variant")
        panel.live("heads", group)
        if view.variant == "gqa":
            stops = [n for n in range(1, view.heads + 1) if view.heads % n == 0]
            panel.live("kv_heads", group, high=view.heads, stops=stops)
        panel.live("d_k", group)
        st.subheader(panel.title("group.cache"), anchor=False)
        panel.control("layout")
        if view.layout != "full":
            panel.live("window", group, high=len(view.tokens))
        if view.layout == "attention_sinks":
            panel.live("sinks", group, high=len(view.tokens))
        panel.control("storage")
        st.subheader(panel.title("group.input"), anchor=False)
        panel.control("text")
        panel.control("seed")


def decoding(panel: Panel, group: Group) -> None:
    """Draw one step: what is new, what comes from the cache, and what would be computed again without it."""
    view = panel.settled.view
    if len(view.tokens) == 1:
        st.markdown(panel.title("only" if any(view.tokens) else "nothing"))
    # A line that breaks where it is too short for all of them: nothing is cut, and no label stands upright.
    st.html(_STYLE)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        _steps(panel, group)
        panel.control("show", segmented=True, bare=True)
    words = translate.table(panel.language, "heatmap") | {"masked": panel.title(f"masked.{view.show}")}
    words |= {"own_range": panel.title("vectors.range")}
    rows = view.show == "vectors"
    heatmap(
        kv_cache_maps.main_grid(view, panel.language), part=MAIN, group=group, key="kv_cache.main", words=words,
        height=VECTORS_HEIGHT if rows else HEIGHT, phone_height=PHONE_HEIGHT, layout="rows" if rows else "grid",
        selected=_selected(view, panel.language), on_select=lambda chosen: _select(panel, chosen), scale=1.15,
    )  # fmt: skip


def _steps(panel: Panel, group: Group) -> None:
    """Draw the sliders of the step, the prompt and the head, each where there is more than one to choose."""
    view = panel.settled.view
    tokens = len(view.tokens)
    if tokens > 1:
        with st.container(key="kv_cache-steps"):
            panel.live("step", group, high=tokens - view.prompt, play=True)
        with st.container(width=PROMPT_WIDTH):
            panel.live("prompt", group, high=tokens - 1)
    if view.show != "work" and view.heads > 1:
        with st.container(width=HEAD_WIDTH):
            panel.live("head", group, high=view.heads - 1)


def _keys(view: View, language: str) -> list[str]:
    return [drawn.key for drawn in kv_cache_maps.main_grid(view, language).maps]


def _columns(view: View) -> str:
    return "feature" if view.show == "vectors" else "key"


def _selected(view: View, language: str) -> Mapping[str, object] | None:
    """Give the selected cell as the maps mark it."""
    keys = _keys(view, language)
    if not view.cell or view.cell[0] >= len(keys):
        return None
    rows = "key" if view.show == "vectors" else "query"
    return {"map": keys[view.cell[0]], rows: view.cell[1], _columns(view): view.cell[2]}


def _select(panel: Panel, chosen: Mapping[str, object] | None) -> None:
    """Take a cell that was clicked."""
    view = panel.settled.view
    keys = _keys(view, panel.language)
    rows = "key" if view.show == "vectors" else "query"
    places = [(chosen or {}).get(name) for name in (rows, _columns(view))]
    key = (chosen or {}).get("map")
    whole = [place for place in places if isinstance(place, int)]
    panel.set("cell", (keys.index(str(key)), *whole) if key in keys and len(whole) == 2 else None)


def memory(panel: Panel, group: Group) -> None:
    """Draw what a published model's cache takes and which accelerators hold it."""
    view = panel.settled.view
    st.subheader(panel.title("memory.title"), anchor=False)
    model, context, batch, gpus = st.columns([1.2, 1.4, 1.4, 1], vertical_alignment="bottom")
    with model:
        panel.control("model", sets=SETS)
    with context:
        panel.live("context", group)
    with batch:
        panel.live("batch", group)
    with gpus:
        panel.live("gpus", group)
    _metrics(panel, view)
    left, right = st.columns([1, 1.25], gap="medium")
    with left:
        _plot(panel, group, SIZES, kv_cache_charts.sizes(view, panel.language))
    with right:
        _plot(panel, group, FITS, kv_cache_charts.accelerators(view, panel.language))
    _kept_as(panel, view)
    _model(panel, view)


def _metrics(panel: Panel, view: View) -> None:
    """Show the numbers that a room remembers."""
    weights, cache = weight_bytes(view), taken(view)
    count = panel.title(
        "memory.weights_help", count=units.count(PARAMETERS[view.model]), both=units.both_bytes(weights)
    )
    shown = (
        ("token", per_token(view), panel.title("memory.token_help")),
        ("cache", cache, units.both_bytes(cache)),
        ("weights", weights, count),
        ("both", weights + cache, units.both_bytes(weights + cache)),
    )
    for column, (name, size, help) in zip(st.columns(4), shown, strict=True):
        column.metric(panel.title(f"memory.{name}"), units.binary_bytes(size), help=help)


def _plot(panel: Panel, group: Group, part: str, drawn: kv_cache_charts.Drawn) -> None:
    plot(
        drawn.figure, key=f"kv_cache.{part}", label=panel.title(f"memory.{part}"), alt=drawn.alt, caption=drawn.caption,
        words=translate.table(panel.language, "plot"), height=CHART_HEIGHT, group=group, part=part,
    )  # fmt: skip


def _kept_as(panel: Panel, view: View) -> None:
    """Draw how the numbers lie in memory; windows only where the model has some."""
    columns = st.columns(3, vertical_alignment="bottom")
    with columns[0]:
        panel.control("cache_dtype")
    with columns[1]:
        panel.control("weight_bits", segmented=True)
    if view.preset.sliding_layers:
        with columns[2]:
            panel.control("windows")


def _model(panel: Panel, view: View) -> None:
    """Say what the model's shape is, where it was read, and what its windows change; then every accelerator."""
    preset = view.preset
    label = layout.escape(preset.label.say(panel.language))
    said = [f"**{label}** · {panel.title(f'memory.shape.{preset.variant}', **_shape(view))}"]
    if preset.variant == "mla":
        said.append(mha_of(preset.config, panel.language))
    said += published.told(preset, panel.language, view.context, windows=view.windows)
    if preset.published is not None:
        text = layout.escape(preset.published.text.say(panel.language))
        said.append(f"{text} [{panel.title('memory.published')}]({preset.published.source})")
    said.append(published.source(preset, panel.language))
    st.caption(" ".join(said))
    opened = layout.fold(panel.title("fit.table"), icon=":material/memory:", key="kv_cache.fit")
    if opened is not None:
        opened.markdown(_table(panel, view))
        opened.caption(panel.title("fit.note"))


def _shape(view: View) -> dict[str, object]:
    shape = view.preset.config
    fields: dict[str, object] = {"layers": view.preset.full_layers + view.preset.sliding_layers}
    if view.preset.variant == "mla":
        return fields | {
            "heads": shape.num_attention_heads,
            "latent": shape.kv_lora_rank,
            "rope": shape.qk_rope_head_dim,
        }
    sizes = {"heads": shape.num_attention_heads, "kv_heads": shape.num_key_value_heads, "d_k": shape.head_dim}
    return fields | sizes


def _table(panel: Panel, view: View) -> str:
    """Give every accelerator with the most it holds, as a table in Markdown."""
    names = ("gpu", "memory", "holds", "context", "batch")
    lines = ["| " + " | ".join(panel.title(f"fit.{name}") for name in names) + " |", "|:--|--:|:--|--:|--:|"]
    for fit in sorted(fits(view), key=lambda fit: fit.memory):
        lines.append("| " + " | ".join(_row(panel, fit)) + " |")
    return "\n".join(lines)


def _row(panel: Panel, fit: Fit) -> tuple[str, ...]:
    label = layout.escape(fit.hardware.label.say(panel.language))
    most = [kv_cache_charts.most(size, units.count) for size in (fit.context, fit.batch)]
    holds = panel.title("fit.holds_yes" if fit.fits else "fit.holds_no")
    return (f"[{label}]({fit.hardware.source})", _memory(panel, fit), holds, *most)


def _memory(panel: Panel, fit: Fit) -> str:
    """Give the memory that was counted, with where it was read: a driver's report, else the data sheet."""
    size, reported = units.both_bytes(fit.memory), fit.hardware.reported
    return panel.title("fit.sheet", size=size) if reported is None else f"[{size}]({reported[1]})"
