"""The cost page in a real browser: the roofline follows the finger, and fits a phone and a projector."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.driver import DESKTOP, PHONE, wait_idle

Open = Callable[..., Page]


@pytest.fixture
def visit(open_page: Open, app_url: str) -> Open:
    """Give ``visit(query, **options) -> Page``: a new visitor of the page, with the roofline drawn."""

    def start(query: str = "lang=en", **options: Any) -> Page:
        page = open_page(f"{app_url}/cost?{query}", **options)
        expect(roofs(page).locator(".scatterlayer .trace").first).to_be_attached()
        wait_idle(page)
        return page

    return start


def roofs(page: Page) -> Locator:
    return page.locator(".st-key-cost-roofs")


def test_the_roofline_follows_the_finger_and_the_address_on_release(visit: Open) -> None:
    page = visit("lang=en&context=1024")
    expect(roofs(page)).to_contain_text("GQA · sdpa, 1,024 tokens")
    page.get_by_role("slider", name="Context", exact=True).press("ArrowRight")
    expect(roofs(page)).to_contain_text("GQA · sdpa, 2,048 tokens")
    page.wait_for_url(re.compile("context=2048"))


@pytest.mark.parametrize(("language", "scheme"), [("en", "dark"), ("zh", "light")])
def test_fits_a_phone_and_a_projector(visit: Open, language: str, scheme: str) -> None:
    page = visit(f"lang={language}", viewport=PHONE, touch=True, color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]
    names = roofs(page).locator(".annotation-text")
    expect(names).to_have_count(0)
    page.set_viewport_size({"width": 1280, "height": 720})
    expect(names.filter(has_text="H100")).to_be_visible()
    page = visit(f"lang={language}")
    bounds = roofs(page).locator(".scatterlayer").first.bounding_box()
    assert bounds is not None and bounds["y"] + bounds["height"] <= DESKTOP[1]
