"""The heatmap component in a real browser: pointing, selecting, zooming, drawing, reading."""

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.apps.heatmap_app import CHINESE, ODD, SENTENCE, values
from tests.browser.driver import PHONE, resting_box, wait_idle

APP = "tests/browser/apps/heatmap_app.py"
Open = Callable[..., Page]


@pytest.fixture
def show(open_page: Open, serve: Callable[..., str]) -> Open:
    """Give ``show(query, **options) -> Page``: the test app with the maps its address asks for, once they are drawn."""

    def start(query: str = "", **options: Any) -> Page:
        page = open_page(f"{serve(APP)}/?{query}", **options)
        expect(main(page)).to_have_attribute("data-frame", re.compile(r"\d+"))
        return page

    return start


def main(page: Page) -> Locator:
    return page.locator(".st-key-main [data-part=root]")


def part(page: Page, name: str, key: str = "main") -> Locator:
    return page.locator(f".st-key-{key} [data-part={name}]")


def stage(page: Page, key: str = "main") -> Locator:
    return part(page, "stage", key)


def layout(page: Page, key: str = "main") -> dict[str, Any]:
    return page.locator(f".st-key-{key} [data-part=root]").evaluate("root => root.attnvizLayout")


def marks(page: Page, kind: str, key: str = "main") -> list[dict[str, Any]]:
    return page.locator(f".st-key-{key} [data-part=root]").evaluate(f"root => root.attnvizMarks.{kind}")


def frames(page: Page) -> int:
    return int(main(page).get_attribute("data-frame") or 0)


def centre(page: Page, row: float, col: float, shape: tuple[int, int], which: int = 0, key: str = "main"):
    """Give where the middle of a cell of an unzoomed map is, on the page."""
    outer, box = resting_box(stage(page, key)), layout(page, key)["maps"][which]
    x = outer["x"] + box["x"] + (col + 0.5) / shape[1] * box["w"]
    return x, outer["y"] + box["y"] + (row + 0.5) / shape[0] * box["h"]


def drag(page: Page, start: tuple[float, float], stop: tuple[float, float]) -> None:
    page.mouse.move(*start)
    page.mouse.down()
    page.mouse.move(*stop, steps=4)
    page.mouse.up()


def zoom(page: Page, shape: tuple[int, int], rows: tuple[int, int], cols: tuple[int, int], which: int = 0) -> None:
    """Drag from the middle of one cell to the middle of another."""
    drag(page, centre(page, rows[0], cols[0], shape, which), centre(page, rows[1], cols[1], shape, which))
    expect(main(page)).to_have_attribute("data-zoomed", "true")


def shown(page: Page, axis: str) -> list[int]:
    """Give the indices that are labelled on an axis, once each."""
    return sorted({label["index"] for label in layout(page)["labels"] if label["axis"] == axis})


def texts(page: Page, axis: str) -> list[str]:
    return [label["text"] for label in layout(page)["labels"] if label["axis"] == axis]


def overlaps(labels: Sequence[dict[str, Any]]) -> list[tuple[str, str]]:
    def apart(a: dict[str, Any], b: dict[str, Any]) -> bool:
        return any(a[at] + a[size] <= b[at] + 0.01 or b[at] + b[size] <= a[at] + 0.01 for at, size in ("xw", "yh"))

    return [(a["text"], b["text"]) for i, a in enumerate(labels) for b in labels[:i] if not apart(a, b)]


def exact(head: int, row: int, col: int, d: int = 1, kind: str = "") -> str:
    """Give the value as the server spells it."""
    value = values({"d": str(d), "kind": kind}, head, np.array([row]), np.array([col]))[0, 0]
    return f"{value:.15f}"


def colour(page: Page, x: float, y: float) -> list[int]:
    """Give the colour of the picture at a place on the page."""
    outer = stage(page).bounding_box()
    assert outer is not None
    return part(page, "base").evaluate(
        "(c, [x, y]) => [...c.getContext('2d').getImageData(x * devicePixelRatio, y * devicePixelRatio, 1, 1).data]",
        [x - outer["x"], y - outer["y"]],
    )[:3]


def ask(page: Page, **params: object) -> None:
    """Move live parameters, as sliders do, and wait for their picture."""
    wanted = {name: str(value) for name, value in params.items()}
    page.evaluate("wanted => Object.entries(wanted).forEach(each => attnviz.group('maps').move(...each))", wanted)
    page.wait_for_function(
        """([root, wanted]) => Object.entries(wanted).every(([name, value]) =>
          JSON.parse(root.dataset.params)[name] === value)""",
        arg=[main(page).element_handle(), wanted],
    )


def chosen(page: Page) -> Any:
    return json.loads(page.get_by_text(re.compile("^selected: ")).inner_text().removeprefix("selected: "))


def expect_chosen(page: Page, selection: object) -> None:
    expect(page.get_by_text(f"selected: {json.dumps(selection)}", exact=True)).to_be_visible()


# ---- pointing ----


def test_hover_names_both_tokens_both_positions_and_the_value_at_once(show: Open) -> None:
    page = show("tokens=sentence&queries=12&keys=12")
    page.route("**/live/maps/cell**", lambda route: None)  # an answer that never comes
    page.mouse.move(*centre(page, 7, 2, (12, 12)))
    tip = part(page, "tip")
    expect(tip).to_be_visible(timeout=1000)
    lines = tip.locator("> *")
    assert lines.nth(0).inner_text() == "head 0"
    assert lines.nth(1).inner_text() == "query 7 “the”"
    assert lines.nth(2).inner_text() == "key 2 “sat”"
    assert lines.nth(3).inner_text().startswith("≈ ")
    assert float(lines.nth(3).inner_text()[2:]) == pytest.approx(float(exact(0, 7, 2)), abs=6e-5)
    assert lines.nth(4).inner_text() == "positions count from 0"


def test_the_exact_value_follows_at_rest(show: Open) -> None:
    page = show("tokens=sentence&queries=12&keys=12&heads=3")
    for which, row, col in ((2, 5, 4), (0, 3, 1)):
        page.mouse.move(*centre(page, row, col, (12, 12), which))
        expect(part(page, "tip").locator("strong")).to_have_text(exact(which, row, col))
        expect(part(page, "tip").locator("strong")).to_have_attribute("data-exact", "true")


def test_a_moving_pointer_asks_for_nothing(show: Open) -> None:
    page = show("queries=12&keys=12")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "/cell" in request.url else None)
    points = [centre(page, cell, cell, (12, 12)) for cell in range(12)]
    stage(page).evaluate(
        """(stage, points) => points.forEach(([clientX, clientY]) =>
          stage.dispatchEvent(new PointerEvent("pointermove", { clientX, clientY, pointerType: "mouse" })))""",
        points,
    )
    expect(part(page, "tip").locator("strong")).to_have_text(exact(0, 11, 11))
    assert len(asked) == 1
    assert "row=11&" in asked[0]


def test_pointer_and_selection_both_get_their_exact_values(show: Open) -> None:
    page = show("queries=12&keys=12&answer=0.15")
    page.mouse.click(*centre(page, 5, 5, (12, 12)))
    expect_chosen(page, {"map": "0", "query": 5, "key": 5})
    page.mouse.move(*centre(page, 9, 2, (12, 12)))
    # A new picture makes both ask at once; one question overtakes the other.
    page.get_by_role("button", name="d to 7").evaluate("button => button.click()")
    expect(part(page, "tip").locator("strong")).to_have_text(exact(0, 9, 2, d=7))
    expect(part(page, "chosen").locator("strong")).to_have_text(exact(0, 5, 5, d=7))


def test_the_crosshair_spans_row_and_column_in_every_map_of_the_shape(show: Open) -> None:
    page = show("queries=6&keys=10&heads=2")
    page.mouse.move(*centre(page, 4, 7, (6, 10), 1))
    boxes = layout(page)["maps"]
    cross = marks(page, "crosshair")
    assert [mark["map"] for mark in cross] == ["0", "1"]
    for mark, box in zip(cross, boxes, strict=True):
        assert mark["row"] == pytest.approx([box["y"] + box["h"] * 4 / 6, box["h"] / 6])
        assert mark["col"] == pytest.approx([box["x"] + box["w"] * 7 / 10, box["w"] / 10])
    page.mouse.move(1, 700)
    assert marks(page, "crosshair") == []
    expect(part(page, "tip")).to_be_hidden()


def test_without_a_route_the_value_is_what_the_codes_carry(show: Open) -> None:
    page = show("queries=12&keys=12&offline=1", allow=["404"])
    x, y = centre(page, 3, 2, (12, 12))
    page.mouse.click(x, y)
    page.mouse.move(x, y)
    page.wait_for_timeout(400)
    wanted = float(exact(0, 3, 2))
    for place in ("tip", "chosen"):
        value = part(page, place).locator("strong").inner_text()
        assert value.startswith("≈ ")
        assert float(value[2:]) == pytest.approx(wanted, abs=6e-5)
    expect_chosen(page, {"map": "0", "query": 3, "key": 2})


def test_odd_tokens_are_shown_as_they_are(show: Open) -> None:
    signs = {"a\tb": "a⇥b", "c\nd": "c↵d", " ": "␣", "\u202egnihton": "⟨202E⟩gnihton"}
    count = len(ODD)
    page = show(f"tokens=odd&queries={count}&keys={count}")
    labels = {label["index"]: label["text"] for label in layout(page)["labels"] if label["axis"] == "row"}
    for at, token in enumerate(signs.get(token, token) for token in ODD):
        page.mouse.move(*centre(page, at, at, (count, count)))
        lines = part(page, "tip").locator("> *")
        assert lines.nth(1).text_content() == f"query {at} “{token}”"
        assert lines.nth(2).text_content() == f"key {at} “{token}”"
        assert part(page, "tip").locator("b, script, br").count() == 0
        page.evaluate(f"attnviz.group('maps').select({{ map: '0', query: {at}, key: {at} }})")
        assert part(page, "chosen").locator("bdi").all_text_contents() == [f"“{token}”"] * 2
        label = labels.get(at, "")
        assert label == token or (len(token) > 100 and re.fullmatch("x+…", label))


def test_a_pooled_cell_names_its_range_and_how_many_it_stands_for(show: Open) -> None:
    page = show("queries=40&keys=30&side=10&tokens=sentence")
    expect(part(page, "caption")).to_have_text("d = 1 · each cell drawn is the value farthest from 0 among 4 × 3")
    page.mouse.move(*centre(page, 2, 1, (10, 10)))
    lines = part(page, "tip").locator("> *")
    assert lines.nth(1).inner_text() == f"query 8–11 “{SENTENCE[8]}” … “{SENTENCE[11]}”"
    assert lines.nth(2).inner_text() == f"key 3–5 “{SENTENCE[3]}” … “{SENTENCE[5]}”"
    largest = max(float(exact(0, r, c)) for r in range(8, 12) for c in range(3, 6))
    assert float(lines.nth(3).inner_text().removeprefix("≈ ")) == pytest.approx(largest, abs=6e-5)
    assert lines.nth(4).inner_text() == "farthest from 0 of 12 cells"


def test_cells_without_a_value_say_why_and_stand_in_the_legend(show: Open) -> None:
    page = show("kind=troubled&scale=log")
    expect(part(page, "legend").locator("> *")).to_have_text(
        ["0, below the scale", "masked", "row without a key", "NaN", "infinite"]
    )
    for (row, col), said in {
        (0, 0): "NaN", (1, 1): "infinite", (1, 2): "infinite", (4, 4): "0, below the scale", (5, 3): "masked",
        (2, 6): "row 2 has no key",
    }.items():  # fmt: skip
        page.mouse.move(*centre(page, row, col, (8, 8)))
        assert part(page, "tip").locator("strong").inner_text() == said
    looks = [colour(page, *centre(page, *cell, (8, 8))) for cell in ((1, 6), (4, 4))]
    assert looks[0] != looks[1]


def test_a_plain_map_has_no_legend(show: Open) -> None:
    page = show()
    assert part(page, "legend").locator("> *").count() == 0


# ---- selecting ----


def test_click_selects_and_a_second_click_clears(show: Open) -> None:
    page = show("tokens=sentence&queries=12&keys=12&heads=2&strip=1")
    spot = centre(page, 5, 3, (12, 12), 1)
    page.mouse.click(*spot)
    expect_chosen(page, {"map": "1", "query": 5, "key": 3})
    expect(part(page, "chosen")).to_have_text(f"head 1query 5 “mat”key 3 “on”{exact(1, 5, 3)}")
    wait_idle(page)
    page.mouse.click(*spot)
    expect_chosen(page, None)
    expect(part(page, "chosen")).to_have_text("")
    expect(page.get_by_text("heard: 2", exact=True)).to_be_visible()


def test_the_selection_is_marked_in_every_picture_by_what_its_axes_count(show: Open) -> None:
    page = show("queries=12&keys=10&heads=2&strip=1")
    page.mouse.click(*centre(page, 5, 3, (12, 10)))
    expect_chosen(page, {"map": "0", "query": 5, "key": 3})
    assert [(m["map"], bool(m["row"]), bool(m["col"])) for m in marks(page, "selected")] == [
        ("0", True, True),
        ("1", True, True),
    ]
    strip = {m["map"]: m for m in marks(page, "selected", "strip")}
    boxes = {box["key"]: box for box in layout(page, "strip")["maps"]}
    assert strip["q"]["row"][0] == pytest.approx(boxes["q"]["y"] + boxes["q"]["h"] * 5 / 12)
    assert strip["k"]["row"][0] == pytest.approx(boxes["k"]["y"] + boxes["k"]["h"] * 3 / 10)
    assert strip["q"]["col"] is None
    assert strip["k"]["col"] is None
    assert strip["s"]["row"]
    assert strip["s"]["col"]


def test_arrow_keys_move_the_selection_and_escape_clears_it(show: Open) -> None:
    page = show("queries=4&keys=6&heads=2")
    stage(page).focus()
    assert stage(page).evaluate("e => getComputedStyle(e).outlineStyle") == "solid"
    page.keyboard.press("ArrowDown")
    expect_chosen(page, {"map": "0", "query": 0, "key": 0})
    for key in ("ArrowDown", "ArrowRight", "ArrowRight", "ArrowRight", "ArrowLeft"):
        page.keyboard.press(key)
    expect_chosen(page, {"map": "0", "query": 1, "key": 2})
    expect(part(page, "chosen").locator("strong")).to_have_text(exact(0, 1, 2))
    for key in ["ArrowUp"] * 3 + ["ArrowRight"] * 9:
        page.keyboard.press(key)
    expect_chosen(page, {"map": "0", "query": 0, "key": 5})
    page.keyboard.press("Escape")
    expect_chosen(page, None)
    heard = int(page.get_by_text(re.compile("^heard: ")).inner_text().split()[1])
    assert heard <= 6  # held keys are told once they rest


def test_an_older_run_does_not_take_a_selection_back(show: Open) -> None:
    page = show("queries=20&keys=20")
    zoom(page, (20, 20), (4, 9), (6, 9))
    page.evaluate("void attnviz.group('maps').on('select', chosen => (globalThis.seen ??= []).push(chosen))")
    button = page.get_by_role("button", name="d to 7").element_handle()
    page.mouse.click(*centre(page, 1, 2, (6, 4)))  # while zoomed, the page hears of it a moment later
    button.evaluate("button => button.click()")
    expect(main(page)).to_have_attribute("data-params", re.compile('"d":"7"'))
    expect_chosen(page, {"map": "0", "query": 5, "key": 8})
    wait_idle(page)
    assert page.evaluate("seen.every(chosen => chosen.query === 5 && chosen.key === 8)")


def test_a_tap_selects_and_a_swipe_leaves_the_page_to_scroll(show: Open) -> None:
    page = show("queries=12&keys=12", viewport=PHONE, touch=True)
    page.touchscreen.tap(*centre(page, 4, 2, (12, 12)))
    expect_chosen(page, {"map": "0", "query": 4, "key": 2})
    assert stage(page).evaluate("e => getComputedStyle(e).touchAction") == "manipulation"


def test_what_a_client_makes_up_does_not_reach_the_page(show: Open) -> None:
    page = show()
    page.mouse.click(*centre(page, 1, 1, (8, 8)))
    expect_chosen(page, {"map": "0", "query": 1, "key": 1})
    page.evaluate("attnviz.group('maps').select({ map: '0', query: 1e9, key: 'x' })")
    expect(part(page, "chosen")).to_have_text("")
    assert marks(page, "selected") == []


def test_a_strip_reports_the_map_that_was_clicked_and_keys_go_through_them(show: Open) -> None:
    page = show("strip=1")
    page.mouse.click(*centre(page, 1, 1, (8, 16), 1, "strip"))
    expect(page.get_by_text("stage: k", exact=True)).to_be_visible()
    wait_idle(page)
    page.keyboard.press("ArrowLeft")
    expect(page.get_by_text("stage: q", exact=True)).to_be_visible()
    expect_chosen(page, None)


# ---- zooming ----


def test_drag_zooms_all_maps_of_the_shape_and_double_click_resets(show: Open) -> None:
    page = show("queries=20&keys=20&heads=2")
    whole = shown(page, "row")
    zoom(page, (20, 20), (4, 9), (6, 8))
    assert shown(page, "row") == list(range(4, 10))
    assert shown(page, "col") == [6, 7, 8]
    page.mouse.move(*centre(page, 0, 0, (6, 3), 1))
    assert part(page, "tip").locator("> *").nth(1).inner_text() == "query 4"
    assert part(page, "tip").locator("> *").nth(2).inner_text() == "key 6"
    page.mouse.dblclick(*centre(page, 2, 1, (6, 3)))
    expect(main(page)).to_have_attribute("data-zoomed", "false")
    assert shown(page, "row") == whole
    page.wait_for_timeout(500)
    assert chosen(page) is None
    expect(page.get_by_text("heard: 0", exact=True)).to_be_visible()


def test_a_double_click_leaves_the_selection_as_it_was(show: Open) -> None:
    page = show("queries=20&keys=20")
    page.mouse.click(*centre(page, 3, 3, (20, 20)))
    expect_chosen(page, {"map": "0", "query": 3, "key": 3})
    zoom(page, (20, 20), (4, 9), (6, 8))
    page.mouse.dblclick(*centre(page, 2, 1, (6, 3)))
    page.wait_for_timeout(500)
    expect_chosen(page, {"map": "0", "query": 3, "key": 3})
    assert page.evaluate("attnviz.group('maps').selection.query") == 3
    page.get_by_role("button", name="forget").click()  # and the page's word counts again
    expect_chosen(page, None)
    wait_idle(page)
    assert page.evaluate("attnviz.group('maps').selection") is None


def test_a_button_and_keys_zoom_too(show: Open) -> None:
    page = show("queries=16&keys=16")
    stage(page).focus()
    for _ in range(3):
        page.keyboard.press("ArrowDown")
    page.keyboard.press("+")
    assert shown(page, "row") == list(range(8))
    page.keyboard.press("+")
    assert shown(page, "row") == [1, 2, 3, 4]
    for _ in range(4):
        page.keyboard.press("ArrowDown")
    assert shown(page, "row") == list(range(3, 7))  # the window follows the selection
    page.get_by_role("button", name="Reset zoom").click()
    assert shown(page, "row") == list(range(16))
    expect(page.get_by_role("button", name="Reset zoom")).to_be_hidden()


def test_the_zoom_stays_over_live_pictures_and_runs_of_one_shape(show: Open) -> None:
    page = show("queries=20&keys=20")
    zoom(page, (20, 20), (4, 9), (6, 8))
    ask(page, d=5)
    assert shown(page, "row") == list(range(4, 10))
    page.evaluate("attnviz.group('maps').forget('d')")
    page.get_by_role("button", name="d to 7").click()
    expect(main(page)).to_have_attribute("data-params", re.compile('"d":"7"'))
    assert shown(page, "row") == list(range(4, 10))
    ask(page, queries=19)
    expect(main(page)).to_have_attribute("data-zoomed", "false")
    assert shown(page, "row") == list(range(19))


def test_a_zoomed_pooled_map_gets_its_exact_cells(show: Open) -> None:
    page = show("queries=600&keys=400&side=100&heads=2")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "rows=" in request.url else None)
    zoom(page, (100, 100), (10, 14), (20, 27))
    expect(main(page)).to_have_attribute("data-sharp", "1")
    (top, bottom), (left, right) = (
        map(int, re.search(rf"{name}=(\d+)-(\d+)", asked[0]).groups())  # pyright: ignore[reportOptionalMemberAccess]
        for name in ("rows", "cols")
    )
    assert (top, bottom, left, right) == pytest.approx((63, 87, 82, 110), abs=2)
    page.mouse.move(*centre(page, 3, 5, (bottom - top, right - left), 1))
    assert part(page, "tip").locator("> *").nth(1).inner_text() == f"query {top + 3}"
    assert part(page, "tip").locator("> *").nth(2).inner_text() == f"key {left + 5}"
    expect(part(page, "tip").locator("strong")).to_have_text(exact(1, top + 3, left + 5))
    # The caption is of what is drawn: each cell is one token by one now, and pooled again after the reset.
    expect(part(page, "caption")).not_to_contain_text("6 × 4")
    page.mouse.dblclick(*centre(page, 3, 5, (bottom - top, right - left), 1))
    expect(part(page, "caption")).to_contain_text("6 × 4")


def test_the_tip_is_of_the_cell_under_a_resting_pointer_while_the_picture_zooms(show: Open) -> None:
    page = show("queries=20&keys=20")
    place = part(page, "tip").locator("> *")
    zoom(page, (20, 20), (4, 9), (6, 8))
    expect(place.nth(1)).to_have_text("query 6")  # where the drag ended: a fifth of the way down, half across
    page.mouse.move(*centre(page, 17, 17, (20, 20)))
    expect(place.nth(1)).to_have_text("query 9")
    page.get_by_role("button", name="Reset zoom").evaluate("button => button.click()")  # the pointer stays
    expect(place.nth(1)).to_have_text("query 17")
    stage(page).focus()
    page.keyboard.press("+")
    expect(place.nth(1)).to_have_text("query 13")
    page.keyboard.press("-")
    expect(place.nth(1)).to_have_text("query 17")


def test_exact_cells_have_the_colours_of_the_bar(show: Open) -> None:
    page = show("queries=600&keys=400&side=100&range=own&d=30")
    zoom(page, (100, 100), (10, 12), (20, 27))  # away from the diagonal: this part's own range is another one
    expect(main(page)).to_have_attribute("data-sharp", "1")
    page.mouse.move(1, 700)
    (box,) = layout(page)["maps"]
    bar = min(label["x"] for label in layout(page)["labels"] if label["axis"] == "bar") - 12
    corner = resting_box(stage(page))
    rows, cols = shown(page, "row"), shown(page, "col")
    whole = values({"d": "30"}, 0, np.arange(600), np.arange(400))
    assert whole[rows[0] : rows[-1] + 1, cols[0] : cols[-1] + 1].max() < 0.8 * whole.max()
    labels = {
        (label["axis"], label["index"]): label for label in layout(page)["labels"] if label["axis"] in ("row", "col")
    }
    for row in rows[1:-1:3]:
        for col in cols[1:-1:3]:
            x, y = (labels[axis, at] for axis, at in (("col", col), ("row", row)))
            spot = corner["x"] + x["x"] + x["w"] / 2, corner["y"] + y["y"] + y["h"] / 2
            share = float(whole[row, col] / whole.max())
            same = corner["x"] + bar, corner["y"] + box["y"] + box["h"] * (1 - share)
            assert colour(page, *spot) == pytest.approx(colour(page, *same), abs=8)


def test_a_pooled_map_stays_when_no_exact_cells_come(show: Open) -> None:
    page = show("queries=600&keys=400&side=100", allow=["ERR_FAILED"])
    page.route(re.compile("rows="), lambda route: route.abort())
    zoom(page, (100, 100), (10, 14), (20, 27))
    page.wait_for_timeout(400)
    page.mouse.move(*centre(page, 0, 0, (5, 8)))
    assert part(page, "tip").locator("> *").nth(1).inner_text() in ("query 60–65", "query 66–71")


# ---- pictures that come and go ----


def test_a_live_picture_is_painted_in_the_very_event(show: Open) -> None:
    page = show("kind=constant")
    before = frames(page)
    after, same = page.evaluate(
        """async () => {
          const bytes = await (await fetch("/live/maps?kind=constant&d=3&heads=2")).arrayBuffer()
          const group = attnviz.group("maps")
          const find = (node = document) => {
            for (const e of node.querySelectorAll("*")) {
              const found = e.dataset?.frame ? e : e.shadowRoot && find(e.shadowRoot)
              if (found) return found
            }
          }
          const root = find()
          group._emit("frame", attnviz.parse(bytes))
          return [Number(root.dataset.frame), JSON.parse(root.dataset.params).heads]
        }"""
    )
    assert after == before + 1
    assert same == "2"
    assert len(layout(page)["maps"]) == 2


def test_the_page_s_own_older_picture_is_not_drawn_over_a_live_one(show: Open) -> None:
    page = show("queries=20&keys=20")
    ask(page, d=9)
    page.mouse.click(*centre(page, 3, 3, (20, 20)))  # a run whose own picture is still the old one
    expect_chosen(page, {"map": "0", "query": 3, "key": 3})
    wait_idle(page)
    assert '"d":"9"' in (main(page).get_attribute("data-params") or "")
    assert part(page, "caption").inner_text() == "d = 9"
    page.evaluate("attnviz.group('maps').forget('d')")
    expect(part(page, "caption")).to_have_text("d = 1")


def test_a_refusal_is_said_and_the_picture_stays(show: Open) -> None:
    page = show(allow=["422"])
    page.evaluate("attnviz.group('maps').move('d', 13)")
    expect(part(page, "problem")).to_have_text("d must not be 13, got 13.")
    assert part(page, "caption").inner_text() == "d = 1"
    ask(page, d=14)
    expect(part(page, "problem")).to_have_text("")


def test_a_frame_that_is_cut_short_gives_a_sentence(show: Open) -> None:
    page = show()
    before = frames(page)
    page.evaluate(
        """async () => {
          const bytes = await (await fetch("/live/maps?d=3")).arrayBuffer()
          const header = 4 + new DataView(bytes).getUint32(0, true)
          attnviz.group("maps")._emit("frame", attnviz.parse(bytes.slice(0, header + 100)))
        }"""
    )
    expect(part(page, "problem")).to_contain_text("did not arrive whole")
    assert frames(page) == before
    ask(page, d=4)
    expect(part(page, "problem")).to_have_text("")


def test_an_empty_grid_says_so(show: Open) -> None:
    page = show("heads=0")
    expect(part(page, "caption")).to_have_text("There is nothing to draw.")
    page.mouse.move(200, 100)
    ask(page, d=3)
    ask(page, heads=1)
    assert len(layout(page)["maps"]) == 1


# ---- what it looks like ----


SHAPES = [(1, 1, 1), (18, 79, 1), (256, 64, 1), (1, 300, 1), (300, 2, 1), (30, 30, 6), (128, 128, 64)]


@pytest.mark.parametrize("tokens", ["sentence", "numbers", "chinese", "odd"])
@pytest.mark.parametrize("viewport", [(1280, 720), PHONE])
def test_no_two_labels_overlap_and_all_is_inside(show: Open, tokens: str, viewport: tuple[int, int]) -> None:
    page = show(f"tokens={tokens}&range=own&kind=signed", viewport=viewport)
    for queries, keys, heads in SHAPES:
        ask(page, queries=queries, keys=keys, heads=heads)
        check_labels(page)


def check_labels(page: Page) -> None:
    drawn = layout(page)
    assert overlaps(drawn["labels"]) == []
    outer = stage(page).bounding_box()
    assert outer is not None
    assert outer["height"] <= 521
    for label in drawn["labels"]:
        assert label["x"] >= -0.5
        assert label["x"] + label["w"] <= outer["width"] + 0.5, label
        assert label["y"] >= -0.5
        assert label["y"] + label["h"] <= outer["height"] + 0.5, label
    assert min(box["w"] for box in drawn["maps"]) >= 4
    assert not page.evaluate("document.documentElement.scrollWidth > innerWidth")


def test_a_single_square_map_fills_the_height_with_square_cells(show: Open) -> None:
    page = show("queries=20&keys=20&tokens=sentence&height=560")
    (box,) = layout(page)["maps"]
    assert box["w"] == box["h"]
    assert 440 <= box["h"] <= 520
    assert box["h"] % 20 == 0


def test_a_rectangle_is_not_made_square(show: Open) -> None:
    page = show("queries=18&keys=79")
    (box,) = layout(page)["maps"]
    assert box["w"] / box["h"] == pytest.approx(2.5, abs=0.15)
    page = show("queries=30&keys=40")
    (box,) = layout(page)["maps"]
    assert box["w"] / box["h"] == pytest.approx(4 / 3, abs=0.05)
    page.mouse.move(*centre(page, 29, 39, (30, 40)))
    assert part(page, "tip").locator("> *").nth(1).inner_text() == "query 29"
    assert part(page, "tip").locator("> *").nth(2).inner_text() == "key 39"


def test_repeated_tokens_are_rows_and_columns_of_their_own(show: Open) -> None:
    page = show("tokens=sentence&queries=12&keys=12")
    assert texts(page, "row") == list(SENTENCE)
    assert texts(page, "col") == list(SENTENCE)
    assert len({label["y"] for label in layout(page)["labels"] if label["axis"] == "row"}) == 12


def test_where_most_tokens_have_no_room_indices_stand_and_zooming_brings_them_back(show: Open) -> None:
    page = show("tokens=sentence&queries=240&keys=240")
    for axis in ("row", "col"):
        assert texts(page, axis) == [str(index) for index in shown(page, axis)]
        assert len(shown(page, axis)) > 5
    zoom(page, (240, 240), (24, 35), (36, 47))
    assert texts(page, "row") == list(SENTENCE)
    assert texts(page, "col") == list(SENTENCE)


def test_titles_without_room_lose_the_words_they_share(show: Open) -> None:
    page = show("heads=4")
    assert texts(page, "title") == [f"head {head}" for head in range(4)]
    page = show("heads=64", viewport=PHONE)
    assert texts(page, "title") == [str(head) for head in range(64)]


@pytest.mark.parametrize("viewport", [(1280, 720), PHONE])
def test_every_character_of_a_chinese_sentence_is_there(show: Open, viewport: tuple[int, int]) -> None:
    count = len(CHINESE)
    page = show(f"tokens=chinese&queries={count}&keys={count}&lang=zh", viewport=viewport)
    assert texts(page, "row") == list(CHINESE)
    assert texts(page, "col") == list(CHINESE)
    page.mouse.move(*centre(page, 2, 5, (count, count)))
    assert "位置从 0 数起" in part(page, "tip").inner_text()


@pytest.mark.parametrize(
    ("query", "ticks"),
    [
        ("", ["0", "0.5", "1"]),
        ("kind=signed", ["−1", "0", "1"]),
        ("scale=log", ["10⁻⁶", "10⁻³", "1"]),
        ("heads=2&range=own", ["lowest", "per head", "highest"]),
        ("kind=constant&range=own", ["0.25"]),
    ],
)
def test_the_colour_bar_is_labelled(show: Open, query: str, ticks: list[str]) -> None:
    page = show(query)
    said = [label for label in layout(page)["labels"] if label["axis"] == "bar"]
    assert {label["text"] for label in said} >= set(ticks)
    by_share = sorted(said, key=lambda label: label["index"])
    assert [label["y"] for label in by_share] == sorted((label["y"] for label in said), reverse=True)


def test_a_lone_peak_does_not_vanish_where_cells_are_smaller_than_pixels(show: Open) -> None:
    page = show("queries=1000&keys=1000&d=1000")
    (box,) = layout(page)["maps"]
    assert box["w"] < 500
    picture = """(canvas, box) => {
      const r = devicePixelRatio
      const { data } = canvas.getContext("2d").getImageData(box.x * r, box.y * r, box.w * r, box.h * r)
      const seen = new Set()
      for (let i = 0; i < data.length; i += 4) seen.add((data[i] << 16) | (data[i + 1] << 8) | data[i + 2])
      return [...seen]
    }"""
    page.evaluate(
        """async ([across, down]) => {
          const bytes = await (await fetch("/live/maps?kind=constant&queries=1000&keys=1000")).arrayBuffer()
          const frame = attnviz.parse(bytes)
          const codes = frame.payload(0, 1000 * 1000)
          codes.fill(0)
          // A cell that shares its pixel with later ones of the row and of the column.
          const pixel = (cell, size) => Math.floor(((cell + 0.5) * size) / 1000)
          const early = size => [...Array(999).keys()].findLast(cell => pixel(cell, size) === pixel(cell + 1, size))
          codes[early(down) * 1000 + early(across)] = 65529
          attnviz.group("maps")._emit("frame", frame)
        }""",
        [box["w"], box["h"]],
    )
    assert len(part(page, "base").evaluate(picture, box)) == 2


def test_colours_follow_the_theme_without_a_run(show: Open) -> None:
    page = show("queries=12&keys=12&tokens=sentence&kind=causal")
    zoom(page, (12, 12), (2, 9), (2, 9))
    spots = [centre(page, 7, 0, (8, 8)), centre(page, 7, 7, (8, 8)), (1200, 300)]
    light = [colour(page, *spot) for spot in spots[:2]]
    page.emulate_media(color_scheme="dark")
    background = "getComputedStyle(document.querySelector('[data-testid=stApp]')).backgroundColor"
    page.wait_for_function(f"{background} !== 'rgb(255, 255, 255)'")
    page.wait_for_function(
        """([x, y, was]) => {
          const find = (node = document) => {
            for (const e of node.querySelectorAll("*")) {
              const found = e.dataset?.part === "base" ? e : e.shadowRoot && find(e.shadowRoot)
              if (found) return found
            }
          }
          const canvas = find()
          const box = canvas.getBoundingClientRect()
          const { data } = canvas.getContext("2d").getImageData(x - box.x, y - box.y, 1, 1)
          return [...data.slice(0, 3)].join() !== was.join()
        }""",
        arg=[*spots[0], light[0]],
    )
    dark = [colour(page, *spot) for spot in spots[:2]]
    assert all(a != b for a, b in zip(light, dark, strict=True))
    corner = part(page, "base").evaluate("c => [...c.getContext('2d').getImageData(1, 1, 1, 1).data.slice(0, 3)]")
    assert page.evaluate(background) == f"rgb({', '.join(map(str, corner))})"
    assert shown(page, "row") == list(range(2, 10))
    expect(page.get_by_text("runs: 1", exact=True)).to_be_visible()


def test_zero_is_near_the_background_and_more_is_further_from_it(show: Open) -> None:
    def light(rgb: list[int]) -> float:
        return 0.2126 * rgb[0] + 0.7152 * rgb[1] + 0.0722 * rgb[2]

    for scheme in ("light", "dark"):
        page = show("queries=12&keys=1&height=520", color_scheme=scheme)
        far = [
            abs(light(colour(page, *centre(page, row, 0, (12, 1)))) - light(colour(page, 34, 30))) for row in range(12)
        ]
        sizes = [float(exact(0, row, 0)) for row in range(12)]
        order = sorted(range(12), key=sizes.__getitem__)
        assert [far[i] for i in order] == sorted(far)
        assert far[order[0]] < 20


def test_it_follows_the_width(show: Open) -> None:
    page = show("queries=16&keys=16&heads=4")
    assert len({box["y"] for box in layout(page)["maps"]}) == 1 or len({box["x"] for box in layout(page)["maps"]}) > 1
    page.set_viewport_size({"width": 390, "height": 844})
    page.wait_for_function("innerWidth === 390")
    outer = stage(page)
    expect(outer).to_have_js_property("clientWidth", outer.evaluate("e => e.parentElement.clientWidth"))
    page.wait_for_timeout(200)
    width = outer.evaluate("e => e.clientWidth")
    assert width < 390
    assert all(box["x"] + box["w"] <= width for box in layout(page)["maps"])


def test_pixels_are_the_device_s_own(browser: Any, serve: Callable[..., str]) -> None:
    context = browser.new_context(device_scale_factor=2, viewport={"width": 1280, "height": 720})
    page = context.new_page()
    page.goto(f"{serve(APP)}/?queries=7&keys=7")
    expect(main(page)).to_have_attribute("data-frame", re.compile(r"\d+"))
    width, shown_width = part(page, "base").evaluate("c => [c.width, c.clientWidth]")
    context.close()
    assert width == 2 * shown_width


def test_text_grows_with_the_scale_and_is_never_small(show: Open) -> None:
    pages = [show(f"tokens=sentence&queries=12&keys=12&text={scale}") for scale in (1, 1.5)]
    small, large = (
        {min(label["w"], label["h"]) for label in layout(page)["labels"] if len(label["text"]) > 1} for page in pages
    )
    assert small == {13}
    assert large == {19.5}


# ---- for those who do not see it ----


def test_it_has_a_role_a_text_with_numbers_and_says_how_keys_work(show: Open) -> None:
    page = show("heads=2")
    picture = page.get_by_role("application", name="2 maps, d = 1")
    expect(picture).to_be_visible()
    assert "Arrow keys" in (picture.get_attribute("aria-description") or "")
    expect(part(page, "chosen")).to_have_attribute("role", "status")
    ask(page, d=6)
    expect(page.get_by_role("application", name="2 maps, d = 6")).to_be_visible()
