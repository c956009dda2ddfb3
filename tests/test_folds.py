"""Closed sections open by a link, on every page by the same few lines; what a link names in vain is said."""

import pytest

from attnviz.text import LANGUAGES
from tests.pages import check, go, link, plain, visit, widgets

# A section of each page that has some in its first view.
SECTIONS = {
    "attention": "snippet",
    "saturation": "snippet",
    "variants": "snippet",
    "flash": "claims",
    "linear": "snippet",
    "kv_cache": "align",
}


def state(app, key):
    return key in app.session_state and app.session_state[key]


@pytest.mark.parametrize("page", SECTIONS)
def test_a_link_opens_a_section_of_any_page(page):
    app = visit(page=page, open=SECTIONS[page])
    assert not app.warning and link(app) == {"open": SECTIONS[page]}
    keys = [key for key in (f"{page}.{SECTIONS[page]}", f"{page}.fold.{SECTIONS[page]}") if state(app, key)]
    assert len(keys) == 1


def test_another_link_opens_and_closes():
    app = visit(page="kv_cache", open="fit,paged")
    assert state(app, "kv_cache.fit") and state(app, "kv_cache.fold.paged")
    assert "kv_cache.lengths" in widgets(app) and any(entry.value.startswith("| GPU") for entry in app.markdown)
    check(app.run())  # another run of the page leaves them and the address as they are
    assert link(app) == {"open": "fit,paged"} and state(app, "kv_cache.fit")
    go(app, {"open": "fit", "step": "2"})
    assert state(app, "kv_cache.fit") and not state(app, "kv_cache.fold.paged")
    go(app, {})
    assert link(app) == {} and not state(app, "kv_cache.fit")
    assert not any(entry.value.startswith("| GPU") for entry in app.markdown)


def test_pictures_of_a_section_opened_by_link_are_asked_for_at_once():
    app = visit(page="kv_cache", open="align")
    assert "kv_cache.align.map" in {entry.key for entry in app.main if getattr(entry, "key", None)}


def test_a_setting_that_opens_a_section_needs_no_second_word():
    app = visit(page="kv_cache", block="4")
    assert state(app, "kv_cache.fold.paged") and link(app) == {"block": "4"}


HOSTILE = {
    "nonsense": "got 'nonsense'.",
    "align,<b>x</b>,fit": "got '<b>x</b>'.",
    "x" * 5000: f"got '{'x' * 40}'.",
    ",".join(f"s{i}" for i in range(9000)): "got 's0'.",
    "$x$": "got '$x$'.",
}


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_section_that_the_page_does_not_have_is_named_in_one_sentence(language):
    app = visit(language, page="kv_cache")
    for given, want in HOSTILE.items():
        go(app, {"open": given}, language)
        (warning,) = app.warning
        text = plain(warning.value)
        assert "open" in text and "align" in text and "\n" not in text
        assert want in text if language == "en" else want.removeprefix("got ").removesuffix(".") in text
        assert link(app) == ({"open": "align,fit"} if "align" in given else {})
        check(app.run())
        assert len(app.warning) == 1  # it stays to be read
    go(app, {"open": "  , ,"}, language)
    assert not app.warning and link(app) == {}


def test_a_page_without_sections_says_so_too():
    app = visit(page="home", open="code")
    (warning,) = app.warning
    assert plain(warning.value) == "open must name closed sections of this page as it is now (–), got 'code'."
