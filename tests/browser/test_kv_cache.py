"""The KV cache page in a real browser: it follows the finger, plays by itself, and fits phone and projector."""

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.driver import DESKTOP, PHONE, wait_idle

Open = Callable[..., Page]


@pytest.fixture
def visit(open_page: Open, app_url: str) -> Open:
    """Give ``visit(query="lang=en", **options) -> Page``: a new visitor of the page, with its pictures drawn."""

    def start(query: str = "lang=en", **options: Any) -> Page:
        page = open_page(f"{app_url}/kv_cache?{query}", **options)
        expect(main(page)).to_have_attribute("data-frame", re.compile(r"\d"))
        expect(page.locator(".st-key-kv_cache-fits .barlayer .trace").first).to_be_attached()
        wait_idle(page)
        return page

    return start


def main(page: Page) -> Locator:
    return page.locator(".st-key-kv_cache-main [data-part=root]")


def slider(page: Page, name: str) -> Locator:
    return page.get_by_role("slider", name=name, exact=True)


def test_it_plays_to_the_end_and_the_address_follows(visit: Open) -> None:
    page = visit("lang=en&step=6")
    button = page.get_by_role("button", name="Play Token generated")
    button.click()
    pause = page.get_by_role("button", name="Pause Token generated")
    expect(pause).to_be_visible()
    expect(main(page)).to_contain_text("Token 7, “warm”", timeout=20_000)
    expect(main(page)).to_contain_text("Token 8, “.”", timeout=20_000)
    expect(button).to_be_visible()  # it stopped by itself
    page.wait_for_url("**step=8*")
    wait_idle(page)
    # At the end it begins again, and a second press stops it where it is.
    button.click()
    expect(main(page)).to_contain_text("Prompt: all 4 tokens")
    pause.click()
    page.wait_for_url(re.compile(r"step=[01]\b"))
    wait_idle(page)
    expect(button).to_be_visible()


def test_memory_follows_the_finger_and_the_numbers_on_release(visit: Open) -> None:
    page = visit("lang=en&model=llama-2-70b")
    expect(page.get_by_test_id("stMetricValue").nth(1)).to_have_text("1.25 GiB")
    slider(page, "Batch").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator(".st-key-kv_cache-sizes")).to_contain_text("4,096 tokens × 2: 2.5 GiB")
    page.wait_for_url("**batch=2*")
    expect(page.get_by_test_id("stMetricValue").nth(1)).to_have_text("2.5 GiB")
    assert parse_qs(urlsplit(page.url).query) == {"lang": ["en"], "model": ["llama-2-70b"], "batch": ["2"]}


def test_the_navigation_says_where_one_is(visit: Open) -> None:
    page = visit()
    # Side by side, or in a section that names the page while it is closed.
    named = page.get_by_test_id("stTopNavSection").filter(has_text="KV cache")
    expect(named.or_(page.get_by_test_id("stTopNavLink").filter(has_text="KV cache")).first).to_be_visible()


def test_an_open_section_follows_the_slider(visit: Open) -> None:
    page = visit()
    page.locator(".st-key-kv_cache-fold-align summary").click()
    align = page.locator(".st-key-kv_cache-align-map [data-part=root]")
    expect(align).to_contain_text("Over 9 tokens in the cache")
    page.wait_for_url("**open=align*")  # so that the link that is copied shows it too
    wait_idle(page)
    slider(page, "Token generated").focus()
    page.keyboard.press("ArrowLeft")
    expect(align).to_contain_text("Over 8 tokens in the cache")
    page.wait_for_url("**step=4*")
    wait_idle(page)
    expect(align).to_contain_text("Over 8 tokens in the cache")
    page.locator(".st-key-kv_cache-fold-align summary").click()
    page.wait_for_url(re.compile(r"^[^?]*\?(?!.*open=)"))
    page.go_back()
    page.wait_for_url("**open=align*")
    expect(align).to_contain_text("Over 8 tokens in the cache")


def test_a_cell_says_what_was_done_and_stays_chosen(visit: Open) -> None:
    page = visit()
    stage = main(page).locator("[data-part=stage]")
    stage.focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_url(re.compile(r"cell="))
    wait_idle(page)
    expect(main(page).locator("[data-part=chosen]")).to_contain_text(re.compile("computed|read|no work"))


SENTENCE = ["the", "cat", "sat", "on", "the", "mat", "because", "the", "mat", "was", "warm", "."]
NAMED = """([key, axis, names]) => {
  const within = host => [host, ...(host.shadowRoot?.querySelectorAll("*") ?? [])]
  const hosts = [...document.querySelectorAll(`.st-key-${key} *`)].flatMap(within)
  const drawn = hosts.find(host => host.attnvizLayout)?.attnvizLayout
  const named = drawn?.labels.filter(label => label.axis === axis).map(label => label.text)
  return JSON.stringify(named) === JSON.stringify(names) && drawn
}"""


def drawn_with(page: Page, rows: list[str]) -> Any:
    """Wait until exactly these rows are named, and give where everything stands."""
    return page.wait_for_function(NAMED, arg=["kv_cache-main", "row", rows]).json_value()


def test_vectors_of_different_widths_stand_on_common_named_rows(visit: Open) -> None:
    page = visit("lang=en&variant=mla&show=vectors&text=a+b+c+d+e+f+g+h+i+j+k+l+m+n+o+p+q+r+s+t")
    drawn = drawn_with(page, ["► i" if name == "i" else name for name in "abcdefghijklmnopqrst"])
    assert [one["key"] for one in drawn["maps"]] == ["query", "latent", "rope"]
    assert len({(one["y"], one["h"]) for one in drawn["maps"]}) == 1
    assert any("kᴿ" in label["text"] for label in drawn["labels"] if label["axis"] == "title")
    bounds = main(page).bounding_box()
    assert bounds is not None and bounds["y"] + bounds["height"] <= DESKTOP[1]


def test_nothing_is_cut_beside_the_vectors(visit: Open) -> None:
    page = visit("lang=en&show=vectors")
    drawn = drawn_with(page, [*SENTENCE[:8], "► mat", *SENTENCE[9:]])
    # The colour bar's words take a second line where one is too short.
    assert [one["text"] for one in drawn["labels"] if one["axis"] == "bar"] == ["lowest", "each its", "own", "highest"]
    # One pixel is enough for the browser to fade a word out.
    outer = page.locator(".st-key-kv_cache-show").bounding_box()
    buttons = [button.bounding_box() for button in page.locator(".st-key-kv_cache-show button").all()]
    assert outer is not None and len(buttons) == 3
    for inner in buttons:
        assert inner is not None and inner["x"] >= outer["x"] - 0.2
        assert inner["x"] + inner["width"] <= outer["x"] + outer["width"] + 0.2


def test_on_a_phone_every_token_of_the_maps_is_named(visit: Open) -> None:
    drawn = drawn_with(visit(viewport=PHONE, touch=True), SENTENCE * 2)
    assert all(one["w"] > 0.6 * PHONE[0] for one in drawn["maps"])
    # Both sentences of the cross cache, on each side of their maps.
    page = visit("lang=en&open=cross", viewport=PHONE, touch=True)
    page.wait_for_function(NAMED, arg=["kv_cache-cross-map", "row", SENTENCE * 2])
    page.wait_for_function(NAMED, arg=["kv_cache-cross-map", "col", [*SENTENCE, *"那只猫坐在暖和的垫子上。"]])
    # Vectors stand below each other, each as wide as the screen leaves it.
    page = visit("lang=en&variant=mla&show=vectors&step=8", viewport=PHONE, touch=True)
    drawn = drawn_with(page, [*SENTENCE[:-1], "► ."] * 3)
    assert len({one["y"] for one in drawn["maps"]}) == 3 and min(one["w"] for one in drawn["maps"]) > 0.6 * PHONE[0]


@pytest.mark.parametrize("language", ["en", "zh"])
def test_fits_a_phone_and_a_projector(visit: Open, language: str) -> None:
    page = visit(f"lang={language}", viewport=PHONE, touch=True, color_scheme="dark")
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]
    page = visit(f"lang={language}")
    bounds = main(page).bounding_box()
    # The whole first picture with its legend and what it says, without scrolling.
    assert bounds is not None and bounds["y"] + bounds["height"] <= DESKTOP[1]
