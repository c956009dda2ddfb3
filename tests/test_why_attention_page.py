"""The page on what attention replaced: views by link, the live route, a training and a measurement by button."""

import re

import numpy as np
import pytest

from attnviz import units
from attnviz.recurrence import MODELS, Recall, Timing, chain, gradients, measure
from attnviz.recurrence.recall import KINDS
from attnviz.recurrence.snippet import gradient_snippet
from attnviz.text import LANGUAGES, Refusal
from attnviz.why_view import settle
from pages.ui import training, why_attention_picture, why_attention_training
from pages.ui.heatmap.frame import unpack
from pages.ui.translate import say
from pages.ui.why_attention_picture import LEAST, frame, shares
from tests.pages import check, link, numbers, plain, plots, said, visit


def view(**settings: str):
    return settle(settings).view


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("settings", [{}, {"length": "12", "gain": "2.5", "layers": "2", "width": "8", "seed": "3"}])
def test_the_page_and_the_live_route_draw_the_same(settings, language):
    app = visit(language, page="why_attention", **settings)
    assert not app.warning and link(app) == settings
    drawn = {key.removeprefix("why_attention."): figure for key, figure in plots(app).items()}
    assert drawn == unpack(frame({"lang": language, **settings}))[0]["figures"]
    assert set(drawn) == {"gradient", "chain"}
    for figure in drawn.values():
        meta = figure["layout"]["meta"]
        assert meta["alt"] and meta["caption"] and "{" not in meta["alt"] + meta["caption"]


def test_the_curves_are_the_measurements():
    one = view(length="30", layers="3")
    figures = unpack(frame({"length": "30", "layers": "3"}))[0]["figures"]
    found = gradients(one.sizes, 30)
    for trace, key in zip(figures["gradient"]["data"], MODELS, strict=False):
        got = np.array([np.nan if y is None else y for y in numbers(trace["y"])], float)
        want = np.where(found[key] > 0, found[key] / found[key].max(), np.nan)
        np.testing.assert_allclose(got, want, rtol=1e-12)
    lengths = numbers(figures["chain"]["data"][0]["x"])
    assert 30 in lengths
    measured, predicted = figures["chain"]["data"][:4], figures["chain"]["data"][4:]
    for trace, line, key in zip(measured, predicted, MODELS, strict=True):
        assert numbers(trace["y"]) == [chain(one.sizes, int(length))[key] for length in lengths]
        steps = {"conv": [3] * len(lengths), "attention": [1] * len(lengths)}.get(key, lengths)
        assert numbers(line["y"]) == steps and line["line"]["dash"] == "dash"
    assert np.isnan(shares(one)["conv"][one.sizes.reach + 1 :]).all()
    words = figures["gradient"]["layout"]["meta"]["caption"]
    assert "At distance 29" in words and "convolutions exactly 0" in words
    assert 0 < LEAST < 1e-6


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"length": "1"}, "length must be a whole number from 2 to 256, got '1'."),
        ({"gain": "-1"}, "gain must be a number from 0 to 8, got '-1'."),
        ({"layers": "<b>"}, "layers must be a whole number from 1 to 64"),
        ({"heads": "4"}, "'heads' is not a setting of this page."),
    ],
)
def test_a_bad_value_is_named_and_the_page_stays(given, words):
    app = visit(page="why_attention", **given)
    (warning,) = app.warning
    assert words in plain(warning.value)
    assert link(app) == {} and "why_attention.gradient" in plots(app)
    with pytest.raises(Refusal, match=re.escape(words[:20])):
        frame(given)


def test_a_width_that_heads_cannot_share_follows():
    app = visit(page="why_attention", width="30")
    assert "width was 30, which four heads cannot share; using 28." in plain(app.warning[0].value)


@pytest.mark.parametrize(
    "settings",
    [{"length": "2"}, {"gain": "0"}, {"gain": "8", "length": "256"}, {"layers": "64", "width": "4"}, {"width": "128"}],
)
def test_the_ends_of_every_slider(settings):
    assert "nan" not in re.sub(r"[a-z]+nan|nan[a-z]+", "", said(visit(page="why_attention", **settings)).lower())


@pytest.mark.parametrize("language", LANGUAGES)
def test_what_an_operation_is_and_how_unlike_the_readers_are_is_said(language):
    app = visit(language, page="why_attention", recall="48")
    caption = plots(app)["why_attention.chain"]["layout"]["meta"]["caption"]
    assert {"en": "nodes of autograd's graph", "zh": "自动微分图的节点"}[language] in caption
    race = Recall(48, 0)
    counted = [sum(weight.numel() for weight in race._readers[kind].parameters()) for kind in KINDS]
    rnn, lstm, attention = map(units.count, counted)
    assert counted[2] == 16 * 32 + 3 * 32**2 + 17 * 16 + 16 * 16 + 48 * 32  # tokens, projections, answer, positions
    fields = {"length": 48, "classes": 16, "width": 32, "rnn": rnn, "lstm": lstm, "attention": attention}
    assert say(language, "why_attention.recall.lead", **fields, places="1,536") in said(app)
    assert not app.code and say(language, "why_attention.snippet.title") in [entry.label for entry in app.expander]


def test_the_code_is_that_of_the_view():
    app = visit(page="why_attention", length="12", gain="2.5", layers="2", width="8", seed="3")
    app.session_state["why_attention.snippet.once"] = True
    (code,) = check(app.run()).code
    one = view(length="12", gain="2.5", layers="2", width="8", seed="3")
    assert code.value == gradient_snippet(one.sizes, one.length).rstrip()
    assert "length, width, layers, gain, seed = 12, 8, 2, 2.5, 3" in code.value


def test_a_training_is_drawn_as_it_runs_and_says_what_it_shows(monkeypatch):
    monkeypatch.setattr(training, "STEPS", 4)
    monkeypatch.setattr(why_attention_training, "LAST", 2)
    app = visit(page="why_attention", recall="3")
    app.button(key="why_attention.start").click()
    check(app.run())
    for _ in range(20):
        if app.session_state["why_attention.race"].race.steps >= 4:
            break
        check(app.run())
    race = app.session_state["why_attention.race"].race
    drawn = plots(app)["why_attention.recalled"]
    for trace, kind in zip(drawn["data"], KINDS, strict=True):
        assert numbers(trace["x"]) == [2, 4]
        right = [step.right for step in race.shown[kind]]
        assert numbers(trace["y"]) == [np.mean(right[:2]), np.mean(right[2:])]
    assert "after 4: RNN" in drawn["layout"]["meta"]["caption"]
    # Another length is another training.
    app.query_params["recall"] = ["5"]
    assert "why_attention.recalled" not in plots(check(app.run()))


def test_times_are_drawn_as_they_are(monkeypatch):
    monkeypatch.setattr(measure, "LENGTHS", (4, 8))
    monkeypatch.setattr(why_attention_picture, "LENGTHS", (4, 8))
    app = visit(page="why_attention", width="8")
    app.button(key="why_attention.measure").click()
    check(app.run())
    found = app.session_state["why_attention.timing"][1]
    drawn = plots(app)["why_attention.time"]
    assert [numbers(trace["y"]) for trace in drawn["data"]] == [list(found.seconds[key]) for key in MODELS]
    made = Timing(dict.fromkeys(MODELS, (0.001, 0.002)), 3)
    assert "At 8 tokens: RNN 2 ms" in why_attention_picture.timed(made, "en").caption
    app.query_params["width"] = ["16"]
    assert "why_attention.time" not in plots(check(app.run()))


def test_numbers_have_two_digits_and_lists_the_commas_of_their_language():
    called = {"en": "LSTM", "zh": "卷积"}
    words = {one: {"none": say(one, "why_attention.gradient.none", name=called[one])} for one in called}
    for share, text in ((1.04e-14, "LSTM 1.0e−14"), (1.7e-23, "LSTM 1.7e−23"), (0.0127, "LSTM 0.013")):
        assert why_attention_picture._said("LSTM", share, words["en"]) == text
    assert why_attention_picture._said("卷积", np.nan, words["zh"]) == "卷积恰好为 0"
    for figure in unpack(frame({"lang": "zh", "gain": "3"}))[0]["figures"].values():
        caption = figure["layout"]["meta"]["caption"]
        assert ", " not in caption and "、LSTM " in caption


def test_a_mark_s_words_stand_above_the_dots_and_a_line_that_leaves_is_named():
    figures = {gain: unpack(frame({"gain": gain, "layers": "20"}))[0]["figures"]["gradient"] for gain in ("1", "3")}
    for gain, figure in figures.items():
        (note,) = figure["layout"]["annotations"]
        high = figure["layout"]["yaxis"]["range"][1]
        # Words hang from the top by about 20 of some 240 pixels; the highest dot is at 1.
        assert note["y"] == 1 and high - (high - np.log10(LEAST)) * 25 / 240 > 0.1
        dashed = max(number for trace in figure["data"] if trace["mode"] == "lines" for number in numbers(trace["y"]))
        leaves = "its weights alone the RNN's would grow 1.73× a step: the dashed line leaves the chart"
        assert (leaves in figure["layout"]["meta"]["caption"]) == (dashed > 10**high) == (gain == "3")
