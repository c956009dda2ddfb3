"""What a mask means: where its diagonal stands, what a window counts, and that it follows every length."""

import numpy as np
import pytest

from attnviz.masks import MASKS
from attnviz.text import LANGUAGES
from pages.ui.attention_picture import frame
from pages.ui.heatmap.frame import TOP, unpack
from pages.ui.translate import say
from tests.pages import check, component, go, link, plain, said, shown, visit, widgets


def allowed(**settings: str) -> np.ndarray:
    """Give which cells of the first head's weights have a value, as the live route draws them."""
    return unpack(frame(settings))[1]["main"][0] <= TOP


CROSS = {"attention": "cross", "input": "normal", "length": "2", "key_length": "5", "heads": "1"}


def test_case_12_both_alignments_of_two_queries_over_five_keys():
    """https://github.com/pytorch/pytorch/issues/103082, https://github.com/Dao-AILab/flash-attention/issues/20."""
    assert allowed(**CROSS).sum(1).tolist() == [1, 2]
    assert allowed(**CROSS, align="bottom_right").sum(1).tolist() == [4, 5]


@pytest.mark.parametrize("backend", ["eager", "sdpa", "flash"])
def test_case_12_the_page_switches_between_them_and_says_which_is_on(backend):
    app = visit(**CROSS, backend=backend)
    assert widgets(app)["attention.align"] == "top_left"
    assert (shown(app)[1]["main"][0] <= TOP).sum(1).tolist() == [1, 2]
    app.selectbox(key="attention.align").set_value("bottom_right")
    check(app.run())
    assert (shown(app)[1]["main"][0] <= TOP).sum(1).tolist() == [4, 5]
    assert link(app)["align"] == "bottom_right"
    # Where queries and keys are as many there is nothing to align.
    assert "attention.align" not in widgets(go(app, {}))


WINDOW = {"mask": "sliding_window", "window": "3", "length": "8", "input": "normal", "heads": "2"}


@pytest.mark.parametrize("language", LANGUAGES)
def test_case_14_the_convention_of_a_window_is_named_and_its_pairs_are_counted(language):
    """https://github.com/huggingface/transformers/issues/39408: w keys with the query's own, not w back plus self."""
    assert allowed(**WINDOW).sum(1).tolist() == [1, 2, 3, 3, 3, 3, 3, 3]
    app = visit(**WINDOW, lang=language)
    assert (shown(app)[1]["main"][0] <= TOP).sum() == 21
    text = said(app)
    assert say(language, "attention.words.more.window") in text
    assert "flash-attn" in say(language, "attention.words.more.window")
    assert plain(say(language, "attention.numbers.pairs", pairs="21", cells="64")) in plain(text)


@pytest.mark.parametrize("length", [1, 2, 9, 33])
def test_case_15_the_drawn_window_is_the_setting_at_both_ends(length):
    """https://github.com/huggingface/transformers/issues/37851: the viewer drew window 5 for every model."""
    base = {"length": str(length), "input": "normal", "heads": "1"}
    for window in {1, min(2, length), max(1, length - 1), length}:
        drawn = allowed(**base, mask="sliding_window", window=str(window))
        assert drawn.sum(1).max() == window
        assert drawn.sum(1).tolist() == [min(query + 1, window) for query in range(length)]
    np.testing.assert_array_equal(
        allowed(**base, mask="sliding_window", window=str(length)), allowed(**base, mask="causal")
    )


def test_case_15_the_slider_ends_where_the_window_is_plain_causal():
    app = visit(mask="sliding_window", length="9", window="9")
    described = component(app, "attention.window").proto
    assert '"high": 9' in described.json or '"high":9' in described.json
    assert '"value": 9' in described.json or '"value":9' in described.json
    assert (shown(app)[1]["main"][0] <= TOP).sum() == 45


@pytest.mark.parametrize("mask", MASKS)
def test_case_17_a_mask_follows_every_length(mask):
    """https://github.com/meta-pytorch/attention-gym/issues/31: the length changes while a mask is chosen."""
    for length in ("1", "5", "12", "33"):
        drawn = allowed(mask=mask, length=length)
        assert drawn.shape == (int(length), int(length))
        for backend in ("sdpa", "flash"):
            np.testing.assert_array_equal(allowed(mask=mask, length=length, backend=backend), drawn)


def test_case_17_on_the_page_too():
    app = visit(mask="sliding_window", window="8", length="20")
    for length in (20, 3, 1, 40):
        go(app, {"mask": "sliding_window", "window": "8", "length": str(length)})
        assert (shown(app)[1]["main"][0] <= TOP).sum(1).max() == min(8, length)
        assert bool(app.warning) == (length < 8)
