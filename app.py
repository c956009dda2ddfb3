"""Start attnviz: load the heavy libraries once, then serve the pages and the live routes."""

import gc

import streamlit as st
import torch
from starlette.middleware import Middleware

from attnviz import heap
from pages.ui import layout, live_figures
from pages.ui.kept import KeptFiles
from pages.ui.root import KnownRoot

# Two torch threads spin against the server's own; one keeps a slider's answer steady.
torch.set_num_threads(1)

# Before the threads of the server start, and with them their own pools of memory.
heap.keep()

# A full collection walks every object that torch and plotly brought in and holds the interpreter for 0.1 s; they live
# as long as the server, so they are set aside once.
gc.collect()
gc.freeze()

app = st.App(
    "pages/router.py",
    routes=live_figures.routes,
    middleware=[Middleware(KeptFiles), Middleware(KnownRoot)],
    on_script_error=layout.failed,
)
