"""The flash page: every view by link, the live route beside the page, one tile in words, hostile links."""

import re

import numpy as np
import pytest

from attnviz.figures.flash import LEAST
from attnviz.flash_view import traffic, weights
from attnviz.flash_view.settle import settle
from attnviz.flash_view.walk import now, row, walk
from attnviz.masks import MASKS
from attnviz.text import LANGUAGES, Refusal
from pages.ui.flash_picture import CURRENT, DONE, OUTPUT, STATISTICS, TILES, TO_COME, cell, frame
from pages.ui.heatmap.frame import MASKED, TOP, unpack
from pages.ui.translate import say
from tests.pages import check, link, numbers, plain, plots, said, shown, visit

VIEWS = (
    {},
    {"mask": "sliding_window", "window": "40", "step": "12"},
    {"length": "33", "key_length": "70", "align": "bottom_right", "tile_cols": "9", "row": "4"},
    {"mask": "own", "rule": "kv_idx > 1000", "length": "20"},
    {"mask": "full", "length": "300", "d_k": "160", "sharpness": "6", "seed": "3", "step": "0"},
)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("settings", VIEWS, ids=str)
def test_the_page_and_the_live_route_draw_the_same(settings, language):
    app = visit(language, page="flash", **settings)
    assert link(app) == settle(settings).link() and not app.warning
    header, codes = unpack(frame({"lang": language, **settings}))
    for part in (STATISTICS, OUTPUT):
        assert plots(app)[f"flash.{part}"] == header["figures"][part]
    own, drawn = shown(app, "flash.tiles")
    assert own["parts"][TILES] == header["parts"][TILES] and own["config"]["url"] == "/live/flash"
    np.testing.assert_array_equal(drawn[TILES][0], codes[TILES][0])
    for text in (
        header["parts"][TILES]["caption"],
        *(one["layout"]["meta"]["alt"] for one in header["figures"].values()),
    ):
        assert text and "{" not in text


@pytest.mark.parametrize("mask", MASKS)
def test_every_mask_by_link_with_its_own_controls(mask):
    app = visit(page="flash", mask=mask, length="48")
    assert not app.warning and not app.error
    found = walk(settle({"mask": mask, "length": "48"}).view)
    codes = shown(app, "flash.tiles")[1][TILES][0]
    np.testing.assert_array_equal(codes == MASKED, found.order == 0)


def test_the_grid_says_what_was_is_and_will_be():
    app = visit(page="flash", step="12")
    order = walk(settle({"step": "12"}).view).order
    codes = shown(app, "flash.tiles")[1][TILES][0]
    for value, where in ((CURRENT, order == 12), (DONE, (order > 0) & (order < 12)), (TO_COME, order > 12)):
        assert set(codes[where]) == {round(value * TOP)}
    legend = shown(app, "flash.tiles")[0]["parts"][TILES]["maps"][0]["kinds"]
    assert [name for _, name in legend] == [say("en", f"flash.tiles.{key}") for key in ("current", "done", "to_come")]
    assert shown(app, "flash.tiles")[0]["config"]["words"]["masked"] == say("en", "flash.tiles.never")


def test_the_row_s_figures_hold_the_trace_s_numbers():
    figures = unpack(frame({"step": "33"}))[0]["figures"]
    view = settle({"step": "33"}).view
    found, done = row(view), now(view).done
    later, past, level = figures[STATISTICS]["data"][:3]
    np.testing.assert_allclose(numbers(past["y"]), found.maximum[:done])
    np.testing.assert_allclose(numbers(later["y"]), found.maximum[done - 1 :])
    assert set(level["y"]) == {found.last_maximum}
    bars, marks, _, distance = figures[OUTPUT]["data"]
    outline = np.reshape(numbers(bars["y"]), (-1, 4))
    np.testing.assert_allclose(outline, np.outer(found.output[done - 1], [0, 1, 1, 0]))
    np.testing.assert_allclose(np.reshape(numbers(marks["y"]), (-1, 3))[:, 0], found.exact)
    np.testing.assert_allclose(numbers(distance["y"]), np.maximum(found.distance[:done], LEAST))


def test_a_tile_says_its_turn():
    ask = {"part": "tiles", "map": "tiles"}
    assert cell({**ask, "row": "7", "col": "4"})["value"] == "queries 112–127, keys 64–79: step 33, every pair counts"
    assert "some pairs are masked" in str(cell({**ask, "row": "7", "col": "7"})["value"])
    never = cell({**ask, "row": "0", "col": "1"})
    assert "never loaded" in str(never["value"]) and never["state"] == 1
    for bad in ({"row": "8", "col": "0"}, {"row": "-1", "col": "0"}, {"row": "0"}):
        with pytest.raises(Refusal, match=r"(row|col) must be a whole number from 0 to 7"):
            cell({**ask, **bad})


HOSTILE = {
    "length=5000": "length must be a whole number from 1 to 4,096, got '5000'.",
    "step=-1": "step must be a whole number from 0 to 4,096, got '-1'.",
    "tile_rows=0": "tile_rows must be a whole number from 1 to 4,096, got '0'.",
    "d_k=<b>": "d_k must be a whole number from 1 to 1,024, got '<b>'.",
    "mask=nothing": "mask must be one of full, causal",
    "sharpness=inf": "sharpness must be a number from 0 to 1000, got 'inf'.",
    "heads=4": "'heads' is not a setting of this page.",
}


@pytest.mark.parametrize("given", HOSTILE)
def test_a_bad_value_is_named_and_the_page_stays(given):
    name, value = given.split("=")
    app = visit(page="flash", **{name: value})
    (warning,) = app.warning
    assert HOSTILE[given] in plain(warning.value)
    assert link(app) == {} and "flash.statistics" in plots(app)
    with pytest.raises(Refusal, match=re.escape(HOSTILE[given][:20])):
        frame({name: value})


def test_what_is_too_large_is_refused_and_the_page_lives(monkeypatch):
    monkeypatch.setattr("attnviz.device.free_bytes", lambda device: 4 * 10**6)
    app = visit(page="flash", length="1024")
    assert "Refused before allocating anything" in app.error[0].value and not plots(app)
    assert say("en", "flash.words.title") in said(app)
    with pytest.raises(Refusal, match="Refused before allocating"):
        frame({"length": "1024"})


# ---- the sections below ----

SECTIONS = ("traffic", "flops", "precision", "weights")


def opened(language="en", **settings):
    app = visit(language, page="flash", **settings)
    for section in SECTIONS:
        app.session_state[f"flash.fold.{section}"] = True
    return check(app.run())


@pytest.mark.parametrize("language", LANGUAGES)
def test_what_is_folded_away_is_neither_computed_nor_sent_until_it_is_opened(language):
    closed = visit(language, page="flash")
    assert set(plots(closed)) == {"flash.statistics", "flash.output"}
    app = opened(language)
    assert {"flash.by_memory", "flash.by_length", "flash.errors"} < set(plots(app))
    words = said(app)
    for section in SECTIONS:
        assert say(language, f"flash.{section}.title") not in said(closed).splitlines()
    for key in ("traffic.lead", "flops.backward", "precision.words", "weights.lead"):
        assert say(language, f"flash.{key}") in words
    for figure in plots(app).values():
        assert figure["layout"]["meta"]["alt"] and "{" not in figure["layout"]["meta"]["alt"]
    assert len(app.metric) == 3


@pytest.mark.parametrize("mask", MASKS)
def test_every_mask_can_be_counted(mask):
    app = opened(mask=mask, length="40", tokens="512")
    counted = {trace["name"]: trace for trace in plots(app)["flash.by_memory"]["data"]}
    assert (say("en", "flash.traffic.masked") in counted) == (mask != "full")
    assert numbers(counted[say("en", "flash.traffic.counted")]["y"])


def test_the_chart_of_bytes_says_from_where_on_flash_moves_less():
    app = opened()
    curve = traffic.against_memory(settle({}).view)
    caption = plots(app)["flash.by_memory"]["layout"]["meta"]["caption"]
    (word,) = re.findall(r"from ([\d.]+) KiB", caption)
    less = curve.at >= float(word) * 1024
    assert ((curve.predicted < curve.eager) == less).all() and less.any() and not less.all()
    # The dashed line has the slope of Theorem 2 and stands where the theorem holds: M up to L × d.
    theorem = next(line for line in plots(app)["flash.by_memory"]["data"] if line["name"].startswith("Theorem"))
    x, y = (np.array(numbers(theorem[axis])) for axis in "xy")
    np.testing.assert_allclose(x * y, x[0] * y[0])
    assert max(x) == 4 * 1024 * 64
    assert "ends at L d = 256 KiB" in said(app)
    # And what holds behind its end: one block of queries, everything once.
    fit, least = re.findall(r"from ([\d.]+) KiB on: then everything passes once, ([\d.,]+) MiB", said(app))[0]
    after = curve.at >= float(fit) * 1024
    assert set(curve.predicted[after]) == {traffic.predicted_bytes(1024, 64, 1024)} and not after.all()
    assert float(least) == pytest.approx(curve.predicted[after][0] / 2**20, rel=0.01)


@pytest.mark.parametrize(("d_k", "tokens"), ((1, 512), (64, 1024), (1024, 512)))
def test_the_end_of_theorem_2_and_of_all_saving_is_where_it_is_said(d_k, tokens):
    fit = traffic.tile_bytes(tokens, min(tokens, d_k), d_k)
    assert traffic.tile_for(fit, d_k)[0] == tokens > traffic.tile_for(fit - 4, d_k)[0]
    lines = [one["name"] for one in plots(opened(d_k=str(d_k), tokens=str(tokens)))["flash.by_memory"]["data"]]
    # With so few bytes everything fits into the smallest memory: no slope is left to be named.
    assert (say("en", "flash.traffic.theorem") in lines) == (d_k > 1)


def test_the_table_of_flops_is_the_count():
    app = opened(length="64")
    view = settle({"length": "64"}).view
    (row_,) = [line for line in said(app).splitlines() if line.startswith("| matrix products")]
    cells = [cell.strip().replace(",", "") for cell in row_.split("|")]
    assert [int(cells[2]), int(cells[3])] == [traffic.eager_work(view).products, traffic.flash_work(view).products]
    assert "less** than eager" in said(app)
    assert "more** than eager" in said(opened(length="64", mask="full", tile_cols="4"))
    # No tile is skipped here: what is saved are divisions, and so it is said.
    assert "though it skips no tile" in said(opened(length="64", mask="full", d_k="1"))


def test_a_region_of_the_weights_comes_sharper_and_a_cell_exactly():
    view = settle({"length": "1024"}).view
    ask = {"length": "1024", "part": "weights", "map": "weights"}
    header, codes = unpack(frame({**ask, "rows": "1000-1024", "cols": "10-30"}))
    drawn = header["parts"]["weights"]["maps"][0]
    assert codes["weights"][0].shape == (24, 20) and drawn["pool"] == [1, 1]
    assert (drawn["row_axis"]["start"], drawn["col_axis"]["start"]) == (1000, 10)
    found, _ = weights.weights(view, (1001, 1002), (12, 13))
    assert float(str(cell({**ask, "row": "1001", "col": "12"})["value"])) == pytest.approx(float(found), rel=1e-5)
    assert cell({**ask, "row": "3", "col": "12"}) == {"value": "", "state": 1, "row": 3, "col": 12}
    entry = weights.fused(view).output[0, 0, 5, 7]
    value = cell({**ask, "part": "fused", "map": "fused", "row": "5", "col": "7"})["value"]
    assert float(str(value)) == pytest.approx(float(entry), rel=1e-5)
    header, codes = unpack(frame({**ask, "part": "fused", "map": "fused", "rows": "5-9", "cols": "60-64"}))
    drawn = header["parts"]["fused"]["maps"][0]
    part = drawn["low"] + codes["fused"][0] / TOP * (drawn["high"] - drawn["low"])
    np.testing.assert_allclose(part, weights.fused(view).output[0, 0, 5:9, 60:64], atol=drawn["high"] / TOP)
    for bad in ({"rows": "0-1025"}, {"rows": "5-5"}, {"cols": "x"}, {"rows": "0-9", "part": "tiles"}):
        with pytest.raises(Refusal, match="must be"):
            frame(ask | bad)
    for bad in ({"row": "1024", "col": "0"}, {"map": "x", "row": "0", "col": "0"}):
        with pytest.raises(Refusal, match="must be"):
            cell(ask | bad)


@pytest.mark.parametrize("settings", ({}, {"length": "1024", "d_k": "300"}), ids=str)
def test_weights_and_output_each_have_a_colour_scale_of_their_own(settings):
    app, view = opened(**settings), settle(settings).view
    # The bar beside a picture is its first map's: a map with another range or other colours stands in another picture.
    for key, words in (("weights", ("Query", "Key")), ("fused", ("Query", "Entry"))):
        header, _ = shown(app, f"flash.{key}")
        assert list(header["parts"]) == [key]
        (drawn,) = header["parts"][key]["maps"]
        assert (drawn["row_axis"]["label"], drawn["col_axis"]["label"]) == words
    # Cells that stand for many keep the one farthest from 0: pictures of a part have the same range.
    largest = float(weights.fused(view).output.abs().max())
    assert (drawn["palette"], drawn["low"], drawn["high"]) == ("diverging", -largest, largest)
    codes = shown(app, "flash.fused")[1]["fused"][0]
    assert codes.min() == 0 or codes.max() == TOP


def test_a_row_that_sees_no_key_is_said_to_see_none():
    settings = {"length": "8", "key_length": "3", "align": "bottom_right", "tile_rows": "2", "tile_cols": "1"}
    for step, row_, words in (("1", "0", "Query 4 sees no key: m stays −∞"), ("1", "1", "Query 5; dashed")):
        figures = unpack(frame(settings | {"step": step, "row": row_}))[0]["figures"]
        captions = [figures[part]["layout"]["meta"]["caption"] for part in (STATISTICS, OUTPUT)]
        assert captions[0].startswith(words) and ("the output is 0" in captions[1]) == (row_ == "0")
        drawn = row(settle(settings | {"step": step, "row": row_}).view)
        assert np.isfinite(drawn.last_maximum) == (row_ == "1")


def test_a_block_of_one_row_has_no_slider_to_pick_one():
    app = visit(page="flash", length="64", tile_rows="1")
    assert say("en", "flash.row.single") in said(app) and not app.warning
    assert say("en", "flash.row.single") not in said(visit(page="flash", length="64", tile_rows="2"))


def test_the_growth_with_a_mask_stands_beside_the_one_without():
    app = visit(page="flash", mask="sliding_window", open="traffic")
    curve = traffic.against_length(settle({"mask": "sliding_window"}).view)
    drawn = plots(app)["flash.by_length"]
    caption = drawn["layout"]["meta"]["caption"]
    assert caption.startswith("From 4,096 to 8,192 tokens, without a mask: eager moves 3.97×")
    assert caption.endswith(f"; with this mask flash moves {curve.masked[-1] / curve.masked[-2]:.3g}× as much")
    (dots,) = [trace for trace in drawn["data"] if trace["name"] == say("en", "flash.traffic.masked")]
    assert numbers(dots["y"]) == list(curve.masked)
    plain_ = plots(visit(page="flash", mask="full", open="traffic"))["flash.by_length"]
    assert "with this mask" not in str(plain_)


@pytest.mark.parametrize(("settings", "places"), [
    ({"tile_rows": "64", "tile_cols": "128"}, {"tile above": ("right", 0), "A100, one SM": ("left", 0)}),
    ({"tile_rows": "256", "tile_cols": "256"}, {"tile above": ("left", 0), "A100, one SM": ("right", 0)}),
    # Close to the axis there is no room on the left; far away none is needed.
    ({"d_k": "8"}, {"tile above": ("left", -18), "A100, one SM": ("left", 0)}),
    ({"d_k": "1"}, {"tile above": ("left", 0), "A100, one SM": ("left", 0)}),
])  # fmt: skip
def test_names_of_lines_close_by_do_not_stand_on_each_other(settings, places):
    app = visit(page="flash", length="4096", open="traffic", **settings)
    notes = plots(app)["flash.by_memory"]["layout"]["annotations"]
    assert {note["text"]: (note["xanchor"], note["yshift"]) for note in notes} == places


@pytest.mark.parametrize("d_k", ["64", "256"])
def test_the_claim_on_bytes_names_the_factor_that_was_counted(d_k):
    curve = traffic.against_length(settle({"d_k": d_k}).view)
    factor = curve.predicted[-1] / curve.eager[-1]
    assert (factor > 1) == (d_k == "256")
    assert f"at 8,192 they are {factor:.3g}× eager's" in said(visit(page="flash", d_k=d_k, open="claims"))
