"""The pinned picture and the difference to it: on the page, on the live route, in regions and single cells."""

import numpy as np
import pytest

from attnviz import comparison, pins
from attnviz.stage_list import STAGES
from attnviz.stages import MASKED as MASKED_STATE
from attnviz.stages import rows_of
from attnviz.text import LANGUAGES, Refusal
from attnviz.view import settle
from attnviz.view_run import run
from pages.ui import attention_compare, attention_picture
from pages.ui.attention_requests import MAIN
from pages.ui.heatmap.frame import MASKED, NO_KEY, TOP, unpack
from pages.ui.translate import say
from tests.pages import go, link, plain, said, shown, visit

PIN = {"length": "9", "d_k": "3", "heads": "3", "seed": "4"}
NOW = {"length": "7", "d_k": "5", "heads": "2", "mask": "full"}


def compared(compare: str, **more: str) -> dict[str, str]:
    return NOW | {"pin": pins.write(PIN, 9), "compare": compare} | more


def whole(settings: dict[str, str], stage: str) -> np.ndarray:
    """Give a stage of all heads as the call gives it, masked cells 0."""
    call, ran = run(settle(settings).view)
    rows = rows_of(call, range(call.heads), 0, call.q_len, ran)
    values = {"query": call.query, "key": call.key, "value": call.value}.get(stage)
    values = rows.stage(stage) if values is None else values
    return np.where(rows.allowed.numpy(), values.numpy(), 0)[0] if stage == "masked" else values.numpy()[0]


def decoded(frame: bytes) -> tuple[dict, np.ndarray, np.ndarray]:
    """Give the grid's description, its values and its codes."""
    header, codes = unpack(frame)
    grid = header["parts"][MAIN]
    values = [
        entry["low"] + code.astype(np.float64) / TOP * (entry["high"] - entry["low"])
        for entry, code in zip(grid["maps"], codes[MAIN], strict=True)
    ]
    return grid, np.array(values), np.array(codes[MAIN])


@pytest.mark.parametrize("stage", ["query", "key", "scores", "scaled", "weights", "value", "output"])
def test_the_difference_is_one_minus_the_other_where_both_are(stage):
    grid, values, codes = decoded(attention_picture.frame(compared("difference", stage=stage)))
    one, other = whole(NOW, stage), whole(PIN, stage)
    heads, rows, cols = (min(a, b) for a, b in zip(one.shape, other.shape, strict=True))
    want = one[:heads, :rows, :cols] - other[:heads, :rows, :cols]
    assert values.shape == want.shape
    span = grid["maps"][0]["high"] - grid["maps"][0]["low"]
    np.testing.assert_allclose(values, want, atol=span / TOP + 1e-6)
    assert (codes <= TOP).all()  # full against causal: nothing is masked in both
    assert {entry["palette"] for entry in grid["maps"]} == {"diverging"}
    assert grid["maps"][0]["low"] == -grid["maps"][0]["high"]
    assert [entry["key"] for entry in grid["maps"]] == ["0", "1"]


def test_what_is_masked_in_one_has_no_difference_but_as_a_weight():
    masked = decoded(attention_picture.frame(compared("difference", stage="masked")))[2]
    np.testing.assert_array_equal(masked[0] == MASKED, np.triu(np.ones((7, 7), bool), 1))
    both = compared("difference", mask="causal")
    weights = decoded(attention_picture.frame(both))[2]
    np.testing.assert_array_equal(weights[0] == MASKED, np.triu(np.ones((7, 7), bool), 1))


def test_rows_without_a_key_in_both_are_shown_as_such():
    empty = {"mask": "padding", "lengths": "0"}
    pin = pins.write(PIN | empty, 9)
    codes = decoded(attention_picture.frame(NOW | empty | {"pin": pin, "compare": "difference"}))[2]
    assert (codes == NO_KEY).all()


def test_the_pinned_picture_is_the_picture_of_the_pinned_settings():
    for stage in STAGES:
        if stage not in settle(NOW).view.stages:
            continue
        grid, values, _ = decoded(attention_picture.frame(compared("pinned", stage=stage)))
        alone, want, _ = decoded(attention_picture.frame(PIN | {"stage": stage}))
        np.testing.assert_array_equal(values, want)
        assert grid["maps"] == alone["maps"]


def test_cells_and_regions_are_those_of_what_is_shown():
    one, other = whole(NOW, "weights"), whole(PIN, "weights")
    place = {"part": "main", "map": "1", "row": "6", "col": "2"}
    want = {"now": one[1, 6, 2], "pinned": other[1, 6, 2], "difference": one[1, 6, 2] - other[1, 6, 2]}
    for compare, value in want.items():
        answer = attention_picture.cell(compared(compare) | place)
        np.testing.assert_allclose(float(str(answer["value"])), value, atol=1e-7)
    with pytest.raises(Refusal, match="row must be"):
        attention_picture.cell(compared("difference") | place | {"row": "7"})
    assert attention_picture.cell(compared("pinned") | place | {"row": "8", "map": "2"})["row"] == 8
    region = compared("difference") | {"part": "main", "map": "1", "rows": "2-6", "cols": "1-3"}
    grid, values, _ = decoded(attention_picture.frame(region))
    assert values.shape == (2, 4, 2)
    np.testing.assert_allclose(values, (one[:2, 2:6, 1:3] - other[:2, 2:6, 1:3]), atol=1e-4)
    assert grid["maps"][0]["row_axis"]["start"] == 2


@pytest.mark.parametrize("stage", ["weights", "masked", "output"])
@pytest.mark.parametrize("reduce", ["max", "mean"])
def test_long_pictures_are_compared_before_they_are_pooled(stage, reduce, monkeypatch):
    monkeypatch.setattr(comparison, "STRIP_CELLS", 50_000)  # many strips
    pin = {"heads": "1", "d_k": "4", "seed": "5", "input": "normal", "mask": "full", "length": "1400"}
    now = {"length": "1100", "heads": "1", "d_k": "4", "input": "normal"}
    settings = now | {"pin": pins.write(pin, 1400), "compare": "difference", "reduce": reduce, "stage": stage}
    view = settle(settings).view
    picture = attention_compare.large(view).picture
    one, other = whole(now, stage)[0], whole(pin, stage)[0][:1100, :1100]
    seen = np.tril(np.ones(one.shape, bool)) if stage == "masked" else np.ones(one.shape, bool)
    width = 2 if one.shape[1] > 1024 else 1
    parts = np.where(seen, one - other, 0.0).reshape(550, 2, -1, width)
    parts, counts = (
        x.transpose(0, 2, 1, 3).reshape(550, -1, 2 * width) for x in (parts, seen.reshape(550, 2, -1, width))
    )
    farthest = np.take_along_axis(parts, np.abs(parts).argmax(-1)[..., None], -1)[..., 0]
    want = farthest if reduce == "max" else parts.sum(-1) / np.maximum(counts.sum(-1), 1)
    assert picture.pool == (2, width)
    np.testing.assert_allclose(picture.values[0], want, atol=1e-5)
    state = np.zeros(want.shape) if picture.state is None else picture.state[0]
    np.testing.assert_array_equal(state == MASKED_STATE, ~counts.any(-1))


def test_the_average_of_heads_is_compared_with_the_average_of_the_pinned_heads():
    _, values, _ = decoded(attention_picture.frame(compared("difference", head="mean")))
    want = whole(NOW, "weights").mean(0) - whole(PIN, "weights").mean(0)[:7, :7]
    np.testing.assert_allclose(values[0], want, atol=1e-4)


@pytest.mark.parametrize("language", LANGUAGES)
def test_without_a_head_to_compare_with_the_page_says_so_and_lives(language):
    settings = {"heads": "4", "head": "3", "pin": pins.write({"heads": "2"}, 12), "compare": "difference"}
    app = visit(language, **settings)
    header, codes = shown(app)
    grid = header["parts"][MAIN]
    assert codes[MAIN] == []
    assert grid["caption"] == grid["alt"] != ""
    with pytest.raises(Refusal, match="nothing to compare"):
        attention_picture.frame(settings | {"part": "main", "map": "3", "rows": "0-2", "cols": "0-2"})
    with pytest.raises(Refusal, match="map must be"):
        attention_picture.cell(settings | {"part": "main", "map": "3", "row": "0", "col": "0"})


def test_a_pinned_view_too_large_is_refused_as_any_other():
    with pytest.raises(Refusal, match="Refused"):
        attention_picture.frame({"pin": "length=131072&heads=64", "compare": "pinned"})


def test_pinning_puts_the_settings_into_the_link_and_unpinning_takes_them_out():
    app = visit(d_k="8", mask="full", stage="scores", cell="0,1,2")
    app.button(key="attention.pin_now").click().run()
    assert pins.read(link(app)["pin"]) == {"length": "12", "d_k": "8", "mask": "full"}
    assert link(app)["stage"] == "scores"
    app.button(key="attention.unpin").click().run()
    assert "pin" not in link(app)
    assert link(app)["d_k"] == "8"


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_page_says_what_changed_since_the_pin(language):
    app = visit(language, pin=pins.write({"d_k": "8", "mask": "sliding_window", "window": "3", "text": "a b c"}, 3),
                d_k="16", mask="sliding_window", window="2", length="3", scale="one", compare="difference")  # fmt: skip
    words = plain(said(app))
    assert "8 → 16" in words
    assert "window 3 → 2" in words
    assert {"en": "1/√d_k → 1 (none)", "zh": "1/√d_k → 1（不缩放）"}[language] in words
    assert {"en": "Sentence", "zh": "句子"}[language] in words


def test_a_text_too_long_to_pin_is_said_and_nothing_is_lost():
    settings = {"text": "x " * 1000, "context": "y " * 999, "attention": "cross"}
    app = go(visit(), settings)
    app.button(key="attention.pin_now").click().run()
    assert not app.exception
    assert "cannot be pinned" in plain(said(app))
    assert "pin" not in link(app)
    assert link(app)["text"] == settings["text"]


@pytest.mark.parametrize(("role", "want"), [("encoder", {"mask": "full"}), ("decoder", {}),
                                            ("cross", {"attention": "cross", "mask": "full"})])  # fmt: skip
def test_a_role_sets_its_settings_and_nothing_else(role, want):
    app = visit(d_k="8", mask="chunked")
    app.button_group(key="attention.role").set_value(role).run()
    assert {name: text for name, text in link(app).items() if name != "d_k"} == want
    assert link(app)["d_k"] == "8"


def test_the_role_that_holds_is_marked():
    for settings, role in (({}, "decoder"), ({"mask": "full"}, "encoder"), ({"mask": "chunked"}, None)):
        assert visit(**settings).button_group(key="attention.role").value in ([role], role, [] if role is None else 0)


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_row_beside_a_pinned_picture_says_whose_it_is(language):
    words = say(language, "attention.row.of_now")
    pinned = {"pin": "length=12&d_k=8", "cell": "0,3,1"}
    assert words in said(visit(language, **pinned, compare="pinned"))
    assert words not in said(visit(language, **pinned))
