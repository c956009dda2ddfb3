"""Size: long maps are pooled, said to be, and never sent beyond what a message holds."""

import tomllib
from pathlib import Path

import numpy as np
import pytest

from attnviz.text import LANGUAGES
from attnviz.view import settle
from attnviz.view_run import make_call
from pages.ui.attention_picture import cell, frame
from pages.ui.heatmap.frame import MOST_BYTES, TOP, unpack
from pages.ui.translate import say
from tests.pages import check, component, shown, visit

LONG = {"length": "2000", "heads": "1", "d_k": "8"}


@pytest.mark.parametrize("language", LANGUAGES)
def test_case_35_a_long_map_is_pooled_says_so_and_the_page_stays_alive(language):
    """https://github.com/streamlit/streamlit/issues/1630: a map of 2,000 × 2,000 killed the page."""
    app = visit(**LONG, lang=language)
    header, codes = shown(app)
    (described,) = header["parts"]["main"]["maps"]
    assert codes["main"][0].shape == (1000, 1000) and described["pool"] == [2, 2]
    assert described["row_axis"]["length"] == 2000
    assert header["config"]["words"]["pooled_max"] == say(language, "heatmap.pooled_max")
    assert "{rows}" in say(language, "heatmap.pooled_max") and "{cols}" in say(language, "heatmap.pooled_max")
    app.number_input(key="attention.seed").set_value(1)
    check(app.run())
    assert shown(app)[1]["main"][0].shape == (1000, 1000)


def test_case_35_a_region_has_exact_values():
    call = make_call(settle(LONG).view)
    scores = (call.query[0, 0, 1200:1210] @ call.key[0, 0].T * call.factor).double().numpy()
    scores[:, 1200:][np.triu_indices(10, 1, 800)] = -np.inf
    weights = np.exp(scores)
    weights /= weights.sum(1, keepdims=True)
    header, codes = unpack(frame(LONG | {"rows": "1200-1210", "cols": "700-720"}))
    (described,) = header["parts"]["main"]["maps"]
    assert described["pool"] == [1, 1]
    got = described["low"] + codes["main"][0] / TOP * (described["high"] - described["low"])
    np.testing.assert_allclose(got, weights[:, 700:720], rtol=0, atol=1e-6)
    exact = cell(LONG | {"map": "0", "row": "1203", "col": "711"})
    assert float(str(exact["value"])) == pytest.approx(weights[3, 711], rel=1e-4)


def test_case_38_no_message_goes_beyond_the_limit():
    """https://github.com/streamlit/streamlit/issues/3179: a payload over the message limit kills the connection."""
    config = tomllib.loads((Path(__file__).resolve().parents[2] / ".streamlit/config.toml").read_text(encoding="utf-8"))
    limit_mb = config.get("server", {}).get("maxMessageSize", 200)
    assert limit_mb * 1_000_000 > MOST_BYTES
    app = visit(length="1100", heads="3", d_k="4", text="一个很长的句子 " * 100)
    for key in ("attention.main", "attention.strip"):
        assert len(component(app, key).proto.bytes) <= MOST_BYTES
