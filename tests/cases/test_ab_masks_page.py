"""Bug reports about masks, on the page that is about masks: which keys go, what True means, what a window counts."""

import numpy as np
import pytest
import torch

from attnviz.backends import BACKENDS
from attnviz.mask_view.conventions import compare
from attnviz.mask_view.scores import query_and_key
from attnviz.mask_view.view import settle
from attnviz.masks import MASKS, dense
from attnviz.text import LANGUAGES
from pages.ui import masks_details
from pages.ui.heatmap.frame import MASKED, NO_KEY, TOP
from pages.ui.translate import counted, say
from tests.pages import check, component, go, plain, said, shown, visit, widgets


def allowed(app) -> np.ndarray:
    """Give which cells the enlarged mask colours."""
    return shown(app, "masks.main.mask")[1]["main"][0] <= TOP


@pytest.mark.parametrize("language", LANGUAGES)
def test_case_1_the_page_shows_0_nan_and_the_mean_side_by_side(language):
    """https://github.com/pytorch/pytorch/issues/103749: six queries, ten keys, the last row without a key."""
    settings = {"section": "conventions", "length": "6", "key_length": "10"}
    app = visit(language, page="masks", **settings)
    found = compare(settle({**settings, "convention": "fill"}).view)
    last = {way.key: way.weights[-1] for way in found.ways if way.weights is not None}
    assert (last["sdpa"] == 0).all() and np.isnan(last["inf"]).all()
    np.testing.assert_allclose(last["least_float32"], 1 / 10, atol=1e-7)
    text = said(app)
    assert plain(say(language, "masks.ways.fill", keys=10, least="0.1")) in plain(text)
    assert "overflow" in text  # what float16 says of -1e9


@pytest.mark.parametrize("backend", ["eager", "sdpa"])
def test_case_3_a_hidden_key_changes_nothing_until_it_is_nan(backend):
    """https://github.com/pytorch/pytorch/issues/101967: q = k = v = 0…7 as 2 × 4, key 1 masked for both queries."""
    query = torch.arange(8.0).view(1, 1, 2, 4)
    mask = MASKS["own"].build(rule="kv_idx != 1")
    attend = BACKENDS[backend].attend
    plain_output = attend(query, query, query, allowed=mask).output
    for value, check_output in ((1e10, torch.equal), (float("nan"), lambda got, _: bool(torch.isnan(got).all()))):
        changed = query.clone()
        changed[0, 0, 1] = value
        assert check_output(attend(query, query, changed, allowed=mask).output, plain_output)
    changed = query.clone()
    changed[0, 0, 1] = 1e10
    assert torch.equal(attend(query, changed, query, allowed=mask).output, plain_output)


def test_case_5_padding_hides_columns_and_rows_go_only_on_purpose():
    """https://github.com/hyunwoongko/transformer/pull/40: the padding mask stood on the query axis."""
    app = visit(page="masks", mask="padding", lengths="2", length="4")
    assert allowed(app).tolist() == [[True, True, False, False]] * 4
    codes = shown(app, "masks.main.mask")[1]["main"][0]
    assert (codes[:, 2:] == MASKED).all() and not app.warning
    go(app, {"mask": "own", "rule": "kv_idx < 2 and q_idx < 2", "length": "4"})
    codes = shown(app, "masks.main.mask")[1]["main"][0]
    assert (codes[2:] == NO_KEY).all()
    assert plain(say("en", "masks.empty_warning", rows="2")) in plain(said(app))


@pytest.mark.parametrize("side", ["left", "right"])
def test_case_7_each_sequence_of_a_batch_can_be_looked_at_and_its_padding_weighs_nothing(side):
    """https://github.com/allenai/OLMo/issues/322: mixed lengths in a batch."""
    lengths = (4, 7, 2)
    app = visit(page="masks", mask="padding", lengths="4,7,2", side=side, length="7")
    for sequence, length in enumerate(lengths):
        app.number_input(key="masks.sequence").set_value(sequence)
        check(app.run())
        real = np.arange(7) >= 7 - length if side == "left" else np.arange(7) < length
        assert (allowed(app) == real).all()
        found = compare(settle({"mask": "padding", "lengths": "4,7,2", "side": side, "length": "7", "empty": "0",
                                "sequence": str(sequence)}).view)  # fmt: skip
        for key in ("ours", "sdpa", "mha", "inf"):
            weights = found.way(key).weights
            assert weights is not None and (weights[:, ~real] == 0).all()
            np.testing.assert_allclose(weights[:, real].sum(1), 1.0, atol=1e-6)
    assert widgets(app)["masks.sequence"] == 2


@pytest.mark.parametrize("language", LANGUAGES)
def test_case_10_a_causal_mask_read_the_other_way_is_warned_of(language):
    """https://github.com/rasbt/LLMs-from-scratch/issues/1061: upper-triangle True where True means keep."""
    app = visit(language, page="masks", length="4", mask="own", rule="kv_idx > q_idx")
    assert allowed(app).sum(1).tolist() == [3, 2, 1, 0]
    assert say(language, "masks.only_future") in [warning.value for warning in app.warning]
    go(app, {"length": "4", "invert": "1"}, language)  # causal turned around: the same matrix
    assert allowed(app).sum(1).tolist() == [3, 2, 1, 0]
    assert say(language, "masks.only_future") in [warning.value for warning in app.warning]
    for harmless in ({}, {"mask": "full"}, {"mask": "own", "rule": "kv_idx != q_idx"}):
        go(app, {"length": "4", **harmless}, language)
        assert not app.warning
    # Both meanings stand beside each other, and the page says which is which.
    go(app, {"section": "conventions", "convention": "meaning", "length": "4", "mask": "own", "rule": "kv_idx > q_idx",
             "empty": "0"}, language)  # fmt: skip
    keys = [entry["key"] for entry in shown(app, "masks.ways.main.meaning")[0]["parts"]["main"]["maps"]]
    assert keys == ["keep_sdpa", "drop_mha", "turned_sdpa"]
    counts = {name: counted(language, "pair", count) for name, count in (("kept", 6), ("turned", 10))}
    assert plain(say(language, "masks.ways.meaning", **counts)) in plain(said(app))
    kept = compare(settle({"convention": "meaning", "length": "4", "mask": "own", "rule": "kv_idx > q_idx"}).view)
    assert (kept.way("keep_sdpa").weights[-1] == 0).all()  # the last row's output is 0


@pytest.mark.parametrize("language", LANGUAGES)
def test_case_11_a_float_mask_of_0_and_1_is_added_and_the_page_says_so(language):
    """https://github.com/pytorch/pytorch/issues/21518: the same matrix given as bool and as 0/1 float."""
    settings = {"section": "conventions", "convention": "floats", "length": "8", "empty": "0"}
    app = visit(language, page="masks", **settings)
    lost = compare(settle(settings).view).way("zero_one").weights
    query, key = query_and_key(8, 8, 0, 1)
    added = torch.nn.functional.scaled_dot_product_attention(
        query, key, torch.eye(8)[None, None], attn_mask=dense(MASKS["causal"].build(), 8, 8)[0, 0].float()
    )
    np.testing.assert_allclose(lost, added[0, 0].numpy(), atol=1e-6)
    share = float(np.triu(lost, 1).sum() / 8)
    assert share > 0.1
    assert f"**{share * 100:.3g}" in plain(said(app)) and "28" in said(app)


def test_case_12_both_corners_of_two_queries_over_five_keys():
    """https://github.com/pytorch/pytorch/issues/103082."""
    app = visit(page="masks", length="2", key_length="5")
    assert (allowed(app).sum(1).tolist(), widgets(app)["masks.align"]) == ([1, 2], "top_left")
    app.selectbox(key="masks.align").set_value("bottom_right")
    check(app.run())
    assert allowed(app).sum(1).tolist() == [4, 5]
    assert "masks.align" not in widgets(go(app, {"length": "5"}))


@pytest.mark.parametrize("language", LANGUAGES)
def test_case_14_both_ways_to_count_a_window_are_named_with_their_pairs(language):
    """https://github.com/huggingface/transformers/issues/39408: window 3, length 8: 21 pairs or 26."""
    app = visit(language, page="masks", section="conventions", convention="window", mask="sliding_window", window="3",
                length="8")  # fmt: skip
    counts = {name: counted(language, "pair", count) for name, count in (("pairs", 21), ("more", 26))}
    sentence = say(language, "masks.ways.window", window=3, back=counted(language, "key", 3), **counts)
    assert plain(sentence) in plain(said(app))


@pytest.mark.parametrize("language", LANGUAGES)
def test_case_20_causal_and_padding_are_two_pictures_with_a_line_each(language):
    """https://github.com/poloclub/transformer-explainer/pull/70: a learner mixes up causal and padding."""
    app = visit(language, page="masks")
    drawn = masks_details.plain_grid(language)
    assert [entry.title for entry in drawn.maps] == [
        say(language, f"masks.plain.{key}") for key in ("causal", "padding")
    ]
    causal, padding = (entry.values > 0 for entry in drawn.maps)
    assert (causal == np.tri(6, dtype=bool)).all()
    assert (padding == (np.arange(6) < 4)).all()
    tokens = drawn.maps[1].col_axis.tokens
    assert tokens is not None and tokens[4:] == ("[pad]", "[pad]") and "[pad]" not in tokens[:4]
    assert component(app, "masks.plain") is not None
    for key in ("causal", "padding"):
        line = say(language, f"masks.plain.{key}_line")
        assert line in said(app) and "\n" not in line
