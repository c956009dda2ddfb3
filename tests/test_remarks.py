"""The page says what a view does not do, in both languages."""

import pytest
from streamlit.testing.v1 import AppTest

from attnviz.text import LANGUAGES
from pages.ui.translate import say
from tests.pages import ROUTER
from tests.pages import plain as literal


def opened(**settings: str | list[str]) -> AppTest:
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


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_few_remarks_are_shown_and_the_rest_is_folded(language: str) -> None:
    wrong = dict.fromkeys(("d_k", "heads", "kv_heads", "length", "seed"), "x")
    app = opened(lang=language, **wrong)
    (warning,) = app.warning
    (more,) = [entry for entry in app.expander if entry.label == say(language, "app.more_remarks", count=2)]
    shown, folded = (literal(text).split("\n\n") for text in (warning.value, more.markdown[0].value))
    assert (len(shown), len(folded)) == (3, 2) and not more.proto.expanded
    assert all(any(name in sentence for sentence in shown + folded) for name in wrong)


@pytest.mark.parametrize("wrong", [1, 3])
def test_few_remarks_are_not_folded(wrong: int) -> None:
    app = opened(**dict.fromkeys(("d_k", "heads", "seed")[:wrong], "x"))
    assert len(literal(app.warning[0].value).split("\n\n")) == wrong
    assert not [entry for entry in app.expander if "more" in entry.label]


@pytest.mark.parametrize(
    ("language", "sentence"),
    [
        ("en", "d_k stands in the link more than once; the last one counts: '7'."),
        ("zh", "d_k 在链接中出现了多次，以最后一个为准：'7'。"),
    ],
)
def test_what_stands_twice_in_a_link_is_named(language: str, sentence: str) -> None:
    app = opened(d_k=["9", "7"], lang=language)
    assert [literal(warning.value) for warning in app.warning] == [sentence]
    assert app.query_params["d_k"] in ("7", ["7"])
    app.run()
    assert [literal(warning.value) for warning in app.warning] == [sentence]


def test_an_odd_name_that_stands_twice_is_literal() -> None:
    (warning,) = opened(**{"**b**": ["1", "2"]}).warning
    assert "'**b**' stands in the link more than once" in literal(warning.value)
