"""Tokens and labels: every one, literally, as often as it stands there."""

import numpy as np
import pytest

from attnviz.figures.attention import row_bars
from pages.ui.layout import escape
from tests.pages import component, plain, plots, shown, visit


def axes(app) -> list[list[str]]:
    """Give the tokens along rows and columns of the first large map."""
    described = shown(app)[0]["parts"]["main"]["maps"][0]
    return [described[axis]["tokens"] for axis in ("row_axis", "col_axis")]


def test_case_57_a_word_that_comes_twice_is_two_rows_and_two_columns():
    """https://github.com/plotly/plotly.py/issues/4215: equal names fell together."""
    app = visit(text="the cat and the dog", cell="0,4,3")
    tokens = ["the", "cat", "and", "the", "dog"]
    assert axes(app) == [tokens, tokens]
    assert all(code.shape == (5, 5) for code in shown(app)[1]["main"])
    bars = plots(app)["attention.row"]
    ticks = bars["layout"]["yaxis"]["ticktext"]
    assert len(ticks) == len(set(ticks)) == 5


def test_case_58_every_character_of_a_chinese_sentence():
    """https://github.com/jessevig/bertviz/issues/40."""
    sentence = "我爱北京天安门，天安门上太阳升。"
    app = visit("zh", text=sentence, mask="full")
    assert axes(app) == [list(sentence)] * 2
    assert shown(app)[1]["main"][0].shape == (len(sentence),) * 2


LITERAL = ("<b>", "</script>", "a<br>b", "$x$", "&", "&amp;", "*b*", "`c`", "[l](u)", ":material/home:", "{0}")


def test_case_61_tokens_reach_the_picture_as_they_are():
    """https://github.com/plotly/documentation/issues/967: tokens were read as HTML, formulas or Markdown."""
    app = visit(text="<b> </script> $x$ & a<br>b", cell="0,3,1")
    row, col = axes(app)
    assert row == col
    assert row[:4] == ["<b>", "</script>", "$x$", "&"] and "".join(row[4:]) == "a<br>b"
    for entry in [*app.markdown, *app.caption]:
        assert not entry.allow_html


@pytest.mark.parametrize("token", LITERAL)
def test_case_61_bars_and_remarks_show_them_literally(token):
    words = {"x_title": "weight", "y_title": "key", "masked_word": "masked"}
    figure = row_bars(np.array([0.25, 0.75]), (token, "b"), allowed=np.array([True, True]), selected=0, **words)
    assert "<" not in figure.layout.yaxis.ticktext[0]
    text = figure.layout.yaxis.ticktext[0] + figure.data[1].hovertext[0]
    assert "<b>" not in text and "</script>" not in text and "$" not in text and "<br>b" not in text
    assert plain(escape(token)) == token
    app = visit(seed=token)
    assert token in plain(app.warning[0].value)
    assert escape(token) in app.warning[0].value


def test_case_61_nothing_of_a_sentence_is_code_in_the_page():
    text = "</script><img src=x onerror=alert(1)>"
    app = visit(text=text)
    assert "".join(axes(app)[0]) == text.replace(" ", "")
    assert (
        component(app, "attention.main").proto.html_content == component(visit(), "attention.main").proto.html_content
    )
