"""The benchmark page: what is compared, the bars at one shape, and what the numbers are."""

from collections.abc import Sequence

import streamlit as st

from attnviz import device, units
from attnviz.benchmark import Measurement, Probe, Request, Result, desk
from attnviz.config import divisors
from pages.ui import layout, measured
from pages.ui.benchmark_picture import MEMORY, TIME
from pages.ui.bus import Group
from pages.ui.controls import Panel
from pages.ui.translate import kernel

SOURCES = (
    ("Dao et al. 2022, FlashAttention, Theorems 1 and 2", "https://arxiv.org/abs/2205.14135"),
    ("Williams, Waterman, Patterson 2009, Roofline", "https://doi.org/10.1145/1498765.1498785"),
    ("torch.profiler", "https://docs.pytorch.org/docs/stable/profiler.html"),
    ("torch.cuda.max_memory_allocated", "https://docs.pytorch.org/docs/stable/generated/torch.cuda.memory.max_memory_allocated.html"),
)  # fmt: skip


def side_controls(panel: Panel, group: Group) -> None:
    """Draw the controls of the layer and of how it is measured."""
    with st.sidebar:
        st.subheader(panel.title("group.layer"), anchor=False)
        view = panel.settled.view
        panel.live("heads", group)
        if view.shares:
            panel.live("kv_heads", group, high=view.heads, stops=divisors(view.heads))
        for name in ("d_k", "batch"):
            panel.live(name, group)
        if not view.decodes:
            panel.control("mask", segmented=True)
        st.subheader(panel.title("group.measuring"), anchor=False)
        panel.control("mode")
        if not view.decodes:
            panel.control("what")
        panel.control("threads")
        if len(device.present()) > 1:
            panel.control("device")


def live_controls(panel: Panel, group: Group) -> None:
    """Draw what is compared, and the length that the bars follow."""
    panel.control("pairs")
    quick = panel.settled.view.show == "quick"
    shown, length, dtype = st.columns([1.1, 1.6, 1.6], vertical_alignment="bottom")
    with shown:
        panel.control("show", segmented=True, bare=True)
    with length:
        if quick:
            panel.live("length", group)
        else:
            panel.live("longest", group)
    with dtype:
        panel.control("dtype" if quick else "dtypes")


def quick(panel: Panel, group: Group) -> None:
    """Draw the bars at this very shape: predicted at once, measured as it comes."""

    def draw(requests: Sequence[Request], shown: Sequence[Result]) -> None:
        known = shown[0] if shown else None
        for column, part in zip(st.columns(2, gap="medium"), (TIME, MEMORY), strict=True):
            with column:
                measured.bars(panel, part, requests[0], known, memory=part == MEMORY, group=group, part=part)
        if isinstance(known, Measurement):
            st.caption(_ran(panel, known))

    # First, so that the marks of the least time are there with the first bars.
    view = panel.settled.view
    desk().speed(Probe(view.dtype, view.threads, view.device))
    measured.section(panel, "quick", (panel.settled.view.quick(),), draw, auto=True)


def _ran(panel: Panel, known: Measurement) -> str:
    """Say which kernel ran for each, and what of a decode step is the launching of calls."""
    ran = [f"{point.label}: {kernel(panel.language, point.kernel)}" for point in known.points if point.kernel]
    launch = [f"{point.label}: {units.seconds(point.overhead_s)}" for point in known.points if point.overhead_s]
    said = [f"{panel.title(name)} {'; '.join(each)}." for name, each in (("ran", ran), ("launch", launch)) if each]
    return layout.escape(" ".join(said))


def words(panel: Panel) -> None:
    """Say what the numbers are and are not, and give the sources."""
    st.subheader(panel.title("words.title"), anchor=False)
    for name in ("time", "memory", "predicted", "cpu"):
        st.markdown(panel.title(f"words.{name}"))
    opened = layout.fold(panel.title("shell.title"), icon=":material/terminal:", key="benchmark.shell")
    if opened is not None:
        opened.markdown(panel.title("shell.lead"))
        opened.code("python -m attnviz.benchmark --quick\npython -m attnviz.benchmark --help", language="bash")
    layout.sources(panel.language, SOURCES)
