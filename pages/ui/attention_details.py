"""The lower part of the attention page: what it takes, the same in plain PyTorch, words and sources."""

from typing import cast

import streamlit as st
import torch

from attnviz import inputs, units
from attnviz.backends import BACKENDS
from attnviz.census import Census
from attnviz.cost import cost
from attnviz.guard import Prediction
from attnviz.snippet import attention_snippet
from attnviz.stages import Fused
from attnviz.view import View
from attnviz.view_run import census, make_config, run
from pages.ui import layout
from pages.ui.controls import Panel
from pages.ui.translate import counted, kernel

SOURCES = (
    ("Vaswani et al. 2017, Attention Is All You Need, §3.2", "https://arxiv.org/abs/1706.03762"),
    ("Ainslie et al. 2023, GQA", "https://arxiv.org/abs/2305.13245"),
    ("Shazeer 2019, Fast Transformer Decoding (MQA)", "https://arxiv.org/abs/1911.02150"),
    ("torch.nn.functional.scaled_dot_product_attention",
     "https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html"),
    ("Dao et al. 2022, FlashAttention", "https://arxiv.org/abs/2205.14135"),
)  # fmt: skip


def numbers(panel: Panel, prediction: Prediction) -> None:
    """Show what the view takes, and that a fused kernel used the very weights that are drawn."""
    view = panel.settled.view
    _, ran = run(view)
    st.subheader(panel.title("numbers.title"), anchor=False)
    columns = st.columns(4 if ran is None else 5)
    parts = {
        name: units.binary_bytes(getattr(prediction, name)) for name in ("making", "inputs", "calling", "kept", "block")
    }
    columns[0].metric(
        panel.title("numbers.taken"),
        units.binary_bytes(prediction.total),
        help=panel.title("numbers.taken_help", **parts),
    )
    whole = cost(
        view.layer,
        make_config(view),
        q_len=view.length,
        kv_len=view.key_length,
        dtype=view.dtype,
        backend=view.backend,
        cross=view.attention == "cross",
        masked=not view.build_mask().is_full,
    )
    label = BACKENDS[view.backend].label.say(panel.language)
    columns[1].metric(
        panel.title("numbers.whole", backend=label),
        units.binary_bytes(whole.peak_bytes),
        help=panel.title("numbers.whole_help", blocks=prediction.blocks),
    )
    columns[2].metric(
        panel.title("numbers.scores"), units.binary_bytes(whole.score_bytes), help=panel.title("numbers.scores_help")
    )
    columns[3].metric(panel.title("numbers.work"), units.flops(prediction.flops), help=panel.title("numbers.work_help"))
    counted = census(view)
    if counted is not None and counted.difference is not None:
        columns[4].metric(
            panel.title("numbers.difference"),
            f"{counted.difference:.2e}",
            help=panel.title("numbers.difference_help"),
        )
    st.caption("\n\n".join(_remarks(panel, ran, counted)))


def _remarks(panel: Panel, ran: Fused | None, counted: Census | None) -> list[str]:
    """Say what else happened: the kernel that ran, rows out of range or without a key, weights that underflowed."""
    view = panel.settled.view
    said = [] if ran is None else [panel.title("numbers.kernel", kernel=kernel(panel.language, ran.kernel))]
    if counted is None:
        return said
    # A mask of its own for each head lets other pairs attend in each; what is said of a head is then their mean.
    pairs, cells = counted.pairs / view.heads, units.count(view.length * view.key_length)
    said.append(panel.title("numbers.pairs", pairs=f"{pairs:,.12g}", cells=cells))
    if view.mask != "full" and counted.pairs == view.heads * view.length * view.key_length:
        said.append(panel.title("numbers.no_effect"))
    tolerance = 16 * float(torch.finfo(getattr(torch, view.dtype)).eps)
    if counted.row_sums is not None and view.dropout == 0 and view.mistake == "none":
        least, most = (f"{bound:.9g}" for bound in counted.row_sums)
        said.append(panel.title("numbers.row_sums", least=least, most=most, tolerance=f"{tolerance:.1g}"))
    if counted.not_finite:
        said.append(panel.title("numbers.overflow", rows=units.count(counted.not_finite), dtype=view.dtype))
    if counted.no_key:
        said.append(panel.title("numbers.no_key", rows=units.count(counted.no_key)))
    if counted.underflowed:
        said.append(panel.title("numbers.underflow", cells=units.count(counted.underflowed), dtype=view.dtype))
    return said


def snippet(panel: Panel) -> None:
    """Show the plain PyTorch that gives this view's output."""
    opened = layout.fold(panel.title("snippet.title"), icon=":material/code:", key="attention.snippet")
    if opened is not None:
        opened.markdown(panel.title("snippet.lead"))
        opened.code(code(panel.settled.view), language="python")


def code(view: View) -> str:
    """Give the script of a view."""
    return attention_snippet(
        make_config(view),
        seed=view.seed,
        q_len=view.length,
        kv_len=view.key_length,
        tokens=view.tokens("query"),
        context=view.tokens("key") if view.attention == "cross" else None,
        cross=view.attention == "cross",
        worked=view.input == "worked",
        mask=view.mask,
        mask_settings=dict(view.mask_settings),
        align=view.align,
        scale=None if view.scale == "auto" else view.factor,
        position=view.position,
        position_settings=dict(view.position_settings),
        score_mod=view.score_mod,
        score_mod_settings=dict(view.score_mod_settings),
        backend=view.backend,
        dtype=view.dtype,
        dropout=view.dropout,
        mistake=view.mistake,
    )


def explanation(panel: Panel) -> None:
    """Say in words what the picture shows, where the input comes from, and the sources."""
    st.subheader(panel.title("words.title"), anchor=False)
    view = panel.settled.view
    parts = [panel.title("words.qkv"), *_made(panel, view), panel.title("words.steps"), _heads(panel, view)]
    if "window" in panel.settled.knobs:
        parts.append(panel.title("words.more.window"))
    st.markdown("\n\n".join(parts))
    st.caption(_origin(panel))
    layout.sources(panel.language, SOURCES)


def _made(panel: Panel, view: View) -> list[str]:
    """Say of what queries, keys and values are made; the worked example's are made of nothing."""
    if view.input == "worked":
        return []
    side = "cross" if view.attention == "cross" else "self"
    if view.layer != "mla":
        return [panel.title(f"words.made.{side}")]
    sizes = dict(view.variant_settings)
    said = [panel.title(f"words.made.latent_{side}", latent=sizes["latent"])]
    if sizes["rope"]:
        said.append(panel.title("words.made.rotary", rope=sizes["rope"], d_k=view.d_k))
    return [" ".join((*said, panel.title("words.made.expanded")))]


def _heads(panel: Panel, view: View) -> str:
    """Say what heads repeat, and what they share."""
    shared = {"heads": view.heads, "group": view.heads // view.kv_heads}
    if view.layer != "mla":
        return panel.title(f"words.heads.{view.layer}", **shared)
    # Latent and rotary key are all that MLA has settings for.
    kept, whole = sum(cast("dict[str, int]", dict(view.variant_settings)).values()), 2 * view.heads * view.d_k
    return panel.title("words.heads.mla", kept=units.count(kept), whole=units.count(whole))


def _origin(panel: Panel) -> str:
    """Say where the input comes from, and that nothing is trained."""
    view = panel.settled.view
    if view.input != "sentence":
        return panel.title("worked" if view.input == "worked" else "random", seed=view.seed)
    own = len(inputs.tokenize(view.text))
    if own == 0:
        return panel.title("no_token")
    if 0 < own < view.length:
        tokens = counted(panel.language, "token", own)
        return panel.title("untrained") + " " + panel.title("repeats", tokens=tokens, length=units.count(view.length))
    return panel.title("untrained")
