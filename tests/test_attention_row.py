"""The selected row on the live plane: the figure that travels beside the maps, and when it does not."""

import math

import numpy as np
import pytest

from attnviz.text import LANGUAGES, Refusal
from attnviz.view import settle
from attnviz.view_run import make_call
from pages.ui import attention_row
from pages.ui.heatmap.frame import unpack
from pages.ui.translate import say
from tests.pages import numbers, plots, visit
from tests.reference import wholes


def carried(**settings: str) -> dict:
    header, _ = unpack(attention_row.frame(settings))
    return header["figures"][attention_row.PART]


def caption(figure: dict) -> str:
    return figure["layout"]["meta"]["caption"]


def test_without_a_selection_a_frame_is_the_maps_alone():
    assert "figures" not in unpack(attention_row.frame({"length": "5"}))[0]
    region = {"length": "8", "cell": "0,1", "part": "main", "map": "0", "rows": "0-4", "cols": "0-4"}
    assert "figures" not in unpack(attention_row.frame(region))[0]


def test_the_bars_are_the_row_of_the_loops():
    settings = {"length": "7", "heads": "2", "d_k": "8", "cell": "1,4,2"}
    weights = wholes(make_call(settle(settings).view))["weights"].values[1, 4]
    figure = carried(**settings)
    columns = [(numbers(trace["y"]), numbers(trace["x"])) for trace in figure["data"]]
    bars = {key: value for keys, values in columns[:2] for key, value in zip(keys, values, strict=True)}
    assert sorted(bars) == [0, 1, 2, 3, 4] and columns[1][0] == [2] and columns[2][0] == [5, 6]
    np.testing.assert_allclose([bars[key] for key in range(5)], weights[:5], atol=1e-6)
    entropy = -sum(weight * math.log(weight) for weight in weights[:5])
    assert caption(figure) == f"Sum 1 · entropy {entropy:.4g} nats · effective keys {math.exp(entropy):.4g}"
    best = int(np.argmax(weights))
    assert f"Largest {weights[best]:.4g} at key {best}." in figure["layout"]["meta"]["alt"]


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("settings", [{"cell": "1,3,2"}, {"cell": "0,3", "length": "300", "input": "normal"}])
def test_the_page_draws_what_the_route_sends(language, settings):
    assert plots(visit(lang=language, **settings))["attention.row"] == carried(lang=language, **settings)


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_lines_say_what_went_wrong_in_the_row(language):
    empty = carried(lang=language, mask="padding", lengths="0", cell="0,1")
    assert say(language, "attention.row.no_key") in caption(empty)
    half = {"dtype": "float16", "scale": "custom", "scale_value": "90000", "lang": language}
    assert say(language, "attention.row.not_finite", dtype="float16") in caption(carried(cell="0,5", **half))
    assert say(language, "attention.row.dropout", factor="2") in caption(
        carried(lang=language, cell="0,1", dropout="0.5")
    )
    assert "\n" not in caption(carried(lang=language, cell="0,1"))


def test_a_slider_below_the_selected_query_empties_the_bars_and_says_why():
    figure = carried(length="4", cell="0,9,1")
    assert not figure.get("data")
    assert caption(figure) == say("en", "attention.row.gone")


def test_bad_settings_are_refused():
    with pytest.raises(Refusal, match="d_k must be"):
        attention_row.frame({"d_k": "x", "cell": "0,1"})
