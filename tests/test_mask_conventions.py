"""What other conventions give, against formulas worked out apart, and the mask as code, run and compared."""

import re
import runpy

import numpy as np
import onnx
import pytest
import torch
from onnx.reference import ReferenceEvaluator
from torch.nn.attention.flex_attention import create_mask

from attnviz.mask_view.conventions import SIDE, compare, grid, part_of, window_of
from attnviz.mask_view.export import export
from attnviz.mask_view.scores import WIDTH, query_and_key
from attnviz.mask_view.settings import CONVENTIONS, FORMS
from attnviz.mask_view.survey import region
from attnviz.mask_view.view import View, settle
from attnviz.mask_view.ways_script import ways_script
from attnviz.masks import MASKS, dense
from attnviz.text import LANGUAGES, Refusal
from pages.ui import masks_picture, masks_ways
from pages.ui.translate import say, words


def view(**given: str) -> View:
    settled = settle({"section": "conventions", **given})
    assert settled.problems == ()
    return settled.view


def expected(made: View, allowed: np.ndarray, hidden: float) -> np.ndarray:
    """Give the weights when hidden scores are ``hidden``, in plain NumPy float64."""
    query, key = (tensor[0, 0].double().numpy() for tensor in query_and_key(*allowed.shape, made.seed, 1))
    scores = np.where(allowed, query @ key.T / WIDTH**0.5, hidden)
    with np.errstate(invalid="ignore"):
        raised = np.exp(scores - scores.max(1, keepdims=True))
    return raised / raised.sum(1, keepdims=True)


@pytest.mark.parametrize("mask", MASKS)
def test_every_way_to_hide_gives_what_its_formula_says(mask):
    made = view(mask=mask)
    found = compare(made)
    allowed = found.allowed
    assert not allowed[-1].any()
    assert (allowed[:-1] == region(made.build_mask(), made.look, (0, SIDE), (0, SIDE)).numpy()[:-1]).all()
    has_key = allowed.any(1)
    exact, uniform = expected(made, allowed, -np.inf), expected(made, allowed, -1e300)
    for key, tolerance in {"ours": 1e-12, "sdpa": 1e-6, "mha": 1e-6, "mha_fast": 1e-6, "inf": 1e-6, "e9": 1e-6,
                           "least_float32": 1e-6, "least_bfloat16": 2e-2, "least_float16": 2e-3}.items():  # fmt: skip
        way = found.way(key)
        assert way.weights is not None and way.difference is not None
        np.testing.assert_allclose(way.weights[has_key], exact[has_key], atol=tolerance)
        empty = way.weights[~has_key]
        if key in ("ours", "sdpa", "mha_fast"):
            assert (empty == 0).all()
        elif key in ("mha", "inf"):
            assert np.isnan(empty).all() and way.nans == empty.size
        else:
            np.testing.assert_allclose(empty, uniform[~has_key], atol=tolerance)
            np.testing.assert_allclose(empty, 1 / SIDE, atol=tolerance)
        assert way.most == pytest.approx(
            np.nanmax(np.abs(way.weights - np.where(allowed.any(1, keepdims=True), exact, 0.0))), abs=1e-9
        )
        assert way.elsewhere == pytest.approx(np.abs(way.weights - exact)[has_key].max(), abs=1e-9)
    failed = found.way("e9_half")
    assert failed.weights is None and "overflow" in failed.problem


def test_the_row_is_emptied_only_when_asked():
    assert not grid(view(), part_of(view()))[-1].any()
    made = view(empty="0")
    assert grid(made, part_of(made))[-1].all() and compare(made).way("mha").nans == 0


def test_long_views_are_compared_on_a_part_of_them():
    assert compare(view(length="4096", mask="sliding_window")).allowed.shape == (SIDE, SIDE)
    assert compare(view(length="5", key_length="9")).allowed.shape == (5, 9)


PARTS = {
    "causal": ({"length": "64"}, (0, 32), (0, 32), 1),
    "right padding": ({"mask": "padding", "lengths": "40", "length": "64"}, (32, 64), (32, 64), 8),
    "left padding": ({"mask": "padding", "lengths": "40", "length": "64", "side": "left"}, (0, 32), (0, 32), 8),
    "bottom-right": ({"length": "16", "key_length": "64", "align": "bottom_right"}, (0, 16), (32, 64), 17),
    "nothing hidden": ({"mask": "full", "length": "64"}, (0, 32), (0, 32), 32),
}


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("convention", ["fill", "meaning", "floats"])
def test_what_is_compared_is_a_part_of_the_mask_on_screen(name, convention):
    """Padding of 40 in 64 still hides keys, and a bottom-right diagonal stays where the whole grid has it."""
    given, rows, cols, seen = PARTS[name]
    made = view(empty="0", convention=convention, **given)
    found = compare(made)
    assert (found.part.rows, found.part.cols) == (rows, cols)
    whole = dense(made.build_mask(), made.length, made.key_length, align=made.align)[0, 0].numpy()
    assert (found.allowed == whole[slice(*rows), slice(*cols)]).all()
    assert found.allowed[0].sum() == seen


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize(
    ("given", "key"),
    [
        ({}, None),
        ({"length": "64"}, "part"),
        ({"length": "16", "key_length": "64", "align": "bottom_right"}, "part"),
        ({"convention": "corner"}, "smaller"),
        ({"convention": "corner", "length": "16", "key_length": "64"}, "smaller"),
        ({"convention": "corner", "length": "2", "key_length": "5"}, None),
    ],
    ids=str,
)
def test_the_caption_says_which_part_is_compared(given, key, language):
    made = view(**given)
    drawn, part = masks_ways.weights(made, language), compare(made).part
    fields = {"shape": "16 × 32", "whole": f"{made.length} × {made.key_length}"}
    fields |= {name: f"{a}–{b - 1}" for name, (a, b) in {"rows": part.rows, "cols": part.cols}.items()}
    for name in ("part", "smaller"):
        words = say(language, f"masks.ways.{name}", **fields)
        assert [words in drawn.caption, words in drawn.alt] == [name == key] * 2
    assert all((m.row_axis.start, m.col_axis.start) == (part.rows[0], part.cols[0]) for m in drawn.maps)


def test_a_cell_of_a_part_is_asked_by_its_place_on_screen():
    given = {"section": "conventions", "length": "16", "key_length": "64", "align": "bottom_right", "empty": "0"}
    found = compare(view(**given)).way("sdpa").weights
    assert found is not None
    asked = given | {"part": "main", "map": "sdpa", "row": "3", "col": "50"}
    assert float(str(masks_picture.cell(asked)["value"])) == pytest.approx(found[3, 18], rel=1e-5)
    with pytest.raises(Refusal, match="col must be a whole number from 32 to 63, got '31'"):
        masks_picture.cell(asked | {"col": "31"})


def test_without_its_weights_torchs_module_gives_zero_where_it_else_gives_nan():
    found = compare(view(length="40", key_length="20"))
    ways = [found.way(key).weights for key in ("mha", "mha_fast")]
    assert ways[0] is not None and ways[1] is not None
    assert np.isnan(ways[0][-1]).all() and (ways[1][-1] == 0).all()
    np.testing.assert_allclose(ways[0][:-1], ways[1][:-1], atol=1e-6)
    for language in LANGUAGES:
        row = next(line for line in words(language)["masks.libraries.table"].splitlines() if "nn.Multi" in line)
        assert re.search(
            r"need_weights=True.*NaN.*need_weights=False.*0|NaN.*need_weights=True.*0.*need_weights=False", row
        )
        assert "need_weights=False" in words(language)["masks.code.mha"]


@pytest.mark.parametrize(("mask", "window"), [("sliding_window", 9), ("attention_sinks", 9), ("dilated", 3)])
def test_only_a_window_of_past_keys_is_compared_as_one(mask, window):
    assert window_of(view(convention="window", mask=mask, window="9")) == window


def test_corners_differ_by_where_the_diagonal_stands():
    found = compare(view(convention="corner", length="2", key_length="5"))
    counts = {way.key: (way.weights > 0).sum(1).tolist() for way in found.ways if way.weights is not None}
    assert counts == {"top_left": [1, 2], "bottom_right": [4, 5], "is_causal": [1, 2]}
    assert compare(view(convention="corner")).part.shape == (16, 32)


@pytest.mark.parametrize(("mask", "window"), [("sliding_window", 8), ("attention_sinks", 8), ("causal", 3)])
def test_windows_differ_by_the_querys_own_key(mask, window):
    found = compare(view(convention="window", mask=mask))
    for key, size in (("with_self", window), ("plus_self", window + 1)):
        weights = found.way(key).weights
        assert weights is not None
        assert (weights > 0).sum(1).tolist() == [min(row + 1, size) for row in range(SIDE)]


def test_the_same_matrix_read_the_other_way_lets_the_other_pairs_through():
    found = compare(view(convention="meaning", empty="0"))
    kept, dropped, turned = (found.way(key).weights for key in ("keep_sdpa", "drop_mha", "turned_sdpa"))
    assert kept is not None and dropped is not None and turned is not None
    assert ((kept > 0) == found.allowed).all() and ((turned > 0) == ~found.allowed).all()
    has_key = (~found.allowed).any(1)
    np.testing.assert_allclose(dropped[has_key], turned[has_key], atol=1e-6)
    assert np.isnan(dropped[~has_key]).all()


def test_a_float_mask_of_zeros_and_ones_hides_nothing():
    found = compare(view(convention="floats"))
    lost, additive = found.way("zero_one").weights, found.way("additive").weights
    assert lost is not None and additive is not None
    assert (lost > 0).all()
    assert (additive[~found.allowed] == 0).all()


@pytest.mark.parametrize("convention", CONVENTIONS)
@pytest.mark.parametrize("language", LANGUAGES)
def test_every_way_has_a_name_and_every_picture_a_description(convention, language):
    made = view(convention=convention)
    for drawn in (masks_ways.weights(made, language), masks_ways.differences(made, language)):
        assert [m.key for m in drawn.maps] == [w.key for w in compare(made).ways if w.weights is not None]
        assert drawn.alt and "{" not in drawn.alt + drawn.caption
    for way in compare(made).ways:
        assert masks_ways.name(way, language) == say(language, f"masks.way.{way.key}")


def test_what_libraries_do_has_a_source_in_every_row():
    for language in LANGUAGES:
        rows = words(language)["masks.libraries.table"].splitlines()[2:]
        assert len(rows) == 8 and all("](https://" in row for row in rows)


@pytest.mark.parametrize(("past", "seen"), [(0, [1, 2]), (3, [4, 5])])
def test_onnx_is_top_left_without_a_cache_and_bottom_right_behind_one(past, seen):
    names = ["Q", "K", "V", "", *(["past_key", "past_value"] if past else [])]
    made = ["Y", *(["present_key", "present_value"] if past else [])]
    node = onnx.helper.make_node("Attention", names, made, is_causal=1)
    inputs = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in names if name]
    outputs = [onnx.helper.make_tensor_value_info("Y", onnx.TensorProto.FLOAT, None)]
    graph = onnx.helper.make_graph([node], "one", inputs, outputs)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", onnx.defs.onnx_opset_version())])
    new = 2 if past else 5  # keys that come with the two queries
    eye = np.eye(past + new, dtype=np.float32)[None, None]
    given = {"Q": eye[:, :, :2] * 0, "K": eye[:, :, past:], "V": eye[:, :, past:]}
    given |= {"past_key": eye[:, :, :past], "past_value": eye[:, :, :past]} if past else {}
    (weights,) = ReferenceEvaluator(model).run(["Y"], given)
    assert (np.asarray(weights)[0, 0] > 0).sum(1).tolist() == seen
    for language, cell in {"en": "bottom-right behind a cache, else top-left", "zh": "有缓存时右下，否则左上"}.items():
        assert f"| {cell} |" in say(language, "masks.libraries.table")


# Export

VIEWS = [{"mask": key} for key in MASKS] + [
    {"mask": "padding", "sequence": "2", "side": "left", "join": "and", "other": "causal"},
    {"mask": "document", "join": "or", "other": "tree", "invert": "1"},
    {"mask": "random_block", "join": "and_not", "other": "random_block", "other_seed": "5", "head": "3"},
    {"mask": "own", "rule": "kv_idx % 4 == batch and q_idx >= head", "sequence": "3", "head": "2"},
    {"mask": "own", "rule": "kv_idx % batch == 0"},
    {"mask": "own", "rule": "kv_idx <= q_idx / (batch) or kv_idx // batch < 3", "sequence": "2"},
    {"mask": "own", "rule": "kv_idx % (batch-1) == 0 and batch / 3 == 1 / 3", "sequence": "1"},
    {"mask": "own", "rule": "kv_idx / batch < 3", "join": "or", "other": "own", "other_rule": "q_idx % batch == 1"},
    {"mask": "own", "rule": "ｂatch == 2", "sequence": "2"},
    {"mask": "own", "rule": "-batch ** 2 == -4 or kv_idx < 3", "sequence": "2"},
    {"mask": "causal", "length": "6", "key_length": "10", "align": "bottom_right"},
    {"mask": "sliding_window", "length": "10", "key_length": "6", "align": "bottom_right", "window": "2"},
]


def name(given: dict[str, str]) -> str:
    return "-".join(given.values())[:40]


def ran(tmp_path, text: str) -> dict:
    path = tmp_path / "mask.py"
    path.write_text(text, encoding="utf-8")
    return runpy.run_path(str(path))


@pytest.mark.parametrize("form", ["sdpa", "mha", "additive"])
@pytest.mark.parametrize("given", VIEWS, ids=name)
def test_the_code_makes_the_grid_that_is_drawn(given, form, tmp_path):
    made = view(**given)
    allowed = region(made.build_mask(), made.look, (0, made.length), (0, made.key_length))
    text = export(made, form)
    got = ran(tmp_path, text)
    assert torch.equal(got["allowed"], allowed)
    assert "attnviz" not in text and got["output"].shape[-2:] == (made.length, 64)
    empty = ~allowed.any(1)
    if form == "mha":
        weights = got["weights"][0]
        assert torch.equal(torch.isnan(weights).all(1), empty)
        assert ((weights > 0) == allowed)[~empty].all()
    else:
        assert (got["output"][0, 0][empty] == 0).all()
        assert not torch.isnan(got["output"]).any()
    if form == "sdpa":
        again = torch.nn.functional.scaled_dot_product_attention(got["q"], got["k"], got["v"], attn_mask=allowed)
        assert torch.equal(got["output"], again)


@pytest.mark.parametrize("given", VIEWS, ids=name)
def test_the_rule_for_flex_attention_is_the_grid_too(given, tmp_path):
    """Everything but the call itself, which would be compiled for the better part of a minute."""
    made = view(**given)
    allowed = region(made.build_mask(), made.look, (0, made.length), (0, made.key_length))
    text = export(made, "flex")
    lines = [line for line in text.splitlines() if not line.startswith(("output", "torch.set_default_device"))]
    got = ran(tmp_path, "\n".join(lines))
    cells = create_mask(got["rule"], 1, 1, made.length, made.key_length, device="cpu")
    assert torch.equal(cells[0, 0], allowed)
    assert got["block_mask"].shape[-2:] == (made.length, made.key_length)
    assert "flex_attention)(q, k, v, block_mask=block_mask)" in text


@pytest.mark.parametrize("convention", CONVENTIONS)
def test_the_script_of_a_comparison_gives_its_ways(convention, tmp_path, capsys):
    long = [{"mask": "padding", "side": "left", "length": "64"},
            {"length": "16", "key_length": "64", "align": "bottom_right"},
            {"mask": "sliding_window", "length": "131072", "window": "5", "empty": "0", "seed": "7"}]  # fmt: skip
    for given in VIEWS + long:
        made = view(convention=convention, **given)
        text = ways_script(made)
        left, found = ran(tmp_path, text), compare(made)
        assert "attnviz" not in text and np.array_equal(left["allowed"], found.allowed), given
        said, gave = capsys.readouterr().out.splitlines(), dict(left["given"])
        assert len(left["ways"]) == len(found.ways)
        for line, name, way in zip(said, left["ways"], found.ways, strict=True):
            assert line.lstrip().startswith(f"{name}: ")
            if way.weights is None:
                assert name not in gave and way.problem in line
                continue
            np.testing.assert_allclose(gave[name], way.weights, atol=1e-6, err_msg=f"{given} {name}")
            assert f"{way.nans} NaN cells" in line


def test_a_plain_causal_mask_names_the_short_form():
    assert "is_causal=True" in export(view(), "sdpa")
    assert "is_causal=True" not in export(view(length="3", key_length="5", align="bottom_right"), "sdpa")


def test_the_view_names_its_form_and_an_unknown_one_is_refused():
    assert all(export(view(form=form)) == export(view(), form) for form in FORMS)
    with pytest.raises(Refusal, match="form must be one of sdpa, mha, flex, additive, got 'numpy'"):
        export(view(), "numpy")
