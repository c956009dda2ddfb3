"""The first page in a real browser: miniatures that follow the slider, links that open what they promise."""

import json
import re
from collections.abc import Callable
from urllib.parse import parse_qs, urljoin, urlsplit

import pytest
from playwright.sync_api import Locator, Page, expect

from pages import entries
from pages.ui.heatmap.frame import unpack
from pages.ui.home_paths import MINIATURES, PATHS
from pages.ui.translate import say
from tests.browser.driver import PHONE, go_to, resting_box, wait_idle

Open = Callable[..., Page]
KEYS = [miniature.key for miniature in MINIATURES]
PIXELS = """root => {
  const canvas = root.querySelector("[data-part=base]")
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height)
  let hash = 2166136261
  for (const value of data) hash = Math.imul(hash ^ value, 16777619) >>> 0
  return hash
}"""


def root(page: Page, key: str) -> Locator:
    return page.locator(f".st-key-home-{key} [data-part=root]")


def caption(page: Page, key: str) -> Locator:
    return root(page, key).locator("[data-part=caption]")


def slider(page: Page) -> Locator:
    return page.get_by_role("slider", name="d_k (head_dim)")


def links(page: Page) -> Locator:
    return page.locator('[data-testid="stPageLink"] a')


def settings(address: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}


@pytest.fixture
def visit(open_page: Open, app_url: str) -> Open:
    """Give ``visit(query="lang=en", **options) -> Page``: a new visitor of the first page, with its pictures drawn."""

    def start(query: str = "lang=en", **options: object) -> Page:
        page = open_page(f"{app_url}/?{query}", **options)
        for key in KEYS:
            expect(root(page, key)).to_have_attribute("data-frame", re.compile(r"\d"))
        expect(slider(page)).to_be_visible()
        return page

    return start


def test_every_miniature_follows_the_slider_while_it_is_held(visit: Open) -> None:
    page = visit()
    before = {key: root(page, key).evaluate(PIXELS) for key in KEYS}
    address = page.url
    box = resting_box(slider(page))
    y = box["y"] + box["height"] / 2
    share = slider(page).evaluate("e => (e.value - e.min) / (e.max - e.min)")
    page.mouse.move(box["x"] + share * box["width"], y)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.95 * box["width"], y, steps=5)
    expect(caption(page, "unscaled")).to_contain_text(re.compile(r"(0\.9\d|1\.00)$"))
    expect(root(page, "scaled")).not_to_have_attribute("data-params", "{}")
    assert {key for key in KEYS if root(page, key).evaluate(PIXELS) != before[key]} == set(KEYS)
    assert page.url == address  # nothing was sent to the page yet
    page.mouse.up()
    page.wait_for_url("**width=*")


@pytest.mark.parametrize("key", KEYS)
def test_a_miniatures_link_opens_the_view_it_shows(visit: Open, key: str) -> None:
    page = visit("lang=en&width=16")
    miniature = json.loads(root(page, key).get_attribute("data-params") or "")
    assert miniature["width"] == "16"
    link = page.locator(f".st-key-home-card-{key} [data-testid=stPageLink] a")
    promised = settings(link.get_attribute("href") or "")
    assert promised.pop("lang") == "en" and promised["d_k"] == "16"
    values = live_maps(page, "home", {"width": "16"}, key)
    link.click()
    main = page.locator(".st-key-attention-main [data-part=root]")
    expect(main).to_have_attribute("data-frame", re.compile(r"\d"))
    wait_idle(page)
    assert settings(page.url) == promised | {"lang": "en"}
    drawn = json.loads(main.get_attribute("data-params") or "")
    assert {name: drawn[name] for name in promised} == promised
    assert live_maps(page, "attention", promised, "main") == values
    expect(page.locator('[data-testid="stAlert"]').filter(has_text="not")).to_have_count(0)


def live_maps(page: Page, figure: str, params: dict[str, str], part: str) -> bytes:
    """Give the cells of a picture as the live route sends them to this page."""
    origin = "{0.scheme}://{0.netloc}".format(urlsplit(page.url))
    answer = page.request.get(f"{origin}/live/{figure}", params={**params, "lang": "en"})
    assert answer.ok, answer.text()
    return b"".join(codes.tobytes() for codes in unpack(answer.body())[1][part])


def test_a_click_on_a_miniature_opens_its_view(visit: Open) -> None:
    page = visit()
    root(page, "mask").locator("[data-part=stage]").click()
    page.wait_for_url("**/attention?**mask=sliding_window*")
    expect(page.get_by_role("heading", name="Scaled dot-product attention")).to_be_visible()


def test_the_links_follow_once_the_slider_is_let_go(visit: Open) -> None:
    page = visit()
    link = page.locator(".st-key-home-card-scaled [data-testid=stPageLink] a")
    assert "d_k" not in (link.get_attribute("href") or "")
    slider(page).focus()
    page.keyboard.press("End")
    expect(link).to_have_attribute("href", re.compile("d_k=1024"))


@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_link_opens_its_page_as_a_new_visitor_without_a_remark(
    visit: Open, open_page: Open, language: str
) -> None:
    page = visit(f"lang={language}")
    found = [urljoin(page.url, link.get_attribute("href") or "") for link in links(page).all()]
    assert len(found) >= len(KEYS) + 2 * len(PATHS)
    other = open_page(page.url)
    for address in dict.fromkeys(found):
        other.goto(address)
        wait_idle(other)
        key = urlsplit(address).path.strip("/")
        expect(other.get_by_role("heading", level=1)).to_have_text(say(language, f"{key}.title"))
        expect(other.locator('[data-testid="stAlert"] [data-testid="stAlertContentWarning"]')).to_have_count(0)
        assert settings(other.url) == settings(address), address


@pytest.mark.parametrize("entry", entries(), ids=lambda entry: entry.key)
def test_the_first_request_to_a_fresh_server_may_be_any_page(
    fresh_server: Callable[..., str], open_page: Open, entry
) -> None:
    path = "" if entry == entries()[0] else entry.key
    page = open_page(f"{fresh_server()}/{path}?lang=zh")
    expect(page.get_by_role("heading", level=1)).to_have_text(say("zh", f"{entry.key}.title"))


def test_a_link_of_the_old_form_opens_the_attention_page_and_back_leads_home(open_page: Open, app_url: str) -> None:
    page = open_page(f"{app_url}/?length=16&heads=2&lang=zh")
    page.wait_for_url("**/attention?*")
    expect(page.get_by_role("heading", level=1)).to_have_text(say("zh", "attention.title"))
    assert settings(page.url) == {"length": "16", "heads": "2", "lang": "zh"}
    page.go_back()
    expect(page.get_by_role("heading", level=1)).to_have_text(say("zh", "home.title"))
    expect(page.locator('[data-testid="stAlert"]')).to_have_count(0)


def test_settings_survive_a_visit_to_another_page(open_page: Open, app_url: str) -> None:
    page = open_page(f"{app_url}/attention?heads=2&d_k=16&lang=en")
    go_to(page, "")
    expect(page.get_by_role("heading", level=1)).to_have_text(say("en", "home.title"))
    wait_idle(page)
    go_to(page, "attention")
    expect(page.get_by_role("heading", level=1)).to_have_text(say("en", "attention.title"))
    page.wait_for_url("**d_k=16*")
    # The navigation empties the address; the language stays in the session, as everything else does.
    assert settings(page.url) == {"heads": "2", "d_k": "16"}


@pytest.mark.parametrize("viewport", [(1280, 720), PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize(("locale", "scheme"), [("en-US", "light"), ("zh-CN", "dark")])
def test_the_page_fits_in_both_languages_and_themes(visit: Open, viewport, locale: str, scheme: str) -> None:
    page = visit("", locale=locale, color_scheme=scheme, viewport=viewport)
    language = "zh" if locale == "zh-CN" else "en"
    expect(page.get_by_role("heading", level=1)).to_have_text(say(language, "home.title"))
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    for key in KEYS:
        box, card = (resting_box(place) for place in (root(page, key), page.locator(f".st-key-home-card-{key}").first))
        assert card["x"] <= box["x"] and box["x"] + box["width"] <= card["x"] + card["width"]
    if viewport == (1280, 720):
        # All miniatures and the way on are on the first screen.
        top = resting_box(page.locator(".st-key-home-path-learner"))
        assert top["y"] < 720 - 60


def test_the_colours_are_those_of_the_theme(visit: Open) -> None:
    light, dark = (visit(color_scheme=scheme) for scheme in ("light", "dark"))
    assert root(light, "scaled").evaluate(PIXELS) != root(dark, "scaled").evaluate(PIXELS)
