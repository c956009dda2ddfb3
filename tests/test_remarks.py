"""The page says what a view does not do, in both languages."""

import pytest
from streamlit.testing.v1 import AppTest

from attnviz.text import LANGUAGES
from pages.ui.translate import say
from tests.pages import ROUTER
from tests.pages import plain as literal


def opened(**settings: str) -> AppTest:
    app = AppTest.from_file(str(ROUTER), default_timeout=60).switch_page("attention.py")
    for name, value in settings.items():
        app.query_params[name] = value
    app.run()
    assert not app.exception
    return app


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize(("lengths", "hides"), [("12", False), ("11", True)])
def test_a_mask_that_hides_nothing_is_named(language: str, lengths: str, hides: bool) -> None:
    said = "\n".join(c.value for c in opened(lang=language, mask="padding", lengths=lengths).caption)
    assert (say(language, "attention.numbers.no_effect") in said) is not hides


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize(("text", "empty"), [("  ", True), ("a b", False)])
def test_a_sentence_without_a_token_is_named(language: str, text: str, empty: bool) -> None:
    said = [caption.value for caption in opened(lang=language, text=text).caption]
    assert (say(language, "attention.no_token") in said) is empty


def test_an_unknown_language_is_named_and_leaves_the_address() -> None:
    app = opened(lang="xx", d_k="7")
    assert [literal(warning.value) for warning in app.warning] == ["lang must be one of en, zh, got 'xx'."]
    assert "lang" not in app.query_params and app.query_params["d_k"] in ("7", ["7"])
