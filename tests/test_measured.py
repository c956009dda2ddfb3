"""Measuring on a page: the button, the place in the queue, bars as they come, and the sentence of a failure."""

import time
from dataclasses import replace

import pytest
from streamlit.testing.v1 import AppTest

from attnviz.benchmark import Contestant, Desk, Failure, Latency, Measurement, Point, Request
from attnviz.figures.measured import Bar, Curve, bars, curves
from attnviz.text import LANGUAGES
from pages.ui import layout, measured, measured_bars, measured_words
from pages.ui.measured_held import Held
from pages.ui.translate import say

SMALL = {"hidden_size": 32, "num_attention_heads": 4}
PAIR = (Contestant("mha", "sdpa", SMALL), Contestant("mha", "eager", SMALL))
LABELS = [one.label for one in PAIR]


def held(job):
    return Held(job.requests, job)


def script():
    import streamlit as st

    from attnviz.benchmark import Contestant, Request
    from attnviz.saturation_view import settle
    from pages.ui import link, measured
    from pages.ui.controls import Panel

    small = {"hidden_size": 32, "num_attention_heads": 4}
    pair = (Contestant("mha", "sdpa", small), Contestant("mha", "eager", small))
    panel = Panel("saturation", link.language(), settle)
    length = int(st.session_state.get("length", 16))
    requests = [Request(pair, q_len=length, rounds=3, budget_s=0.1), Request(pair, q_len=2**20)]
    if "asked" in st.session_state:
        requests = [Request.from_json(one) for one in st.session_state["asked"]]

    def draw(asked, shown):
        st.markdown(f"{len(shown)} of {len(asked)}")
        measured.bars(panel, "time", asked[0], shown[0] if shown else None, memory=False)
        measured.bars(panel, "memory", asked[0], shown[0] if shown else None, memory=True)

    measured.section(panel, "try", requests, draw, auto=bool(st.session_state.get("auto")))


def opened(language="en", **state):
    app = AppTest.from_function(script, default_timeout=60)
    app.query_params["lang"] = language
    for name, value in state.items():
        app.session_state[name] = value
    return fine(app.run())


def fine(app):
    assert not app.exception, app.exception
    return app


def until_done(app, language):
    deadline = time.monotonic() + 90
    while say(language, "measure.done") not in [one.value for one in app.caption]:
        assert time.monotonic() < deadline
        fine(app.run())
        time.sleep(0.1)
    return fine(app.run())


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_button_measures_and_says_what_could_not_be(language):
    app = opened(language)
    (button,) = app.button
    assert button.label == say(language, "measure.start") and app.markdown[0].value == "0 of 2"
    app = until_done(button.click().run(), language)
    assert app.markdown[0].value == "2 of 2" and app.button[0].label == say(language, "measure.again")
    assert len(app.button) == 1  # nothing to cancel
    (warning,) = app.warning
    assert say(language, "measure.not_run") in warning.value.lower()


def test_other_settings_have_no_results_yet():
    app = until_done(opened().button[0].click().run(), "en")
    app.session_state["length"] = 24
    fine(app.run())
    assert app.markdown[0].value == "0 of 2" and app.button[0].label == say("en", "measure.start")


def test_results_of_earlier_settings_are_there_again_with_them():
    app = until_done(opened().button[0].click().run(), "en")
    app.session_state["length"] = 24
    fine(app.run())
    app.session_state["length"] = 16
    fine(app.run())
    assert app.markdown[0].value == "2 of 2" and app.button[0].label == say("en", "measure.again")
    # So many are kept, the latest; nothing is kept of what was not begun.
    for length in range(17, 17 + measured._EARLIER + 1):
        app.session_state["length"] = length
        fine(app.run().button[0].click().run())
        until_done(app, "en")
    app.session_state["length"] = 16
    fine(app.run())
    assert app.markdown[0].value == "0 of 2"


def test_what_starts_by_itself_goes_on_after_it_was_ended_elsewhere():
    app = until_done(opened(auto=True), "en")
    held = app.session_state["saturation.try.measured"]
    desk = Desk()
    ended = desk.submit(held.requests)
    ended.cancel()
    ended.wait(60)
    desk.close()
    app.session_state["saturation.try.measured"] = replace(held, job=ended)
    assert until_done(fine(app.run()), "en").markdown[0].value == "2 of 2"


MEASURED = Measurement((Point("MHA · sdpa", Latency.of([1.0])), Point("MHA · eager", Latency.of([2.0]))))


class Ended:
    """Stand for a job with these results, of which more are to come."""

    def __init__(self, requests, results, partial=None):
        self.requests, self.results, self.partial = tuple(requests), tuple(results), partial
        self.shown = (*self.results, *([partial] if partial else []))


def test_what_was_left_out_is_put_among_what_was_found():
    requests = [Request(PAIR, q_len=n) for n in (8, 16, 32, 64, 128)]
    some = Measurement((MEASURED.points[0], Point("MHA · eager")), complete=False)
    slow, gone = Failure("time", "60 s"), Failure("crashed", "SIGKILL", partial=some)
    first = Held(tuple(requests), Ended(requests, [MEASURED, gone, slow, MEASURED, Failure("cancelled")]))
    # What took too long would again.
    assert first.missing == (1, 4) and first.shown[1] is gone
    asked = [requests[number] for number in first.missing]
    begun = Held(first.requests, Ended(asked, []), first.results)
    assert begun.ended == 3 and begun.missing == (1, 4) and begun.shown[0] is MEASURED and begun.shown[2] is slow
    # Neither is missing for a reason any more, and what was found of them stays.
    assert begun.results[1] == some and begun.results[4] == Measurement(tuple(map(Point, LABELS)), complete=False)
    other = Measurement((Point("MHA · sdpa"), MEASURED.points[1]), complete=False)
    later = Held(first.requests, Ended(asked, [], other), first.results)
    assert later.shown[1] == replace(MEASURED, complete=False)
    over = Held(first.requests, Ended(asked, [MEASURED, Failure("cancelled", partial=some)]), first.results)
    assert over.results[1] is MEASURED and over.missing == (4,) and over.ended == 5
    again = Held(over.requests, Ended(asked[1:], [Failure("abandoned")]), over.results)
    assert again.results[4].partial == some and again.results[4].reason == "abandoned" and again.missing == (4,)
    running = Held(tuple(requests), Ended(requests, [MEASURED], some))
    assert running.missing == (1, 2, 3, 4) and running.ended == 1


@pytest.mark.parametrize("language", LANGUAGES)
def test_what_ended_early_can_go_on(language):
    app = opened(language)
    wanted = tuple(Request(PAIR, q_len=n, rounds=3, budget_s=0.1) for n in (16, 24))
    app.session_state["asked"] = [one.to_json() for one in wanted]
    ended = Ended(wanted, [MEASURED, Failure("crashed", "SIGKILL")])
    ended.done, ended.look, ended.cancel = True, lambda: None, lambda: None
    app.session_state["saturation.try.measured"] = Held(wanted, ended)
    on, again = fine(app.run()).button
    assert (on.label, again.label) == (say(language, "measure.go_on"), say(language, "measure.again"))
    assert say(language, "measure.ended", done=1, count=2) in [one.value for one in app.caption]
    # With other settings, what stays behind is said; it is there again with its own.
    app.session_state["asked"] = [replace(one, batch=2).to_json() for one in wanted]
    left = say(language, "measure.left_behind", done=1, count=2)
    assert left in fine(app.run()).caption[0].value and len(app.button) == 1
    app.session_state["asked"] = [one.to_json() for one in wanted]
    app = until_done(fine(app.run()).button[0].click().run(), language)
    first, second = app.session_state["saturation.try.measured"].results
    assert first is MEASURED and second.complete and len(app.button) == 1 and not app.warning


def test_it_can_start_by_itself():
    app = opened(auto=True)
    assert not app.button
    assert until_done(app, "en").markdown[0].value == "2 of 2"


def test_a_page_says_where_in_the_queue_it_is():
    long = Request(PAIR * 6, q_len=64, rounds=1000, budget_s=600, limit_s=600, memory=False)
    desk = Desk()
    first = desk.submit((long,))
    while first.partial is None:
        time.sleep(0.05)
    second = desk.submit((long,))
    assert measured_words.status("en", held(second), False) == "Waiting: number 1 in line."
    assert "第 1 位" in measured_words.status("zh", held(second), False)
    for job in (first, second):
        job.cancel()
        job.wait(60)
    desk.close()
    assert measured_words.failures("en", first.requests, first.results) == [layout.escape("Cancelled.")]
    assert measured_words.status("en", held(first), True) == "Ended early."
    assert measured_words.status("en", held(second), True) == "Nothing was measured."


def test_each_reason_is_said_once_and_literally():
    failed = Point("<b>x</b>", failure=Failure("memory", "3 GiB"))
    fine_point = Point("y", Latency.of([1.0]))
    shown = [Measurement((failed, fine_point)), Measurement((failed,)), Failure("cancelled")]
    said = measured_words.failures("en", [Request(PAIR, q_len=n) for n in (256, 1024, 2048)], shown)
    assert len(said) == 2 and "<b>" not in said[0]
    # With the lengths that it is about, and with the data type where that differs.
    assert said[0].startswith("256, 1,024 tokens – ") and said[1].startswith("2,048 tokens – ")
    several = [Request(PAIR, q_len=n, dtype=dtype) for dtype in ("float32", "bfloat16") for n in (8, 16)]
    (only,) = measured_words.failures("zh", several, [Failure("cancelled")] * 3)
    assert only.startswith("8, 16 个 token, float32; 8 个 token, bfloat16 – ")
    steps = [Request(PAIR, q_len=1, kv_len=n) for n in (8, 16)]
    assert measured_words.failures("en", steps, [Failure("cancelled")])[0].startswith("8 tokens – ")


def test_each_contestant_s_own_need_is_said_once():
    requests = [Request(PAIR, q_len=n) for n in (256, 1024, 2048)]
    need = [Failure("too_large", f"it would take {n} GiB") for n in (1, 2, 3, 4, 5)]
    sooner, later = Point("a", failure=need[0]), Point("a", failure=need[3])
    whole = Failure("too_large", need[3].detail, partial=Measurement((later, Point("b", failure=need[4]))))
    said = measured_words.failures(
        "en", requests, [Measurement((Point("a"), Point("b"))), Measurement((sooner, Point("b"))), whole]
    )
    assert said == [f"{where} tokens{more} – {layout.escape(words)}" for where, more, words in (
        ("1,024", " and longer", "a: Not run: it would take 1 GiB."), ("2,048", "", "b: Not run: it would take 5 GiB."),
    )]  # fmt: skip
    assert [one.partition("（")[0] for one in measured_words.failures("zh", requests[:1], [whole])] == [
        layout.escape(f"{name}: 未运行：it would take {n} GiB。") for name, n in (("a", 4), ("b", 5))
    ]
    # What ended the request comes before what was found out before that.
    cut = Failure("cancelled", partial=Measurement((sooner, Point("b"))))
    assert len(measured_words.failures("en", requests[:1], [cut])) == 2
    # Nothing tells one length from another where it is so at all of them.
    none = Measurement((Point("a", failure=Failure("no_backward", "eager")), Point("b")))
    assert measured_words.failures("en", requests, [none] * 3)[0].startswith("a&#58; ")


def test_what_was_measured_before_a_failure_stays():
    kept = Measurement((Point("a", Latency.of([1.0])),), complete=False)
    assert measured_bars.points(Failure("crashed", "SIGKILL", partial=kept), 1) == list(kept.points)
    assert measured_bars.points(Failure("crashed", "SIGKILL"), 2) == [None, None] == measured_bars.points(None, 2)


def test_bars_hold_the_values_their_quartiles_and_the_prediction():
    figure = bars([Bar("a", 4.0, 3.0, 6.0, 5.0, "4 s"), Bar("b", text="not run")], predicted="p", label=str)
    bar, mark = figure["data"]
    assert bar["x"] == [4.0, None] and mark["x"] == [5.0, None] and bar["y"] == ["a", "b"]
    assert (bar["error_x"]["array"], bar["error_x"]["arrayminus"]) == ([2.0, 0.0], [1.0, 0.0])
    low, high = figure["layout"]["xaxis"]["range"]
    assert 10**low < 3.0 and 10**high > 6.0
    assert figure["layout"]["xaxis"]["ticktext"] == ["0.1", "1.0"]
    empty = bars([Bar("a", text="not run")], predicted="p", label=str)["layout"]["xaxis"]
    assert empty["tickvals"] == [] and len(empty["range"]) == 2
    listed = bars([Bar("a", 5e3), Bar("b", 2e7)], predicted="p", label=str, base=[1.0, 60.0, 3600.0, 86_400.0, 1e9])
    assert listed["layout"]["xaxis"]["tickvals"] == [3600, 86_400]
    marks = bars([Bar("a", 2**10), Bar("b", 2**30)], predicted="p", label=str, base=4)["layout"]["xaxis"]["tickvals"]
    assert len(marks) <= 5 and all((int(mark).bit_length() - 1) % 2 == 0 for mark in marks)


def test_bars_end_before_the_longest_text():
    def share(text):
        return bars([Bar("a", 4.0, text=text)], predicted="p", label=str)["layout"]["xaxis"]["domain"][1]

    assert share("118 ms") == share("127 ms · 0.62") > share("(≥ 2,997 h 38 min)") >= 0.5


def test_a_prediction_at_one_length_is_a_mark_and_what_was_refused_has_its_reason():
    row = Curve("a", [], [], predicted=([128], [4.0]), refused=[(128, 4.0, "too large")])
    figure = curves([row], x_title="x", predicted="predicted", refused="not run", label=str)
    lone, *others = figure["data"]
    (refused,) = [one for one in others if "text" in one]
    assert lone["mode"] == "markers" and (lone["x"], lone["y"]) == ([128], [4.0])
    assert refused["text"] == ["too large"] and (refused["x"], refused["y"]) == ([128], [4.0])
    legend = [one["name"] for one in figure["data"] if one.get("showlegend", True)]
    assert legend == ["a", "predicted", "not run"]


def test_a_chart_grows_with_its_legend():
    def height(count, name):
        rows = [Curve(f"{n} {name}", [1], [1.0]) for n in range(count)]
        return curves(rows, x_title="x", predicted="p", label=str)["layout"]["height"]

    assert height(2, "MHA") < height(8, "MHA") < height(8, "MHA · eager · NVIDIA H200 · 2026-11-30")
    # A power behind a name comes later and moves nothing.
    assert height(4, "MHA") == height(4, "MHA<sup>2.00</sup>")


def test_curves_hold_dots_lines_and_crossings():
    row = Curve(
        "a", [1, 2], [1.0, 4.0], [0.5, 3.0], [2.0, 4.5], [False, True], predicted=([1, 2], [1, 4]), fitted=([1], [2])
    )
    crossing = {"here": (1.5, 2.0)}
    figure = curves(
        [row],
        x_title="x",
        predicted="predicted",
        fitted="fitted",
        label=str,
        crossings=crossing,
        ticks=([1, 2], ["1", "2"]),
    )
    line, power, dots, legend, fitted, cross = figure["data"]
    # A power that was fitted is told from a prediction by its stroke, in the legend too.
    assert power["y"] == [2] and power["line"]["dash"] == "dot" == fitted["line"]["dash"]
    assert fitted["name"] == "fitted" and power["line"]["width"] < line["line"]["width"]
    assert line["y"] == [1, 4] and line["line"]["dash"] == "dash" and legend["name"] == "predicted"
    assert dots["marker"]["symbol"] == ["circle", "circle-open"] and dots["error_y"]["array"] == [1.0, 0.5]
    assert cross["x"] == [1.5] and cross["text"] == ["here"]
    assert figure["layout"]["xaxis"]["ticktext"] == ["1", "2"]
