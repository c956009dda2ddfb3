"""Shapes: no square is assumed, and the picture is of the very call that ran."""

import pytest

from attnviz.text import LANGUAGES
from pages.ui.heatmap.frame import TOP
from pages.ui.translate import say
from tests.pages import shown, visit


@pytest.mark.parametrize("language", LANGUAGES)
def test_case_49_eighteen_queries_over_seventy_nine_keys(language):
    """https://github.com/jessevig/bertviz/issues/116: decoder and encoder differ in length."""
    app = visit(attention="cross", length="18", key_length="79", mask="full", lang=language)
    header, codes = shown(app)
    for described, code in zip(header["parts"]["main"]["maps"], codes["main"], strict=True):
        assert code.shape == (18, 79) and (code <= TOP).all()
        rows, cols = described["row_axis"], described["col_axis"]
        assert (rows["dim"], rows["label"], rows["length"]) == ("query", say(language, "attention.axis.query"), 18)
        assert (cols["dim"], cols["label"], cols["length"]) == ("key", say(language, "attention.axis.key"), 79)
        assert len(rows["tokens"]) == 18 and len(cols["tokens"]) == 79
    assert "18 × 79" in header["parts"]["main"]["alt"]


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("backend", ["sdpa", "flash"])
def test_case_54_the_page_prints_how_far_the_map_is_from_the_kernel(backend, language):
    """https://github.com/huggingface/transformers/issues/31990: is the slow path's map the one the fast path used?"""
    app = visit(backend=backend, lang=language)
    label = say(language, "attention.numbers.difference")
    (metric,) = [metric for metric in app.metric if metric.label == label]
    assert 0.0 <= float(metric.value) < 1e-5
    kernel = say(language, "attention.numbers.kernel", kernel="").rstrip(".。 ")
    assert any(caption.value.startswith(kernel) for caption in app.caption)
    eager = visit(lang=language)
    assert label not in [metric.label for metric in eager.metric]
    # Both draw the same picture, up to a step of the codes.
    for one, other in zip(shown(app)[1]["main"], shown(eager)[1]["main"], strict=True):
        assert abs(one.astype(int) - other.astype(int)).max() <= 1
