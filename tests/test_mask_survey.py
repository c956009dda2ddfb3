"""What is counted about a mask against its whole grid: keys, pairs, tiles, regions, reach, and why a pair attends."""

import itertools

import numpy as np
import pytest
import torch

from attnviz.mask_view import survey as module
from attnviz.mask_view.reach import reach
from attnviz.mask_view.survey import Look, coarser, region, survey, tiles, visible
from attnviz.mask_view.view import settle
from attnviz.mask_view.why import why
from attnviz.masks import MASKS, dense, offset
from tests.test_masks import BUILDS, IDS

SHAPES = [(1, 1), (7, 9), (33, 17), (40, 40)]


def whole(mask, look: Look) -> np.ndarray:
    cells = dense(mask, look.q_len, look.kv_len, align=look.align, batch=look.batch, heads=3)
    return cells.expand(look.batch, 3, -1, -1)[look.sequence, look.head].numpy()


@pytest.mark.parametrize("piece", [64, 2**18])
@pytest.mark.parametrize(("key", "settings"), BUILDS, ids=IDS)
def test_counts_are_those_of_the_grid(key, settings, piece, monkeypatch):
    monkeypatch.setattr(module, "PIECE", piece)
    mask = MASKS[key].build(**settings)
    for (q_len, kv_len), align, side in itertools.product(SHAPES, ("top_left", "bottom_right"), (4, 100)):
        look = Look(q_len, kv_len, align, head=2 if mask.per_head else 0)
        cells, found = whole(mask, look), survey(mask, look, max_side=side)
        assert found.keys.tolist() == cells.sum(1).tolist()
        assert (found.pairs, found.empty_rows) == (cells.sum(), (~cells.any(1)).sum())
        position = np.arange(q_len)[:, None] + look.offset
        assert found.looks_back == bool((cells & (np.arange(kv_len) <= position)).any())
        assert found.only_future == (bool(cells.any()) and not found.looks_back)
        pr, pc = found.factor
        assert found.counts.shape == (-(-q_len // pr), -(-kv_len // pc)) and max(found.counts.shape) <= side
        for r, c in itertools.product(*map(range, found.counts.shape)):
            part = cells[r * pr : (r + 1) * pr, c * pc : (c + 1) * pc]
            assert (found.counts[r, c], found.sizes[r, c]) == (part.sum(), part.size)


def test_a_mask_turned_around_has_only_the_future_however_long():
    for piece in (4, 1):
        look = Look(4096 // piece, 5000 // piece, "bottom_right")
        assert survey(~MASKS["causal"].build(), look).only_future
        one = MASKS["own"].build(rule=f"kv_idx > q_idx or kv_idx == {look.kv_len - 1}")
        assert not survey(one, look).only_future  # the last query sees itself


@pytest.mark.parametrize("key", ["causal", "sliding_window", "global_local", "own"])
def test_a_region_is_cut_out_of_the_grid(key):
    mask, look = MASKS[key].build(), Look(33, 40, "bottom_right")
    cells = whole(mask, look)
    found = survey(mask, look, rows=(5, 28), cols=(11, 40), max_side=1000)
    assert found.counts.tolist() == cells[5:28, 11:40].astype(int).tolist()
    assert found.keys.tolist() == cells[5:28].sum(1).tolist()  # over every key, so that an empty row is known
    pooled = survey(mask, look, rows=(5, 28), cols=(11, 40), max_side=6)
    assert pooled.factor == (4, 5) and pooled.counts.sum() == cells[5:28, 11:40].sum()
    assert torch.equal(region(mask, look, (5, 28), (11, 40)), torch.from_numpy(cells[5:28, 11:40]))


@pytest.mark.parametrize("side", [1, 3, 7, 100])
def test_counts_in_larger_cells_are_sums_of_them(side):
    mask, look = MASKS["own"].build(), Look(33, 40)
    fine = survey(mask, look, max_side=20)
    found = coarser(fine, side)
    assert max(found.counts.shape) <= side and found.factor[0] % fine.factor[0] == 0
    cells = whole(mask, look)
    pr, pc = found.factor
    for r, c in itertools.product(*map(range, found.counts.shape)):
        part = cells[r * pr : (r + 1) * pr, c * pc : (c + 1) * pc]
        assert (found.counts[r, c], found.sizes[r, c]) == (part.sum(), part.size)
    assert found.pairs == fine.pairs


@pytest.mark.parametrize("tile", [1, 5, 8, 64])
@pytest.mark.parametrize("key", MASKS)
def test_tiles_are_full_partial_or_empty_as_the_grid_says(key, tile):
    mask, look = MASKS[key].build(), Look(33, 41, "bottom_right", batch=1)
    cells = whole(mask, look)
    parts = [cells[r : r + tile, c : c + tile] for r in range(0, 33, tile) for c in range(0, 41, tile)]
    found = tiles(survey(mask, look, tile=tile))
    assert found.full == sum(part.all() for part in parts)
    assert found.empty == sum(not part.any() for part in parts)
    assert found.partial == len(parts) - found.full - found.empty
    assert found.computed == sum(part.size for part in parts if part.any())
    assert (found.cells, found.pairs) == (33 * 41, cells.sum())
    assert found.skipped == pytest.approx(1 - found.computed / (33 * 41))


def test_each_sequence_and_head_has_its_own_counts():
    mask = MASKS["padding"].build(lengths=(4, 1, 3)) & MASKS["random_block"].build(block=2, share=0.5)
    for sequence, head in itertools.product(range(3), range(3)):
        look = Look(8, 8, batch=3, sequence=sequence, head=head)
        assert survey(mask, look).counts.tolist() == whole(mask, look).astype(int).tolist()


def test_what_is_visible_is_within_the_grid_for_every_mask():
    for (key, settings), (q_len, kv_len) in itertools.product(BUILDS, SHAPES):
        look = Look(q_len, kv_len, "bottom_right")
        for start in range(0, q_len, 3):
            first, stop = visible(MASKS[key].build(**settings), look, (start, min(start + 3, q_len)))
            assert 0 <= first <= stop <= kv_len


def test_a_long_window_is_counted_without_its_grid():
    found = survey(MASKS["sliding_window"].build(window=8), Look(100_000, 100_000))
    assert found.pairs == 8 * 100_000 - 28
    assert max(found.counts.shape) <= 1024


# Reach


def slow_reach(allowed: np.ndarray, layers: int) -> np.ndarray:
    first = np.zeros_like(allowed, dtype=int)
    for query in range(len(allowed)):
        seen = {query}
        for layer in range(1, layers + 1):
            # Backwards: what the tokens seen so far were made of one layer further down.
            seen = {key for at in seen for key in range(len(allowed)) if allowed[at, key] or at == key}
            for key in seen:
                first[query, key] = first[query, key] or layer
    return first


@pytest.mark.parametrize("length", [20, 70])
@pytest.mark.parametrize("key", ["causal", "sliding_window", "dilated", "tree", "chunked", "own"])
def test_reach_is_what_paths_through_the_layers_give(key, length):
    allowed = dense(MASKS[key].build(), length, length)[0, 0]
    found = reach(allowed, 4)
    expected = slow_reach(allowed.numpy(), 4)
    assert found.first.tolist() == expected.tolist()
    for layer in range(1, 5):
        counts = ((expected > 0) & (expected <= layer)).sum(1)
        assert (found.mean[layer - 1], found.most[layer - 1]) == (pytest.approx(counts.mean()), counts.max())


def test_a_window_reaches_one_less_than_its_width_further_with_every_layer():
    found = reach(dense(MASKS["sliding_window"].build(window=5), 64, 64)[0, 0], 9)
    assert found.most == tuple(1 + layer * 4 for layer in range(1, 10))
    assert found.settled is None


@pytest.mark.parametrize(("key", "settled"), [("full", 1), ("causal", 1), ("chunked", 1)])
def test_nothing_new_is_seen_once_everything_is(key, settled):
    assert reach(dense(MASKS[key].build(), 24, 24)[0, 0], 5).settled == settled


def test_a_token_that_sees_nothing_still_carries_itself():
    found = reach(torch.zeros(3, 3, dtype=torch.bool), 2)
    assert found.first.tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1]] and found.settled == 0


def test_reach_wants_a_square_and_a_layer():
    with pytest.raises(ValueError, match=r"\[length, length\], got \[2, 3\]"):
        reach(torch.ones(2, 3, dtype=torch.bool), 1)
    with pytest.raises(ValueError, match="layers must be at least 1, got 0"):
        reach(torch.ones(2, 2, dtype=torch.bool), 0)


# Why


@pytest.mark.parametrize("key", MASKS)
def test_a_reason_agrees_with_the_mask_for_every_pair(key):
    view = settle({"mask": key, "length": "12", "key_length": "15", "align": "bottom_right"}).view
    cells = whole(view.build_mask(), view.look)
    for query, at in itertools.product(range(12), range(15)):
        found = why(view, query, at)
        (reason,) = found.reasons
        assert found.allowed == reason.allowed == cells[query, at]
        assert found.position == query + offset(12, 15, "bottom_right")
        assert reason.clauses or reason.sentence is not None
        held = [clause.holds for clause in reason.clauses]
        assert not (held and all(held)) or reason.allowed
        assert not (held and not any(held)) or not reason.allowed


def test_a_reason_carries_the_numbers():
    found = why(settle({"mask": "sliding_window", "window": "3"}).view, 7, 4)
    assert [(c.text, c.numbers, c.holds) for c in found.reasons[0].clauses] == [
        ("kv_idx <= q_idx", "4 <= 7", True),
        ("kv_idx > q_idx - 3", "4 > 4", False),
    ]
    own = why(settle({"mask": "own", "rule": "not q_idx / 2 < kv_idx <= 9"}).view, 5, 3)
    assert [(c.join or c.text, c.numbers, c.holds, c.depth) for c in own.reasons[0].clauses] == [
        ("not", "", False, 0),
        ("and", "", True, 1),
        ("q_idx / 2 < kv_idx", "2.5 < 3", True, 2),
        ("kv_idx <= 9", "3 <= 9", True, 2),
    ]
    assert not own.allowed


JOINED = {
    "a and (b or c)": [("a", 0), ("or", 0), ("b", 1), ("c", 1)],
    "a or b or (c or d) and a": [("or", 0), ("a", 1), ("b", 1), ("and", 1), ("or", 2), ("c", 3), ("d", 3), ("a", 2)],
    "a and (b and c)": [("a", 0), ("b", 0), ("c", 0)],
    "not (not a)": [("not", 0), ("not", 1), ("a", 2)],
}


@pytest.mark.parametrize("rule", JOINED)
def test_a_reason_shows_how_its_comparisons_are_joined(rule):
    sides = {name: f"kv_idx {sign} 3" for name, sign in zip("abcd", ("<", ">", "==", "!="), strict=True)}
    text = "".join(sides.get(sign, sign) for sign in rule.replace("and", "&").replace("or", "|").replace("not", "~"))
    text = text.replace("&", "and").replace("|", "or").replace("~", "not")
    for key in range(5):
        found = why(settle({"mask": "own", "rule": text}).view, 5, key)
        clauses = found.reasons[0].clauses
        names = {side: name for name, side in sides.items()}
        assert [(clause.join or names[clause.text], clause.depth) for clause in clauses] == JOINED[rule]
        top = [clause.holds for clause in clauses if clause.depth == 0]
        assert all(top) == found.allowed


def test_both_masks_of_a_pair_give_their_reason():
    view = settle({"mask": "causal", "join": "and_not", "other": "padding", "sequence": "2", "invert": "1"}).view
    found = why(view, 20, 4)
    assert [reason.allowed for reason in found.reasons] == [True, True]
    assert found.allowed  # not (causal and not padding)
    assert found.reasons[1].clauses[0].numbers == "4 < 9"  # the length of the sequence that is drawn


@pytest.mark.parametrize(("key", "words"), [("document", "document 2, the key in document 1"),
                                            ("tree", "6 → 3 → 1; the key is draft token 5"),
                                            ("random_block", "block 3, the key in block 3")])  # fmt: skip
def test_masks_that_are_no_comparisons_say_what_decides(key, words):
    query, at = {"document": (13, 5), "tree": (13, 12), "random_block": (13, 12)}[key]
    sentence = why(settle({"mask": key}).view, query, at).reasons[0].sentence
    assert sentence is not None and words in sentence.en and "{" not in sentence.zh


def test_a_pair_outside_is_named():
    with pytest.raises(ValueError, match="must lie within 32 × 32, got 32 and 0"):
        why(settle({}).view, 32, 0)
