"""Pins: what is set aside comes back the same, is drawn as the view on screen, and cannot break a link."""

import pytest

from attnviz import pins
from attnviz.text import Refusal
from attnviz.view import settle

ODD = "a=b&c;d%20 +#猫 <b>\t\n"


@pytest.mark.parametrize("text", ["", "the cat", ODD, "猫坐在垫子上", "100 % &amp; ="])
def test_settings_come_back_as_they_were_pinned(text):
    pin = pins.write({"d_k": "8", "text": text}, 5)
    assert pins.read(pin) == {"length": "5", "d_k": "8", "text": text}


def test_chinese_is_not_encoded_twice():
    assert "猫坐" in pins.write({"text": "猫坐"}, 2)


def test_a_pin_leaves_out_how_a_view_is_drawn_and_another_pin():
    drawing = {"stage": "scores", "cell": "0,1,2", "pin": "length=3", "compare": "difference", "log": "1"}
    assert pins.read(pins.write(drawing | {"heads": "2"}, 4)) == {"length": "4", "heads": "2"}
    assert pins.read("length=4&pin=length%3D3&stage=query") == {"length": "4"}


def test_a_text_too_long_to_pin_is_refused_with_both_numbers():
    with pytest.raises(Refusal, match="3,000"):
        pins.write({"text": "x" * 2000, "context": "y" * 2000}, 9)


def test_the_pinned_view_is_drawn_as_the_one_on_screen():
    view = settle({"pin": "length=7&d_k=4&heads=2", "stage": "scores", "head": "1", "compare": "pinned"}).view
    other = view.pinned
    assert other is not None
    assert (other.length, other.d_k, other.heads) == (7, 4, 2)
    assert (other.stage, other.head, other.pin, other.compare) == ("scores", "1", "", "now")


def test_without_a_pin_there_is_nothing_to_compare_with():
    settled = settle({"compare": "difference"})
    assert settled.view.pinned is None
    assert settled.view.compare == "now"
    assert "compare" not in settled.link()


@pytest.mark.parametrize("pin", ["nonsense", "d_k=hello", "d_k=0", "unknown=1", "&&&", "%ff=1", "length=5;", "=" * 50])
def test_a_pin_that_cannot_be_read_is_dropped_in_one_sentence(pin):
    settled = settle({"pin": pin, "compare": "difference", "d_k": "8"})
    assert len(settled.problems) == 1
    assert settled.problems[0].en.startswith("The pinned settings are dropped")
    assert settled.problems[0].zh.startswith("已取消固定")
    assert settled.view.pin == ""
    assert settled.view.compare == "now"
    assert settled.view.d_k == 8


def test_a_pin_travels_in_the_link():
    link = settle({"pin": pins.write({"text": ODD}, 3), "compare": "pinned"}).link()
    again = settle(link).view
    assert again.pinned is not None
    assert again.pinned.text == ODD
    assert again.compare == "pinned"
