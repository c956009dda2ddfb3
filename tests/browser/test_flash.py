"""The flash page in a real browser: it plays, follows the finger and a click, and fits a phone and a projector."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.driver import DESKTOP, PHONE, resting_box, wait_idle

Open = Callable[..., Page]


@pytest.fixture
def visit(open_page: Open, app_url: str) -> Open:
    """Give ``visit(query="lang=en", **options) -> Page``: a new visitor of the page, with its pictures drawn."""

    def start(query: str = "lang=en", **options: Any) -> Page:
        page = open_page(f"{app_url}/flash?{query}", **options)
        expect(tiles(page)).to_have_attribute("data-frame", re.compile(r"\d"))
        for part in ("statistics", "output"):
            expect(page.locator(f".st-key-flash-{part} .scatterlayer .trace").first).to_be_attached()
        wait_idle(page)
        return page

    return start


def tiles(page: Page) -> Locator:
    return page.locator(".st-key-flash-tiles [data-part=root]")


def caption(page: Page) -> Locator:
    return page.locator(".st-key-flash-tiles [data-part=caption]")


def test_it_plays_pauses_and_ends_without_a_run_of_the_page(visit: Open) -> None:
    page = visit("lang=en&length=48")  # six tiles
    expect(caption(page)).to_contain_text("Step 5 of 6")
    page.get_by_role("button", name="Play Step").click()
    expect(caption(page)).to_contain_text("Step 6 of 6")
    # At the end it has let go: the address says where it stands, and playing again begins at the beginning.
    page.wait_for_url("**step=6*")
    page.get_by_role("button", name="Play Step").click()
    expect(caption(page)).to_contain_text("Step 2 of 6")
    page.get_by_role("button", name="Pause Step").click()
    expect(page.get_by_role("button", name="Play Step")).to_be_visible()
    page.wait_for_url(re.compile("step=[2-5]"))
    wait_idle(page)
    stopped = caption(page).inner_text()
    slider = page.get_by_role("slider", name="Step")
    expect(slider).to_have_attribute("aria-valuetext", re.search(r"Step (\d)", stopped)[1])  # type: ignore[index]
    slider.press("ArrowRight")
    expect(caption(page)).not_to_have_text(stopped)


def test_a_click_on_a_tile_goes_to_its_step(visit: Open) -> None:
    page = visit()

    bounds = resting_box(tiles(page).locator("[data-part=stage]"))
    box = tiles(page).evaluate("root => root.attnvizLayout")["maps"][0]
    page.mouse.click(bounds["x"] + box["x"] + 1.5 / 8 * box["w"], bounds["y"] + box["y"] + 2.5 / 8 * box["h"])
    page.wait_for_url("**step=5*")
    expect(caption(page)).to_contain_text("Step 5 of 36")


@pytest.mark.parametrize("language", ["en", "zh"])
def test_fits_a_phone_and_a_projector(visit: Open, language: str) -> None:
    page = visit(f"lang={language}", viewport=PHONE, touch=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]
    page = visit(f"lang={language}&step=3&row=3&length=96", color_scheme="dark")
    # With an arrow for going back beside it, each of these names still stands on one line.
    for name in ("step", "row", "length"):
        slider = page.locator(f".st-key-flash-{name}")
        expect(slider.get_by_role("button", name=re.compile("↺|reset|重置|恢复", re.IGNORECASE))).to_be_visible()
        assert slider.locator("[data-part=label]").evaluate("one => one.getClientRects()[0].height") < 30, name
    for key in ("tiles", "statistics", "output"):
        bounds = resting_box(page.locator(f".st-key-flash-{key}"))
        assert bounds["y"] + bounds["height"] <= DESKTOP[1]


def test_the_riddle_marks_the_line_that_was_picked_and_then_the_right_ones(visit: Open) -> None:
    page = visit("lang=en&line=3")  # open by link
    code = page.locator(".flash-code").first
    expect(code.locator(".picked")).to_have_text("3    maximum = torch.full((len(q), 1), -torch.inf)")
    assert code.evaluate("code => code.scrollWidth <= code.clientWidth")
    page.locator(".st-key-flash-line").get_by_text("11", exact=True).click()
    page.wait_for_url("**line=11*")
    expect(code.locator(".fault")).to_have_text([re.compile(r"^11 .*parts = torch.exp")])
    expect(page.locator(".flash-code")).to_have_count(2)
    expect(page.locator(".st-key-flash-outputs [data-part=root]")).to_contain_text("NaN")


def test_a_map_of_one_column_has_its_whole_title(visit: Open) -> None:
    page = visit("lang=en&length=512&tile_rows=64&key_length=1")
    titles = "root => root.attnvizLayout.labels.filter(one => one.axis === 'title').map(one => one.text)"
    assert tiles(page).evaluate(titles) == ["Tiles of the score matrix"]


def test_the_fused_output_follows_the_rows_that_the_weights_are_zoomed_into(visit: Open) -> None:
    page = visit("lang=en&length=512&tile_rows=64&open=weights")

    def rows(name: str) -> list[int]:
        labels = maps(name).evaluate("root => root.attnvizLayout.labels")
        return [one["index"] for one in labels if one["axis"] == "row"]

    def reach() -> float:
        labels = maps("fused").evaluate("root => root.attnvizLayout.labels")
        return float(next(one["text"] for one in labels if one["axis"] == "bar" and one["index"] == 1))

    def maps(name: str) -> Locator:
        return page.locator(f".st-key-flash-{name} [data-part=root]")

    for name in ("weights", "fused"):
        expect(maps(name)).to_have_attribute("data-frame", re.compile(r"\d"))
    whole = reach()
    maps("weights").locator("[data-part=stage]").press("+")
    expect(maps("fused")).to_have_attribute("data-zoomed", "true")
    assert rows("fused") == rows("weights") and min(rows("fused")) >= 128 and max(rows("fused")) < 384
    for name in ("weights", "fused"):  # neither question displaces the other
        expect(maps(name)).to_have_attribute("data-sharp", "1")
    assert 0 < reach() < whole / 2  # the first rows are means of few values: in their colours all others are grey
    maps("fused").locator("[data-part=stage]").press("0")
    expect(maps("weights").get_by_role("button", name="Reset zoom")).to_be_visible()  # of its columns
    assert rows("weights") == rows("fused") and min(rows("weights")) == 0 and reach() == whole
    expect(page.locator(".st-key-flash-fold-weights")).to_contain_text("Checked over every row and key (512 × 512)")
