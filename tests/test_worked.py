"""The worked example: numbers small enough to check by hand, checked here by hand."""

import math
import runpy

import pytest
import torch

from attnviz.arithmetic import cell, ledger
from attnviz.inputs import small_integers
from attnviz.view import settle
from attnviz.view_run import make_call
from pages.ui.attention_details import code


def test_every_step_of_a_cell_worked_out_by_hand():
    # q1 = (2, 0, 0, −1), k0 = (2, 0, 2, −1), k1 = (1, −1, 0, 0), v0 = (0, 1, 0, 1), v1 = (−1, −1, 2, 0)
    got = cell(make_call(settle({"input": "worked"}).view), 0, 1, 1)
    assert [p.product for p in got.products] == [2, 0, 0, 0]
    assert (got.score, got.scale, got.scaled) == (2, 0.5, 1)
    assert (got.keys_seen, got.maximum_key, got.row_maximum) == (2, 0, 2.5)  # q1 · k0 = 5
    assert got.exponent == pytest.approx(math.exp(-1.5))
    assert got.row_sum == pytest.approx(1 + math.exp(-1.5))
    w = 1 / (1 + math.exp(1.5))
    assert got.weight == pytest.approx(w)
    assert [o.total for o in got.output] == pytest.approx([-w, (1 - w) - w, 2 * w, 1 - w])


def test_it_starts_small_and_takes_every_other_setting():
    plain = settle({"input": "worked"})
    view = plain.view
    assert (view.length, view.key_length, view.d_k, view.heads, view.kv_heads) == (4, 4, 4, 1, 1)
    assert plain.link() == {"input": "worked"}
    assert view.tokens() is None
    large = settle({"input": "worked", "attention": "cross", "key_length": "9", "heads": "4", "kv_heads": "2"}).view
    call = make_call(large)
    assert call.query.shape == (1, 4, 4, 4)
    assert call.key.shape == call.value.shape == (1, 2, 9, 4)
    assert settle({}).view.d_k == 64  # other inputs keep their own sizes


def test_numbers_are_whole_small_and_all_of_them_occur():
    drawn = small_integers((3, 40, 20), 5, 1)
    assert drawn.shape == (1, 3, 40, 20)
    assert drawn.dtype == torch.float32
    assert set(drawn.unique().tolist()) == {-1.0, 0.0, 1.0, 2.0}
    counts = [int((drawn == number).sum()) for number in (-1, 0, 1, 2)]
    assert min(counts) > 500  # 600 expected of each


def test_a_larger_shape_keeps_the_numbers_and_each_stream_and_seed_has_its_own():
    assert torch.equal(small_integers((3, 9, 8), 2, 0)[:, :2, :5, :4], small_integers((2, 5, 4), 2, 0))
    drawn = [small_integers((1, 8, 8), seed, stream) for seed in range(3) for stream in range(3)]
    assert not any(torch.equal(a, b) for i, a in enumerate(drawn) for b in drawn[:i])
    assert not torch.equal(*small_integers((2, 8, 8), 0, 0)[0])


@pytest.mark.parametrize(
    "given", [{}, {"dtype": "bfloat16", "heads": "4", "kv_heads": "2", "attention": "cross", "key_length": "6"}]
)
def test_the_snippet_makes_the_same_numbers(given, tmp_path):
    view = settle({"input": "worked", "seed": "3"} | given).view
    path = tmp_path / "view.py"
    path.write_text(code(view), encoding="utf-8")
    ran, call = runpy.run_path(str(path)), make_call(view)
    assert torch.equal(ran["q"], call.query)
    assert ran["q"].dtype == call.query.dtype
    group = view.heads // view.kv_heads
    for name, tensor in (("k", call.key), ("v", call.value)):
        assert torch.equal(ran[name], tensor.repeat_interleave(group, dim=1))


def test_the_ledger_lists_no_projection_that_did_not_run():
    entries = ledger(settle({"input": "worked"}).view)
    assert [entry.step for entry in entries] == ["split"] * 3 + ["scores", "weights", "mix", "merge"]
    assert entries[0].shape == (1, 1, 4, 4)
