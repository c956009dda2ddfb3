"""The linear page in a real browser: maps, states and curves follow a slider; a phone; a measurement."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.driver import PHONE, resting_box, wait_idle

Open = Callable[..., Page]


@pytest.fixture
def visit(open_page: Open, app_url: str) -> Open:
    """Give ``visit(query="lang=en", **options) -> Page``: a new visitor of the page, with its pictures drawn."""

    def start(query: str = "lang=en", **options: Any) -> Page:
        page = open_page(f"{app_url}/linear?{query}", **options)
        for name in ("weights", "state"):
            expect(maps(page, name)).to_have_attribute("data-frame", re.compile(r"\d"))
        wait_idle(page)
        return page

    return start


def maps(page: Page, name: str) -> Locator:
    return page.locator(f".st-key-linear-{name} [data-part=root]")


def test_maps_states_and_curves_follow_a_slider(visit: Open) -> None:
    page = visit("lang=en&step=3")
    expect(page.locator(".st-key-linear-error .scatterlayer .trace").first).to_be_attached()
    expect(maps(page, "state")).to_contain_text(
        "Tokens read: 3. After any number of them: 16 × 16 and the sum of φ(k), 272 numbers"
    )
    page.get_by_role("slider", name="d_k (head_dim)", exact=True).press("Home")
    expect(maps(page, "state")).to_contain_text("1 × 1 and the sum of φ(k), 2 numbers")
    page.wait_for_url("**d_k=1*")
    wait_idle(page)
    expect(maps(page, "weights")).to_contain_text("% of softmax's")


def test_a_feature_map_and_a_measurement_by_a_click(visit: Open) -> None:
    page = visit("lang=en&show=cost&d_k=64")
    before = maps(page, "weights").get_by_text("of softmax's").inner_text()
    page.get_by_role("radio", name="Identity").click()
    page.wait_for_url("**feature_map=identity*")
    wait_idle(page)
    expect(maps(page, "weights")).not_to_contain_text(before)
    page.get_by_role("button", name="Measure on this machine").click()
    expect(page.locator(".st-key-linear-time")).to_contain_text("Measured here: linear", timeout=60_000)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_fits_a_phone(visit: Open, language: str) -> None:
    page = visit(f"lang={language}&show=forms", viewport=PHONE, touch=True, color_scheme="dark")
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]
    for name in ("weights", "state"):
        box = resting_box(maps(page, name))
        assert box["x"] >= 0 and box["x"] + box["width"] <= PHONE[0] + 1
    # Each state has colours of its own: what they reach to stands under its title where there is no room beside it.
    labels = maps(page, "state").evaluate("root => root.attnvizLayout.labels")
    titles, ranges = ([one for one in labels if one["axis"] == axis] for axis in ("title", "range"))
    assert [re.fullmatch(r"−([\d.]+) – \1", one["text"]) is not None for one in ranges] == [True, True]
    assert all(below["y"] >= above["y"] + above["h"] for above, below in zip(titles, ranges, strict=True))
