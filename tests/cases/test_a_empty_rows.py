"""Masks that empty a row, or that scores outgrow."""

import numpy as np
import pytest
import torch

from attnviz.backends import BACKENDS
from attnviz.census import census, row_detail
from attnviz.masks import Mask
from attnviz.pictures import Request, draw
from attnviz.stages import NO_KEY, Call, fused
from attnviz.text import LANGUAGES
from pages.ui.heatmap import frame as codes
from pages.ui.translate import say
from tests.pages import plain, said, shown, visit


@pytest.mark.parametrize("backend", BACKENDS)
def test_case_1_a_row_without_a_key_is_zero_and_counted(backend):
    """https://github.com/pytorch/pytorch/issues/103749: six queries, ten keys, the last row masked altogether."""
    query, key, value = (torch.randn(1, 1, length, 8) for length in (6, 10, 10))
    mask = Mask(lambda b, h, q, k: (k <= q) & (q != 5))
    call = Call(query, key, value, mask, scale=0.125, backend=backend)
    ran = fused(call)
    weights, output = draw(call, [Request("weights", (0,)), Request("output", (0,))], ran).pictures
    assert np.isfinite(weights.values).all() and np.isfinite(output.values).all()
    assert (
        (weights.state[0, 5] == NO_KEY).all() and (weights.values[0, 5] == 0).all() and (output.values[0, 5] == 0).all()
    )
    assert not (weights.state[0, :5] == NO_KEY).any()
    np.testing.assert_allclose(weights.values[0, :5].sum(-1), 1.0, atol=1e-6)
    assert census(call, ran).no_key == 1 and census(call, ran).not_finite == 0
    if ran is not None:
        assert (ran.output[0, 0, 5] == 0).all()


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("backend", ["eager", "sdpa"])
def test_case_1_the_page_says_so(backend, language):
    """Five queries over three keys, bottom-right: the first two rows stand before every key."""
    app = visit(
        attention="cross", input="normal", length="5", key_length="3", align="bottom_right", heads="1", backend=backend,
        cell="0,1", lang=language,
    )  # fmt: skip
    drawn = shown(app)[1]["main"][0]
    assert (drawn[:2] == codes.NO_KEY).all() and not (drawn[2:] == codes.NO_KEY).any()
    assert not (drawn == codes.NAN).any()
    text = plain(said(app))
    assert plain(say(language, "attention.numbers.no_key", rows="2")) in text
    assert plain(say(language, "attention.row.no_key")) in text


@pytest.mark.parametrize("backend", BACKENDS)
def test_case_8_a_masked_weight_is_exactly_zero_at_any_score(backend):
    """https://github.com/TransformerLensOrg/TransformerLens/issues/318: scores near −2e5 under a mask value of −1e5."""
    query = torch.full((1, 1, 3, 4), -100.0)
    key = torch.full((1, 1, 3, 4), 500.0) + torch.arange(3.0)[:, None] * 1e-3
    value = torch.randn(1, 1, 3, 4)
    call = Call(query, key, value, Mask(lambda b, h, q, k: (k < 1) & (q == q)), scale=1.0, backend=backend)
    ran = fused(call)
    picture = draw(call, [Request("masked", (0,)), Request("weights", (0,))], ran).pictures[1]
    assert row_detail(call, 0, 0, ran).scores.max() < -1.9e5
    np.testing.assert_array_equal(picture.values[0], [[1, 0, 0]] * 3)
    detail = row_detail(call, 0, 2, ran)
    assert detail.weights.tolist() == [1.0, 0.0, 0.0] and detail.total == 1.0
