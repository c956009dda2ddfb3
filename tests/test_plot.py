"""Figures on their way to the browser: what is taken off, and how they travel beside the maps of a frame."""

import json
from importlib.resources import files

import numpy as np
import plotly.graph_objects as go
import pytest

from pages.ui.heatmap.frame import Axis, Grid, Map, pack, unpack
from pages.ui.plot import WORD_KEYS, plot
from pages.ui.plot.asset import eager
from pages.ui.plot.spec import spec, with_figures

WORDS = dict.fromkeys(WORD_KEYS, "word")


def frame() -> bytes:
    side = Axis("key", "key", 3)
    drawn = Map("one", "one", np.arange(9, dtype=np.float32).reshape(3, 3), side, side)
    return pack("toy", {"d_k": "4"}, {"weights": Grid((drawn,), caption="caption")})


def test_a_spec_has_the_numbers_and_the_words_but_no_colours_of_its_own() -> None:
    figure = go.Figure(go.Scatter(y=[1.0, float("nan"), 2.0], line_color="red"), layout={"meta": {"a": 1}})
    told = json.loads(spec(figure, alt="Rises “to” 2."))
    assert told["data"][0]["y"] == [1.0, None, 2.0]
    assert told["data"][0]["line"]["color"] == "red"
    assert told["layout"] == {"meta": {"a": 1, "alt": "Rises “to” 2."}}
    assert "template" in figure.to_dict()["layout"]  # the figure itself is left as it was


@pytest.mark.parametrize("length", range(8))
def test_a_frame_with_figures_is_still_a_frame(length: int) -> None:
    one = spec(go.Figure(go.Bar(y=[1, 2])), alt="x" * length)
    carried = with_figures(frame(), {"bars": one, 'b"ars\n': one})
    size = int.from_bytes(carried[:4], "little")
    assert (4 + size) % 8 == 0
    header, codes = unpack(carried)
    plain, plain_codes = unpack(frame())
    figures = header.pop("figures")
    assert header == plain
    assert figures == {"bars": json.loads(one), 'b"ars\n': json.loads(one)}
    np.testing.assert_array_equal(codes["weights"][0], plain_codes["weights"][0])


def test_a_frame_may_carry_no_figures() -> None:
    header, _ = unpack(with_figures(frame(), {}))
    assert header["figures"] == {}


def test_misuse_names_the_rule() -> None:
    with pytest.raises(ValueError, match="words must have"):
        plot(go.Figure(), key="p", label="p", alt="p", words={})
    with pytest.raises(ValueError, match="group and part must be given together"):
        plot(go.Figure(), key="p", label="p", alt="p", words=WORDS, part="curve")


def test_the_chart_library_is_the_installed_one_in_parentheses():
    plain = files("plotly").joinpath("package_data", "plotly.min.js").read_bytes()
    begins, ends = b"(function () {", b"}).bind(this)));"
    changed = eager(plain)
    # Put back, it is the same to the byte.
    assert changed.count(begins) == 1 + plain.count(begins) and changed.rstrip().endswith(ends)
    back = changed.replace(b"? self : this, (function () {", b"? self : this, () => {").rstrip().removesuffix(ends)
    assert back + b"}));" == plain.rstrip()
    assert eager(b"another form") == b"another form" and eager(changed) == changed
