"""The variants page in a real browser: wires and maps follow the finger, themes, a phone, a model by one click."""

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.driver import DESKTOP, PHONE, resting_box, wait_idle

Open = Callable[..., Page]

COUNT_RUNS = """() => {
  const app = document.querySelector('[data-testid="stApp"]')
  globalThis.runsSeen = 0
  new MutationObserver(() => {
    if (app.getAttribute("data-test-script-state") === "running") globalThis.runsSeen++
  }).observe(app, { attributes: true, attributeFilter: ["data-test-script-state"] })
}"""


@pytest.fixture
def visit(open_page: Open, app_url: str) -> Open:
    """Give ``visit(query="lang=en", **options) -> Page``: a new visitor of the page, with both pictures drawn."""

    def start(query: str = "lang=en", **options: Any) -> Page:
        page = open_page(f"{app_url}/variants?{query}", **options)
        expect(maps(page)).to_have_attribute("data-frame", re.compile(r"\d"))
        expect(page.locator(".st-key-variants-wires .scatterlayer .trace").first).to_be_attached()
        wait_idle(page)
        return page

    return start


def maps(page: Page) -> Locator:
    return page.locator(".st-key-variants-maps [data-part=root]")


def wires(page: Page) -> Locator:
    return page.locator(".st-key-variants-wires")


def colours(page: Page) -> list[str]:
    """Give the colour of every KV head as it is painted, from left to right."""
    return page.evaluate(
        """() => [...[...document.querySelectorAll(".st-key-variants-wires .points")].at(-1).children].map(
          point => getComputedStyle(point).fill)"""
    )


def drag(page: Page, name: str, share: float) -> None:
    """Drag a slider to a share of its track and hold it."""
    bounds = resting_box(page.get_by_role("slider", name=name, exact=True))
    y = bounds["y"] + bounds["height"] / 2
    page.mouse.move(bounds["x"] + bounds["width"] * 0.34, y)
    page.mouse.down()
    page.mouse.move(bounds["x"] + 1 + (bounds["width"] - 2) * share, y, steps=4)


def test_both_pictures_follow_the_finger_and_the_address_on_release(visit: Open) -> None:
    page = visit()
    assert len(colours(page)) == 2
    page.evaluate(COUNT_RUNS)
    stage = maps(page).locator("[data-part=stage]")
    expect(stage).to_have_attribute(
        "aria-label", re.compile(r"GQA 8/2: output error \d+\.\d%; MQA 8/1: output error \d")
    )
    drag(page, "KV heads", 1.0)
    expect(wires(page)).to_contain_text("MHA 8/8")
    expect(stage).to_have_attribute("aria-label", re.compile("MHA 8/8: output error 0%: the line above; MQA 8/1"))
    assert len(set(colours(page))) == 8
    assert page.evaluate("runsSeen") == 0  # still held
    page.mouse.up()
    page.wait_for_url("**kv_heads=8*")
    wait_idle(page)
    expect(page.get_by_role("cell", name="MHA 8/8").locator("strong")).to_be_visible()
    assert len(colours(page)) == 8


def test_a_model_by_one_click_sets_the_sliders(visit: Open) -> None:
    page = visit("lang=en&kv_heads=1")
    page.get_by_role("combobox", name=re.compile("Published model")).click()
    page.get_by_role("combobox", name=re.compile("Published model")).fill("Llama-3-8B")
    page.get_by_role("option", name="Llama-3-8B", exact=True).click()
    page.wait_for_url("**model=llama-3-8b*")
    wait_idle(page)
    assert parse_qs(urlsplit(page.url).query) == {"lang": ["en"], "model": ["llama-3-8b"]}
    expect(wires(page)).to_contain_text("GQA 32/8")
    expect(page.get_by_role("slider", name="KV heads", exact=True)).to_have_attribute("aria-valuetext", re.compile("8"))
    expect(page.get_by_role("link", name="Published sizes")).to_be_visible()


def test_a_cell_is_chosen_on_every_map_and_in_the_address(visit: Open) -> None:
    page = visit()
    bounds = resting_box(maps(page).locator("[data-part=stage]"))
    # Of MQA, the last of the three lines: the map of head 1.
    box = maps(page).evaluate("root => root.attnvizLayout.maps")[9]
    page.mouse.click(bounds["x"] + box["x"] + 3, bounds["y"] + box["y"] + box["h"] - 3)
    page.wait_for_url(re.compile(r"cell=1%2C11%2C0%2C2|cell=1,11,0,2"))
    wait_idle(page)
    expect(maps(page).locator("[data-part=chosen]")).to_contain_text("MQA 8/1 · head 1 · KV 0")
    expect(maps(page).locator("[data-part=chosen] strong")).to_have_text(re.compile(r"0\.\d+"))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_groups_have_the_theme_s_colours(visit: Open, scheme: str) -> None:
    page = visit("lang=en&kv_heads=8", color_scheme=scheme)
    theme = page.evaluate(
        """() => {
          const root = document.querySelector(".st-key-variants-wires .attnviz-plot")
          const list = getComputedStyle(root).getPropertyValue("--st-chart-categorical-colors").split(",")
          const probe = document.createElement("i")
          document.body.append(probe)
          return list.slice(0, 8).map(colour => ((probe.style.color = colour.trim()), getComputedStyle(probe).color))
        }"""
    )
    assert colours(page) == theme


def lines_of_maps(page: Page) -> list[int]:
    """Give how many maps stand on each line, where every line has its heading, whole and clear of the maps' titles."""
    drawn = maps(page).evaluate("root => root.attnvizLayout")
    headings = [label for label in drawn["labels"] if label["axis"] == "heading"]
    tops = sorted({box["y"] for box in drawn["maps"]})
    titles = sorted({label["y"] for label in drawn["labels"] if label["axis"] == "title"})
    assert len(headings) == len(tops) == len(titles)
    for heading, title, top in zip(headings, titles, tops, strict=True):
        assert heading["y"] + heading["h"] <= title + 1 and title < top and "…" not in heading["text"]
    return [sum(box["y"] == top for box in drawn["maps"]) for top in tops]


@pytest.mark.parametrize("language", ["en", "zh"])
def test_fits_a_phone_and_a_projector(visit: Open, language: str) -> None:
    page = visit(f"lang={language}", viewport=PHONE, touch=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]
    assert lines_of_maps(page) == [4, 4, 4]
    lines = page.locator(".st-key-variants-table th").evaluate_all("cells => cells.map(cell => cell.offsetHeight)")
    assert lines and max(lines) < 60  # one line each
    page = visit(f"lang={language}")
    for picture in (wires(page), maps(page)):
        bounds = resting_box(picture)
        assert bounds["y"] + bounds["height"] <= DESKTOP[1]
    assert lines_of_maps(page) == [4, 4, 4]


def test_mla_is_one_click_and_its_latent_follows_the_finger(visit: Open) -> None:
    page = visit()
    page.get_by_role("radio", name="MLA", exact=True).click()
    page.wait_for_url("**variant=mla*")
    wait_idle(page)
    expect(wires(page)).to_contain_text("latent 512")
    slider = page.get_by_role("slider", name="Latent width", exact=True)
    expect(slider).to_have_attribute("aria-valuetext", re.compile("512"))
    slider.press("ArrowLeft")
    expect(slider).to_have_attribute("aria-valuetext", re.compile("384"))
    expect(maps(page)).to_contain_text("With the first 384 of 512 numbers only")
    expect(wires(page)).to_contain_text("latent 384")
    page.wait_for_url("**latent=384*")
    wait_idle(page)
    expect(page.get_by_role("cell", name="MLA", exact=True).locator("strong")).to_be_visible()
