"""Heads and groups."""

import json

import numpy as np
import pytest

from attnviz.config import divisors
from pages.ui.attention_picture import cell, frame
from pages.ui.heatmap.frame import TOP, unpack
from tests.pages import component, link, plain, shown, visit, widgets


@pytest.mark.parametrize("heads", [3, 33])
def test_case_30_heads_that_do_not_divide_get_one_sentence_before_any_run(heads):
    """https://github.com/fla-org/flash-linear-attention/issues/1029: 3 query heads over 2 key heads; 33 over 2."""
    app = visit(heads=str(heads), kv_heads="2")
    (warning,) = app.warning
    words = plain(warning.value)
    assert f"kv_heads must divide heads: {heads} heads allow" in words and "got 2; using 1" in words
    assert link(app) == {"heads": str(heads), "kv_heads": "1"}
    assert len(shown(app)[1]["main"]) == heads


@pytest.mark.parametrize("heads", [1, 3, 8, 33, 64])
def test_case_30_the_slider_offers_divisors_only(heads):
    described = json.loads(component(visit(heads=str(heads)), "attention.kv_heads").proto.json)
    assert described["stops"] == list(divisors(heads))
    assert described["high"] == heads


def test_case_33_heads_are_shown_one_by_one_and_the_average_is_a_choice():
    """https://github.com/pytorch/pytorch/issues/34537: the library averages, the user wants each head."""
    app = visit(heads="4")
    header, each = shown(app)
    assert [described["key"] for described in header["parts"]["main"]["maps"]] == ["0", "1", "2", "3"]
    assert app.selectbox(key="attention.head").options == [
        "all heads",
        "average",
        "head 0",
        "head 1",
        "head 2",
        "head 3",
    ]
    assert widgets(app)["attention.head"] == "all"
    header, average = unpack(frame({"heads": "4", "head": "mean"}))
    (described,) = header["parts"]["main"]["maps"]
    assert described["title"] == "mean of 4 heads"
    counts = average["main"][0] <= TOP
    want = np.mean([code / TOP for code in each["main"]], axis=0)
    np.testing.assert_allclose((average["main"][0] / TOP * described["high"])[counts], want[counts], atol=1e-4)
    exact = [float(str(cell({"heads": "4", "map": str(head), "row": "5", "col": "2"})["value"])) for head in range(4)]
    mean = cell({"heads": "4", "head": "mean", "map": "mean", "row": "5", "col": "2"})
    assert float(str(mean["value"])) == pytest.approx(np.mean(exact), abs=1e-6)
    assert max(exact) - min(exact) > 0.01
