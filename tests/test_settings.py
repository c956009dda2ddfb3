"""The settings of the attention page: every choice of the registries is there, named in both languages."""

import string
from itertools import pairwise

import pytest

from attnviz import config, inputs
from attnviz.backends import BACKENDS
from attnviz.knobs import Choice, Integer, Number
from attnviz.masks import MASKS
from attnviz.mistakes import MISTAKES
from attnviz.positions import POSITIONS
from attnviz.score_mods import SCORE_MODS
from attnviz.settings import D_K_STOPS, KNOBS, LENGTH_STOPS, MOST_HEADS, OWNERS, every_name, mask_knobs, own_knobs
from attnviz.stage_list import STAGES
from attnviz.text import LANGUAGES, Refusal


@pytest.mark.parametrize(
    ("name", "registry"),
    [
        ("mistake", MISTAKES),
        ("position", POSITIONS),
        ("score_mod", SCORE_MODS),
        ("mask", MASKS),
        ("backend", BACKENDS),
        ("stage", STAGES),
        ("input", inputs.INPUTS),
        ("dtype", config.DTYPES),
    ],
)
def test_a_choice_offers_every_entry_in_order(name, registry):
    knob = KNOBS[name]
    assert isinstance(knob, Choice)
    assert list(knob.options) == list(registry)


@pytest.mark.parametrize("name", KNOBS)
def test_a_setting_is_named_in_both_languages_and_its_default_is_allowed(name):
    knob = KNOBS[name]
    assert knob.name == name
    texts = [
        knob.label,
        *([knob.help] if knob.help else []),
        *(knob.options.values() if isinstance(knob, Choice) else []),
    ]
    assert all(text.say(language).strip() for text in texts for language in LANGUAGES)
    assert knob.parse(knob.default) == knob.default
    assert knob.parse(knob.write(knob.default)) == knob.default


def test_defaults_are_those_that_the_page_promises():
    defaults = {name: knob.default for name, knob in KNOBS.items()}
    for name, value in {
        "d_k": 64, "heads": 4, "mask": "causal", "align": "top_left", "scale": "auto", "dropout": 0.0,
        "backend": "eager", "dtype": "float32", "seed": 0, "head": "all", "stage": "weights", "reduce": "max",
        "log": False,
    }.items():  # fmt: skip
        assert defaults[name] == value, name


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [("d_k", 1, 1024), ("heads", 1, 64), ("kv_heads", 1, 64), ("length", 1, 131_072), ("key_length", 1, 131_072)],
)
def test_ranges_end_where_the_design_says(name, low, high):
    knob = KNOBS[name]
    assert isinstance(knob, Integer)
    assert (knob.parse(str(low)), knob.parse(str(high))) == (low, high)
    for outside in (low - 1, high + 1):
        with pytest.raises(Refusal, match=name):
            knob.parse(str(outside))


@pytest.mark.parametrize("stops", [LENGTH_STOPS, D_K_STOPS])
def test_stops_of_a_slider_rise_and_reach_both_ends(stops):
    assert list(stops) == sorted(set(stops))
    assert stops[0] == 1
    assert stops[-1] in (1024, 4096)
    assert {64, 128, 256, 512, 1024} <= set(stops)


def test_lengths_above_64_double():
    long = [stop for stop in LENGTH_STOPS if stop >= 64]
    assert all(after == 2 * before for before, after in pairwise(long))


def test_the_scale_goes_as_far_as_float16_does_not():
    knob = KNOBS["scale_value"]
    assert isinstance(knob, Number)
    assert knob.slider_high == 4.0 and knob.high > 65_504
    assert knob.parse("0") == 0.0


def test_a_head_can_be_picked_by_its_number():
    knob = KNOBS["head"]
    assert isinstance(knob, Choice)
    assert list(knob.options) == ["all", "mean", *map(str, range(MOST_HEADS))]


@pytest.mark.parametrize("mask", MASKS)
def test_knobs_of_a_mask_never_hide_those_of_the_page(mask):
    knobs = mask_knobs(mask)
    assert not set(knobs) & set(KNOBS)
    assert [knob.name for knob in knobs.values()] == [knob.name for knob in MASKS[mask].knobs]
    assert all(name == (f"mask_{knob.name}" if knob.name in KNOBS else knob.name) for name, knob in knobs.items())
    assert set(knobs) <= every_name()


def test_no_two_entries_of_different_choices_share_a_name():
    names = {choice: {name for key in entries for name in own_knobs(choice, key)} for choice, entries in OWNERS.items()}
    for one in names:
        for other in names:
            assert one == other or not names[one] & names[other]
    assert "score_mod_seed" in names["score_mod"] and "base" in names["position"]


def test_names_are_plain_words_of_a_link():
    letters = set(string.ascii_lowercase + "_")
    assert all(set(name) <= letters for name in every_name())
    assert not every_name() & {"lang", "part", "map", "rows", "cols", "row", "col", "embed"}
