"""The live slider in a real browser: pictures while it moves, one run of the page when it is let go."""

import re
import urllib.request
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from tests.browser.driver import resting_box, wait_idle
from tests.browser.server import Server

APP = "tests/browser/apps/live_app.py"
ROUTE_GONE = (r"/live/toy", r"net::ERR_FAILED")  # what the browser itself says about a blocked route


@pytest.fixture
def page(open_page: Callable[..., Page], serve: Callable[..., str]) -> Page:
    return open_page(serve(APP))


def slider(page: Page, name: str = "The x") -> Locator:
    return page.get_by_role("slider", name=name)


def box(page: Page, name: str = "The x") -> Locator:
    return page.get_by_role("textbox", name=f"{name}: type a value")


def place(page: Page, share: float, name: str = "The x") -> tuple[float, float]:
    """Give the point of the track at ``share`` of its length, measured as the thumb's centre moves."""
    bounds = resting_box(slider(page, name))
    return bounds["x"] + 7 + share * (bounds["width"] - 14), bounds["y"] + bounds["height"] / 2


def hold(page: Page, start: float, end: float, name: str = "The x", steps: int = 12) -> None:
    """Take the thumb at ``start`` and move it to ``end`` without letting go."""
    page.mouse.move(*place(page, start, name))
    page.mouse.down()
    page.mouse.move(*place(page, end, name), steps=steps)


def drawn(page: Page, source: str = "") -> list[str]:
    return [entry["text"] for entry in page.evaluate("globalThis.drawn") if source in entry["source"]]


def runs(page: Page) -> int:
    return int(page.get_by_text(re.compile(r"^runs: \d+$")).inner_text().split()[1])


def got(page: Page) -> list[str]:
    return page.get_by_text(re.compile(r"^got:")).inner_text().split()[1:]


def picture(page: Page, text: str) -> None:
    expect(page.locator("[data-part=picture]")).to_have_text(text)


def test_dragging_draws_without_runs_and_letting_go_runs_once(page: Page) -> None:
    entries = page.evaluate("history.length")
    hold(page, 0.2, 0.8)
    picture(page, "x=80 n=16")
    assert len(set(drawn(page, "live"))) >= 5
    assert runs(page) == 1
    assert "?" not in page.url
    page.mouse.up()
    expect(page.get_by_text("got: x=80", exact=True)).to_be_visible()
    wait_idle(page)
    page.wait_for_timeout(400)  # long enough for a second run to show itself
    assert (runs(page), got(page)) == (2, ["x=80"])
    assert page.url.endswith("?x=80")
    assert page.evaluate("history.length") == entries + 1
    picture(page, "x=80 n=16")


def test_arrow_keys_draw_at_once_and_run_once_after_a_pause(page: Page) -> None:
    slider(page).focus()
    for expected in (21, 22, 23):
        page.keyboard.press("ArrowRight")
        picture(page, f"x={expected} n=16")
    expect(page.get_by_text("got: x=23", exact=True)).to_be_visible()
    assert runs(page) == 2
    # As on any range of 0 to 100: a page is a tenth, Home and End are the ends.
    for key, expected in (("PageUp", 33), ("PageDown", 23), ("Home", 0), ("End", 100), ("ArrowLeft", 99)):
        page.keyboard.press(key)
        picture(page, f"x={expected} n=16")


def test_leaving_by_tab_lets_go_without_waiting(page: Page) -> None:
    page.evaluate(
        "{ const wait = setTimeout; globalThis.setTimeout = (f, ms, ...a) => (ms === 200 ? 0 : wait(f, ms, ...a)) }"
    )
    slider(page).focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Tab")
    expect(page.get_by_text("got: x=21", exact=True)).to_be_visible()


def test_positions_may_be_stops(page: Page) -> None:
    slider(page, "Length").focus()
    page.keyboard.press("End")
    picture(page, "x=20 n=4096")
    expect(slider(page, "Length")).to_have_attribute("aria-valuetext", "4096")
    page.keyboard.press("ArrowLeft")
    picture(page, "x=20 n=2048")
    expect(page.get_by_text("got: n=2048", exact=True)).to_be_visible()


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("The x", "37", "x=37 n=16"),
        ("The x", "450", "x=450 n=16"),
        ("Length", "5,000", "x=20 n=5000"),
        ("Length", "４２", "x=20 n=42"),
    ],
)
def test_a_number_can_be_typed_also_beyond_the_track(page: Page, name: str, text: str, expected: str) -> None:
    box(page, name).fill(text)
    box(page, name).press("Enter")
    picture(page, expected)
    expect(page.get_by_text(re.compile(r"^got: \w=\d+$"))).to_be_visible()
    wait_idle(page)
    picture(page, expected)
    assert runs(page) == 2


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("<b>five</b>", "“<b>five</b>” is not a number."),
        ("2.5", "“2.5” is not a whole number."),
        ("1001", "1001 is not between 0 and 1000."),
        ("-1", "-1 is not between 0 and 1000."),
        ("1e999", "1e999 is not between 0 and 1000."),
        ("0x10", "“0x10” is not a number."),
        ("", "“” is not a number."),
    ],
)
def test_what_is_no_value_gets_a_sentence_and_changes_nothing(page: Page, text: str, sentence: str) -> None:
    box(page).fill(text)
    box(page).press("Enter")
    expect(page.get_by_role("alert").filter(has_text=sentence)).to_have_text(sentence)
    expect(box(page)).to_have_attribute("aria-invalid", "true")
    expect(slider(page)).to_have_value("20")
    box(page).press("Escape")
    expect(box(page)).to_have_value("20")
    expect(box(page)).not_to_have_attribute("aria-invalid", "true")
    page.wait_for_timeout(300)
    assert (runs(page), got(page)) == (1, [])


def test_a_half_typed_number_survives_a_run(page: Page) -> None:
    box(page).press_sequentially("9")
    page.evaluate("[...document.querySelectorAll('button')].find(b => b.textContent.includes('set x to 7')).click()")
    expect(page.get_by_text("runs: 2", exact=True)).to_be_visible()
    expect(box(page)).to_have_value(re.compile("9"))
    box(page).press("Escape")
    expect(box(page)).to_have_value("7")


def test_reset_is_there_once_there_is_something_to_reset(page: Page) -> None:
    reset = page.get_by_role("button", name="Set The x back to 20")
    expect(reset).to_be_hidden()
    box(page).fill("60")
    box(page).press("Enter")
    picture(page, "x=60 n=16")
    reset.click()
    picture(page, "x=20 n=16")
    expect(page.get_by_text("got: x=60 x=20", exact=True)).to_be_visible()
    expect(reset).to_be_hidden()
    expect(slider(page)).to_be_focused()


def test_it_says_what_it_is_and_shows_its_focus(page: Page) -> None:
    expect(slider(page)).to_have_attribute("aria-valuetext", "20 steps")
    expect(slider(page)).to_have_attribute("min", "0")
    expect(slider(page)).to_have_attribute("max", "100")
    calm = slider(page).screenshot()
    slider(page).focus()
    page.keyboard.press("Shift")  # a key, so that the browser takes the focus for one that is to be seen
    assert slider(page).screenshot() != calm
    page.get_by_role("button", name="About The x").focus()
    expect(page.get_by_role("tooltip").filter(has_text="Moves it.")).to_be_visible()
    expect(slider(page, "Dead")).to_be_disabled()
    expect(box(page, "Dead")).to_be_disabled()


def test_without_a_callback_it_keeps_its_own_value(page: Page) -> None:
    slider(page, "Free").focus()
    for _ in range(2):
        page.keyboard.press("ArrowLeft")
    expect(page.get_by_text("free: 0.3", exact=True)).to_be_visible()
    expect(box(page, "Free")).to_have_value("0.3")


def test_the_page_can_set_it(page: Page) -> None:
    page.get_by_role("button", name="set x to 7").click()
    expect(slider(page)).to_have_value("7")
    expect(box(page)).to_have_value("7")
    picture(page, "x=7 n=16")


def test_a_value_that_the_page_pulls_down_comes_back(page: Page) -> None:
    box(page).fill("800")
    box(page).press("Enter")
    expect(page.get_by_text("got: x=800", exact=True)).to_be_visible()
    expect(box(page)).to_have_value("500")
    picture(page, "x=500 n=16")


def test_a_run_does_not_pull_the_thumb_from_under_a_finger(page: Page) -> None:
    hold(page, 0.2, 0.6)
    page.evaluate("[...document.querySelectorAll('button')].find(b => b.textContent.includes('set x to 7')).click()")
    expect(page.get_by_text("runs: 2", exact=True)).to_be_visible()
    wait_idle(page)
    expect(slider(page)).to_have_value("60")
    picture(page, "x=60 n=16")
    page.mouse.move(*place(page, 0.7))
    page.mouse.up()
    expect(page.get_by_text("got: x=70", exact=True)).to_be_visible()
    picture(page, "x=70 n=16")


def test_a_slow_run_never_undoes_a_later_movement(open_page: Callable[..., Page], serve: Callable[..., str]) -> None:
    page = open_page(f"{serve(APP)}?slow=0.8")
    hold(page, 0.2, 0.4)
    page.mouse.up()  # the run of this one is under way …
    hold(page, 0.05, 0.8, "Length")  # … while the other is being moved
    moved = page.evaluate("globalThis.drawn.length")
    latest = f"x=40 n={box(page, 'Length').input_value()}"  # its frame may still be on its way
    expect(page.get_by_text("runs: 2", exact=True)).to_be_visible()
    wait_idle(page)
    lengths = [int(what.removeprefix("x=40 n=")) for what in drawn(page)[moved:]]
    assert latest != "x=40 n=16"
    assert lengths == sorted(lengths)  # the movement only went up: anything lower would be an older value
    page.mouse.up()
    expect(page.get_by_text("runs: 3", exact=True)).to_be_visible()
    wait_idle(page)
    picture(page, latest)
    assert "n=16" not in " ".join(drawn(page)[moved:])
    expect(slider(page)).to_have_value("40")


def test_a_change_of_theme_does_not_bring_an_old_value_back(
    open_page: Callable[..., Page], serve: Callable[..., str]
) -> None:
    page = open_page(f"{serve(APP)}?slow=0.8")
    hold(page, 0.2, 0.4)
    page.mouse.up()
    page.emulate_media(color_scheme="dark")  # draws every component again, with the data of the last run
    page.wait_for_timeout(400)
    shown = slider(page).input_value()
    assert runs(page) == 1
    assert shown == "40"
    picture(page, "x=40 n=16")
    assert "x=20 n=16" not in drawn(page)[1:]
    expect(page.get_by_text("got: x=40", exact=True)).to_be_visible()


def test_an_older_run_has_no_say(page: Page) -> None:
    params = page.evaluate("""() => {
      const group = attnviz.group("aside")
      group.configure({ url: "/live/toy", params: { x: "2" }, acks: {}, run: 2 })
      group.configure({ url: "/live/toy", params: { x: "1" }, acks: {}, run: 1 })
      return group.params
    }""")
    assert params == {"x": "2"}


def test_dragging_back_to_where_it_was_runs_nothing(page: Page) -> None:
    hold(page, 0.2, 0.5)
    picture(page, "x=50 n=16")
    page.mouse.move(*place(page, 0.2))
    page.mouse.up()
    picture(page, "x=20 n=16")
    page.wait_for_timeout(300)
    assert runs(page) == 1
    # It has been let go of for the page too.
    page.get_by_role("button", name="set x to 7").click()
    expect(slider(page)).to_have_value("7")
    picture(page, "x=7 n=16")


def test_one_request_at_a_time_and_the_newest_wins(page: Page) -> None:
    flying = most = asked = 0

    def slow(route: Route) -> None:
        nonlocal flying, most, asked
        flying, asked = flying + 1, asked + 1
        most = max(most, flying)
        page.wait_for_timeout(60)
        flying -= 1
        route.continue_()

    page.route("**/live/toy?*", slow)
    hold(page, 0.0, 0.9, steps=40)
    picture(page, "x=90 n=16")
    assert most == 1
    assert asked < 30
    page.mouse.up()
    expect(page.get_by_text("got: x=90", exact=True)).to_be_visible()


def test_a_refused_value_says_why_and_keeps_the_picture(
    open_page: Callable[..., Page], serve: Callable[..., str]
) -> None:
    page = open_page(serve(APP), allow=[r"status of 422"])
    hold(page, 0.2, 0.14)
    picture(page, "x=14 n=16")
    page.mouse.move(*place(page, 0.13))
    expect(page.locator("[data-part=problem]").filter(has_text="x must not be 13, got 13.")).to_be_visible()
    picture(page, "x=14 n=16")
    page.mouse.move(*place(page, 0.12))
    picture(page, "x=12 n=16")
    expect(page.get_by_text("x must not be 13")).to_be_hidden()
    page.mouse.up()


def html_instead(route: Route) -> None:
    route.fulfill(status=200, content_type="text/html", body="<!DOCTYPE html><p>some host's own page</p>")


@pytest.mark.parametrize(
    "gone",
    [
        lambda route: route.abort(),
        lambda route: route.fulfill(status=404, body="nothing"),
        lambda route: route.fulfill(status=500, content_type="application/json", body='{"error": "no"}'),
        html_instead,
    ],
    ids=["no connection", "404", "500", "a page instead"],
)
def test_without_the_route_the_page_runs_while_it_is_dragged(
    open_page: Callable[..., Page], serve: Callable[..., str], gone: Callable[[Route], None]
) -> None:
    page = open_page(f"{serve(APP)}?slow=0.2", allow=ROUTE_GONE)
    page.route("**/live/**", gone)
    hold(page, 0.2, 0.3, steps=1)
    expect(page.locator("[data-part=picture]")).not_to_have_text("x=20 n=16")  # still held
    page.mouse.move(*place(page, 0.8), steps=40)
    picture(page, "x=80 n=16")
    assert runs(page) > 1
    page.mouse.up()
    wait_idle(page)
    assert got(page)[-1] == "x=80"
    assert runs(page) == 1 + len(got(page)) < 12  # one run at a time, of 43 movements
    expect(slider(page)).to_have_value("80")
    assert page.url.endswith("x=80")
    assert drawn(page, "live") == []


def test_it_finds_the_route_again(open_page: Callable[..., Page], serve: Callable[..., str]) -> None:
    page = open_page(serve(APP), allow=ROUTE_GONE)
    page.route("**/live/**", lambda route: route.abort())
    hold(page, 0.2, 0.3)
    page.mouse.up()
    picture(page, "x=30 n=16")
    page.unroute("**/live/**")
    page.wait_for_timeout(2_200)  # the first pause before it looks again
    with page.expect_response("**/live/toy?*"):
        page.get_by_role("button", name="set x to 7").click()
    wait_idle(page)
    before = runs(page)
    hold(page, 0.07, 0.9)
    picture(page, "x=90 n=16")
    assert runs(page) == before
    page.mouse.up()


def test_visitors_never_see_each_others_values(open_page: Callable[..., Page], serve: Callable[..., str]) -> None:
    one, two = open_page(serve(APP)), open_page(serve(APP))
    hold(one, 0.2, 0.7)
    hold(two, 0.2, 0.4)
    one.mouse.up()
    two.mouse.up()
    expect(one.get_by_text("got: x=70", exact=True)).to_be_visible()
    expect(two.get_by_text("got: x=40", exact=True)).to_be_visible()
    picture(one, "x=70 n=16")
    picture(two, "x=40 n=16")
    assert not {text for text in drawn(two) if int(text.split()[0][2:]) > 40}


def test_a_cell_is_asked_for_at_the_value_on_screen_and_the_newest_question_wins(page: Page) -> None:
    hold(page, 0.2, 0.6)
    picture(page, "x=60 n=16")
    one, two = page.evaluate("""() => {
      const group = attnviz.group("toy")
      return Promise.all([group.cell("weights", "head 0", 3, 4), group.cell("weights", "head 1", 5, 6)])
    }""")
    assert one is None
    assert two == {"value": "60 weights head 1 5 6"}
    page.mouse.up()


def test_a_refused_cell_is_a_problem_and_no_value(open_page: Callable[..., Page], serve: Callable[..., str]) -> None:
    page = open_page(serve(APP), allow=[r"status of 422"])
    # Once a slider stands, its group knows the route.
    expect(page.get_by_role("slider").first).to_be_visible()
    assert page.evaluate("attnviz.group('toy').cell('weights', 'a', 99, 0)") is None
    expect(page.get_by_text("row must be from 0 to 9, got 99.")).to_be_visible()


def test_a_region_is_the_bytes_of_a_frame(page: Page) -> None:
    params = page.evaluate("""async () => {
      const bytes = await attnviz.group("toy").region("weights", "a", [0, 8], [16, 32])
      return attnviz.parse(bytes).header.params
    }""")
    assert {name: params[name] for name in ("x", "part", "map", "rows", "cols")} == {
        "x": "20", "part": "weights", "map": "a", "rows": "0-8", "cols": "16-32",
    }  # fmt: skip


def test_frames_are_not_compressed_by_the_server_around_them(serve: Callable[..., str]) -> None:
    address = f"{serve(APP)}/live/toy?x=1&n=2&lang=en&long={'y' * 2000}"
    request = urllib.request.Request(address, headers={"Accept-Encoding": "gzip"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        assert answer.headers["Content-Encoding"] == "identity"
        assert len(answer.read()) == int(answer.headers["Content-Length"]) > 2000


class BasedServer(Server):
    """A server whose app lives below ``/lab``, as behind a proxy."""

    def _wait(self) -> None:
        self.url += "/lab"
        super()._wait()


@pytest.fixture(scope="module")
def based() -> Iterator[str]:
    server = BasedServer(APP, {"STREAMLIT_SERVER_BASE_URL_PATH": "lab"})
    yield server.url
    server.stop()


def test_a_base_path_is_found(open_page: Callable[..., Page], based: str) -> None:
    page = open_page(f"{based}/")
    with page.expect_response(lambda response: "/lab/live/toy?" in response.url and response.ok):
        hold(page, 0.2, 0.6)
    picture(page, "x=60 n=16")
    assert runs(page) == 1
    page.mouse.up()
