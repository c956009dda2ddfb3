"""Linear attention and the delta rules: three forms, one result, held to loops written apart from them."""

import math

import numpy as np
import pytest
import torch

from attnviz.backends import BACKENDS
from attnviz.masks import MASKS, dense
from attnviz.text import Refusal
from attnviz.variants import VARIANTS, Work
from attnviz.variants.delta import FORMS as DELTA_FORMS
from attnviz.variants.delta import delta_rule
from attnviz.variants.linear import FORMS, linear_attention
from attnviz.variants.state.features import FEATURE_MAPS, directions
from tests.peak import peak_bytes

LINEAR, DELTA = VARIANTS["linear"], VARIANTS["delta"]
CAUSAL = MASKS["causal"].build()
SHAPES = ((1, 1), (7, 9), (16, 16), (33, 17), (40, 40))
RATES = (None, 1, "features")


def double(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def close(got, want, tolerance=1e-10):
    torch.testing.assert_close(got, torch.as_tensor(want, dtype=got.dtype), rtol=0, atol=tolerance)


def inputs(q_len, kv_len, *, batch=2, heads=4, kv_heads=4, width=6, value_width=5):
    return (
        double(batch, heads, q_len, width),
        double(batch, kv_heads, kv_len, width),
        double(batch, kv_heads, kv_len, value_width),
    )


def decays(kind, key, strength=1.0):
    """Give logarithms of decay: none, one for each head, or one for each feature."""
    return None if kind is None else -strength * double(*key.shape[:3], 1 if kind == 1 else key.shape[3]).abs()


def by_loops(query, key, value, places, *, rates=None, beta=None, hidden=(), state=None, normalize=False):
    """Give outputs and the last state of both rules, one number after the other; ``hidden`` are (batch, key) pairs."""
    query, key, value = (x.numpy() for x in (query, key, value))
    batch, heads, q_len, width = query.shape
    group = heads // key.shape[1]
    outputs = np.zeros((*query.shape[:3], value.shape[3]))
    states = np.zeros((batch, key.shape[1], width, value.shape[3] + 1))
    for b in range(batch):
        for h in range(heads):
            kv = h // group
            now = np.zeros((width, value.shape[3] + 1)) if state is None else state[b, kv].numpy().copy()
            history = {-1: now}
            for t in range(key.shape[2]):
                if (b, t) not in hidden:
                    left = 1.0 if rates is None else np.exp(rates[b, kv, t].numpy())[:, None]
                    now = now * left
                    fresh = np.append(value[b, kv, t], 1.0)
                    if beta is not None:
                        fresh = float(beta[b, kv, t, 0]) * (fresh - now.T @ key[b, kv, t])
                    now = now + np.outer(key[b, kv, t], fresh)
                history[t] = now
            for i in range(q_len):
                sums = query[b, h, i] @ history[int(places[i])]
                weight = sums[-1]
                outputs[b, h, i] = (sums[:-1] / weight if weight else 0.0) if normalize else sums[:-1]
            states[b, kv] = now
    return outputs, states


def placed(q_len, kv_len, align):
    """Give the last key that each query of a causal call sees."""
    first = kv_len - q_len if align == "bottom_right" else 0
    return np.clip(np.arange(q_len) + first, -1, kv_len - 1)


# The forms.


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("kind", RATES)
@pytest.mark.parametrize("align", ["top_left", "bottom_right"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("q_len", "kv_len"), SHAPES)
def test_linear_is_the_formula(q_len, kv_len, form, align, kind, normalize):
    query, key, value = inputs(q_len, kv_len, kv_heads=2)
    query, key = query.abs(), key.abs()
    rates = decays(kind, key)
    for allowed in (None, CAUSAL):
        got = linear_attention(
            query, key, value, allowed=allowed, align=align, log_decay=rates, normalize=normalize, form=form, chunk=8
        )
        places = np.full(q_len, kv_len - 1) if allowed is None else placed(q_len, kv_len, align)
        outputs, states = by_loops(query, key, value, places, rates=rates, normalize=normalize)
        close(got.output, outputs)
        close(got.state, states[..., :-1])
        if normalize:
            close(got.sum, states[..., -1])


@pytest.mark.parametrize("kind", RATES)
@pytest.mark.parametrize("align", ["top_left", "bottom_right"])
@pytest.mark.parametrize("form", DELTA_FORMS)
@pytest.mark.parametrize(("q_len", "kv_len"), SHAPES)
def test_delta_is_the_formula(q_len, kv_len, form, align, kind):
    query, key, value = inputs(q_len, kv_len, kv_heads=2)
    key = torch.nn.functional.normalize(key, dim=-1)
    rates, beta = decays(kind, key), torch.rand(2, 2, kv_len, 1, dtype=torch.float64)
    for allowed in (None, CAUSAL):
        got = delta_rule(query, key, value, beta, allowed=allowed, align=align, log_decay=rates, form=form, chunk=8)
        places = np.full(q_len, kv_len - 1) if allowed is None else placed(q_len, kv_len, align)
        outputs, states = by_loops(query, key, value, places, rates=rates, beta=beta)
        close(got.output, outputs)
        close(got.state, states[..., :-1])


@pytest.mark.parametrize("kind", RATES)
@pytest.mark.parametrize("length", [1, 63, 64, 65, 150, 257])
def test_the_forms_agree_at_any_length(length, kind):
    query, key, value = inputs(length, length)
    rates, beta = decays(kind, key, 0.1), torch.rand(2, 4, length, 1, dtype=torch.float64)
    unit = torch.nn.functional.normalize(key, dim=-1)
    call = {"allowed": CAUSAL, "log_decay": rates}
    linear = [linear_attention(query, key, value, form=form, **call) for form in FORMS]
    delta = [delta_rule(query, unit, value, beta, form=form, **call) for form in DELTA_FORMS]
    for results in (linear, delta):
        for other in results[1:]:
            close(other.output, results[0].output)
            close(other.state, results[0].state)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", [1, "features"])
def test_strong_decay_overflows_nowhere(kind, form):
    query, key, value = inputs(70, 70)
    rates = decays(kind, key, 400.0)
    got = linear_attention(query, key, value, allowed=CAUSAL, log_decay=rates, form=form)
    close(got.output, by_loops(query, key, value, np.arange(70), rates=rates)[0])


def test_weights_of_the_parallel_form_make_the_output():
    query, key, value = (x.abs() for x in inputs(9, 9, kv_heads=2))
    for normalize, scale in ((True, 1.0), (False, 0.3)):
        got = linear_attention(query, key, value, allowed=CAUSAL, normalize=normalize, scale=scale, form="parallel")
        close(got.weights @ value.repeat_interleave(2, dim=1), got.output)
        if normalize:
            close(got.weights.sum(-1), np.ones((2, 4, 9)))
        assert not got.weights.triu(1).any()
    assert linear_attention(query, key, value, form="chunked").weights is None


# Masks.


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_padding_is_as_if_it_were_not_there(form, causal, side):
    lengths, length = (4, 9), 9
    query, key, value = inputs(length, length)
    beta, rates = torch.rand(2, 4, length, 1, dtype=torch.float64), decays(1, key)
    padding = MASKS["padding"].build(lengths=lengths, side=side)
    mask = padding & CAUSAL if causal else padding
    grid = dense(mask, length, length, batch=2)
    gone = ~dense(padding, 1, length, batch=2)[:, :, 0, :].expand(-1, 4, -1)
    key[gone] = value[gone] = torch.nan
    for allowed in (mask, grid):
        calls = [linear_attention(query, key, value, allowed=allowed, log_decay=rates, form=form, chunk=4)]
        if form in DELTA_FORMS:
            calls.append(delta_rule(query, key, value, beta, allowed=allowed, log_decay=rates, form=form, chunk=4))
        for batch, real in enumerate(lengths):
            rows = slice(length - real, length) if side == "left" else slice(0, real)
            part = (slice(batch, batch + 1), slice(None), rows)
            options = {"allowed": CAUSAL if causal else None, "log_decay": rates[part]}
            alone = [linear_attention(query[part], key[part], value[part], **options)]
            if form in DELTA_FORMS:
                alone.append(delta_rule(query[part], key[part], value[part], beta[part], **options))
            for whole, own in zip(calls, alone, strict=True):
                close(whole.output[part], own.output)
                close(whole.state[batch : batch + 1], own.state)


def test_a_row_without_a_key_gives_zero():
    query, key, value = (x.abs() for x in inputs(5, 5))
    nobody = torch.zeros(2, 1, 1, 5, dtype=torch.bool)
    for form in FORMS:
        got = linear_attention(query, key, value, allowed=nobody, normalize=True, form=form)
        assert not got.output.any() and not got.state.any()


@pytest.mark.parametrize(
    ("name", "knobs"),
    [("sliding_window", {"window": 3}), ("prefix_lm", {"prefix": 3}), ("document", {"lengths": (4, 5)})],
)
def test_any_other_mask_is_for_pairs(name, knobs):
    query, key, value = (x.abs() for x in inputs(9, 9))
    mask = MASKS[name].build(**knobs)
    got = linear_attention(query, key, value, allowed=mask, normalize=True)
    weights = (query @ key.mT) * dense(mask, 9, 9)
    close(got.output, weights @ value / weights.sum(-1, keepdim=True))
    assert got.kernel == "parallel"
    for form in ("chunked", "recurrent"):
        with pytest.raises(Refusal, match=f"allowed must be causal, by key, or both in the {form} form"):
            linear_attention(query, key, value, allowed=mask, form=form)
    with pytest.raises(Refusal, match="allowed must be causal, by key, or both, since a state follows no other"):
        delta_rule(query, key, value, torch.ones(2, 4, 9, 1), allowed=mask)
    with pytest.raises(Refusal, match="allowed must be causal, by key, or both where there is decay"):
        linear_attention(query, key, value, allowed=mask, log_decay=-torch.ones(1, 1, 9, 1))


def test_what_is_in_a_state_cannot_be_hidden():
    config = LINEAR.config(hidden_size=24, num_attention_heads=4)
    weights, x = LINEAR.weights(config, seed=0), torch.randn(1, 6, 24)
    cache = LINEAR.attend(config, weights, x).cache
    window = MASKS["sliding_window"].build(window=3)
    with pytest.raises(Refusal, match="allowed must be causal, by key, or both, and show all 6 tokens in the state"):
        LINEAR.attend(config, weights, x[:, :1], allowed=window, align="bottom_right", cache=cache)
    with pytest.raises(Refusal, match="align must be such that no query stands before the last of the 6 tokens"):
        LINEAR.attend(config, weights, x[:, :1], allowed=CAUSAL, align="top_left", cache=cache)


# Feature maps.


@pytest.mark.parametrize("name", FEATURE_MAPS)
def test_a_map_gives_as_many_features_as_the_layer_says(name):
    config = LINEAR.config(hidden_size=24, num_attention_heads=4, feature_map=name, features=10)
    weights = LINEAR.weights(config, seed=0, dtype=torch.float64)
    x = double(2, 7, 24)
    got = [LINEAR.attend(config, weights, x, allowed=CAUSAL, backend=form) for form in FORMS]
    assert got[0].cache["state"].shape == (2, 4, config.width, 6) and config.width == (10 if name == "performer" else 6)
    if name != "identity":  # whose rows may add up to almost nothing
        close(got[1].output, got[0].output)
        close(got[2].output, got[0].output)
    mapped = FEATURE_MAPS[name].apply(double(50, 6), directions(10, 6, seed=0).double())
    assert bool((mapped >= 0).all()) == FEATURE_MAPS[name].is_positive


def test_the_maps_are_their_formulas():
    x = torch.tensor([-2.0, 0.0, 3.0], dtype=torch.float64)
    want = {
        "elu": [math.exp(-2), 1, 4],
        "relu": [0, 0, 3],
        "squared_relu": [0, 0, 9],
        "softmax": [math.exp(v) / (math.exp(-2) + 1 + math.exp(3)) for v in (-2, 0, 3)],
        "identity": [-2, 0, 3],
    }
    for name, numbers in want.items():
        close(FEATURE_MAPS[name].apply(x, None), numbers, 1e-12)


@pytest.mark.parametrize("scale", [0.25, -0.25, 0.0])
def test_random_features_are_right_on_average(scale):
    query, key = double(5, 8) / 2, double(7, 8) / 2
    want = (scale * query @ key.T).exp()
    estimates = []
    for seed in range(400):
        queries, keys = FEATURE_MAPS["performer"].maps(scale, directions(64, 8, seed=seed).double())
        estimates.append(queries(query) @ keys(key).T)
    stacked = torch.stack(estimates)
    spread = stacked.std(0) / 20
    assert ((stacked.mean(0) - want).abs() <= 4.5 * spread + 1e-12).all()


def test_directions_stand_at_right_angles_in_blocks():
    rows = directions(20, 8, seed=1).double()
    for block in (rows[:8], rows[8:16], rows[16:]):
        unit = torch.nn.functional.normalize(block, dim=1)
        close(unit @ unit.T, torch.eye(len(block)), 1e-6)
    assert torch.equal(directions(12, 8, seed=1), directions(20, 8, seed=1)[:12])
    assert not torch.equal(directions(8, 8, seed=2), rows[:8].float())


def test_more_features_come_closer_to_softmax():
    query, key, value = inputs(32, 32, width=16)
    query, key = query / 2, key / 2
    exact = BACKENDS["eager"].attend(query, key, value, allowed=CAUSAL).output
    errors = []
    for features in (16, 256, 4096):
        maps = FEATURE_MAPS["performer"].maps(0.25, directions(features, 16, seed=0))
        got = linear_attention(query, key, value, maps=maps, allowed=CAUSAL, normalize=True).output
        errors.append(float((got - exact).norm() / exact.norm()))
    assert errors[0] > 2 * errors[1] > 4 * errors[2], errors
    elu = linear_attention(query, key, value, maps=FEATURE_MAPS["elu"].maps(1.0), allowed=CAUSAL, normalize=True).output
    assert float((elu - exact).norm() / exact.norm()) > 3 * errors[2]


# The layer.


def test_a_running_state_stays_in_float32():
    for variant in (LINEAR, DELTA):
        config = variant.config(hidden_size=64, num_attention_heads=2)
        weights, x = variant.weights(config, seed=0, dtype=torch.bfloat16), torch.randn(1, 2000, 64).bfloat16()
        got = variant.attend(config, weights, x, allowed=CAUSAL)
        assert got.output.dtype == torch.bfloat16 and {t.dtype for t in got.cache.values()} == {torch.float32}
        exact = variant.attend(config, {n: w.double() for n, w in weights.items()}, x.double(), allowed=CAUSAL)
        error = (got.core.output.double() - exact.core.output).norm() / exact.core.output.norm()
        assert error < 0.02


@pytest.mark.parametrize("decay", ["none", "fixed", "gated", "gated_features"])
@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("variant", [LINEAR, DELTA], ids=["linear", "delta"])
def test_a_layer_cut_anywhere_is_the_whole(variant, normalize, decay):
    config = variant.config(hidden_size=24, num_attention_heads=4, normalize=normalize, decay=decay, chunk=4)
    weights, x = variant.weights(config, seed=0, dtype=torch.float64), double(2, 11, 24)
    if not normalize:
        weights["key"] = weights["key"] / 4  # long keys let a delta rule explode
    for name in variant.vectors(config):
        weights[name] = torch.randn_like(weights[name]) / 4
    full = variant.attend(config, weights, x, allowed=CAUSAL)
    assert set(weights) == set(variant.matrices(config)) | set(variant.vectors(config))
    for split in (1, 4, 7):
        first = variant.attend(config, weights, x[:, :split], allowed=CAUSAL)
        rest = variant.attend(config, weights, x[:, split:], allowed=CAUSAL, align="bottom_right", cache=first.cache)
        close(torch.cat((first.output, rest.output), dim=1), full.output)
        assert float(rest.cache["tokens"][0, 0]) == 11


def test_an_initial_state_is_a_cache_without_tokens():
    config = LINEAR.config(hidden_size=24, num_attention_heads=4, normalize=False)
    weights, x = LINEAR.weights(config, seed=0, dtype=torch.float64), double(1, 5, 24)
    state = double(1, 4, 6, 6)
    cache = {"state": state, "tokens": torch.zeros(1, 1, dtype=torch.float64)}
    got = LINEAR.attend(config, weights, x, allowed=CAUSAL, cache=cache).core.output
    query, _, _ = LINEAR.project(config, weights, x)
    mapped = torch.nn.functional.elu(query) + 1
    close(got - LINEAR.attend(config, weights, x, allowed=CAUSAL).core.output, mapped @ state / math.sqrt(6))


def test_parameters_at_width_1024():
    config = LINEAR.config(hidden_size=1024, num_attention_heads=16)
    assert LINEAR.parameters(config) == 4_198_400
    assert DELTA.parameters(DELTA.config(hidden_size=1024, num_attention_heads=16)) == 4_198_400 + 1024 * 16 + 16


def test_q_k_v_of_a_seed_are_those_of_mha():
    mha = VARIANTS["mha"]
    config, mine = (
        mha.config(hidden_size=24, num_attention_heads=4),
        LINEAR.config(hidden_size=24, num_attention_heads=4),
    )
    x = double(1, 5, 24)
    for got, want in zip(
        LINEAR.project(mine, LINEAR.weights(mine, seed=3, dtype=torch.float64), x),
        mha.project(config, mha.weights(config, seed=3, dtype=torch.float64), x),
        strict=True,
    ):
        assert torch.equal(got, want)


def test_gradients_reach_every_input():
    query, key, value = (x.requires_grad_() for x in inputs(20, 20))
    beta = torch.rand(2, 4, 20, 1, dtype=torch.float64, requires_grad=True)
    for form in FORMS:
        linear_attention(query, key, value, allowed=CAUSAL, form=form, chunk=8).output.square().sum().backward()
    grads = [x.grad.clone() for x in (query, key, value)]
    assert all(grad.abs().amax(-1).gt(0).all() for grad in grads)
    for form in DELTA_FORMS:
        unit = torch.nn.functional.normalize(key, dim=-1)
        delta_rule(query, unit, value, beta, allowed=CAUSAL, form=form, chunk=8).output.square().sum().backward()
    assert beta.grad.ne(0).all()


@pytest.mark.parametrize("variant", [LINEAR, DELTA], ids=["linear", "delta"])
@pytest.mark.parametrize("length", [1000, 4000])
def test_memory_is_predicted_and_never_length_by_width_by_width(variant, length):
    config = variant.config(hidden_size=256, num_attention_heads=4)
    weights, x = variant.weights(config, seed=0), torch.randn(1, length, 256)
    for allowed in (None, CAUSAL):
        call = {"allowed": allowed, "align": "top_left", "scale": 1.0, "form": None, "state": None, "past": 0}
        tensors = variant.project(config, weights, x)
        measured = peak_bytes(lambda t=tensors, c=call: variant.core(config, weights, t, x, **c))
        predicted = variant.peak_bytes(config, Work(length, length, causal=allowed is not None), variant.backends[0])
        assert measured < 4 * length * 256 * 2.5 + 3_000_000
        assert predicted == pytest.approx(measured, rel=0 if variant is LINEAR else 0.25 if allowed is None else 0.1)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"form": "abacus"}, "form must be one of chunked, recurrent, parallel, got 'abacus'"),
        ({"chunk": 0}, "chunk must be a whole number of at least 1, got 0"),
        ({"state": (torch.zeros(1, 1, 1, 1), None)}, r"state must be \[2, 4, 6, 5\], one state for each head of keys"),
        ({"state": (torch.zeros(2, 4, 6, 5), None), "normalize": True}, "the sum beside state must be"),
        ({"log_decay": torch.ones(2, 4, 3, 1)}, r"log_decay must be \[2, 4, 3, 1\] or one number for each feature"),
        ({"log_decay": torch.zeros(2, 4, 2, 1)}, r"log_decay must be \[2, 4, 3, 1\]"),
        ({"allowed": torch.ones(3, 4, dtype=torch.bool)}, "allowed must be broadcastable"),
        ({"align": "middle", "allowed": CAUSAL}, "align must be one of top_left, bottom_right"),
    ],
)
def test_misuse_is_named(changed, words):
    with pytest.raises(Refusal, match=words):
        linear_attention(*inputs(3, 3), **changed)


def test_a_cache_of_another_layer_is_named():
    config = LINEAR.config(hidden_size=24, num_attention_heads=4)
    weights, x = LINEAR.weights(config, seed=0), torch.randn(1, 2, 24)
    cache = LINEAR.attend(config, weights, x).cache
    for broken in ({**cache, "state": cache["state"][..., :3]}, {"state": cache["state"], "tokens": cache["tokens"]}):
        with pytest.raises(Refusal, match=r'cache\["(state|sum)"\] must be a cache of this configuration and batch'):
            LINEAR.attend(config, weights, x, cache=broken)
