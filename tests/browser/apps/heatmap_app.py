"""A small app with heatmaps, served as the real app is: its address says which maps, its routes answer for them."""

import time
from collections.abc import Mapping

import numpy as np
import streamlit as st

from attnviz.knobs import Integer
from attnviz.text import Refusal, Text, same
from pages.ui import live
from pages.ui.heatmap.frame import Axis, Grid, Map, pack

D = Integer("d", same("d"), 1, low=1, high=1000)
UNLUCKY = 13
SIZES = {"queries": 8, "keys": 8, "heads": 1, "side": 1024}
SENTENCE = ("the", "cat", "sat", "on", "the", "mat", "because", "the", "mat", "was", "warm", ".")
CHINESE = tuple("那只猫坐在暖和的垫子上因为垫子很暖")
ODD = (
    "<b>bold</b>",
    "</script>",
    "a\tb",
    "c\nd",
    "$x$",
    "&amp;",
    "🙂👩‍👩‍👧",
    " ",
    "\u202egnihton",
    "e\u0301te",
    "",
    "x" * 300,
)
WORDS = {"sentence": SENTENCE, "chinese": CHINESE, "odd": ODD}


def sizes(params: Mapping[str, str]) -> dict[str, int]:
    """Read how many rows, columns and heads there are, and the largest side that is drawn."""
    return {name: int(params.get(name, usual)) for name, usual in SIZES.items()}


def names(kind: str, count: int) -> tuple[str, ...] | None:
    """Give so many tokens of a kind; None for ``numbers``."""
    words = WORDS.get(kind)
    return None if words is None else tuple(words[i % len(words)] for i in range(count))


def values(params: Mapping[str, str], head: int, rows: np.ndarray, cols: np.ndarray) -> np.ndarray:
    """Give the values of a head at rows and columns: a thing of the past where not told otherwise."""
    r, c = rows[:, None].astype(np.float64), cols[None, :].astype(np.float64)
    d = D.parse(params.get("d", "1"))
    if params.get("kind") == "constant":
        return np.full((len(rows), len(cols)), 0.25)
    wave = np.cos((head + 1) * (r - c) / 3 + d) * np.exp(-np.abs(r - c) / (4 + d))
    return wave if params.get("kind") == "signed" else wave**2 / (1 + head)


def pooled(params: Mapping[str, str], head: int, spans: tuple[tuple[int, int], ...], side: int):
    """Give the largest of each block of cells, the state of the blocks, and the factors."""
    blocks = [-(-(stop - start) // side) for start, stop in spans]
    index = [np.arange(start, stop) for start, stop in spans]
    whole = values(params, head, *index)
    state = np.zeros(whole.shape, np.uint8)
    kind = params.get("kind", "")
    if kind == "causal":
        state = (index[1][None, :] > index[0][:, None]).astype(np.uint8)
    if kind == "troubled":
        state[:, 3], state[2] = 1, 2
        whole[0, 0], whole[1, 1], whole[1, 2], whole[4, 4] = np.nan, np.inf, -np.inf, 0
    for axis, block in enumerate(blocks):
        starts = np.arange(0, whole.shape[axis], block)
        whole, state = np.maximum.reduceat(whole, starts, axis), np.minimum.reduceat(state, starts, axis)
    return whole, state, (blocks[0], blocks[1])


def grid(params: Mapping[str, str], spans: tuple[tuple[int, int], tuple[int, int]] | None = None) -> Grid:
    """Give the maps that the parameters ask for, or a part of them."""
    size = sizes(params)
    if size["heads"] == 0:
        return Grid(())
    spans = spans or ((0, size["queries"]), (0, size["keys"]))

    def axis(dim: str, span: tuple[int, int], count: int) -> Axis:
        tokens = names(params.get("tokens", "numbers"), count)
        return Axis(dim, dim, span[1] - span[0], span[0], None if tokens is None else tokens[span[0] : span[1]])

    rows, cols = axis("query", spans[0], size["queries"]), axis("key", spans[1], size["keys"])
    log = params.get("scale") == "log"
    signed = params.get("kind") == "signed"
    low = 1e-6 if log else -1.0 if signed else 0.0
    low, high = (None, None) if params.get("range") == "own" else (low, 1.0)
    palette = "diverging" if signed else "sequential"
    maps = []
    for head in range(size["heads"]):
        drawn, state, pool = pooled(params, head, spans, size["side"])
        maps.append(
            Map(
                str(head), f"head {head}", drawn, rows, cols, state, pool, palette=palette, log=log, low=low, high=high
            )
        )  # fmt: skip
    return Grid(tuple(maps), f"d = {params.get('d', '1')}", f"{size['heads']} maps, d = {params.get('d', '1')}")


def parts(params: Mapping[str, str]) -> dict[str, Grid]:
    """Give the large picture and a strip of other maps with the same tokens."""
    size = sizes(params)
    queries = Axis("query", "query", min(64, size["queries"]))
    keys = Axis("key", "key", min(64, size["keys"]))
    features = Axis("feature", "feature", 16)
    strip = tuple(
        Map(key, title, np.cos(np.arange(rows.length)[:, None] * (1 + np.arange(cols.length))), rows, cols)
        for key, title, rows, cols in (
            ("q", "Q", queries, features),
            ("k", "K", keys, features),
            ("s", "QKᵀ", queries, keys),
        )
    )
    return {"main": grid(params), "strip": Grid(strip, "", "three thumbnails")}


def _span(text: str) -> tuple[int, int]:
    start, stop = text.split("-")
    return int(start), int(stop)


def frame(params: Mapping[str, str]) -> bytes:
    """Give the bytes of a live frame, or of a region."""
    if D.parse(params.get("d", "1")) == UNLUCKY:
        raise Refusal(Text("d must not be 13, got 13.", "d 不能是 13，收到的是 13。"))
    if "rows" in params:
        return pack("maps", params, {"main": grid(params, (_span(params["rows"]), _span(params["cols"])))})
    return pack("maps", params, parts(params))


def cell(params: Mapping[str, str]) -> dict[str, object]:
    """Give the exact value of one cell."""
    time.sleep(float(params.get("answer", 0)))
    if params["part"] == "strip":
        return {"value": "of the strip", "state": 0}
    row, col = np.array([int(params["row"])]), np.array([int(params["col"])])
    return {"value": f"{values(params, int(params['map']), row, col)[0, 0]:.15f}", "state": 0}


app = st.App("heatmap_page.py", routes=live.make_routes({"maps": live.Figure(frame, cell)}))
