"""The linear page: every view by link, the live route beside the page, and measurements held to formulas."""

import re
import runpy
import time
from dataclasses import replace

import numpy as np
import pytest
import torch

from attnviz.backends import BACKENDS
from attnviz.benchmark import Latency, measure
from attnviz.linear_view import cost, estimates, recall
from attnviz.linear_view.run import both, forms, states, tokens
from attnviz.linear_view.settings import SHOWS, settle
from attnviz.linear_view.snippet import linear_snippet
from attnviz.masks import MASKS
from attnviz.text import LANGUAGES, Refusal
from attnviz.variants.linear import linear_attention
from attnviz.variants.state.features import FEATURE_MAPS, directions
from pages.ui import linear_charts, linear_measured, linear_memory
from pages.ui.heatmap.frame import unpack
from pages.ui.linear_picture import cell, frame
from pages.ui.translate import say
from tests.pages import check, link, numbers, plain, plots, said, shown, visit


def view(**settings: str):
    return settle(settings).view


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("show", SHOWS)
def test_the_page_and_the_live_route_draw_the_same(show, language):
    settings = {"d_k": "8", "size": "0.7", "step": "9"} | ({} if show == "recall" else {"show": show})
    app = visit(language, page="linear", **settings)
    assert not app.warning and link(app) == settings
    header, parts = unpack(frame({"lang": language, **settings}))
    drawn = {key.removeprefix("linear."): figure for key, figure in plots(app).items()}
    # What is measured is no part of the live frame.
    still = {key: drawn.pop(key) for key in ("memory",) if key in drawn}
    assert len(still) == (show == "cost") and drawn == header.get("figures", {})
    assert len(drawn) == {"recall": 2, "features": 2, "cost": 1, "forms": 0}[show]
    for part in ("weights", "state"):
        got, live = shown(app, f"linear.{part}")[1][part], parts[part]
        assert len(got) == 2 and all(np.array_equal(a, b) for a, b in zip(got, live, strict=True))
    texts = [grid[word] for grid in header["parts"].values() for word in ("caption", "alt")]
    texts += [figure["layout"]["meta"][word] for figure in drawn.values() for word in ("caption", "alt")]
    assert all(text and "{" not in text for text in texts)


@pytest.mark.parametrize("name", FEATURE_MAPS)
def test_every_map_by_link(name):
    app = visit("zh", page="linear", feature_map=name, length="12")
    assert not app.warning
    found = both(view(feature_map=name, length="12"))
    rows = found.linear.sum(1)
    assert ((np.abs(rows - 1) < 1e-4) | (np.abs(found.linear).sum(1) == 0)).all()
    assert found.nothing == int((np.abs(found.linear).sum(1) == 0).sum())
    assert not np.triu(found.linear, 1).any() and not np.triu(found.softmax, 1).any()


def test_weights_that_may_be_negative_have_colours_around_zero():
    linear = both(view(feature_map="identity")).linear
    grid = unpack(frame({"feature_map": "identity"}))[0]["parts"]["weights"]
    most = float(np.abs(linear).max())
    assert linear.min() < -1 and [one["palette"] for one in grid["maps"]] == ["diverging"] * 2
    assert [(one["low"], one["high"]) for one in grid["maps"]] == [(-1, 1), (-most, most)]
    assert f"Weights here go from −{-linear.min():.0f} to {linear.max():.0f}: each map" in grid["caption"]
    for name in FEATURE_MAPS:
        if name == "identity":
            continue
        grid = unpack(frame({"feature_map": name}))[0]["parts"]["weights"]
        assert [(one["low"], one["high"], one["palette"]) for one in grid["maps"]] == [(0, 1, "sequential")] * 2
        assert "Weights here" not in grid["caption"]


@pytest.mark.parametrize("language", LANGUAGES)
def test_maps_of_own_ranges_say_so_on_their_bar(language):
    app = visit(language, page="linear", feature_map="identity")
    for name in ("weights", "state"):
        words = shown(app, f"linear.{name}")[0]["config"]["words"]
        assert words["own_range"] == say(language, "linear.own_range") != say(language, "heatmap.own_range")


def test_features_that_float32_makes_zero_are_counted_and_named():
    small = both(view(feature_map="performer"))
    assert small.lost == 0 and small.features == 2 * 32 * 64
    given = {"feature_map": "performer", "size": "5", "d_k": "64"}
    found, one = both(view(**given)), view(**given)
    rows = directions(one.features, 64, seed=0).double()
    # Features as exact arithmetic has them, then as float32 would hold them: half of its smallest number becomes 0.
    exact = [part[0, 0].double() * 64**-0.25 for part in tokens(one)[:2]]
    logs = [part @ rows.T - part.square().sum(-1, keepdim=True) / 2 - np.log(8) for part in exact]
    lost = sum(int((part < np.log(2.0**-150)).sum()) for part in logs)
    assert 0 < lost < found.features and found.lost == pytest.approx(lost, rel=0.02)
    caption = unpack(frame(given))[0]["parts"]["weights"]["caption"]
    assert f"float32 makes {found.lost:,} of 4,096 features exactly 0" in caption
    assert f"Rows without any weight: {found.nothing}." in caption and found.nothing > 0
    # Where a feature may be 0, nothing is lost.
    assert both(view(feature_map="relu", size="5")).lost == 0
    assert "float32" not in unpack(frame({"feature_map": "relu"}))[0]["parts"]["weights"]["caption"]


def test_rows_are_flatter_where_the_words_say_so():
    """Entropy of the rows at the defaults, against softmax's: higher is flatter."""
    flatter = set()
    for name in FEATURE_MAPS:
        found = both(view(feature_map=name))
        soft, flat = (torch.special.entr(torch.from_numpy(abs(one))).sum(-1).mean() for one in found[:2])
        flatter |= {name} if FEATURE_MAPS[name].is_positive and flat > soft else set()
    assert flatter == {"elu", "relu", "softmax"}


@pytest.mark.parametrize(("name", "features"), [("elu", 16), ("performer", 64)])
def test_a_state_is_said_to_be_as_large_as_it_is(name, features):
    app = visit(page="linear", feature_map=name)
    assert f"keeps a state of {features} × 16 and a sum of {features}, plain sum and delta rule one of 16 × 16" in said(
        app
    )
    found = states(view(feature_map=name))
    assert found.linear.shape == (features, 16) and found.delta.shape == (16, 16)
    caption = unpack(frame({"feature_map": name}))[0]["parts"]["state"]["caption"]
    assert f"{features} × 16 and the sum of φ(k), {features * 17:,} numbers (delta rule: 16 × 16)" in caption


def test_a_state_that_one_feature_fills_is_said_to_be_so():
    found = states(view(feature_map="performer")).linear
    share = np.square(found).sum(1) / np.square(found).sum()
    caption = unpack(frame({"feature_map": "performer"}))[0]["parts"]["state"]["caption"]
    assert share.max() > 0.5 and f"Feature {share.argmax()} holds {share.max():.1%} of the squares" in caption
    assert "Feature" not in unpack(frame({}))[0]["parts"]["state"]["caption"]


def test_the_chosen_map_is_explained():
    for name in ("elu", "performer"):
        words = say("en", "linear.words.map", map=FEATURE_MAPS[name].label.en, help=FEATURE_MAPS[name].help.en,
                    source=FEATURE_MAPS[name].source)  # fmt: skip
        assert words in said(visit(page="linear", feature_map=name))


def test_the_weights_are_the_products_of_the_features():
    one = view(d_k="8", size="0.7", length="20")
    query, key, value = (part[0, 0].double() for part in tokens(one))
    mapped = (torch.nn.functional.elu(query) + 1) @ (torch.nn.functional.elu(key) + 1).T
    weights = mapped.tril() / mapped.tril().sum(-1, keepdim=True)
    np.testing.assert_allclose(both(one).linear, weights.numpy(), atol=1e-6)
    soft = torch.softmax((query @ key.T / 8**0.5).masked_fill(~torch.ones(20, 20).tril().bool(), -torch.inf), -1)
    want = float(((weights - soft) @ value).norm() / (soft @ value).norm())
    assert both(one).error == pytest.approx(want, rel=1e-4)


def test_the_state_grows_token_by_token_in_colours_that_stay():
    grown = [states(view(step=str(step), d_k="8", length="20")) for step in (1, 7, 20)]
    _, key, value = (part[0, 0] for part in tokens(view(d_k="8", length="20")))
    mapped = torch.nn.functional.elu(key) + 1
    for at, found in zip((1, 7, 20), grown, strict=True):
        np.testing.assert_allclose(found.linear, (mapped[:at].T @ value[:at]).numpy(), atol=1e-5)
        unit = torch.nn.functional.normalize(key[at - 1], dim=0)
        # The delta rule answers exactly to the key that it has just written.
        np.testing.assert_allclose(unit.numpy() @ found.delta, value[at - 1].numpy(), atol=1e-5)
    assert len({(found.linear_most, found.delta_most) for found in grown}) == 1
    ranges = [[(m["low"], m["high"]) for m in unpack(frame({"step": s}))[0]["parts"]["state"]["maps"]] for s in "38"]
    assert ranges[0] == ranges[1]


def test_all_forms_are_one():
    found = forms(view())
    assert [(one.rule, one.form) for one in found] == [
        ("linear", "chunked"), ("linear", "recurrent"), ("linear", "parallel"),
        ("delta", "chunked"), ("delta", "recurrent"),
    ]  # fmt: skip
    assert all(one.single < 1e-5 and one.double < 1e-12 for one in found)
    assert sum(one.double == 0 for one in found) == 2


@pytest.mark.parametrize("d_k", ["16", "64"])
def test_recall_follows_its_formulas(d_k):
    found, expected = recall.measure(view(d_k=d_k)), recall.predicted(int(d_k))
    for name, line in expected.items():
        np.testing.assert_allclose(found.error[name][1:], line[1:], rtol=0.12)
    for name in recall.METHODS:
        assert found.error[name][0] < 1e-6 and found.right[name][0] == 1
    # What the words say.
    assert (found.error["delta"][1:] < found.error["sum"][1:]).all()
    at = recall.PAIRS.index(int(d_k))
    assert found.error["sum"][at] == pytest.approx(1, abs=0.1) and found.right["sum"][at] > 0.8
    assert found.right["delta"][at + 1] < found.right["sum"][at + 1]
    assert (found.error["softmax"] < found.error["linear"] + 1e-6).all()


def test_random_features_follow_their_formula_where_q_and_k_are_small():
    small, large = (estimates.measure(view(d_k="16", size=size)) for size in ("0.3", "1"))
    np.testing.assert_allclose(small.kernel, small.expected, rtol=0.3)
    query, key, _ = (part[0, 0].double().numpy() for part in tokens(view(d_k="16", size="0.3")))
    squares = [[np.exp(((q + k) ** 2).sum() / 4) - 1 for k in key] for q in query]
    np.testing.assert_allclose(small.expected, np.median(np.sqrt(squares)) / np.sqrt(estimates.COUNTS), rtol=1e-2)
    query, key, value = tokens(view(d_k="16", size="0.3"))
    causal, apart = MASKS["causal"].build(), []
    exact = BACKENDS["eager"].attend(query, key, value, allowed=causal).output
    for draw in range(estimates.DRAWS):
        maps = FEATURE_MAPS["performer"].maps(0.25, directions(estimates.COUNTS[-1], 16, seed=draw)[:64])
        output = linear_attention(query, key, value, maps=maps, allowed=causal, normalize=True).output
        apart.append(float((output - exact).norm() / exact.norm()))
    assert small.output[estimates.COUNTS.index(64)] == pytest.approx(np.median(apart), rel=1e-4)
    assert small.output[-1] < 0.2 * small.elu and large.output[2] > large.elu
    assert (large.kernel < large.expected).all() and large.kernel[-1] > 0.1


def test_what_lies_off_a_chart_is_said_with_its_size():
    found = recall.measure(view(feature_map="identity")).error
    most, last = found["linear"].max(), found["sum"].max()
    pairs = recall.PAIRS[int(found["linear"].argmax())]
    assert most > 100 and last == found["sum"][-1] > 2.05
    caption = linear_charts.draw(view(feature_map="identity"), "en")["error"].caption
    assert caption.endswith(
        f"; beyond the chart: Identity, normalised ({most:,.2g} at {pairs} pairs), plain sum ({last:.2g} at 512 pairs)"
        .replace("2.5e+03", "2,500")
    )  # fmt: skip
    assert "beyond" not in linear_charts.draw(view(d_k="128"), "en")["error"].caption
    large = {"show": "features", "size": "3", "d_k": "128", "length": "128"}
    value = f"{estimates.measure(view(**large)).expected[estimates.COUNTS.index(256)]:.1e}".replace("+", "")
    for settings, words in (
        (large, f"; the formula lies above the chart (with 256 features: {value})"),
        (
            {"show": "features", "size": "10", "d_k": "128", "length": "2"},
            "(with 256 features: more than float64 holds)",
        ),
    ):
        shown = linear_charts.draw(view(**settings), "en")
        high = shown["kernel"].figure["layout"]["yaxis"]["range"][1]
        assert shown["kernel"].caption.endswith(words) and "formula" not in shown["output"].caption
        assert (np.log10(estimates.measure(view(**settings)).expected) > high).all()
    assert "formula" not in linear_charts.draw(view(show="features"), "en")["kernel"].caption


@pytest.mark.parametrize("settings", [
    {"size": "10", "d_k": "128", "length": "2"}, {"size": "10", "d_k": "1", "length": "64"},
    {"size": "1e-20", "d_k": "64", "length": "1"}, {"size": "0"},
])  # fmt: skip
def test_estimates_have_numbers_however_large_or_small_q_and_k_are(settings):
    found = estimates.measure(view(**settings))
    for column in (found.kernel, found.output):
        assert np.isfinite(column).all() and (column >= 0).all()
    figures = unpack(frame({"show": "features", **settings}))[0]["figures"]
    for figure in figures.values():
        low, high = figure["layout"]["yaxis"]["range"]
        assert -17 < low < high < 5 and "nan" not in figure["layout"]["meta"]["alt"]


def test_flops_cross_where_they_are_said_to():
    one = view(d_k="64")
    cross = cost.crossover(one)
    assert cross is not None
    for length, is_less in ((cross - 1, False), (cross, True), (4 * cross, True)):
        counted = cost.flops(one, length)
        assert (counted["linear"] < counted["softmax"]) == is_less
    # Four heads, each token with itself and those before it, twice a product of 64, each multiply-add being two.
    assert cost.flops(one, 10)["softmax"] == 4 * 55 * 2 * 2 * 64
    # A token is read, written and taken away in a state of 64 × 64, and meets the chunk's pairs three times.
    pairs = 2 * 64**2 + 2**2
    assert cost.flops(one, 130)["delta"] == 2 * 4 * (3 * 130 * 64**2 + pairs * 64 + pairs * (64 + 64))


@pytest.mark.parametrize("name", ["elu", "performer"])
def test_the_kinds_are_measured_at_the_view_s_sizes(name):
    one, names = view(feature_map=name, d_k="8", features="5"), dict.fromkeys(cost.WEIGHED, "x")
    asked = cost.requests(one, names)
    assert asked == cost.requests(one, names) and [request.q_len for request in asked] == list(cost.LENGTHS)
    for request in asked:
        assert (request.mask, request.threads, request.memory, request.mode) == ("causal", 1, True, "forward")
        assert [(of.variant, of.backend, of.what) for of in request.contestants] == [
            ("mha", "sdpa", "core"), ("linear", "chunked", "core"), ("delta", "chunked", "core"),
            *([("mha", "eager", "core")] if request.q_len <= 1024 else []),
        ]  # fmt: skip
        assert all((of.config.num_attention_heads, of.config.head_dim) == (4, 8) for of in request.contestants)
        assert request.contestants[1].config.feature_map == name
    assert asked[0].contestants[1].config.width == (5 if name == "performer" else 8)
    result = measure(replace(asked[0], rounds=2, budget_s=0.05, limit_s=120))
    points = linear_measured.known(asked, [result])
    for of in (lambda point: point.latency_s, lambda point: point.peak_bytes):
        found = linear_memory.taken(points, of)
        assert found == {kind: {32: of(points[kind][32])} for kind in cost.WEIGHED}
    # What is not known of a point is not among them.
    points["linear"][32] = replace(points["linear"][32], peak_bytes=None)
    assert linear_memory.taken(points, lambda point: point.peak_bytes)["linear"] == {}
    points = linear_measured.known(asked, [result])
    assert "chunked" in points["linear"][32].kernel
    for kind in ("softmax", "linear", "eager"):
        assert points[kind][32].peak_bytes == cost.peaks(one, kind, (32,))[0]


def test_memory_is_said_as_it_is_predicted_and_measured():
    """The causal form takes more memory than a softmax that keeps no matrix (fast-transformers 83)."""
    one = view(show="cost")
    least = {kind: dict(zip(cost.LENGTHS, cost.peaks(one, kind, cost.LENGTHS), strict=True)) for kind in cost.WEIGHED}
    more = [length for length in cost.LENGTHS if least["linear"][length] > least["softmax"][length]]
    assert more == [32, 64, 128, 256, 512]
    before = linear_memory.drawn(one, {kind: {} for kind in cost.WEIGHED}, "en")
    assert before.caption == (
        "Peak memory, predicted: at 1,024 tokens linear 428 KiB, softmax 802 KiB; linear takes more up to 512"
    )
    # Each has a name in the legend before there is a dot, and Plotly shows none of a trace without points.
    shown = [trace["name"] for trace in before.figure["data"] if trace.get("showlegend", True) and len(trace["x"])]
    assert shown == [*(say("en", f"linear.cost.{kind}") for kind in cost.WEIGHED), "predicted"]
    lines = [trace for trace in before.figure["data"] if trace["mode"] == "lines" and len(trace["x"]) > 1]
    for kind, trace in zip(cost.WEIGHED, lines, strict=True):
        assert {length: dict(zip(trace["x"], trace["y"], strict=True))[length] for length in cost.LENGTHS} == least[
            kind
        ]
    assert "measured" not in before.caption and least["eager"][1024] > 100 * least["linear"][1024]
    for softmax, linear, words in (
        ((5, 5, 5), (4, 4, 4), "at every length"), ((5, 5, 5), (6, 6, 6), "more at every length"),
        ((5, 5, 5), (6, 4, 6), "more at 64, 4,096"), ((5, 5, 5), (6, 6, 4), "more up to 128"),
    ):  # fmt: skip
        known = {kind: dict(zip((64, 128, 4096), bytes_, strict=True)) for kind, bytes_ in
                 (("softmax", softmax), ("linear", linear), ("delta", linear), ("eager", ()))
                 if bytes_} | {"eager": {}}  # fmt: skip
        drawn = linear_memory.drawn(one, known, "en")
        assert words in drawn.caption and "measured here: at 4,096 tokens" in drawn.caption
        dots = {trace["name"]: trace for trace in drawn.figure["data"] if trace["mode"] == "lines+markers"}
        assert list(dots["linear, chunks of 64"]["y"]) == list(linear)


def test_a_state_for_every_token_is_counted_as_it_is_held():
    one = view(d_k="8", feature_map="performer", features="5")
    states_of_all = torch.ones(cost.HEADS, 1024, 5, 9).cumsum(1)
    assert cost.every_state(one, 1024) == states_of_all.nbytes
    times = states_of_all.nbytes / cost.peaks(one, "linear", (1024,))[0]
    assert f"would hold 720 KiB at 1,024 tokens: {times:.3g}× the chunked" in linear_memory.words(one, "en")


def test_times_say_which_was_faster_whatever_they_are():
    """Linear attention is not always faster: the chart says so (fast-transformers 83)."""
    one = view(show="cost")
    for softmax, linear, cross, words in (
        ((1.0, 3.0), (2.0, 2.0), 64, "linear faster from 64 tokens on"),
        ((1.0, 1.0), (2.0, 2.0), None, "linear not faster at 64 tokens"),
        ((3.0, 1.0), (2.0, 2.0), None, "linear not faster at 64 tokens"),
        ((3.0, 3.0), (2.0, 2.0), 32, "linear faster from 32 tokens on"),
    ):
        assert cost.crossed((32, 64), softmax, linear) == cross
        found = {
            kind: {length: Latency(time, time, time, time, 5) for length, time in zip((32, 64), times, strict=True)}
            for kind, times in (("softmax", softmax), ("linear", linear), ("delta", linear))
        }
        drawn = linear_measured.drawn(one, found, "en")
        assert words in drawn.caption and "5 rounds" in drawn.caption
        dots = {trace["name"]: trace for trace in drawn.figure["data"] if trace.get("mode") == "lines+markers"}
        assert [list(trace["y"]) for trace in dots.values()] == [list(softmax), list(linear), list(linear)]
        assert "hollow: noisy" not in str(drawn.figure["data"])
        lines = [trace["y"] for trace in drawn.figure["data"] if trace["mode"] == "lines" and trace["x"] == [32, 64]]
        # The dashed line of softmax goes through its last dot; the others stand in the ratio of their FLOPs.
        assert lines[0][-1] == softmax[-1]
        counted = cost.flops(one, 32)
        assert lines[1][0] / lines[0][0] == pytest.approx(counted["linear"] / counted["softmax"])
    # One noisy dot is hollow: the legend names that, and shows the curves' own dots full.
    found["softmax"][32] = Latency(1.0, 0.5, 1.5, 0.5, 5)
    data = linear_measured.drawn(one, found, "en").figure["data"]
    named = [trace for trace in data if trace.get("showlegend", True) and "marker" in trace]
    symbols = {trace["name"]: np.ravel(trace["marker"]["symbol"])[0] for trace in named}
    assert symbols == {"softmax": "circle", "linear, chunks of 64": "circle", "delta rule, chunks of 64": "circle",
                       "hollow: noisy": "circle-open"}  # fmt: skip
    # Stopped before linear attention was measured: nothing is said of who was faster.
    found["linear"] = found["delta"] = {}
    assert linear_measured.drawn(one, found, "en").caption == "Time"


def test_the_measurement_is_the_worker_s_and_belongs_to_its_settings(monkeypatch):
    monkeypatch.setattr(cost, "LENGTHS", (32, 64))
    monkeypatch.setattr(cost, "BUDGET_S", 0.05)
    app = visit(page="linear", show="cost")
    assert "linear.time" not in plots(app) and say("en", "linear.cost.hint") in said(app)
    app = check(app.button(key="linear.cost.start").click().run())
    deadline = time.monotonic() + 90
    while say("en", "measure.done") not in [one.value for one in app.caption]:
        assert time.monotonic() < deadline
        time.sleep(0.1)
        app = check(app.run())
    shown = app.session_state["linear.cost.measured"].job.shown
    drawn, weighed = (plots(check(app.run()))[key] for key in ("linear.time", "linear.memory"))
    peaks = [trace for trace in weighed["data"] if trace.get("mode") == "lines+markers"]
    assert [numbers(trace["y"]) for trace in peaks] == [
        [result.points[at].peak_bytes for result in shown] for at in range(4)
    ]
    assert "Peak memory, measured here: at 64 tokens" in weighed["layout"]["meta"]["caption"]
    dots = [trace for trace in drawn["data"] if trace.get("mode") == "lines+markers"]
    for at, trace in enumerate(dots):
        assert numbers(trace["x"]) == [32, 64]
        assert numbers(trace["y"]) == [result.points[at].latency_s.median for result in shown]
    assert "Measured here: linear" in drawn["layout"]["meta"]["caption"]
    # Another width is another measurement.
    app.query_params["d_k"] = ["32"]
    assert "linear.time" not in plots(check(app.run()))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"d_k": "500"}, "d_k must be a whole number from 1 to 128, got '500'."),
        ({"feature_map": "<b>"}, "feature_map must be one of elu, relu"),
        ({"size": "nan"}, "size must be a number from 0 to 10, got 'nan'."),
        ({"heads": "4"}, "'heads' is not a setting of this page."),
        ({"features": "0"}, "features must be a whole number from 1 to 1,024, got '0'."),
    ],
)
def test_a_bad_value_is_named_and_the_page_stays(given, words):
    app = visit(page="linear", **given)
    (warning,) = app.warning
    assert words in plain(warning.value)
    assert link(app) == {} and "linear.error" in plots(app)
    with pytest.raises(Refusal, match=re.escape(words[:20])):
        frame(given)


def test_what_no_longer_fits_follows():
    app = visit(page="linear", length="8", step="20", cell="0,9,9")
    assert "step was 20, beyond the 8 tokens; using 8." in plain(app.warning[0].value)
    assert "cell was 0,9,9, which is not on the maps" in plain(app.warning[0].value)
    assert not visit(page="linear", length="8").warning


@pytest.mark.parametrize(
    "settings",
    [
        {"length": "1", "step": "1"}, {"d_k": "1"}, {"size": "0"}, {"feature_map": "relu", "d_k": "1"},
        {"size": "10", "feature_map": "performer", "d_k": "128"}, {"feature_map": "performer", "features": "1"},
        {"seed": "7", "length": "128"},
    ],
)  # fmt: skip
def test_the_ends_of_every_slider(settings):
    for show in SHOWS:
        app = visit(page="linear", show=show, **settings)
        assert "nan" not in re.sub(r"[a-z]*nan[a-z]+|[a-z]+nan", "", said(app).lower())


def test_a_cell_has_its_exact_value():
    found = both(view())
    got = cell({"map": "linear", "row": "5", "col": "3", "lang": "en"})
    assert float(str(got["value"])) == np.float32(found.linear[5, 3]) and got["state"] == 0
    assert cell({"map": "softmax", "row": "3", "col": "5"})["value"] == ""
    assert cell({"map": "state_delta", "row": "0", "col": "1"})["value"]
    for bad in ({"map": "state_linear", "row": "16", "col": "0"}, {"map": "abacus", "row": "0", "col": "0"}):
        with pytest.raises(Refusal, match=r"must be (one of|a whole number)"):
            cell(bad)


@pytest.mark.parametrize("name", FEATURE_MAPS)
def test_the_code_gives_what_the_page_draws(name, capsys, tmp_path):
    one = view(feature_map=name, length="12", d_k="8", size="0.5", seed="3")
    path = tmp_path / "view.py"
    path.write_text(linear_snippet(one), encoding="utf-8")
    space = runpy.run_path(str(path))
    torch.testing.assert_close(space["q"], tokens(one)[0][0, 0])
    if name != "performer":  # which draws other directions there
        np.testing.assert_allclose(torch.nan_to_num(space["weights"]).numpy(), both(one).linear, rtol=1e-3, atol=1e-5)
        assert float(capsys.readouterr().out.split()[-1]) == pytest.approx(both(one).error, rel=1e-3)
    app = visit(page="linear", feature_map=name)
    assert not app.code and say("en", "linear.snippet.title") in [entry.label for entry in app.expander]
