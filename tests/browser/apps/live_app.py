"""A small app with live sliders and a text for a picture, served as the real app is."""

import json
import struct
from collections.abc import Mapping

import streamlit as st

from attnviz.knobs import Integer
from attnviz.text import Refusal, Text, same
from pages.ui import live

X = Integer("x", same("x"), 20, low=0, high=1000)
N = Integer("n", same("n"), 16, low=1, high=100_000)
UNLUCKY = 13


def picture(params: Mapping[str, str]) -> bytes:
    """Give a frame whose caption says which values it was made from."""
    x, n = X.parse(params["x"]), N.parse(params["n"])
    if x == UNLUCKY:
        raise Refusal(Text("x must not be 13, got 13.", "x 不能是 13，收到的是 13。"))
    header = {"figure": "toy", "params": dict(params), "parts": {"text": {"caption": f"x={x} n={n}"}}}
    text = json.dumps(header).encode()
    text += b" " * (-(4 + len(text)) % 8)
    return struct.pack("<I", len(text)) + text


app = st.App("live_page.py", routes=live.make_routes({"toy": live.Figure(picture)}))
