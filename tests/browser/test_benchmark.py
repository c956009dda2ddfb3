"""The benchmark page in a real browser: predicted at once under the finger, measured after release, a phone, themes."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.driver import PHONE, wait_idle

Open = Callable[..., Page]
# The measuring process starts with the first visit.
STARTS_MS = 120_000


@pytest.fixture
def visit(open_page: Open, app_url: str) -> Open:
    """Give ``visit(query, **options) -> Page``: a new visitor of the page."""

    def start(query: str = "lang=en", **options: Any) -> Page:
        page = open_page(f"{app_url}/benchmark?{query}&pairs=mha-eager%2Cmha-sdpa&heads=2&d_k=16", **options)
        expect(page.get_by_role("slider").first).to_be_attached()
        return page

    return start


def memory(page: Page) -> Locator:
    return page.locator(".st-key-benchmark-memory")


def test_bars_follow_the_finger_and_are_measured_after_release(visit: Open) -> None:
    page = visit("lang=en&length=64")
    expect(page.get_by_text("Measured.", exact=True)).to_be_visible(timeout=STARTS_MS)
    expect(memory(page)).to_contain_text("exact, from allocation events")
    before = memory(page).locator(".annotation-text").first.text_content()
    page.get_by_role("slider", name="Length", exact=True).press("ArrowRight")
    # In brackets: predicted, and nothing measured yet; or measured already, of the new shape.
    expect(memory(page).locator(".annotation-text").first).not_to_have_text(before or "")
    page.wait_for_url("**length=128*")
    wait_idle(page)
    expect(memory(page).locator(".annotation-text").first).to_have_text(
        re.compile(r"^[\d.]+ [KM]iB$"), timeout=STARTS_MS
    )


@pytest.mark.parametrize(("language", "scheme"), [("en", "light"), ("zh", "dark")])
def test_a_sweep_draws_points_as_they_come_and_fits_a_phone(visit: Open, language: str, scheme: str) -> None:
    page = visit(f"lang={language}&show=sweep&longest=256", viewport=PHONE, touch=True, color_scheme=scheme)
    page.get_by_role("button", name="Measure on this machine" if language == "en" else "在本机上测量").click()
    time = page.locator(".st-key-benchmark-sweep-time")
    # Two curves with two lengths each; where they cross, on a busy machine, there is a cross of its own.
    expect(time.locator(".trace.scatter:has(.js-line) .points path")).to_have_count(4, timeout=STARTS_MS)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]
