"""Additive against the dot product: equal sizes on both sides, measured on request, refused where it takes too long."""

import time

import pytest

from attnviz.benchmark import predict
from attnviz.text import LANGUAGES, Refusal
from attnviz.units import binary_bytes
from attnviz.variant_view import race
from attnviz.variant_view.settings import KNOBS
from attnviz.variant_view.view import settle
from pages.ui.translate import say
from tests.pages import check, link, plain, plots, said, visit

SMALL = {"heads": "2", "d_k": "8", "timed": "64"}


def view(**given):
    return settle(given).view


@pytest.mark.parametrize("timed", KNOBS["timed"].options)  # type: ignore[attr-defined]  # a Choice
def test_both_ways_to_score_have_the_same_sizes(timed):
    asked = race.request(view(heads="3", d_k="5", timed=timed), "en")
    assert (asked.q_len, asked.keys, asked.mask, asked.threads, asked.memory) == (
        int(timed),
        int(timed),
        "causal",
        1,
        True,
    )
    assert [(one.variant, one.backend) for one in asked.contestants] == [
        ("mha", "eager"), ("additive", "eager"), ("mha", "sdpa"), ("additive", "sdpa"),
    ]  # fmt: skip
    for one in asked.contestants:
        assert (one.config.num_attention_heads, one.config.head_dim, one.config.num_key_value_heads) == (3, 5, 3)
    dot, additive, fused, blocks = (predict(one, asked).peak_bytes for one in asked.contestants)
    assert additive >= dot and blocks > fused


@pytest.mark.parametrize("language", LANGUAGES)
def test_what_would_take_too_long_is_refused_in_one_sentence(language):
    big = {"heads": "128", "d_k": "256", "timed": "1024"}
    with pytest.raises(Refusal, match=r"128 heads with d_k 256 at length 1,024 are 34.4B values of tanh"):
        race.request(view(**big), language)
    fits = view(heads="16", d_k="64", timed="512")
    assert fits.heads * fits.d_k * 512**2 == race.MOST_ENTRIES and race.request(fits, language).q_len == 512
    app = visit(language, page="variants", **SMALL | {"timed": "1024", "heads": "64", "d_k": "64"})
    (refused,) = app.error
    assert "tanh" in refused.value and "1,024" in plain(refused.value)
    assert "variants.race.time" not in plots(app) and "variants.wires" in plots(app)


@pytest.mark.parametrize("language", LANGUAGES)
def test_it_is_measured_on_request(language):
    closed = visit(language, page="variants")
    assert say(language, "measure.start") not in [one.label for one in closed.button]
    app = visit(language, page="variants", **SMALL)
    assert link(app) == SMALL and say(language, "variants.race.time") in said(app)
    before = plots(app)["variants.race.time"]
    (button,) = [one for one in app.button if one.label == say(language, "measure.start")]
    app = check(button.click().run())
    deadline = time.monotonic() + 90
    while say(language, "measure.done") not in [one.value for one in app.caption]:
        assert time.monotonic() < deadline
        time.sleep(0.1)
        app = check(app.run())
    app = check(app.run())
    asked = race.request(view(**SMALL), language)
    for part in ("variants.race.time", "variants.race.memory"):
        alt = plots(app)[part]["layout"]["meta"]["alt"]
        assert all(one.label in alt for one in asked.contestants)
    assert plots(app)["variants.race.time"] != before and not app.warning
    peak = predict(asked.contestants[0], asked).peak_bytes  # the dot product's is predicted to the byte
    assert f"{asked.contestants[0].label}: {binary_bytes(peak)}" in alt
