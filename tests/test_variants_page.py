"""The variants page: every view by link, the live route beside the page, models by one click, claims with sources."""

import re

import numpy as np
import pytest

from attnviz.conversion import METHODS
from attnviz.presets import PRESETS
from attnviz.text import LANGUAGES, Refusal
from attnviz.units import percent
from attnviz.variant_view import guard
from attnviz.variant_view.layers import narrowed
from attnviz.variant_view.run import table
from attnviz.variant_view.settings import OWN, VARIANTS
from attnviz.variant_view.view import settle
from attnviz.variants import VARIANTS as KINDS
from pages.ui.heatmap.frame import TOP, unpack
from pages.ui.translate import say
from pages.ui.variants_picture import cell, frame
from tests.pages import check, keys, link, plain, plots, said, shown, visit, widgets

VIEWS = (
    {},
    {"kv_heads": "8"},
    {"heads": "16", "kv_heads": "1", "method": "first"},
    {"show": "change", "method": "random", "dtype": "float32"},
    {"model": "gemma-2-2b", "seed": "4"},
    {"show": "weights", "heads": "16"},
    {"cell": "5,7,2", "text": "<b>bold</b> $x$ 猫"},
    {"variant": "mla", "latent": "3", "rope": "0"},
    {"variant": "mla", "show": "change", "latent": "100", "heads": "16"},
    {"variant": "additive", "show": "change"},
    {"model": "deepseek-v3-1"},
)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("settings", VIEWS, ids=str)
def test_the_page_and_the_live_route_draw_the_same(settings, language):
    app = visit(language, page="variants", **settings)
    settled = settle(settings)
    assert link(app) == settled.link()
    header, codes = unpack(frame({"lang": language, **settings}))
    assert plots(app)["variants.wires"] == header["figures"]["wires"]
    own, drawn = shown(app, "variants.maps")
    assert own["parts"]["maps"] == header["parts"]["maps"] and own["config"]["url"] == "/live/variants"
    for one, other in zip(drawn["maps"], codes["maps"], strict=True):
        assert (one == other).all()
    view = settled.view
    assert len(codes["maps"]) == len(view.shown) * (3 if view.show == "compare" else 1)
    for text in (header["parts"]["maps"]["caption"], header["figures"]["wires"]["layout"]["meta"]["alt"]):
        assert text and "{" not in text


def test_every_map_names_its_kv_head():
    for heads, kv_heads in ((8, 2), (16, 4)):
        header, _ = unpack(frame({"heads": str(heads), "kv_heads": str(kv_heads), "show": "weights"}))
        titles = [drawn["title"] for drawn in header["parts"]["maps"]["maps"]]
        found = [tuple(map(int, re.findall(r"\d+", title))) for title in titles]
        assert found == [(head, head // (heads // kv_heads)) for head in range(heads)]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("show", ["weights", "change"])
def test_a_cell_says_the_exact_value(show, variant):
    found = narrowed(settle({"variant": variant, "latent": "20"}).view)
    wanted = found.weights - found.before if show == "change" else found.weights
    for head, row, col in ((0, 0, 0), (5, 7, 2), (7, 11, 11)):
        answer = cell(
            {
                "variant": variant,
                "latent": "20",
                "show": show,
                "part": "maps",
                "map": str(head),
                "row": str(row),
                "col": str(col),
            }
        )
        assert float(str(answer["value"])) == pytest.approx(float(wanted[head, row, col]), abs=1e-7)
        assert answer["state"] == 0
    assert cell({"map": "1.0", "row": "0", "col": "1"})["state"] == 1


@pytest.mark.parametrize(
    "place", [{"map": "8"}, {"map": "3.0"}, {"map": "0.4"}, {"row": "12"}, {"col": "x"}, {"col": "-1"}, {"row": ""}]
)
def test_a_cell_outside_is_refused(place):
    with pytest.raises(Refusal, match=next(iter(place))):
        cell({"map": "0.0", "row": "0", "col": "0", **place})


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize(("kv_heads", "method"), [(2, "mean"), (4, "first"), (8, "mean"), (1, "random")])
def test_mha_the_slider_s_layer_and_mqa_stand_side_by_side_from_the_same_weights(kv_heads, method, language):
    given = {"kv_heads": str(kv_heads), "method": method, "first": "3", "lang": language}
    header, codes = unpack(frame(given))
    grid, found = header["parts"]["maps"], {}
    for drawn, values in zip(grid["maps"], codes["maps"], strict=True):
        layer, head = map(int, drawn["key"].split("."))
        found[layer, head] = (np.tril(values) / TOP, tuple(map(int, re.findall(r"\d+", drawn["title"]))))
    assert list(found) == [(layer, head) for layer in range(3) for head in (3, 4, 5, 6)]
    names = {8: "MHA 8/8", 1: "MQA 8/1"}
    for layer, count in enumerate((8, kv_heads, 1)):
        alone = narrowed(settle({"kv_heads": str(count), "method": method, "show": "weights"}).view)
        for head in (3, 4, 5, 6):
            values, title = found[layer, head]
            np.testing.assert_allclose(values, alone.weights[head], atol=1e-4)
            assert title == (head, head // (8 // count))
        name, note = grid["lines"][layer]
        assert name == names.get(count, f"GQA 8/{count}")
        assert layer == 0 or percent(alone.error) in note
    # At an end of its slider the middle line says which one it repeats.
    said = {8: "variants.compare.above", 1: "variants.compare.below"}.get(kv_heads, "variants.compare.error")
    assert grid["lines"][1][1].split("%")[-1] == say(language, said, error="%").split("%")[-1]
    assert all(name in grid["alt"] for name, _ in grid["lines"]) and "{" not in grid["alt"]


@pytest.mark.parametrize(
    ("given", "first"),
    [({}, 0), ({"first": "4"}, 4), ({"first": "127"}, 4), ({"cell": "5,7,2"}, 4), ({"cell": "5,7,2", "first": "0"}, 0),
     ({"heads": "6", "cell": "5,7,2"}, 2), ({"heads": "3", "first": "9"}, 0), ({"heads": "1"}, 0)],
    ids=str,
)  # fmt: skip
def test_the_selected_head_is_among_those_side_by_side_and_the_last_ones_end_with_the_last(given, first):
    settled = settle(given)
    assert settled.view.first == first and not settled.notes and not settled.problems
    header, _ = unpack(frame(given))
    heads = settled.view.heads
    layers = 3 if heads > 1 else 1
    wanted = [f"{layer}.{head}" for layer in range(layers) for head in range(first, min(first + 4, heads))]
    assert [drawn["key"] for drawn in header["parts"]["maps"]["maps"]] == wanted


def test_a_cell_side_by_side_is_the_layer_s_own():
    for layer, count in enumerate((8, 4, 1)):
        alone = narrowed(settle({"kv_heads": str(count)}).view)
        answer = cell({"kv_heads": "4", "map": f"{layer}.2", "row": "7", "col": "3"})
        assert float(str(answer["value"])) == pytest.approx(float(alone.weights[2, 7, 3]), abs=1e-7)


def test_a_cell_is_selected_on_the_layer_that_was_clicked():
    for given, wanted in (
        ({"cell": "5,7,2,0"}, "0.5"),
        ({"cell": "5,7,2"}, "1.5"),
        ({"cell": "0,0,0,2", "heads": "1"}, "0.0"),
        ({"cell": "5,7,2,0", "show": "weights"}, "5"),
    ):
        own, _ = shown(visit(page="variants", **given), "variants.maps")
        assert own["config"]["selected"]["map"] == wanted
    assert settle({"cell": "5,7,2,3"}).notes and settle({"cell": "5,7"}).notes


def test_other_heads_are_one_choice_away():
    app = visit(page="variants")
    assert app.selectbox(key="variants.first").options == ["heads 0–3", "heads 4–7"]
    app.selectbox(key="variants.first").set_value(4)
    check(app.run())
    assert link(app) == {"first": "4"}
    own, _ = shown(app, "variants.maps")
    assert {drawn["key"].split(".")[1] for drawn in own["parts"]["maps"]["maps"]} == {"4", "5", "6", "7"}
    assert "variants.first" not in widgets(visit(page="variants", heads="4"))
    assert "variants.first" not in widgets(visit(page="variants", show="change"))


@pytest.mark.parametrize("variant", ["mla", "additive"])
def test_kv_heads_are_no_matter_where_no_head_shares(variant):
    settled = settle({"variant": variant, "kv_heads": "3"})
    assert not settled.notes and not settled.problems and settled.view.kv_heads == 2
    assert not visit(page="variants", variant=variant, kv_heads="3").warning
    assert settle({"kv_heads": "3"}).notes


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_table_is_that_of_the_view(language):
    app = visit(language, page="variants", model="llama-3-8b")
    (text,) = [entry.value for entry in app.markdown if entry.value.startswith("| ")]
    rows = [[part.strip() for part in line.strip("| ").split("|")] for line in text.splitlines()[2:]]
    rest = [VARIANTS["additive"].say(language), *(KINDS[key].label.say(language) for key in ("linear", "delta"))]
    assert [row[0].strip("*") for row in rows] == ["MHA 32/32", "GQA 32/8", "MQA 32/1", "MLA", *rest]
    assert [row[0].startswith("**") for row in rows] == [False, True, False, False, False, False, False]
    assert [row[2:4] for row in rows[5:]] == [["0", "0 B"]] * 2 and rows[5][5] != "0%"
    taken = table(settle({"model": "llama-3-8b"}).view)
    assert [row[2].strip("*") for row in rows] == [f"{one.elements:,}" for one in taken]
    assert rows[1][3:6] == ["**128 KiB**", "**1 GiB**", "**25%**"]
    assert f"{100 * (taken[1].error or 0):.1f}%" == rows[1][7].strip("*") and rows[3][7] == "–"
    # Four projections, and scores and sums over 8,192 tokens of 32 heads, in 32 layers.
    flops = 32 * (2 * (2 * 4096 * 4096 + 2 * 4096 * 1024) + 4 * 32 * 128 * 8192)
    assert rows[1][6].strip("*") == f"{flops / 1e9:.3g} GFLOP" == "6.98 GFLOP"
    assert {metric.value for metric in app.metric} == {"41.9M", "128 KiB", "1 GiB", "6.98 GFLOP"}
    assert any(f"{flops:,}" in (metric.help or "") for metric in app.metric)


def test_a_model_is_one_click_and_takes_the_place_of_what_was_set():
    app = visit(page="variants", heads="16", kv_heads="4", layers="7", seed="3")
    app.selectbox(key="variants.model").set_value("llama-2-70b")
    check(app.run())
    assert link(app) == {"model": "llama-2-70b", "seed": "3"}
    assert (widgets(app)["variants.width"], widgets(app)["variants.layers"]) == (8192, 80)
    assert PRESETS["llama-2-70b"].source in said(app)
    app.number_input(key="variants.layers").set_value(3)
    check(app.run())
    assert link(app) == {"model": "llama-2-70b", "seed": "3", "layers": "3"}
    assert say("en", "variants.model.changed") in said(app)
    app.selectbox(key="variants.model").set_value(OWN)
    check(app.run())
    assert link(app) == {"seed": "3"} and say("en", "variants.model.source") not in said(app)


@pytest.mark.parametrize("variant", ["grouped", "additive"])
def test_a_model_keeps_its_sizes_in_another_variant(variant):
    app = visit(page="variants", model="deepseek-v3-r1-671b")
    app.button_group(key="variants.variant").set_value(variant)
    check(app.run())
    assert link(app) == {"model": "deepseek-v3-r1-671b", "variant": variant}
    assert widgets(app)["variants.model"] == "deepseek-v3-r1-671b" and say("en", "variants.model.changed") in said(app)
    app.button_group(key="variants.variant").set_value("mla")
    check(app.run())
    assert link(app) == {"model": "deepseek-v3-r1-671b"}
    assert say("en", "variants.model.changed") not in said(app)


@pytest.mark.parametrize("show", ["weights", "compare"])
@pytest.mark.parametrize("language", LANGUAGES)
def test_a_selected_head_that_is_not_shown_is_named(language, show):
    model = {"model": "deepseek-v3-r1-671b", "variant": "grouped", "show": show, "cell": "100,3,2", "lang": language}
    elsewhere = say(language, "variants.maps.elsewhere", head=100, query=3, target=2)
    for first, is_shown in (("50", False), ("99", True)):
        caption = unpack(frame(model | {"first": first}))[0]["parts"]["maps"]["caption"]
        assert caption.startswith(elsewhere) is not is_shown


def test_every_model_opens_by_link_with_its_source():
    app = visit(page="variants")
    for key in PRESETS:
        app.query_params = {"model": [key], "lang": ["en"]}
        check(app.run())
        assert not app.warning and link(app) == {"model": key}
        assert PRESETS[key].source in said(app)
        assert ("keep a window" in plain(said(app))) == bool(PRESETS[key].sliding_layers)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_by_link(method):
    app = visit("zh", page="variants", method=method)
    assert widgets(app)["variants.method"] == method and not app.warning


@pytest.mark.parametrize("language", LANGUAGES)
def test_wrong_claims_are_answered_with_sources(language):
    words = said(visit(language, page="variants"))
    for key in ("llama-2-7b", "llama-2-70b", "deepseek-v3-r1-671b"):
        assert PRESETS[key].source in words
    # What the sentences say is what the published files say.
    assert PRESETS["llama-2-7b"].variant == PRESETS["llama-2-13b"].variant == "mha"
    assert PRESETS["llama-2-70b"].sizes["num_key_value_heads"] == 8
    assert {PRESETS[key].variant for key in PRESETS if key.startswith("deepseek")} == {"mla"}
    for url in ("2305.13245", "1911.02150", "2405.04434", "2307.09288"):
        assert url in words


HOSTILE = {
    "kv_heads=0": "kv_heads must be a whole number from 1 to 232, got '0'.",
    "heads=233": "heads must be a whole number from 1 to 232, got '233'.",
    "variant=mha": "variant must be one of grouped, mla, additive, got 'mha'.",
    "latent=513": "latent must be a whole number from 1 to 512, got '513'.",
    "rope=-1": "rope must be a whole number from 0 to 64, got '-1'.",
    "d_k=512": "d_k must be a whole number from 1 to 256, got '512'.",
    "model=gpt-5": "model must be one of own",
    "dtype=int4": "dtype must be one of float64",
    "context=99999999999": "context must be a whole number from 1 to 16,777,216",
    "method=<b>": "method must be one of mean, first, random, got '<b>'.",
    "cell=a": "cell must be",
    "length=4": "'length' is not a setting of this page.",
}


@pytest.mark.parametrize("given", HOSTILE)
def test_a_bad_value_is_named_and_the_page_stays(given):
    name, value = given.split("=")
    app = visit(page="variants", **{name: value})
    (warning,) = app.warning
    assert HOSTILE[given] in plain(warning.value) and not re.search(r"(?<!\\)[<$\[*]", warning.value)
    assert link(app) == {} and "variants.wires" in plots(app) and "variants.maps" in keys(app)
    with pytest.raises(Refusal, match=re.escape(HOSTILE[given][:15])):
        frame({name: value})


def test_what_is_too_much_is_refused_and_the_page_stays(monkeypatch):
    monkeypatch.setattr(guard, "SHARE", 1e-9)
    app = visit(page="variants", heads="64", d_k="256", variant="mla")
    (refused,) = app.error
    assert plain(refused.value).startswith("Refused before allocating anything: 64 heads with d_k 256 would take ")
    assert "variants.wires" not in plots(app) and "variants.d_k" in keys(app)
    with pytest.raises(Refusal, match="64 heads with d_k 256"):
        frame({"heads": "64", "d_k": "256"})
    monkeypatch.undo()
    assert "variants.wires" in plots(check(app.run()))


def test_the_largest_layer_stays_a_small_answer():
    answer = frame({"heads": "64", "kv_heads": "64", "d_k": "256", "text": "a b c d " * 9, "show": "weights"})
    header, codes = unpack(answer)
    assert len(codes["maps"]) == 64 and codes["maps"][0].shape == (24, 24) and len(answer) < 400_000
    assert np.isfinite([drawn["high"] for drawn in header["parts"]["maps"]["maps"]]).all()
