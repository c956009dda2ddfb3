"""A sink logit: one more column in every softmax, dropped before the values."""

import pytest
import torch

from attnviz.backends import BACKENDS
from attnviz.cost import cost
from attnviz.masks import MASKS
from attnviz.variants import VARIANTS

KEYS = ("mha", "gqa", "mqa", "additive")


def layer(key):
    config = VARIANTS[key].config(hidden_size=24, num_attention_heads=4, head_dim=8, v_head_dim=6, sink=True)
    weights = VARIANTS[key].weights(config, seed=0, dtype=torch.float64)
    assert not weights["sink"].any()
    return config, weights | {"sink": torch.randn(4, dtype=torch.float64) * 2}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("key", KEYS)
def test_it_is_a_column_without_a_value(key, backend):
    config, weights = layer(key)
    x, mask = torch.randn(2, 7, 24, dtype=torch.float64), MASKS["causal"].build()
    got = VARIANTS[key].attend(config, weights, x, allowed=mask, backend=backend)
    plain = VARIANTS[key].config(hidden_size=24, num_attention_heads=4, head_dim=8, v_head_dim=6)
    scores = VARIANTS[key].attend(plain, weights, x, allowed=mask, backend="eager").core.scores
    scores = scores.masked_fill(torch.ones(7, 7, dtype=torch.bool).triu(1), float("-inf"))
    longer = torch.cat((scores, weights["sink"][None, :, None, None].expand(2, 4, 7, 1)), dim=-1)
    shares = longer.softmax(-1)[..., :-1]
    value = got.cache["value"].repeat_interleave(4 // got.cache["value"].shape[1], dim=1)
    torch.testing.assert_close(got.core.output, shares @ value, rtol=0, atol=1e-12)
    torch.testing.assert_close(got.core.logsumexp, longer.logsumexp(-1), rtol=0, atol=1e-12)
    if backend == "eager":
        torch.testing.assert_close(got.core.weights, shares, rtol=0, atol=1e-12)
        assert (got.core.weights.sum(-1) < 1).all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_row_without_a_key_attends_to_the_sink_alone(backend):
    config, weights = layer("gqa")
    x = torch.randn(1, 3, 24, dtype=torch.float64)
    got = VARIANTS["gqa"].attend(config, weights, x, allowed=torch.zeros(3, 3, dtype=torch.bool), backend=backend).core
    assert not got.output.any()
    torch.testing.assert_close(got.logsumexp[0, :, 0], weights["sink"])


@pytest.mark.parametrize("key", KEYS)
def test_it_costs_one_number_a_head_and_no_cache(key):
    variant = VARIANTS[key]
    with_sink, without = (variant.config(hidden_size=24, num_attention_heads=4, sink=on) for on in (True, False))
    a, b = (cost(variant, config, q_len=3, kv_len=9) for config in (with_sink, without))
    assert a.parameters == b.parameters + 4
    assert (a.flops, a.kv_cache_bytes) == (b.flops, b.kv_cache_bytes)
