"""The KV cache page's folded sections and what it says in words."""

import streamlit as st

from pages.ui import layout
from pages.ui.controls import Panel

SOURCES = (
    ("Shazeer 2019, Fast Transformer Decoding, §2.4 and §3 (what decoding reads)", "https://arxiv.org/abs/1911.02150"),
    ("Pope et al. 2022, Efficiently Scaling Transformer Inference, §3.3 (KV cache memory)", "https://arxiv.org/abs/2211.05102"),
    ("DeepSeek-AI 2024, DeepSeek-V2, §2.1 (latent cache)", "https://arxiv.org/abs/2405.04434"),
)  # fmt: skip


def show(panel: Panel) -> None:
    """Say what is seen and why, and give the sources."""
    st.subheader(panel.title("words.title"), anchor=False)
    for name in ("saves", "valid", "reads", "grows"):
        st.markdown(panel.title(f"words.{name}"))
    st.caption(panel.title("words.drawn"))
    layout.sources(panel.language, SOURCES)
