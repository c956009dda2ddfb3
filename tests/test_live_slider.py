"""The server's side of the live slider: what it believes of a browser's message, and what it tells the browser."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from pages.ui.live_slider import WORD_KEYS, live_slider, released_seq, released_value

WORDS = dict.fromkeys(WORD_KEYS, "word")
SEQ = 1_700_000_000_000


def page() -> None:
    import streamlit as st

    from pages.ui.bus import Group
    from pages.ui.live_slider import WORD_KEYS, live_slider

    group = Group("g", "/live/g", {"d_k": "64", "lang": "en"}, acks={"other": 3}, run=5)
    words = dict.fromkeys(WORD_KEYS, "word")
    value = live_slider(
        "d_k", "d_k", 64, low=1, high=128, step=1, group=group, key="s", words=words, typed_high=1024
    )  # fmt: skip
    share = live_slider("share", "share", 0.5, low=0.0, high=1.0, step=0.1, group=group, key="f", words=words)
    st.text(f"{value!r} {share!r}")


def run(**messages: object) -> tuple[str, list[dict[str, Any]]]:
    """Run the page as if the browser had sent ``messages``; give its words and what it sends to the sliders."""
    app = AppTest.from_function(page, default_timeout=20)
    for key, message in messages.items():
        app.session_state[key] = message
    app.run()
    assert not app.exception
    sent = [json.loads(element.proto.json) for element in app.get("bidi_component")]
    return app.text[0].value, sent


def test_the_browser_gets_the_group_and_the_slider() -> None:
    said, (first, second) = run()
    assert said == "64 0.5"
    assert (first["group"], first["url"], first["run"]) == ("g", "/live/g", 5)
    assert first["params"] == {"d_k": "64", "lang": "en"}
    assert first["acks"] == {"other": 3, "d_k": 0}
    assert (first["value"], first["default"], first["typed_high"], first["integer"]) == (64, 64, 1024, True)
    assert (second["typed_high"], second["integer"]) == (1.0, False)


def test_a_release_is_taken_and_confirmed() -> None:
    said, (first, second) = run(
        s={"release": {"value": 900, "seq": SEQ}}, f={"release": {"value": 1, "seq": SEQ + 1}}
    )  # fmt: skip
    assert said == "900 1.0"
    assert (first["value"], first["acks"]["d_k"]) == (900, SEQ)
    assert (second["value"], second["acks"]["share"]) == (1.0, SEQ + 1)


@pytest.mark.parametrize(
    "value",
    [1025, 0, -1, 64.5, float("nan"), float("inf"), 10**400, True, "65", None, [65], {"value": 65}],
)
def test_a_value_that_cannot_be_is_ignored_but_confirmed(value: object) -> None:
    said, (first, _) = run(s={"release": {"value": value, "seq": SEQ}})
    assert said == "64 0.5"
    assert (first["value"], first["acks"]["d_k"]) == (64, SEQ)


@pytest.mark.parametrize(
    "message",
    [{"release": {"value": 65, "seq": seq}} for seq in ("9", True, -1, 2**53, 1.5, None, [1])],
)
def test_a_number_that_cannot_be_confirms_nothing(message: Mapping[str, object]) -> None:
    _, (first, _) = run(s=message)
    assert first["acks"]["d_k"] == 0


@pytest.mark.parametrize("message", [{}, {"release": None}, {"release": [1, 2]}, {"release": "65"}, {"other": 1}])
def test_a_message_of_another_shape_is_no_message(message: Mapping[str, object]) -> None:
    said, (first, _) = run(s=message)
    assert said == "64 0.5"
    assert first["acks"]["d_k"] == 0


def test_without_a_message_there_is_no_value() -> None:
    app = AppTest.from_function(lambda: None).run()
    assert not app.exception
    assert released_seq("nowhere") == 0
    assert released_value("nowhere", low=0, high=1, integer=True) is None


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"low": 0, "high": 9}, "exactly one of stops and step"),
        ({"low": 0, "high": 9, "step": 1, "stops": [1, 2]}, "exactly one of stops and step"),
        ({"low": 0, "high": 9, "stops": []}, "stops must rise"),
        ({"low": 0, "high": 9, "stops": [3, 2]}, "stops must rise"),
        ({"low": 0, "high": 9, "stops": [3, 3]}, "stops must rise"),
        ({"low": 0, "high": 9, "stops": [3, 10]}, "stops must rise"),
        ({"low": 9, "high": 0, "step": 1}, "low <= high"),
        ({"low": 0, "high": 9, "step": 0}, "step > 0"),
        ({"low": 0, "high": 9, "step": 1, "words": {}}, "words must have"),
    ],
)
def test_misuse_names_the_rule(options: dict[str, Any], words: str) -> None:
    arguments: dict[str, Any] = {"words": WORDS, "group": None, "key": "s", **options}
    with pytest.raises(ValueError, match=words):
        live_slider("d_k", "d_k", 1, **arguments)
