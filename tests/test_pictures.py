"""Pictures: any region, pooled from blocks of any height, is what the loops in float64 give."""

import itertools
import math

import numpy as np
import pytest
import torch

from attnviz import pictures, stages
from attnviz.masks import MASKS, Mask
from attnviz.pictures import Request, draw
from attnviz.stage_list import STAGES, present
from attnviz.stages import MASKED, NO_KEY, VALUE, Call, fused
from tests.peak import peak_bytes
from tests.reference import Whole, cut, make_call, pooled, wholes

SHAPES = ((1, 1), (7, 9), (16, 16), (33, 17))
ALIGNMENTS = ("top_left", "bottom_right")
REDUCTIONS = ("max", "mean")
PLAIN = present(())


def holes() -> Mask:
    """Give a mask with a row (4), a column (2) and a corner without anything, of which a band knows nothing."""
    return Mask(lambda b, h, q, k: (q != 4) & (k != 2) & ~((q < 3) & (k < 5)))


def per_head() -> Mask:
    """Give a mask in which head h sees the first h keys: head 0 sees none."""
    return Mask(lambda b, h, q, k: (k < h) & (q == q), per_head=True)


MASK_SETTINGS = {
    "full": lambda: MASKS["full"].build(),
    "causal": lambda: MASKS["causal"].build(),
    "nothing": lambda: MASKS["padding"].build(lengths=(0,)),
    "holes": holes,
    "per_head": per_head,
}


def check(call: Call, request: Request, full: Whole, ran=None, atol=1e-6):
    """Draw one request and hold it to the whole stage."""
    picture = draw(call, [request], ran).pictures[0]
    rows = request.rows or (0, full.values.shape[1])
    cols = request.cols or (0, full.values.shape[2])
    part = cut(full, request.heads, rows, cols)
    values, state = pooled(part, picture.pool, request.reduce)
    assert picture.pool == tuple(math.ceil((b - a) / request.max_side) for a, b in (rows, cols))
    assert picture.request.rows == rows and picture.request.cols == cols
    assert picture.values.dtype == np.float32
    counts = state == VALUE
    assert picture.values.shape == values.shape
    np.testing.assert_allclose(picture.values[counts], values[counts], rtol=0, atol=atol)
    if picture.state is None:
        assert counts.all()
    else:
        np.testing.assert_array_equal(picture.state, state)
        assert picture.no_key_rows == (~part.has_key).sum(1).max()
    return picture


@pytest.mark.parametrize("mask", MASK_SETTINGS)
@pytest.mark.parametrize(("q_len", "kv_len"), SHAPES)
def test_every_stage_is_the_reference_pooled(q_len, kv_len, mask, monkeypatch):
    call = make_call(q_len, kv_len, mask=MASK_SETTINGS[mask](), align="bottom_right")
    full = wholes(call)
    for block, max_side, reduce in itertools.product((2**21, 40), (1024, 5, 1), REDUCTIONS):
        monkeypatch.setattr(stages, "BLOCK_SCORES", block)
        for stage in PLAIN:
            check(call, Request(stage, (0, 3, 1), max_side, reduce), full[stage])


@pytest.mark.parametrize("block", [2**21, 100, 1])
@pytest.mark.parametrize("seed", range(8))
def test_random_regions_of_random_calls(seed, block, monkeypatch):
    monkeypatch.setattr(stages, "BLOCK_SCORES", block)
    draw_number = np.random.default_rng(seed)

    def span(length):
        start = int(draw_number.integers(0, length))
        return start, int(draw_number.integers(start + 1, length + 1))

    q_len, kv_len = (int(n) for n in draw_number.integers(1, 40, 2))
    heads, kv_heads = ((4, 4), (4, 2), (6, 1), (3, 3))[seed % 4]
    mask = MASK_SETTINGS[list(MASK_SETTINGS)[seed % len(MASK_SETTINGS)]]()
    call = make_call(q_len, kv_len, heads, kv_heads, mask=mask, align=ALIGNMENTS[seed % 2], scale=0.3)
    full = wholes(call)
    for stage in (STAGES[key] for key in PLAIN):
        size = {"query": q_len, "key": kv_len, "feature": 8}
        chosen = tuple(int(h) for h in draw_number.permutation(heads)[: int(draw_number.integers(1, heads + 1))])
        side = int(draw_number.integers(1, 12))
        for reduce in REDUCTIONS:
            rows, cols = span(size[stage.rows]), span(size[stage.cols])
            check(call, Request(stage.key, chosen, side, reduce, rows=rows, cols=cols), full[stage.key])


@pytest.mark.parametrize("backend", ["sdpa", "flash"])
@pytest.mark.parametrize("mask", MASK_SETTINGS)
@pytest.mark.parametrize("block", [2**21, 40])
def test_a_fused_backend_is_drawn_from_its_row_statistics(backend, mask, block, monkeypatch):
    monkeypatch.setattr(stages, "BLOCK_SCORES", block)
    call = make_call(11, 9, mask=MASK_SETTINGS[mask](), backend=backend, dtype=torch.float32)
    ran = fused(call)
    assert ran is not None
    full = wholes(call)
    for stage in PLAIN:
        check(call, Request(stage, (3, 0), 4, "max"), full[stage], ran, atol=2e-6)
    # Were the statistics others, the weights would be others: they are read, not made again.
    shifted = ran._replace(logsumexp=ran.logsumexp + 1.0, output=ran.output + 1.0)
    plain, moved = (draw(call, [Request("weights", (3,))], given).pictures[0] for given in (ran, shifted))
    np.testing.assert_allclose(moved.values, plain.values * math.exp(-1), rtol=1e-5, atol=1e-7)
    plain, moved = (draw(call, [Request("output", (3,))], given).pictures[0] for given in (ran, shifted))
    with_key = plain.state == VALUE
    np.testing.assert_allclose(moved.values[with_key], plain.values[with_key] + 1.0, rtol=1e-5)


@pytest.mark.parametrize("reduce", REDUCTIONS)
@pytest.mark.parametrize("mask", MASK_SETTINGS)
@pytest.mark.parametrize("max_side", [1024, 4])
def test_an_average_is_the_mean_of_the_heads_that_count(mask, reduce, max_side):
    call = make_call(9, 11, mask=MASK_SETTINGS[mask]())
    heads = (0, 2, 3)
    full = wholes(call)
    for stage in PLAIN:
        picture = draw(call, [Request(stage, heads, max_side, reduce, average=True)]).pictures[0]
        part = cut(full[stage], heads, (0, None), (0, None))
        counts, has_key = part.counts.any(0)[None], part.has_key.any(0)[None]
        if stage == "masked":
            number = np.maximum(part.counts.sum(0), 1)
            mean = (np.where(part.counts, part.values, 0).sum(0) / number)[None]
        else:
            mean = part.values.mean(0)[None]
        values, state = pooled(Whole(mean, counts, has_key), picture.pool, reduce)
        shown = state == VALUE
        assert picture.values.shape == values.shape
        np.testing.assert_allclose(picture.values[shown], values[shown], rtol=0, atol=1e-6)
        np.testing.assert_array_equal(np.zeros_like(state) if picture.state is None else picture.state, state)


def test_an_average_of_weights_is_not_one_head():
    call = make_call(6, 6, mask=MASKS["causal"].build())
    average = draw(call, [Request("weights", (0, 1, 2, 3), average=True)]).pictures[0].values
    each = draw(call, [Request("weights", (0, 1, 2, 3))]).pictures[0].values
    np.testing.assert_allclose(average[0], each.mean(0), atol=1e-7)
    assert average.shape == (1, 6, 6)
    assert np.abs(each - average).max() > 0.05


def test_several_pictures_come_from_one_pass(monkeypatch):
    monkeypatch.setattr(stages, "BLOCK_SCORES", 60)
    call = make_call(20, 10, mask=holes())
    asked = [
        Request("weights", (0, 1), rows=(0, 5)),
        Request("scores", (2,), 3, "mean"),
        Request("value", (3,)),
        Request("output", (3, 0), rows=(18, 20)),
    ]
    together = draw(call, asked)
    assert together.blocks == 20  # four heads × ten keys leave room for one row of 60 scores
    for request, picture in zip(asked, together.pictures, strict=True):
        alone = draw(call, [request]).pictures[0]
        np.testing.assert_allclose(picture.values, alone.values, rtol=0, atol=1e-6)
        np.testing.assert_array_equal(picture.state, alone.state)


def test_rows_outside_every_region_are_not_computed():
    call = make_call(20, 10)
    before = draw(call, [Request("weights", (0,), rows=(3, 9))])
    poisoned = call.query.clone()
    poisoned[:, :, :3], poisoned[:, :, 9:] = math.nan, math.nan
    after = draw(Call(poisoned, call.key, call.value, call.mask), [Request("weights", (0,), rows=(3, 9))])
    np.testing.assert_array_equal(before.pictures[0].values, after.pictures[0].values)


def test_projections_alone_compute_no_attention():
    drawn = draw(make_call(5, 5), [Request(stage, (0, 3)) for stage in ("query", "key", "value")])
    assert drawn.blocks == 0 and drawn.seconds == 0.0


@pytest.mark.parametrize("block", [2**21, 24, 1])
@pytest.mark.parametrize("backend", ["eager", "sdpa", "flash"])
def test_dropout_keeps_the_same_weights_in_blocks_of_any_size(block, backend, monkeypatch):
    call = make_call(12, 8, mask=holes(), dropout=0.4, seed=5, backend=backend, dtype=torch.float32)
    asked = [Request("weights", (0, 1, 2, 3)), Request("output", (0, 1, 2, 3))]
    want = draw(call, asked, fused(call)).pictures
    monkeypatch.setattr(stages, "BLOCK_SCORES", block)
    got = draw(call, asked, fused(call)).pictures
    for one, other in zip(want, got, strict=True):
        np.testing.assert_allclose(one.values, other.values, atol=1e-6)
    alone = draw(call, [Request("weights", (2,), rows=(5, 9))], fused(call)).pictures[0]
    np.testing.assert_allclose(alone.values[0], want[0].values[2, 5:9], atol=1e-6)
    # Output is the dropped weights times V, not the one without dropout.
    value = np.repeat(call.value[0].numpy(), 2, axis=0)
    np.testing.assert_allclose(got[1].values, got[0].values @ value, atol=1e-5)


def test_overflowing_rows_are_nan_and_only_they(monkeypatch):
    monkeypatch.setattr(stages, "BLOCK_SCORES", 30)
    call = make_call(6, 5, dtype=torch.float16, mask=MASKS["causal"].build())
    query = call.query.clone()
    query[:, :, 3] = 60000.0
    call = Call(query, call.key.abs(), call.value, call.mask)
    picture = draw(call, [Request("weights", (0,))]).pictures[0]
    assert np.isnan(picture.values[0, 3][picture.state[0, 3] == VALUE]).all()
    assert np.isfinite(picture.values[0, [0, 1, 2, 4, 5]]).all()


@pytest.mark.parametrize("stage", ["scores", "masked", "weights", "output"])
@pytest.mark.parametrize("backend", ["eager", "sdpa"])
def test_a_long_map_takes_blocks_and_a_picture_only(stage, backend, monkeypatch):
    monkeypatch.setattr(stages, "BLOCK_SCORES", 2**15)
    length = 2048
    call = make_call(length, length, 1, 1, 8, torch.float32, MASKS["causal"].build(), backend=backend)
    ran = fused(call)
    request = Request(stage, (0,), 128, "max")
    # Eight stages and temporaries of a block, and the pictures: far below 4 · L² = 16 MiB.
    assert peak_bytes(lambda: draw(call, [request], ran)) < 2**15 * 4 * 10 + 2**20


def test_a_region_is_exact_where_the_whole_is_pooled():
    call = make_call(100, 120, 1, 1, 4, mask=MASKS["causal"].build())
    assert draw(call, [Request("weights", (0,), 40)]).pictures[0].pool == (3, 3)
    picture = check(call, Request("weights", (0,), 40, rows=(60, 90), cols=(70, 100)), wholes(call)["weights"])
    assert picture.pool == (1, 1)
    assert picture.state is not None and (picture.state[0, 0] == MASKED).any() and not (picture.state == NO_KEY).any()


def test_the_side_of_a_screen_is_where_pooling_begins():
    for length, factor in ((1024, 1), (1025, 2), (2048, 2), (2049, 3)):
        call = make_call(1, length, 1, 1, 2)
        assert draw(call, [Request("weights", (0,))]).pictures[0].pool == (1, factor)
    assert pictures.MAX_SIDE == 1024
