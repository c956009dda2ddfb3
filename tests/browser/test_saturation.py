"""The saturation page in a real browser: pictures that follow the finger, themes, a phone, a training that stops."""

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Locator, Page, expect

from attnviz.saturation_view import rows, settle
from tests.browser.driver import DESKTOP, PHONE, resting_box, wait_idle

Open = Callable[..., Page]

COUNT_RUNS = """() => {
  const app = document.querySelector('[data-testid="stApp"]')
  globalThis.runsSeen = 0
  new MutationObserver(() => {
    if (app.getAttribute("data-test-script-state") === "running") globalThis.runsSeen++
  }).observe(app, { attributes: true, attributeFilter: ["data-test-script-state"] })
}"""

VIEWS = {
    "Gradients": ("gradient", "jacobian", "entropy"),
    "Score distributions": ("raw", "scaled"),
    "Limits of the data type": ("depth", "largest"),
    "Collapse": ("spread", "top", "effective"),
}


@pytest.fixture
def visit(open_page: Open, app_url: str) -> Open:
    """Give ``visit(query="lang=en", **options) -> Page``: a new visitor of the page, with its first picture drawn."""

    def start(query: str = "lang=en", **options: Any) -> Page:
        page = open_page(f"{app_url}/saturation?{query}", **options)
        expect(bars(page)).to_have_count(5)
        return page

    return start


def part(page: Page, name: str) -> Locator:
    return page.locator(f".st-key-saturation-{name}")


def bars(page: Page) -> Locator:
    return part(page, "strips").locator("svg path")


def heights(page: Page) -> list[float]:
    """Give the height of each scaling's tallest bar in pixels."""
    return page.evaluate(
        """() => [...document.querySelectorAll(".st-key-saturation-strips svg path")].map(
          path => path.getBoundingClientRect().height)"""
    )


def line(page: Page, name: str) -> str | None:
    """Give where the vertical line of a curve stands."""
    return part(page, name).locator(".shapelayer path").last.get_attribute("d")


def slider(page: Page, name: str) -> Locator:
    return page.get_by_role("slider", name=name)


def test_pictures_follow_the_finger_and_the_address_on_release(visit: Open) -> None:
    page = visit("lang=en&d_k=1")
    before, stood = heights(page), line(page, "spread")
    page.evaluate("document.querySelectorAll('.attnviz-plot-chart').forEach(chart => (chart.mark = 'same'))")
    page.evaluate(COUNT_RUNS)
    bounds = resting_box(slider(page, "d_k (head_dim)"))
    y = bounds["y"] + bounds["height"] / 2
    page.mouse.move(bounds["x"] + 2, y)
    page.mouse.down()
    page.mouse.move(bounds["x"] + bounds["width"] - 1, y, steps=4)
    expect(part(page, "strips")).to_contain_text("d_k 1024 · float32")
    after = heights(page)
    assert after[1] > 2 * before[1] > 0  # no scaling: one key takes the row
    assert after[0] < after[1] / 2 and after[2] < after[0]
    expect(part(page, "spread").locator(".shapelayer path").last).not_to_have_attribute("d", stood or "")
    assert page.evaluate("runsSeen") == 0  # still held
    page.mouse.up()
    page.wait_for_url("**d_k=1024*")
    wait_idle(page)
    assert heights(page) == after
    assert page.evaluate("[...document.querySelectorAll('.attnviz-plot-chart')].every(chart => chart.mark === 'same')")


def test_every_view_is_a_link_and_draws(visit: Open) -> None:
    page = visit()
    for name, shown in VIEWS.items():
        page.get_by_role("radio", name=name).or_(page.get_by_role("button", name=name)).first.click()
        for key in shown:
            expect(part(page, key).locator(".scatterlayer .trace").first).to_be_attached()
            assert part(page, key).get_by_role("figure").get_attribute("aria-label")
    wait_idle(page)
    assert parse_qs(urlsplit(page.url).query) == {"lang": ["en"]}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_scaling_has_the_theme_s_colour(visit: Open, scheme: str) -> None:
    page = visit("lang=en&d_k=300", color_scheme=scheme)
    expect(part(page, "spread").locator(".points path").first).to_be_attached()
    colours, fills, dots, names = page.evaluate(
        """() => {
          const root = document.querySelector(".st-key-saturation-strips .attnviz-strips")
          const list = getComputedStyle(root).getPropertyValue("--st-chart-categorical-colors").split(",")
          const probe = document.createElement("i")
          document.body.append(probe)
          const plain = colour => ((probe.style.color = colour.trim()), getComputedStyle(probe).color)
          return [list.slice(0, 5).map(plain), [...root.querySelectorAll("svg path")].map(
            path => getComputedStyle(path).fill),
            [...new Set([...document.querySelectorAll(".st-key-saturation-spread .points path")].map(
              dot => getComputedStyle(dot).stroke))],
            [...document.querySelectorAll(".st-key-saturation-names strong")].map(name => getComputedStyle(name).color)]
        }"""
    )
    assert fills == colours
    assert dots == colours
    assert names == colours
    expect(part(page, "names").locator("strong")).to_have_text(
        ["1/√d_k", "no scaling", "1/d_k", "d_k^−0.25", "QK-norm"]
    )
    expect(part(page, "names").locator("svg").first).to_be_hidden()


@pytest.mark.parametrize("language", ["en", "zh"])
def test_fits_a_phone_and_a_projector(visit: Open, language: str) -> None:
    page = visit(f"lang={language}", viewport=PHONE, touch=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]
    overlaps = page.evaluate(
        """() => {
          const boxes = [...document.querySelectorAll(".st-key-saturation-strips :is(strong, span)")].map(
            text => text.getBoundingClientRect())
          return boxes.filter((a, i) => boxes.some((b, j) => i < j && a.left < b.right && b.left < a.right
            && a.top < b.bottom && b.top < a.bottom)).length
        }"""
    )
    assert overlaps == 0
    page = visit(f"lang={language}")
    bounds = resting_box(part(page, "strips"))
    assert bounds["y"] + bounds["height"] <= DESKTOP[1]


def test_a_bar_says_its_key_and_weight(visit: Open) -> None:
    page = visit("lang=en&keys=4&d_k=16")
    tip = part(page, "strips").locator("[data-part=tip]")
    expect(tip).to_be_hidden()
    track = part(page, "strips").locator("svg").nth(1)
    bounds = resting_box(track)
    track.hover(position={"x": bounds["width"] * 0.8, "y": bounds["height"] / 2})
    weight = rows(settle({"keys": "4", "d_k": "16"}).view)["none"].weights[3]
    expect(tip).to_have_text(re.compile(r"^no scaling: key 3, weight 0\.\d+$"))
    assert float(tip.inner_text().split("weight ")[-1]) == pytest.approx(float(weight), rel=1e-3)
    # Beside the bar, not over it.
    at = resting_box(tip)
    assert at["x"] + at["width"] <= bounds["x"] + 0.76 * bounds["width"]
    # The tip stays true while the page changes under a pointer that rests.
    slider(page, "Keys").focus()
    page.keyboard.press("End")
    expect(tip).to_have_text(re.compile(r"no scaling: keys 12 to 15, largest weight "))
    page.mouse.move(1, 1)
    expect(tip).to_be_hidden()
    part(page, "strips").locator("[data-part=rows]").focus()
    for key in ("Escape", "ArrowRight", "ArrowDown", "ArrowLeft"):
        page.keyboard.press(key)
    expect(tip).to_have_text(re.compile(r"^1/d_k: keys 8 to 11, largest weight 0\.\d+$"))
    page.keyboard.press("Escape")
    expect(tip).to_be_hidden()


def test_the_data_type_and_the_seed_are_dragged_like_the_rest(visit: Open) -> None:
    page = visit("lang=en&d_k=16")
    before = heights(page)
    page.evaluate(COUNT_RUNS)
    dtype = slider(page, "Data type")
    bounds = resting_box(dtype)
    y = bounds["y"] + bounds["height"] / 2
    page.mouse.move(bounds["x"] + 8, y)
    page.mouse.down()
    page.mouse.move(bounds["x"] + bounds["width"] - 2, y, steps=3)
    expect(part(page, "strips")).to_contain_text("d_k 16 · float16")
    assert page.evaluate("runsSeen") == 0  # still held
    page.mouse.up()
    page.wait_for_url("**dtype=float16*")
    expect(dtype).to_have_attribute("aria-valuetext", "float16")
    slider(page, "Seed").focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_url("**seed=5*")
    wait_idle(page)
    assert heights(page) != before
    page.get_by_role("button", name="Reset Data type").click()
    expect(part(page, "strips")).to_contain_text("d_k 16 · float32")


def test_training_draws_as_it_runs_and_stops(visit: Open) -> None:
    page = visit("lang=en&show=training&d_k=16")
    expect(page.get_by_role("button", name="Stop")).to_be_disabled()
    page.get_by_role("button", name="Start").click()
    steps = page.get_by_text(re.compile(r"^\d+ of \d+ steps$"))
    expect(steps).to_be_visible()
    first = steps.inner_text()
    expect(steps).not_to_have_text(first)
    expect(part(page, "loss").locator(".scatterlayer .trace")).to_have_count(5)
    expect(page.get_by_text("This run, mean of the last")).to_be_visible()
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_role("button", name="Continue")).to_be_enabled()
    wait_idle(page)
    stopped = steps.inner_text()
    page.wait_for_timeout(1000)
    assert steps.inner_text() == stopped
