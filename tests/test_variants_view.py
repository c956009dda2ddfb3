"""The variants page's settings and numbers: models by one name, golden cache sizes, maps that are the layers' own."""

import itertools

import numpy as np
import pytest
import torch

from attnviz import variants_run as runs
from attnviz.conversion import METHODS, conversion_error, convert
from attnviz.figures.variants import wiring
from attnviz.inputs import token_vectors
from attnviz.presets import PRESETS
from attnviz.variants import VARIANTS
from attnviz.variants_view import KNOBS, MODELS, SIZES, quarter, settle, sizes
from attnviz.view_run import WIDTH
from tests import oracle


def view(**given):
    settled = settle({name: str(value) for name, value in given.items()})
    assert not settled.problems and not settled.notes
    return settled.view


@pytest.mark.parametrize("key", MODELS)
def test_a_model_sets_every_size_and_its_link_is_its_name(key):
    settled = settle({"model": key})
    shape = PRESETS[key].config
    found = settled.view
    assert (found.heads, found.kv_heads, found.d_k) == (
        shape.num_attention_heads, shape.num_key_value_heads, shape.head_dim,
    )  # fmt: skip
    assert found.width == shape.hidden_size and found.context == PRESETS[key].max_context
    assert settled.link() == {"model": key} and found.preset is PRESETS[key]
    assert runs.of_view(found).per_context == PRESETS[key].kv_cache_bytes(found.context, windows=False)
    assert settle({"model": key, "context": "7"}).view.preset is None


def test_models_that_cannot_be_drawn_are_not_offered():
    assert set(MODELS) == {
        key for key, preset in PRESETS.items() if preset.variant != "mla" and preset.config.num_attention_heads <= 64
    }
    assert "falcon-7b" not in MODELS and "deepseek-v3-1" not in MODELS and "llama-2-70b" in MODELS
    assert settle({"model": "falcon-7b"}).problems and settle({"model": "deepseek-v3-1"}).problems
    assert set(SIZES) == set(sizes(MODELS["llama-3-8b"]))


@pytest.mark.parametrize(
    ("model", "per_token"),
    [("llama-2-7b", 512), ("llama-3-1-8b", 128), ("gpt-oss-120b", 72)],
)
def test_golden_cache_sizes(model, per_token):
    assert runs.of_view(view(model=model)).per_token == per_token * 1024


def test_the_table_has_each_variant_once_and_the_published_mla():
    rows = runs.table(view(heads=128 // 2, kv_heads=8, d_k=128, width=7168, layers=61))
    assert [row.variant for row in rows] == ["mha", "gqa", "mqa", "mla"]
    assert rows[-1].elements == 576 and rows[-1].per_token == 61 * 576 * 2 and rows[-1].error is None
    mha, gqa, mqa, _ = rows
    assert gqa.per_token * 8 == mha.per_token == mqa.per_token * 64
    assert mha.parameters == 4 * 7168 * 64 * 128 and mqa.parameters == 2 * 7168 * 64 * 128 + 2 * 7168 * 128
    assert mha.error == 0 < gqa.error < mqa.error


@pytest.mark.parametrize(
    ("heads", "kv_heads", "listed"),
    [(1, 1, [1]), (7, 1, [7, 1]), (8, 8, [8, 2, 1]), (8, 1, [8, 2, 1]), (8, 4, [8, 4, 1]), (2, 1, [2, 1])],
)
def test_gqa_is_listed_where_heads_can_be_grouped(heads, kv_heads, listed):
    rows = runs.table(view(heads=heads, kv_heads=kv_heads))
    assert [row.kv_heads for row in rows] == [*listed, None]


@pytest.mark.parametrize("dtype", KNOBS["dtype"].options)
def test_bytes_follow_the_data_type_and_elements_do_not(dtype):
    row = runs.of_view(view(dtype=dtype, layers=3, context=10))
    assert row.elements == 2 * 2 * 64 and row.per_context == 10 * row.per_token
    assert row.per_token == 3 * row.elements * torch.finfo(getattr(torch, dtype)).bits // 8


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_maps_and_error_are_those_of_the_converted_layer(kv_heads, method):
    shown = view(heads=4, kv_heads=kv_heads, d_k=5, method=method, seed=3, text="one two three two")
    found = runs.shared(shown)
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


def test_a_first_head_keeps_its_own_map():
    found = runs.shared(view(heads=8, kv_heads=2, method="first"))
    for head in range(8):
        assert np.allclose(found.weights[head], found.before[head], atol=1e-5) == (head in (0, 4))


@pytest.mark.parametrize(("heads", "first"), [(1, 1), (2, 1), (7, 1), (8, 2), (12, 3), (64, 16)])
def test_sharing_begins_with_four_query_heads_a_group(heads, first):
    assert quarter(heads) == first == settle({"heads": str(heads)}).view.kv_heads


def test_what_does_not_fit_follows_and_is_said():
    settled = settle({"heads": "6", "kv_heads": "4", "cell": "6,0,0"})
    assert settled.view.kv_heads == 3 and settled.view.cell == () and len(settled.notes) == 2
    # A model's heads changed: its KV heads would not divide them.
    other = settle({"model": "llama-3-8b", "heads": "20"})
    assert other.view.kv_heads == 5 and not other.notes


@pytest.mark.parametrize(("text", "count"), [("", 1), ("   ", 1), ("a " * 30, 24), ("a b", 2)])
def test_a_sentence_has_from_one_to_twenty_four_tokens(text, count):
    assert len(view(text=text).tokens) == count == runs.shared(view(text=text)).weights.shape[1]


@pytest.mark.parametrize(("heads", "kv_heads"), [(1, 1), (8, 8), (8, 2), (12, 1), (64, 16)])
def test_every_query_head_is_wired_to_the_kv_head_it_reads(heads, kv_heads):
    figure = wiring(heads, kv_heads, query="q", shared="KV", hover="{head} reads {kv}")
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
    assert len(lower["x"]) == kv_heads and len(upper["x"]) == heads
    neighbours = lower["marker"]["color"]
    assert all(one != other for one, other in itertools.pairwise(neighbours))
