"""The benchmark page: its settings, its bars by live route, sweeps, and links good and bad."""

import json
import re
import time

import pytest

from attnviz.benchmark import Failure, Latency, Measurement, Point, declared_peak, predict, table
from attnviz.benchmark.pairs import PAIRS
from attnviz.benchmark_view import KNOBS, SHORTEST, settle
from attnviz.text import LANGUAGES, Refusal
from pages.ui import benchmark_sweep
from pages.ui.benchmark_picture import frame
from pages.ui.heatmap.frame import unpack
from pages.ui.translate import say
from tests.pages import check, keys, link, plain, plots, said, visit

SMALL = {"pairs": "mha-eager,mha-sdpa", "heads": "2", "d_k": "8"}


def until(app, language, words):
    deadline = time.monotonic() + 120
    while say(language, words) not in [one.value for one in app.caption]:
        assert time.monotonic() < deadline
        time.sleep(0.1)
        check(app.run())
    return app


def test_lengths_of_a_sweep_are_doubled_up_to_the_longest():
    assert settle({"longest": "1024"}).view.lengths == (128, 256, 512, 1024)
    assert settle({"longest": "1000"}).view.lengths == (128, 256, 512, 1000)
    assert settle({"longest": str(SHORTEST)}).view.lengths == (SHORTEST,)
    swept = settle({"longest": "256", "dtypes": "float32,bfloat16", "mask": "causal", "mode": "forward+backward"}).view
    asked = [(one.dtype, one.q_len, one.mask, one.mode) for one in swept.sweep()]
    assert asked == [(dtype, n, "causal", "forward+backward") for dtype in ("float32", "bfloat16") for n in (128, 256)]


def test_requests_do_not_depend_on_the_language():
    assert settle({}).view.quick() == settle({}).view.quick()
    assert [one.label for one in settle(SMALL).view.quick().contestants] == ["MHA · eager", "MHA · sdpa"]


@pytest.mark.parametrize("language", LANGUAGES)
def test_bars_are_predicted_at_once_by_the_live_route(language):
    header, _ = unpack(frame({**SMALL, "length": "64", "lang": language}))
    for part in ("time", "memory"):
        figure = header["figures"][part]
        figure = figure if isinstance(figure, dict) else json.loads(figure)
        bar, mark = figure["data"]
        assert bar["y"] == ["MHA · eager", "MHA · sdpa"] and bar["x"] == [None, None]
        if part == "memory":
            assert len(mark["x"]) == 2 and all(mark["x"])


@pytest.mark.parametrize("language", LANGUAGES)
def test_bars_come_by_themselves(language):
    app = until(visit(language, page="benchmark", length="32", **SMALL), language, "measure.done")
    assert {"benchmark.time", "benchmark.memory"} <= plots(app).keys()
    assert say(language, "benchmark.ran") in plain(said(app))


def test_what_launching_takes_is_said_of_a_decode_step():
    app = until(visit("zh", page="benchmark", length="64", mode="decode", **SMALL), "zh", "measure.done")
    assert say("zh", "benchmark.launch") in plain(said(app))


def test_a_sweep_waits_for_its_button_and_says_what_it_found():
    app = visit(page="benchmark", show="sweep", longest="256", **SMALL)
    assert say("en", "measure.idle") in said(app)
    assert {"benchmark.sweep.time", "benchmark.sweep.memory"} <= plots(app).keys()
    app = until(app.button(key="benchmark.sweep.start").click().run(), "en", "measure.done")
    words = plain(said(app))
    assert re.search(r"At 256 tokens MHA · \w+ is fastest", words)


class File:
    """Stand for a file that was taken in."""

    def __init__(self, content):
        self.content = content

    def getvalue(self):
        return self.content


def taken(shape, times=(1e-3, 4e-3, 16e-3)):
    """Give the JSON of a sweep with these settings, as another machine would have measured it."""
    view = settle({**SMALL, "longest": "4096", **shape}).view
    asked = view.sweep()[-len(times) :]
    found = [
        Measurement(tuple(Point(one.label, Latency.of([time] * 4), 1.0, 2**20) for one in request.contestants))
        for request, time in zip(asked, times, strict=True)
    ]
    return table.to_json(table.frame(asked, found)).encode()


def with_files(*contents, **shape):
    app = visit(page="benchmark", show="sweep", longest="256", **{**SMALL, **shape})
    app.session_state["benchmark.files"] = [File(content) for content in contents]
    return check(app.run())


def test_results_of_another_machine_are_drawn_with_their_fitted_powers():
    app = with_files(taken({}))
    assert "is fastest" in plain(said(app)) and "L^2.00" in plain(said(app))
    for kind in ("time", "memory"):
        dotted = [one for one in plots(app)[f"benchmark.sweep.{kind}"]["data"] if one["line"].get("dash") == "dot"]
        # One for each curve, and one for the legend.
        assert len(dotted) == 3 and dotted[-1]["name"] == say("en", "benchmark.fitted")
    time = next(one for one in plots(app)["benchmark.sweep.time"]["data"] if one["line"].get("dash") == "dot")
    assert time["y"][-1] == pytest.approx(16e-3) and time["x"][0] == 128


@pytest.mark.parametrize("language", LANGUAGES)
def test_what_was_refused_is_drawn_as_predicted_with_the_reason(language):
    shape = {"longest": "131072", "pairs": "mha-eager,mha-sdpa", "heads": "2", "d_k": "8"}
    asked = settle({**shape, "show": "sweep"}).view.sweep()
    gone = Failure("too_large", "it needs 64 GiB", "需要 64 GiB")
    found = [
        Measurement((Point("MHA · eager", failure=gone), Point("MHA · sdpa", Latency.of([1.0]), peak_bytes=8)))
    ] * len(asked)
    why = benchmark_sweep._refused(language, asked, [*found[:-1], Failure("cancelled")])
    assert {name for name, _ in why} == {"MHA · eager"} and ("MHA · eager", 131_072) not in why
    assert why["MHA · eager", 128] == f"128 · {gone.text.say(language)}"


def test_a_curve_has_its_colour_in_both_charts():
    asked = {"pairs": "mha-eager,mla-sdpa,mha-sdpa", "mode": "forward+backward", "longest": "256", "show": "sweep"}
    drawn = plots(visit(page="benchmark", **asked))
    # Of MLA's backward pass no peak is declared.
    colours = [
        {one["name"]: one["line"]["color"] for one in drawn[f"benchmark.sweep.{kind}"]["data"]
         if one.get("showlegend", True) and "MHA" in (one.get("name") or "")}
        for kind in ("time", "memory")
    ]  # fmt: skip
    assert len(colours[0]) == 2 and colours[0] == colours[1]
    # However near the values are to each other, the axis has marks to read them by.
    assert len(drawn["benchmark.sweep.memory"]["layout"]["yaxis"]["ticktext"]) >= 3


def test_results_with_other_settings_say_so_and_are_compared_with_nothing():
    app = with_files(taken({"heads": "4", "mask": "causal"}))
    assert "is fastest" not in plain(said(app))
    names = [one.get("name") or "" for one in plots(app)["benchmark.sweep.time"]["data"]]
    assert sum("mask=causal, heads=4" in name for name in names) == 2


WALL = json.loads(taken({}, (1e-12, 1e9, 1e-12)))


@pytest.mark.parametrize(
    "content",
    [
        json.dumps({**WALL, "rows": [row | {"q_len": 2**30 - n} for n, row in enumerate(WALL["rows"])]}).encode(),
        json.dumps({**WALL, "rows": [row | {"label": "<img src=x onerror=alert(1)> $x$ %{y} [a](b)"}
                                     for row in WALL["rows"]]}).encode(),
        b'{"rows": [{"q_len": ' + b"9" * 5000 + b"}]}",
        b"\x1f\x8b\x08\x00" + b"\x00" * 100,
    ],
)  # fmt: skip
def test_no_file_brings_the_page_down(content):
    app = with_files(content, taken({}))
    assert {"benchmark.sweep.time", "benchmark.sweep.memory"} <= plots(app).keys()
    assert "<img" not in said(app)


@pytest.mark.parametrize("pair", PAIRS)
def test_every_pair_by_link(pair):
    settled = settle({"pairs": pair})
    own = settled.view.quick().contestants[0].label
    assert (
        not settled.problems
        and own.replace(" 8/2", "") == PAIRS[pair].name
        and ("8/2" in own) == pair.startswith("gqa")
    )


def test_kv_heads_are_set_where_something_shares_them():
    asked = {"pairs": "mha-sdpa,gqa-sdpa", "heads": "12", "longest": "256", "show": "sweep"}
    view = settle({**asked, "kv_heads": "6"}).view
    for request in (view.quick(), *view.sweep()):
        assert [one.config.num_key_value_heads for one in request.contestants] == [12, 6]
    assert settle(asked).view.kv_heads == 3  # a quarter
    held = table.frame(view.sweep()[:1], [Failure("cancelled")])
    assert held["kv_heads"].tolist() == [12, 6] and held["label"].tolist() == ["MHA · sdpa", "GQA 12/6 · sdpa"]
    memory = [
        declared_peak(one, settle({**asked, "kv_heads": n, "what": "layer"}).view.quick())
        for n in ("6", "1")
        for one in settle({**asked, "kv_heads": n, "what": "layer"}).view.quick().contestants
    ]
    assert memory[0] == memory[2] and memory[1] > memory[3]
    unequal = settle({**asked, "kv_heads": "5"})
    assert unequal.view.kv_heads == 4 and "kv_heads must divide heads: 12 heads allow 1, 2, 3, 4" in unequal.notes[0].en
    unasked = settle({**asked, "pairs": "mha-sdpa", "kv_heads": "5"})
    assert unasked.view.kv_heads == 4 and not unasked.notes


def test_a_decode_step_sees_a_cache_of_the_length():
    asked = {"pairs": "mha-eager,gqa-sdpa", "mode": "decode", "what": "core", "mask": "causal", "longest": "256"}
    settled = settle(asked)
    assert not settled.problems and settled.view.decodes
    for request in (settled.view.quick(), *settled.view.sweep()):
        assert (request.q_len, request.mask, request.mode) == (1, "full", "forward")
        assert {one.what for one in request.contestants} == {"decode"}
    first, second = settled.view.sweep()
    assert (first.keys, second.keys) == (128, 256)
    # The longer cache takes more, and where it is shared fewer bytes are moved.
    mha, gqa = first.contestants
    assert declared_peak(mha, first) < declared_peak(mha, second)
    assert predict(gqa, first).bytes_moved < predict(mha, first).bytes_moved
    rows = benchmark_sweep._named(table.frame([first, second], [FOUND, FOUND]), [first, second])
    assert benchmark_sweep._series(rows, "latency_s")["MHA · eager"] == {128: 1.0, 256: 1.0}
    # Of one call nobody knows how much its time spreads.
    assert len(benchmark_sweep._noisy(rows)) == 4 and set(rows["what"]) == {"decode"}


FOUND = Measurement((Point("MHA · eager", Latency.of([1.0])), Point("GQA 8/2 · sdpa", Latency.of([2.0]))))


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_decode_step_asks_for_no_mask(language):
    settings = {"mode": "decode", "mask": "causal", "pairs": "mha-sdpa", "longest": "256", "show": "sweep"}
    app = visit(language, page="benchmark", **settings)
    assert not {"benchmark.mask", "benchmark.what"} & keys(app) and link(app) == settings
    title = plots(app)["benchmark.sweep.time"]["layout"]["xaxis"]["title"]["text"]
    assert title == say(language, "benchmark.axis.cache")


@pytest.mark.parametrize(("pairs", "there"), [("mha-sdpa,gqa-sdpa", True), ("mha-sdpa", False)])
def test_the_slider_of_kv_heads_is_there_with_what_shares_them(pairs, there):
    app = visit(page="benchmark", show="sweep", longest="256", pairs=pairs, heads="8", kv_heads="4")
    assert ("benchmark.kv_heads" in keys(app)) == there and link(app)["kv_heads"] == "4"


def test_a_link_holds_what_was_chosen():
    app = visit("zh", page="benchmark", show="sweep", dtypes="float32,bfloat16", **SMALL)
    assert link(app) == {**SMALL, "show": "sweep", "dtypes": "float32,bfloat16"}
    app.multiselect(key="benchmark.pairs").set_value(["mha-sdpa"])
    check(app.run())
    assert link(app)["pairs"] == "mha-sdpa"
    app.multiselect(key="benchmark.pairs").set_value([])
    check(app.run())
    assert link(app)["pairs"] == "mha-sdpa"  # the last one stays


HOSTILE = {
    "pairs=": "pairs must be 1 to 8 of",
    "pairs=mha-eager,mha-eager": "pairs must be 1 to 8 of",
    "pairs=<b>": "got '<b>'",
    "pairs=" + ",".join(list(PAIRS)[:9]): "pairs must be 1 to 8 of",
    "length=0": "length must be a whole number from 1",
    "length=99999999": "length must be a whole number",
    "heads=999": "heads must be a whole number",
    "threads=4096": "threads must be a whole number",
    "device=tpu": "device must be one of",
    "dtype=int8": "dtype must be one of",
    "mask=veil": "mask must be one of full, causal",
    "color=red": "'color' is not a setting of this page.",
}


@pytest.mark.parametrize("given", HOSTILE)
def test_a_bad_value_is_named_and_the_page_stays(given):
    name, _, value = given.partition("=")
    app = visit(page="benchmark", show="sweep", **{name: value})
    (warning,) = app.warning
    assert HOSTILE[given] in plain(warning.value) and not re.search(r"(?<!\\)[<$\[*]", warning.value)
    assert link(app) == {"show": "sweep"} and "benchmark.sweep.time" in plots(app)
    with pytest.raises(Refusal, match=re.escape(HOSTILE[given][:12]) if name != "pairs" else "pairs"):
        frame({name: value})


def test_knobs_have_names_in_both_languages():
    for knob in KNOBS.values():
        assert all(knob.label)
