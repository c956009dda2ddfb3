"""The attention picture: what a frame, a region and a cell give, and what they refuse."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from attnviz import guard, pictures, units
from attnviz.masks import MASKS
from attnviz.stage_list import STAGES, present
from attnviz.text import LANGUAGES, Refusal
from attnviz.view import settle
from attnviz.view_run import make_call
from pages.ui import attention_picture
from pages.ui.attention_picture import MAIN, STRIP, cell, frame
from pages.ui.heatmap.frame import MASKED, MOST_BYTES, NAN, NO_KEY, TOP, pack, unpack
from pages.ui.translate import say
from tests.reference import Whole, cut, pooled, wholes

PLAIN = present(())


def drawn(**settings: str):
    """Give header and codes of a frame."""
    return unpack(frame(settings))


def main_map(header: dict, index: int = 0) -> dict:
    return header["parts"][MAIN]["maps"][index]


def values(header: dict, codes: np.ndarray, index: int = 0) -> np.ndarray:
    """Give what the codes of a map stand for; NaN for masked cells."""
    described = main_map(header, index)
    read = described["low"] + codes.astype(np.float64) / TOP * (described["high"] - described["low"])
    return np.where(codes <= TOP, read, math.nan)


def test_a_frame_holds_what_the_loops_give():
    settings = {"length": "9", "heads": "4", "kv_heads": "2", "d_k": "8", "seed": "3", "dtype": "float32"}
    want = wholes(make_call(settle(settings).view))
    for stage in PLAIN:
        header, codes = drawn(**settings, stage=stage)
        for index in range(4):
            described, part = main_map(header, index), want[stage]
            got = values(header, codes[MAIN][index], index)
            step = (described["high"] - described["low"]) / TOP
            counts = part.counts[index]
            np.testing.assert_allclose(got[counts], part.values[index][counts], rtol=0, atol=step + 1e-5)
            assert (codes[MAIN][index][~counts] == MASKED).all()


def test_the_strip_holds_every_stage_of_one_head():
    settings = {"length": "7", "heads": "3", "d_k": "8", "cell": "2,1"}
    want = wholes(make_call(settle(settings).view))
    header, codes = drawn(**settings)
    maps = header["parts"][STRIP]["maps"]
    assert [described["key"] for described in maps] == list(PLAIN)
    for described, code, stage in zip(maps, codes[STRIP], PLAIN, strict=True):
        part = cut(want[stage], (2,), (0, None), (0, None))
        counts = part.counts[0]
        read = described["low"] + code.astype(float) / TOP * (described["high"] - described["low"])
        step = (described["high"] - described["low"]) / TOP
        np.testing.assert_allclose(read[counts], part.values[0][counts], rtol=0, atol=step + 1e-5)


@pytest.mark.parametrize("settings", [{}, {"head": "2", "heads": "8"}, {"head": "mean", "stage": "scaled"}])
def test_the_settings_come_back_as_they_were_given(settings):
    given = {"length": "5", "text": "a <b> c", **settings}
    header, _ = drawn(**given, lang="zh")
    assert header["params"] == given
    assert header["figure"] == "attention"


@pytest.mark.parametrize("language", LANGUAGES)
def test_words_are_in_the_language_that_was_asked_for(language):
    header, _ = drawn(length="5", lang=language)
    part = header["parts"][MAIN]
    chinese = any("\u4e00" <= letter <= "\u9fff" for letter in part["alt"] + main_map(header)["row_axis"]["label"])
    assert chinese == (language == "zh")
    assert "{" not in part["caption"] + part["alt"]


def test_another_language_than_ours_is_english():
    french, english = (main_map(drawn(length="5", lang=language)[0]) for language in ("fr", "en"))
    assert french == english


@pytest.mark.parametrize("stage", PLAIN)
def test_the_alternative_gives_the_size_of_what_is_drawn_and_where_the_largest_stands(stage):
    settings = {"length": "5", "attention": "cross", "key_length": "9", "heads": "2", "d_k": "7", "stage": stage}
    part = wholes(make_call(settle(settings).view))[stage]
    shown = np.where(part.counts, part.values, -np.inf)
    head, row, col = np.unravel_index(int(shown.argmax()), shown.shape)
    alt = drawn(**settings)[0]["parts"][MAIN]["alt"]
    rows, cols = part.values.shape[1:]
    names = {"query": "query", "key": "key", "feature": "dimension"}
    assert f"{rows} × {cols}" in alt
    assert f"{names[STAGES[stage].rows]} {row}, {names[STAGES[stage].cols]} {col} (map {head})" in alt
    assert units.number(float(shown.max()), 4) in alt


@pytest.fixture
def blank(monkeypatch):
    """Leave the arithmetic out: pictures of the right size and nothing in them; sizes are the matter here."""

    def draw(call, asked, ran=None):
        found = []
        for request in asked:
            stage = STAGES[request.stage]
            sizes = {"query": call.q_len, "key": call.kv_len, "feature": call.query.shape[3]}
            spans = (0, sizes[stage.rows]), (0, sizes[stage.cols])
            pool = tuple(-(-stop // request.max_side) for _, stop in spans)
            shape = (1 if request.average else len(request.heads),)
            shape += tuple(-(-stop // part) for (_, stop), part in zip(spans, pool, strict=True))
            found.append(
                pictures.Picture(replace(request, rows=spans[0], cols=spans[1]), np.ones(shape, np.float32), None, pool)
            )
        return pictures.Drawn(tuple(found), 0.0, 1)

    monkeypatch.setattr(pictures, "draw", draw)
    monkeypatch.setattr(guard, "check", guard.predict)


@pytest.mark.parametrize("stage", ["weights", "query"])
@pytest.mark.parametrize("length", ["1", "100", "1025", "4096"])
@pytest.mark.parametrize("heads", ["1", "2", "3", "8", "17", "64"])
def test_a_frame_stays_within_one_message(length, heads, stage, blank):
    given = {"length": length, "heads": heads, "kv_heads": "1", "d_k": "8", "stage": stage}
    bytes_ = frame(given)
    assert len(bytes_) <= MOST_BYTES
    header, codes = unpack(bytes_)
    assert len(codes[MAIN]) == int(heads)
    # Nor is room left unused: a map of many tokens has as many cells as fit, within one step of the pooling.
    described = main_map(header)
    step = described["pool"][0]
    if stage == "weights" and step > 1:
        finer = -(-int(length) // (step - 1))
        assert finer > 1024 or 2 * int(heads) * finer**2 > 0.9 * MOST_BYTES


LONG_WORDS = " ".join(f"{'word' * 4}{index}" for index in range(100))


@pytest.mark.parametrize("length", ["4096", "29000"])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"text": LONG_WORDS},
        {"text": "w" * 2000},
        {"text": "猫" * 2000, "lang": "zh"},
        {"text": "\t" * 2000},
        {"text": "\x01 " * 1000, "context": '"' * 2000, "attention": "cross", "key_length": "4096"},
        {"text": LONG_WORDS, "attention": "cross", "context": "字" * 2000, "key_length": "4096"},
        {"input": "normal"},
    ],
)
def test_names_of_tokens_leave_room_in_a_message(settings, length, blank):
    given = {"length": length, "heads": "1", "d_k": "1"} | settings
    assert len(frame(given)) <= MOST_BYTES
    # The page sends the large picture without the strip, but with its words, and the settings twice.
    grid = attention_picture.grids(settle(given | {"lang": "en"}).view, "en")[MAIN]
    config = {"words": "x" * 6000, "params": given}
    assert len(pack("attention", given, {MAIN: grid}, config)) <= MOST_BYTES
    if length == "4096" and not settings:
        assert grid.maps[0].values.shape == (1024, 1024)
        assert grid.maps[0].row_axis.tokens is not None


def test_names_that_are_no_names_any_more_are_left_out(blank):
    given = {"length": "2100", "heads": "1", "d_k": "1"}
    assert main_map(drawn(**given, text="w" * 2000)[0])["row_axis"]["tokens"] is None
    assert main_map(drawn(**given, text="w" * 20)[0])["row_axis"]["tokens"] == ["w" * 20] * 2100


@pytest.mark.parametrize("reduce", ["max", "mean"])
def test_a_region_is_sharper_than_the_whole_and_as_true(reduce):
    settings = {"length": "1100", "heads": "1", "d_k": "4", "reduce": reduce}
    whole, _ = drawn(**settings)
    assert main_map(whole)["pool"] == [2, 2]
    header, codes = drawn(**settings, part=MAIN, map="0", rows="500-520", cols="490-515")
    described = main_map(header)
    assert described["pool"] == [1, 1] and (described["rows"], described["cols"]) == (20, 25)
    assert (described["row_axis"]["start"], described["col_axis"]["start"]) == (500, 490)
    assert list(header["parts"]) == [MAIN]
    call = make_call(settle(settings).view)
    scores = (call.query[0, 0, 500:520] @ call.key[0, 0].T * call.factor).double().numpy()
    may = np.arange(1100) <= np.arange(500, 520)[:, None]
    weights = np.where(may, np.exp(scores), 0)
    weights /= weights.sum(1, keepdims=True)
    got = values(header, codes[MAIN][0])
    seen = may[:, 490:515]
    np.testing.assert_allclose(got[seen], weights[:, 490:515][seen], rtol=0, atol=1e-5)
    assert (codes[MAIN][0][~seen] == MASKED).all()


def test_a_region_of_a_projection_runs_over_its_own_axes():
    header, codes = drawn(length="6", d_k="20", heads="2", stage="query", rows="2-4", cols="15-20")
    assert codes[MAIN][1].shape == (2, 5)
    assert main_map(header)["col_axis"] == {
        "dim": "feature", "label": "dimension", "start": 15, "length": 5, "tokens": None,
    }  # fmt: skip


@pytest.mark.parametrize("head", ["all", "1", "mean"])
@pytest.mark.parametrize("stage", ["scores", "masked", "weights", "output"])
def test_a_cell_is_exact(stage, head):
    settings = {"length": "6", "heads": "4", "kv_heads": "2", "d_k": "8", "stage": stage, "head": head}
    part = wholes(make_call(settle(settings).view))[stage]
    keys = ("mean",) if head == "mean" else ("0", "3") if head == "all" else ("1",)
    for key in keys:
        for row, col in ((5, 0), (2, 2), (0, 5)):
            answer = cell(settings | {"part": MAIN, "map": key, "row": str(row), "col": str(col)})
            assert (answer["row"], answer["col"]) == (row, col)
            mine = part.values[:, row, col].mean() if key == "mean" else part.values[int(key), row, col]
            counts = part.counts[0, row, col]
            assert answer["state"] == (0 if counts else 1)
            if counts:
                assert float(str(answer["value"])) == pytest.approx(mine, abs=1e-6)
            else:
                assert answer["value"] == ""


def test_a_cell_of_the_strip():
    settings = {"length": "6", "heads": "4", "d_k": "8", "cell": "3,2"}
    want = wholes(make_call(settle(settings).view))
    for stage in PLAIN:
        answer = cell(settings | {"part": STRIP, "map": stage, "row": "4", "col": "1"})
        assert float(str(answer["value"])) == pytest.approx(want[stage].values[3, 4, 1], abs=1e-6)


def test_a_cell_reads_as_a_plain_number():
    answer = cell({"length": "60", "scale": "custom", "scale_value": "3", "map": "0", "row": "50", "col": "3"})
    assert "e" not in str(answer["value"]) and json.dumps(answer)


def test_a_row_without_a_key_and_a_row_out_of_range_have_marks_of_their_own():
    _, codes = drawn(length="6", mask="padding", lengths="0")
    assert (codes[MAIN][0] == NO_KEY).all()
    _, codes = drawn(length="6", d_k="64", dtype="float16", scale="custom", scale_value="50000", mask="full")
    assert (codes[MAIN][0] == NAN).any()


HOSTILE = {
    "d_k=hello": {"d_k": "hello"},
    "d_k too large": {"d_k": "2500"},
    "no such setting": {"__class__": "1"},
    "mask": {"mask": "../../etc/passwd"},
    "mask setting": {"mask": "sliding_window", "window": "0"},
    "tree": {"mask": "tree", "parents": "5"},
    "cell": {"cell": "1,2,3,4"},
    "a huge number": {"length": "9" * 400},
    "markup": {"stage": "<script>alert(1)</script>"},
    "formatting": {"heads": "{0.__class__}"},
    "text": {"text": "x" * 5000},
    "not a number": {"scale_value": "nan"},
    "empty": {"seed": ""},
    "too large a view": {"length": "131072", "heads": "64"},
}
SENTENCES = {
    "rows": {"rows": "5-2", "cols": "0-3"},
    "rows outside": {"rows": "0-900"},
    "rows of text": {"rows": "a-b"},
    "rows negative": {"rows": "-1-3"},
    "one row": {"rows": "3"},
    "nothing in it": {"rows": "3-3"},
    "cols": {"cols": "0-1-2"},
    "other digits": {"cols": "٠-٣"},
    "many digits": {"cols": "0-" + "9" * 500},
    "part": {"rows": "0-2", "part": "stages"},
    "no such part": {"rows": "0-2", "part": "x" * 500},
}
CELLS = {
    "no map": {"row": "1", "col": "1"},
    "no such map": {"map": "77", "row": "1", "col": "1"},
    "no row": {"map": "0", "col": "1"},
    "row outside": {"map": "0", "row": "11", "col": "1"},
    "negative": {"map": "0", "row": "-1", "col": "1"},
    "other digits": {"map": "0", "row": "²", "col": "1"},
    "half": {"map": "0", "row": "1", "col": "1.5"},
    "no such part": {"part": "<b>", "map": "0", "row": "1", "col": "1"},
    "stage of the strip": {"part": "stages", "map": "0", "row": "1", "col": "1"},
    "strip": {"part": "stages", "map": "query", "row": "1", "col": "64"},
}


def sentence(call) -> None:
    """Hold a refusal to one sentence in each language that does not flood the page."""
    with pytest.raises(Refusal) as refused:
        call()
    for language in LANGUAGES:
        said = refused.value.text.say(language)
        assert 5 < len(said) < 450 and "\n" not in said and "Traceback" not in said
        assert said.rstrip()[-1] in ".。"


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_settings_are_refused_by_frame_and_cell(name):
    sentence(lambda: frame(HOSTILE[name]))
    sentence(lambda: frame(HOSTILE[name] | {"rows": "0-1", "cols": "0-1"}))
    sentence(lambda: cell(HOSTILE[name] | {"map": "0", "row": "0", "col": "0"}))


@pytest.mark.parametrize("name", SENTENCES)
def test_a_hostile_region_is_refused(name):
    sentence(lambda: frame({"length": "11"} | SENTENCES[name]))


@pytest.mark.parametrize("name", CELLS)
def test_a_hostile_cell_is_refused(name):
    sentence(lambda: cell({"length": "11"} | CELLS[name]))


@pytest.mark.parametrize("own_range", ["0", "1"])
def test_heads_share_a_range_or_have_their_own(own_range):
    header, _ = drawn(length="8", heads="4", mask="full", own_range=own_range)
    highs = {described["high"] for described in header["parts"][MAIN]["maps"]}
    assert len(highs) == (4 if own_range == "1" else 1)
    assert {described["low"] for described in header["parts"][MAIN]["maps"]} == {0.0}


@pytest.mark.parametrize("stage", PLAIN)
def test_colours_follow_the_sign(stage):
    described = main_map(drawn(length="8", stage=stage, log="1")[0])
    if stage == "weights":
        assert described["palette"] == "sequential" and described["log"] and described["low"] > 0
    else:
        assert described["palette"] == "diverging" and not described["log"]
        assert described["low"] == -described["high"]


def test_heads_that_share_keys_say_which():
    titles = [described["title"] for described in drawn(heads="6", kv_heads="2")[0]["parts"][MAIN]["maps"]]
    assert titles == [f"head {head} · KV {head // 3}" for head in range(6)]
    assert main_map(drawn(heads="2")[0])["title"] == "head 0"


@pytest.mark.parametrize("mask", MASKS)
def test_the_average_of_every_mask_is_one_map(mask):
    header, codes = drawn(mask=mask, head="mean", length="33", reduce="mean", stage="masked")
    assert [described["key"] for described in header["parts"][MAIN]["maps"]] == ["mean"]
    assert codes[MAIN][0].shape == (33, 33)
    view = settle({"mask": mask, "length": "33"}).view
    part = wholes(make_call(view))["masked"]
    counted = part.counts.sum(0)
    mean = np.where(part.counts, part.values, 0).sum(0) / np.maximum(counted, 1)
    want, state = pooled(Whole(mean[None], (counted > 0)[None], part.has_key.any(0)[None]), (1, 1), "mean")
    got = values(header, codes[MAIN][0])
    described = main_map(header)
    atol = (described["high"] - described["low"]) / TOP + 1e-5
    np.testing.assert_allclose(got[state[0] == 0], want[0][state[0] == 0], rtol=0, atol=atol)


def test_the_time_and_the_numbers_stand_under_the_picture():
    caption = drawn(length="12", heads="8", kv_heads="2", d_k="16", dtype="bfloat16")[0]["parts"][MAIN]["caption"]
    for part in ("GQA 8/2", "12 × 12", "d_k 16", "bfloat16", "cpu", "iB"):
        assert part in caption


@pytest.mark.parametrize("language", LANGUAGES)
def test_long_rows_point_to_the_logarithmic_scale(language):
    hint = say(language, "attention.try_log")
    captions = [
        unpack(frame({"length": length, "log": log, "heads": "1", "d_k": "2", "lang": language}))[0]["parts"][MAIN][
            "caption"
        ]
        for length, log in (("256", "0"), ("255", "0"), ("256", "1"))
    ]
    assert [hint in caption for caption in captions] == [True, False, False]
