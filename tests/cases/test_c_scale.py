"""Scale and softmax: what the range of a data type does."""

import pytest

from attnviz.census import census
from attnviz.stages import Call, fused
from attnviz.text import LANGUAGES
from attnviz.view import settle
from attnviz.view_run import make_call
from pages.ui.heatmap.frame import NAN, TOP
from pages.ui.translate import say
from tests.pages import plain, said, shown, visit

LOUD = {"scale": "custom", "scale_value": "20000", "mask": "full", "heads": "2", "length": "12"}


@pytest.mark.parametrize("language", LANGUAGES)
def test_case_26_rows_beyond_float16_are_marked_and_bfloat16_has_the_range(language):
    """https://github.com/huggingface/transformers/pull/33317: float16 gave NaN where bfloat16 did not."""
    app = visit(**LOUD, dtype="float16", lang=language)
    header, codes = shown(app)
    lost = sum(int((code == NAN).any(1).sum()) for code in codes["main"])
    assert 0 < lost <= 24
    assert plain(say(language, "attention.numbers.overflow", rows=str(lost), dtype="float16")) in plain(said(app))
    assert any(described["nan"] for described in header["parts"]["main"]["maps"])
    for dtype in ("bfloat16", "float32"):
        other = visit(**LOUD, dtype=dtype, lang=language)
        assert all((code <= TOP).all() for code in shown(other)[1]["main"])
        assert "NaN" not in "\n".join(caption.value for caption in other.caption)


def test_case_26_a_row_that_overflowed_says_why():
    app = visit(**LOUD, dtype="float16")
    rows = (shown(app)[1]["main"][0] == NAN).any(1)
    row = int(rows.argmax())
    app = visit(**LOUD, dtype="float16", cell=f"0,{row},0")
    assert plain(say("en", "attention.row.not_finite", dtype="float16")) in plain(said(app))


@pytest.mark.parametrize("backend", ["sdpa", "flash"])
def test_case_26_a_fused_kernel_holds_its_scores_in_float32(backend):
    view = settle(LOUD | {"dtype": "float16", "backend": backend}).view
    call = make_call(view)
    counted = census(call, fused(call))
    assert counted.not_finite == 0
    eager = census(Call(call.query, call.key, call.value, call.mask, scale=call.scale), None)
    assert eager.not_finite > 0
