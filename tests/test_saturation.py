"""Saturation: golden values, theory beside measurement, autograd beside loops, the ends of each dtype, the training."""

import itertools
import math

import numpy as np
import pytest
import torch

from attnviz import saturation
from attnviz import saturation_view as views
from attnviz.figures import saturation as figures
from attnviz.saturation import SCALINGS, groups_for, jacobian_norm, measure, normal_source, scaled_scores, sweep, theory
from attnviz.saturation.training import BATCH, CLASSES, PAIRS, UNSEEN, Race, episodes
from attnviz.saturation_view import settle

ONE = {"power": 0.25, "temperature": 1.0, "seed": 0}
PLAIN = {"variance_q": 1.0, "variance_k": 1.0, "correlation": 0.0, "power": 0.25, "temperature": 1.0}
GOLDEN = {16: 0.748, 64: 0.875, 256: 0.937, 1024: 0.969}


@pytest.mark.parametrize("d_k", GOLDEN)
def test_golden_spread_and_top_weight(d_k):
    tops: dict[str, list[float]] = {"none": [], "sqrt": []}
    for seed in range(6):  # of 256 sets of 8 keys each
        query, key = normal_source(groups=256, queries=16, keys=8, seed=seed)(d_k)
        for name, spread in (("none", d_k**0.5), ("sqrt", 1.0)):
            point = measure(query, key, SCALINGS, **ONE)[name]
            assert point.spread == pytest.approx(spread, rel=0.02)
            tops[name].append(point.top)
    assert np.mean(tops["none"]) == pytest.approx(GOLDEN[d_k], abs=0.005)
    assert 0.353 < np.mean(tops["sqrt"]) < 0.363


def test_a_larger_d_k_adds_dimensions_to_the_same_vectors():
    source = normal_source(groups=2, queries=3, keys=5, seed=4)
    (query, key), (longer, keys) = source(7), source(1024)
    assert query.shape == (2, 3, 7) and key.shape == (2, 5, 7)
    assert (longer[..., :7] == query).all() and (keys[..., :7] == key).all()


def test_variance_and_correlation_are_what_they_say():
    source = normal_source(groups=64, queries=16, keys=8, variance_q=4.0, variance_k=9.0, correlation=-0.5, seed=1)
    query, key = source(1024)
    assert float(query.var()) == pytest.approx(4, rel=0.02) and float(key.var()) == pytest.approx(9, rel=0.02)
    pairs = (query[:, :, None] * key[:, None]).mean(-1).mean(0) / 6
    own = torch.zeros(16, 8, dtype=torch.bool)
    own[torch.arange(16), torch.arange(16) % 8] = True
    assert float(pairs[own].mean()) == pytest.approx(-0.5, abs=0.01)
    assert float(pairs[~own].mean()) == pytest.approx(0, abs=0.01)


@pytest.mark.parametrize("correlation", [0.0, 0.6, -0.3])
@pytest.mark.parametrize("scaling", SCALINGS)
def test_the_spread_is_the_predicted_one(scaling, correlation):
    sizes = {"variance_q": 2.0, "variance_k": 0.5, "correlation": correlation}
    predicted = theory.spread(SCALINGS[scaling], [64], keys=8, power=0.3, temperature=2.0, **sizes)
    if scaling == "qk_norm" and correlation:
        assert predicted is None
        return
    assert predicted is not None
    query, key = normal_source(groups=256, queries=16, keys=8, seed=2, **sizes)(64)
    point = measure(query, key, SCALINGS, power=0.3, temperature=2.0, seed=0)[scaling]
    assert point.spread == pytest.approx(predicted[0], rel=0.02)


def test_the_spread_of_a_query_that_is_its_own_key():
    """The squared length of a vector of d_k normal numbers has variance 2 d_k."""
    predicted = theory.spread(SCALINGS["none"], [50], **PLAIN | {"keys": 1, "correlation": 1.0})
    assert predicted is not None and predicted[0] == pytest.approx(10)


def test_every_number_of_a_point_by_hand():
    query, key = normal_source(groups=2, queries=3, keys=4, seed=3)(5)
    scaling = SCALINGS["custom"]
    point = measure(query, key, {"one": scaling}, power=0.25, temperature=2.0, seed=9)["one"]
    scores = np.einsum("gqd,gkd->gqk", query.double(), key.double()).reshape(6, 4) * 5**-0.25 / 2
    weights = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    entropy = -(weights * np.log(weights)).sum(1)
    arriving = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(10)).double().numpy().reshape(6, 4)
    lengths, norms = [], []
    for row in range(6):
        jacobian = np.diag(weights[row]) - np.outer(weights[row], weights[row])
        norms.append(np.linalg.norm(jacobian))
        lengths.append(np.linalg.norm(5**-0.25 / 2 * (jacobian @ arriving[row]) @ key[row // 3].double().numpy()))
    want = {
        "spread": scores.std(), "top": weights.max(1).mean(), "entropy": entropy.mean(),
        "effective": np.exp(entropy).mean(), "gradient": np.sort(lengths)[2], "gradient_mean": np.mean(lengths),
        "jacobian": np.mean(norms), "depth": np.sort(-np.log(weights).ravel())[11],
        "depth_most": -np.log(weights.min()),
        "largest": np.abs(scores).max(), "overflowed": 0.0, "zeros": 0.0,
    }  # fmt: skip
    assert point._asdict() == pytest.approx(want, rel=1e-5)


def test_the_jacobian_is_autograds_and_does_not_cancel():
    scores = torch.randn(7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for sharp in (0.1, 1.0, 5.0):
        jacobian = torch.autograd.functional.jacobian(lambda x: torch.softmax(x, 0), scores * sharp)
        assert float(jacobian_norm(torch.softmax(scores * sharp, 0))) == pytest.approx(float(torch.norm(jacobian)))
    assert float(jacobian_norm(torch.tensor([1.0, 0.0, 0.0]))) == 0
    assert torch.isfinite(jacobian_norm(torch.softmax(torch.randn(512, 64) * 30, -1))).all()
    assert float(jacobian_norm(torch.tensor([0.5, 0.5]))) == pytest.approx(0.5)


@pytest.mark.parametrize("fields", [("top", "overflowed"), ("gradient",), ("largest", "depth", "zeros")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_fields_asked_for_alone_are_those_of_the_whole(fields, dtype):
    source = normal_source(groups=2, queries=8, keys=16, variance_q=40.0, variance_k=40.0)
    whole = sweep(source, d_ks=(1, 64, 1024), dtype=dtype)
    alone = sweep(source, d_ks=(1, 64, 1024), dtype=dtype, fields=fields)
    for name, values in alone.values.items():
        assert tuple(values) == fields
        for field in fields:
            np.testing.assert_array_equal(values[field], whole.values[name][field])


def test_without_scaling_the_typical_gradient_goes_and_the_mean_does_not():
    swept = sweep(normal_source(groups=64, queries=16, keys=64), d_ks=(16, 1024))
    none, scaled = swept.values["none"], swept.values["sqrt"]
    assert none["gradient"][1] < 0.02 * none["gradient"][0]
    assert none["gradient_mean"][1] > none["gradient_mean"][0]
    assert scaled["gradient"][1] == pytest.approx(scaled["gradient"][0], rel=0.1)


@pytest.mark.parametrize("field", ["spread", "top", "entropy", "effective", "jacobian", "gradient"])
def test_the_lines_of_theory_meet_the_dots(field):
    show = "collapse" if field in ("spread", "top", "effective") else "learning"
    view = settle({"samples": "2048", "keys": "32", "variance_k": "2", "show": show}).view
    swept = views.curves(view)
    for scaling in SCALINGS:
        line = views.expected(view, scaling, field)
        assert line is not None
        # Sums of few products are not normal; those of many are.
        wide = swept.d_k >= 64
        dots = swept.values[scaling][field]
        # Where the median gradient falls by orders of magnitude, it is a matter of orders.
        if field == "gradient":
            strong = wide & (line > 0.05)
            np.testing.assert_allclose(np.log(dots[strong]), np.log(line[strong]), atol=0.4)
        else:
            np.testing.assert_allclose(dots[wide], line[wide], rtol=0.08, atol=0.01)


def test_cosines_have_their_line_in_few_dimensions_too():
    """There they are not normal: of one dimension they are 1 or -1."""
    view = settle({"samples": "2048", "keys": "32"}).view
    for field in ("spread", "top", "effective"):
        line = views.expected(view, "qk_norm", field)
        np.testing.assert_allclose(line, views.curves(view).values["qk_norm"][field], rtol=0.08, err_msg=field)


def test_a_query_of_no_length_has_no_direction_and_no_line():
    view = settle({"variance_q": "0", "show": "learning"}).view
    assert views.expected(view, "qk_norm", "gradient") is None
    assert views.expected(view, "sqrt", "gradient") is not None
    values = views.curves(view).values
    assert np.isnan(values["qk_norm"]["gradient"]).all() and (values["sqrt"]["gradient"] > 0).all()


def test_a_line_on_a_logarithmic_axis_begins_above_nothing():
    line, dots = np.array([0.0, 0.5]), {"a": np.array([0.1, 0.5])}
    for log, first in ((True, np.nan), (False, 0.0)):
        figure = figures.curve(np.array([1, 2]), dots, {"a": line}, names={"a": "A"}, x_title="d_k", now=1, log=log)
        np.testing.assert_equal(figure["data"][0]["y"], [first, 0.5])


@pytest.mark.parametrize(("keys", "correlation"), [("8", "-0.8"), ("64", "0.5"), ("64", "1")])
def test_the_lines_of_correlated_queries_meet_the_dots_at_every_d_k(keys, correlation):
    given = {"keys": keys, "correlation": correlation, "variance_k": "2", "samples": "2048"}
    for show, fields in (("collapse", ("spread", "top", "effective")), ("learning", ("entropy", "jacobian"))):
        view = settle(given | {"show": show}).view
        swept = views.curves(view)
        for scaling, field in itertools.product(SCALINGS, fields):
            line, dots = views.expected(view, scaling, field), swept.values[scaling][field]
            assert line is not None and np.isfinite(line).all()
            np.testing.assert_allclose(line[1:], dots[1:], rtol=0.09, atol=0.015, err_msg=f"{scaling} {field}")
        if show == "learning":
            for scaling in SCALINGS:
                line, dots = views.expected(view, scaling, "gradient"), swept.values[scaling]["gradient"]
                # The median of a gradient that falls by orders of magnitude is a matter of orders.
                strong = (dots > 0.3 * dots.max()) & (swept.d_k >= 4)
                np.testing.assert_allclose(line[strong], dots[strong], rtol=0.25, err_msg=scaling)


def test_lines_of_correlated_queries_go_over_into_those_of_strangers():
    """Where the correlation is nearly none, two ways to the same line meet."""
    near, none = (settle({"correlation": text, "keys": "16"}).view for text in ("0.001", "0"))
    for scaling, field in itertools.product(("sqrt", "linear", "qk_norm"), ("top", "effective")):
        lines = [views.expected(view, scaling, field)[6:] for view in (near, none)]
        np.testing.assert_allclose(*lines, rtol=0.05)


def test_correlated_queries_of_no_length_have_no_cosine():
    view = settle({"correlation": "0.5", "variance_k": "0"}).view
    assert views.expected(view, "qk_norm", "top") is None
    np.testing.assert_allclose(views.expected(view, "none", "top"), 1 / 64)


def test_the_score_of_a_query_s_own_key_grows_like_d_k():
    """What 1/d_k keeps: https://arxiv.org/abs/2203.03466."""
    for d_k in (64, 1024):
        query, key = normal_source(groups=64, queries=8, keys=8, correlation=0.5, seed=0)(d_k)
        own = scaled_scores(query, key, SCALINGS["linear"], power=0.0, temperature=1.0).diagonal(dim1=1, dim2=2)
        assert float(own.mean()) == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_the_ends_of_a_dtype_are_where_theory_says(dtype):
    end, kind = theory.underflow(dtype), getattr(torch, dtype)
    for side, dead in ((0.99, False), (1.02, True)):
        weights = torch.softmax(torch.tensor([0.0, -end * side]).to(kind), -1)
        assert (float(weights[1]) == 0) == dead
    top = theory.overflow(dtype)
    assert torch.isfinite(torch.tensor(top).to(kind)) and torch.isinf(
        torch.tensor(1.01 * top, dtype=torch.float64).to(kind)
    )


def test_rows_that_overflow_are_counted_and_left_out():
    source = normal_source(groups=2, queries=8, keys=8, variance_q=60_000.0, variance_k=60_000.0)
    swept = sweep(source, d_ks=(1, 64, 1024), dtype=torch.float16)
    lost = swept.values["none"]["overflowed"]
    assert lost[0] < 1 and lost[-1] == 1
    assert np.isfinite(swept.values["none"]["top"][0]) and np.isnan(swept.values["none"]["top"][-1])
    assert (sweep(source, d_ks=(1024,), dtype=torch.bfloat16).values["none"]["overflowed"] == 0).all()
    assert (swept.values["qk_norm"]["overflowed"] == 0).all()


@pytest.mark.parametrize("variance", ["0", "100000"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_extreme_settings_give_curves(variance, dtype):
    view = settle({"variance_q": variance, "variance_k": variance, "dtype": dtype, "keys": "1"}).view
    assert np.isfinite(views.curves(view).values["qk_norm"]["top"]).all()
    assert set(views.rows(view)) == set(SCALINGS)


@pytest.mark.parametrize(("rows", "keys"), [(128, 64), (2048, 64), (2048, 1024), (1, 1), (15, 3)])
def test_groups_hold_about_the_rows_asked_for(rows, keys):
    groups, queries = groups_for(rows, keys)
    assert rows / 2 < groups * queries <= max(rows, 1)
    assert groups * (queries + keys) * 1024 <= saturation.sources.MOST_ENTRIES * 1.1


def test_the_page_takes_queries_and_keys_from_any_source():
    def trained(d_k):
        return torch.eye(d_k)[None, :4], 3 * torch.eye(d_k)[None, :5]

    swept = sweep(trained, d_ks=(8,))
    assert swept.values["none"]["largest"] == 3
    assert swept.values["none"]["top"] == pytest.approx(math.e**3 / (math.e**3 + 4))


# ---- training ----


def test_an_episode_asks_for_one_of_its_names():
    batch = episodes(3, 7)
    assert batch.names.shape == batch.things.shape == (BATCH, PAIRS)
    assert all(len(set(row.tolist())) == PAIRS for row in batch.names)
    places = [batch.names[row].tolist().index(int(batch.asked[row])) for row in range(BATCH)]
    assert [int(batch.things[row, place]) for row, place in enumerate(places)] == batch.answers.tolist()
    assert len(set(places)) > PAIRS / 2
    assert all((one == other).all() for one, other in zip(batch, episodes(3, 7), strict=True))
    assert not (batch.names == episodes(3, 8).names).all()


def test_the_race_starts_level_learns_and_can_be_repeated():
    races = [Race(d_k=16, power=0.25, rate=1.0, seed=0) for _ in range(2)]
    for race in races:
        for _ in range(120):
            race.step()
    race, again = races
    assert race.steps == 120 and race.shown == again.shown
    first = {key: steps[0].loss for key, steps in race.shown.items()}
    assert all(loss == pytest.approx(math.log(CLASSES), abs=0.15) for loss in first.values())
    assert race.shown["sqrt"][-1].loss < 0.5 and race.shown["sqrt"][-1].right > 0.9
    assert race.shown["linear"][-1].loss > race.shown["sqrt"][-1].loss


def test_what_training_makes_of_queries_and_keys_by_hand():
    race = Race(d_k=16, power=0.25, rate=1.0, seed=0)
    for _ in range(120):
        race.step()
    batch, layers = episodes(0, UNSEEN), race._layers
    places = [batch.names[row].tolist().index(int(batch.asked[row])) for row in range(BATCH)]
    for key, found in race.heads().items():
        query, keys = (tensor.detach().double().numpy() for tensor in layers[key].vectors(batch))
        lengths = np.linalg.norm(query, axis=-1) * np.linalg.norm(keys, axis=-1)
        products = np.einsum("bqd,bkd->bk", query, keys)
        factor = SCALINGS[key].factor(16, PAIRS, 0.25)
        scores = factor * (products / lengths if key == "qk_norm" else products)
        weights = np.exp(scores - scores.max(1, keepdims=True))
        weights /= weights.sum(1, keepdims=True)
        rows = np.arange(BATCH)
        want = (scores.std(), weights.max(1).mean(), weights[rows, places].mean(),
                (products / lengths)[rows, places].mean())  # fmt: skip
        assert found == pytest.approx(want, rel=1e-4), key
    fresh = Race(d_k=16, power=0.25, rate=1.0, seed=0)
    assert race.first == fresh.heads() == fresh.first
    # A query comes to look like its own key, as the slider of the correlation assumes.
    assert abs(race.first["sqrt"].cosine) < 0.15 and race.heads()["sqrt"].cosine > 0.5
    assert race.heads()["sqrt"].own > 0.8 > 0.2 > race.first["sqrt"].own


def test_the_powers_one_half_and_zero_are_the_scalings_of_the_same_name():
    for power, same in ((0.5, "sqrt"), (0.0, "none")):
        race = Race(d_k=16, power=power, rate=1.0, seed=1)
        for _ in range(5):
            race.step()
        for one, other in zip(race.shown["custom"], race.shown[same], strict=True):
            assert one == pytest.approx(other, rel=1e-4)


def test_the_first_gradient_is_the_slope_of_the_loss():
    """Against a difference quotient along the gradient itself."""
    from attnviz.saturation.training import Layer

    layer = Layer(SCALINGS["sqrt"], d_k=8, power=0.25, rate=0.0, seed=0)
    batch = episodes(0, 0)
    shown = layer.step(batch)
    assert shown == layer.step(batch)  # a rate of 0 changes nothing
    tiny = 0.05
    moved = Layer(SCALINGS["sqrt"], d_k=8, power=0.25, rate=tiny, seed=0)
    moved.step(batch)
    fall = shown.loss - moved.step(batch).loss
    assert fall > tiny * shown.gradient**2 * 0.5


def test_more_samples_give_way_to_more_keys_with_a_note():
    assert settle({"samples": "2048", "keys": "64"}).view.samples == "2048"
    settled = settle({"samples": "2048", "keys": "65"})
    assert settled.view.samples == "512"
    assert settled.link()["samples"] == "512"
    (note,) = settled.notes
    assert note.en == "samples was 2048, which takes too long with 65 keys; using 512."
    assert settle({"samples": "512", "keys": "1024"}).view.samples == "128"
    assert not settle({"keys": "1024"}).notes
