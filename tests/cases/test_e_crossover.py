"""Where a fused kernel or a linear form begins to pay: found by measurement, and claimed nowhere else."""

import re

import pytest

from attnviz.benchmark.fits import crossings, finding
from attnviz.text import LANGUAGES
from tests.pages import plain, said, visit

# A shape of times as the report gives them: the fused call costs more to start and less for each pair.
SHORT = {n: 2e-6 + 1e-9 * n**2 for n in (64, 128, 256, 512, 1024)}
FUSED = {n: 2e-5 + 3e-10 * n**2 for n in (64, 128, 256, 512, 1024)}


def test_case_45_the_fused_call_pays_from_a_measured_length_on():
    """https://github.com/Dao-AILab/flash-attention/issues/591."""
    (cross,) = crossings({"eager": SHORT, "fused": FUSED})
    assert (cross.faster, cross.slower) == ("fused", "eager")
    assert 128 < cross.length < 256  # (1.8e-5 / 7e-10) ** 0.5 = 160
    assert cross.length == pytest.approx(160, rel=0.05)
    sentence = finding({"eager": SHORT, "fused": FUSED})
    assert sentence is not None and "fused overtakes eager at about 1" in sentence.en
    # Where it never pays, nothing of the kind is said.
    never = {n: 2 * value for n, value in SHORT.items()}
    alone = finding({"eager": SHORT, "fused": never})
    assert alone is not None and "overtakes" not in alone.en and "eager is fastest" in alone.en


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("page", ["benchmark", "flash"])
def test_case_45_no_page_claims_that_fused_is_always_faster(language, page):
    words = plain(said(visit(language, page=page)))
    assert not re.search(r"always faster|faster than eager at every|总是更快|永远更快|始终更快", words)
