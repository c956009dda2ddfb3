"""The guard: what it predicts is what is taken, and what is too much is refused with a size that fits."""

from dataclasses import replace

import pytest

from attnviz import guard, pictures, view_run
from attnviz.text import LANGUAGES, Refusal
from attnviz.view import View, settle
from pages.ui import attention_picture
from tests.peak import peak_bytes

MEBI = 2**20
VIEWS = {
    "default": {"length": "1024"},
    "one head": {"length": "2048", "heads": "1"},
    "half": {"length": "1024", "dtype": "float16"},
    "half, fused": {"length": "1024", "dtype": "float16", "backend": "sdpa"},
    "half, fused, averaged": {
        "length": "2048", "dtype": "float16", "backend": "sdpa", "head": "mean", "stage": "scores", "reduce": "mean",
    },
    "brain half, tiled": {"length": "1024", "dtype": "bfloat16", "backend": "flash"},
    "mean of the heads": {"length": "1024", "head": "mean", "stage": "scores", "reduce": "mean"},
    "pooled mean": {"length": "2048", "heads": "1", "stage": "masked", "reduce": "mean"},
    "dropout": {"length": "1024", "heads": "2", "dropout": "0.2"},
    "mask per head": {"length": "1024", "mask": "random_block"},
    "mask per head, fused": {"length": "1024", "mask": "random_block", "backend": "sdpa"},
    "mask spread out": {"length": "2048", "mask": "padding", "lengths": "2000", "backend": "sdpa", "head": "0"},
    "wide projections": {"length": "16", "d_k": "512", "heads": "32"},
    "bias": {"length": "1024", "score_mod": "alibi"},
    "bias, one of many heads": {"length": "2048", "score_mod": "t5_bias", "heads": "16", "d_k": "8", "head": "0"},
    "bias, fused": {
        "length": "2048", "score_mod": "alibi", "heads": "16", "d_k": "8", "head": "0", "backend": "sdpa",
    },
    "bias, tiled": {
        "length": "2048", "score_mod": "alibi", "heads": "16", "d_k": "8", "head": "0", "backend": "flash",
    },
    "cap": {"length": "1024", "score_mod": "softcap"},
    "cap, fused": {"length": "4096", "score_mod": "softcap", "heads": "2", "d_k": "16", "backend": "sdpa"},
    "cap, half, tiled": {"length": "1024", "score_mod": "softcap", "dtype": "float16", "backend": "flash"},
    "rotated": {"length": "2048", "position": "rope", "heads": "16", "head": "0"},
    "rotated, many heads": {"length": "256", "position": "rope", "heads": "64", "d_k": "256", "head": "0"},
    "wrong axis": {"length": "1024", "mistake": "wrong_axis"},
    "wrong axis, one of many heads": {"length": "1024", "mistake": "wrong_axis", "heads": "8", "head": "0"},
    "wrong axis and all else": {"length": "1024", "mistake": "wrong_axis", "score_mod": "alibi", "dropout": "0.2"},
    "late scale, half": {"length": "1024", "mistake": "late_scale", "dtype": "float16"},
    "latent": {"length": "1024", "variant": "mla"},
    "latent, many heads": {"length": "512", "variant": "mla", "heads": "64", "d_k": "256", "latent": "8", "head": "0"},
    "latent, few tokens, rotated": {
        "length": "8", "variant": "mla", "heads": "32", "d_k": "256", "latent": "1024", "position": "rope",
    },
    "latent, half, fused": {
        "length": "2048", "variant": "mla", "heads": "16", "dtype": "bfloat16", "backend": "sdpa", "head": "0",
    },
    "waves": {"length": "64", "position": "sinusoidal", "attention": "cross", "key_length": "4096"},
    "cross": {"length": "64", "attention": "cross", "key_length": "4096"},
}  # fmt: skip


def view_of(**settings: str) -> View:
    settled = settle(settings)
    assert not settled.problems and not settled.notes
    return settled.view


@pytest.mark.parametrize("name", VIEWS)
def test_no_view_takes_more_than_predicted_nor_far_less(name):
    view = view_of(**VIEWS[name])
    view_run._run.cache_clear()
    view_run._tensors.cache_clear()

    def work():
        call, ran = view_run.run(view)
        return pictures.draw(call, attention_picture.requests(view), ran)

    taken, predicted = peak_bytes(work), guard.predict(view).total
    assert taken <= predicted + MEBI
    assert predicted <= 1.6 * taken + MEBI


def test_a_prediction_needs_no_allocation():
    view = view_of(length="100000", mask="causal", heads="8", backend="sdpa")
    assert peak_bytes(lambda: guard.predict(view)) == 0
    with pytest.raises(Refusal):
        guard.check(view)


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_refusal_gives_both_numbers_and_a_size_that_fits(language):
    view = view_of(length="4096", heads="8")
    with pytest.raises(Refusal) as refused:
        guard.check(view, free_bytes=100 * MEBI)
    sentence = refused.value.text.say(language)
    for part in ("4,096 × 4,096", "8", "64", "25 MiB", view.device):
        assert part in sentence
    assert "{" not in sentence


def nearest(view: View, free: int) -> int:
    """Read the size that a refusal names; 0 if it names none."""
    with pytest.raises(Refusal) as refused:
        guard.check(view, free_bytes=free)
    last = str(refused.value).rsplit("The nearest length that fits is ", 1)
    return int(last[1].rstrip(".").replace(",", "")) if len(last) == 2 else 0


@pytest.mark.parametrize(
    ("settings", "free"),
    [
        ({"length": "4096", "heads": "8"}, 100 * MEBI),
        ({"length": "131072", "heads": "1", "d_k": "8"}, 2**40),
        ({"length": "3000", "attention": "cross", "key_length": "4000"}, 60 * MEBI),
        ({"length": "50000", "backend": "flash", "mask": "causal"}, 2**40),
    ],
)
def test_the_nearest_size_fits_and_the_next_does_not(settings, free):
    view = view_of(**settings)
    size = nearest(view, free)
    assert 0 < size < view.length
    keys = size if view.attention == "self" else min(view.key_length, size)
    guard.check(replace(view, length=size, key_length=keys), free_bytes=free)
    more = size + 1 if view.attention == "self" else min(view.key_length, size + 1)
    with pytest.raises(Refusal):
        guard.check(replace(view, length=size + 1, key_length=more), free_bytes=free)


def test_where_no_length_fits_the_sentence_says_what_to_lower():
    view = view_of(length="64", heads="64", d_k="1024")
    assert nearest(view, 2 * MEBI) == 0
    with pytest.raises(Refusal, match="No length fits; lower the heads or d_k"):
        guard.check(view, free_bytes=2 * MEBI)


def test_what_fits_is_given_back_as_predicted():
    view = view_of(length="64")
    assert guard.check(view) == guard.predict(view)


def test_the_limit_is_a_share_of_what_is_free():
    view = view_of(length="512")
    need = guard.predict(view).total
    guard.check(view, free_bytes=int(need / guard.SHARE) + 4)
    with pytest.raises(Refusal):
        guard.check(view, free_bytes=int(need / guard.SHARE) - 4)


def test_work_on_single_scores_counts_where_the_product_is_small():
    """At d_k 1 the products are nothing, yet each score is masked, exponentiated and pooled all the same."""
    view = view_of(length="100000", heads="1", d_k="1")
    assert guard.predict(view).flops < guard.MOST_FLOPS["cpu"]
    with pytest.raises(Refusal):
        guard.check(view, free_bytes=2**40)


@pytest.mark.parametrize("backend", ["eager", "sdpa", "flash"])
def test_flops_are_two_products_of_what_runs_and_what_is_drawn(backend):
    view = view_of(length="32", heads="8", d_k="16", head="3", backend=backend)
    heads = 1 if backend == "eager" else 9
    assert guard.predict(view).flops == 2 * 2 * 32 * 32 * 16 * heads


def test_blocks_are_counted():
    assert guard.predict(view_of(length="1024", heads="4")).blocks == 2
    assert guard.predict(view_of(length="1024", heads="4", head="0")).blocks == 1
