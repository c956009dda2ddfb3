"""The harness itself: what the other browser tests trust it to notice."""

import pytest

from tests.browser.driver import open_tab, wait_idle

APP = "tests/browser/apps/hello_app.py"


def test_a_quiet_page_has_no_problem(browser, serve):
    tab = open_tab(browser, serve(APP))
    tab.page.get_by_role("button", name="Count").click()
    wait_idle(tab.page)
    assert tab.page.get_by_text("counted").is_visible()
    assert tab.problems == []
    tab.context.close()


@pytest.mark.parametrize(
    ("fail", "words"),
    [("console", "console error: told"), ("request", "request to another machine: http://192.0.2.1/x.png")],
)
def test_a_page_that_misbehaves_is_noticed(browser, serve, fail, words):
    tab = open_tab(browser, f"{serve(APP)}/?fail={fail}")
    assert any(words in problem for problem in tab.problems)
    tab.context.close()


def test_expected_problems_are_let_through(open_page, serve):
    open_page(f"{serve(APP)}/?fail=console", allow=["told"])


def test_a_shared_server_is_one_and_a_fresh_one_is_another(serve, fresh_server):
    assert serve(APP) == serve(APP)
    assert fresh_server(APP) != serve(APP)


def test_a_visitor_has_a_language_a_theme_and_a_size(open_page, serve):
    page = open_page(serve(APP), locale="zh-CN", color_scheme="dark", viewport=(390, 844))
    seen = page.evaluate("[navigator.language, matchMedia('(prefers-color-scheme: dark)').matches, innerWidth]")
    assert seen == ["zh-CN", True, 390]
