"""The first page: miniatures are the views that they link to, and no link leads to a remark or a missing page."""

import numpy as np
import pytest
import torch

from attnviz import device, home_view, units, view
from attnviz.settings import every_name
from attnviz.text import LANGUAGES, Refusal
from pages import entries, keys
from pages.ui import attention_picture, home_picture
from pages.ui.heatmap.frame import unpack
from pages.ui.home_paths import MINIATURES, PATHS, STEPS, settings_of, steps
from pages.ui.translate import say
from tests.pages import check, component, go, link, plain, said, shown, visit

NOW = frozenset({"home", "attention"})
LATER = NOW | {"saturation", "masks"}


def home(lang: str = "en", **settings: str):
    return visit(lang, page="home", **settings)


def links(app) -> list[tuple[str, str, str]]:
    """Give label, page and query of every link of the page."""
    protos = [entry.proto for entry in app.get("page_link")]
    return [(proto.label, proto.page, proto.query_string) for proto in protos]


@pytest.mark.parametrize("width", [1, 64, 300])
@pytest.mark.parametrize("miniature", MINIATURES, ids=lambda miniature: miniature.key)
def test_a_miniature_is_the_view_that_it_links_to(miniature, width):
    settings = settings_of(miniature, home_view.HomeView(width))
    settled = view.settle(settings)
    assert not settled.problems and not settled.notes
    assert settled.link() == settings and settled.view.d_k == width
    drawn = home_picture.grids(home_view.HomeView(width), "en")[miniature.key]
    page = attention_picture.grids(settled.view, "en")[attention_picture.MAIN]
    assert len(drawn.maps) == len(page.maps)
    for one, other in zip(drawn.maps, page.maps, strict=True):
        assert np.array_equal(one.values, other.values)
        assert (one.low, one.high) == (other.low, other.high)


def largest(width: int, key: str) -> float:
    (drawn,) = home_picture.grids(home_view.HomeView(width), "en")[key].maps
    return float(drawn.values.max(axis=1).mean())


def test_rows_collapse_without_the_scale_and_not_with_it():
    assert largest(256, "unscaled") > 0.95 > 0.7 > largest(256, "scaled")
    assert largest(256, "unscaled") > largest(16, "unscaled") > largest(1, "unscaled")
    assert largest(1, "unscaled") == largest(1, "scaled")  # 1/√1 is 1


@pytest.mark.parametrize("key", ["scaled", "unscaled"])
def test_the_line_under_a_miniature_counts_what_is_drawn(key):
    caption = home_picture.grids(home_view.HomeView(16), "en")[key].caption
    assert caption == say("en", f"home.mini.{key}.caption", largest=f"{largest(16, key):.2f}")


def test_the_row_maximum_leaves_masked_cells_out():
    grid = home_picture.grids(home_view.HomeView(16), "en")["mask"]
    drawn = grid.maps[0]
    assert drawn.state is not None
    assert home_picture._largest(drawn) == pytest.approx(np.where(drawn.state == 0, drawn.values, 0).max(1).mean())


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_page_and_the_live_route_draw_the_same(language):
    app = home(language, width="16")
    header, codes = unpack(home_picture.frame({"width": "16", "lang": language}))
    assert header["params"] == {"width": "16"}
    for miniature in MINIATURES:
        own, drawn = shown(app, f"home.{miniature.key}")
        assert own["parts"][miniature.key]["caption"] == header["parts"][miniature.key]["caption"]
        assert own["config"]["url"] == "/live/home" and own["params"] == {"width": "16", "lang": language}
        for one, other in zip(drawn[miniature.key], codes[miniature.key], strict=True):
            assert (one == other).all()


@pytest.mark.parametrize("params", [{"width": "0"}, {"width": "x"}, {"d_k": "8"}])
def test_the_live_route_refuses_what_it_cannot_read(params):
    with pytest.raises(Refusal, match=next(iter(params))):
        home_picture.frame(params)


@pytest.mark.parametrize("there", [NOW, LATER, keys()])
@pytest.mark.parametrize("person", PATHS)
def test_a_path_is_short_and_leads_to_pages_that_are_there(person, there):
    path = steps(person, there)
    assert 2 <= len(path) <= STEPS and {step.page for step in path} <= there
    assert len({step.key for step in path}) == len(path)
    for step in path:
        if step.page == "attention":
            settled = view.settle(step.settings)
            assert not settled.problems and not settled.notes and settled.link() == dict(step.settings), step.key


def test_new_pages_appear_on_the_paths_as_soon_as_they_are_there():
    assert [step.page for step in steps("learner", LATER)] == ["attention", "saturation", "masks"]
    assert "masks" not in {step.page for step in steps("learner", NOW | {"saturation"})}
    assert "masks" in {step.page for step in steps("speaker", LATER)}
    every = LATER | {"variants", "kv_cache", "flash", "benchmark"}
    assert [step.page for step in steps("engineer", every)] == ["variants", "kv_cache", "benchmark"]
    assert [step.page for step in steps("speaker", every)] == ["attention", "flash", "masks"]


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_link_of_the_page_is_a_page_with_settings_and_keeps_the_language(language):
    found = links(home(language, width="16"))
    assert len(found) == len(MINIATURES) + sum(len(steps(person, keys())) for person in PATHS)
    assert {page for _, page, _ in found} <= keys()
    assert all(f"lang={language}" in query for _, _, query in found)
    by_label = {plain(label).strip("*"): query for label, _, query in found}
    for miniature in MINIATURES:
        assert "d_k=16" in by_label[say(language, f"home.mini.{miniature.key}.title")]


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_machine_is_named(language):
    words = plain(said(home(language)))
    assert f"PyTorch {torch.__version__}" in words
    for name in device.present():
        assert f"{name}" in words and device.model(name) in words and ", ".join(device.dtypes(name)) in words
        assert units.binary_bytes(device.total_bytes(name)) in words


def test_a_clicked_miniature_opens_its_view():
    app = home(width="16")
    app.session_state["home.chosen"] = "unscaled"
    check(app.run())
    assert app.title[0].value == say("en", "attention.title")
    assert link(app) == settings_of(MINIATURES[1], home_view.HomeView(16))
    assert not app.warning


def test_the_slider_is_a_setting_in_the_address_and_reset_takes_it_back():
    app = home(width="16")
    assert link(app) == {"width": "16"} and component(app, "home.width") is not None
    app.button(key="home.reset").click()
    check(app.run())
    assert link(app) == {}


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_bad_value_is_named(language):
    app = home(language, width="0")
    assert "width" in plain(app.warning[0].value) and link(app) == {}


def test_a_link_of_the_old_form_is_passed_on_with_everything_it_says():
    app = home("zh", length="16", mask="full", nonsense="1")
    assert app.title[0].value == say("zh", "attention.title")
    assert link(app) == {"length": "16", "mask": "full"}
    assert "nonsense" in plain(app.warning[0].value)


def test_going_back_from_there_ends_on_the_first_page():
    app = home(length="16")
    app.switch_page("home.py")
    go(app, {"length": "16"})
    assert app.title[0].value == say("en", "home.title")
    assert link(app) == {} and not app.warning


def test_no_setting_of_the_first_page_is_one_of_the_attention_page():
    assert home_view.WIDTH.name not in every_name()


def test_settings_survive_going_to_another_page_and_back():
    app = visit(heads="2", d_k="16")
    for page in ("home", "attention"):
        app.switch_page(f"{page}.py")
        app.query_params.clear()  # as Streamlit does when another page opens
        check(app.run())
    assert link(app) == {"heads": "2", "d_k": "16"}
    assert entries()[0].key == "home"
