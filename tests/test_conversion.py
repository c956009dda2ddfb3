"""Conversion to fewer KV heads: what is merged, and what it costs."""

import pytest
import torch

from attnviz.conversion import METHODS, conversion_error, convert
from attnviz.masks import MASKS
from attnviz.positions import POSITIONS
from attnviz.text import Refusal
from attnviz.variants import VARIANTS

MHA = VARIANTS["mha"]
CONFIG = MHA.config(hidden_size=24, num_attention_heads=8, head_dim=6, v_head_dim=5)
CAUSAL = MASKS["causal"].build()


def layer(seed=0):
    weights = MHA.weights(CONFIG, seed=seed, dtype=torch.float64)
    return weights | {n: torch.randn_like(weights[n]) for n in MHA.vectors(CONFIG)}


def alike(noise, seed=0):
    """Give a layer whose heads within each group of four differ by noise alone."""
    weights = layer(seed)
    for name, width in (("key", 6), ("value", 5), ("key_bias", 6), ("value_bias", 5)):
        heads = weights[name].unflatten(-1, (2, 4, width))
        shared = heads[..., :1, :].expand_as(heads)
        weights[name] = (shared + noise * torch.randn_like(heads) * heads.std()).flatten(-3)
    return weights


def tokens(batch=2, length=10):
    return torch.randn(batch, length, 24, dtype=torch.float64)


@pytest.mark.parametrize("kv_heads", [1, 2, 4, 8])
@pytest.mark.parametrize("method", METHODS)
def test_it_is_a_layer_with_fewer_heads(method, kv_heads):
    weights = layer()
    config, fewer = convert(CONFIG, weights, kv_heads, method)
    assert config.num_key_value_heads == kv_heads
    declared = {**VARIANTS["gqa"].matrices(config), **{n: (s,) for n, s in VARIANTS["gqa"].vectors(config).items()}}
    assert {name: tuple(tensor.shape) for name, tensor in fewer.items()} == declared
    for name in ("query", "query_bias", "output", "output_bias"):
        assert fewer[name] is weights[name]
    assert all(tensor.dtype == torch.float64 for tensor in fewer.values())


def test_heads_of_one_group_are_merged():
    weights = layer()
    mean, first = (convert(CONFIG, weights, 2, method).weights for method in ("mean", "first"))
    columns = [weights["key"][:, 6 * head : 6 * head + 6] for head in range(8)]
    torch.testing.assert_close(mean["key"][:, :6], sum(columns[:4]) / 4)
    torch.testing.assert_close(mean["key"][:, 6:], sum(columns[4:]) / 4)
    assert torch.equal(first["key"], torch.cat((columns[0], columns[4]), dim=1))
    torch.testing.assert_close(mean["value_bias"][5:], weights["value_bias"][20:].view(4, 5).mean(0))


def test_heads_that_are_equal_already_cost_nothing():
    weights, x = alike(0.0), tokens()
    for position in POSITIONS.values():
        given = {"allowed": CAUSAL, "position": position.build()}
        assert conversion_error(CONFIG, weights, x, 2, "mean", **given) < 1e-14
        assert conversion_error(CONFIG, weights, x, 2, "first", **given) < 1e-14
        assert conversion_error(CONFIG, weights, x, 2, "random", **given) > 0.3
    assert conversion_error(CONFIG, layer(), x, 8, "mean") < 1e-14


def test_the_mean_is_nearer_than_one_head_and_any_head_nearer_than_a_new_one():
    x = tokens(2, 20)
    for seed in range(4):
        weights = alike(0.3, seed)
        mean, first, random = (conversion_error(CONFIG, weights, x, 2, method, allowed=CAUSAL) for method in METHODS)
        assert 0 < mean < first < random


def test_random_heads_are_new_and_as_large_as_the_old():
    weights = layer(seed=3)
    one, again, other = (convert(CONFIG, weights, 2, "random", seed=seed).weights for seed in (3, 3, 4))
    assert torch.equal(one["key"], again["key"]) and not torch.equal(one["key"], other["key"])
    assert not one["key_bias"].any()
    for name in ("key", "value"):
        assert one[name].std().item() == pytest.approx(weights[name].std().item(), rel=0.15)
        both = torch.stack((one[name].flatten(), convert(CONFIG, weights, 2, "first").weights[name].flatten()))
        assert torch.corrcoef(both)[0, 1].abs() < 0.25


def test_grouped_layers_go_on_to_fewer():
    config, fewer = convert(CONFIG, layer(), 4)
    twice, direct = convert(config, fewer, 1).weights, convert(CONFIG, layer(), 1).weights
    for name in ("key", "value"):
        torch.testing.assert_close(twice[name], direct[name])
    assert MHA.parameters(CONFIG) > VARIANTS["gqa"].parameters(config)


def test_misuse_is_named():
    with pytest.raises(Refusal, match="kv_heads must divide num_key_value_heads = 8, got 3; possible are 1, 2, 4, 8"):
        convert(CONFIG, layer(), 3)
    with pytest.raises(KeyError, match="valid: mean, first, random"):
        convert(CONFIG, layer(), 2, "median")
