"""What decoding takes, predicted and measured: a token with the cache and without, and each variant's step."""

from collections.abc import Sequence

import streamlit as st

from attnviz import units
from attnviz.benchmark import Request, Result
from attnviz.figures.measured import Curve, curves
from attnviz.kv_cache_view import measured as measuring
from attnviz.kv_cache_view.measured import D_K, HEADS, LATENT, Grown
from pages.ui import measured
from pages.ui.bus import Group
from pages.ui.controls import Panel
from pages.ui.plot import plot
from pages.ui.translate import say, table

HEIGHT = 360


def work(panel: Panel, group: Group) -> None:
    """Show the work of one token as FLOPs by declaration, and as time once it is measured."""
    view = panel.settled.view
    st.markdown(panel.title("work.lead", variant=view.variant.upper(), heads=HEADS, d_k=D_K))
    names = (panel.title("work.with"), panel.title("work.without"))
    requests = measuring.work_requests(view, names)
    measured.section(panel, "work", requests, lambda asked, shown: _work(panel, names, asked, shown))
    st.markdown(panel.title("work.words"))


def _work(panel: Panel, names: tuple[str, str], asked: Sequence[Request], shown: Sequence[Result]) -> None:
    both = measuring.grown(asked, shown)
    left, right = st.columns(2, gap="medium")
    with left:
        drawn = [
            Curve(name, (), (), predicted=(one.contexts, one.flops)) for name, one in zip(names, both, strict=True)
        ]
        _plot(panel, "flops", drawn, panel.title("work.flops"), _flops_alt(panel, both))
    if not both[1].xs:
        right.info(panel.title("work.ask"), icon=":material/timer:")
        return
    with right:
        drawn = [
            Curve(
                name, one.xs, one.medians, one.lows, one.highs, one.noisy,
                None if one.predicted is None else (one.contexts, one.predicted),
            )
            for name, one in zip(names, both, strict=True)
        ]  # fmt: skip
        _plot(panel, "time", drawn, panel.title("work.time"), _time_alt(panel, both))


def _flops_alt(panel: Panel, both: tuple[Grown, Grown]) -> str:
    kept, again = (one.flops[-1] for one in both)
    fields = {"with": units.flops(kept), "without": units.flops(again), "times": units.ratio(again / kept)}
    return panel.title("work.flops_alt", context=units.count(both[0].contexts[-1]), **fields)


def _time_alt(panel: Panel, both: tuple[Grown, Grown]) -> str:
    """Say the times at the longest context that both were measured at."""
    common = [context for context in both[0].xs if context in both[1].xs]
    if not common:
        return panel.title("work.time")
    kept, again = (one.medians[one.xs.index(common[-1])] for one in both)
    fields = {"with": units.seconds(kept), "without": units.seconds(again), "times": units.ratio(again / kept)}
    return panel.title("work.time_alt", context=units.count(common[-1]), **fields)


def _plot(panel: Panel, key: str, drawn: Sequence[Curve], title: str, alt: str) -> None:
    contexts = measuring.CONTEXTS
    figure = curves(
        drawn, x_title=panel.title("work.context"), predicted=panel.title("work.predicted"),
        label=units.flops if key == "flops" else units.seconds,
        ticks=(contexts, [units.short_length(context) for context in contexts]),
        noisy=say(panel.language, "measure.hollow"),
    )  # fmt: skip
    if key == "flops":
        # A line without dots has no name of its own in the legend.
        for trace, curve in zip([one for one in figure["data"] if one.get("mode") == "lines"], drawn, strict=False):
            trace |= {"showlegend": True, "name": curve.name, "legendgroup": f"{curve.name}.line"}
        figure["data"] = [one for one in figure["data"] if one.get("name") != panel.title("work.predicted")]
        figure["data"] = [one for one in figure["data"] if one.get("mode") == "lines"]
    figure["layout"] |= {"height": HEIGHT}
    plot(
        figure, key=f"kv_cache.work.{key}", label=title, alt=alt, caption=alt, words=table(panel.language, "plot"),
        height=HEIGHT,
    )  # fmt: skip


def latency(panel: Panel, group: Group) -> None:
    """Show each variant's step for one token as measured, shared heads computed together and spread out first."""
    view = panel.settled.view
    st.markdown(panel.title("latency.lead"))
    panel.control("decode_context", segmented=True)
    request = measuring.step_request(view, panel.title("latency.packed"), panel.title("latency.expanded"))
    measured.section(panel, "latency", (request,), lambda asked, shown: _latency(panel, asked, shown))
    sizes = {one.variant.upper(): measuring.cache_bytes(request, one) for one in request.contestants}
    each = " · ".join(f"{name} {units.binary_bytes(size)}" for name, size in sizes.items())
    latent = {"latent": LATENT["kv_lora_rank"], "rope": LATENT["qk_rope_head_dim"]}
    fields = {"heads": HEADS, "d_k": D_K, "tokens": units.count(request.keys)}
    st.caption(panel.title("latency.caches", each=each, **fields, **latent))
    pairs = {variant: measuring.pair_flops(variant, request.keys) for variant in ("mla", "mha")}
    ratios = {
        "fewer": units.number(sizes["MHA"] / sizes["MLA"], 2),
        "more": units.number(pairs["mla"] / pairs["mha"], 2),
    }
    st.markdown(panel.title("latency.words", **ratios, **latent))


def _latency(panel: Panel, asked: Sequence[Request], shown: Sequence[Result]) -> None:
    if not shown:
        st.info(panel.title("latency.ask"), icon=":material/timer:")
        return
    measured.bars(panel, "latency.bars", asked[0], shown[0] if shown else None, memory=False)
