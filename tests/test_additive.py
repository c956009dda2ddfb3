"""Additive attention against its formula written as loops, and never with L × L × d in memory."""

import numpy as np
import pytest
import torch

from attnviz.backends import BACKENDS
from attnviz.cost import cost
from attnviz.masks import MASKS
from attnviz.score_mods import SCORE_MODS
from attnviz.variants import VARIANTS, additive
from tests.peak import peak_bytes

ADDITIVE = VARIANTS["additive"]
SIZES = {"hidden_size": 12, "num_attention_heads": 3, "head_dim": 5, "v_head_dim": 4}


def by_loops(weights, x, context, scale=1.0, softcap=None):
    """Give causal (bottom-right) additive attention and its scores, one number at a time."""
    named = {name: tensor.numpy() for name, tensor in weights.items()}
    outputs, all_scores = [], []
    for queries_in, keys_in in zip(x.numpy(), context.numpy(), strict=True):
        query, key, value = (
            (source @ named[name] + named[f"{name}_bias"]).reshape(len(source), 3, -1)
            for name, source in (("query", queries_in), ("key", keys_in), ("value", keys_in))
        )
        vectors = named["score"].reshape(3, 5)
        merged = np.zeros((len(query), 3, 4))
        scores = np.zeros((3, len(query), len(key)))
        for h in range(3):
            for i in range(len(query)):
                for j in range(len(key)):
                    total = sum(vectors[h, d] * np.tanh(query[i, h, d] + key[j, h, d]) for d in range(5)) * scale
                    scores[h, i, j] = total if softcap is None else softcap * np.tanh(total / softcap)
                seen = max(0, i + 1 + len(key) - len(query))
                if seen:
                    exponentials = np.exp(scores[h, i, :seen] - scores[h, i, :seen].max())
                    merged[i, h] = exponentials @ value[:seen, h] / exponentials.sum()
        outputs.append(merged.reshape(len(query), 12) @ named["output"] + named["output_bias"])
        all_scores.append(scores)
    return np.stack(outputs), np.stack(all_scores)


@pytest.mark.parametrize("entries", [1, 40, 1 << 20])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("q_len", "kv_len"), [(1, 1), (6, 6), (3, 8), (8, 3)])
def test_it_is_the_formula(monkeypatch, q_len, kv_len, backend, entries):
    monkeypatch.setattr(additive, "_TILE_ENTRIES", entries)
    config = ADDITIVE.config(**SIZES)
    weights = ADDITIVE.weights(config, seed=0, dtype=torch.float64)
    for name in ADDITIVE.vectors(config):
        weights[name] = torch.randn_like(weights[name])
    x, context = (torch.randn(2, n, 12, dtype=torch.float64) for n in (q_len, kv_len))
    call = {"context": context, "allowed": MASKS["causal"].build(), "align": "bottom_right", "backend": backend}
    for scale, mod, softcap in (
        (None, None, None),
        (0.3, None, None),
        (None, SCORE_MODS["softcap"].build(cap=0.7), 0.7),
    ):
        got = ADDITIVE.attend(config, weights, x, scale=scale, score_mod=mod, **call)
        output, scores = by_loops(weights, x, context, 1.0 if scale is None else scale, softcap)
        np.testing.assert_allclose(got.output.numpy(), output, atol=1e-12)
        if backend == "eager":
            np.testing.assert_allclose(got.core.scores.numpy(), scores, atol=1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
def test_never_length_by_length_by_width(backend):
    config = ADDITIVE.config(hidden_size=64, num_attention_heads=2, head_dim=64)
    weights, x = ADDITIVE.weights(config, seed=0), torch.randn(1, 1024, 64)
    query, key, value = ADDITIVE.project(config, weights, x)
    measured = peak_bytes(
        lambda: ADDITIVE.mix(
            config,
            weights,
            (query, key, value),
            allowed=None,
            align="top_left",
            score_mod=None,
            scale=None,
            backend=backend,
        )
    )
    whole = 2 * 1024 * 1024 * 64 * 4
    assert measured < whole / 10
    predicted = cost(ADDITIVE, config, q_len=1024, kv_len=1024, backend=backend).peak_bytes
    assert 0.7 * measured < predicted < 1.5 * measured


def test_scores_are_spread_like_one_and_weights_have_their_own_vector():
    config = ADDITIVE.config(hidden_size=256, num_attention_heads=4, head_dim=64)
    weights = ADDITIVE.weights(config, seed=0)
    assert weights["score"].view(4, 64).norm(dim=1).mean().item() == pytest.approx(1, abs=0.15)
    scores = ADDITIVE.attend(config, weights, torch.randn(1, 64, 256)).core.scores
    assert 0.3 < scores.std().item() < 1.2
    assert ADDITIVE.parameters(config) == VARIANTS["mha"].parameters(VARIANTS["mha"].config(
        hidden_size=256, num_attention_heads=4, head_dim=64)) + 4 * 64  # fmt: skip
