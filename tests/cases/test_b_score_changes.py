"""What a mask means beside a change of the scores."""

import numpy as np
import pytest

from attnviz.stages import MASKED
from pages.ui.attention_picture import cell, frame
from pages.ui.heatmap.frame import TOP, unpack
from tests.pages import said, visit

SHAPE = {"input": "normal", "length": "8", "heads": "2", "d_k": "16", "mask": "sliding_window", "window": "3"}
SLOPES = (2.0**-4, 2.0**-8)


def value(row: int, col: int, **settings: str) -> tuple[float | None, int]:
    """Give the exact value of a cell of the large picture, and whether it counts."""
    got = cell(SHAPE | settings | {"map": "0", "row": str(row), "col": str(col)})
    return float(str(got["value"])) if got["value"] else None, int(str(got["state"]))


@pytest.mark.parametrize("backend", ["eager", "sdpa", "flash"])
@pytest.mark.parametrize("score_mod", ["alibi", "softcap"])
def test_case_18_both_are_seen_separately_and_combined(score_mod, backend):
    """https://github.com/meta-pytorch/attention-gym/issues/29: ALiBi or a cap together with a mask."""
    mod = {"score_mod": score_mod, "backend": backend} | ({"cap": "0.5"} if score_mod == "softcap" else {})
    for row, col in ((4, 2), (4, 4), (5, 3), (4, 0), (2, 6)):
        allowed = 0 <= row - col < 3
        raw, _ = value(row, col, stage="scaled", **mod)
        assert raw is not None and value(row, col, stage="scaled", mask="full")[0] == pytest.approx(raw, abs=1e-6)
        right = raw - SLOPES[0] * abs(row - col) if score_mod == "alibi" else 0.5 * np.tanh(raw / 0.5)
        # The modification alone, in every cell: what it adds, and the scores after it.
        assert value(row, col, stage="change", **mod) == (pytest.approx(right - raw, abs=1e-5), 0)
        assert value(row, col, stage="changed", **mod) == (pytest.approx(right, abs=1e-5), 0)
        # The mask alone: the same cells count as with the modification.
        assert value(row, col, stage="masked")[1] == (0 if allowed else MASKED)
        # Both: the modified score where the mask lets it, nothing elsewhere.
        assert value(row, col, stage="masked", **mod) == (
            (pytest.approx(right, abs=1e-5), 0) if allowed else (None, MASKED)
        )
    with_both, without = (unpack(frame(SHAPE | more))[1]["main"][0] <= TOP for more in (mod, {}))
    np.testing.assert_array_equal(with_both, without)


def test_case_18_the_page_shows_a_stage_for_each():
    app = visit(**SHAPE, score_mod="alibi", cell="0,4,2")
    (stages,) = (group for group in app.get("button_group") if group.key == "attention.stage")
    assert {"score mod", "modified", "mask"} <= set(stages.options)
    assert "+ bias" in said(app)
    (stages,) = (group for group in visit(**SHAPE).get("button_group") if group.key == "attention.stage")
    assert not {"score mod", "modified"} & set(stages.options)
