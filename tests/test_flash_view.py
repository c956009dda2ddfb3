"""The walk that the flash page shows, held to the definition of softmax and to torch's own results."""

import numpy as np
import pytest
import torch

from attnviz.backends import BACKENDS
from attnviz.flash_view import guard
from attnviz.flash_view.settings import KNOBS, MOST_TILES, every_name, mask_knobs
from attnviz.flash_view.settle import settle
from attnviz.flash_view.walk import now, row, span, tensors, walk
from attnviz.masks import MASKS, dense
from attnviz.text import LANGUAGES, Refusal

SHAPES = (
    {},
    {"length": "50", "tile_rows": "16", "tile_cols": "8"},
    {"length": "33", "key_length": "70", "align": "bottom_right", "tile_rows": "64", "tile_cols": "9"},
    {"length": "1"},
    {"length": "24", "tile_rows": "1", "tile_cols": "1", "d_k": "3", "sharpness": "40"},
)


def view_of(**settings):
    settled = settle(settings)
    assert not settled.problems and not settled.notes
    return settled.view


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("mask", MASKS)
def test_a_tile_is_visited_once_if_a_pair_of_it_may_attend_and_never_otherwise(mask, shape):
    view = settle({"mask": mask, **shape}).view
    found = walk(view)
    allowed = dense(view.build_mask(), view.length, view.key_length, align=view.align)[0, 0]
    for place in np.ndindex(view.grid):
        rows = slice(*span(view, place[0]))
        cols = slice(place[1] * view.tile_cols, (place[1] + 1) * view.tile_cols)
        assert (found.order[place] > 0) == bool(allowed[rows, cols].any())
    assert sorted(found.order[found.order > 0]) == list(range(1, found.steps + 1))
    assert [found.order[place] for place in found.places] == list(range(1, found.steps + 1))


@pytest.mark.parametrize("mask", MASKS)
def test_a_row_ends_where_eager_ends_whatever_the_tiles(mask):
    for step, settings in enumerate(({"tile_rows": "16"}, {"tile_cols": "5"}, {"sharpness": "8", "row": "2"})):
        view = settle({"mask": mask, "length": "64", "step": str(step), **settings}).view
        query, key, value = (tensor.double() for tensor in tensors(view))
        allowed = dense(view.build_mask(), 64, 64)
        exact = BACKENDS["eager"].attend(query, key, value, allowed=allowed, scale=view.scale)
        found, at = row(view), now(view)
        np.testing.assert_allclose(found.exact, exact.output[0, 0, at.query], atol=1e-12)
        scores = exact.scores.masked_fill(~allowed, -torch.inf)[0, 0, at.query]
        if not len(found.keys) or not np.isfinite(found.last_maximum):
            assert not allowed[0, 0, at.query].any()
            continue
        assert found.last_maximum == pytest.approx(float(scores.max()))
        assert found.last_total == pytest.approx(float((scores - scores.max()).exp().sum()))
        assert found.maximum[-1] == pytest.approx(found.last_maximum, rel=1e-4)
        assert found.total[-1] == pytest.approx(found.last_total, rel=1e-3)
        assert found.distance[-1] < 1e-4


def test_a_row_after_each_tile_is_the_softmax_of_the_keys_so_far():
    view = view_of(step="33")
    found, at = row(view), now(view)
    query, key, value = (tensor.double()[0, 0] for tensor in tensors(view))
    assert at == (33, (7, 4), 7, 5, 127)
    assert list(found.keys) == [16 * tile for tile in range(1, 9)]
    for index, keys in enumerate(found.keys):
        scores = query[at.query] @ key[:keys].T * view.scale
        assert found.maximum[index] == pytest.approx(float(scores.max()), rel=1e-5)
        assert found.total[index] == pytest.approx(float((scores - scores.max()).exp().sum()), rel=1e-5)
        np.testing.assert_allclose(found.output[index], torch.softmax(scores, -1) @ value[:keys], atol=1e-5)
        difference = (torch.softmax(scores, -1) @ value[:keys]).numpy() - found.exact
        assert found.distance[index] == pytest.approx(np.abs(difference).max(), abs=1e-5)


def test_the_step_says_which_block_is_worked_on():
    assert now(view_of(step="0")) == (0, (0, 0), 0, 0, 15)
    assert now(view_of(step="1")) == (1, (0, 0), 0, 1, 15)
    assert now(view_of(step="2", row="3")) == (2, (1, 0), 1, 1, 19)
    assert now(view_of(step="36")) == (36, (7, 7), 7, 8, 127)
    # The last block may be shorter than the others.
    assert now(view_of(length="50", step="10")).query == 49


def test_nothing_visible_is_no_walk_and_no_failure():
    view = view_of(mask="own", rule="kv_idx > 1000", length="20", key_length="20")
    assert walk(view).steps == 0 and now(view) == (0, None, 0, 0, 15)
    found = row(view)
    assert found.keys.shape == (0,) and found.last_total == 0 and not found.exact.any()


def test_bytes_fall_when_the_block_of_queries_grows_and_not_with_the_keys_of_a_tile():
    def read(**settings):
        return sum(walk(view_of(mask="full", length="256", **settings)).read)

    tokens = 256 * 64 * 4
    assert read(tile_rows="16") == tokens + 16 * 2 * tokens
    assert read(tile_rows="64") == tokens + 4 * 2 * tokens
    assert read(tile_rows="256") == 3 * tokens
    assert read(tile_rows="16", tile_cols="128") == read(tile_rows="16")


def test_settings_follow_each_other_and_say_so():
    settled = settle({"length": "1024", "tile_rows": "4", "row": "99", "step": "4000"})
    assert (settled.view.tile_rows, settled.view.row) == (1024 // MOST_TILES, 15)
    said = [note.en for note in settled.notes]
    assert "more than 64 tiles along a side" in said[0] and "the rows of a block are 0 to 15" in said[1]
    assert "the last step of this walk is 2080" in said[2]
    padded = settle({"mask": "padding", "lengths": "9,4"})
    assert padded.view.mask_settings[0] == ("lengths", (9,)) and "one sequence" in padded.notes[0].en
    assert settle({"mask": "sliding_window", "window": "400"}).values["window"] == 128
    for language in LANGUAGES:
        assert all(note.say(language) for note in settled.notes)


def test_defaults_follow_without_a_word_and_stay_out_of_the_link():
    assert settle({"length": "1"}).view.step == 1  # a walk of one tile is not shown before it began
    for settings in ({"length": "4096"}, {"length": "3"}, {"mask": "full"}, {"tile_rows": "128"}):
        settled = settle(settings)
        assert not settled.notes and settled.link() == settings
        assert max(settled.view.grid) <= MOST_TILES and settled.view.step <= walk(settled.view).steps


@pytest.mark.parametrize("name", sorted(every_name()))
def test_no_text_at_all_breaks_the_settings(name):
    owner = next((mask for mask in MASKS if name in mask_knobs(mask)), "causal")
    for text in ("", "x", "-1", "1e99", "nan", "9" * 400, "<b>", "0", "1,2", "\x00"):
        given = {"mask": owner, name: text} if name not in KNOBS else {name: text}
        settled = settle(given)
        assert walk(settled.view).steps >= 0
        assert all(problem.en and problem.zh for problem in settled.problems)


def test_what_is_too_large_is_refused_before_it_is_made():
    view = view_of(length="4096", d_k="1024", tile_rows="4096")
    need = guard.predict(view)
    assert guard.check(view, free_bytes=4 * need) == need
    with pytest.raises(Refusal, match=r"4,096 × 4,096 tokens with d_k 1024 in tiles of 4096 × 64"):
        guard.check(view, free_bytes=4 * need - 4)


@pytest.mark.parametrize(
    "settings", ({"length": "1024", "tile_rows": "512"}, {"length": "512", "d_k": "1024"}), ids=str
)
def test_the_prediction_covers_what_is_held(settings):
    from attnviz.flash_view import walk as module
    from tests.peak import peak_bytes

    view = view_of(mask="full", **settings)

    def work():
        for cached in (module._drawn, module._row, module._exact):
            cached.cache_clear()
        row(view)

    assert guard.predict(view) / 2 < peak_bytes(work) <= guard.predict(view)
