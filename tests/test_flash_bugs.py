"""The riddle of the flash page, its code to take home, and the claims: each held to what is really computed."""

import inspect
import itertools
import math
import re
import runpy
import sys

import numpy as np
import pytest
import torch

from attnviz.flash_view import bugs
from attnviz.flash_view.bugs import BUGS
from attnviz.flash_view.settings import KNOBS, MOST_LINES
from attnviz.flash_view.settle import settle
from attnviz.flash_view.snippet import flash_snippet
from attnviz.flash_view.traffic import against_memory
from attnviz.flash_view.walk import now, row, walk
from attnviz.flash_view.weights import fused
from attnviz.masks import ALIGNMENTS, MASKS, dense
from attnviz.text import LANGUAGES
from pages.ui.flash_bug import code_html, reason
from pages.ui.flash_costs import pays
from pages.ui.flash_words import CLAIMS, measured
from pages.ui.translate import say
from tests.pages import check, link, said, shown, visit

CASES = (
    {"mask": "causal"},
    {"mask": "sliding_window"},
    {"mask": "padding", "side": "left", "lengths": "60"},
    {"mask": "full"},
)


def masked_tiles(view):
    """Say for each row which tiles hide every key from it."""
    allowed = dense(view.build_mask(), view.length, view.key_length)[0, 0]
    parts = allowed.split(view.tile_cols, dim=1)
    return torch.stack([~part.any(-1) for part in parts], 1).numpy()


@pytest.mark.parametrize("settings", CASES, ids=str)
def test_a_code_loses_the_rows_that_its_fault_says(settings):
    view = settle(settings).view
    hidden = masked_tiles(view)
    np.testing.assert_array_equal(bugs.run(view, "own").lost, hidden.any(1))
    np.testing.assert_array_equal(bugs.run(view, "first").lost, hidden[:, 0])


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("bug", BUGS)
def test_the_right_code_is_right_and_the_wrong_one_wherever_it_is_finite(mask, bug):
    view = settle({"mask": mask, "length": "70", "tile_cols": "9", "bug": bug}).view
    found = bugs.run(view, bug)
    assert found.distance < 1e-5 and np.isfinite(found.right).all()
    np.testing.assert_allclose(found.right, fused(view).output[0, 0].numpy(), atol=1e-5)
    np.testing.assert_allclose(found.wrong[~found.lost], found.right[~found.lost], atol=1e-5)


@pytest.mark.parametrize("bug", BUGS.values(), ids=lambda bug: bug.key)
def test_the_faulty_lines_are_where_nan_first_appears(bug):
    lines = bugs.code(bug.run)
    assert len(lines) <= MOST_LINES and len(bug.lines()) == len(bug.faults)
    assert max(map(len, lines)) <= 68  # no line has to be scrolled
    # Each of them subtracts two numbers that can both be -inf; no other line of the code subtracts anything.
    subtracting = [number for number, line in enumerate(lines, 1) if re.search(r"\w - \w", line)]
    assert list(bug.lines()) == subtracting
    assert bug.key in KNOBS["bug"].options and list(KNOBS["bug"].options) == list(BUGS)
    assert bug.why.en != bug.why.zh


SIZES = ({"length": "48"}, {"length": "33", "key_length": "20"}, {"length": "20", "key_length": "33"}, {"length": "1"})


@pytest.mark.parametrize("mask", MASKS)
def test_a_line_is_right_where_its_own_result_is_nan_and_the_reason_counts_the_rows(mask):
    """Hold lines and reason to what the code makes, for every mask, alignment and shape."""
    for sizes, align, bug in itertools.product(SIZES, ALIGNMENTS, BUGS.values()):
        view = settle({"mask": mask, **sizes, "align": align, "tile_cols": "9", "side": "left"}).view
        found, made = bugs.run(view, bug.key), watched(view, bug)
        lines = {line.split(" =")[0].strip(): number for number, line in enumerate(bugs.code(bug.run), 1)}
        assert set(found.lines) == ({lines[name] for name in made} or set(bug.lines()))
        allowed = dense(view.build_mask(), view.length, view.key_length, align=align)[0, 0]
        late = int((~allowed[:, :9].any(-1)).sum())
        assert found.late == late and found.lost.any() == bool(made)
        if mask == "causal":
            # So the reason of version B: a causal mask wakes it only by rows that see no key at all.
            assert late == int((~allowed.any(-1)).sum())
        for language in LANGUAGES:
            said_ = reason(bug, found, language)
            assert said_.startswith(bug.why.say(language)) and "{" not in said_
            if made:
                counts = [int(number) for number in re.findall(r"\d+", said_.removeprefix(bug.why.say(language)))]
                expected = {int(found.lost.sum()), len(found.lost), *([late] if late and bug.key == "own" else [])}
                assert set(counts) == expected
            else:
                assert say(language, "flash.bug.here_asleep") in said_


def watched(view, bug):
    """Give what the lines that subtract have made with NaN in it, looked at before each line is run."""
    made, own = set(), inspect.unwrap(bug.run).__code__

    def watch(frame, event, _):
        if frame.f_code is not own:
            return None
        made.update(name for name in ("parts", "here", "shrink") if _has_nan(frame.f_locals.get(name)))
        return watch

    bugs._run.cache_clear()
    sys.settrace(watch)
    try:
        bugs.run(view, bug.key)
    finally:
        sys.settrace(None)
    return made


@pytest.mark.parametrize("bug", BUGS)
def test_a_mask_that_is_said_to_wake_the_fault_does(bug):
    for sizes, align, tile in itertools.product(SIZES, ALIGNMENTS, ("9", "64")):
        view = settle({"mask": "full", **sizes, "align": align, "tile_cols": tile}).view
        woken = bugs.wakers(view, bug)
        for mask in bugs.USUAL:
            other = settle({"mask": mask, **sizes, "align": align, "tile_cols": tile}).view
            assert bugs.run(other, bug).lost.any() == (mask in woken)
    assert bugs.wakers(settle({}).view, bug) == (bugs.USUAL if bug == "own" else bugs.USUAL[1:])


def _has_nan(made):
    return made is not None and bool(made.isnan().any())


def test_the_code_shown_is_the_code_run():
    lines = bugs.code(bugs.BUGS["own"].run)
    assert lines[0] == "def attention(q, k, v, allowed, size):" and lines[-1].strip().startswith("return output")
    assert set(bugs.right_lines()) - set(lines) == {
        "        origin = larger.masked_fill(larger.isinf(), 0.0)",
        "        parts = torch.exp(scores - origin)",
        "        shrink = torch.exp(maximum - origin)",
        "        total = total * shrink + parts.sum(-1, True)",
        "        output = output * shrink + parts @ v[tile]",
    }


def test_code_is_literal_in_html():
    shown_ = code_html(["a < b & c"], {1: "fault"})
    assert "a &lt; b &amp; c" in shown_ and 'class="fault"' in shown_


def opened(language="en", **settings):
    app = visit(language, page="flash", **settings)
    for section in ("bug", "snippet", "claims"):
        app.session_state[f"flash.fold.{section}"] = True
    return check(app.run())


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_wrong_line_gets_a_hint_a_right_one_the_reason_and_the_code(language):
    first = opened(language)
    assert not first.warning and not first.success
    wrong = opened(language, line="3")
    assert [entry.value for entry in wrong.warning] == [say(language, "flash.bug.not_this", line=3)]
    right = opened(language, line="11")
    assert not right.warning and say(language, "flash.bug.found", lines="11") in right.success[0].value
    assert say(language, "flash.bug.right_code") in said(right)
    told = opened(language, bug="first", line="show")
    assert say(language, "flash.bug.shown", lines="11, 12") in told.info[0].value
    assert link(told) == {"bug": "first", "line": "show"}


def test_another_version_is_another_riddle():
    app = opened(line="11")
    app.button_group(key="flash.bug").set_value("first")
    check(app.run())
    assert link(app) == {"bug": "first"} and not app.success


def test_the_outputs_beside_the_code_show_the_nan_and_say_how_many():
    app = opened()
    lost = int(bugs.run(settle({}).view, "own").lost.sum())
    assert lost == 112 and f"**{lost} of 128 rows are NaN.**" in said(app)
    wrong, right = shown(app, "flash.outputs")[0]["parts"]["outputs"]["maps"]
    assert wrong["nan"] and not right["nan"]
    asleep = said(opened(mask="full", bug="first"))
    assert "fault sleeps" in asleep and "wakes up: sliding window, document" in asleep.lower()
    # One tile holds every key of one token: no mask hides it whole.
    assert say("en", "flash.bug.sound") in said(opened(length="1"))
    assert say("en", "flash.bug.cut", rows="512", cols="512") in said(opened(length="1024"))
    assert [entry.value for entry in opened(line="12").warning] == [say("en", "flash.bug.not_here", line="12")]


# ---- code to take home ----


@pytest.mark.parametrize(
    "settings",
    (
        *({"mask": mask, "length": "40", "tile_rows": "8", "tile_cols": "12"} for mask in MASKS),
        {"length": "33", "key_length": "70", "align": "bottom_right", "step": "9"},
        {"mask": "own", "rule": "q_idx > 20", "length": "30", "d_k": "5", "sharpness": "3.25", "seed": "9", "row": "3"},
    ),
    ids=str,
)
def test_the_snippet_walks_as_the_page_does(settings, tmp_path, capsys):
    view = settle(settings).view
    path = tmp_path / "flash.py"
    path.write_text(flash_snippet(view), encoding="utf-8")
    left = runpy.run_path(str(path))
    assert left["visited"] == list(walk(view).places)
    found, result = row(view), fused(view)
    assert len(left["course"]) == len(found.keys)
    for index, (maximum, total, output) in enumerate(left["course"]):
        if math.isinf(found.maximum[index]):
            assert math.isinf(maximum) and total == 0
            continue
        assert maximum == pytest.approx(found.maximum[index], rel=1e-5)
        assert total == pytest.approx(found.total[index], rel=1e-5)
        np.testing.assert_allclose(output, found.output[index], atol=1e-5)
    torch.testing.assert_close(left["output"], result.output[0, 0], atol=1e-5, rtol=0)
    torch.testing.assert_close(left["logsumexp"], result.logsumexp[0, 0], atol=1e-4, rtol=0)
    torch.testing.assert_close(left["eager"], left["output"], atol=1e-5, rtol=0)
    assert f"{len(left['visited'])} tiles" in capsys.readouterr().out
    assert left["followed"] == now(view).query


def test_the_page_gives_the_code_of_its_view():
    app = opened(mask="document", length="64")
    assert app.code[0].value == flash_snippet(settle({"mask": "document", "length": "64"}).view).rstrip()


# ---- claims ----


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_claim_is_answered_with_numbers(language):
    app = opened(language)
    numbers = measured(settle({}).view)
    for name in CLAIMS:
        answer = "always_crossing" if name == "always" else f"{name}_true"
        sentence = say(language, f"flash.claims.{answer}", **numbers)
        assert sentence in said(app) and re.search(r"\d", sentence) and "{" not in sentence


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"length": "1", "d_k": "1"}, "ever"),
        ({}, "crossing"),
        ({"mask": "full", "length": "4096", "d_k": "1024", "tokens": "4096"}, "never"),
    ],
)
def test_where_less_is_moved_is_said_as_it_is(settings, word):
    view = settle(settings).view
    curve = against_memory(view)
    less = curve.predicted < curve.eager
    assert pays(curve) == ("ever" if less.all() else "crossing" if less.any() else "never") == word
    assert "–" not in say("en", f"flash.claims.always_{word}", **measured(view))


@pytest.mark.parametrize(
    "settings", ({}, {"d_k": "16", "mask": "document"}, {"length": "300", "tokens": "512"}), ids=str
)
def test_what_the_claims_are_answered_with_is_so(settings):
    found = measured(settle(settings).view)
    assert found["flops"] == "4×"  # twice the tokens, four times the arithmetic
    assert 3 < float(found["moved"].rstrip("×")) <= 4
    assert float(found["float32"].replace("−", "-")) < 1e-4
    assert float(found["proof"].replace("−", "-")) < 1e-5
    d_k = int(settings.get("d_k", 64))
    assert int(found["added"]) == 4 * (d_k + 1)
