"""The cost page: controls, the roofline, the table of four ways to call a layer, devices, unequal batches, words."""

from collections.abc import Callable, Mapping, Sequence

import streamlit as st

from attnviz import units
from attnviz.benchmark import Request, Result, desk
from attnviz.benchmark.pairs import PAIRS
from attnviz.cost import Cost
from attnviz.cost_view import (
    OWN,
    SCENARIOS,
    SETS,
    Batch,
    View,
    Whole,
    measurable,
    plain,
    priced,
    probe,
    split,
    unequal,
    whole,
)
from attnviz.figures.roofline import HEIGHT
from attnviz.hardware import HARDWARE, Hardware
from attnviz.presets import PRESETS
from attnviz.text import Refusal
from pages.ui import cost_picture, layout, measured, published
from pages.ui.bus import Group
from pages.ui.controls import Panel
from pages.ui.plot import plot
from pages.ui.translate import table

_STYLE = """<style>
:is(.st-key-cost-table, .st-key-cost-all, .st-key-cost-unequal) td + td { white-space: nowrap; }
@media (max-width: 640px) { .st-key-cost-table :is(th, td) { padding: 0.3rem 0.2rem; font-size: 0.75rem; }
  .st-key-cost-table :is(th, td):first-child { min-width: 4.5rem; }
  :is(.st-key-cost-all, .st-key-cost-unequal) :is(th, td) { padding: 0.4rem 0.35rem; font-size: 0.875rem; } }
</style>"""
_LOOK_EVERY_S, _MOST_LOOKS = 1.0, 60
SOURCES = (
    ("Williams, Waterman, Patterson 2009, Roofline", "https://doi.org/10.1145/1498765.1498785"),
    ("Kaplan et al. 2020, Scaling Laws, §2.1 (2·m·n·k)", "https://arxiv.org/abs/2001.08361"),
    ("Dao et al. 2022, FlashAttention, §3.1 (traffic)", "https://arxiv.org/abs/2205.14135"),
    ("Shoeybi et al. 2019, Megatron-LM, §3 (split of heads)", "https://arxiv.org/abs/1909.08053"),
    ("Leviathan et al. 2023, Speculative Decoding", "https://arxiv.org/abs/2211.17192"),
)


def side_controls(panel: Panel, group: Group) -> None:
    """Draw the controls of the layer and of the devices."""
    with st.sidebar:
        st.subheader(panel.title("group.layer"), anchor=False)
        panel.control("pair")
        for name in ("heads", "kv_heads", "d_k", "batch"):
            if name in panel.settled.knobs:
                panel.live(name, group)
        panel.control("dtype")
        panel.control("width")
        panel.control("layers")
        st.subheader(panel.title("group.ways"), anchor=False)
        panel.control("new")
        panel.control("drafts")


def live_controls(panel: Panel, group: Group) -> None:
    """Draw whose layer it is, and the context that the picture follows."""
    if "layer" in panel.settled.knobs:
        model, layer, context, roofs = st.columns([1.9, 1.2, 2.05, 3.75], vertical_alignment="bottom")
        with layer:
            panel.control("layer")
    else:
        model, context, roofs = st.columns([1.2, 1.15, 1.85], vertical_alignment="bottom")
    with model:
        panel.control("model", sets=SETS)
    with context:
        panel.live("context", group)
    with roofs:
        panel.control("hardware")


def picture(panel: Panel, group: Group) -> None:
    """Draw the roofline, with what was measured here once it was."""
    view = panel.settled.view

    def draw(requests: Sequence[Request], shown: Sequence[Result]) -> None:
        drawn = cost_picture.draw(view, panel.language, requests, shown)
        plot(
            drawn.figure, key="cost.roofs", label=panel.title("nav"), alt=drawn.alt, caption=drawn.caption,
            words=table(panel.language, "plot"), height=HEIGHT, group=group, part=cost_picture.ROOFS,
        )  # fmt: skip

    measured.section(panel, "roofs", measurable(view), draw)
    _await(view)
    absent = [HARDWARE[key] for key in view.hardware.split(",")]
    absent = [one.short for one in absent if one.peak and view.dtype not in one.peak]
    if absent:
        st.caption(panel.title("absent", dtype=view.dtype, names=layout.escape(", ".join(absent))))


def _await(view: View) -> None:
    """Draw the page again once the speed of this machine is known, as long as that is likely to come."""
    asked, looks = probe(view), 0
    if desk().speed(asked) is not None:
        return

    @st.fragment(run_every=_LOOK_EVERY_S)
    def look() -> None:
        nonlocal looks
        looks += 1
        if looks <= _MOST_LOOKS and desk().speed(asked) is not None:
            st.rerun()

    look()


def model(panel: Panel) -> None:
    """Show all layers beside one, and whose they are."""
    view = panel.settled.view
    one, every = whole(view, layers=1), whole(view)
    bare = not getattr(view.sizes, "biases", False)
    fields: Mapping[str, Callable[[Whole], str]] = {
        "parameters" if bare else "biased": lambda held: units.count(held.parameters),
        cost_picture.keeps(view): lambda held: units.binary_bytes(held.cache_bytes),
        "reserved": lambda held: units.binary_bytes(held.reserved_bytes),
        "token": lambda held: units.binary_bytes(held.token_bytes),
        "flops": lambda held: units.flops(held.step[0]),
        "moved": lambda held: units.binary_bytes(held.step[1]),
    }
    if every.cache_bytes == every.reserved_bytes:
        fields = {name: give for name, give in fields.items() if name != "reserved"}
    st.subheader(panel.title("model.title"), anchor=False)
    heading = (panel.title("model.what"), _one(panel), panel.title("model.all", layers=every.layers))
    lines = ["| " + " | ".join(heading) + " |", "|:--|--:|--:|"]
    for name, give in fields.items():
        lines.append(f"| {panel.title(f'model.{name}')} | {give(one)} | {give(every)} |")
    st.html(_STYLE)
    with st.container(key="cost.all"):
        st.markdown("\n".join(lines))
    if view.model != OWN:
        st.caption(_published(panel, view))


def _one(panel: Panel) -> str:
    """Name the layer that is drawn, by its kind where a model has windows."""
    view = panel.settled.view
    if all(kind.window is None for kind in view.kinds):
        return panel.title("model.one")
    return panel.title("model.one_every" if view.window is None else "model.one_window")


def _published(panel: Panel, view: View) -> str:
    """Say where a model's sizes come from, and what its windows and other layers change."""
    chosen = PRESETS[view.model]
    said = [f"**{layout.escape(chosen.label.say(panel.language))}** ·"]
    if view.preset is None:
        said.append(panel.title("model.changed_windows" if chosen.sliding_layers else "model.changed"))
    else:
        said += published.told(chosen, panel.language, view.context)
    return " ".join((*said, published.source(chosen, panel.language)))


def ways(panel: Panel) -> None:
    """Show the four ways to call the layer beside each other, in numbers."""
    view = panel.settled.view
    st.subheader(panel.title("table.title"), anchor=False)
    new = {"new": units.count(view.queries("extend")), "drafts": view.queries("speculative") - 1}
    said = [label.fill(**new).say(panel.language) for label in SCENARIOS.values()]
    st.caption(panel.title("table.semicolon").join(said))
    with st.container(key="cost.table"):
        st.markdown(_table(panel, view))
    st.caption("  \n".join((panel.title("table.note"), *_notes(panel, view))))
    _split(panel, view)
    _unequal(panel, view)


def _notes(panel: Panel, view: View) -> list[str]:
    """Say of which kernel the numbers are, where they are not all of one."""
    said = []
    if view.queries("extend") == view.context:
        said.append(panel.title("table.note_short", context=units.count(view.context)))
    unfused = [panel.title(f"way.{name}") for name in plain(view)]
    if unfused:
        said.append(panel.title("table.note_plain", ways=", ".join(unfused)))
    if view.window is not None and view.window < view.context:
        whole_matrix = view.variant.score_passes(PAIRS[view.pair].backend)
        key = "table.note_eager" if whole_matrix else "table.note_window"
        said.append(panel.title(key, window=units.count(view.window)))
    if PAIRS[view.pair].backend == "parallel":
        said.append(panel.title("table.note_parallel"))
    return said


def _scores(view: View) -> str:
    """Give the key of what the scores are called: those that a window lets through are no whole matrix."""
    eager = view.variant.score_passes(PAIRS[view.pair].backend)
    return "scores_window" if view.window is not None and view.window < view.context and not eager else "scores"


def _table(panel: Panel, view: View) -> str:
    """Give the quantities in rows, the ways to call in columns, as a table in Markdown."""
    none = panel.title("table.none")
    fields: Mapping[str, Callable[[Cost], str]] = {
        "flops": lambda one: units.flops(one.flops),
        "moved": lambda one: units.binary_bytes(one.bytes_moved),
        "intensity": lambda one: units.number(one.intensity),
        _scores(view): lambda one: units.binary_bytes(one.score_bytes) if one.score_bytes else none,
        "mask": lambda one: units.binary_bytes(one.mask_bytes) if one.score_bytes else none,
        "peak": lambda one: units.binary_bytes(one.peak_bytes),
        cost_picture.keeps(view): lambda one: units.binary_bytes(one.kv_cache_bytes),
    }
    prices = [priced(view, name) for name in SCENARIOS]
    heading = [panel.title(f"way.{name}") for name in SCENARIOS]
    rows = [[panel.title(f"table.{name}"), *map(give, prices)] for name, give in fields.items()]
    for key in view.hardware.split(","):
        entry = HARDWARE[key]
        if entry.peak and view.dtype not in entry.peak:
            continue
        name = panel.title("table.least" if entry.peak else "table.least_memory", name=layout.escape(entry.short))
        rows.append([name, *(_least(panel, entry, view.dtype, one) for one in prices)])
    lines = ["| " + " | ".join(cells) + " |" for cells in ([_one(panel), *heading], *rows)]
    return "\n".join([lines[0], "|:--" + "|--:" * len(SCENARIOS) + "|", *lines[1:]])


def _least(panel: Panel, entry: Hardware, dtype: str, one: Cost) -> str:
    """Say what a device takes at least: for its arithmetic, where a peak is known, or for its memory."""
    if one.weight_bytes + one.kv_cache_bytes > entry.memory_bytes:
        return panel.title("table.too_large")
    arithmetic = one.flops / entry.peak_flops(dtype) if entry.peak else 0.0
    return f"≥ {units.seconds(max(arithmetic, one.bytes_moved / entry.bandwidth))}"


def _split(panel: Panel, view: View) -> None:
    """Show what each of several devices takes when they share the heads."""
    st.subheader(panel.title("split.title"), anchor=False)
    panel.control("devices")
    try:
        share = split(view)
    except Refusal as refusal:
        st.info(layout.escape(refusal.text.say(panel.language)), icon=":material/info:")
        return
    columns = st.columns(4)
    given = {
        "parameters": units.short_count(share.one.parameters),
        cost_picture.keeps(view): units.binary_bytes(share.one.kv_cache_bytes),
        "reduced": units.binary_bytes(share.reduced_bytes),
        "step": units.binary_bytes(share.step_bytes),
    }
    for column, (name, value) in zip(columns, given.items(), strict=True):
        column.metric(panel.title(f"split.{name}"), value)
    whole = priced(view, "decode").kv_cache_bytes
    kept = units.percent(share.one.kv_cache_bytes / whole)
    if share.devices == 1:
        st.caption(panel.title("split.alone"))
        return
    words = panel.title(f"split.{cost_picture.keeps(view)}_words", kept=kept, devices=share.devices)
    st.caption(f"{words} {panel.title('split.sum')}")


def _unequal(panel: Panel, view: View) -> None:
    """Show what padding a batch of unequal lengths costs."""
    st.subheader(panel.title("unequal.title"), anchor=False)
    panel.control("lengths")
    padded, packed = unequal(view)
    fields: Mapping[str, Callable[[Batch], tuple[int, str]]] = {
        "tokens": lambda one: (one.tokens, units.count(one.tokens)),
        "flops": lambda one: (one.flops, units.flops(one.flops)),
        cost_picture.keeps(view): lambda one: (one.cache_bytes, units.binary_bytes(one.cache_bytes)),
        "step": lambda one: (one.step_bytes, units.binary_bytes(one.step_bytes)),
    }
    names = ("what", "padded", "packed", "waste")
    lines = ["| " + " | ".join(panel.title(f"unequal.{name}") for name in names) + " |", "|:--|--:|--:|--:|"]
    for name, give in fields.items():
        (much, said), (least, least_said) = give(padded), give(packed)
        cells = (panel.title(f"unequal.{name}"), said, least_said, units.percent(1 - least / much))
        lines.append("| " + " | ".join(cells) + " |")
    with st.container(key="cost.unequal"):
        st.markdown("\n".join(lines))
    st.caption(panel.title("unequal.words"))


def words(panel: Panel) -> None:
    """Say what is counted and what is not, and give the sources."""
    st.subheader(panel.title("words.title"), anchor=False)
    for name in ("roof", "decode", "counted", "own", "apple"):
        st.markdown(panel.title(f"words.{name}"))
    chosen = tuple((HARDWARE[key].label.say(panel.language), HARDWARE[key].source)
                   for key in panel.settled.view.hardware.split(","))  # fmt: skip
    layout.sources(panel.language, (*SOURCES, *chosen))
