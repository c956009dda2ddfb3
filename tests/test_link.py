"""Links: the address wins when it was changed from outside, the session otherwise, and one write is one entry."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from pages.ui import link


class Query(dict[str, str]):
    """Stand in for ``st.query_params``, counting what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = 0

    def from_dict(self, wanted: Mapping[str, str]) -> None:
        self.writes += 1
        self.clear()
        self.update(wanted)

    def get_all(self, name: str) -> list[str]:
        return [self[name]]


class Browser:
    """Stand in for the visitor: address, session and the browser's language."""

    def __init__(self) -> None:
        self.query_params = Query()
        self.session_state: dict[str, Any] = {}
        self.locale: str | None = "en-US"

    @property
    def context(self) -> "Browser":
        return self

    def type(self, **settings: str) -> None:
        """Put another address into the bar."""
        self.query_params.clear()
        self.query_params.update(settings)


@pytest.fixture
def browser(monkeypatch: pytest.MonkeyPatch) -> Iterator[Browser]:
    stand_in = Browser()
    monkeypatch.setattr(link, "st", stand_in)
    return stand_in


def run(page: str, settings: Mapping[str, str]) -> dict[str, str] | None:
    """Do what a run of a page does: read what arrived, write what stands."""
    arrived = link.incoming(page)
    link.write(page, settings if arrived is None else arrived)
    return arrived


def test_the_first_link_arrives_without_what_belongs_to_the_app(browser):
    browser.type(d_k="8", lang="zh", embed="true", embed_options="dark_theme")
    assert link.incoming("a") == {"d_k": "8"}


def test_an_address_that_the_page_wrote_itself_is_no_news(browser):
    browser.type(d_k="8")
    assert run("a", {}) == {"d_k": "8"}
    assert run("a", {"d_k": "8"}) is None
    assert run("a", {"d_k": "9"}) is None
    assert browser.query_params == {"d_k": "9"}


def test_the_back_button_is_news(browser):
    run("a", {})
    run("a", {"d_k": "9"})
    browser.type()
    assert link.incoming("a") == {}


def test_an_address_that_is_late_does_not_undo_a_control(browser):
    run("a", {})
    run("a", {"d_k": "9"})
    browser.type()  # the browser asked for this run before it had heard of d_k
    link.from_control()
    assert run("a", {"d_k": "9", "heads": "2"}) is None
    assert browser.query_params == {"d_k": "9", "heads": "2"}
    browser.type(d_k="9")
    assert link.incoming("a") == {"d_k": "9"}  # and the back button is news again


def test_a_control_does_not_hide_the_first_link(browser):
    browser.type(d_k="8")
    link.from_control()
    assert link.incoming("a") == {"d_k": "8"}


def test_writing_what_stands_there_is_no_entry_in_the_history(browser):
    link.write("a", {"d_k": "9"})
    before = browser.query_params.writes
    for _ in range(3):
        link.write("a", {"d_k": "9"})
    assert browser.query_params.writes == before
    link.write("a", {"d_k": "10"})
    assert browser.query_params.writes == before + 1


def test_writing_keeps_the_language_and_takes_away_what_is_gone(browser):
    browser.type(lang="zh", embed="true", d_k="8", bad="1")
    link.write("a", {"heads": "2"})
    assert browser.query_params == {"lang": "zh", "embed": "true", "heads": "2"}


def test_coming_back_to_a_page_keeps_its_settings(browser):
    browser.type(d_k="8")
    run("a", {})
    browser.type()  # Streamlit clears the address when another page opens
    assert run("b", {}) == {}
    browser.type()
    assert link.incoming("a") is None
    link.write("a", {"d_k": "8"})
    assert browser.query_params == {"d_k": "8"}


def test_a_link_to_a_page_seen_before_wins_over_what_was_kept(browser):
    browser.type(d_k="8")
    run("a", {})
    browser.type()
    run("b", {})
    browser.type(d_k="16")
    assert link.incoming("a") == {"d_k": "16"}


@pytest.mark.parametrize(
    ("locale", "language"),
    [("zh-CN", "zh"), ("zh", "zh"), ("ZH-TW", "zh"), ("en-GB", "en"), ("fr", "en"), ("", "en"), (None, "en")],
)
def test_the_browsers_language_decides_at_first(browser, locale, language):
    browser.locale = locale
    assert link.language() == language


def test_the_address_decides_over_the_browser_and_is_remembered(browser):
    browser.locale = "zh-CN"
    browser.type(lang="en")
    assert link.language() == "en"
    browser.type()
    assert link.language() == "en"


@pytest.mark.parametrize("asked", ["fr", "", "EN", "<script>"])
def test_an_unknown_language_changes_nothing(browser, asked):
    browser.type(lang="zh")
    assert link.language() == "zh"
    browser.type(lang=asked)
    assert link.language() == "zh"


def test_a_switch_of_language_leaves_every_other_setting(browser):
    browser.type(lang="en", d_k="8")
    link.switch_language("zh")
    assert browser.query_params == {"lang": "zh", "d_k": "8"}
    assert link.language() == "zh"
