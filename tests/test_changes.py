"""Position encodings and score modifications in a view: each stage, each backend, the arithmetic, and what settles."""

import itertools

import numpy as np
import pytest
import torch

from attnviz.arithmetic import cell
from attnviz.backends import BACKENDS
from attnviz.census import census
from attnviz.masks import MASKS
from attnviz.positions import POSITIONS
from attnviz.score_mods import SCORE_MODS
from attnviz.stage_list import STAGES
from attnviz.stages import fused, rows_of
from attnviz.text import LANGUAGES
from attnviz.view import settle
from attnviz.view_run import make_call as call_of
from attnviz.view_run import run
from pages.ui import attention_picture
from pages.ui.heatmap.frame import unpack
from tests.pages import go, link, plain, said, visit, widgets
from tests.reference import cut, make_call, wholes

SETTINGS = {"softcap": {"cap": 0.7}, "temperature": {"temperature": 0.4}, "t5_bias": {"buckets": 6, "max_distance": 5}}
MODS = {key: SCORE_MODS[key].build(**SETTINGS.get(key, {})) for key in SCORE_MODS if key != "none"}


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(11)


@pytest.mark.parametrize("key", MODS)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("mask", ["full", "causal", "padding"])
@pytest.mark.parametrize("align", ["top_left", "bottom_right"])
def test_every_stage_of_a_block_is_what_the_loops_give(key, backend, mask, align):
    rule = MASKS[mask].build(**({"lengths": (6,)} if mask == "padding" else {}))
    call = make_call(7, 9, 4, 2, mask=rule, align=align, backend=backend, score_mod=MODS[key])
    ran, want = fused(call), wholes(call)
    tolerance = 1e-12 if ran is None and MODS[key].bias is None else 2e-6
    for heads, (start, stop) in itertools.product(((0, 1, 2, 3), (3, 1)), ((0, 7), (2, 5))):
        rows = rows_of(call, heads, start, stop, ran)
        for stage in ("scores", "scaled", "change", "changed", "weights", "output"):
            part = cut(want[stage], heads, (start, stop), (0, None))
            np.testing.assert_allclose(rows.stage(stage)[0].numpy(), part.values, rtol=0, atol=tolerance, err_msg=stage)


@pytest.mark.parametrize("key", MODS)
@pytest.mark.parametrize("backend", ["sdpa", "flash"])
@pytest.mark.parametrize("mask", ["full", "causal", "sliding_window", "document"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_the_map_is_the_one_that_a_fused_kernel_used(key, backend, mask, dtype):
    own = {name: str(value) for name, value in SETTINGS.get(key, {}).items()}
    view = settle(
        {"length": "300", "heads": "4", "kv_heads": "2", "d_k": "16", "mask": mask, "backend": backend, "dtype": dtype,
         "score_mod": key, "position": "rope"} | own
    ).view  # fmt: skip
    call, ran = run(view)
    counted = census(call, ran)
    assert counted.difference is not None
    assert counted.difference < {"float32": 5e-6, "float16": 1e-2, "bfloat16": 8e-2}[dtype]
    assert counted.not_finite == 0


@pytest.mark.parametrize("key", MODS)
def test_a_bias_in_rows_of_any_size_is_the_same(key, monkeypatch):
    call = make_call(40, 50, 4, 2, mask=MASKS["causal"].build(), score_mod=MODS[key], backend="sdpa")
    whole = fused(call)
    monkeypatch.setattr("attnviz.backends.sdpa_memory._BLOCK_CELLS", 4 * 50 * 3)
    parts = fused(call)
    assert whole is not None and parts is not None
    torch.testing.assert_close(parts.output, whole.output)
    torch.testing.assert_close(parts.logsumexp, whole.logsumexp)


@pytest.mark.parametrize("align", ["top_left", "bottom_right"])
@pytest.mark.parametrize("position", ["rope", "sinusoidal"])
def test_a_query_stands_where_the_alignment_puts_it(position, align):
    given = {"attention": "cross", "length": "4", "key_length": "9", "d_k": "8", "align": align, "mask": "full"}
    bare, call = (call_of(settle(given | more).view) for more in ({}, {"position": position}))
    encoding, start = POSITIONS[position].build(), 5 if align == "bottom_right" else 0
    if position == "rope":
        assert call.unturned is not None
        assert torch.equal(call.unturned[0], bare.query) and torch.equal(call.unturned[1], bare.key)
        for place in range(4):
            turned = encoding.turn(bare.query[:, :, place : place + 1], start + place)
            torch.testing.assert_close(call.query[:, :, place : place + 1], turned)
        torch.testing.assert_close(call.key[:, :, 8:], encoding.turn(bare.key[:, :, 8:], 8))
        assert torch.equal(call.value, bare.value)
    else:
        assert call.unturned is None and call.waves is not None
        torch.testing.assert_close(call.waves, encoding.add(torch.zeros(4, 256), start))
        assert not torch.equal(call.query, bare.query) and not torch.equal(call.value, bare.value)


def test_with_rope_equal_tokens_at_equal_distance_have_equal_scores():
    given = {"text": "a a a a a a", "position": "rope", "stage": "scores", "heads": "1"}
    scores = (call := call_of(settle(given).view)).query[0, 0] @ call.key[0, 0].T
    for shift in range(-5, 6):
        line = scores.diagonal(shift)
        torch.testing.assert_close(line, line[:1].expand_as(line), rtol=0, atol=1e-4)
    assert scores[0].std() > 0.1


CHANGED = [
    {"position": "rope", "score_mod": "alibi"},
    {"position": "sinusoidal", "score_mod": "softcap", "cap": "1.5"},
    {"position": "rope", "layout": "interleaved", "score_mod": "temperature", "temperature": "0.5", "backend": "flash"},
    {
        "position": "sinusoidal",
        "attention": "cross",
        "score_mod": "t5_bias",
        "backend": "sdpa",
        "align": "bottom_right",
    },
]


@pytest.mark.parametrize("given", CHANGED)
def test_the_strip_and_the_large_picture_show_every_stage(given):
    given = {"length": "7", "heads": "4", "kv_heads": "2", "d_k": "8", "cell": "2,1"} | given
    view = settle(given).view
    want = wholes(call_of(view))
    header, codes = unpack(attention_picture.frame(given))
    maps = header["parts"]["stages"]["maps"]
    assert [described["key"] for described in maps] == list(view.stages)
    assert set(view.stages) > {"change", "changed"}
    for described, code, stage in zip(maps, codes["stages"], view.stages, strict=True):
        part = cut(want[stage], (0 if stage == "waves" else 2,), (0, None), (0, None))
        values, counts = part.values[0], part.counts[0]
        step = (described["high"] - described["low"]) / 65000
        read = described["low"] + code.astype(float) / 65530 * (described["high"] - described["low"])
        if described["pool"] == [1, 1]:
            np.testing.assert_allclose(read[counts], values[counts], rtol=0, atol=step * 40 + 1e-4, err_msg=stage)
    for stage in view.stages:
        answer = attention_picture.cell(given | {"part": "stages", "map": stage, "row": "5", "col": "3"})
        assert answer["state"] == (0 if want[stage].counts[2 if stage != "waves" else 0, 5, 3] else 1)
        if answer["state"] == 0:
            shown = want[stage].values[0 if stage == "waves" else 2, 5, 3]
            assert float(str(answer["value"])) == pytest.approx(shown, abs=1e-5)


def test_stages_that_are_not_there_are_named_and_fall_back():
    settled = settle({"stage": "change"})
    assert settled.view.stage == "weights" and "stage change is not part" in settled.notes[0].en
    assert settle({"stage": "change", "score_mod": "softcap"}).view.stage == "change"
    assert not settle({"stage": "waves", "position": "sinusoidal"}).notes
    assert settle({}).view.stages == ("query", "key", "scores", "scaled", "masked", "weights", "value", "output")
    assert {stage.only for stage in STAGES.values()} == {None, "waves", "turn", "change"}


def test_the_worked_example_has_no_token_vectors_to_add_waves_to():
    settled = settle({"input": "worked", "position": "sinusoidal", "base": "20"})
    assert settled.view.position == "none" and "token vectors" in settled.notes[0].en
    assert settle(settled.link()).view == settled.view
    assert settle({"input": "worked", "position": "rope"}).view.position == "rope"


@pytest.mark.parametrize("given", CHANGED)
def test_the_arithmetic_goes_through_every_change(given):
    view = settle({"length": "7", "heads": "4", "kv_heads": "2", "d_k": "8"} | given).view
    call, ran = run(view)
    want = wholes(call)
    for head, query, key in ((0, 3, 2), (3, 5, 0), (2, 2, 5)):
        got = cell(call, head, query, key, ran)
        assert got.scaled == pytest.approx(want["scaled"].values[head, query, key], abs=1e-6)
        assert got.final == pytest.approx(want["changed"].values[head, query, key], abs=1e-6)
        assert got.share == pytest.approx(want["weights"].values[head, query, key], abs=1e-6)
        assert got.drawn.scaled == pytest.approx(got.final, abs=1e-5)
        assert [term.total for term in got.output] == pytest.approx(want["output"].values[head, query, :4], abs=1e-5)
        (change,) = got.changes
        assert (
            change.kind
            == {"alibi": "bias", "t5_bias": "bias", "softcap": "cap", "temperature": "factor"}[view.score_mod]
        )
        if call.unturned is not None:
            before = [tuple(map(float, pair)) for pair in zip(
                call.unturned[0][0, head, query], call.unturned[1][0, head // 2, key], strict=True)]  # fmt: skip
            assert [product.unturned for product in got.products] == before


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("given", CHANGED)
def test_the_page_offers_the_knobs_and_shows_the_steps(given, language):
    app = visit(**given, cell="1,3,2", lang=language)
    assert link(app) == given | {"cell": "1,3,2"}
    steps = {"alibi": "+ bias", "t5_bias": "+ bias", "softcap": "soft cap", "temperature": "÷ temperature"}
    if language == "en":
        assert steps[given["score_mod"]] in said(app)
        assert ("q' and k'" in said(app).replace("′", "'")) == (given["position"] == "rope")
    assert plain(POSITIONS[given["position"]].help.say(language)) in plain(said(app))
    assert plain(SCORE_MODS[given["score_mod"]].help.say(language)) in plain(said(app))
    assert widgets(app)["attention.position"] == given["position"]
    go(app, {})
    assert not {"attention.layout", "attention.base"} & set(widgets(app))
