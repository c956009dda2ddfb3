"""Stages of one call: every block of rows is what the loops give, for every backend."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch

from attnviz import stages
from attnviz.backends import BACKENDS
from attnviz.masks import MASKS
from attnviz.stage_list import STAGES, present
from attnviz.stages import Call, fused, product, row_blocks, rows_of
from attnviz.text import LANGUAGES
from tests.reference import make_call, whole

SHAPES = ((1, 1), (7, 9), (16, 16), (33, 17))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kv_heads", [4, 2, 1])
@pytest.mark.parametrize(("q_len", "kv_len"), SHAPES)
def test_each_stage_of_a_block(q_len, kv_len, kv_heads, backend):
    mask = MASKS["sliding_window"].build(window=3)
    call = make_call(q_len, kv_len, 4, kv_heads, mask=mask, align="bottom_right", backend=backend)
    ran = fused(call)
    assert (ran is None) == (backend == "eager")
    heads, start, stop = (3, 1), q_len // 3, q_len // 3 + (q_len + 1) // 2
    rows = rows_of(call, heads, start, stop, ran)
    assert (rows.start, rows.stop) == (start, stop)
    tolerance = 1e-12 if ran is None else 1e-6  # row statistics are read in float32
    for stage in ("scores", "scaled", "weights", "output"):
        want = whole(call, stage).values[list(heads), start:stop]
        np.testing.assert_allclose(rows.stage(stage)[0].numpy(), want, rtol=0, atol=tolerance)
    np.testing.assert_array_equal(
        np.broadcast_to(rows.allowed[0].numpy(), (2, stop - start, kv_len)),
        whole(call, "masked").counts[list(heads), start:stop],
    )


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_a_row_without_a_key_is_zero_in_every_stage_behind_the_mask(backend, dtype):
    mask = MASKS["padding"].build(lengths=(0,))
    call = make_call(5, 6, mask=mask, backend=backend, dtype=getattr(torch, dtype))
    rows = rows_of(call, (0, 1, 2, 3), 0, 5, fused(call))
    assert not rows.allowed.any()
    assert rows.weights.abs().max() == 0 and rows.output.abs().max() == 0


@pytest.mark.parametrize("block", [1, 20, 63, 2**21])
def test_blocks_cover_every_row_once_and_in_order(block, monkeypatch):
    monkeypatch.setattr(stages, "BLOCK_SCORES", block)
    call = make_call(17, 5, 2, 2)
    spans = [(rows.start, rows.stop) for rows in row_blocks(call, (0, 1), (2, 15))]
    assert spans[0][0] == 2 and spans[-1][1] == 15
    assert all(end == start for (_, end), (start, _) in pairwise(spans))
    most = max(1, block // 10)
    assert all(stop - start <= most for start, stop in spans)
    assert len(spans) == -(-13 // most)


@pytest.mark.parametrize(("scale", "factor"), [(None, 8**-0.5), (1.0, 1.0), (0.0, 0.0), (0.37, 0.37)])
@pytest.mark.parametrize("backend", BACKENDS)
def test_the_scale_is_the_one_that_was_set(scale, factor, backend):
    call = make_call(6, 6, scale=scale, backend=backend)
    rows = rows_of(call, range(4), 0, 6, fused(call))
    torch.testing.assert_close(rows.scaled, rows.stage("scores") * factor, atol=1e-12, rtol=0)
    np.testing.assert_allclose(rows.weights[0].numpy(), whole(call, "weights").values, atol=1e-6)


def test_a_kv_head_serves_an_equal_run_of_query_heads():
    call = make_call(3, 4, 6, 2)
    scores = product(call.query, call.key)
    for head in range(6):
        torch.testing.assert_close(scores[0, head], call.query[0, head] @ call.key[0, head // 3].T)
    query, key, value = call.of_heads((5, 0))
    for got, tensor, index in ((query, call.query, [5, 0]), (key, call.key, [1, 0]), (value, call.value, [1, 0])):
        assert torch.equal(got, tensor[:, index])


@pytest.mark.parametrize("heads", [(3, 2, 1, 0), (1, 0, 3, 2)])
def test_all_heads_in_another_order_are_those_heads(heads):
    call = make_call(5, 5)
    rows = rows_of(call, heads, 0, 5)
    np.testing.assert_allclose(rows.weights[0].numpy(), whole(call, "weights").values[list(heads)], atol=1e-12)


@pytest.mark.parametrize("backend", ["sdpa", "flash"])
def test_scores_beyond_float16_are_no_overflow_in_a_fused_kernel_nor_in_its_picture(backend):
    call = make_call(6, 6, 2, 2, 64, torch.float16, MASKS["causal"].build(), backend=backend, scale=4.0)
    call = Call(call.query * 90, call.key * 90, call.value, call.mask, scale=4.0, backend=backend)
    ran = fused(call)
    assert ran is not None and torch.isfinite(ran.output).all() and torch.isfinite(ran.logsumexp).all()
    rows = rows_of(call, (0, 1), 0, 6, ran)
    assert rows.stage("scores").abs().max() > 65504
    for stage in ("scores", "scaled", "weights"):
        assert rows.stage(stage).isfinite().all()
    again = rows.weights @ call.value.to(torch.float32)
    torch.testing.assert_close(again, ran.output.to(torch.float32), atol=1e-2, rtol=0)


def test_dropout_keeps_its_share_and_grows_what_is_left():
    call = make_call(128, 128, 2, 2, dropout=0.3, seed=1)
    plain = rows_of(Call(call.query, call.key, call.value, call.mask), (0, 1), 0, 128).weights
    dropped = rows_of(call, (0, 1), 0, 128).weights
    kept = dropped != 0
    share = float(kept.double().mean())
    assert abs(share - 0.7) < 0.011  # four standard deviations of 32,768 draws
    torch.testing.assert_close(dropped[kept], plain[kept] / 0.7)


def test_dropout_follows_the_seed_and_tells_heads_rows_and_columns_apart():
    kept = {}
    for seed in (0, 1):
        call = make_call(64, 64, 2, 2, dropout=0.5, seed=seed)
        kept[seed] = rows_of(call, (0, 1), 0, 64).weights[0] != 0
    one = kept[0]
    for name, other in (
        ("seed", kept[1]),
        ("head", one.flip(0)),
        ("row", one.roll(1, 1)),
        ("column", one.roll(1, 2)),
        ("transposed", one.transpose(1, 2)),
    ):
        agree = float((one == other).double().mean())
        assert abs(agree - 0.5) < 0.03, name


def test_stages_are_in_the_order_of_the_computation_and_named_in_both_languages():
    plain = ["query", "key", "scores", "scaled", "masked", "weights", "value", "output"]
    assert list(present(())) == plain
    assert list(present(("waves",))) == ["waves", *plain]
    assert list(present(("turn",))) == ["query", "key", "query_turned", "key_turned", *plain[2:]]
    assert list(present(("change",))) == [*plain[:4], "change", "changed", *plain[4:]]
    for stage in STAGES.values():
        assert all(text.say(language) for text in (stage.label, stage.help) for language in LANGUAGES)
        assert stage.signed == (stage.key != "weights")


def test_the_time_of_a_fused_call_is_its_own():
    ran = fused(make_call(backend="sdpa"))
    assert ran is not None and ran.seconds > 0 and ran.kernel
    assert math.isfinite(ran.seconds)
