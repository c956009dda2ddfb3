"""Mistakes: each against plain torch written here, its tell-tale sign, its arithmetic, and its label on the page."""

import numpy as np
import pytest
import torch

from attnviz.arithmetic import cell
from attnviz.census import compare, row_detail
from attnviz.masks import MASKS
from attnviz.mistakes import MISTAKES
from attnviz.stages import fused, prepared, row_blocks, rows_of
from attnviz.text import LANGUAGES
from attnviz.view import settle
from attnviz.view_run import run
from pages.ui.attention_details import code
from pages.ui.attention_picture import frame
from pages.ui.heatmap.frame import unpack
from pages.ui.translate import say
from tests.pages import go, link, plain, said, visit, widgets
from tests.reference import grid, make_call

WRONG = [key for key in MISTAKES if key != "none"]


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(5)


def by_hand(call, key: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Give weights and output of the mistake, with nothing of attnviz."""
    group = call.heads // call.key.shape[1]
    keys, values = (tensor.repeat_interleave(group, 1) for tensor in (call.key, call.value))
    scores, may = call.query @ keys.mT, torch.from_numpy(grid(call).copy())[None]
    scores = (scores * call.factor if key == "wrong_axis" else scores).masked_fill(~may, -torch.inf)
    weights = torch.nan_to_num(torch.softmax(scores, -2 if key == "wrong_axis" else -1))
    weights = weights * call.factor if key == "late_scale" else weights
    return weights, weights @ values


@pytest.mark.parametrize("key", WRONG)
@pytest.mark.parametrize("mask", ["full", "causal", "padding"])
@pytest.mark.parametrize("block", [2**21, 40])
@pytest.mark.parametrize(("q_len", "kv_len"), [(1, 1), (7, 9), (17, 6)])
def test_each_is_what_plain_torch_gives(key, mask, block, q_len, kv_len, monkeypatch):
    monkeypatch.setattr("attnviz.stages.BLOCK_SCORES", block)
    rule = MASKS[mask].build(**({"lengths": (4,)} if mask == "padding" else {}))
    call = prepared(make_call(q_len, kv_len, 4, 2, mask=rule, align="bottom_right", mistake=MISTAKES[key]))
    weights, output = by_hand(call, key)
    rows = list(row_blocks(call, range(4), (0, q_len)))
    torch.testing.assert_close(torch.cat([part.weights for part in rows], 2), weights, rtol=0, atol=1e-12)
    torch.testing.assert_close(torch.cat([part.output for part in rows], 2), output, rtol=0, atol=1e-12)
    some = rows_of(call, (3, 1), 0, q_len)
    torch.testing.assert_close(some.weights, weights[:, [3, 1]], rtol=0, atol=1e-12)
    # The scale is missing from the scaled stage where it is missing from the computation.
    factor = call.factor if key == "wrong_axis" else 1.0
    torch.testing.assert_close(some.stage("scaled"), some.stage("scores") * factor)


@pytest.mark.parametrize("block", [2**21, 60])
@pytest.mark.parametrize("key", WRONG)
def test_the_comparison_is_that_of_the_whole(key, block, monkeypatch):
    monkeypatch.setattr("attnviz.stages.BLOCK_SCORES", block)
    call = prepared(make_call(9, 7, 4, 2, mask=MASKS["causal"].build(), mistake=MISTAKES[key]))
    got = compare(call)
    weights, output = by_hand(call, key)
    right = rows_of(make_call_like(call), range(4), 0, 9)
    for sums, matrix in ((got.mistaken, weights), (got.right, right.weights)):
        assert sums.row_sums == pytest.approx((float(matrix.sum(-1).min()), float(matrix.sum(-1).max())), abs=1e-12)
        assert sums.column_sums == pytest.approx((float(matrix.sum(-2).min()), float(matrix.sum(-2).max())), abs=1e-12)
    assert got.difference == pytest.approx(float((output - right.output).abs().max()), abs=1e-12)
    cosine = torch.nn.functional.cosine_similarity(output.flatten(), right.output.flatten(), 0)
    assert got.cosine == pytest.approx(float(cosine), abs=1e-12)
    assert got.cosine < 0.9999


def make_call_like(call):
    """Give the call without its mistake."""
    return type(call)(call.query, call.key, call.value, call.mask, align=call.align, scale=call.scale)


def test_sums_leave_out_rows_and_columns_that_nothing_is_in():
    call = prepared(make_call(4, 6, 2, 2, mask=MASKS["padding"].build(lengths=(3,)), mistake=MISTAKES["wrong_axis"]))
    got = compare(call)
    assert got.mistaken.column_sums == pytest.approx((1.0, 1.0)) and got.right.row_sums == pytest.approx((1.0, 1.0))
    nothing = compare(prepared(make_call(mask=MASKS["padding"].build(lengths=(0,)), mistake=MISTAKES["no_scale"])))
    assert nothing.right.row_sums is None and nothing.mistaken.column_sums is None and np.isnan(nothing.cosine)


@pytest.mark.parametrize("key", WRONG)
@pytest.mark.parametrize("more", [{}, {"score_mod": "alibi", "dropout": "0.3"}, {"mask": "random_block"}])
def test_the_arithmetic_is_that_of_the_mistake(key, more):
    call, ran = run(settle({"mistake": key, "d_k": "8", "heads": "4", "kv_heads": "2"} | more).view)
    for head, query, target in ((0, 5, 2), (3, 11, 11), (1, 3, 8)):
        got = cell(call, head, query, target, ran)
        assert got.share == pytest.approx(got.drawn.weight, abs=2e-6)
        assert [term.total for term in got.output] == pytest.approx(list(got.drawn.output), abs=1e-5)
        assert got.final == pytest.approx(got.drawn.scaled, abs=1e-5)
        if got.allowed:
            assert got.weight == pytest.approx(got.exponent / got.row_sum, abs=1e-6)
        assert got.by_column == (key == "wrong_axis") and (got.late_factor is None) == (key != "late_scale")


@pytest.mark.parametrize("backend", ["sdpa", "flash"])
@pytest.mark.parametrize("key", WRONG)
def test_a_fused_backend_gives_way_and_the_page_says_so(key, backend):
    settled = settle({"mistake": key, "backend": backend})
    assert settled.view.backend == "eager"
    assert f"backend {backend} has no place for a mistake" in settled.notes[0].en
    assert not settle({"backend": backend, "mistake": "none"}).notes
    # By itself, too, a call with a mistake is never handed to a fused kernel.
    assert fused(prepared(make_call(backend=backend, mistake=MISTAKES[key]))) is None


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("key", WRONG)
def test_the_page_and_the_live_picture_say_that_it_is_on(key, language):
    app = visit(mistake=key, lang=language)
    mistake = MISTAKES[key]
    (banner,) = app.error
    for text in (mistake.label, mistake.help, mistake.sign):
        assert text.say(language) in plain(banner.value)
    cosine = say(language, "attention.mistake.cosine", here="§").split("§")[0]
    assert cosine in said(app)
    assert mistake.comment in code(settle({"mistake": key}).view)
    header, _ = unpack(frame({"mistake": key, "lang": language}))
    caption = header["parts"]["main"]["caption"]
    assert say(language, "attention.mistake.tag", name=mistake.label) in caption
    assert widgets(app)["attention.mistake"] == key and link(app) == {"mistake": key}
    go(app, {})
    assert not app.error and cosine not in said(app)


@pytest.mark.parametrize("mistake", ["wrong_axis", "late_scale"])
def test_the_spread_of_a_row_is_that_of_its_shares(mistake):
    call, _ = run(settle({"mistake": mistake}).view)
    detail = row_detail(call, 1, 5)
    assert abs(detail.total - 1) > 0.01
    shares = detail.weights.numpy() / detail.weights.numpy().sum()
    seen = shares[shares > 0]
    assert detail.entropy == pytest.approx(-(seen * np.log(seen)).sum(), abs=1e-12)
    if mistake == "late_scale":
        right, _ = run(settle({"mistake": "no_scale"}).view)
        assert detail.effective_keys == pytest.approx(row_detail(right, 1, 5).effective_keys, rel=1e-5)
