"""The KV cache page: every view by link, the live route beside the page, golden sizes, hostile links."""

import re

import numpy as np
import pytest

from attnviz import units
from attnviz.figures.kv_cache import Series, series_chart
from attnviz.hardware import HARDWARE
from attnviz.kv_cache_view.decode import decode
from attnviz.kv_cache_view.knobs import MODELS, VARIANT_KEYS
from attnviz.kv_cache_view.memory import fits
from attnviz.kv_cache_view.view import settle
from attnviz.presets import PRESETS
from attnviz.text import LANGUAGES, Refusal
from pages.ui.heatmap.frame import MASKED, TOP, unpack
from pages.ui.kv_cache_maps import KINDS, cells, letters
from pages.ui.kv_cache_picture import cell, frame
from pages.ui.translate import say
from tests.pages import check, go, keys, link, plain, plots, said, shown, visit, widgets

VIEWS = (
    {},
    {"step": "0", "variant": "mla"},
    {"show": "weights", "layout": "sliding_window", "window": "3", "head": "2"},
    {"show": "vectors", "variant": "mha", "cell": "1,5,3"},
    {"variant": "mqa", "layout": "attention_sinks", "sinks": "1", "storage": "int4"},
    {"model": "gpt-oss-20b", "context": "8192", "batch": "32", "windows": "0"},
    {"model": "deepseek-v3-1", "gpus": "16", "cache_dtype": "fp8", "weight_bits": "8"},
    {"text": "<b>bold</b> $x$ 猫 [a](b)", "seed": "7"},
)


@pytest.fixture(scope="module")
def app():
    """One visitor who opens one link after another."""
    return visit(page="kv_cache")


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("settings", VIEWS, ids=str)
def test_the_page_and_the_live_route_draw_the_same(settings, language, app):
    go(app, settings, language)
    assert not app.warning and link(app) == settle(settings).link()
    header, codes = unpack(frame({"lang": language, **settings}))
    for part in ("sizes", "fits"):
        assert plots(app)[f"kv_cache.{part}"] == header["figures"][part]
    own, drawn = shown(app, "kv_cache.main")
    assert own["parts"]["main"] == header["parts"]["main"] and own["config"]["url"] == "/live/kv_cache"
    for one, other in zip(drawn["main"], codes["main"], strict=True):
        assert (one == other).all()
    texts = [
        header["parts"]["main"]["caption"],
        *(figure["layout"]["meta"]["alt"] for figure in header["figures"].values()),
    ]
    assert all(text and "{" not in text for text in texts)


@pytest.mark.parametrize("variant", VARIANT_KEYS)
def test_what_is_drawn_is_what_the_cache_did(variant):
    """Counted from the picture: rows of Q and K computed, rows read, scores, with the cache and without."""
    for settings in ({}, {"layout": "sliding_window", "window": "3"}, {"step": "0"}, SINKS):
        view = settle({"variant": variant, **settings}).view
        found, answer = cells(view), decode(view.scene)[view.step]
        first = len(letters(view)) + 1
        assert found.columns[: first - 1] == (("Q", "c", "kᴿ") if variant == "mla" else ("Q", "K", "V"))

        def count(key, kind, columns, found=found):
            return int((found.kinds[key][:, columns] == KINDS[kind]).sum())

        scores = slice(first, None)
        assert count("with", "now", 0) == count("with", "now", 1) == answer.step.new
        assert count("with", "cached", 1) == len(answer.before) and count("with", "cached", 0) == 0
        assert count("without", "now", 0) + count("without", "again", 0) == answer.seen
        assert count("with", "now", scores) == (~np.isnan(answer.weights[0]) & (answer.weights[0] > 0)).sum()
        assert count("without", "now", scores) + count("without", "again", scores) == (answer.without[0] > 0).sum()
        assert count("with", "again", slice(None)) == 0
        # The new token is one of its window: what is read and what is dropped is what its row of scores says.
        row = found.kinds["with"][answer.seen - 1, scores]
        assert count("with", "cached", 1) == max(0, int((row == KINDS["now"]).sum()) - answer.step.new)
        assert count("with", "dropped", 1) == answer.step.start - len(answer.before)


SINKS = {"layout": "attention_sinks", "window": "2", "sinks": "1", "step": "8"}


def test_a_window_is_told_as_it_is_painted():
    settings = {"layout": "sliding_window", "window": "4", "lang": "en"}
    (part,) = unpack(frame(settings))[0]["parts"].values()
    assert "reads 3 from the cache" in part["caption"] and "now holds 4 tokens" in part["caption"]
    assert "Dropped so far: 5." in part["caption"]
    assert [name for _, name in part["maps"][0]["kinds"]].count("dropped from the cache") == 1
    (part,) = unpack(frame({"lang": "en"}))[0]["parts"].values()
    assert "Dropped" not in part["caption"] and "dropped" not in str(part["maps"][0]["kinds"])
    answer = cell({**settings, "map": "with", "row": "4", "col": "1"})
    assert answer["value"] == say("en", "kv_cache.kind.dropped")


@pytest.mark.parametrize("key", ["with", "without"])
def test_weights_are_the_computed_ones(key):
    view = settle({"show": "weights", "head": "3"}).view
    answer = decode(view.scene)[view.step]
    _, codes = unpack(frame({"show": "weights", "head": "3"}))
    drawn = codes["main"][("with", "without").index(key)]
    rows = drawn != MASKED
    assert rows.any(1).nonzero()[0].tolist() == ([8] if key == "with" else list(range(9)))
    np.testing.assert_allclose(drawn[8, :9] / TOP, answer.without[3, 8], atol=1e-4)
    value = cell({"show": "weights", "head": "3", "map": key, "row": "8", "col": "2"})
    assert float(str(value["value"])) == pytest.approx(float(answer.without[3, 8, 2]), abs=1e-6)


@pytest.mark.parametrize("language", LANGUAGES)
def test_one_token_is_told_in_the_singular_and_has_nothing_to_choose(language, app):
    alone = {"text": "a", "source": "b", "context": "1", "lengths": "1"}
    header, _ = unpack(frame({**alone, "lang": language, "parts": "align,layouts,paged,cross"}))
    words = str(header["parts"]) + str([figure["layout"]["meta"] for figure in header["figures"].values()])
    assert not re.search(r"\b1 \w*(tokens|keys)\b", words)
    assert say(language, "count.token_one", count=1) in header["parts"]["main"]["caption"]
    go(app, alone, language)
    assert not app.warning and not {"kv_cache.step", "kv_cache.prompt"} & keys(app)
    assert say(language, "kv_cache.only") in said(app)
    go(app, {"text": " "}, language)
    assert say(language, "kv_cache.nothing") in said(app)
    go(app, {"show": "weights", "heads": "1"}, language)
    assert "kv_cache.step" in keys(app) and "kv_cache.head" not in keys(app)
    go(app, {"show": "weights", "text": "a"}, language)
    assert "kv_cache.head" in keys(app)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("given", [{"step": "0"}, {"show": "weights", "step": "0"}], ids=str)
def test_outputs_that_are_the_same_bit_for_bit_are_called_so(given, language):
    answer = decode(settle(given).view.scene)[0]
    assert answer.output_error == answer.weight_error == 0
    words = unpack(frame({**given, "lang": language}))[0]["parts"]["main"]["caption"]
    same = "kv_cache.weights.same" if "show" in given else "kv_cache.caption.same"
    assert say(language, same) in words and "e+" not in words
    words = unpack(frame({**given, "lang": language, "step": "1"}))[0]["parts"]["main"]["caption"]
    assert say(language, same) not in words


GOLDEN = {
    "llama-2-70b": ("320 KiB", "1.25 GiB", {}),
    "llama-3-1-70b": ("320 KiB", "40 GiB", {}),
    "llama-2-7b": ("512 KiB", "2 GiB", {}),
    "deepseek-v3-1": ("68.6 KiB", "10.7 GiB", {}),
    "falcon-7b": ("8 KiB", "16 MiB", {}),
    "gpt-oss-20b": ("48 KiB", "6.09 GiB", {"context": "8192", "batch": "32"}),
    "gemma-3-27b": ("496 KiB", "10.4 GiB", {}),
    "qwen3-0-6b": ("112 KiB", "4.38 GiB", {}),
}


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("model", GOLDEN)
def test_golden_sizes_are_on_the_page(model, language, app):
    token, size, settings = GOLDEN[model]
    go(app, {"model": model, **settings}, language)
    values = [metric.value for metric in app.metric]
    assert values[:2] == [token, size]
    assert size in plots(app)["kv_cache.sizes"]["layout"]["meta"]["caption"]
    assert PRESETS[model].source in said(app)


@pytest.mark.parametrize(("windows", "size", "word"), [("1", "6.09 GiB", "windows"), ("0", "12 GiB", "ignored")])
def test_with_windows_and_without_are_labelled(windows, size, word, app):
    go(app, {"model": "gpt-oss-20b", "context": "8192", "batch": "32", "windows": windows})
    assert app.metric[1].value == size
    names = [trace["name"] for trace in plots(app)["kv_cache.sizes"]["data"]]
    assert names[0] == f"gpt-oss-20b · {say('en', f'kv_cache.curve.{word}')}"
    other = {"windows": "ignored", "ignored": "windows"}[word]
    assert names[1] == f"gpt-oss-20b · {say('en', f'kv_cache.curve.{other}')}"
    assert say("en", f"published.{word}", layers=12, window=128) in said(app)
    assert "kv_cache.windows" in widgets(app)
    go(app, {})
    assert "kv_cache.windows" not in widgets(app)  # a model without windows has none to ignore


def test_curves_are_told_apart_and_the_context_runs_through_no_words():
    for model in ("gpt-oss-20b", "deepseek-v3-1", "llama-2-7b"):
        figure = unpack(frame({"model": model}))[0]["figures"]["sizes"]
        looks = [(one["line"]["color"], one["line"]["dash"]) for one in figure["data"] if one["mode"] == "lines"]
        assert len({dash for _, dash in looks}) == len(looks) >= 4 and looks[0][1] == "solid"
        # Two ways to count one model's windows are one model.
        assert [colour for colour, _ in looks].count("theme-0") == (2 if model == "gpt-oss-20b" else 1)
        dots = [one["marker"]["color"] for one in figure["data"] if one["mode"] == "markers"]
        assert dots == [colour for colour, _ in looks]
        legend = figure["layout"]["legend"]
        assert legend["y"] >= 1 and legend["yanchor"] == "bottom"  # above the plot


@pytest.mark.parametrize("given", [{}, {"gpus": "16"}, {"model": "llama-3-1-70b", "weight_bits": "8"}], ids=str)
def test_memory_has_room_for_its_ticks_and_a_bar_that_is_cut_says_its_length(given):
    layout = unpack(frame(given))[0]["figures"]["fits"]["layout"]
    end, ticks = layout["xaxis"]["range"][1], layout["xaxis"]["tickvals"]
    # A phone leaves the axis some 110 pixels, a tick takes half of these.
    assert 2 <= len(ticks) <= 3 and ticks[1] - ticks[0] >= end / 2
    found = sorted(fits(settle(given).view), key=lambda fit: fit.memory)
    cut = [one for one in layout["annotations"] if one["text"].endswith("→")]
    # At the line of what is needed there is no room for a size.
    is_free = layout["shapes"][0]["x0"] < 0.4 * end
    assert [(one["y"], one["text"]) for one in cut] == [
        (fit.hardware.short, f"{units.decimal_bytes(fit.memory)} →" if is_free else "→")
        for fit in found if fit.memory > end
    ]  # fmt: skip
    assert is_free is ("model" not in given)
    assert len(cut) == 1 and found[-2].memory > 0.8 * end


@pytest.mark.parametrize("steps", [1, 2, 9])
def test_a_few_steps_are_named_once_each(steps):
    layout = series_chart([Series("", range(steps), range(steps))], x_title="", text=str)["layout"]
    assert layout["xaxis"].get("tickvals") == (list(range(steps)) if steps < 9 else None)


def test_a_bar_is_whole_where_it_alone_holds_what_is_needed():
    given = {"model": "llama-3-1-70b", "context": "1048576"}
    needs = next(fit for fit in fits(settle(given).view) if fit.fits)
    assert needs.hardware.short == "Apple M3 Ultra"
    layout = unpack(frame(given))[0]["figures"]["fits"]["layout"]
    assert layout["xaxis"]["range"][1] > needs.memory and not any("→" in one["text"] for one in layout["annotations"])


def test_models_of_every_kind_open_by_link_with_their_source(app):
    # Every sixth, and the kinds that are rare: a linear layer, a latent, one KV head.
    for key in (*list(MODELS)[::6], "qwen3-next-80b-a3b", "deepseek-v2-236b", "falcon-7b"):
        go(app, {"model": key})
        assert not app.warning and link(app) == ({} if key == "llama-3-1-8b" else {"model": key})
        assert MODELS[key].source in said(app)


@pytest.mark.parametrize("language", LANGUAGES)
def test_weights_published_in_fewer_bits_are_told_beside_their_bytes(language, app):
    for model in ("gpt-oss-120b", "deepseek-v3-1", "llama-3-8b"):
        words, published = plain(said(go(app, {"model": model}, language))), PRESETS[model].published
        assert (published is not None and published.text.say(language) in words) == (model != "llama-3-8b")
        assert published is None or f"({published.source})" in words


def test_a_model_sets_the_context_by_one_click():
    app = visit(page="kv_cache", context="512", seed="3")
    app.selectbox(key="kv_cache.model").set_value("llama-2-70b")
    check(app.run())
    assert link(app) == {"model": "llama-2-70b", "seed": "3"}
    assert app.metric[1].value == "1.25 GiB"


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_table_says_what_fits(language):
    app = visit(language, page="kv_cache", model="llama-2-70b", gpus="2")
    app.session_state["kv_cache.fit"] = True  # its section is open
    check(app.run())
    (text,) = [entry.value for entry in app.markdown if entry.value.startswith("| GPU")]
    rows = [[part.strip() for part in line.strip("| ").split("|")] for line in text.splitlines()[2:]]
    found = {fit.hardware.source: fit for fit in fits(settle({"model": "llama-2-70b", "gpus": "2"}).view)}
    assert len(rows) == len(HARDWARE)
    for row in rows:
        fit = found[re.findall(r"\((https[^)]*)\)", row[0])[0]]
        if fit.hardware.key.startswith(("a100", "apple")):
            continue  # several of one data sheet
        most = ["–" if size is None else f"{size:,}" for size in (fit.context, fit.batch)]
        size = units.both_bytes(fit.memory)
        where = fit.hardware.reported
        assert row[1] == (say(language, "kv_cache.fit.sheet", size=size) if where is None else f"[{size}]({where[1]})")
        assert row[2:] == [say(language, f"kv_cache.fit.holds_{'yes' if fit.fits else 'no'}"), *most]


@pytest.mark.parametrize("model", ["llama-3-1-405b", "falcon-180b", "deepseek-v3-1"])
def test_sizes_beyond_64_bits_are_drawn(model):
    most = {"context": "16777216", "batch": "65536", "cache_dtype": "float32", "model": model}
    assert frame({"lang": "en", **most})


HOSTILE = {
    "step=-1": "step must be a whole number from 0",
    "step=x": "step must be a whole number",
    "heads=17": "heads must be a whole number from 1 to 16, got '17'.",
    "d_k=1000": "d_k must be a whole number from 2 to 64",
    "variant=linear": "variant must be one of mha, gqa, mqa, mla",
    "model=all-minilm-l6-v2": "model must be one of",
    "model=<script>": "got '<script>'.",
    "context=0": "context must be a whole number from 1",
    "batch=99999999": "batch must be a whole number from 1 to 65,536",
    "cache_dtype=int3": "cache_dtype must be one of float32",
    "lengths=1,2,x": "lengths must be whole numbers",
    "windows=yes": "windows must be 0 or 1, got 'yes'.",
    "text=" + "y" * 2001: "text must be text of at most 2,000 characters",
    "length=4": "'length' is not a setting of this page.",
}


@pytest.mark.parametrize("given", HOSTILE)
def test_a_bad_value_is_named_and_the_page_stays(given, app):
    name, value = given.split("=")
    go(app, {name: value})
    (warning,) = app.warning
    assert HOSTILE[given] in plain(warning.value) and not re.search(r"(?<!\\)[<$\[*]", warning.value)
    assert link(app) == {} and {"kv_cache.main", "kv_cache.sizes", "kv_cache.fits"} <= keys(app)
    with pytest.raises(Refusal, match=re.escape(HOSTILE[given][:12])):
        frame({name: value})


@pytest.mark.parametrize(
    "place", [{"map": "x"}, {"row": "12"}, {"col": "16"}, {"col": "-1"}, {"row": ""}, {"part": "fits"}]
)
def test_a_cell_outside_is_refused(place):
    with pytest.raises(Refusal, match=next(iter(place))):
        cell({"map": "with", "row": "0", "col": "0", **place})


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_cell_says_what_it_is(language):
    kinds = {(8, 0): "now", (8, 5): "now", (3, 1): "cached", (3, 0): "idle", (3, 5): "idle"}
    for (row, col), kind in kinds.items():
        answer = cell({"map": "with", "row": str(row), "col": str(col), "lang": language})
        assert answer["value"] == say(language, f"kv_cache.kind.{kind}")
    assert cell({"map": "without", "row": "3", "col": "5", "lang": language})["value"] == say(
        language, "kv_cache.kind.again"
    )
    assert cell({"map": "with", "row": "0", "col": "9"})["state"] == 1


def test_the_largest_view_is_a_small_answer():
    answer = frame({"heads": "16", "d_k": "64", "variant": "mla", "text": "a b c d " * 9, "show": "vectors"})
    assert len(answer) < 120_000
