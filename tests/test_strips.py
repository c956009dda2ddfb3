"""Rows of bars: what stands in them, which keys are named, and how they are given to the browser."""

import numpy as np
import pytest

from attnviz.figures.strips import MOST_BARS, MOST_TICKS, strips, ticks
from pages.ui import strips as drawing


def drawn(*rows: np.ndarray) -> dict:
    names = {str(index): f"row {index}" for index in range(len(rows))}
    notes = {str(index): f"note {index}" for index in range(len(rows))}
    return strips({str(index): row for index, row in enumerate(rows)}, names, notes)


def test_few_keys_have_a_bar_each():
    first, second = drawn(np.array([0.25, 0.75]), np.array([1.0, 0.0]))["data"]
    assert first["y"].tolist() == [0.25, 0.75] and second["y"].tolist() == [1.0, 0.0]
    assert (first["name"], first["text"], first["color"]) == ("row 0", "note 0", 0)
    assert (second["name"], second["text"], second["color"]) == ("row 1", "note 1", 1)


@pytest.mark.parametrize(("keys", "bars", "pool"), [(256, 256, 1), (257, 129, 2), (1000, 250, 4), (1024, 256, 4)])
def test_many_keys_share_bars_and_lose_no_peak(keys, bars, pool):
    weights = np.zeros(keys)
    weights[-1], weights[-2], weights[5] = 0.5, 0.25, 0.25
    figure = drawn(weights)
    (row,) = figure["data"]
    assert len(row["y"]) == bars <= MOST_BARS and figure["layout"]["pool"] == pool
    assert row["y"][-1] == 0.5 and row["y"][5 // pool] == 0.25


def test_a_row_without_weights_stays_one():
    assert np.isnan(drawn(np.full(3, np.nan))["data"][0]["y"]).all()


@pytest.mark.parametrize(
    ("keys", "expected"),
    [(1, [0]), (9, [*range(9)]), (10, [0, 2, 4, 6, 8]), (64, [*range(0, 64, 10)]), (1024, [*range(0, 1024, 200)])],
)  # fmt: skip
def test_keys_are_counted_in_whole_round_numbers(keys, expected):
    assert ticks(keys) == expected
    assert len(expected) <= MOST_TICKS


def test_a_group_without_a_part_is_misuse():
    with pytest.raises(ValueError, match="group and part must be given together"):
        drawing.strips(
            drawn(np.ones(1)), key="alone", alt="", part="strips", words=dict.fromkeys(drawing.WORD_KEYS, "")
        )


def test_a_missing_word_is_misuse():
    with pytest.raises(ValueError, match="words must have tip, tip_pooled, keys_help, got none for keys_help"):
        drawing.strips(drawn(np.ones(1)), key="alone", alt="", words={"tip": "", "tip_pooled": ""})
