"""The KV cache page's sections: the corner bug, layouts, rounding, paged memory, the cross cache, and the script."""

import runpy

import numpy as np
import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from attnviz.kv_cache_view import lessons
from attnviz.kv_cache_view.decode import decode, layer_of
from attnviz.kv_cache_view.knobs import LAYOUT_KEYS, VARIANT_KEYS
from attnviz.kv_cache_view.snippet import decode_snippet
from attnviz.kv_cache_view.view import settle
from attnviz.positions import POSITIONS
from attnviz.text import LANGUAGES, Refusal
from attnviz.variants import VARIANTS
from pages.ui.heatmap.frame import MASKED, unpack
from pages.ui.kv_cache_details import PARTS, SECTIONS
from pages.ui.kv_cache_lessons import CHARTS, GRIDS, memories
from pages.ui.kv_cache_picture import cell, frame
from pages.ui.translate import say
from tests.pages import check, keys, link, plots, said, shown, visit


def view(**given):
    settled = settle(given)
    assert not settled.problems and not settled.notes
    return settled.view


@pytest.mark.parametrize("variant", VARIANT_KEYS)
def test_top_left_at_decode_sees_key_0_only_and_bottom_right_is_the_whole(variant):
    scene = view(variant=variant).scene
    for seen in (2, 5, 12):
        found = lessons.corners(scene, seen)
        wrong, right = found["top_left"], found["bottom_right"]
        assert wrong.allowed.tolist() == [True] + [False] * (seen - 1) and right.allowed.all()
        np.testing.assert_array_equal(wrong.weights, np.eye(1, seen).repeat(8, 0))
        np.testing.assert_allclose(right.weights.sum(-1), 1, atol=1e-5)
        assert wrong.error > 0.3 and right.error < 1e-5
        np.testing.assert_allclose(right.weights, decode(scene)[-1].without[:, seen - 1, :seen], atol=1e-6)
        assert lessons.torch_gap(scene, seen, "top_left") < 1e-5 < 0.01 < lessons.torch_gap(scene, seen, "bottom_right")
    one = lessons.corners(scene, 1)
    assert one["top_left"].error == one["bottom_right"].error == 0  # as many queries as keys


def test_torch_s_flag_gives_the_value_of_token_0():
    """The very call that people make, on the page's own tensors."""
    scene = view(variant="mha").scene
    config, weights, x = layer_of(scene)
    query, key, value = VARIANTS["mha"].project(config, weights, x, position=POSITIONS["rope"].build())
    called = scaled_dot_product_attention(query[:, :, -1:], key, value, is_causal=True)
    torch.testing.assert_close(called, value[:, :, :1], rtol=0, atol=1e-6)


def test_layouts_keep_what_they_say_and_dropping_costs():
    found = lessons.layouts(view(window="3", sinks="1"))
    assert list(found) == list(LAYOUT_KEYS)
    full, window, sinks = found.values()
    assert [kept.kept.sum(1).tolist() for kept in (full, window, sinks)] == [
        list(range(1, 13)), [1, 2, *[3] * 10], [1, 2, 3, *[4] * 9]
    ]  # fmt: skip
    assert sinks.kept[11].nonzero()[0].tolist() == [0, 9, 10, 11]
    assert full.error == 0 < sinks.error < 1 and window.error > 0.1
    assert full.cache_bytes == 3 * window.cache_bytes  # nine tokens after step 5, and three


def test_rounding_has_the_bytes_and_the_error_it_has():
    found = lessons.rounded(view(variant="mha", d_k="64"))
    plain = found["plain"].cache_bytes
    assert plain == 9 * 8 * 2 * 64 * 4
    # A vector of 64 float32 becomes 64 bytes and a scale, or 32 and a scale.
    assert [found[key].cache_bytes * 256 // plain for key in ("int8", "fp8", "int4")] == [68, 68, 36]
    for step in range(1, 9):
        int8, fp8, int4 = (found[key].errors[step] for key in ("int8", "fp8", "int4"))
        assert 0 < int8 < fp8 < int4 < 0.3
    assert set(found["plain"].errors) == {0.0}


def test_blocks_waste_less_than_one_each_and_reservations_all_the_rest():
    shown_view = view(lengths="37,5,90,18,61,12", block="16", reserve="128")
    whole, blocks = memories(shown_view)
    assert (whole.used, whole.taken, blocks.used, blocks.taken) == (223, 768, 223, 272)
    _, codes = unpack(frame({"parts": "paged"}))
    for drawn, memory in zip(codes["paged"], (whole, blocks), strict=True):
        assert (drawn < MASKED).sum() == memory.used and (drawn <= MASKED).sum() == memory.taken
    # A reservation that is too short is as long as the longest sequence.
    assert memories(view(reserve="10"))[0].taken == 6 * 90


@pytest.mark.parametrize(
    "given", [{"lengths": "1", "block": "4096"}, {"lengths": ",".join(["4096"] * 32), "block": "1", "reserve": "4096"}]
)
def test_the_smallest_and_the_largest_memory_are_drawn(given):
    answer = frame({"parts": "paged", **given})
    header, _ = unpack(answer)
    assert len(header["parts"]["paged"]["maps"]) == 2 and len(answer) < 1_200_000


@pytest.mark.parametrize("variant", VARIANT_KEYS)
def test_the_cross_cache_never_grows_and_gives_what_all_at_once_gives(variant):
    shown_view = view(variant=variant, source="one two three four five")
    found = lessons.cross(shown_view.scene, shown_view.source_tokens)
    assert len(set(found.cross_bytes)) == 1 and found.weights.shape == (8, 12, 5)
    assert np.diff(found.self_bytes).tolist() == [found.self_bytes[0]] * 11
    assert found.cross_bytes[0] == 5 * found.self_bytes[0]
    np.testing.assert_allclose(found.weights.sum(-1), 1, atol=1e-5)
    assert found.error < 1e-5
    assert found.self_bytes[-1] == decode(shown_view.scene)[-1].step.cache_bytes


@pytest.mark.parametrize("layout", LAYOUT_KEYS)
@pytest.mark.parametrize("variant", VARIANT_KEYS)
def test_the_script_runs_alone_and_gives_the_page_s_tensors(variant, layout, tmp_path, capsys):
    scene = view(variant=variant, layout=layout, text="a 'b' \"c\" \\ {x} <b> 猫 d e", seed="3").scene
    path = tmp_path / "decode.py"
    path.write_text(decode_snippet(scene), encoding="utf-8")
    space = runpy.run_path(str(path))
    answers = decode(scene)
    own = torch.cat([answer.step.output for answer in answers], dim=1)
    torch.testing.assert_close(space["output"], own, rtol=0, atol=1e-5)
    for answer, rows in zip(answers, space["rows"], strict=True):
        np.testing.assert_allclose(np.nan_to_num(answer.weights), rows[0].numpy(), atol=1e-5)
    if layout == "full":
        own_cache = answers[-1].after.contents(torch.float32)
        kept = torch.cat(space["cache"], dim=-1)
        torch.testing.assert_close(kept, torch.cat(list(own_cache.values()), dim=-1), rtol=0, atol=1e-5)
    assert "attnviz" not in decode_snippet(scene) and "largest difference:" in capsys.readouterr().out


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_section_opens_with_its_pictures_and_words(language):
    app = visit(language, page="kv_cache")
    assert not {f"kv_cache.{part}.map" for part in GRIDS} & keys(app)  # folded at first
    for name in SECTIONS:
        app.session_state[f"kv_cache.fold.{name}"] = True
    check(app.run())
    everything = ",".join(part for parts in PARTS.values() for part in parts)
    header, codes = unpack(frame({"lang": language, "parts": everything}))
    for part in GRIDS:
        own, drawn = shown(app, f"kv_cache.{part}.map")
        assert own["parts"][part]["caption"] == header["parts"][part]["caption"]
        titles = [[entry["title"] for entry in one["parts"][part]["maps"]] for one in (own, header)]
        assert titles[0] == titles[1]
        assert set(own["config"]["params"]["parts"].split(",")) == {*GRIDS, *CHARTS}
        for one, other in zip(drawn[part], codes[part], strict=True):
            assert (one == other).all()
        assert "{" not in header["parts"][part]["caption"]
    for part in CHARTS:
        assert plots(app)[f"kv_cache.{part}.chart"] == header["figures"][part]
    words = said(app)
    assert "F.scaled_dot_product_attention(q_new, k_cache, v_cache, is_causal=True)" in words
    assert decode_snippet(settle({}).view.scene).strip() in words
    for url in ("2309.06180", "2309.17453", "1911.02150", "scaled_dot_product_attention.html"):
        assert url in words


def test_a_link_opens_the_section_whose_settings_it_changes():
    app = visit(page="kv_cache", lengths="3,4", block="2")
    assert "kv_cache.paged.map" in keys(app) and "kv_cache.cross.map" not in keys(app)
    assert link(app) == {"lengths": "3,4", "block": "2"}
    assert "paged" in shown(app, "kv_cache.main")[0]["config"]["params"]["parts"].split(",")


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_cell_of_every_section_says_what_it_is(language):
    def ask(**place):
        return cell({"lang": language, **place})

    assert ask(part="align", map="top_left", row="0", col="0")["value"] == "1"
    assert ask(part="align", map="top_left", row="0", col="1")["state"] == 1
    kept, dropped = (say(language, f"kv_cache.layouts.{name}") for name in ("kept", "dropped"))
    assert ask(part="layouts", map="sliding_window", row="11", col="0")["value"] == dropped
    assert ask(part="layouts", map="full", row="11", col="0")["value"] == kept
    assert ask(part="paged", map="reserved", row="2", col="7")["value"] == say(
        language, "kv_cache.paged.of", sequence=2
    )
    assert ask(part="cross", map="other", row="4", col="1")["value"] == say(language, "kv_cache.kind.cached")
    with pytest.raises(Refusal, match="part"):
        ask(part="storage", map="int8", row="0", col="0")
