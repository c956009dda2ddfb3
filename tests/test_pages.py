"""Every page, opened by links good and bad, in both languages: words, notes, and never a traceback."""

import re

import pytest
from streamlit.testing.v1 import AppTest

from attnviz import device
from attnviz.backends import BACKENDS
from attnviz.inputs import INPUTS
from attnviz.knobs import Choice
from attnviz.masks import MASKS
from attnviz.settings import KNOBS, mask_knobs
from attnviz.stage_list import STAGES
from attnviz.text import LANGUAGES
from pages import PAGES, entries
from pages.ui import attention_picture
from pages.ui.heatmap.frame import unpack
from pages.ui.translate import say
from tests.pages import ROUTER, check, component, go, keys, link, plain, plots, said, shown, visit, widgets

CHOICES = [(name, option) for name, knob in KNOBS.items() if isinstance(knob, Choice) for option in knob.options]
# Sixty-four numbers of heads are one kind of value.
CHOICES = [(name, option) for name, option in CHOICES if not (name == "head" and option.isdigit() and int(option) > 1)]


@pytest.fixture(scope="module")
def app() -> AppTest:
    """One visitor who opens one link after another."""
    return visit()


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("entry", entries(), ids=lambda entry: entry.key)
def test_every_page_in_every_language(entry, language):
    fresh = visit(language, page=entry.key)
    assert fresh.title[0].value == say(language, f"{entry.key}.title")
    words = said(fresh)
    assert re.search("[\u4e00-\u9fff]", words) if language == "zh" else "see" in words
    assert "{" not in re.sub(r"\$[^$]*\$|`[^`]*`", "", "\n".join(entry.value for entry in fresh.caption))


def test_pages_are_files_with_an_icon_and_a_name():
    for section, group in PAGES.items():
        for entry in group:
            assert (ROUTER.parent / f"{entry.key}.py").exists()
            assert re.fullmatch(r":material/[a-z_]+:", entry.icon)
            assert all(say(language, f"{entry.key}.nav") for language in LANGUAGES)
        assert not section or all(say(language, f"section.{section}") for language in LANGUAGES)


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_attention_page_says_what_the_numbers_are(language):
    fresh = visit(lang=language)
    for key in ("untrained", "lead", "words.qkv", "row.hint"):
        assert say(language, f"attention.{key}") in said(fresh)
    assert fresh.caption[-1].value.count("https://") >= 5  # sources


@pytest.mark.parametrize(("name", "option"), CHOICES, ids=lambda value: str(value))
def test_every_key_of_every_registry_by_link(name, option, app):
    settings = {name: option}
    # Some stages are there only with what makes them.
    needs = {"waves": {"position": "sinusoidal"}, "turn": {"position": "rope"}, "change": {"score_mod": "alibi"}}
    around = needs.get(STAGES[option].only or "", {}) if name == "stage" else {}
    around = {"pin": "length=7"} if name == "compare" else around
    if name == "device" and option not in device.present():
        pytest.skip("no such device here")
    go(app, settings | around, "zh" if len(option) % 2 else "en")
    assert not app.warning
    assert bool(app.error) == (name == "mistake" and option != "none")  # which is said as loudly as an error
    assert link(app) == around | ({} if option == KNOBS[name].default else {name: option})
    if f"attention.{name}" in widgets(app):
        assert widgets(app)[f"attention.{name}"] == option


@pytest.mark.parametrize("mask", MASKS)
def test_every_mask_brings_its_own_controls(mask, app):
    go(app, {"mask": mask, "length": "19"})
    there = keys(app)
    assert {f"attention.{name}" for name in mask_knobs(mask)} <= there
    others = {name for other in MASKS for name in mask_knobs(other)} - set(mask_knobs(mask))
    assert not {f"attention.{name}" for name in others} & there


HOSTILE = {
    "d_k=hello": ({"d_k": "hello"}, "d_k must be a whole number from 1 to 1,024, got 'hello'."),
    "d_k=2500": ({"d_k": "2500"}, "d_k must be a whole number from 1 to 1,024, got '2500'."),
    "mask=nothing": ({"mask": "nothing"}, "mask must be one of full, causal"),
    "unknown": ({"dk": "64"}, "'dk' is not a setting of this page."),
    "markup": ({"seed": "<script>alert(1)</script>"}, "got '<script>alert(1)</script>'."),
    "markdown": ({"seed": "[x](javascript:alert(1))"}, "got '[x](javascript:alert(1))'."),
    "formula": ({"seed": "$x$"}, "got '$x$'."),
    "name": ({"**bold** :material/home:": "1"}, "'**bold** :material/home:' is not a setting"),
    "flood": ({"seed": "9" * 4000}, "seed must be a whole number"),
    "tree": ({"mask": "tree", "parents": "5"}, "parent of draft token 1 must be from 0 to 0, got 5"),
    "window": ({"mask": "sliding_window", "window": "-3"}, "window must be a whole number from 1"),
    "lengths": ({"mask": "padding", "lengths": "a,b"}, "lengths must be whole numbers"),
    "cell": ({"cell": "x"}, "cell must be"),
    "log": ({"log": "yes"}, "log must be 0 or 1, got 'yes'."),
    "empty": ({"heads": ""}, "heads must be a whole number from 1 to 64, got ''."),
    "text": ({"text": "x" * 2001}, "text must be text of at most 2,000 characters"),
    "nan": ({"scale": "custom", "scale_value": "nan"}, "scale_value must be a number from 0"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_bad_value_is_named_once_and_literally(name, app):
    settings, words = HOSTILE[name]
    go(app, settings)
    (warning,) = app.warning
    assert words in plain(warning.value)
    assert len(warning.value) < 900
    assert not re.search(r"(?<!\\)[<$\[*]", warning.value)
    assert not set(settings) - {"mask", "scale"} & set(link(app))  # what could not be read is gone from the address


@pytest.mark.parametrize("language", LANGUAGES)
def test_several_bad_values_are_all_named(language, app):
    go(app, {"d_k": "hello", "heads": "99", "zzz": "1"}, language)
    (warning,) = app.warning
    assert all(name in plain(warning.value) for name in ("d_k", "heads", "zzz"))


FOLLOWERS = {
    "kv_heads": ({"heads": "3", "kv_heads": "2"}, {"heads": "3", "kv_heads": "1"}, "kv_heads must divide heads"),
    "window": (
        {"mask": "sliding_window", "window": "50", "length": "9"},
        {"mask": "sliding_window", "window": "9", "length": "9"},
        "window was 50, which is more than the 9 keys",
    ),
    "head": ({"heads": "2", "head": "7"}, {"heads": "2"}, "head 7 does not exist among 2 heads"),
    "cell": ({"cell": "9,9,9"}, {}, "cell 9,9,9 lies outside the map"),
}


@pytest.mark.parametrize("name", FOLLOWERS)
def test_what_follows_is_said_and_written_into_the_address(name, app):
    given, left, words = FOLLOWERS[name]
    go(app, given)
    assert words in plain(app.warning[0].value)
    kept = link(app)
    if name == "window":  # the default of three keys or nine is the window's own limit
        assert kept.items() <= left.items() and kept["length"] == "9"
    else:
        assert kept == left
    # It stays on the page while nothing changes and goes with the next change.
    check(app.run())
    assert words in plain(app.warning[0].value)
    app.number_input(key="attention.seed").set_value(app.number_input(key="attention.seed").value + 1)
    check(app.run())
    assert not app.warning


def test_a_widget_writes_the_address_and_keeps_the_rest():
    app = visit(mask="sliding_window", window="3", heads="2", seed="5")
    app.session_state["attention.compute"] = True  # its section is open
    app.run()
    app.selectbox(key="attention.backend").set_value("sdpa")
    check(app.run())
    assert link(app) == {"mask": "sliding_window", "window": "3", "heads": "2", "seed": "5", "backend": "sdpa"}
    app.selectbox(key="attention.mask").set_value("causal")
    check(app.run())
    assert "window" not in link(app) and "mask" not in link(app)


def test_a_section_is_open_where_a_link_changes_what_is_in_it():
    assert not {"attention.backend", "attention.log"} & set(widgets(visit()))
    app = visit(backend="sdpa")
    assert widgets(app)["attention.backend"] == "sdpa"
    assert "attention.log" not in widgets(app)
    app.selectbox(key="attention.backend").set_value("eager")
    check(app.run())
    assert "attention.backend" in widgets(app)  # it stays open when its settings are back at their defaults


@pytest.mark.parametrize("late", [{}, {"heads": "3"}])
def test_an_address_that_lags_behind_undoes_nothing(late):
    app = visit(heads="2")
    app.query_params = {name: [value] for name, value in late.items()} | {"lang": ["en"]}
    app.number_input(key="attention.seed").set_value(3)
    check(app.run())
    assert link(app) == {"heads": "2", "seed": "3"}


def test_a_language_switch_keeps_every_control():
    settings = {"heads": "6", "kv_heads": "3", "d_k": "20", "mask": "padding", "lengths": "4", "scale": "custom",
                "scale_value": "0.7", "dropout": "0.2", "backend": "flash", "cell": "1,2,1", "stage": "scores",
                "text": "a <b> 猫", "log": "1"}  # fmt: skip
    app = visit(**settings, lang="en")
    before = widgets(app)
    switch = next(entry for entry in app.get("button_group") if entry.key == "app.language")
    switch.set_value("zh")
    check(app.run())
    assert app.title[0].value == say("zh", "attention.title")
    assert link(app) == settings
    assert widgets(app) == before and len(before) > 10
    chinese, english = shown(app)[1]["main"], shown(visit(**settings, lang="en"))[1]["main"]
    assert all((one == other).all() for one, other in zip(chinese, english, strict=True))


def test_reset_takes_everything_back():
    app = visit(mask="full", heads="2", d_k="8", text="x y", cell="0,0")
    app.button(key="attention.reset").click()
    check(app.run())
    assert link(app) == {}
    assert app.selectbox(key="attention.mask").value == "causal"


def test_a_cleared_address_is_the_default_page_again():
    app = visit(mask="full")
    go(app, {})
    assert app.selectbox(key="attention.mask").value == "causal"


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_view_that_is_too_large_is_refused_and_the_app_stays_alive(language):
    app = visit(length="131072", heads="64", lang=language)
    (error,) = app.error
    assert "131,072" in error.value and "GiB" in plain(error.value)
    assert "attention.main" not in keys(app)
    nearest = int(re.findall(r"[\d,]+", plain(error.value))[-1].replace(",", ""))
    assert 1 < nearest < 131_072
    # Words and controls are there, and a smaller length draws again.
    assert say(language, "attention.words.title") in said(app) and "attention.length" in keys(app)
    go(app, {"length": "16", "heads": "64", "d_k": "1"}, language)
    assert not app.error and "attention.main" in keys(app)


def test_an_average_of_one_head_is_that_head():
    app = visit(heads="1", head="mean")
    assert not app.warning
    assert shown(app)[0]["parts"]["main"]["maps"][0]["rows"] == 12


@pytest.mark.parametrize("settings", [{}, {"heads": "3", "stage": "scores"}, {"head": "mean"}, {"backend": "flash"}])
def test_the_page_and_the_live_route_draw_the_same(settings):
    app = visit(**settings)
    for part, key in ((attention_picture.MAIN, "attention.main"), (attention_picture.STRIP, "attention.strip")):
        header, codes = shown(app, key)
        live_header, live_codes = unpack(attention_picture.frame(settings | {"lang": "en"}))
        assert header["parts"][part]["maps"] == live_header["parts"][part]["maps"] or part == attention_picture.STRIP
        assert header["config"]["url"] == "/live/attention"
        assert header["params"] == settings | {"lang": "en"}
        for one, other in zip(codes[part], live_codes[part], strict=True):
            assert (one == other).all()


def test_two_visitors_do_not_see_each_other():
    one, other = visit(heads="2", mask="full"), visit(heads="3")
    check(one.run())
    assert link(one) == {"heads": "2", "mask": "full"}
    assert link(other) == {"heads": "3"}
    assert len(shown(one)[1]["main"]) == 2 and len(shown(other)[1]["main"]) == 3


def test_a_selected_row_shows_its_numbers_and_can_be_cleared():
    app = visit(cell="1,3,2")
    assert component(app, "attention.main") is not None
    assert shown(app)[0]["config"]["selected"] == {"map": "1", "query": 3, "key": 2}
    assert "Sum 1 · entropy" in plots(app)["attention.row"]["layout"]["meta"]["caption"]
    app.button(key="attention.clear").click()
    check(app.run())
    assert link(app) == {} and "attention.row" not in plots(app)


def test_registries_are_all_there():
    assert {"backend": len(BACKENDS), "mask": len(MASKS), "stage": len(STAGES), "input": len(INPUTS)} == {
        name: sum(1 for choice, _ in CHOICES if choice == name) for name in ("backend", "mask", "stage", "input")
    }
