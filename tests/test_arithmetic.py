"""One cell's arithmetic against the loops of ``oracle`` and what is drawn; the ledger against a layer that ran."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from attnviz import view_run
from attnviz.arithmetic import cell, ledger
from attnviz.backends import BACKENDS
from attnviz.masks import MASKS
from attnviz.stages import Call, fused, rows_of
from attnviz.variants import VARIANTS
from attnviz.view import settle
from tests import oracle
from tests.reference import grid, make_call

CAUSAL, FULL = MASKS["causal"].build(), MASKS["full"].build()
CELLS = [(0, 0, 0), (1, 4, 2), (2, 6, 8), (3, 6, 0)]


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(7)


def expected(call: Call) -> oracle.Expected:
    arrays = [tensor.double().numpy() for tensor in (call.query, call.key, call.value)]
    return oracle.attention(*arrays, allowed=grid(call)[None], scale=call.factor)


@pytest.mark.parametrize("kv_heads", [4, 2, 1])
@pytest.mark.parametrize("mask", [CAUSAL, FULL], ids=["causal", "full"])
@pytest.mark.parametrize("align", ["top_left", "bottom_right"])
def test_every_step_is_what_the_loops_give(kv_heads, mask, align):
    call = make_call(kv_heads=kv_heads, mask=mask, align=align, scale=0.3)
    right, may = expected(call), grid(call)
    for head, query, key in CELLS:
        got = cell(call, head, query, key)
        assert got.kv_head == head * kv_heads // 4
        assert got.scaled == pytest.approx(right.scores[0, head, query, key], abs=1e-12)
        assert got.score * 0.3 == got.scaled
        assert got.weight == got.share == pytest.approx(right.weights[0, head, query, key], abs=1e-12)
        assert got.allowed == may[head, query, key]
        assert got.keys_seen == may[head, query].sum()
        seen = right.scores[0, head, query][may[head, query]]
        assert got.row_maximum == pytest.approx(seen.max(), abs=1e-12)
        assert right.scores[0, head, query, got.maximum_key] == pytest.approx(seen.max(), abs=1e-12)
        assert got.row_sum == pytest.approx(np.exp(seen - seen.max()).sum(), abs=1e-12)
        assert got.exponent == pytest.approx(got.weight * got.row_sum, abs=1e-12)
        assert [term.total for term in got.output] == pytest.approx(right.output[0, head, query, :4], abs=1e-12)
        assert got.value_width == 8


def test_products_are_those_of_the_two_vectors_in_their_order():
    call = make_call(width=5)
    got = cell(call, 3, 2, 1)
    q, k = call.query[0, 3, 2].tolist(), call.key[0, 1, 1].tolist()
    assert [(p.dimension, p.query, p.key, p.product) for p in got.products] == [
        (i, q[i], k[i], q[i] * k[i]) for i in range(5)
    ]
    assert math.fsum(p.product for p in got.products) == pytest.approx(got.score, abs=1e-14)


def test_the_largest_products_come_first_whatever_their_sign():
    one = torch.ones(1, 1, 1, 4, dtype=torch.float64)
    key = torch.tensor([1.0, -3.0, 3.0, -2.0], dtype=torch.float64).view(1, 1, 1, 4)
    got = cell(Call(one, key, one, FULL), 0, 0, 0)
    assert [p.dimension for p in got.largest(3)] == [1, 2, 3]
    assert [p.dimension for p in got.largest(9)] == [1, 2, 3, 0]


def test_a_key_s_term_and_the_others_make_the_output():
    call = make_call(mask=CAUSAL)
    got = cell(call, 2, 5, 3, values=3)
    assert len(got.output) == 3
    for c, term in enumerate(got.output):
        assert term.dimension == c
        assert term.value == float(call.value[0, 1, 3, c])
        assert term.term == pytest.approx(got.weight * term.value, abs=1e-15)
        assert term.term + term.others == pytest.approx(term.total, abs=1e-14)


def test_a_masked_key_has_a_score_and_no_share():
    got = cell(make_call(mask=CAUSAL), 0, 2, 5)
    assert not got.allowed
    assert got.score != 0.0
    assert (got.exponent, got.weight, got.share) == (0.0, 0.0, 0.0)
    assert all(term.term == 0.0 and term.total == term.others != 0.0 for term in got.output)
    assert got.keys_seen == 3


def test_a_row_without_a_key_is_zero_throughout():
    got = cell(make_call(q_len=9, kv_len=4, mask=CAUSAL, align="bottom_right"), 1, 0, 0)
    assert (got.keys_seen, got.row_maximum, got.maximum_key) == (0, None, None)
    assert (got.exponent, got.row_sum, got.weight) == (0.0, 0.0, 0.0)
    assert [term.total for term in got.output] == [0.0] * 4
    assert got.drawn.is_finite


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_the_steps_are_those_of_what_is_drawn(backend, dtype):
    call = make_call(dtype=dtype, mask=CAUSAL, backend=backend)
    ran = fused(call)
    eps = torch.finfo(dtype).eps
    for head, query, key in CELLS:
        got = cell(call, head, query, key, ran)
        rows = rows_of(call, (head,), query, query + 1, ran)
        assert got.drawn.scaled == float(rows.scaled[0, 0, 0, key])
        assert got.drawn.weight == float(rows.weights[0, 0, 0, key])
        assert got.drawn.output == tuple(rows.output[0, 0, 0, :4].tolist())
        assert got.weight == pytest.approx(got.drawn.weight, abs=8 * eps)
        assert [term.total for term in got.output] == pytest.approx(got.drawn.output, abs=16 * eps)


def test_scores_beyond_the_dtype_are_worked_out_and_said_to_be_drawn_otherwise():
    call = make_call(width=64, dtype=torch.float16, scale=1.0)
    large = replace(call, query=call.query * 200, key=call.key * 200)
    right = expected(large)
    row = np.abs(right.scores[0, 0]).max(-1).argmax()
    key = int(np.abs(right.scores[0, 0, row]).argmax())
    got = cell(large, 0, int(row), key)
    assert abs(got.score) > 65504
    assert got.score == pytest.approx(right.scores[0, 0, row, key], rel=1e-12)
    assert got.weight == pytest.approx(right.weights[0, 0, row, key], abs=1e-12)
    assert not math.isfinite(got.drawn.scaled)


def test_dropout_zeroes_or_grows_the_weight_as_the_picture_does():
    call = make_call(q_len=8, kv_len=8, dropout=0.5, seed=3)
    factors = set()
    for key in range(8):
        got = cell(call, 1, 4, key)
        factors.add(got.dropout_factor)
        assert got.share == got.weight * got.dropout_factor
        assert got.share == pytest.approx(got.drawn.weight, abs=1e-12)
        assert [term.total for term in got.output] == pytest.approx(got.drawn.output, abs=1e-12)
    assert factors == {0.0, 2.0}
    assert cell(replace(call, dropout=0.0), 1, 4, 0).dropout_factor is None


def test_keys_widened_part_by_part_give_the_same_row(monkeypatch):
    call = make_call(kv_len=33)
    whole = cell(call, 0, 3, 17)
    monkeypatch.setattr("attnviz.arithmetic.steps._PART_ENTRIES", 40)
    assert cell(call, 0, 3, 17).row_sum == pytest.approx(whole.row_sum, abs=1e-12)


@pytest.mark.parametrize(
    ("name", "place"), [("head", (4, 0, 0)), ("query", (0, 7, 0)), ("key", (0, 0, 9)), ("head", (-1, 0, 0))]
)
def test_a_cell_outside_the_call_is_refused_by_name(name, place):
    with pytest.raises(ValueError, match=f"^{name} must be"):
        cell(make_call(), *place)


@pytest.mark.parametrize(
    "given",
    [
        {"length": "7", "d_k": "8"},
        {"length": "7", "d_k": "8", "heads": "6", "kv_heads": "2", "dtype": "bfloat16"},
        {"length": "7", "key_length": "9", "attention": "cross", "heads": "4", "kv_heads": "1", "input": "normal"},
    ],
    ids=["self", "grouped half", "cross"],
)
def test_the_ledger_has_the_shapes_of_a_layer_that_ran(given):
    view = settle(given).view
    config, variant = view_run.make_config(view), VARIANTS[view.layer]
    tokens = torch.randn(1, view.length, view_run.WIDTH)
    context = torch.randn(1, view.key_length, view_run.WIDTH) if view.attention == "cross" else None
    weights = variant.weights(config, seed=0)
    ran = variant.attend(config, weights, tokens, context=context)
    source = tokens if context is None else context
    core = ran.core
    right = {
        "x": tokens,
        "Q": variant.project(config, weights, tokens, context=context)[0],
        "K": ran.cache["key"],
        "V": ran.cache["value"],
        r"Q K^\top": core.scores,
        "A": core.weights,
        "A V": core.output,
        "C W_O": ran.output,
        "x W_Q": tokens @ weights["query"],
        f"{'x' if context is None else 'y'} W_K": source @ weights["key"],
        f"{'x' if context is None else 'y'} W_V": source @ weights["value"],
        **({} if context is None else {"y": context}),
    }
    entries = {entry.name: entry for entry in ledger(view)}
    assert entries["C"].shape == (1, view.length, view.heads * view.d_k)
    assert {name: tuple(tensor.shape) for name, tensor in right.items()} == {
        name: entry.shape for name, entry in entries.items() if name != "C"
    }


@pytest.mark.parametrize("attention", ["self", "cross"])
def test_the_ledger_s_axes_say_what_their_sizes_are(attention):
    given = {"length": "7", "attention": attention, "heads": "6", "kv_heads": "3", "d_k": "5"}
    view = settle(given | ({"key_length": "9"} if attention == "cross" else {})).view
    keys = 9 if attention == "cross" else 7
    sizes = {"batch": 1, "length": 7, "queries": 7, "keys": keys, "width": view_run.WIDTH}
    sizes |= {"heads": 6, "kv_heads": 3, "d_k": 5}
    entries = ledger(view)
    for entry in entries:
        assert entry.shape == tuple(math.prod(sizes[name] for name in axis.split(" · ")) for axis in entry.axes)
    assert ("length" in entries[0].axes) == (attention == "self")


def test_the_ledger_of_mla_goes_through_its_latent():
    view = settle({"variant": "mla", "length": "7", "heads": "6", "d_k": "5", "latent": "11", "rope": "2"}).view
    mla, config = VARIANTS["mla"], view_run.make_config(view)
    ran = mla.attend(config, mla.weights(config, seed=0), torch.randn(1, 7, view_run.WIDTH), backend="eager")
    sizes = {"batch": 1, "length": 7, "queries": 7, "keys": 7, "width": view_run.WIDTH, "heads": 6, "kv_heads": 6}
    sizes |= {"d_k": 5, "latent": 11, "rope": 2, "plain": 3}
    entries = {entry.name: entry for entry in ledger(view)}
    for entry in entries.values():
        assert entry.shape == tuple(math.prod(sizes[name] for name in axis.split(" · ")) for axis in entry.axes)
    assert [entries[name].step for name in ("c = x W_C", "x W_R", "c W_K")] == ["latent", "rotary", "projection"]
    kept = entries["c = x W_C"].shape[2] + entries["x W_R"].shape[2]
    assert ran.cache["latent"].shape == (1, 7, kept)
    assert entries["A V"].shape == tuple(ran.core.output.shape) and entries["C W_O"].shape == tuple(ran.output.shape)


def test_the_ledger_of_a_long_view_allocates_no_scores():
    view = settle({"length": "16384", "heads": "16", "d_k": "1"}).view
    assert {entry.name: entry.shape for entry in ledger(view)}["A"] == (1, 16, 16384, 16384)
