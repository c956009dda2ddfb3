"""The variants page: controls, the wiring beside every head's map, the table of variants, and the claims."""

from collections.abc import Callable, Mapping

import streamlit as st

from attnviz import units
from attnviz.config import divisors
from attnviz.presets import PRESETS
from attnviz.snippet import layer_snippet
from attnviz.text import Text
from attnviz.variant_view.run import Taken, absorbs, latent_sizes, of_view, table
from attnviz.variant_view.settings import LATENT, LAYERS, MOST_SHOWN, OWN, ROTARY, SIZES, variant_of
from attnviz.variant_view.view import View
from attnviz.view_run import WIDTH
from pages.ui import layout, translate, variants_picture
from pages.ui.bus import Group
from pages.ui.controls import Panel
from pages.ui.heatmap import heatmap
from pages.ui.plot import plot
from pages.ui.variants_maps import key_of, maps, mha_of, named
from pages.ui.variants_picture import MAPS, WIRES

# Of the maps: those of many heads need more room each for their titles.
HEIGHTS = {8: 330, 32: 440, 64: 600}
# Of three lines of maps side by side, each below its heading.
COMPARED = 392
# A number and its unit stay together, and so does a Chinese word of the heading; on a phone the table is moved
# sideways, for squeezed words would break anywhere.
_STYLE = """<style>
.st-key-variants-table td { white-space: nowrap; }
.st-key-variants-table th { word-break: keep-all; text-wrap: balance; }
@media (max-width: 640px) { .st-key-variants-table :is(th, td) { white-space: nowrap; } }
</style>"""
SOURCES = (
    ("Vaswani et al. 2017, Attention Is All You Need, §3.2.2 (MHA)", "https://arxiv.org/abs/1706.03762"),
    ("Shazeer 2019, Fast Transformer Decoding, §3 (MQA)", "https://arxiv.org/abs/1911.02150"),
    ("Ainslie et al. 2023, GQA, §2 (mean pooling, first head, random)", "https://arxiv.org/abs/2305.13245"),
    ("Michel et al. 2019, Are Sixteen Heads Really Better than One?, §3", "https://arxiv.org/abs/1905.10650"),
    ("Touvron et al. 2023, Llama 2, Table 1", "https://arxiv.org/abs/2307.09288"),
    ("DeepSeek-AI 2024, DeepSeek-V2, §2.1 (MLA)", "https://arxiv.org/abs/2405.04434"),
    ("Bahdanau, Cho, Bengio 2014, appendix A.1.2 (additive)", "https://arxiv.org/abs/1409.0473"),
)


def side_controls(panel: Panel, group: Group) -> None:
    """Draw the controls of the layer, the model around it, and the sentence."""
    with st.sidebar:
        st.subheader(panel.title("group.layer"), anchor=False)
        panel.live("d_k", group)
        panel.control("width")
        panel.control("layers")
        st.subheader(panel.title("group.cache"), anchor=False)
        panel.control("context")
        panel.control("dtype")
        st.subheader(panel.title("group.input"), anchor=False)
        panel.control("text")
        panel.control("seed")


# Of each variant: the sliders that the pictures follow, and the choices beside them.
_LIVE = {"grouped": ("kv_heads", "heads"), "mla": ("latent", "rope", "heads"), "additive": ("heads",)}
_CHOICES = {"grouped": ("model", "method"), "mla": ("model",), "additive": ()}


def live_controls(panel: Panel, group: Group) -> None:
    """Draw the sliders that the pictures follow, the published models, and how heads are merged."""
    view = panel.settled.view
    columns = iter(st.columns(4, vertical_alignment="bottom"))
    for name in _LIVE[view.variant]:
        with next(columns):
            if name == "kv_heads":
                panel.live(name, group, high=view.heads, stops=divisors(view.heads))
            else:
                panel.live(name, group)
    # A model's sizes are kept in another variant: how to leave them stands there too.
    kept = () if view.model == OWN else ("model",)
    for name in dict.fromkeys((*kept, *_CHOICES[view.variant])):
        with next(columns):
            if name == "model":
                own = SIZES.get(view.variant, SIZES["grouped"])
                panel.control(name, options=_models(view), sets=[one for one in own if one != "variant"])
            else:
                panel.control(name)


def _models(view: View) -> list[str]:
    """Give the models of the view's variant, and the one that is chosen."""
    own = [key for key, preset in PRESETS.items() if variant_of(preset) == view.variant or key == view.model]
    return [OWN, *own]


def pictures(panel: Panel, group: Group) -> None:
    """Draw who reads whom beside what each head then looks at."""
    view = panel.settled.view
    wired = variants_picture.wires(view, panel.language)
    left, right = st.columns([1, 1.25], gap="medium")
    with left:
        panel.control("variant", segmented=True, bare=True)
        plot(
            wired.figure, key="variants.wires", label=panel.title("title"), alt=wired.alt, caption=wired.caption,
            words=translate.table(panel.language, "plot"), group=group, part=WIRES,
        )  # fmt: skip
    with right:
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            panel.control("show", segmented=True, bare=True)
            _which_heads(panel, view)
        heatmap(
            maps(view, panel.language), part=MAPS, group=group, key="variants.maps",
            words=translate.table(panel.language, "heatmap"), height=_height(view), selected=_selected(view),
            on_select=lambda chosen: _select(panel, chosen),
        )  # fmt: skip
    _model(panel, view)


def _which_heads(panel: Panel, view: View) -> None:
    """Offer which heads are drawn, where not all of them are."""
    most, first = view.most_shown, view.shown.start
    if most == view.heads:
        return
    # Beside three choices of what is shown there is less room than beside two.
    key, latest, width = "variants.first", view.heads - most, 130 if view.show == "compare" else 150
    st.session_state[key] = first
    st.selectbox(
        panel.title("compare.heads"), sorted({*range(0, latest, most), latest, first}), key=key, width=width,
        format_func=lambda first: panel.title("compare.of_heads", first=first, last=first + most - 1),
        label_visibility="collapsed", on_change=lambda: panel.set("first", st.session_state[key]),
    )  # fmt: skip


def _height(view: View) -> int:
    if view.show == "compare":
        return COMPARED
    return next(height for most, height in HEIGHTS.items() if view.most_shown <= most)


def _selected(view: View) -> Mapping[str, object] | None:
    """Give the selected cell as the maps mark it; side by side it is the slider's layer's where none is named."""
    if not view.cell:
        return None
    head, query, key, *layer = view.cell
    # A single head has one layer only.
    place = min([*layer, 1][0], LAYERS - 1 if view.heads > 1 else 0)
    return {"map": key_of(head, place) if view.show == "compare" else str(head), "query": query, "key": key}


def _select(panel: Panel, chosen: Mapping[str, object] | None) -> None:
    """Take a cell that was clicked."""
    *layer, head = str((chosen or {}).get("map", "")).split(".")
    indices = [head, *(str((chosen or {}).get(name, "")) for name in ("query", "key")), *layer]
    # More digits than any index has are nobody's click.
    is_place = len(indices) <= 4 and all(text.isascii() and text.isdigit() and len(text) < 4 for text in indices)
    panel.set("cell", tuple(map(int, indices)) if is_place else None)


def _model(panel: Panel, view: View) -> None:
    """Say where a model's sizes come from, and what its windows and other layers change."""
    model = PRESETS.get(view.model)
    if model is None:
        return
    said = []
    if model.linear_layers:
        said.append(translate.say(panel.language, "published.linear", layers=model.linear_layers))
    if model.note:
        said.append(layout.escape(model.note.say(panel.language)))
    if view.preset is None:
        said.append(panel.title("model.changed"))
    elif model.sliding_layers:
        kept = model.kv_cache_bytes(view.context, dtype=view.dtype)
        fields = {"window": units.count(model.window or 0), "layers": model.sliding_layers}
        said.append(panel.title("model.windows", **fields, kept=units.binary_bytes(kept)))
    said.append(f"[{panel.title('model.source')}]({model.source})")
    st.caption(f"**{_label(model.label, panel)}** · {' '.join(said)}")


def numbers(panel: Panel) -> None:
    """Show what the view takes, and the variants beside each other."""
    view, taken = panel.settled.view, of_view(panel.settled.view)
    st.subheader(panel.title("numbers.title"), anchor=False)
    columns = st.columns([1, 1, 1.3, 1])
    context = translate.counted(panel.language, "token", view.context)
    metrics = {
        "parameters": units.short_count(taken.parameters),
        "token": units.binary_bytes(taken.per_token),
        "context": units.binary_bytes(taken.per_context),
        "flops": units.flops(taken.flops),
    }
    helps = {
        "parameters": panel.title("numbers.parameters_help", exact=units.count(taken.parameters)),
        "token": panel.title(f"numbers.token_help_{'latent' if view.variant == 'mla' else 'heads'}"),
        "flops": panel.title("numbers.flops_help", tokens=context, exact=units.count(taken.flops)),
    }
    for column, (name, value) in zip(columns, metrics.items(), strict=True):
        column.metric(panel.title(f"numbers.{name}", tokens=context), value, help=helps.get(name))
    st.html(_STYLE)
    with st.container(key="variants.table"):
        st.markdown(_table(panel, view))
    notes = (_latent_note(panel, view), _flops_note(panel, view), panel.title("numbers.state_note"))
    st.caption("  \n".join(notes))


def _latent_note(panel: Panel, view: View) -> str:
    """Say what sizes the table's MLA has, and which MHA it is compared with."""
    kept = translate.counted(panel.language, "number", view.latent + view.rope)
    if view.variant == "mla" and view.preset is not None:
        said = panel.title("numbers.mla_model", kept=kept, queries=units.count(view.preset.config.q_lora_rank))
    else:
        said = panel.title("numbers.mla_own", latent=view.latent, rope=view.rope, kept=kept)
    return f"{said} {mha_of(latent_sizes(view), panel.language)}" if view.rope else said


def _flops_note(panel: Panel, view: View) -> str:
    """Say what is counted: what is computed here, which is a little more than a textbook's count."""
    notes = [panel.title("numbers.note")]
    if absorbs(view):
        notes.append(panel.title("numbers.absorbed"))
        if view.rope:
            notes.append(panel.title("numbers.wide", kept=view.latent + view.rope, latent=view.latent))
    return " ".join([*notes, panel.title("numbers.additive")])


def _table(panel: Panel, view: View) -> str:
    """Give the variants as a table in Markdown, the view's own row in bold."""
    rows, own = table(view), of_view(view)
    whole = rows[0].per_context
    fields: Mapping[str, Callable[[Taken], str]] = {
        "variant": lambda one: named(one, view.heads, panel.language),
        "parameters": lambda one: units.count(one.parameters),
        "elements": lambda one: units.count(one.elements),
        "token": lambda one: units.binary_bytes(one.per_token),
        "context": lambda one: units.binary_bytes(one.per_context),
        "share": lambda one: units.percent(one.per_context / whole),
        "flops": lambda one: units.flops(one.flops),
        "error": lambda one: "–" if one.error is None else units.percent(one.error),
    }
    heading = [panel.title(f"table.{name}") for name in fields]
    lines = ["| " + " | ".join(heading) + " |", "|:--" + "|--:" * (len(fields) - 1) + "|"]
    for one in rows:
        cells = [give(one) for give in fields.values()]
        if one == own:
            cells = [f"**{text}**" for text in cells]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


# What is said below the numbers, of each variant.
_WORDS = {
    "grouped": ("seen", "random", "saves"),
    "mla": ("latent", "rotary", "absorbed", "narrow"),
    "additive": ("scored", "history", "pairs"),
}


def words(panel: Panel) -> None:
    """Say what is seen and why, answer two popular claims, and give the sources."""
    st.subheader(panel.title("words.title"), anchor=False)
    for name in _WORDS[panel.settled.view.variant]:
        st.markdown(panel.title(f"words.{name}"))
    st.caption(panel.title("words.drawn", most=MOST_SHOWN))
    st.subheader(panel.title("claims.title"), anchor=False)
    for name, models in (("llama", ("llama-2-7b", "llama-2-70b")), ("deepseek", ("deepseek-v3-r1-671b",))):
        links = " · ".join(f"[{_label(PRESETS[key].label, panel)}]({PRESETS[key].source})" for key in models)
        st.markdown(f"{panel.title(f'claims.{name}')} {links}")
    snippet(panel)
    layout.sources(panel.language, SOURCES)


def snippet(panel: Panel) -> None:
    """Offer the view as a script."""
    opened = layout.fold(panel.title("snippet.title"), icon=":material/code:", key="variants.snippet")
    if opened is not None:
        opened.markdown(panel.title("snippet.lead"))
        opened.code(code(panel.settled.view), language="python")


def code(view: View) -> str:
    """Give the script of a view."""
    return layer_snippet(
        view.variant, heads=view.heads, d_k=view.d_k, width=WIDTH, tokens=view.tokens, seed=view.seed,
        kv_heads=view.kv_heads, method=view.method, latent=view.latent, rope=view.rope, whole=(LATENT, ROTARY),
    )  # fmt: skip


def _label(label: Text, panel: Panel) -> str:
    return layout.escape(label.say(panel.language))
