"""The saturation page: every view by link, the live route beside the page, and a training that says what it shows."""

import json
import re
import runpy

import numpy as np
import pytest

from attnviz.saturation import SCALINGS
from attnviz.saturation.training import Race
from attnviz.saturation_view import KNOBS, SHOWS, curves, rows, scores, settle
from attnviz.text import LANGUAGES, Refusal
from pages.ui import saturation_picture, saturation_sections, training
from pages.ui.heatmap.frame import unpack
from pages.ui.saturation_picture import frame
from pages.ui.saturation_sections import code
from pages.ui.translate import say
from tests.pages import check, keys, link, numbers, plain, plots, said, visit

LIVE = [show for show in SHOWS if show != "training"]


def carried(**settings: str) -> dict:
    return unpack(frame(settings))[0]["figures"]


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("show", LIVE)
def test_the_page_and_the_live_route_draw_the_same(show, language):
    settings = {"d_k": "32", "correlation": "0.2", "temperature": "1.5"} | (
        {} if show == "collapse" else {"show": show}
    )
    app = visit(language, page="saturation", **settings)
    assert link(app) == settings
    drawn = {key.removeprefix("saturation."): figure for key, figure in plots(app).items()}
    # What the colours of the charts mean stands above them too.
    assert drawn.pop("names") == drawn["strips"]
    assert drawn == carried(lang=language, **settings)
    assert len(drawn) == (4 if show in ("collapse", "learning") else 3)
    assert len(app.title) == 1 and app.title[0].value == say(language, "saturation.title")
    for figure in drawn.values():
        meta = figure["layout"]["meta"]
        assert meta["alt"] and meta["caption"] and "{" not in meta["alt"] + meta["caption"]


def test_the_first_picture_is_a_row_of_weights_for_each_scaling():
    app = visit(page="saturation", d_k="1024")
    drawn = plots(app)["saturation.strips"]
    view = settle({"d_k": "1024"}).view
    for row, weights in zip(drawn["data"], (one.weights for one in rows(view).values()), strict=True):
        np.testing.assert_allclose(row["y"], weights, rtol=1e-6, atol=1e-30)
    assert [row["name"] for row in drawn["data"]] == list(saturation_picture.names(view, "en").values())
    tops = [max(row["y"]) for row in drawn["data"]]
    assert tops[1] > 0.8 > 0.3 > tops[0] > tops[2]  # no scaling, 1/√d_k, 1/d_k
    assert len([key for key in keys(app) if key.startswith("saturation.") and key.split(".")[1] in KNOBS]) == 11


@pytest.mark.parametrize("part", ["depth", "largest"])
def test_the_ends_of_the_data_types_are_named_beside_the_plot(part):
    layout = carried(show="limits", d_k="1024")[part]["layout"]
    names = {notice["text"]: notice for notice in layout["annotations"]}
    assert set(names) <= {"float16", "bfloat16", "float32"} and "float16" in names
    assert all((one["x"], one["xanchor"]) == (1, "left") for one in names.values())
    assert layout["margin"]["r"] >= 60


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("sizes", [{}, {"keys": "1024", "variance_q": "4"}, {"keys": "8", "variance_q": "16"}])
def test_a_dot_lies_above_the_line_of_its_dtype_where_weights_are_stored_as_0(sizes, dtype):
    """The stored weight is e^−gap / Σ, so that the sum of the row decides too."""
    figure = carried(show="limits", dtype=dtype, **sizes)["depth"]
    (end,) = (10 ** notice["y"] for notice in figure["layout"]["annotations"] if notice["text"] == dtype)
    dots = next(trace for trace in figure["data"] if trace["mode"] == "markers")
    heights, symbols = numbers(dots["y"]), np.broadcast_to(dots["marker"]["symbol"], len(numbers(dots["y"])))
    assert [height > end for height in heights] == (symbols == "circle-open").tolist()
    assert min(heights) < end < max(heights)


def test_the_largest_weight_of_many_keys_is_not_said_to_be_nothing():
    notes = [row["text"] for row in carried(keys="1024", d_k="1024")["strips"]["data"]]
    tops = [note.split()[1] for note in notes]
    expected = [row.top for row in rows(settle({"keys": "1024", "d_k": "1024"}).view).values()]
    assert tops[2] == "0.001" and all(
        float(top) == pytest.approx(one, rel=0.5) for top, one in zip(tops, expected, strict=True)
    )
    assert "over 1,024 keys" in saturation_picture.draw(settle({"keys": "1024"}).view, "en")["strips"].caption


def test_many_keys_share_bars_and_lose_no_peak():
    (strip, *_) = carried(keys="1024", d_k="512")["strips"]["data"]
    assert len(strip["y"]) == 256
    assert max(strip["y"]) == pytest.approx(rows(settle({"keys": "1024", "d_k": "512"}).view)["sqrt"].top)


def test_a_scaling_keeps_its_colour_everywhere():
    for show in LIVE:
        for part, figure in carried(show=show).items():
            names = {}
            for trace in figure["data"]:
                if part == "strips":
                    names[trace["name"]] = {f"theme-{trace['color']}"}
                elif trace["mode"] == "markers":
                    assert len(trace["text"]) == len(numbers(trace["x"])) == len(numbers(trace["y"]))
                    for name, colour in zip(trace["text"], trace["marker"]["color"], strict=True):
                        names.setdefault(name, set()).add(colour)
                else:
                    names.setdefault(trace["name"], set()).add(trace["line"]["color"])
            assert names.get("1/√d_k", {"theme-0"}) == {"theme-0"}, part
            assert names.get("QK-norm", {"theme-4"}) == {"theme-4"}, part


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_data_type_is_a_slider_of_names_and_the_seed_one_of_numbers(language):
    app = visit(language, page="saturation", dtype="bfloat16")
    sliders = {entry.key: json.loads(entry.proto.json) for entry in app.sidebar.get("bidi_component")}
    dtype, seed = sliders["saturation.dtype"], sliders["saturation.seed"]
    assert dtype["keys"] == dtype["names"] == ["float32", "bfloat16", "float16"]
    assert (dtype["value"], dtype["default"], dtype["low"], dtype["high"]) == (1, 0, 0, 2)
    assert (seed["keys"], seed["names"], seed["play"]) == (None, None, True)
    assert (seed["low"], seed["high"], seed["typed_high"]) == (0, 31, 2**31 - 16)


HOSTILE = {
    "d_k=2000": "d_k must be a whole number from 1 to 1,024, got '2000'.",
    "temperature=0": "temperature must be a number from 0.01 to 1000, got '0'.",
    "correlation=2": "correlation must be a number from -1 to 1, got '2'.",
    "dtype=int8": "dtype must be one of float32, bfloat16, float16, got 'int8'.",
    "samples=7": "samples must be one of 128, 512, 2048, got '7'.",
    "heads=4": "'heads' is not a setting of this page.",
    "seed=<b>": "seed must be a whole number",
}


@pytest.mark.parametrize("given", HOSTILE)
def test_a_bad_value_is_named_and_the_page_stays(given):
    name, value = given.split("=")
    app = visit(page="saturation", **{name: value})
    (warning,) = app.warning
    assert HOSTILE[given] in plain(warning.value)
    assert link(app) == {} and "saturation.strips" in plots(app)
    with pytest.raises(Refusal, match=re.escape(HOSTILE[given][:20])):
        frame({name: value})


@pytest.mark.parametrize(
    ("settings", "spans"),
    [
        ({}, {"no scaling": "d_k ≥ 2", "QK-norm": "d_k ≤ 8"}),
        ({"variance_q": "16", "variance_k": "16"}, {"no scaling": "every d_k", "1/d_k": "d_k ≤ 32"}),
    ],
)
def test_underflow_is_said_where_it_is(settings, spans):
    settings = {"dtype": "float16", **settings}
    (found,) = [
        line for line in said(visit(page="saturation", **settings)).splitlines() if "exactly 0 in float16" in line
    ]
    measured = curves(settle(settings).view)
    for name, span in spans.items():
        assert f"{name} ({span})" in found
        key = next(
            key for key, called in saturation_picture.names(settle(settings).view, "en").items() if called == name
        )
        where = measured.d_k[measured.values[key]["zeros"] > 0]
        ends = {"d_k ≥ 2": (2, 1024), "d_k ≤ 8": (1, 8), "d_k ≤ 32": (1, 32), "every d_k": (1, 1024)}[span]
        assert (where.min(), where.max()) == ends


@pytest.mark.parametrize(
    ("where", "span"),
    [("0110", "d_k 2–4"), ("0100", "d_k 2"), ("1011", "d_k 1, 4, 8"), ("1000", "d_k ≤ 1"), ("0001", "d_k ≥ 8")],
)
def test_a_span_has_its_ends_and_its_gaps(where, span):
    held = np.array([character == "1" for character in where])
    assert saturation_sections.span(np.array([1, 2, 4, 8]), held, "every") == span


@pytest.mark.parametrize("language", LANGUAGES)
def test_one_key_is_said_to_have_no_gradient(language):
    app = visit(language, page="saturation", keys="1", show="learning")
    assert say(language, "saturation.remark.one_key") in said(app)
    assert not curves(settle({"keys": "1", "show": "learning"}).view).values["sqrt"]["gradient"].any()


def test_where_nothing_can_be_said_nothing_is():
    app = visit(page="saturation", variance_q="100000", variance_k="100000", dtype="float16", d_k="1024")
    notes = [row["text"] for row in plots(app)["saturation.strips"]["data"]]
    assert notes[1] == "overflowed in float16: no weights" and notes[4].startswith("largest")
    assert "They are left out of the averages." in said(app)
    alone = visit(page="saturation", keys="1", variance_q="0")
    assert {row["text"] for row in plots(alone)["saturation.strips"]["data"]} == {"largest 1.00 · like 1.0 equal keys"}
    for show in LIVE:
        visit(page="saturation", keys="1", variance_q="0", show=show)


def test_the_code_on_the_page_is_that_of_its_view():
    app = visit(page="saturation", d_k="48", dtype="bfloat16")
    assert not app.code  # sent only while its section is open
    app.session_state["saturation.snippet"] = True
    check(app.run())
    assert app.code[0].value == code(settle({"d_k": "48", "dtype": "bfloat16"}).view).rstrip()
    assert (
        "d_k, keys, temperature, seed = 48, 64, 1.0, 4" in app.code[0].value and "torch.bfloat16" in app.code[0].value
    )


@pytest.mark.parametrize("show", ["collapse", "learning", "limits", "scores"])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"d_k": "256", "keys": "9", "dtype": "bfloat16", "temperature": "2"},
        {"correlation": "-0.4", "variance_k": "3", "power": "0.7", "seed": "5"},
        {"d_k": "512", "dtype": "float16", "variance_q": "1000", "variance_k": "1000"},
    ],
    ids=str,
)
def test_the_snippet_gives_the_page_s_rows_and_curves(settings, show, tmp_path, capsys):
    view = settle(settings | {"show": show}).view
    path = tmp_path / "view.py"
    path.write_text(code(view), encoding="utf-8")
    left = runpy.run_path(str(path))
    said = capsys.readouterr().out.splitlines()
    for ours, theirs in zip(rows(view).values(), left["weights"].values(), strict=True):
        np.testing.assert_allclose(theirs[0, 0].detach().float(), ours.weights, rtol=1e-5, atol=1e-7)
    names = list(left["scores"])
    assert len(said) == len(names) + (show == "scores")
    if show == "scores":
        for name, values in zip(("q k^T", *names), scores(view).values(), strict=True):
            finite = values[np.isfinite(values)]
            assert left["measured"][name]["standard deviation"] == pytest.approx(float(finite.std()), rel=1e-4)
            assert float((left["steps"][name].hist * left["steps"][name].bin_edges.diff()).sum()) == pytest.approx(1)
        return
    swept = curves(view)
    (place,) = np.flatnonzero(swept.d_k == view.d_k)
    for line, name, measured in zip(said, names, swept.values.values(), strict=True):
        assert line.lstrip().startswith(f"{name}: ")
        if measured["overflowed"][place] == 1.0:
            assert name not in left["measured"] and line.endswith("every row overflowed")
            continue
        found = left["measured"][name]
        shown = [field for field in measured if show == "limits" or field not in ("overflowed", "zeros")]
        assert set(found) == set(shown)
        for field, value in found.items():
            assert float(value) == pytest.approx(measured[field][place], rel=1e-4, abs=1e-6), field
            assert f"{field} {value:.4g}" in line


@pytest.mark.parametrize("settings", [{"d_k": "16"}, {"d_k": "5", "seed": "3", "rate": "0.5", "power": "0.7"}], ids=str)
def test_the_snippet_of_the_training_is_the_page_s_training(settings, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("pages.ui.saturation_sections.STEPS", 12)
    view = settle(settings | {"show": "training"}).view
    path = tmp_path / "training.py"
    path.write_text(code(view), encoding="utf-8")
    losses = runpy.run_path(str(path))["losses"]
    race = Race(d_k=view.d_k, power=view.power, rate=view.rate, seed=view.seed)
    for _ in range(12):
        race.step()
    for line, theirs, ours in zip(
        capsys.readouterr().out.splitlines(), losses.values(), race.shown.values(), strict=True
    ):
        assert theirs == pytest.approx([step.loss for step in ours], rel=1e-3)
        assert f"loss {theirs[-1]:.3f}, {100 * ours[-1].right:.0f} % right at step 12" in line


# ---- distributions ----


@pytest.mark.parametrize("d_k", ["64", "1024"])
def test_a_narrow_distribution_is_drawn_as_high_as_it_is(d_k):
    settings = {"show": "scores", "d_k": d_k, "samples": "512"}
    traces = carried(**settings)["scaled"]["data"]
    for name in ("1/√d_k", "1/d_k"):
        steps, bell = (trace for trace in traces if trace["name"] == name)
        assert max(numbers(steps["y"])) == pytest.approx(max(numbers(bell["y"])), rel=0.1), name
        x, y = numbers(steps["x"]), numbers(steps["y"])
        assert sum(y) * (x[1] - x[0]) == pytest.approx(1.0, abs=0.01)
        assert y[0] == y[-1] == 0.0


@pytest.mark.parametrize(("d_k", "correlation"), [("64", "1"), ("1024", "0.6")])
def test_the_scores_of_a_query_with_its_own_key_are_in_the_picture(d_k, correlation):
    raw = carried(show="scores", d_k=d_k, correlation=correlation, keys="64")["raw"]
    steps, _ = raw["data"]
    mean, spread = float(correlation) * int(d_k), (int(d_k) * (1 + float(correlation) ** 2)) ** 0.5
    assert raw["layout"]["xaxis"]["range"][1] >= mean + 4 * spread
    x, y = (np.array(numbers(steps[axis])) for axis in "xy")
    near = np.abs(x - mean) < 2 * spread
    assert (y[near] > 0).any() and y.sum() * (x[1] - x[0]) == pytest.approx(1.0, abs=0.01)
    # One key among 64 stands 64 times as low: the axis begins below it.
    low, high = (10.0**end for end in raw["layout"]["yaxis"]["range"])
    assert raw["layout"]["yaxis"]["type"] == "log" and low < 1 / 64 / (spread * 2.51) < high
    assert raw["layout"]["meta"]["caption"].endswith("density on a logarithmic scale")


def test_a_narrow_peak_does_not_flatten_the_usual_scaling():
    def top(d_k: str) -> list[float] | None:
        return carried(show="scores", d_k=d_k)["scaled"]["layout"]["yaxis"].get("range")

    usual = (2 * np.pi) ** -0.5
    assert top("4") is None
    assert top("1024") == [0, pytest.approx(4.4 * usual, rel=0.05)]
    assert carried(show="scores", variance_q="0")["scaled"]["layout"]["yaxis"].get("range") is None


# ---- training ----


def start(app):
    app.button(key="saturation.start").click()
    return check(app.run())


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_training_runs_in_short_turns_stops_and_goes_on(language, monkeypatch):
    monkeypatch.setattr(training, "STEPS", 60)
    monkeypatch.setattr(training, "CHUNK_S", 0.05)
    app = visit(language, page="saturation", show="training", d_k="8")
    assert say(language, "saturation.training.hint") in said(app)
    assert app.button(key="saturation.stop").disabled
    start(app)
    held = app.session_state["saturation.race"]
    assert held.running and 0 < held.race.steps < 60
    assert {"saturation.loss", "saturation.gradient"} <= set(plots(app))
    app.button(key="saturation.stop").click()
    check(app.run())
    stopped = app.session_state["saturation.race"]
    assert not stopped.running and stopped.race.steps >= held.race.steps
    steps = stopped.race.steps
    check(app.run())
    assert app.session_state["saturation.race"].race.steps == steps
    start(app)
    for _ in range(100):
        if not app.session_state["saturation.race"].running:
            break
        check(app.run())
    done = app.session_state["saturation.race"]
    assert done.race is held.race and done.race.steps == 60 and not done.running
    assert app.button(key="saturation.start").label == say(language, "saturation.training.start")
    curve = plots(app)["saturation.loss"]["data"]
    assert [trace["name"] for trace in curve] == list(saturation_picture.names(settle({}).view, language).values())
    assert numbers(curve[0]["y"]) == [step.loss for step in done.race.shown["sqrt"]]
    start(app)  # a race that is over begins anew
    assert app.session_state["saturation.race"].race is not done.race


def test_the_words_are_the_runs_own():
    app = start(visit(page="saturation", show="training", d_k="8"))
    race = app.session_state["saturation.race"].race
    (words,) = [entry.value for entry in app.markdown if "This run" in entry.value]
    losses = {key: np.mean([step.loss for step in race.shown[key][-20:]]) for key in SCALINGS}
    lines = words.splitlines()[1:]
    names = saturation_picture.names(settle({}).view, "en")
    assert [line.split(":")[0].removeprefix("- ") for line in lines] == [
        names[key] for key in sorted(losses, key=lambda key: losses[key])
    ]
    assert f"loss {min(losses.values()):.3f}" in lines[0]


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_trained_queries_and_keys_are_looked_at(language, monkeypatch):
    monkeypatch.setattr(training, "STEPS", 5)
    app = start(visit(language, page="saturation", show="training", d_k="8"))
    race = app.session_state["saturation.race"].race
    assert race.steps == 5
    head = say(language, "saturation.training.heads.cosine")
    (table,) = [entry.value for entry in app.markdown if head in entry.value]
    names = saturation_picture.names(settle({}).view, language)
    for line, (key, now) in zip(table.splitlines()[2:], race.heads().items(), strict=True):
        cells = [cell.strip() for cell in line.strip("|").replace("−", "-").split("|")]
        assert cells[0] == names[key].replace("−", "-")
        assert cells[1:] == [f"{a:.2f} → **{b:.2f}**" for a, b in zip(race.first[key], now, strict=True)]


def test_another_setting_is_another_race():
    app = start(visit(page="saturation", show="training", d_k="8"))
    app.session_state["settings.saturation"] |= {"seed": "1"}
    check(app.run())
    assert say("en", "saturation.training.hint") in said(app)


@pytest.mark.parametrize("language", LANGUAGES)
def test_what_does_not_enter_the_training_is_said_and_keeps_it(language):
    app = start(visit(language, page="saturation", show="training", d_k="8"))
    assert say(language, "saturation.training.unused") in said(app)
    race = app.session_state["saturation.race"].race
    for name, value in {"keys": "8", "temperature": "2", "variance_q": "3", "variance_k": "2", "correlation": "0.5",
                        "dtype": "float16", "samples": "512"}.items():  # fmt: skip
        app.session_state["settings.saturation"] |= {name: value}
    check(app.run())
    assert link(app)["correlation"] == "0.5" and app.session_state["saturation.race"].race is race
    assert say(language, "saturation.training.hint") not in said(app)


def test_a_training_that_runs_away_says_so_and_leaves_the_axis():
    app = start(visit(page="saturation", show="training", d_k="16", rate="100"))
    app.button(key="saturation.stop").click()
    check(app.run())
    race = app.session_state["saturation.race"].race
    while race.steps < 40:
        race.step()
    check(app.run())
    (words,) = [entry.value for entry in app.markdown if "This run" in entry.value]
    lost = {key: [not np.isfinite(step.loss) for step in steps] for key, steps in race.shown.items()}
    assert any(map(any, lost.values()))
    for key, name in saturation_picture.names(settle({}).view, "en").items():
        (line,) = [line for line in words.splitlines() if line.startswith(f"- {name}:")]
        if any(lost[key]):
            assert f"from step {lost[key].index(True) + 1} on" in line and "right" not in line
        else:
            assert "right" in line
    assert "nan" not in words
    assert plots(app)["saturation.loss"]["layout"]["yaxis"]["range"] == [0, pytest.approx(3 * np.log(16))]
