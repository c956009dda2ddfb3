"""Settings: what each kind takes from a link or a widget, and what it refuses, by name."""

import math

import numpy as np
import pytest

from attnviz.knobs import Choice, Flag, Integer, Lengths, Number, Words
from attnviz.text import Refusal, Text, same

INTEGER = Integer("window", same("w"), 4, low=1, high=9)
SIGNED = Integer("shift", same("s"), 0, low=-3, high=3)
NUMBER = Number("scale", same("s"), 0.5, low=0.0, high=4.0)
CHOICE = Choice("side", same("side"), "left", options={"left": Text("left", "左"), "right": Text("right", "右")})
FLAG = Flag("log", same("log"), False)
LENGTHS = Lengths("lengths", same("l"), (1,), low=0, high=9, most=3)
WORDS = Words("text", same("t"), "", most=5)


@pytest.mark.parametrize(
    ("knob", "raw", "value"),
    [
        (INTEGER, "1", 1),
        (INTEGER, 9, 9),
        (INTEGER, 3.0, 3),
        (INTEGER, np.int64(3), 3),
        (SIGNED, "-3", -3),
        (NUMBER, "0", 0.0),
        (NUMBER, "1e-2", 0.01),
        (NUMBER, 4, 4.0),
        (CHOICE, "right", "right"),
        (FLAG, "1", True),
        (FLAG, "0", False),
        (FLAG, True, True),
        (LENGTHS, "1,2, 3", (1, 2, 3)),
        (LENGTHS, [0, 9], (0, 9)),
        (LENGTHS, 5, (5,)),
        (LENGTHS, np.array([4, 2]), (4, 2)),
        (WORDS, "abcde", "abcde"),
        (WORDS, "", ""),
    ],
)
def test_a_good_value_is_taken(knob, raw, value):
    parsed = knob.parse(raw)
    assert parsed == value
    assert type(parsed) is type(value)


def test_too_long_a_list_is_told_how_long_it_may_be():
    for raw in ("1,2,3,4", [1, 2, 3, 4], "1," * 400):
        with pytest.raises(ValueError, match="lengths must be at most 3 whole numbers"):
            LENGTHS.parse(raw)
    with pytest.raises(ValueError, match="whole numbers from 0 to 9"):
        LENGTHS.parse("1,2,10")


BAD = [
    *(
        (INTEGER, raw)
        for raw in ("0", "10", 10, "3.5", 2.5, "1_0", " 3", "+3", "٣", "", "abc", "9" * 50, True, None, [3])
    ),
    *((INTEGER, raw) for raw in (math.inf, math.nan, np.array([1, 2]))),
    *((SIGNED, raw) for raw in ("--3", "-4", "-")),
    *((NUMBER, raw) for raw in ("-0.1", "4.1", "nan", "inf", "0_1", " 1", "٣", "", "x", None, True, math.nan, 10**400)),
    *((NUMBER, raw) for raw in ("1" * 33,)),
    *((CHOICE, raw) for raw in ("Left", "", None, ["left"])),
    *((FLAG, raw) for raw in ("true", "", 2, None)),
    *((LENGTHS, raw) for raw in ("", "1,,2", "1,2,3,4", "10", "-1", (), [True], [1.5], None, "1,2" * 100)),
    *((WORDS, raw) for raw in ("abcdef", None, 3)),
]


@pytest.mark.parametrize(("knob", "raw"), BAD, ids=[f"{knob.name}-{str(raw)[:12]}" for knob, raw in BAD])
def test_a_bad_value_is_refused_by_name_in_both_languages(knob, raw):
    with pytest.raises(Refusal) as caught:
        knob.parse(raw)
    text = caught.value.text
    assert text.en.startswith(f"{knob.name} must be ")
    assert text.zh.startswith(f"{knob.named.zh}应为")
    assert repr(str(raw)[:5])[:-1] in text.en


def test_a_chinese_sentence_begins_with_the_label():
    knob = Integer("window", Text("Window", "窗口"), 4, low=1, high=9)
    with pytest.raises(Refusal) as caught:
        knob.parse("250")
    assert caught.value.text.zh == "窗口（window）应为 1 到 9 之间的整数，收到的是 '250'。"
    assert INTEGER.named.zh == "w（window）" and FLAG.named.zh == "log "


def test_a_choice_is_shown_by_its_label_in_chinese():
    assert CHOICE.shown("right") == Text("right", "右") and LENGTHS.shown((1, 2)) == "1,2"


def test_the_rule_and_the_value_are_in_the_sentence():
    with pytest.raises(Refusal, match="window must be a whole number from 1 to 9, got '250'"):
        INTEGER.parse("250")
    with pytest.raises(Refusal, match="side must be one of left, right, got 'up'"):
        CHOICE.parse("up")


def test_a_long_bad_value_is_cut():
    with pytest.raises(Refusal) as caught:
        CHOICE.parse("x" * 10_000)
    assert len(str(caught.value)) < 120


@pytest.mark.parametrize(
    ("knob", "value"),
    [
        (INTEGER, 7),
        (SIGNED, -2),
        (NUMBER, 0.1),
        (NUMBER, 1 / 3),
        (CHOICE, "left"),
        (FLAG, True),
        (FLAG, False),
        (LENGTHS, (3, 1)),
        (WORDS, "a b"),
    ],
)
def test_what_a_link_carries_reads_back(knob, value):
    parsed = knob.parse(knob.write(value))
    assert parsed == (pytest.approx(value, rel=1e-11) if isinstance(value, float) else value)
