"""The figures of the walk through the tiles: whatever the numbers, an axis that can be read."""

import numpy as np
import pytest

from attnviz.figures import flash
from attnviz.figures.flash_costs import errors
from attnviz.flash_view.settle import settle
from attnviz.flash_view.walk import walk
from attnviz.masks import MASKS
from pages.ui.flash_picture import figures_of

# Beside a plot so many characters fit; none of them is a digit that the next tick does not need.
WIDEST = 8
AXES = ("xaxis", "xaxis2", "yaxis", "yaxis2")
COURSES = (
    ([1.055532218], 1.0555322177),
    ([0.0, 0.0], 0.0),
    ([-np.inf, -np.inf], -np.inf),
    ([-np.inf, 1e-30], 1e-30),
    ([1e30, 2e30], 2e30),
    ([-1e30, 1e30], 1e-30),
    ([-3216.25, -3216.5], -3216.5),
    ([1.0, 4096.0], 4096.0),
    ([123456.0, 123456.5], 123456.5),
    ([], -np.inf),
)


def readable(axis):
    """Hold an axis to two to six ticks in its range that differ, are short, and say where they stand."""
    low, high = axis["range"]
    places, texts = axis["tickvals"], axis["ticktext"]
    assert np.isfinite([low, high]).all() and low < high
    assert len(places) == len(texts) == len(set(texts)) and 1 <= len(places) <= 7
    if axis.get("type") != "log":
        assert all(low <= place <= high for place in places)
    assert max(map(len, texts)) <= WIDEST, texts
    for place, text in zip(places, texts, strict=True):
        assert (text == "0" and place <= flash.LEAST) or float(
            text.replace("−", "-").replace(",", "")
        ) == pytest.approx(place, rel=1e-6, abs=1e-40)


@pytest.mark.parametrize("course", COURSES, ids=str)
def test_an_axis_is_readable_whatever_the_numbers(course):
    values, target = np.array(course[0]), course[1]
    keys = np.arange(1, len(values) + 1)
    for done in range(len(values) + 1):
        figure = flash.statistics(
            keys,
            [("m", values, target), ("l", values, target)],
            done=done,
            last=max(1, len(values)),
            x_title="",
            exact="",
        )
        for name in AXES:
            readable(figure["layout"][name])
        lines = [trace for trace in figure["data"] if trace.get("yaxis") == "y"]
        low, high = figure["layout"]["yaxis"]["range"]
        for trace in lines:
            drawn = np.array(trace["y"], dtype=float)
            assert ((drawn > low) & (drawn < high))[np.isfinite(drawn)].all()


@pytest.mark.parametrize("size", (0.0, 1e-30, 1e-3, 1.0, 5e3, 1e30))
@pytest.mark.parametrize("width", (1, 2, 64, 1024))
def test_an_output_of_any_size_has_a_readable_axis(size, width):
    exact = np.linspace(-1, 1, width) * size
    figure = flash.output(
        np.array([1]), exact, exact, np.array([size]), done=1, last=1, titles=("", ""), names=("", ""), x_title=""
    )
    for name in AXES:
        readable(figure["layout"][name])
    low, high = figure["layout"]["yaxis2"]["range"]
    (place,), (said,) = figure["data"][-1]["y"], figure["data"][-1]["customdata"]
    assert low + 0.5 < np.log10(place) < high and said == size
    assert ("0" in figure["layout"]["yaxis2"]["ticktext"]) == (size < flash.LEAST)


@pytest.mark.parametrize("mask", MASKS)
def test_every_step_of_every_mask_has_readable_axes(mask):
    sizes = {"length": "33", "key_length": "20", "tile_cols": "7", "tile_rows": "11"}
    for d_k, sharpness, row in (("1", "1000", "0"), ("64", "0", "10"), ("3", "1", "4")):
        settings = {"mask": mask, **sizes, "d_k": d_k, "sharpness": sharpness, "row": row, "align": "bottom_right"}
        for step in range(walk(settle(settings).view).steps + 1):
            for one in figures_of(settle(settings | {"step": str(step)}).view, "en").values():
                for name in AXES:
                    readable(one.figure["layout"][name])


@pytest.mark.parametrize("size", (0.0, 1e-30, 1.0))
def test_errors_have_an_axis_even_where_there_are_none(size):
    """Without a visible key every way gives 0, and so does float64: nothing is left for a logarithm."""
    ways = {way: [0.0, size, 2 * size] for way in ("a", "b", "c")}
    figure = errors(ways, ("x", "y", "z"), [size] * 3, colours=("r", "g", "b"), x_title="", grain_name="")
    axis = figure["layout"]["xaxis"]
    low, high = axis["range"]
    ticks = dict(zip(axis["ticktext"], axis["tickvals"], strict=True))
    assert np.isfinite([low, high]).all() and high - low >= 1
    for trace in figure["data"][1:]:
        assert all(low < np.log10(x) < high for x in trace["x"])
        # What stands at the left end is called 0, and so it is under the pointer.
        assert trace["x"][0] == ticks["0"] and trace["customdata"] == [0.0, size, 2 * size]
    assert len(ticks) == len(axis["ticktext"])
