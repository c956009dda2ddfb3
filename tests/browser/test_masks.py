"""The masks page in a real browser: the gallery, the live sliders, cells and tiles that say why, themes, a phone."""

import json
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Locator, Page, expect

from attnviz.masks import MASKS
from tests.browser.driver import PHONE, resting_box, wait_idle

Open = Callable[..., Page]

COUNT_RUNS = """() => {
  const app = document.querySelector('[data-testid="stApp"]')
  globalThis.runsSeen = 0
  new MutationObserver(() => {
    if (app.getAttribute("data-test-script-state") === "running") globalThis.runsSeen++
  }).observe(app, { attributes: true, attributeFilter: ["data-test-script-state"] })
}"""
PIXELS = """root => {
  const canvas = root.querySelector("[data-part=base]")
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height)
  let hash = 2166136261
  for (const value of data) hash = Math.imul(hash ^ value, 16777619) >>> 0
  return hash
}"""


@pytest.fixture
def visit(open_page: Open, app_url: str) -> Open:
    """Give ``visit(query="lang=en", **options) -> Page``: a new visitor of the page, with its gallery drawn."""

    def start(query: str = "lang=en", **options: Any) -> Page:
        page = open_page(f"{app_url}/masks?{query}", **options)
        expect(root(page, "gallery")).to_have_attribute("data-frame", re.compile(r"\d"))
        return page

    return start


def root(page: Page, key: str) -> Locator:
    return page.locator(f".st-key-masks-{key} [data-part=root]")


def caption(page: Page, key: str = "main-mask") -> Locator:
    return root(page, key).locator("[data-part=caption]")


def slider(page: Page, name: str) -> Locator:
    return page.get_by_role("slider", name=name, exact=True)


def settings(page: Page) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(page.url).query).items()}


def layout(page: Page, key: str) -> dict[str, Any]:
    return root(page, key).evaluate("root => root.attnvizLayout")


def click_map(page: Page, key: str, index: int, across: float = 0.5, down: float = 0.5) -> None:
    """Click a place of one map of a picture, given as shares of its width and height."""
    stage = root(page, key).locator("[data-part=stage]")
    stage.scroll_into_view_if_needed()
    bounds, box = resting_box(stage), layout(page, key)["maps"][index]
    page.mouse.click(bounds["x"] + box["x"] + across * box["w"], bounds["y"] + box["y"] + down * box["h"])


def hold(page: Page, name: str, end: float) -> None:
    """Take a slider's thumb and move it to ``end`` of its track without letting go."""
    track = slider(page, name)
    bounds = resting_box(track)
    share = track.evaluate("e => (e.value - e.min) / (e.max - e.min)")
    y = bounds["y"] + bounds["height"] / 2
    page.mouse.move(bounds["x"] + 7 + share * (bounds["width"] - 14), y)
    page.mouse.down()
    page.mouse.move(bounds["x"] + 7 + end * (bounds["width"] - 14), y, steps=8)


def test_a_thumbnail_becomes_the_large_picture(visit: Open) -> None:
    page = visit()
    expect(caption(page)).to_contain_text("Causal · 32 × 32 · 528 pairs")
    assert [box["key"] for box in layout(page, "gallery")["maps"]] == list(MASKS)
    click_map(page, "gallery", list(MASKS).index("sliding_window"))
    page.wait_for_url("**mask=sliding_window*")
    expect(caption(page)).to_contain_text("Sliding window · 32 × 32 · 228 pairs")
    expect(slider(page, "Window")).to_be_visible()


def test_the_picture_gallery_and_chart_follow_the_slider_without_a_run(visit: Open) -> None:
    page = visit("lang=en&mask=sliding_window")
    expect(slider(page, "Window")).to_be_visible()
    chart = page.locator(".st-key-masks-chart-mask .js-plotly-plot")
    expect(chart).to_be_visible()
    page.evaluate(COUNT_RUNS)
    thumbs, bars = root(page, "gallery").evaluate(PIXELS), chart.evaluate("e => Math.max(...e._fullData[0].y)")
    hold(page, "Window", 0.9)
    window = slider(page, "Window").get_attribute("aria-valuetext") or ""
    width = int(re.findall(r"\d+", window)[0])
    assert width > 20
    expect(caption(page)).to_contain_text(f"keys per query 1 to {width}")
    page.wait_for_function(
        f"([root, before]) => ({PIXELS})(root) !== before", arg=[root(page, "gallery").element_handle(), thumbs]
    )
    page.wait_for_function(
        "([e, width]) => Math.max(...e._fullData[0].y) === width", arg=[chart.element_handle(), width]
    )
    assert bars == 8 and page.evaluate("runsSeen") == 0 and "window" not in settings(page)
    page.mouse.up()
    page.wait_for_url(f"**window={width}*")
    wait_idle(page)
    assert page.evaluate("runsSeen") == 1


def test_a_cell_says_why_and_a_second_click_takes_it_back(visit: Open) -> None:
    page = visit("lang=en&mask=sliding_window&window=3")
    click_map(page, "main-mask", 0, (2.5) / 32, (9.5) / 32)
    page.wait_for_url("**cell=9%2C2*")
    expect(page.get_by_text("Query 9 may not attend to key 2.")).to_be_visible()
    expect(page.get_by_text("2\u00a0>\u00a06")).to_be_visible()
    click_map(page, "main-mask", 0, (8.5) / 32, (9.5) / 32)
    expect(page.get_by_text("Query 9 may attend to key 8.")).to_be_visible()
    expect(root(page, "main-mask").locator("[data-part=chosen]")).to_contain_text("may attend")
    page.get_by_role("button", name="Clear selection").click()
    expect(page.get_by_text("Click a cell: the rule is shown with its numbers.")).to_be_visible()
    assert "cell" not in settings(page)


def test_the_tile_slider_changes_the_tiles_at_once_and_a_tile_says_what_it_is(visit: Open) -> None:
    page = visit("lang=en&section=blocks&mask=sliding_window&length=64")
    expect(caption(page, "main-blocks")).to_contain_text("Tiles of 8 × 8")
    page.evaluate(COUNT_RUNS)
    slider(page, "Tile").focus()
    for _ in range(8):
        page.keyboard.press("ArrowRight")
    expect(caption(page, "main-blocks")).to_contain_text("Tiles of 16 × 16: 0 full · 7 partial · 9 empty")
    page.wait_for_url("**tile=16*")
    assert layout(page, "main-blocks")["maps"][0]["key"] == "tiles"
    wait_idle(page)
    click_map(page, "main-blocks", 0, 0.6, 0.6)
    expect(page.get_by_text("Tile 2, 2 is partial: 100 of 256 pairs.")).to_be_visible()
    page.get_by_role("button", name="Time it here").click()
    expect(page.get_by_text("with skipping")).to_be_visible()


def test_sections_are_links_and_only_the_chosen_one_is_there(visit: Open) -> None:
    page = visit()
    for name, key in (("Reach", "main-reach"), ("Conventions", "ways-main-fill"), ("Mask", "main-mask")):
        page.get_by_role("radio", name=name, exact=True).click()
        expect(root(page, key)).to_have_attribute("data-frame", re.compile(r"\d"))
        wait_idle(page)
        drawn = page.locator("[class*='st-key-masks-main-'], [class*='st-key-masks-ways-main-']")
        assert drawn.count() == 1
    page.get_by_role("radio", name="Code", exact=True).click()
    page.wait_for_url("**section=code*")
    expect(page.get_by_test_id("stCode")).to_contain_text("scaled_dot_product_attention")


def test_a_rule_that_is_none_gets_one_sentence_and_the_page_stays(visit: Open) -> None:
    page = visit("lang=en&mask=own")
    box = page.get_by_role("textbox", name="Rule", exact=True)
    box.fill("__import__('os').system('x')")
    box.press("Control+Enter")
    told = page.get_by_test_id("stCaptionContainer").filter(has_text="rule: at character 1")
    expect(told).to_have_count(1)
    expect(caption(page)).to_contain_text("Own rule")
    wait_idle(page)
    box.fill("kv_idx % 3 == 0")
    box.press("Control+Enter")
    expect(caption(page)).to_contain_text("Own rule · 32 × 32 · 352 pairs")
    expect(told).to_have_count(0)


def test_nan_cells_are_named_in_the_legend(visit: Open) -> None:
    page = visit("lang=en&section=conventions")
    legend = root(page, "ways-main-fill").locator("[data-part=legend]")
    expect(legend).to_contain_text("NaN")
    page.get_by_text("Hide every key from the last query").click()
    expect(legend).not_to_contain_text("NaN")
    page.wait_for_url("**empty=0*")


@pytest.mark.parametrize("convention", ["fill", "meaning", "floats"])
def test_every_way_has_its_whole_name_above_its_map(convention: str, visit: Open) -> None:
    page = visit(f"lang=en&section=conventions&convention={convention}", viewport=PHONE, touch=True)
    drawn = layout(page, f"ways-main-{convention}")
    titles = [label["text"] for label in drawn["labels"] if label["axis"] == "title"]
    assert len(titles) == len(drawn["maps"])
    assert [title for title in titles if "…" in title] == []


def test_a_long_mask_is_pooled_and_sharper_where_it_is_zoomed(visit: Open) -> None:
    page = visit("lang=en&mask=sliding_window&length=4096&window=100")
    expect(caption(page)).to_contain_text("4,096 × 4,096")
    stage = root(page, "main-mask").locator("[data-part=stage]")
    bounds, box = resting_box(stage), layout(page, "main-mask")["maps"][0]
    page.mouse.move(bounds["x"] + box["x"] + 20, bounds["y"] + box["y"] + 20)
    page.mouse.down()
    page.mouse.move(bounds["x"] + box["x"] + 40, bounds["y"] + box["y"] + 40, steps=4)
    page.mouse.up()
    expect(root(page, "main-mask")).to_have_attribute("data-sharp", re.compile(r"\d"))


def test_chinese_and_back_keep_the_mask(visit: Open) -> None:
    page = visit("lang=zh&mask=dilated&dilation=3&cell=9,3", locale="zh-CN")
    expect(page.get_by_role("heading", name="掩码", exact=True).first).to_be_visible()
    expect(caption(page)).to_contain_text("空洞窗口 · 32 × 32")
    expect(page.get_by_text("查询 9 可以关注键 3。")).to_be_visible()
    page.get_by_role("radio", name="English").click()
    expect(page.get_by_text("Query 9 may attend to key 3.")).to_be_visible()
    assert settings(page) == {"lang": "en", "mask": "dilated", "dilation": "3", "cell": "9,3"}


def test_the_theme_may_change_while_the_page_is_open(visit: Open) -> None:
    page = visit()
    page.evaluate(COUNT_RUNS)
    before = root(page, "main-mask").evaluate(PIXELS)
    page.emulate_media(color_scheme="dark")
    page.wait_for_function(
        f"([root, before]) => ({PIXELS})(root) !== before", arg=[root(page, "main-mask").element_handle(), before]
    )
    assert page.evaluate("runsSeen") == 0


@pytest.mark.parametrize("section", ["mask", "blocks", "reach", "conventions", "code"])
def test_a_phone_has_the_whole_width_and_no_more(visit: Open, section: str) -> None:
    page = visit(f"lang=zh&section={section}&cell=5,2", viewport=PHONE, touch=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]
    # Wide tables scroll inside themselves.
    assert page.get_by_test_id("stMain").evaluate("main => main.scrollWidth - main.clientWidth") == 0
    wide = page.evaluate(
        """limit => [...document.querySelectorAll("[data-testid=stMainBlockContainer] *")]
          .filter(e => e.checkVisibility() && e.getBoundingClientRect().right > limit + 1)
          .filter(e => !e.closest("[data-testid=stCode], table, .js-plotly-plot"))
          .map(e => e.outerHTML.slice(0, 160))""",
        PHONE[0],
    )
    assert wide == []


@pytest.mark.parametrize(
    ("section", "names", "has_bar"),
    [
        ("mask", ["may attend", "masked"], False),
        ("blocks", ["full", "partial", "empty, skipped"], False),
        ("reach", ["after layer 1", "not reached"], False),
        ("reach&layers=12&mask=sliding_window&window=2", ["not reached"], True),
    ],
)
def test_what_has_a_name_stands_in_the_legend_and_not_on_a_bar(section, names, has_bar, visit: Open) -> None:
    page = visit(f"lang=en&section={section}")
    key = f"main-{section.partition('&')[0]}"
    expect(root(page, key).locator("[data-part=legend] > *")).to_have_text(names)
    assert any(label["axis"] == "bar" for label in layout(page, key)["labels"]) is has_bar


@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_mask_in_the_gallery_has_its_whole_name(language: str, visit: Open) -> None:
    page = visit(f"lang={language}")
    lines: dict[str, list[str]] = {}
    for label in layout(page, "gallery")["labels"]:
        lines.setdefault(label["index"], []).append(label["text"])
    assert {key: ("" if language == "zh" else " ").join(parts) for key, parts in lines.items()} == {
        key: getattr(kind.label, language) for key, kind in MASKS.items()
    }


def test_the_large_picture_is_on_the_first_screen(visit: Open) -> None:
    page = visit()
    bounds, box = (
        resting_box(root(page, "main-mask").locator("[data-part=stage]")),
        layout(page, "main-mask")["maps"][0],
    )
    assert bounds is not None
    assert bounds["y"] + box["y"] + box["h"] <= 720


def test_the_first_request_may_be_a_deep_link(fresh_server: Callable[..., str], open_page: Open) -> None:
    page = open_page(f"{fresh_server()}/masks?lang=en&mask=tree&cell=13,12&length=20")
    expect(caption(page)).to_contain_text("Draft tree · 20 × 20")
    expect(page.get_by_text("Query 13 may not attend to key 12.")).to_be_visible()
    assert json.loads(root(page, "main-mask").get_attribute("data-params") or "{}")["mask"] == "tree"
