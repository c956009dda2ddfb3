"""Scale and softmax, measured over d_k: spread, top weight, overflow and underflow."""

import numpy as np
import pytest
import torch

from attnviz.saturation import SCALINGS, measure, normal_source
from attnviz.text import LANGUAGES
from pages.ui.translate import say
from tests.pages import numbers, plain, plots, said, visit

CASE_21 = {16: (4, 0.748), 64: (8, 0.875), 256: (16, 0.937), 1024: (32, 0.969)}


@pytest.mark.parametrize("d_k", CASE_21)
def test_case_21_the_raw_spread_is_the_root_of_d_k_and_scaling_takes_it_away(d_k):
    """https://github.com/datawhalechina/hello-agents/pull/840."""
    spread, top = CASE_21[d_k]
    points = {name: [] for name in ("none", "sqrt")}
    for seed in range(6):
        query, key = normal_source(groups=256, queries=16, keys=8, seed=100 + seed)(d_k)
        measured = measure(query, key, SCALINGS, power=0.0, temperature=1.0, seed=0)
        for name, found in points.items():
            found.append(measured[name])
    raw, scaled = (np.mean([(point.spread, point.top) for point in found], 0) for found in points.values())
    assert raw == pytest.approx((spread, top), rel=0.02) and raw[1] == pytest.approx(top, abs=0.005)
    assert scaled == pytest.approx((1, 0.358), abs=0.02)


@pytest.mark.parametrize("language", LANGUAGES)
def test_case_26_a_dtype_marks_the_rows_that_overflow(language):
    """https://github.com/huggingface/transformers/pull/33317."""
    loud = {"variance_q": "100000", "variance_k": "1000", "show": "collapse"}
    for dtype, lost in (("float16", True), ("bfloat16", False), ("float32", False)):
        app = visit(language, page="saturation", dtype=dtype, **loud)
        words = say(language, "saturation.remark.overflow", dtype=dtype, where="|").split("|")[0]
        assert (words in plain(said(app))) == lost
        symbols = {symbol for trace in plots(app)["saturation.spread"]["data"] if trace["mode"] == "markers"
                   for symbol in np.atleast_1d(trace["marker"]["symbol"])}  # fmt: skip
        assert ("x" in symbols) == lost


def test_case_27_weights_that_underflow_are_exactly_0_and_said_to_be():
    """RaBitQCache, pull request 1: a raw spread of 125 to 257, in float32."""
    assert float(torch.exp(torch.tensor(-103.97))) > 0 and float(torch.exp(torch.tensor(-103.98))) == 0
    app = visit(page="saturation", d_k="1024", variance_q="16")  # a spread of 128
    words = "Some weights are exactly 0 in float32, because they are too small for it: no scaling (d_k ≥ "
    assert words in plain(said(app))
    curve = plots(app)["saturation.spread"]
    assert max(max(numbers(trace["y"])) for trace in curve["data"]) == pytest.approx(128, rel=0.05)
    (dots,) = (trace for trace in curve["data"] if trace["mode"] == "markers")
    marked = {
        name for name, symbol in zip(dots["text"], dots["marker"]["symbol"], strict=True) if symbol == "circle-open"
    }
    assert "no scaling" in marked and "1/d_k" not in marked
    limits = plots(visit(page="saturation", show="limits"))["saturation.depth"]["layout"]
    heights = {notice["text"]: 10 ** notice["y"] for notice in limits["annotations"]}
    assert heights["float32"] == pytest.approx(103.972, abs=0.001)
