"""The attention page in a real browser: links, languages, themes, the sliders, the picture and what it says."""

import json
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.driver import PHONE, resting_box, wait_idle
from tests.browser.timing import PROBE

Open = Callable[..., Page]

# Counts the runs of the page's script from now on.
COUNT_RUNS = """() => {
  const app = document.querySelector('[data-testid="stApp"]')
  globalThis.runsSeen = 0
  new MutationObserver(() => {
    if (app.getAttribute("data-test-script-state") === "running") globalThis.runsSeen++
  }).observe(app, { attributes: true, attributeFilter: ["data-test-script-state"] })
}"""
# The picture as numbers: a page's two pictures are the same exactly when these are.
PIXELS = """root => {
  const canvas = root.querySelector("[data-part=base]")
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height)
  let hash = 2166136261
  for (const value of data) hash = Math.imul(hash ^ value, 16777619) >>> 0
  return [canvas.width, canvas.height, hash]
}"""
# The strongest contrast to the background in the picture within the rectangle of a label.
CONTRAST = """(root, { x, y, w, h }) => {
  const canvas = root.querySelector("[data-part=base]")
  const ratio = canvas.width / canvas.clientWidth
  const { data } = canvas.getContext("2d").getImageData(...[x, y, Math.max(1, w), h].map(v => Math.round(v * ratio)))
  const bend = v => ((v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
  const light = i => 0.2126 * bend(data[i]) + 0.7152 * bend(data[i + 1]) + 0.0722 * bend(data[i + 2])
  let [low, high] = [1, 0]
  for (let i = 0; i < data.length; i += 4) [low, high] = [Math.min(low, light(i)), Math.max(high, light(i))]
  return (high + 0.05) / (low + 0.05)
}"""


# Where the large picture stood when it was first painted.
FIRST_PLACE = """attnvizProbe.attach().then(() => {
  const { left, width } = document.querySelector(".st-key-attention-main").getBoundingClientRect()
  globalThis.firstPlace = [left, width]
})"""


@pytest.fixture
def visit(open_page: Open, app_url: str) -> Open:
    """Give ``visit(query="lang=en", **options) -> Page``: a new visitor of the page, with its pictures drawn."""

    def start(query: str = "lang=en", **options: Any) -> Page:
        page = open_page(f"{app_url}/attention?{query}", **options)
        expect(main(page)).to_have_attribute("data-frame", re.compile(r"\d"))
        expect(slider(page, re.compile("d_k"))).to_be_visible()
        return page

    return start


def main(page: Page) -> Locator:
    return page.locator(".st-key-attention-main [data-part=root]")


def strip(page: Page) -> Locator:
    return page.locator(".st-key-attention-strip [data-part=root]")


def caption(page: Page) -> Locator:
    return main(page).locator("[data-part=caption]")


def tip(page: Page) -> Locator:
    return main(page).locator("[data-part=tip]")


def chosen(page: Page) -> Locator:
    return main(page).locator("[data-part=chosen]")


def slider(page: Page, name: str | re.Pattern[str]) -> Locator:
    return page.get_by_role("slider", name=name)


def layout(page: Page, root: Callable[[Page], Locator] = main) -> dict[str, Any]:
    return root(page).evaluate("root => root.attnvizLayout")


def settings(page: Page) -> dict[str, str]:
    """Give what the address says."""
    return {name: values[0] for name, values in parse_qs(urlsplit(page.url).query).items()}


def at(page: Page, row: float, col: float, of: tuple[int, int], map: int = 0) -> tuple[float, float]:
    """Give the middle of a cell as a point of the window, ``of`` so many rows and columns on screen."""
    stage = main(page).locator("[data-part=stage]")
    stage.scroll_into_view_if_needed()
    bounds, box = resting_box(stage), layout(page)["maps"][map]
    x = box["x"] + (col + 0.5) * box["w"] / of[1]
    return bounds["x"] + x, bounds["y"] + box["y"] + (row + 0.5) * box["h"] / of[0]


def point(page: Page, row: float, col: float, of: tuple[int, int], map: int = 0) -> None:
    page.mouse.move(*at(page, row, col, of, map))


def exact(page: Page, row: int, col: int, map: str = "0") -> str:
    """Ask the route of this very view for a cell's value."""
    query = "&".join(f"{name}={quote(value)}" for name, value in settings(page).items())
    origin = "{0.scheme}://{0.netloc}".format(urlsplit(page.url))
    answer = page.request.get(f"{origin}/live/attention/cell?{query}&part=main&map={map}&row={row}&col={col}")
    assert answer.ok, answer.text()
    return str(json.loads(answer.text())["value"])


def hold(page: Page, name: str | re.Pattern[str], end: float, steps: int = 8) -> None:
    """Take a slider's thumb and move it to ``end`` of its track without letting go."""
    track = slider(page, name)
    bounds = resting_box(track)
    share = track.evaluate("e => (e.value - e.min) / (e.max - e.min)")
    y = bounds["y"] + bounds["height"] / 2
    page.mouse.move(bounds["x"] + 7 + share * (bounds["width"] - 14), y)
    page.mouse.down()
    page.mouse.move(bounds["x"] + 7 + end * (bounds["width"] - 14), y, steps=steps)


def type_value(page: Page, name: str, value: int) -> None:
    box = page.get_by_role("textbox", name=f"Type a value for {name}")
    box.fill(str(value))
    box.press("Enter")


def row_summary(page: Page) -> Locator:
    return page.get_by_text(re.compile(r"^Sum "))


# ---- arriving ----


def test_the_first_request_to_a_fresh_server_may_be_a_deep_link(
    fresh_server: Callable[..., str], open_page: Open
) -> None:  # in this order the page is closed before its server ends, which it would complain of
    page = open_page(f"{fresh_server()}/attention?lang=en&length=20&d_k=16&heads=2&kv_heads=1&mask=full&cell=1,3,2")
    expect(page.get_by_role("heading", name="Scaled dot-product attention")).to_be_visible()
    expect(caption(page)).to_contain_text("MQA 2/1 · 20 × 20 · d_k 16")
    expect(page.get_by_text("One row: query 3, head 1")).to_be_visible()
    assert [box["key"] for box in layout(page)["maps"]] == ["0", "1"]
    expect(slider(page, "d_k (head_dim)")).to_have_attribute("aria-valuetext", "16")


@pytest.mark.parametrize(
    ("query", "sentences"),
    [
        ("d_k=2000", ["d_k must be a whole number from 1 to 1,024, got '2000'."]),
        ("d_k=hello&dropout=nan", ["d_k must be a whole number from 1 to 1,024, got 'hello'.", "dropout must be"]),
        ("heads=3&kv_heads=2", ["kv_heads must divide heads: 3 heads allow 1, 3, got 2; using"]),
        (
            f"mask={quote('<b>$x$')}&length=999999999&stage=nothing&cell=0,99,0",
            [
                "mask must be one of full, causal,",
                "got '<b>$x$'.",
                "length must be",
                "got 'nothing'.",
                "cell 0,99,0 lies outside the map",
            ],
        ),
    ],
)
def test_a_link_that_cannot_be_read_gets_a_sentence_for_each_value_and_the_page(
    visit: Open, query: str, sentences: list[str]
) -> None:
    page = visit(f"lang=en&{query}")
    told = page.get_by_test_id("stAlertContainer").filter(has_text="got")
    expect(told).to_have_count(1)
    rest = page.get_by_test_id("stExpander").filter(has=page.locator("summary", has_text=re.compile(r"\d more")))
    if len(sentences) > 3:  # beyond three they wait in a section of their own
        rest.locator("summary").click()
        expect(rest).to_contain_text("lies outside the map")
    heard = told.inner_text() + (rest.inner_text() if len(sentences) > 3 else "")
    assert [words for words in sentences if words not in heard] == []
    expect(page.get_by_test_id("stException")).to_have_count(0)
    expect(caption(page)).to_contain_text("3/" if "heads" in query else "MHA 4/4 · 12 × 12 · d_k 64")
    assert settings(page).keys() <= {"lang", "heads", "kv_heads"}


def test_the_browsers_language_decides_at_first_and_the_switch_keeps_everything(visit: Open) -> None:
    page = visit("d_k=16&heads=2&cell=0,3,1&mask=full", locale="zh-CN")
    expect(page.get_by_role("heading", name="缩放点积注意力")).to_be_visible()
    expect(slider(page, "序列长度")).to_be_visible()
    expect(caption(page)).not_to_contain_text("holds")
    before = settings(page)
    page.get_by_role("radio", name="English").click()
    expect(page.get_by_role("heading", name="Scaled dot-product attention")).to_be_visible()
    expect(page.get_by_text("One row: query 3, head 0")).to_be_visible()
    expect(caption(page)).to_contain_text("2/2 · 12 × 12 · d_k 16")
    expect(slider(page, "d_k (head_dim)")).to_have_attribute("aria-valuetext", "16")
    assert settings(page) == before | {"lang": "en"}
    page.get_by_role("radio", name="中文").click()
    expect(page.get_by_role("heading", name="缩放点积注意力")).to_be_visible()
    expect(main(page).get_by_role("application")).to_have_attribute("aria-label", re.compile("最大值"))


def test_a_copied_link_shows_the_same_picture_and_the_same_numbers_elsewhere(visit: Open) -> None:
    page = visit(
        "lang=en&seed=7&d_k=24&heads=2&length=9&scale=one&stage=scores&cell=1,4,2&text="
        + quote("the <b> 猫 & $x$ 100%+1")
    )
    expect(page.get_by_text("One row: query 4, head 1")).to_be_visible()
    page.get_by_role("button", name="Copy link").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    link = page.get_by_role("button", name="Copied").get_attribute("data-copied")
    assert link
    other = visit(urlsplit(link).query, locale="zh-CN")
    for text in ("One row: query 4, head 1",):
        expect(other.get_by_text(text)).to_be_visible()
    expect(row_summary(other)).to_have_text(row_summary(page).inner_text())
    for place in (page, other):
        place.mouse.move(2, 2)
        expect(chosen(place).locator("[data-exact=true]")).to_be_visible()
    assert chosen(other).inner_text() == chosen(page).inner_text()
    assert main(other).evaluate(PIXELS) == main(page).evaluate(PIXELS)
    assert strip(other).evaluate(PIXELS) == strip(page).evaluate(PIXELS)
    assert {**settings(other), "length": "9"} == settings(page) | {"length": "9"}


def test_back_and_forward_return_to_the_settings_and_the_picture(visit: Open) -> None:
    page = visit()
    first = main(page).evaluate(PIXELS)
    type_value(page, "d_k (head_dim)", 8)
    expect(caption(page)).to_contain_text("d_k 8 ")
    page.wait_for_url("**d_k=8*")
    wait_idle(page)
    type_value(page, "Heads", 2)
    expect(caption(page)).to_contain_text("2/2")
    page.wait_for_url("**heads=2*")
    wait_idle(page)
    page.go_back()
    expect(slider(page, re.compile("^Heads"))).to_have_attribute("aria-valuetext", "4")
    expect(caption(page)).to_contain_text("4/4 · 12 × 12 · d_k 8 ")
    page.go_back()
    expect(slider(page, "d_k (head_dim)")).to_have_attribute("aria-valuetext", "64")
    expect(caption(page)).to_contain_text("d_k 64 ")
    wait_idle(page)
    page.mouse.move(2, 2)
    assert main(page).evaluate(PIXELS) == first
    page.go_forward()
    expect(caption(page)).to_contain_text("d_k 8 ")
    expect(slider(page, "d_k (head_dim)")).to_have_attribute("aria-valuetext", "8")


def test_reset_takes_everything_back(visit: Open) -> None:
    page = visit("d_k=8&heads=2&mask=full&cell=0,1,1&stage=scores", locale="de-DE")  # and any other language is English
    page.get_by_role("button", name="Reset", exact=True).click()
    expect(caption(page)).to_contain_text("MHA 4/4 · 12 × 12 · d_k 64")
    expect(page.get_by_text("Click a cell to see its row")).to_be_visible()
    wait_idle(page)
    assert settings(page).keys() <= {"lang"}


# ---- sliders ----


def test_dragging_moves_the_picture_without_a_run_and_letting_go_runs_once(visit: Open) -> None:
    page = visit("lang=en&mask=sliding_window&window=3")
    page.evaluate(COUNT_RUNS)
    entries, shown = page.evaluate("history.length"), int(main(page).get_attribute("data-frame") or 0)
    hold(page, "Length", 0.1)
    expect(caption(page)).not_to_contain_text("12 × 12")
    length = slider(page, "Length").get_attribute("aria-valuetext")
    expect(caption(page)).to_contain_text(f"· {length} × {length} ·")
    assert int(main(page).get_attribute("data-frame") or 0) > shown
    assert json.loads(main(page).get_attribute("data-params") or "{}")["length"] == length
    assert page.evaluate("runsSeen") == 0
    assert "length" not in settings(page)
    assert max(label["index"] for label in layout(page)["labels"] if label["axis"] == "row") < int(length or 0) < 12
    page.mouse.up()
    page.wait_for_url(f"**length={length}*")
    wait_idle(page)
    assert page.evaluate("history.length") == entries + 1
    assert page.evaluate("runsSeen") == 1
    expect(caption(page)).to_contain_text(f"{length} × {length}")


def test_every_live_slider_answers_its_keys(visit: Open) -> None:
    page = visit("lang=en&attention=cross&key_length=9&mask=sliding_window&window=3&scale=custom")
    for name, words in (
        ("Length", "13 × 9"),
        ("Key length", "13 × 10"),
        ("d_k (head_dim)", "d_k 80"),
        ("Heads", "5/"),
    ):
        slider(page, re.compile(rf"^{re.escape(name)}")).first.focus()
        page.keyboard.press("ArrowRight")
        expect(caption(page)).to_contain_text(words)
    for name, parameter in (("Window", "window"), ("Scale factor", "scale_value")):
        before = json.loads(main(page).get_attribute("data-params") or "{}").get(parameter)
        slider(page, re.compile(rf"^{name}", re.IGNORECASE)).first.focus()
        page.keyboard.press("ArrowRight")
        page.wait_for_function(
            "([root, name, before]) => JSON.parse(root.dataset.params)[name] !== before",
            arg=[main(page).element_handle(), parameter, before],
        )


def test_without_the_route_the_page_still_follows(visit: Open) -> None:
    page = visit(allow=(r"/live/attention", r"net::ERR_FAILED"))
    page.route("**/live/**", lambda route: route.abort())
    hold(page, "d_k (head_dim)", 0.1, steps=2)
    expect(caption(page)).not_to_contain_text("d_k 64")  # still held: these are runs of the page
    page.mouse.up()
    d_k = slider(page, "d_k (head_dim)").get_attribute("aria-valuetext")
    page.wait_for_url(re.compile(rf"d_k={d_k}\b"))
    wait_idle(page)
    expect(caption(page)).to_contain_text(f"d_k {d_k} ")
    expect(slider(page, "d_k (head_dim)")).to_have_attribute("aria-valuetext", d_k or "")
    page.mouse.click(*at(page, 3, 1, (12, 12)))
    expect(page.get_by_text("One row: query 3, head 0")).to_be_visible()


def test_two_visitors_do_not_see_each_other(visit: Open) -> None:
    one, two = visit(), visit()
    hold(one, "d_k (head_dim)", 0.05)
    hold(two, "d_k (head_dim)", 0.95)
    one.mouse.up()
    two.mouse.up()
    for page in (one, two):
        page.wait_for_url("**d_k=*")
        wait_idle(page)
        expect(caption(page)).to_contain_text(f"d_k {settings(page)['d_k']} ")
    mine = settings(one)["d_k"]
    one.mouse.click(*at(one, 3, 1, (12, 12)))  # a further run, after the other's
    expect(one.get_by_text("One row: query 3, head 0")).to_be_visible()
    expect(caption(one)).to_contain_text(f"d_k {mine} ")
    expect(two.get_by_text("Click a cell to see its row")).to_be_visible()
    assert int(settings(one)["d_k"]) < 64 < int(settings(two)["d_k"])


@pytest.mark.parametrize("viewport", [(1280, 720), PHONE])
def test_help_of_a_slider_stays_in_the_window_and_takes_no_room_before(visit: Open, viewport: tuple[int, int]) -> None:
    page = visit(viewport=viewport)
    sides = (
        "(({ scrollWidth, clientWidth }) => [scrollWidth, clientWidth])(document.querySelector('[data-testid=stMain]'))"
    )
    wide, room = page.evaluate(sides)
    assert wide == room
    helps = page.get_by_test_id("stMain").get_by_role("button", name=re.compile("^About ")).all()
    assert helps
    for one in helps:
        one.focus()
        tip = page.get_by_role("tooltip").filter(visible=True)
        bounds = resting_box(tip)
        assert bounds["x"] >= 0 and bounds["x"] + bounds["width"] <= viewport[0]


# ---- the picture ----


def test_pointing_says_both_tokens_both_positions_and_the_exact_value(visit: Open) -> None:
    page = visit()
    point(page, 7, 4, (12, 12), map=2)
    for words in ("head 2", "query 7 “the”", "key 4 “the”"):
        expect(tip(page)).to_contain_text(words)
    expect(tip(page).locator("[data-exact=true]")).to_have_text(exact(page, 7, 4, "2"))
    point(page, 2, 9, (12, 12), map=2)
    expect(tip(page).locator("strong")).to_have_text("masked")


def test_selecting_opens_the_row_and_a_second_click_or_escape_closes_it(visit: Open) -> None:
    page = visit()
    page.mouse.click(*at(page, 7, 4, (12, 12), map=1))
    expect(page.get_by_text("One row: query 7, head 1")).to_be_visible()
    expect(row_summary(page)).to_contain_text("Sum 1 ·")
    expect(chosen(page).locator("[data-exact=true]")).to_have_text(exact(page, 7, 4, "1"))
    page.wait_for_url("**cell=1%2C7%2C4*")
    assert strip(page).evaluate("root => root.attnvizMarks.selected.length") == 8
    page.mouse.click(*at(page, 7, 4, (12, 12), map=1))
    expect(page.get_by_text("Click a cell to see its row")).to_be_visible()
    page.mouse.click(*at(page, 5, 2, (12, 12)))
    expect(page.get_by_text("One row: query 5, head 0")).to_be_visible()
    for key in ("ArrowDown", "ArrowDown", "ArrowLeft"):
        page.keyboard.press(key)
    expect(page.get_by_text("One row: query 7, head 0")).to_be_visible()
    page.wait_for_url("**cell=0%2C7%2C1*")
    page.keyboard.press("Escape")
    expect(page.get_by_text("Click a cell to see its row")).to_be_visible()
    wait_idle(page)
    assert "cell" not in settings(page)


def test_the_bars_and_their_numbers_follow_the_slider_with_the_maps(visit: Open) -> None:
    page = visit("lang=en&cell=1,7,4&scale=one&d_k=1")
    summary, before = row_summary(page), row_summary(page).inner_text()
    # The third bar is the selected one; its node stays while it changes.
    bar = page.locator(".st-key-attention-row .barlayer .trace").nth(1).locator(".point path")
    shape = bar.get_attribute("d")
    page.evaluate(COUNT_RUNS)
    bounds = resting_box(slider(page, re.compile("d_k")))
    page.mouse.move(bounds["x"] + 2, bounds["y"] + bounds["height"] / 2)
    page.mouse.down()
    page.mouse.move(bounds["x"] + 0.8 * bounds["width"], bounds["y"] + bounds["height"] / 2, steps=4)
    expect(summary).not_to_have_text(before)
    expect(bar).not_to_have_attribute("d", shape or "")
    assert page.evaluate("runsSeen") == 0  # held: no run of the page was needed
    page.mouse.up()
    page.wait_for_url("**d_k=*")
    wait_idle(page)
    assert row_summary(page).inner_text() != before
    colour = page.evaluate(
        "getComputedStyle(document.querySelector('.st-key-attention-row .attnviz-plot'))"
        ".getPropertyValue('--st-chart-categorical-colors').split(',')[1]"
    )
    fill = bar.evaluate("bar => getComputedStyle(bar).fill")
    assert fill == f"rgb({', '.join(str(int(colour.strip()[at : at + 2], 16)) for at in (1, 3, 5))})"


def test_a_thumbnail_becomes_the_large_picture(visit: Open) -> None:
    page = visit()
    stage = strip(page).locator("[data-part=stage]")
    box = next(box for box in layout(page, strip)["maps"] if box["key"] == "scores")
    stage.click(position={"x": box["x"] + 10, "y": box["y"] + 10})
    page.wait_for_url("**stage=scores*")
    expect(main(page).get_by_role("application")).to_have_attribute("aria-label", re.compile("^QKᵀ"))
    ticks = [float(label["text"].replace("−", "-")) for label in layout(page)["labels"] if label["axis"] == "bar"]
    assert min(ticks) == -max(ticks) < 0


def test_a_long_map_is_pooled_says_so_and_gives_exact_values_of_a_region(open_page: Open, app_url: str) -> None:
    page = open_page(f"{app_url}/attention?lang=en", wait=False)
    sizes: list[int] = []
    page.on("websocket", lambda socket: socket.on("framereceived", lambda data: sizes.append(len(data))))
    page.on(
        "response",
        lambda answer: sizes.append(int(answer.headers.get("content-length", 0))) if "/live/" in answer.url else None,
    )
    page.goto(f"{app_url}/attention?lang=en&length=4096&heads=1&input=normal&d_k=16")
    wait_idle(page)
    expect(caption(page)).to_contain_text("4,096 × 4,096")
    expect(caption(page)).to_contain_text("each cell drawn is the value farthest from 0 among 4 × 4")
    point(page, 300, 200, (1024, 1024))
    expect(tip(page)).to_contain_text(re.compile(r"query \d+–\d+"))
    page.mouse.down()
    page.mouse.move(*at(page, 340, 240, (1024, 1024)), steps=3)
    page.mouse.up()
    expect(main(page)).to_have_attribute("data-sharp", "1")
    for row, col in ((20, 30), (70, 90)):
        point(page, row, col, (100, 100))
        expect(tip(page).locator("[data-exact=true]")).to_be_visible()
        found = re.search(r"query (\d+)\s+key (\d+)\s+(\S+)", tip(page).inner_text())
        assert found, tip(page).inner_text()
        assert 1190 < int(found[1]) < 1380
        assert found[3] == exact(page, int(found[1]), int(found[2]))
    assert sizes
    assert max(sizes) <= 2_200_000
    slider(page, "d_k (head_dim)").focus()  # it is alive
    page.keyboard.press("ArrowRight")
    expect(caption(page)).to_contain_text("d_k 17 ")


def test_queries_and_keys_may_differ_in_number(visit: Open) -> None:
    page = visit("lang=en&attention=cross&length=18&key_length=79&heads=1&mask=full")
    expect(caption(page)).to_contain_text("18 × 79")
    box = layout(page)["maps"][0]
    assert box["w"] > 2 * box["h"]
    point(page, 17, 78, (18, 79))
    expect(tip(page)).to_contain_text(re.compile(r"query 17\b"))
    expect(tip(page)).to_contain_text(re.compile(r"key 78\b"))
    expect(tip(page).locator("[data-exact=true]")).to_have_text(exact(page, 17, 78))


def named(page: Page, axis: str) -> list[str]:
    return [label["text"] for label in layout(page)["labels"] if label["axis"] == axis]


def test_a_token_that_comes_twice_is_two_rows_and_two_columns(visit: Open) -> None:
    page = visit("lang=en&heads=1&length=5&text=" + quote("the cat the the cat"))
    assert named(page, "row") == named(page, "col") == ["the", "cat", "the", "the", "cat"]
    page.mouse.click(*at(page, 4, 2, (5, 5)))
    expect(bars(page)).to_have_text(["the · 0", "cat · 1", "the · 2", "the · 3", "cat · 4"])


def test_every_character_of_a_chinese_sentence_is_there(visit: Open) -> None:
    sentence = "那只猫坐在暖和的垫子上。"
    page = visit(f"lang=zh&heads=1&length={len(sentence)}&text={quote(sentence)}", locale="zh-CN")
    assert "".join(named(page, "row")) == "".join(named(page, "col")) == sentence


def test_tokens_are_shown_as_they_are_and_nothing_of_them_runs(visit: Open) -> None:
    tokens = ["<b>", "</script>", "$x$", "<img/src=x/onerror=alert(1)>", "<br>", "&", "amp", "*", "fat", "*"]
    page = visit(f"lang=en&heads=1&length={len(tokens)}&mask=full&text={quote(' '.join(tokens))}")
    page.on("dialog", lambda dialog: dialog.accept())
    assert named(page, "row")[:3] == tokens[:3]
    for row in range(6):
        point(page, row, 3, (10, 10))
        expect(tip(page)).to_contain_text(f"query {row} “{tokens[row]}”")
    page.mouse.click(*at(page, 0, 2, (10, 10)))
    expect(chosen(page)).to_contain_text("“<b>”")
    expect(bars(page)).to_have_text([f"{token} · {index}" for index, token in enumerate(tokens)])
    assert page.locator("img[src=x], .st-key-attention-row tspan[style*=bold]").count() == 0


def bars(page: Page) -> Locator:
    """Give the names of the bars of the selected row."""
    return page.locator(".st-key-attention-row .ytick text")


# ---- looks ----


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_are_readable_in_both_themes(visit: Open, scheme: str) -> None:
    page = visit("lang=en&cell=0,3,1", color_scheme=scheme)
    labels = layout(page)["labels"]
    assert {"row", "col", "title", "bar"} <= {label["axis"] for label in labels}
    for label in labels:
        rect = {side: label[side] for side in ("x", "y", "w", "h")}
        if label["text"].strip(" .,"):
            assert main(page).evaluate(CONTRAST, rect) >= 4.5, label
    point(page, 5, 2, (12, 12))
    style = tip(page).evaluate("e => [getComputedStyle(e).color, getComputedStyle(e).backgroundColor]")
    ink, paper = ([int(part) for part in re.findall(r"\d+", colour)[:3]] for colour in style)
    assert (sum(paper) > 600) == (scheme == "light")
    assert abs(sum(paper) - sum(ink)) > 450


def test_the_theme_may_change_while_the_page_is_open(visit: Open) -> None:
    page = visit()
    page.evaluate(COUNT_RUNS)
    before = main(page).evaluate(PIXELS)
    page.emulate_media(color_scheme="dark")
    page.wait_for_function(
        f"([root, before]) => String(({PIXELS})(root)) !== String(before)", arg=[main(page).element_handle(), before]
    )
    assert page.evaluate("runsSeen") == 0
    page.emulate_media(color_scheme="light")
    page.wait_for_function(
        f"([root, before]) => String(({PIXELS})(root)) === String(before)", arg=[main(page).element_handle(), before]
    )


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_phone_has_the_whole_width_and_no_more(visit: Open, language: str) -> None:
    page = visit(f"lang={language}&cell=0,3,1&heads=8", viewport=PHONE, touch=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]
    wide = page.evaluate(
        """limit => [...document.querySelectorAll("[data-testid=stMainBlockContainer] *")]
          .filter(e => e.checkVisibility() && e.getBoundingClientRect().right > limit + 1)
          .filter(e => !e.closest("[data-testid=stCode], [data-testid=stButtonGroup]")) // these scroll by themselves
          .map(e => e.outerHTML.slice(0, 120))""",
        PHONE[0],
    )
    assert wide == []
    bounds = resting_box(main(page))
    assert all(box["x"] + box["w"] <= bounds["width"] for box in layout(page)["maps"])
    page.touchscreen.tap(*at(page, 5, 2, (12, 12), map=1))
    page.wait_for_url("**cell=1%2C5%2C2*")


def test_fits_a_projector(visit: Open) -> None:
    page = visit()
    bounds = resting_box(main(page).locator("[data-part=stage]"))
    assert bounds["y"] + bounds["height"] <= 720


def test_a_wide_table_scrolls_by_itself_on_a_phone(visit: Open) -> None:
    page = visit("position=rope&cell=1,5,2", viewport=PHONE, touch=True)
    expect(page.locator("[data-testid=stMain] table").first).to_be_visible()
    assert page.get_by_test_id("stMain").evaluate("main => main.scrollWidth") <= PHONE[0]
    assert page.locator("[data-testid=stMarkdownContainer]:has(> table)").first.evaluate(
        "box => box.scrollWidth > box.clientWidth"
    )


def test_nothing_is_cut_where_a_call_has_most_stages(visit: Open) -> None:
    page = visit("lang=en&position=rope&score_mod=softcap&cell=0,3,2")
    expect(page.locator("[data-testid=stMain] table")).to_have_count(3)
    wait_idle(page)
    cut = "boxes => boxes.filter(box => box.scrollWidth > box.clientWidth).map(box => box.textContent)"
    assert page.locator("[data-testid=stMarkdownContainer]:has(> table)").evaluate_all(cut) == []
    assert page.locator(".st-key-attention-stage [data-testid=stButtonGroup] > div").evaluate_all(cut) == []
    strip = page.locator(".st-key-attention-strip [data-part=root]").evaluate("root => root.attnvizLayout.labels")
    titles = " ".join(label["text"] for label in strip if label["axis"] == "title")
    assert titles == "Q K Q rotated K rotated QKᵀ × scale score mod modified mask softmax V · V"


def test_the_picture_stays_where_it_is_when_the_controls_come(visit):
    page = visit(script=f"{PROBE};{FIRST_PLACE}", wait=False)
    wait_idle(page)
    expect(page.get_by_test_id("stSidebar").get_by_test_id("stSelectbox").first).to_be_visible()
    box = resting_box(page.locator(".st-key-attention-main"))
    assert page.evaluate("firstPlace") == pytest.approx([box["x"], box["width"]], abs=1)
