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


def cell(params: Mapping[str, str]) -> dict[str, object]:
    """Give what was asked for as the value."""
    if params["row"] == "99":
        raise Refusal(Text("row must be from 0 to 9, got 99.", "row 应为 0 到 9，收到的是 99。"))
    return {"value": " ".join(params[name] for name in ("x", "part", "map", "row", "col"))}


app = st.App("live_page.py", routes=live.make_routes({"toy": live.Figure(picture, cell)}))
