"""Streamed maps: what is drawn is what the eager backend computed, pooled, and no L × L array ever lives."""

import math

import numpy as np
import pytest
import torch

from attnviz.backends import BACKENDS
from attnviz.maps import MASKED, NO_KEY, STAGES, VALUE, attention_map, rows, stage_map
from attnviz.masks import MASKS, dense
from attnviz.score_mods import SCORE_MODS
from attnviz.text import Refusal
from tests.peak import peak_bytes

SHAPES = ((1, 1), (7, 9), (16, 16), (33, 17))


def draw(q_len, kv_len, heads=4, kv_heads=2, dtype=torch.float64):
    query = torch.randn(2, heads, q_len, 8, dtype=dtype)
    return query, torch.randn(2, kv_heads, kv_len, 8, dtype=dtype)


def reference(stage, query, key, allowed=None, align="top_left", mod=None):
    """Give the whole stage of every head of sequence 0, and which cells count."""
    value = torch.zeros_like(key)
    shape = (query.shape[1], query.shape[2], key.shape[2])
    bias, softcap, factor = SCORE_MODS[mod or "none"].build().terms(*shape, align=align, dtype=query.dtype)
    scale = {"scores": 1.0}.get(stage, query.shape[3] ** -0.5 * factor)
    if stage == "scores":
        bias = softcap = None
    core = BACKENDS["eager"].attend(
        query, key, value, allowed=allowed, align=align, bias=bias, softcap=softcap, scale=scale
    )
    cells = (core.weights if stage == "weights" else core.scores)[0].numpy()
    if allowed is None or stage in ("scores", "scaled"):
        return cells, np.ones(cells.shape, dtype=bool)
    grid = dense(allowed, shape[1], shape[2], align=align, batch=2, heads=shape[0])[0].numpy()
    return cells, np.broadcast_to(grid, cells.shape)


def pooled(cells, counts, has_key, pool, reduce):
    """Pool cell by cell."""
    heads, height, width = cells.shape
    shape = (heads, math.ceil(height / pool[0]), math.ceil(width / pool[1]))
    values, state = np.zeros(shape), np.zeros(shape, dtype=np.uint8)
    for h, r, c in np.ndindex(*shape):
        tall = slice(r * pool[0], (r + 1) * pool[0])
        wide = slice(c * pool[1], (c + 1) * pool[1])
        seen = cells[h, tall, wide][counts[h, tall, wide]]
        if len(seen):
            values[h, r, c] = seen.max() if reduce == "max" else seen.mean()
        else:
            state[h, r, c] = MASKED if has_key[h, tall].any() else NO_KEY
    return values, state


@pytest.mark.parametrize("reduce", ["max", "mean"])
@pytest.mark.parametrize("max_side", [1024, 5, 1])
@pytest.mark.parametrize("cells", [2**21, 40])
@pytest.mark.parametrize("mask", [None, "causal", "padding"])
@pytest.mark.parametrize(("q_len", "kv_len"), SHAPES)
def test_every_stage_is_eager_pooled(q_len, kv_len, mask, cells, max_side, reduce, monkeypatch):
    monkeypatch.setattr(rows, "BLOCK_CELLS", cells)
    query, key = draw(q_len, kv_len)
    knobs = {"lengths": (max(1, kv_len // 2), kv_len)} if mask == "padding" else {}
    allowed = None if mask is None else MASKS[mask].build(**knobs)
    for stage in STAGES:
        got = stage_map(
            stage, query, key, heads=(0, 3), allowed=allowed, align="bottom_right", max_side=max_side, reduce=reduce
        )
        whole, counts = reference(stage, query, key, allowed, "bottom_right")
        values, state = pooled(whole[[0, 3]], counts[[0, 3]], counts[[0, 3]].any(-1), got.pool, reduce)
        assert got.pool == (math.ceil(q_len / max_side), math.ceil(kv_len / max_side))
        np.testing.assert_allclose(got.values, values, rtol=0, atol=1e-6)
        assert got.values.dtype == np.float32
        if got.state is None:
            assert not state.any() and (allowed is None or stage in ("scores", "scaled"))
        else:
            np.testing.assert_array_equal(got.state, state)


@pytest.mark.parametrize("mod", SCORE_MODS)
@pytest.mark.parametrize("stage", STAGES)
def test_a_region_is_cut_from_the_whole(stage, mod):
    query, key = draw(33, 17)
    causal = MASKS["causal"].build()
    whole, counts = reference(stage, query, key, causal, mod=mod)
    got = stage_map(
        stage,
        query,
        key,
        heads=(2,),
        allowed=causal,
        score_mod=SCORE_MODS[mod].build(),
        rows=(3, 21),
        cols=(5, 16),
    )
    assert got.pool == (1, 1)
    cells = np.where(counts, whole, 0.0)[[2], 3:21, 5:16]
    np.testing.assert_allclose(got.values, cells, rtol=0, atol=1e-6)
    if got.state is not None:
        # Row 3 sees keys 0 to 3, none of them in the region: masked there, not a row without a key.
        np.testing.assert_array_equal(got.state, np.where(counts[[2], 3:21, 5:16], VALUE, MASKED))


@pytest.mark.parametrize("mod", ["none", "alibi"])
@pytest.mark.parametrize("cells", [2**21, 40])
def test_weights_from_the_row_statistics_of_a_fused_backend(cells, mod, monkeypatch):
    monkeypatch.setattr(rows, "BLOCK_CELLS", cells)
    query, key = draw(9, 12)
    allowed = dense(MASKS["causal"].build(), 9, 12).clone()
    allowed[..., 4, :] = False
    terms = SCORE_MODS[mod].build().terms(4, 9, 12, dtype=torch.float64)
    lse = BACKENDS["sdpa"].attend(query, key, torch.zeros_like(key), allowed=allowed, bias=terms.bias).logsumexp
    setting = {"heads": range(4), "allowed": allowed, "score_mod": SCORE_MODS[mod].build(), "cols": (0, 7)}
    want = stage_map("weights", query, key, **setting)
    # With other statistics the weights are others: they are read, not made again.
    for shift in (0.0, 1.0):
        got = stage_map("weights", query, key, logsumexp=lse + shift, **setting)
        np.testing.assert_allclose(got.values, want.values * math.exp(-shift), rtol=0, atol=1e-6)
        np.testing.assert_array_equal(got.state, want.state)
    assert (want.state[:, 4] == NO_KEY).all()


def test_the_first_sequence_is_drawn_and_any_other_on_request():
    query, key = draw(6, 6)
    padding = MASKS["padding"].build(lengths=(2, 5))
    for batch in (0, 1):
        one = stage_map("masked", query, key, heads=(1,), batch=batch, allowed=padding)
        assert (one.state == VALUE).sum() == 6 * (2, 5)[batch]
        want = query[batch, 1] @ key[batch, 0].mT * 8**-0.5
        np.testing.assert_allclose(one.values, np.where(one.state == VALUE, want, 0), rtol=0, atol=1e-6)


def test_each_head_has_its_own_map():
    query, key = draw(5, 5)
    together = stage_map("weights", query, key, heads=(3, 0, 1))
    for place, head in enumerate((3, 0, 1)):
        alone, _ = attention_map(query, key, head=head)
        np.testing.assert_array_equal(together.values[place], alone)
    assert np.abs(together.values[0] - together.values[1]).max() > 0.01


def test_a_mask_per_head_is_cut_to_the_heads():
    query, key = draw(4, 4)
    allowed = torch.zeros(1, 4, 4, 4, dtype=torch.bool)
    for head in range(4):
        allowed[0, head, :, : head + 1] = True
    for heads in ((2, 0), (3, 0, 1, 2), (1, 1)):
        drawn = stage_map("weights", query, key, heads=heads, allowed=allowed)
        assert (drawn.state == VALUE).sum((1, 2)).tolist() == [4 * head + 4 for head in heads]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_attention_map_is_eager_in_every_dtype(dtype):
    query, key = draw(12, 20, dtype=dtype)
    causal = MASKS["causal"].build()
    got, pool = attention_map(query, key, head=3, allowed=causal, align="bottom_right", scale=0.5)
    want = BACKENDS["eager"].attend(query, key, key, allowed=causal, align="bottom_right", scale=0.5).weights[0, 3]
    assert got.shape == (12, 20) and pool == (1, 1) and got.dtype == np.float32
    np.testing.assert_allclose(got, want.float().numpy(), rtol=0, atol=4 * torch.finfo(dtype).eps)


def test_large_logits_and_masked_outliers_draw_no_nan():
    query, key = draw(6, 6, dtype=torch.float32)
    key[0, :, 5] = 1e30
    for stage in ("masked", "weights"):
        for reduce in ("max", "mean"):
            drawn = stage_map(
                stage, query * 1e4, key, allowed=MASKS["causal"].build(), rows=(0, 5), max_side=3, reduce=reduce
            )
            assert np.isfinite(drawn.values).all()


@pytest.mark.parametrize("reduce", ["max", "mean"])
@pytest.mark.parametrize("stage", STAGES)
def test_memory_is_of_a_block_not_of_the_whole(stage, reduce):
    length = 6144
    query, key = (torch.randn(1, 1, length, 16) for _ in range(2))
    peak = peak_bytes(
        lambda: stage_map(stage, query, key, allowed=MASKS["causal"].build(), max_side=256, reduce=reduce)
    )
    assert 0 < peak <= 5 * 4 * rows.BLOCK_CELLS
    assert peak < 4 * length * length / 3


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"head": 4}, "head must be from 0 to 3, got 4"),
        ({"head": -1}, "head must be from 0 to 3, got -1"),
        ({"rows": (2, 2)}, r"rows must be a start and a later stop within 0 to 5, got \(2, 2\)"),
        ({"cols": (0, 8)}, r"cols must be a start and a later stop within 0 to 7, got \(0, 8\)"),
        ({"max_side": 0}, "max_side must be at least 1, got 0"),
        ({"reduce": "sum"}, "reduce must be one of max, mean, got 'sum'"),
        ({"align": "middle"}, "align must be one of top_left, bottom_right"),
    ],
)
def test_misuse_is_named(setting, words):
    query, key = draw(5, 7)
    with pytest.raises(ValueError, match=words):
        attention_map(query, key, allowed=MASKS["causal"].build(), **setting)


def test_unknown_stages_and_no_heads_are_named():
    query, key = draw(5, 7)
    with pytest.raises(Refusal, match="stage must be one of scores, scaled, masked, weights, got 'softmax'"):
        stage_map("softmax", query, key)
    with pytest.raises(Refusal, match="heads must be at least one head"):
        stage_map("weights", query, key, heads=())
    with pytest.raises(Refusal, match="batch must be from 0 to 1, got 2"):
        stage_map("weights", query, key, batch=2)
    with pytest.raises(Refusal, match=r"query must be a tensor with axes .*, got \[4, 5, 8\]"):
        stage_map("weights", query[0], key)
    with pytest.raises(Refusal, match=r"allowed must be a Mask or a boolean tensor .* got torch.float32"):
        stage_map("masked", query, key, allowed=torch.zeros(5, 7))
    with pytest.raises(Refusal, match="kv_heads must divide heads = 3, got 2"):
        stage_map("weights", query[:, :3], key)
