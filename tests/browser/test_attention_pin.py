"""Pins in a real browser: set aside with one click, followed by the slider, kept in the link."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.driver import wait_idle

Open = Callable[..., Page]


@pytest.fixture
def visit(open_page: Open, app_url: str) -> Open:
    """Give ``visit(query) -> Page`` with its pictures drawn."""

    def start(query: str = "lang=en", **options: object) -> Page:
        page = open_page(f"{app_url}/attention?{query}", **options)
        expect(picture(page)).to_have_attribute("data-frame", re.compile(r"\d"))
        return page

    return start


def picture(page: Page) -> Locator:
    return page.locator(".st-key-attention-main [data-part=root]")


def caption(page: Page) -> Locator:
    return picture(page).locator("[data-part=caption]")


def test_a_pinned_picture_is_compared_while_the_slider_moves(visit: Open) -> None:
    page = visit()
    page.get_by_role("button", name="Pin this picture").click()
    wait_idle(page)
    assert "pin=length" in page.url
    page.get_by_role("radio", name="now − pinned").click()
    wait_idle(page)
    expect(caption(page)).to_contain_text("largest difference 0 ")
    runs = page.url
    slider = page.get_by_role("slider", name=re.compile("d_k"))
    slider.focus()
    page.keyboard.down("ArrowLeft")  # held: the page itself has not run again
    expect(caption(page)).to_contain_text(re.compile(r"largest difference 0\.\d+ · d_k \(head_dim\) 64 → \d+"))
    assert page.url == runs
    page.keyboard.up("ArrowLeft")
    wait_idle(page)
    assert "compare=difference" in page.url
    expect(page.locator("[data-testid=stCaptionContainer]").filter(has_text="64 →").first).to_be_visible()
    page.get_by_role("button", name="Unpin").click()
    wait_idle(page)
    assert "pin=" not in page.url
    expect(caption(page)).to_contain_text("MHA 4/4")


def test_a_link_carries_the_pin_in_chinese(visit: Open) -> None:
    page = visit("lang=zh&pin=length%3D12%26mask%3Dfull&compare=difference")
    expect(caption(page)).to_contain_text("最大差")
    expect(caption(page)).to_contain_text("→ 因果")


def test_one_click_makes_the_attention_of_an_encoder(visit: Open) -> None:
    page = visit("lang=en&d_k=8")
    page.get_by_role("radio", name="encoder", exact=True).click()
    wait_idle(page)
    assert "mask=full" in page.url and "d_k=8" in page.url
    page.get_by_role("radio", name="cross", exact=True).click()
    wait_idle(page)
    assert "attention=cross" in page.url
    expect(caption(page)).to_contain_text("12 × 12")
