"""Variants: what they declare is what they do, and the grouped ones are one function."""

import math

import pytest
import torch

from attnviz.backends import BACKENDS
from attnviz.knobs import Choice
from attnviz.masks import MASKS, dense
from attnviz.positions import POSITIONS
from attnviz.score_mods import SCORE_MODS
from attnviz.text import Refusal
from attnviz.variants import VARIANTS
from tests.oracle import attention

GROUPED = ("mha", "gqa", "mqa")
SHAPES = ((1, 1), (7, 9), (16, 16), (33, 17))


def small(key, **sizes):
    return VARIANTS[key].config(**{"hidden_size": 24, "num_attention_heads": 4, **sizes})


def double(variant, config, seed=0):
    return variant.weights(config, seed=seed, dtype=torch.float64)


def tokens(batch, length, width=24):
    return torch.randn(batch, length, width, dtype=torch.float64)


def close(got, want, tolerance=1e-12):
    torch.testing.assert_close(got, want, rtol=0, atol=tolerance)


# What every variant owes.


@pytest.mark.parametrize("key", VARIANTS)
def test_weights_are_what_is_declared(key):
    variant, config = VARIANTS[key], small(key)
    weights = variant.weights(config, seed=0)
    declared = {**variant.matrices(config), **{name: (size,) for name, size in variant.vectors(config).items()}}
    assert {name: tuple(tensor.shape) for name, tensor in weights.items()} == declared
    assert variant.parameters(config) == sum(tensor.numel() for tensor in weights.values())
    assert all(not weights[name].any() for name in weights if name.endswith("_bias"))
    assert variant.context_matrices(config) <= set(variant.matrices(config))


@pytest.mark.parametrize("key", VARIANTS)
def test_weights_follow_the_seed(key):
    variant, config = VARIANTS[key], small(key)
    one, again, other = (variant.weights(config, seed=seed) for seed in (5, 5, 6))
    for name in variant.matrices(config):
        assert torch.equal(one[name], again[name])
        assert (one[name] != other[name]).float().mean() > 0.99
    assert torch.equal(variant.weights(config, seed=5, dtype=torch.bfloat16)["query"], one["query"].bfloat16())


@pytest.mark.parametrize("key", VARIANTS)
def test_queries_and_keys_have_unit_variance(key):
    variant = VARIANTS[key]
    config = variant.config(hidden_size=256, num_attention_heads=8, head_dim=32)
    query, key_, value = variant.project(config, variant.weights(config, seed=1), torch.randn(1, 512, 256))
    for tensor in (query, key_, value):
        assert tensor.std().item() == pytest.approx(1, abs=0.05)
        assert abs(tensor.mean().item()) < 0.05


@pytest.mark.parametrize("key", VARIANTS)
def test_cache_has_the_declared_shape(key):
    variant, config = VARIANTS[key], small(key)
    cache = variant.attend(config, double(variant, config), tokens(3, 5)).cache
    declared = {name: (3, *shape) for name, shape in variant.cache(config, 5).items()}
    assert {name: tuple(tensor.shape) for name, tensor in cache.items()} == declared


@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("mod", SCORE_MODS)
@pytest.mark.parametrize("key", VARIANTS)
def test_cached_decode_is_the_full_forward_at_any_split(key, mod, position):
    variant, config, x = VARIANTS[key], small(key), tokens(2, 9)
    weights = double(variant, config)
    terms = {
        "allowed": MASKS["causal"].build(),
        "align": "bottom_right",
        "score_mod": SCORE_MODS[mod].build(),
        "position": POSITIONS[position].build(),
    }
    if not variant.takes(terms["score_mod"]):
        with pytest.raises(Refusal, match="score_mod must be None or a factor alone"):
            variant.attend(config, weights, x, **terms)
        return
    full = variant.attend(config, weights, x, **terms)
    for split in range(1, 9):
        first = variant.attend(config, weights, x[:, :split], **terms)
        rest = variant.attend(config, weights, x[:, split:], cache=first.cache, **terms)
        close(torch.cat((first.output, rest.output), dim=1), full.output)
        for name, tensor in full.cache.items():
            close(rest.cache[name], tensor)


@pytest.mark.parametrize("key", VARIANTS)
def test_token_by_token_is_the_full_forward(key):
    variant, config, x = VARIANTS[key], small(key), tokens(1, 6)
    # A state cannot forget the token that leaves a window.
    mask = MASKS["sliding_window"].build(window=3) if variant.grows(config) else MASKS["causal"].build()
    weights = double(variant, config)
    full = variant.attend(config, weights, x, allowed=mask, align="bottom_right").output
    cache, steps = None, []
    for i in range(6):
        step = variant.attend(config, weights, x[:, i : i + 1], allowed=mask, align="bottom_right", cache=cache)
        cache = step.cache
        steps.append(step.output)
    close(torch.cat(steps, dim=1), full)


@pytest.mark.parametrize("key", VARIANTS)
def test_each_row_of_a_batch_alone_is_the_batch(key):
    variant, config, x = VARIANTS[key], small(key), tokens(3, 8)
    weights = double(variant, config)
    whole = variant.attend(config, weights, x).output
    close(torch.cat([variant.attend(config, weights, x[b : b + 1]).output for b in range(3)]), whole)


@pytest.mark.parametrize("key", VARIANTS)
def test_backends_agree(key):
    variant, config, x = VARIANTS[key], small(key), tokens(2, 11)
    weights, mask = double(variant, config), MASKS["causal"].build()
    want = variant.attend(config, weights, x, allowed=mask).output
    assert variant.backends
    for backend in variant.backends:
        close(variant.attend(config, weights, x, allowed=mask, backend=backend).output, want, 1e-10)
    with pytest.raises(ValueError, match=f"backend must be one of {', '.join(variant.backends)}, got 'abacus'"):
        variant.attend(config, weights, x, backend="abacus")


@pytest.mark.parametrize("key", VARIANTS)
@pytest.mark.parametrize("x", [torch.zeros(2, 24), torch.zeros(1, 2, 23), torch.zeros(1, 2, 24, dtype=torch.int64)])
def test_tokens_of_a_wrong_shape_are_named(key, x):
    variant, config = VARIANTS[key], small(key)
    with pytest.raises(Refusal, match=r"x must be .* \[batch, length, 24\]"):
        variant.attend(config, variant.weights(config, seed=0), x)
    with pytest.raises(Refusal, match=r"context must be .* \[batch, length, 24\]"):
        variant.attend(config, variant.weights(config, seed=0), torch.zeros(1, 2, 24), context=x)


@pytest.mark.parametrize("key", VARIANTS)
def test_every_knob_is_a_size(key):
    variant = VARIANTS[key]
    for knob in variant.knobs:
        # The lowest number, the last choice, or what a flag is not by default.
        low = getattr(knob, "low", list(knob.options)[-1] if isinstance(knob, Choice) else not knob.default)
        try:
            assert getattr(variant.config(**{knob.name: low}), knob.name) == low
        except Refusal as refusal:
            pytest.fail(f"{knob.name}: {refusal}")
    with pytest.raises(Refusal, match="size must be one of hidden_size"):
        variant.config(width=3)


# The grouped ones.


@pytest.mark.parametrize("key", GROUPED)
@pytest.mark.parametrize(("q_len", "kv_len"), SHAPES)
def test_grouped_is_the_formula(key, q_len, kv_len):
    variant, config = VARIANTS[key], small(key, head_dim=5, v_head_dim=3)
    weights = double(variant, config)
    for name in variant.vectors(config):
        weights[name] = torch.randn_like(weights[name])
    x, context, mask = tokens(2, q_len), tokens(2, kv_len), MASKS["causal"].build()
    got = variant.attend(config, weights, x, context=context, allowed=mask, align="bottom_right")

    def heads(name, source, count):
        projected = (source @ weights[name] + weights[f"{name}_bias"]).numpy()
        return projected.reshape(2, source.shape[1], count, -1).swapaxes(1, 2)

    kv_heads = config.num_key_value_heads
    allowed = dense(mask, q_len, kv_len, align="bottom_right").numpy()
    want = attention(
        heads("query", x, 4), heads("key", context, kv_heads), heads("value", context, kv_heads), allowed=allowed
    ).output
    merged = torch.from_numpy(want.swapaxes(1, 2).reshape(2, q_len, 12))
    close(got.output, merged @ weights["output"] + weights["output_bias"])


def test_gqa_is_mha_with_repeated_kv_weights():
    gqa, mha = VARIANTS["gqa"], VARIANTS["mha"]
    shared, own = small("gqa", num_key_value_heads=2), small("mha")
    weights = double(gqa, shared)
    repeated = dict(weights)
    for name in ("key", "value"):
        repeated[name] = weights[name].unflatten(1, (2, -1)).repeat_interleave(2, dim=1).flatten(1)
        repeated[f"{name}_bias"] = weights[f"{name}_bias"].unflatten(0, (2, -1)).repeat_interleave(2, dim=0).flatten()
    x = tokens(2, 7)
    for backend in BACKENDS:
        got, want = (
            v.attend(c, w, x, allowed=MASKS["causal"].build(), backend=backend).output
            for v, c, w in ((gqa, shared, weights), (mha, own, repeated))
        )
        close(got, want)


def test_mqa_is_gqa_with_one_kv_head_and_mha_is_gqa_with_all():
    x = tokens(1, 6)
    for key, kv_heads in (("mqa", 1), ("mha", 4)):
        config = small("gqa", num_key_value_heads=kv_heads)
        assert config == small(key)
        weights = double(VARIANTS["gqa"], config)
        close(VARIANTS["gqa"].attend(config, weights, x).output, VARIANTS[key].attend(config, weights, x).output)
        assert all(torch.equal(weights[name], w) for name, w in double(VARIANTS[key], config).items())


def test_more_heads_or_wider_heads_keep_the_heads_before():
    variant = VARIANTS["gqa"]

    def drawn(**sizes):
        config = variant.config(hidden_size=37, **{"num_attention_heads": 4, "num_key_value_heads": 2, **sizes})
        query, key, value = variant.project(config, variant.weights(config, seed=3), torch.eye(37)[None])
        return query, key, value

    query, key, value = drawn(head_dim=6)
    more = drawn(head_dim=6, num_attention_heads=8)
    assert torch.equal(more[0][:, :4], query)
    assert all(torch.equal(a, b) for a, b in zip(more[1:], (key, value), strict=True))
    groups = drawn(head_dim=6, num_key_value_heads=4)
    assert torch.equal(groups[1][:, :2], key)
    wider = drawn(head_dim=9)
    assert torch.equal(wider[0][..., :6], query) and torch.equal(wider[2][..., :6], value)
    # Heads, projections and neighbouring seeds differ.
    flat = torch.cat([tensor.transpose(-1, -2).flatten(1, 2)[0] for tensor in (query, key, value)])
    assert (torch.corrcoef(flat) - torch.eye(len(flat))).abs().max() < 0.7


def test_rope_makes_scores_depend_on_distance_alone():
    variant, config, x = VARIANTS["gqa"], small("gqa"), tokens(1, 7)
    weights, rope = double(variant, config), POSITIONS["rope"].build()

    def scores(start, context_start):
        query, key, _ = variant.project(
            config, weights, x, tokens_of_keys, position=rope, start=start, context_start=context_start
        )
        return query @ key.repeat_interleave(4, dim=1).mT

    tokens_of_keys = tokens(1, 5)
    close(scores(100, 103), scores(0, 3), 1e-11)
    assert (scores(0, 4) - scores(0, 3)).abs().max() > 0.1


def test_weights_are_not_the_numbers_of_the_input():
    x = torch.randn(1, 24, 24, generator=torch.Generator().manual_seed(0))
    config = small("mha", num_attention_heads=1, head_dim=24)
    for tensor in VARIANTS["mha"].weights(config, seed=0).values():
        if tensor.dim() == 2:
            assert torch.corrcoef(torch.stack((x.flatten(), tensor.t().flatten())))[0, 1].abs() < 0.2


def test_cross_attention_and_its_cache():
    variant, config = VARIANTS["gqa"], small("gqa")
    weights, x, context = double(variant, config), tokens(2, 3), tokens(2, 8)
    whole = variant.attend(config, weights, x, context=context)
    assert whole.cache["key"].shape[2] == 8 and whole.output.shape == (2, 3, 24)
    nothing = context[:, :0]
    again = variant.attend(config, weights, x, context=nothing, cache=whole.cache)
    close(again.output, whole.output)


def test_a_masked_context_without_keys_gives_the_output_bias():
    variant, config = VARIANTS["mha"], small("mha")
    weights = double(variant, config)
    weights["output_bias"] = torch.randn(24, dtype=torch.float64)
    output = variant.attend(config, weights, tokens(1, 3), allowed=torch.zeros(3, 3, dtype=torch.bool)).output
    close(output, weights["output_bias"].expand(1, 3, 24))


@pytest.mark.parametrize("key", GROUPED)
@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({"num_attention_heads": 3, "num_key_value_heads": 2}, "num_key_value_heads must .* got 2"),
        ({"num_attention_heads": 33, "num_key_value_heads": 2}, "num_key_value_heads must .* got 2"),
        ({"num_attention_heads": 0}, "num_attention_heads must be a whole number from 1 to 1,024, got '0'"),
        ({"head_dim": 0}, "head_dim must be a whole number from 1 to 4,096, got '0'"),
        ({"hidden_size": "wide"}, "hidden_size must be a whole number"),
    ],
)
def test_sizes_that_do_not_fit_are_named(key, sizes, words):
    if "num_key_value_heads" in sizes:
        heads = sizes["num_attention_heads"]
        words = {
            "mha": f"num_key_value_heads must be {heads} for MHA .*, got 2",
            "gqa": f"num_key_value_heads must divide num_attention_heads = {heads}, got 2; possible are 1, 3",
            "mqa": "num_key_value_heads must be 1 for MQA .*, got 2",
        }[key]
    with pytest.raises(Refusal, match=words):
        VARIANTS[key].config(**sizes)


def test_default_sizes():
    assert small("mha").num_key_value_heads == 4 and small("mqa").num_key_value_heads == 1
    assert VARIANTS["gqa"].config(num_attention_heads=16).num_key_value_heads == 4
    assert VARIANTS["gqa"].config(num_attention_heads=6).num_key_value_heads == 1
    config = VARIANTS["gqa"].config(hidden_size=1024, num_attention_heads=16, head_dim=128)
    assert config.head_dim == config.v_head_dim == 128
    assert VARIANTS["mha"].config(hidden_size=1024, num_attention_heads=16).head_dim == 64
    assert not VARIANTS["mha"].vectors(VARIANTS["mha"].config(biases=False))


@pytest.mark.parametrize(
    "cache",
    [
        {"key": torch.zeros(1, 2, 3, 6), "value": torch.zeros(1, 4, 3, 6)},
        {"key": torch.zeros(1, 4, 3, 6)},
        {"key": torch.zeros(1, 4, 3, 6), "value": torch.zeros(1, 4, 2, 6)},
        {"key": torch.zeros(2, 4, 3, 6), "value": torch.zeros(2, 4, 3, 6)},
    ],
)
def test_a_cache_of_another_layer_is_named(cache):
    variant, config = VARIANTS["mha"], small("mha")
    with pytest.raises(Refusal, match=r'cache\["(key|value)"\] must be a cache of this configuration and batch'):
        variant.attend(config, variant.weights(config, seed=0), torch.zeros(1, 1, 24), cache=cache)


def test_scale_and_score_mod_multiply():
    variant, config, x = VARIANTS["mha"], small("mha"), tokens(1, 5)
    weights = double(variant, config)
    half = SCORE_MODS["temperature"].build(temperature=2.0)
    for scale in (None, 0.7):
        got = variant.attend(config, weights, x, scale=scale, score_mod=half).core.scores
        base = 1 / math.sqrt(config.head_dim) if scale is None else scale
        close(got, variant.attend(config, weights, x, scale=base / 2).core.scores)
