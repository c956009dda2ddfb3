"""The variants page's settings and numbers: models by one name, golden cache sizes, maps that are the layers' own."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

from attnviz import config
from attnviz.conversion import METHODS, conversion_error, convert
from attnviz.figures.variants import latent_wiring, wiring
from attnviz.inputs import token_vectors
from attnviz.positions import POSITIONS
from attnviz.presets import PRESETS
from attnviz.text import Refusal
from attnviz.variant_view import guard, layers
from attnviz.variant_view import run as runs
from attnviz.variant_view.layers import narrowed
from attnviz.variant_view.settings import KNOBS, SIZES
from attnviz.variant_view.settings import VARIANTS as VARIANTS_OF_PAGE
from attnviz.variant_view.view import settle, sizes
from attnviz.variants import VARIANTS
from attnviz.view_run import WIDTH
from tests import oracle
from tests.peak import peak_bytes


def view(**given):
    settled = settle({name: str(value) for name, value in given.items()})
    assert not settled.problems and not settled.notes
    return settled.view


@pytest.mark.parametrize("key", PRESETS)
def test_a_model_sets_every_size_and_its_link_is_its_name(key):
    settled = settle({"model": key})
    shape, found = PRESETS[key].config, settled.view
    assert found.heads == shape.num_attention_heads and found.width == shape.hidden_size
    if PRESETS[key].variant == "mla":
        assert (found.variant, found.latent, found.rope) == ("mla", shape.kv_lora_rank, shape.qk_rope_head_dim)
        assert (found.d_k, found.d_k + found.rope) == (shape.v_head_dim, shape.head_dim)
    else:
        assert (found.variant, found.kv_heads, found.d_k) == ("grouped", shape.num_key_value_heads, shape.head_dim)
    assert found.context == PRESETS[key].max_context
    assert settled.link() == {"model": key} and found.preset is PRESETS[key]
    assert runs.of_view(found).per_context == PRESETS[key].kv_cache_bytes(found.context, windows=False)
    assert settle({"model": key, "context": "7"}).view.preset is None


def test_a_model_of_another_variant_is_not_that_model():
    settled = settle({"model": "llama-3-8b", "variant": "mla"})
    assert settled.view.variant == "mla" and settled.view.preset is None and not settled.problems
    assert settled.link() == {"model": "llama-3-8b", "variant": "mla"}
    # The published layer makes its queries of a vector of 1,536, and its weights are counted so.
    taken = runs.of_view(view(model="deepseek-v3-1"))
    assert taken.parameters == 7168 * (1536 + 576) + 1536 * 128 * 192 + 512 * 128 * 256 + 128 * 128 * 7168 + 1536 + 512


def test_every_model_is_offered_the_one_with_the_most_heads_too():
    assert set(KNOBS["model"].options) - {"own"} == set(PRESETS)
    assert view(model="falcon-180b").heads == 232 == KNOBS["heads"].high
    assert narrowed(view(model="falcon-180b")).weights.shape[0] == 232
    for key, variant in (("llama-3-8b", "grouped"), ("deepseek-v3-1", "mla")):
        assert tuple(sizes(PRESETS[key])) == SIZES[variant]


@pytest.mark.parametrize(
    ("model", "per_token"),
    [("llama-2-7b", 512), ("llama-3-1-8b", 128), ("llama-3-1-405b", 504), ("gpt-oss-120b", 72), ("falcon-7b", 8)],
)
def test_golden_cache_sizes(model, per_token):
    assert runs.of_view(view(model=model)).per_token == per_token * 1024


def test_the_table_has_each_variant_once_and_the_published_mla():
    rows = runs.table(view(heads=128 // 2, kv_heads=8, d_k=128, width=7168, layers=61))
    assert [row.variant for row in rows] == ["mha", "gqa", "mqa", "mla", "additive", "linear", "delta"]
    mha, gqa, mqa, mla, additive, linear, delta = rows
    assert mla.elements == 576 and mla.per_token == 61 * 576 * 2 and mla.error is None
    assert (additive.per_context, additive.parameters) == (mha.per_context, mha.parameters + 64 * 128)
    assert gqa.per_token * 8 == mha.per_token == mqa.per_token * 64
    assert mha.parameters == 4 * 7168 * 64 * 128 and mqa.parameters == 2 * 7168 * 64 * 128 + 2 * 7168 * 128
    assert mha.error == 0 < gqa.error < mqa.error
    # A state is there whole before the first token: a matrix for each head in float32, and linear's sum of φ(k).
    for row, state in ((linear, 64 * 128 * (128 + 1) * 4 + 4), (delta, 64 * 128 * 128 * 4 + 4)):
        assert (row.elements, row.per_token) == (0, 0) and row.error is None
        assert row.per_context == 61 * state
    assert linear.parameters == mha.parameters == delta.parameters - 7168 * 64


@pytest.mark.parametrize(
    ("heads", "kv_heads", "listed"),
    [(1, 1, [1]), (7, 1, [7, 1]), (8, 8, [8, 2, 1]), (8, 1, [8, 2, 1]), (8, 4, [8, 4, 1]), (2, 1, [2, 1])],
)
def test_gqa_is_listed_where_heads_can_be_grouped(heads, kv_heads, listed):
    rows = runs.table(view(heads=heads, kv_heads=kv_heads))
    assert [row.kv_heads for row in rows] == [*listed, None, None, None, None]


@pytest.mark.parametrize("dtype", KNOBS["dtype"].options)
def test_bytes_follow_the_data_type_and_elements_do_not(dtype):
    row = runs.of_view(view(dtype=dtype, layers=3, context=10))
    assert row.elements == 2 * 2 * 64 and row.per_context == 10 * row.per_token
    assert row.per_token == 3 * row.elements * torch.finfo(getattr(torch, dtype)).bits // 8


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_maps_and_error_are_those_of_the_converted_layer(kv_heads, method):
    shown = view(heads=4, kv_heads=kv_heads, d_k=5, method=method, seed=3, text="one two three two")
    found = narrowed(shown)
    mha = VARIANTS["mha"]
    shape = mha.config(hidden_size=WIDTH, num_attention_heads=4, head_dim=5, biases=False)
    weights = mha.weights(shape, seed=3)
    x = token_vectors(shown.tokens, WIDTH, 3)[None]
    allowed = torch.ones(4, 4, dtype=torch.bool).tril()
    if kv_heads == 4:  # nothing is shared, so nothing is replaced
        assert found.error == 0 and np.array_equal(found.weights, found.before)
        return
    wanted = conversion_error(shape, weights, x, kv_heads, method, seed=3, allowed=allowed)
    assert found.error == pytest.approx(wanted, rel=1e-5)
    less, fewer = convert(shape, weights, kv_heads, method, seed=3)
    query, key, value = VARIANTS["gqa"].project(less, fewer, x)
    expected = oracle.attention(query, key, value, allowed=allowed).weights
    np.testing.assert_allclose(found.weights, expected[0], atol=1e-5)
    assert not np.allclose(found.weights, found.before, atol=1e-3)


def test_flops_are_those_of_the_matrix_products():
    rows = {row.variant: row for row in runs.table(view(heads=8, kv_heads=2, d_k=16, width=100, layers=3, context=50))}
    mixing = 4 * 8 * 16 * 50  # query · key and weights · value, of every query head, whatever is shared
    for key, kv_heads in (("mha", 8), ("gqa", 2), ("mqa", 1)):
        assert rows[key].flops == 3 * (2 * (2 * 100 * 8 * 16 + 2 * 100 * kv_heads * 16) + mixing)
    # Absorbed: the query through its head's key matrix, the sum through its value matrix, both over the kept 576.
    projections = 100 * 8 * (16 + 64) + 100 * (512 + 64) + 2 * 512 * 8 * 16 + 8 * 16 * 100
    assert rows["mla"].flops == 3 * (2 * projections + 4 * 8 * 576 * 50)
    scored = 2 * 8 * 50 * (16 + 1 + 16)
    assert rows["additive"].flops == 3 * (2 * 4 * 100 * 8 * 16 + scored)


@pytest.mark.parametrize("rope", [0, 6, 64])
@pytest.mark.parametrize("width", [1, 20, 512])
def test_a_narrow_latent_is_the_beginning_of_the_whole_one(width, rope):
    shown = view(variant="mla", heads=3, d_k=5, latent=width, rope=rope, seed=2, text="one two three two")
    found = narrowed(shown)
    mla = VARIANTS["mla"]
    whole = mla.config(hidden_size=WIDTH, num_attention_heads=3, head_dim=5 + 64, v_head_dim=5, qk_rope_head_dim=64)
    weights = {name: matrix.double() for name, matrix in mla.weights(whole, seed=2).items()}
    x = token_vectors(shown.tokens, WIDTH, 2).double()
    made = (x @ weights["latent"])[:, :width]
    made = made * made.square().mean(1, keepdim=True).add(1e-6).rsqrt() * (512 / width) ** 0.5
    turn = POSITIONS["rope"].build().turn
    allowed = torch.ones(4, 4, dtype=torch.bool).tril()
    for head in range(3):
        query = (x @ weights["query"]).view(4, 3, 69)[:, head]
        key = made @ weights["key"][:width].view(width, 3, 5)[:, head]
        both = query[:, :5] @ key.T + turn(query[:, 5 : 5 + rope]) @ turn((x @ weights["rope_key"])[:, :rope]).T
        scores = (both / (5 + rope) ** 0.5).masked_fill(~allowed, float("-inf"))
        np.testing.assert_allclose(found.weights[head], scores.softmax(1), atol=1e-5)
    assert (found.error == 0) == (width == 512) == bool(np.array_equal(found.weights, found.before))


def test_without_a_rotary_key_equal_words_get_equal_weights():
    shown = {"variant": "mla", "text": "mat cat mat dog", "latent": 64}
    last = narrowed(view(rope=0, **shown)).weights[:, 3]
    np.testing.assert_allclose(last[:, 0], last[:, 2], rtol=1e-5)
    assert not np.allclose(*narrowed(view(rope=8, **shown)).weights[:, 3, ::2].T, rtol=1e-2)


def test_additive_maps_are_of_the_same_queries_and_keys():
    shown = view(variant="additive", heads=3, d_k=5, seed=2, text="one two three two")
    found = narrowed(shown)
    additive, mha = VARIANTS["additive"], VARIANTS["mha"]
    shape = mha.config(hidden_size=WIDTH, num_attention_heads=3, head_dim=5, biases=False)
    query, key, value = mha.project(shape, mha.weights(shape, seed=2), token_vectors(shown.tokens, WIDTH, 2)[None])
    vectors = additive.weights(shape, seed=2)["score"].view(3, 1, 1, 5)
    scores = ((query[0, :, :, None] + key[0, :, None]).tanh() * vectors).sum(-1)
    allowed = torch.ones(4, 4, dtype=torch.bool).tril()
    weights = scores.masked_fill(~allowed, float("-inf")).softmax(-1)
    np.testing.assert_allclose(found.weights, weights, atol=1e-5)
    np.testing.assert_allclose(found.before, oracle.attention(query, key, value, allowed=allowed).weights[0], atol=1e-5)


EXTREMES = (
    {},
    {"heads": 1, "d_k": 1},
    {"heads": 64, "kv_heads": 32, "d_k": 64, "method": "random"},
    {"heads": 16, "d_k": 128, "text": "a b " * 12, "variant": "mla", "latent": 511},
    {"heads": 1, "d_k": 1, "variant": "mla"},
    {"heads": 64, "d_k": 64, "variant": "additive", "text": "a b " * 12},
)


@pytest.mark.parametrize("given", EXTREMES, ids=str)
def test_what_is_predicted_is_enough_and_not_much_more(given):
    shown = view(**given)
    for kept in (layers.grouped, layers.latent, layers.additive, layers._grouped_layer, layers._latent_layer):
        kept.cache_clear()
    assert 0.5 * guard.predict(shown) < peak_bytes(lambda: layers.narrowed(shown)) <= guard.predict(shown)


@pytest.mark.parametrize("variant", VARIANTS_OF_PAGE)
def test_what_is_too_much_is_refused_with_the_largest_that_fits(variant):
    shown = view(variant=variant, heads=64, d_k=256)
    free = int(guard.predict(replace(shown, d_k=100)) / guard.SHARE) + 4
    with pytest.raises(Refusal, match=r"64 heads with d_k 256 .* The largest d_k that fits is 100") as refused:
        guard.check(shown, free)
    assert "放不下" not in refused.value.text.zh and "100" in refused.value.text.zh
    guard.check(replace(shown, d_k=100), free)
    with pytest.raises(Refusal, match="No d_k fits"):
        guard.check(shown, 1000)


def test_a_first_head_keeps_its_own_map():
    found = narrowed(view(heads=8, kv_heads=2, method="first"))
    for head in range(8):
        assert np.allclose(found.weights[head], found.before[head], atol=1e-5) == (head in (0, 4))


@pytest.mark.parametrize(("heads", "first"), [(1, 1), (2, 1), (7, 1), (8, 2), (12, 3), (64, 16)])
def test_sharing_begins_with_four_query_heads_a_group(heads, first):
    assert config.quarter(heads) == first == settle({"heads": str(heads)}).view.kv_heads


def test_what_does_not_fit_follows_and_is_said():
    settled = settle({"heads": "6", "kv_heads": "4", "cell": "6,0,0"})
    assert settled.view.kv_heads == 3 and settled.view.cell == () and len(settled.notes) == 2
    # A model's heads changed: its KV heads would not divide them.
    other = settle({"model": "llama-3-8b", "heads": "20"})
    assert other.view.kv_heads == 5 and not other.notes


@pytest.mark.parametrize(("text", "count"), [("", 1), ("   ", 1), ("a " * 30, 24), ("a b", 2)])
def test_a_sentence_has_from_one_to_twenty_four_tokens(text, count):
    assert len(view(text=text).tokens) == count == narrowed(view(text=text)).weights.shape[1]


@pytest.mark.parametrize(("heads", "kv_heads"), [(1, 1), (8, 8), (8, 2), (12, 1), (64, 16)])
def test_every_query_head_is_wired_to_the_kv_head_it_reads(heads, kv_heads):
    figure = wiring(heads, kv_heads, query="q", shared="KV", kv="KV head {kv}", hover="{head} reads {kv}")
    *lines, upper, lower = figure["data"]
    place = {x: kv for kv, x in enumerate(lower["x"])}
    wired = {}
    for line in lines:
        for start in range(0, len(line["x"]), 3):
            head, end = line["x"][start], line["x"][start + 1]
            wired[head] = place[end]
            assert line["line"]["color"] == upper["marker"]["color"][head] == lower["marker"]["color"][place[end]]
    assert wired == {head: head // (heads // kv_heads) for head in range(heads)}
    assert upper["text"] == [f"{head} reads {kv}" for head, kv in sorted(wired.items())]
    assert lower["text"] == [f"KV head {kv}" for kv in range(kv_heads)]
    assert len(lower["x"]) == kv_heads and len(upper["x"]) == heads
    neighbours = lower["marker"]["color"]
    assert all(one != other for one, other in itertools.pairwise(neighbours))


@pytest.mark.parametrize("rope", [0, 64])
@pytest.mark.parametrize("heads", [1, 8, 128])
def test_every_head_is_wired_to_its_own_keys_and_these_to_what_is_kept(heads, rope):
    words = {name: name for name in ("query", "kept", "rotary")}
    figure = latent_wiring(heads, 512, rope, hover="{head} reads", made="made {head}", **words)
    *drawn, upper, middle = figure["data"]
    bars = {trace["text"]: (min(trace["x"]), max(trace["x"])) for trace in drawn if trace.get("text")}
    assert list(bars) == [*(["rotary 64"] if rope else []), "kept 512"]
    low, high = bars["kept 512"]
    if rope:
        start, end = bars["rotary 64"]
        assert high < start and (high - low) / (end - start) == pytest.approx(512 / 64)
    met = {}
    for trace in drawn:
        if trace.get("fill"):
            continue
        for place in range(0, len(trace["x"]), 3):
            begin, end = trace["x"][place : place + 2]
            met.setdefault((*trace["y"][:2], trace["line"]["dash"]), {})[begin] = end
    assert met.pop((1.0, 0.5, "solid")) == {head: head for head in range(heads)}
    for (_, _, dash), ends in met.items():
        start, stop = bars["kept 512"] if dash == "solid" else bars["rotary 64"]
        assert sorted(ends) == list(range(heads)) and all(start < end < stop for end in ends.values())
    # So many dotted lines as 128 would be a smudge: they are one surface, from every head's keys to the rotary key.
    fans = [trace for trace in drawn if trace.get("fill") and "text" not in trace]
    assert len(met) == 1 + bool(rope and heads <= 16) and len(fans) == bool(rope and heads > 16)
    for fan in fans:
        assert fan["x"][0] < 0 and heads - 1 < fan["x"][1] and sorted(fan["x"][2:]) == list(bars["rotary 64"])
        assert fan["y"] == [0.5, 0.5, 0.0, 0.0] and fan is drawn[0]
    assert upper["marker"]["color"] == middle["marker"]["color"] and len(middle["text"]) == heads
