"""Score changes: each against its published formula, and any region against the whole."""

import math

import pytest
import torch
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.t5.modeling_t5 import T5Attention

from attnviz.backends import BACKENDS
from attnviz.masks import MASKS
from attnviz.score_mods import SCORE_MODS, alibi_slopes, t5_bucket
from attnviz.text import Refusal


@pytest.mark.parametrize("heads", [1, 2, 3, 8, 12, 16, 40])
def test_alibi_slopes_are_those_of_bloom(heads):
    length = 5
    theirs = build_alibi_tensor(torch.ones(1, length), heads, torch.float32)[:, 0, -1] / (length - 1)
    torch.testing.assert_close(alibi_slopes(heads), theirs, rtol=1e-6, atol=0)


def test_alibi_takes_slope_times_distance_off():
    bias = SCORE_MODS["alibi"].build().terms(2, 3, 3).bias
    distance = torch.tensor([[0, 1, 2], [1, 0, 1], [2, 1, 0]], dtype=torch.float32)
    torch.testing.assert_close(bias, torch.stack((-distance / 16, -distance / 256))[None])


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("buckets", "max_distance"), [(32, 128), (8, 20), (64, 1000)])
def test_buckets_are_those_of_t5(bidirectional, buckets, max_distance):
    distance = torch.arange(-1100, 1101)
    got = t5_bucket(distance, buckets=buckets, max_distance=max_distance, bidirectional=bidirectional)
    want = T5Attention._relative_position_bucket(distance, bidirectional, buckets, max_distance)
    assert torch.equal(got, want)


@pytest.mark.parametrize("bidirectional", [True, False])
def test_every_size_of_table_stays_inside_it(bidirectional):
    distance = torch.arange(-50, 51)
    for buckets in (2, 3, 5, 32, 128):
        for max_distance in (1, 2, 16, 4096):
            got = t5_bucket(distance, buckets=buckets, max_distance=max_distance, bidirectional=bidirectional)
            assert got.min() >= 0 and got.max() < buckets


def test_t5_bias_is_one_number_per_bucket_and_head():
    mod = SCORE_MODS["t5_bias"].build(seed=4)
    bias = mod.terms(3, 40, 40).bias
    assert bias.shape == (1, 3, 40, 40)
    assert torch.equal(bias[..., 1:, 1:], bias[..., :-1, :-1])
    assert len(bias[0, 0].unique()) == 13 + 12
    assert torch.equal(mod.terms(5, 40, 40).bias[:, :3], bias)
    assert not torch.equal(bias[:, 0], bias[:, 1])
    assert not torch.equal(SCORE_MODS["t5_bias"].build(seed=5).terms(3, 40, 40).bias, bias)
    ahead = SCORE_MODS["t5_bias"].build(bidirectional=False).terms(1, 9, 9).bias[0, 0].triu()
    assert len(ahead[ahead != 0].unique()) == 1


@pytest.mark.parametrize("align", ["top_left", "bottom_right"])
@pytest.mark.parametrize("key", SCORE_MODS)
def test_a_region_is_cut_from_the_whole(key, align):
    mod = SCORE_MODS[key].build()
    whole = mod.terms(4, 7, 19, align=align)
    region = mod.terms(4, 7, 19, align=align, rows=(2, 5), cols=(3, 11))
    assert region[1:] == whole[1:]
    if whole.bias is not None:
        assert torch.equal(region.bias, whole.bias[:, :, 2:5, 3:11])
        assert mod.terms(4, 7, 19, dtype=torch.float64).bias.dtype == torch.float64


def test_bottom_right_puts_the_last_query_at_the_last_key():
    bias = SCORE_MODS["alibi"].build().terms(1, 2, 5, align="bottom_right").bias[0, 0]
    assert bias.eq(0).nonzero().tolist() == [[0, 3], [1, 4]]
    assert SCORE_MODS["alibi"].build().terms(1, 2, 5).bias[0, 0].eq(0).nonzero().tolist() == [[0, 0], [1, 1]]


def test_softcap_and_temperature_in_a_call():
    query, key, value = (torch.randn(1, 2, 5, 8, dtype=torch.float64) * 5 for _ in range(3))
    product = query @ key.mT / math.sqrt(8)
    for name, settings, want in (
        ("softcap", {"cap": 3.0}, 3 * torch.tanh(product / 3)),
        ("temperature", {"temperature": 4.0}, product / 4),
        ("none", {}, product),
    ):
        bias, softcap, factor = SCORE_MODS[name].build(**settings).terms(2, 5, 5)
        core = BACKENDS["eager"].attend(query, key, value, bias=bias, softcap=softcap, scale=factor / math.sqrt(8))
        torch.testing.assert_close(core.scores, want, rtol=0, atol=1e-12)


@pytest.mark.parametrize("key", ["alibi", "softcap"])
def test_a_mask_hides_keys_under_any_change(key):
    query, key_, value = (torch.randn(1, 2, 6, 4) * 30 for _ in range(3))
    bias, softcap, _ = SCORE_MODS[key].build().terms(2, 6, 6)
    core = BACKENDS["eager"].attend(query, key_, value, allowed=MASKS["causal"].build(), bias=bias, softcap=softcap)
    assert not core.weights.triu(1).any()
    torch.testing.assert_close(core.weights.sum(-1), torch.ones(1, 2, 6))


def test_misuse_is_named():
    with pytest.raises(Refusal, match="align must be one of top_left, bottom_right, got 'middle'"):
        SCORE_MODS["alibi"].build().terms(1, 2, 2, align="middle")
    with pytest.raises(Refusal, match=r"cap must be a number from 0\.1 to 1000, got '0'"):
        SCORE_MODS["softcap"].build(cap=0)
    with pytest.raises(ValueError, match="alibi has no setting slope"):
        SCORE_MODS["alibi"].build(slope=1)
