"""Figures, by their data: a row of weights as bars or a line, and a map in the page's colours."""

import re
import tomllib
from pathlib import Path
from unittest.mock import patch

import numpy as np
import plotly.graph_objects as go
import pytest

from attnviz.figures.attention import heatmap, row_bars
from attnviz.figures.maps import PALETTES
from attnviz.figures.rows import BARS, STEPS, TOP_KEYS

ROOT = Path(__file__).resolve().parent.parent
WORDS = {"x_title": "weight", "y_title": "key", "masked_word": "masked"}


def row(weights: list[float] | np.ndarray, allowed: np.ndarray | None = None, selected: int | None = None) -> go.Figure:
    values = np.asarray(weights, float)
    keep = np.ones(len(values), bool) if allowed is None else allowed
    return row_bars(values, [f"t{key}" for key in range(len(values))], allowed=keep, selected=selected, **WORDS)


def test_a_bar_a_selected_bar_a_masked_key_and_a_zero_are_four_things():
    figure = row([0.5, 0.25, 0.25, 0.0, 0.0], np.array([True, True, True, True, False]), selected=2)
    weights, chosen, masked, zeros = figure.data
    assert (list(weights.y), list(weights.x)) == ([0, 1, 3], [0.5, 0.25, 0.0])
    assert (list(chosen.y), list(chosen.x)) == ([2], [0.25])
    assert list(masked.y) == [4] and masked.x[0] == pytest.approx(0.53) and masked.marker.pattern.shape == "/"
    assert (list(zeros.y), list(zeros.text)) == ([3], ["0"])
    assert masked.hovertext[0] == "t4 · 4<br>masked" and chosen.hovertext[0] == "t2 · 2<br>0.25"
    # Their colours are the theme's first and second, which is what the maps mark a selection with.
    assert weights.marker.color is None and chosen.marker.color is None
    assert figure.layout.xaxis.range[1] >= masked.x[0]


def test_a_row_that_is_not_a_number_has_no_bars_and_no_hatching():
    for count in (4, 4 * BARS):
        figure = row(np.full(count, np.nan))
        assert len(figure.data[2].x) == 0
        assert figure.layout.xaxis.range == (0, 1)
        assert not np.isfinite(np.asarray(figure.data[0].x, float)).any()


@pytest.mark.parametrize("count", [BARS + 1, 4096])
def test_a_long_row_is_drawn_in_few_steps_that_lose_no_peak(count):
    rng = np.random.default_rng(0)
    weights = rng.random(count) / 10
    peaks = [3, count // 2, count - 2]
    weights[peaks] = [0.9, 0.8, 0.7]
    allowed = np.ones(count, bool)
    allowed[count // 4 : count // 4 + count // 6] = False
    weights[~allowed] = 0
    figure = row(weights, allowed, selected=5)
    area, chosen, masked, names = figure.data
    assert len(area.x) <= STEPS
    assert {0.9, 0.8, 0.7} <= set(area.x)
    assert list(chosen.x) == [weights[5]] and list(chosen.y) == [5]
    hidden = [(middle - width / 2 + 0.5, width) for middle, width in zip(masked.y, masked.width, strict=True)]
    assert len(hidden) == 1 and all(start >= count // 4 and width <= count // 6 for start, width in hidden)
    assert list(names.text[:3]) == [f"t{key} · {key}" for key in peaks] and len(names.text) <= TOP_KEYS
    assert figure.layout.yaxis.ticktext is None


def test_every_key_of_a_short_row_is_named_once_and_an_index_is_no_name():
    assert list(row([0.5, 0.5]).layout.yaxis.ticktext) == ["t0 · 0", "t1 · 1"]
    plain = row_bars(np.array([0.5, 0.5]), ("0", "1"), allowed=np.ones(2, bool), selected=None, **WORDS)
    assert list(plain.layout.yaxis.ticktext) == ["0", "1"]
    long = row(np.full(BARS, 1 / BARS), selected=33)
    assert "t33 · 33" in long.layout.yaxis.ticktext and len(long.layout.yaxis.ticktext) <= 33


# ---- heatmap ----


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_colours_are_the_pages(theme):
    settings = tomllib.loads((ROOT / ".streamlit/config.toml").read_text(encoding="utf-8"))["theme"][theme]
    palette = PALETTES[theme]
    assert list(palette.sequential) == settings["chartSequentialColors"]
    assert list(palette.diverging) == settings["chartDivergingColors"]
    assert (palette.background, palette.text) == (settings["backgroundColor"], settings["textColor"])
    drawn = heatmap(np.eye(2), theme=theme).data[0]
    assert [colour for _, colour in drawn.colorscale] == settings["chartSequentialColors"]


def test_a_map_has_values_marks_and_hatching_where_they_belong():
    values = np.array([[0.0, 0.0], [0.25, 0.0], [np.nan, np.inf]])
    state = np.array([[2, 2], [0, 1], [0, 0]], np.uint8)
    figure = heatmap(values, state=state, rows=("a", "<b>", "c"), cols=("x", "x"))
    shown, marks, masked, empty = figure.data
    np.testing.assert_array_equal(np.asarray(shown.z, float), [[np.nan] * 2, [0.25, np.nan], [np.nan] * 2])
    np.testing.assert_array_equal(np.asarray(marks.z, float), [[2, 2], [np.nan, 1], [3, 4]])
    assert list(marks.customdata[2]) == ["NaN", "infinite"] and marks.customdata[0][1] == "row without a key"
    assert (list(masked.y), list(masked.base), list(masked.x)) == ([1], [0.5], [1])
    assert (list(empty.y), list(empty.base), list(empty.x)) == ([0], [-0.5], [2])
    assert list(figure.layout.yaxis.ticktext) == ["a · 0", "&lt;b&gt; · 1", "c · 2"]
    assert list(figure.layout.xaxis.ticktext) == ["x · 0", "x · 1"]  # a name that comes twice is two columns
    assert figure.layout.yaxis.range == (2.5, -0.5)
    assert (shown.zmin, shown.zmax) == (0, 0.25)


def test_ranges_are_the_pages():
    signed = heatmap(np.array([[1.0, -3.0]]), signed=True).data[0]
    assert (signed.zmin, signed.zmax) == (-3, 3)
    assert [colour for _, colour in signed.colorscale] == list(PALETTES["light"].diverging)
    logarithmic = heatmap(np.array([[1.0, 1e-3, 0.0]]), log=True)
    assert (logarithmic.data[0].zmin, logarithmic.data[0].zmax) == (-3, 0)
    assert list(logarithmic.data[0].z[0][:2]) == [0, -3] and logarithmic.data[1].z[0][2] == 5
    given = heatmap(np.eye(2), low=0.1, high=2.0).data[0]
    assert (given.zmin, given.zmax) == (0.1, 2)
    nothing = heatmap(np.zeros((2, 2))).data[0]
    assert (nothing.zmin, nothing.zmax) == (0, 1)


def test_the_page_and_a_notebook_choose_the_same_range():
    from pages.ui.attention_picture import _range as chosen

    rng = np.random.default_rng(1)
    values = rng.random((5, 5))
    state = np.triu(np.ones((5, 5), np.uint8), 1)
    for log in (False, True):
        drawn = heatmap(values, state=state, log=log).data[0]
        want = chosen(values, state, signed=False, log=log)
        assert (drawn.zmin, drawn.zmax) == pytest.approx(np.log10(want) if log else want)


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        ("two-dimensional and alike", {"values": np.zeros(3)}),
        ("two-dimensional and alike", {"values": np.zeros((2, 2)), "state": np.zeros((2, 3), np.uint8)}),
        ("theme must be one of light, dark", {"values": np.eye(2), "theme": "sepia"}),
        ("log must be False", {"values": np.eye(2), "log": True, "signed": True}),
    ],
)
def test_misuse_names_the_rule(words, arguments):
    with pytest.raises(ValueError, match=words):
        heatmap(arguments.pop("values"), **arguments)


def test_the_readme_examples_run():
    """The Python in README that is meant to be typed in runs as it stands, one block after the other."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    typed = [block for block in blocks if "import" in block and "def " not in block]
    assert len(typed) == 2
    names: dict[str, object] = {}
    with patch.object(go.Figure, "show") as show:
        for block in typed:
            exec(block, names)  # noqa: S102 - our own file
    show.assert_called_once_with()
    figure = names["figure"]
    assert isinstance(figure, go.Figure)
    values = np.asarray(figure.data[0].z, float)
    assert values.shape == (128, 128)
    np.testing.assert_allclose(np.nansum(values, 1), 1, rtol=1e-5)
    assert np.isnan(values[np.triu_indices(128, 1)]).all()
