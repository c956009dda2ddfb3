"""The plot component in a real browser: one node, one zoom, no blank moment, the page's colours."""

import gzip
import json
import re
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from pages.ui.plot.asset import PATH
from tests.browser.driver import resting_box, wait_idle

APP = "tests/browser/apps/plot_app.py"

# Counts, at every frame of the screen, whether the curve is there and what its title says.
WATCH = """() => {
  globalThis.seen = { blank: 0, frames: 0, titles: [] }
  const chart = document.querySelector(".attnviz-plot-chart")
  const look = () => {
    const lines = [...chart.querySelectorAll(".scatterlayer path.js-line")]
    const whole = lines.length === 2 && lines.every(line => (line.getAttribute("d") ?? "").length > 100)
    const title = chart.querySelector(".gtitle")?.textContent ?? ""
    seen.frames += 1
    if (!whole || !title) seen.blank += 1
    if (seen.titles.at(-1) !== title) seen.titles.push(title)
    requestAnimationFrame(look)
  }
  requestAnimationFrame(look)
}"""


@pytest.fixture
def page(open_page: Callable[..., Page], serve: Callable[..., str]) -> Page:
    page = open_page(serve(APP))
    expect(page.locator(".gtitle").first).to_have_text("d = 4")
    return page


def slider(page: Page) -> Locator:
    return page.get_by_role("slider", name="The d")


def chart(page: Page, expression: str) -> Any:
    """Evaluate an expression about ``chart``, the first plot's node."""
    return page.evaluate(
        f"(() => {{ const chart = document.querySelector('.attnviz-plot-chart'); return {expression} }})()"
    )


def runs(page: Page) -> int:
    return int(page.get_by_text(re.compile(r"^runs: \d+$")).inner_text().split()[1])


def zoom(page: Page) -> list[float]:
    """Zoom into the middle of the first plot by dragging; give the range of x."""
    bounds = resting_box(page.locator(".attnviz-plot-chart .nsewdrag").first)
    x, y, width, height = (bounds[name] for name in ("x", "y", "width", "height"))
    page.mouse.move(x + 0.3 * width, y + 0.3 * height)
    page.mouse.down()
    page.mouse.move(x + 0.6 * width, y + 0.7 * height, steps=5)
    page.mouse.up()
    page.wait_for_function("document.querySelector('.attnviz-plot-chart').layout.xaxis?.autorange === false")
    return chart(page, "chart._fullLayout.xaxis.range.map(Number)")


def test_it_follows_the_slider_without_runs_or_blank_moments(page: Page) -> None:
    chart(page, "chart.mark = 'same'")
    page.evaluate(WATCH)
    slider(page).focus()
    for d in range(5, 15):
        page.keyboard.press("ArrowRight")
        expect(page.locator(".gtitle").first).to_have_text(f"d = {d}")
    expect(page.get_by_text("runs: 2", exact=True)).to_be_visible()
    wait_idle(page)
    seen = page.evaluate("seen")
    assert seen["frames"] > 10
    assert seen["blank"] == 0
    assert seen["titles"] == [f"d = {d}" for d in range(4, 15)]
    assert chart(page, "chart.mark") == "same"
    assert max(chart(page, "[...chart._fullData[0].y]")) == pytest.approx(14, rel=0.01)


def test_the_zoom_stays_over_live_pictures_and_runs(page: Page) -> None:
    zoomed = zoom(page)
    assert 0 < zoomed[0] < zoomed[1] < 6
    slider(page).focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator(".gtitle").first).to_have_text("d = 5")
    assert chart(page, "chart._fullLayout.xaxis.range.map(Number)") == zoomed
    expect(page.get_by_text("runs: 2", exact=True)).to_be_visible()
    wait_idle(page)
    assert chart(page, "chart._fullLayout.xaxis.range.map(Number)") == zoomed


def test_it_has_a_role_and_a_text_that_follows(page: Page) -> None:
    expect(page.get_by_role("figure", name="A sine that reaches 4.")).to_be_visible()
    slider(page).focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("figure", name="A sine that reaches 5.")).to_be_visible()
    expect(page.get_by_role("figure", name="It stays.")).to_be_visible()


def test_its_colours_follow_the_theme_without_a_run(page: Page) -> None:
    colours = "[chart._fullLayout.font.color, chart._fullLayout.xaxis.gridcolor, chart._fullLayout.paper_bgcolor]"
    light = chart(page, colours)
    zoomed = zoom(page)
    page.emulate_media(color_scheme="dark")
    page.wait_for_function(f"document.querySelector('.attnviz-plot-chart')._fullLayout.font.color !== '{light[0]}'")
    dark = chart(page, colours)
    text = page.evaluate("getComputedStyle(document.querySelector('[data-testid=stText]')).color").replace(" ", "")
    assert text.removeprefix("rgb(").removesuffix(")") in dark[0]
    assert dark[1] != light[1]
    assert dark[2] == light[2] == "rgba(0,0,0,0)"
    ink, first = chart(page, "[chart._fullData[1].line.color, chart._fullData[0].line.color]")
    assert ink == dark[0] != first
    assert chart(page, "chart._fullLayout.xaxis.range.map(Number)") == zoomed
    assert runs(page) == 1


def test_its_buttons_speak_the_page_s_language(page: Page) -> None:
    titles = page.locator(".attnviz-plot-chart").first.locator(".modebar-btn")
    assert [title.get_attribute("data-title") for title in titles.all()] == [
        "Save as PNG",
        "Zoom here",
        "Move about",
        "Whole picture",
    ]


def test_it_fills_its_place_and_follows_it(page: Page) -> None:
    assert chart(page, "chart._fullLayout.height") == 240
    width = chart(page, "chart._fullLayout.width")
    assert width == pytest.approx(chart(page, "chart.clientWidth"), abs=1)
    page.set_viewport_size({"width": 500, "height": 720})
    page.wait_for_function(f"document.querySelector('.attnviz-plot-chart')._fullLayout.width < {width}")
    assert chart(page, "chart._fullLayout.width") == pytest.approx(chart(page, "chart.clientWidth"), abs=1)


def test_the_library_is_asked_for_once(open_page: Callable[..., Page], serve: Callable[..., str]) -> None:
    page = open_page(serve(APP), wait=False)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "/live-assets/" in request.url else None)
    expect(page.locator(".gtitle")).to_have_count(2)
    assert len(asked) == 1
    assert page.locator("script[src*='/live-assets/']").count() == 1  # a second one would come from the browser's cache


@pytest.mark.parametrize("packing", ["gzip", "identity"])
def test_the_library_may_be_kept_for_good(serve: Callable[..., str], packing: str) -> None:
    request = urllib.request.Request(serve(APP) + PATH, headers={"Accept-Encoding": packing})
    with urllib.request.urlopen(request, timeout=20) as answer:
        assert "immutable" in answer.headers["Cache-Control"]
        assert answer.headers["Content-Type"].startswith("text/javascript")
        assert answer.headers["Content-Encoding"] == packing
        body = answer.read()
    script = gzip.decompress(body) if packing == "gzip" else body
    assert script.rstrip().endswith(b"return Plotly;\n}).bind(this)));")


def test_without_the_library_the_numbers_are_there(open_page: Callable[..., Page], serve: Callable[..., str]) -> None:
    page = open_page("about:blank", allow=[r"/live-assets/"], wait=False)
    page.route("**/live-assets/**", lambda route: route.abort())
    page.goto(serve(APP))
    wait_idle(page)
    figure = page.get_by_role("figure", name="A sine that reaches 4.")
    expect(figure).to_contain_text("The chart cannot be drawn; these are its numbers.")
    expect(figure.get_by_role("columnheader", name="<sine>")).to_be_visible()
    expect(figure.get_by_role("row").nth(2)).to_have_text("0.10.399334")
    page.unroute("**/live-assets/**")
    slider(page).focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator(".gtitle").first).to_have_text("d = 5")
    expect(page.locator("[data-part=fallback]").first).to_be_hidden()


def test_a_figure_survives_the_frame(serve: Callable[..., str]) -> None:
    with urllib.request.urlopen(f"{serve(APP)}/live/curve?d=9&lang=en", timeout=20) as answer:
        body = answer.read()
    size = int.from_bytes(body[:4], "little")
    assert (4 + size) % 8 == 0
    header = json.loads(body[4 : 4 + size])
    assert header["params"] == {"d": "9", "lang": "en"}
    assert header["figures"]["curve"]["layout"]["meta"]["alt"] == "A sine that reaches 9."
    assert "template" not in header["figures"]["curve"]["layout"]
