"""A label in both languages, and a refusal that reads in both."""

import pytest

from attnviz.text import LANGUAGES, Refusal, Text, same


def test_each_language_gets_its_words():
    text = Text("window", "窗口")
    assert [text.say(language) for language in LANGUAGES] == ["window", "窗口"]


def test_an_unknown_language_is_named_with_the_known_ones():
    with pytest.raises(ValueError, match="en, zh, got 'fr'"):
        Text("window", "窗口").say("fr")


def test_a_text_as_field_fills_each_language_with_its_own_words():
    filled = Text("{name} is {rule}", "{name} 应为{rule}").fill(name="d_k", rule=Text("whole", "整数"))
    assert filled == Text("d_k is whole", "d_k 应为整数")


def test_braces_in_a_value_stay_as_they_are():
    assert Text("got {value}", "收到 {value}").fill(value="{x}") == Text("got {x}", "收到 {x}")


def test_same_reads_alike_in_both():
    assert same("d_k") == Text("d_k", "d_k")


def test_a_refusal_is_a_value_error_in_english_and_keeps_both():
    refusal = Refusal(Text("too long", "太长"))
    assert isinstance(refusal, ValueError)
    assert str(refusal) == "too long"
    assert refusal.text.zh == "太长"
