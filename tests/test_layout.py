"""The order in which a page reaches a new visitor."""

import pytest
import streamlit as st

from pages.ui import layout


@pytest.fixture
def pauses(monkeypatch) -> list[float]:
    taken: list[float] = []
    monkeypatch.setattr(layout.time, "sleep", taken.append)
    monkeypatch.setattr(layout.st, "session_state", {})
    return taken


def test_a_new_visitor_gets_the_picture_first_and_only_once(pauses, monkeypatch):
    monkeypatch.setattr(layout.runtime, "exists", lambda: True)
    layout.picture_first()
    assert pauses == [layout.PICTURE_S] and st.session_state
    layout.picture_first()
    assert len(pauses) == 1


def test_without_a_browser_nothing_waits(pauses):
    layout.picture_first()
    assert not pauses
