"""The page on what attention replaced, in a real browser: curves that follow a slider, a training, a phone."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.driver import PHONE, wait_idle

Open = Callable[..., Page]


@pytest.fixture
def visit(open_page: Open, app_url: str) -> Open:
    """Give ``visit(query="lang=en", **options) -> Page``: a new visitor of the page, with its curves drawn."""

    def start(query: str = "lang=en", **options: Any) -> Page:
        page = open_page(f"{app_url}/why_attention?{query}", **options)
        for name in ("gradient", "chain"):
            expect(part(page, name).locator(".scatterlayer .trace").first).to_be_attached()
        wait_idle(page)
        return page

    return start


def part(page: Page, name: str) -> Locator:
    return page.locator(f".st-key-why_attention-{name}")


def test_curves_follow_a_slider_and_the_address_too(visit: Open) -> None:
    page = visit("lang=en&length=8")
    expect(part(page, "gradient")).to_contain_text("At distance 7: RNN")
    page.evaluate("document.querySelectorAll('.attnviz-plot-chart').forEach(chart => (chart.mark = 'same'))")
    page.get_by_role("slider", name="Length", exact=True).press("End")
    expect(part(page, "gradient")).to_contain_text("At distance 255: RNN")
    expect(part(page, "chain")).to_contain_text("at 256 tokens")
    page.wait_for_url("**length=256*")
    wait_idle(page)
    marks = page.evaluate("[...document.querySelectorAll('.attnviz-plot-chart')].map(chart => chart.mark)")
    assert marks == ["same", "same"]  # the nodes stayed


def test_a_training_starts_and_stops(visit: Open) -> None:
    page = visit("lang=en&recall=4")
    page.get_by_role("button", name="Start").click()
    expect(part(page, "recalled")).to_contain_text(re.compile(r"after \d+: RNN"), timeout=60_000)
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_role("button", name=re.compile("Continue|Start"))).to_be_enabled(timeout=60_000)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_fits_a_phone(visit: Open, language: str) -> None:
    page = visit(f"lang={language}", viewport=PHONE, touch=True, color_scheme="dark")
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]
