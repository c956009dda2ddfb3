"""Mistakes around scale and softmax, and the numbers that give them away."""

import math
import re

import numpy as np
import pytest
import torch

from attnviz.census import compare
from attnviz.stages import rows_of
from attnviz.text import LANGUAGES
from attnviz.view import settle
from attnviz.view_run import census, run
from pages.ui.attention_picture import frame
from pages.ui.heatmap.frame import TOP, unpack
from pages.ui.translate import say
from tests.pages import plain, said, visit

FOUR = {"input": "normal", "length": "4", "heads": "1", "mask": "full"}


def drawn(**settings: str):
    """Give the first head's weights as the live route draws them, read back from their codes."""
    header, codes = unpack(frame(settings))
    described = header["parts"]["main"]["maps"][0]
    codes = np.where(codes["main"][0] <= TOP, codes["main"][0], 0)  # a masked cell has no value
    return described["low"] + codes / TOP * (described["high"] - described["low"])


def signs(app) -> tuple[tuple[str, str], tuple[str, str], float, float]:
    """Read the numbers beside the picture: row sums and column sums, each mistaken and right, cosine and difference."""
    (text,) = (entry.value for entry in app.markdown if entry.value.startswith("Row sums **"))
    rows, columns, cosine, difference = text.splitlines()
    sums = [re.fullmatch(r"\w+ sums \*\*(.+)\*\* · right: (.+?)\s*", line) for line in (rows, columns)]
    assert sums[0] and sums[1]
    one, other = (float(re.findall(r"\*\*(.+)\*\*", line)[0]) for line in (cosine, difference))
    return (sums[0][1], sums[0][2]), (sums[1][1], sums[1][2]), one, other


@pytest.mark.parametrize("d_k", [4, 16, 64, 256])
@pytest.mark.parametrize("mask", ["full", "causal"])
def test_case_22_rows_sum_to_the_scale_when_it_comes_after_the_softmax(d_k, mask):
    """https://github.com/FrancescoSaverioZuppichini/ViT/issues/2."""
    settings = FOUR | {"length": "9", "d_k": str(d_k), "mask": mask, "mistake": "late_scale"}
    sums = drawn(**settings).sum(1)
    assert sums == pytest.approx([1 / math.sqrt(d_k)] * 9, abs=1e-3 / math.sqrt(d_k))
    rows, _, cosine, _ = signs(visit(**settings))
    assert rows == (f"{1 / math.sqrt(d_k):.3g}", "1")
    assert cosine < 1


def test_case_24_over_the_query_axis_columns_sum_to_1_and_rows_do_not():
    """https://github.com/karpathy/minGPT/issues/132: random 4 × 4 scores."""
    weights = drawn(**FOUR, mistake="wrong_axis")
    assert weights.sum(0) == pytest.approx([1.0] * 4, abs=1e-3)
    assert abs(weights.sum(1) - 1).max() > 0.05
    rows, columns, *_ = signs(visit(**FOUR, mistake="wrong_axis"))
    shown, sums = list(map(float, rows[0].split(" … "))), weights.sum(1)
    assert shown == pytest.approx([sums.min(), sums.max()], rel=1e-2)
    assert shown[0] < 1 < shown[1] and rows[1] == "1"
    assert columns[0] == "1" and " … " in columns[1]


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
def test_case_24_our_rows_sum_to_1_within_a_tolerance_that_the_page_states(dtype, language):
    settings = FOUR | {"length": "60", "heads": "4", "dtype": dtype}
    counted = census(settle(settings).view)
    assert counted is not None and counted.row_sums is not None
    tolerance = 16 * torch.finfo(getattr(torch, dtype)).eps
    assert all(abs(bound - 1) <= tolerance for bound in counted.row_sums)
    least, most = (f"{bound:.9g}" for bound in counted.row_sums)
    line = say(language, "attention.numbers.row_sums", least=least, most=most, tolerance=f"{tolerance:.1g}")
    assert plain(line) in plain(said(visit(**settings, lang=language)))
    wrong = census(settle(settings | {"mistake": "late_scale"}).view)
    assert wrong is not None and wrong.row_sums is not None and wrong.row_sums[1] < 0.2


def test_case_29_one_number_says_how_far_the_output_without_scale_is_off():
    """https://github.com/mlc-ai/mlc-llm/pull/3426: close but wrong, similarity 0.862 against 0.99999."""
    settings = FOUR | {"length": "32", "heads": "4", "d_k": "64"}
    rows, _, cosine, difference = signs(visit(**settings, mistake="no_scale"))
    assert rows == ("1", "1")  # no sum gives it away
    call, _ = run(settle(settings | {"mistake": "no_scale"}).view)
    compared = compare(call)
    right, _ = run(settle(settings).view)
    weights = [torch.softmax(right.query @ right.key.mT * factor, -1) for factor in (1.0, 64**-0.5)]
    outputs = [(each @ right.value).double().flatten() for each in weights]
    expected = float(torch.nn.functional.cosine_similarity(*outputs, dim=0))
    assert compared.cosine == pytest.approx(expected, abs=1e-6) and 0.2 < expected < 0.9
    assert cosine == float(f"{expected:.3g}") and difference > 0.1
    # A comparison of the right computation with itself would say 1: at d_k 1 the scale is 1 and nothing is forgotten.
    assert signs(visit(**settings | {"d_k": "1"}, mistake="no_scale"))[2:] == (1.0, 0.0)


@pytest.mark.parametrize("backend", ["eager", "sdpa"])
def test_dropout_left_on_shows_what_gives_it_away_beside_what_is_expected(backend):
    settings = FOUR | {"length": "32", "heads": "4", "d_k": "8", "mask": "causal", "backend": backend}
    app = visit(**settings, dropout="0.5")
    rows, columns, cosine, difference = signs(app)
    least, largest = map(float, rows[0].split(" … "))
    assert least < 1 < largest and rows[1] == "1"
    assert columns[0] != columns[1] == signs(visit(**settings, mistake="no_scale"))[1][1]
    call, ran = run(settle(settings | {"dropout": "0.5"}).view)
    clean, own = run(settle(settings).view)
    found, right = (rows_of(one, range(4), 0, 32, fused) for one, fused in ((call, ran), (clean, own)))
    outputs = [each.output.double().flatten() for each in (found, right)]
    expected = float(torch.nn.functional.cosine_similarity(*outputs, dim=0))
    assert cosine == float(f"{expected:.3g}") < 0.95
    assert difference == pytest.approx(float((outputs[0] - outputs[1]).abs().max()), rel=1e-2)
    dropped = float((found.weights == 0)[found.allowed.expand_as(found.weights)].double().mean())
    (text,) = (entry.value for entry in app.markdown if entry.value.startswith("**Dropout is on**"))
    share, mean = re.findall(r"\*\*([\d.]+)%?\*\* · expected: ([\d.]+)", text)
    assert share == (f"{100 * dropped:.3g}", "50") and 45 < 100 * dropped < 55
    assert mean[1] == "1" and mean[0] == f"{float(found.weights.double().sum(-1).mean()):.3g}"
    assert "Row sums" not in said(visit(**settings))
    app.session_state["attention.change"] = True
    (box,) = (entry for entry in app.run().selectbox if entry.key == "attention.mistake")
    assert "dropout" in box.help


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_mistake_with_dropout_is_compared_with_what_has_neither_and_promises_no_sums(language):
    app = visit(**FOUR, mistake="wrong_axis", dropout="0.5", lang=language)
    words = say(language, "attention.mistake.on_average")
    assert plain(words) in plain(app.error[0].value)
    assert plain(words) not in said(visit(**FOUR, mistake="wrong_axis", lang=language))
    text = plain(said(app))
    assert plain(say(language, "attention.mistake.mean_sum", here="1").split("1")[0]) not in text
    if language == "en":
        rows, columns, *_ = signs(app)
        assert rows[1] == "1" and columns[0] != "1"
        without = signs(visit(**FOUR, mistake="wrong_axis"))
        assert columns[1] == without[1][1] and rows[0] != without[0][0]


def test_of_a_long_view_dropout_is_said_without_numbers(monkeypatch):
    monkeypatch.setattr("attnviz.view_run.MOST_COUNTED", 15)
    text = said(visit(**FOUR, dropout="0.5"))
    assert "Dropout is on" in text and "Weights set to 0" not in text and "shorter lengths only" in text
