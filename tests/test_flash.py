"""The trace is the computation: every step is checked against the definition of the online softmax."""

import pytest
import torch

from attnviz.backends import BACKENDS
from attnviz.backends.flash import plan, trace
from attnviz.masks import MASKS, Mask, dense, tile_state
from attnviz.text import Refusal
from tests.peak import peak_bytes

attend = BACKENDS["flash"].attend
CAUSAL = MASKS["causal"].build()


def draw(heads, length, width=8, dtype=torch.float64):
    return torch.randn(1, heads, length, width, dtype=dtype)


def tiles(*tensors, **options):
    return [(step.rows, step.cols, step.state) for step in trace(*tensors, **options)]


@pytest.mark.parametrize("tile", ((4, 4), (3, 5), (1, 1), (64, 64)))
@pytest.mark.parametrize("mask", (None, "causal", "sliding_window", "document"))
def test_each_step_holds_the_softmax_of_the_keys_so_far(mask, tile):
    q, k, v = draw(4, 11), draw(2, 13), draw(2, 13, width=3)
    allowed = None if mask is None else MASKS[mask].build()
    grid = torch.ones(1, 1, 11, 13, dtype=torch.bool) if allowed is None else dense(allowed, 11, 13)
    for step in trace(q, k, v, allowed=allowed, tile=tile):
        rows, seen = slice(*step.rows), slice(0, step.cols[1])
        so_far = BACKENDS["eager"].attend(q[:, :, rows], k[:, :, seen], v[:, :, seen], allowed=grid[:, :, rows, seen])
        scores = so_far.scores.masked_fill(~grid[:, :, rows, seen], -torch.inf)
        torch.testing.assert_close(step.maximum, scores.amax(-1))
        torch.testing.assert_close(step.maximum + step.total.log(), so_far.logsumexp)
        output = step.output / step.total.clamp(min=1e-300)[..., None]
        torch.testing.assert_close(output, so_far.output)
        origin = step.maximum.masked_fill(step.maximum.isneginf(), 0.0)[..., None]
        torch.testing.assert_close(step.exponentials, (scores - origin).exp()[..., step.cols[0] :])


def test_only_tiles_that_count_are_visited():
    q = draw(1, 8)
    corner = [((0, 4), (0, 4), "partial"), ((4, 8), (0, 4), "full"), ((4, 8), (4, 8), "partial")]
    assert tiles(q, q, q, allowed=CAUSAL, tile=(4, 4)) == corner
    assert tiles(q, q, q, allowed=dense(CAUSAL, 8, 8), tile=(4, 4)) == corner
    bias = torch.zeros(8, 8).masked_fill(~dense(CAUSAL, 8, 8)[0, 0], -torch.inf)
    assert tiles(q, q, q, bias=bias, tile=(4, 4)) == corner
    assert [state for *_, state in tiles(q, q, q, tile=(4, 4))] == ["full"] * 4
    blocks = MASKS["document"].build(lengths=(4, 4))
    assert tiles(q, q, q, allowed=blocks, tile=(4, 4)) == [((0, 4), (0, 4), "full"), ((4, 8), (4, 8), "full")]
    window = MASKS["sliding_window"].build(window=2)
    assert [cols for _, cols, _ in tiles(q, q, q, allowed=window, tile=(4, 4))] == [(0, 4), (3, 4), (4, 8)]
    assert tiles(q, q, q, allowed=torch.zeros(8, 8, dtype=torch.bool), tile=(4, 4)) == []


def test_the_rule_of_a_mask_is_asked_only_where_its_band_leaves_a_doubt():
    asked = []

    def rule(batch, head, q_idx, kv_idx):
        asked.append((q_idx.min().item(), kv_idx.min().item()))
        return kv_idx <= q_idx

    q = draw(1, 32)
    assert len(tiles(q, q, q, allowed=Mask(rule, (None, 0), exact=True), tile=(8, 8))) == 10
    assert asked == [(0, 0), (8, 8), (16, 16), (24, 24)]


def test_a_window_looks_only_at_the_tiles_near_it(monkeypatch):
    looked = []
    monkeypatch.setattr(
        "attnviz.backends.tiles.tile_state", lambda *args, **kw: looked.append(args) or tile_state(*args, **kw)
    )
    q = draw(1, 512)
    visited = tiles(q, q, q, allowed=MASKS["sliding_window"].build(window=8), tile=(16, 16))
    assert len(visited) == len(looked) == 2 * 32 - 1


def test_what_is_drawn_is_what_is_computed():
    q, k, v = draw(2, 300), draw(2, 300), draw(2, 300)
    result = attend(q, k, v, allowed=CAUSAL)
    ends = {step.rows: step.output / step.total[..., None] for step in trace(q, k, v, allowed=CAUSAL)}
    assert torch.equal(result.output, torch.cat(list(ends.values()), dim=2))
    assert result.kernel == "tiled 256 × 256"


def test_a_tile_without_a_visible_key_makes_no_nan():
    """A causal row meets fully masked tiles as soon as the sequence is longer than a tile."""
    q, k, v = draw(1, 12), draw(1, 12), draw(1, 12)
    allowed = torch.ones(12, 12, dtype=torch.bool).tril()
    allowed[:, :4] = False  # the first tile of every later row counts for none of its cells
    for step in trace(q, k, v, allowed=allowed, tile=(3, 2)):
        assert not step.total.isnan().any()
        assert not step.output.isnan().any()
        assert not step.exponentials.isnan().any()


@pytest.mark.parametrize(("dtype", "inside"), ((torch.float16, torch.float32), (torch.float64, torch.float64)))
def test_scores_are_kept_in_float32_at_least(dtype, inside):
    q = draw(1, 6, dtype=torch.float32).to(dtype)
    for step in trace(q, q, q, tile=(4, 4)):
        assert {step.exponentials.dtype, step.maximum.dtype, step.total.dtype, step.output.dtype} == {inside}
    assert attend(q, q, q).output.dtype == dtype


@pytest.mark.parametrize("mask", (None, "causal", "sliding_window", "prefix_lm"))
def test_memory_is_one_tile_and_rows(mask):
    sizes = []
    for length in (1024, 2048):
        q, k, v = (draw(1, length, dtype=torch.float32) for _ in range(3))
        allowed = None if mask is None else MASKS[mask].build()
        sizes.append(peak_bytes(lambda q=q, k=k, v=v, allowed=allowed: attend(q, k, v, allowed=allowed)))
    rows = 1024 * (8 + 1) * 4  # output and log-sum-exp of the queries that were added
    assert sizes[1] - sizes[0] == rows
    # A mask's own rule works in int64: a tile of it is a few times a tile of scores.
    assert sizes[0] < 6 * 256**2 * 8


def test_shared_heads_take_no_copies():
    q, k = draw(8, 64, dtype=torch.float32), draw(1, 65536, width=8, dtype=torch.float32)
    assert peak_bytes(lambda: attend(q, k, k)) < 2 * k.nbytes


def test_a_gradient_is_refused_at_once():
    q = draw(1, 4)
    leaf = q.clone().requires_grad_()
    with pytest.raises(Refusal, match="flash computes no gradients"):
        attend(q, leaf, q)
    with pytest.raises(Refusal, match="flash computes no gradients"):
        trace(q, q, q, bias=torch.zeros(4, 4, requires_grad=True))
    with torch.no_grad():
        assert not attend(leaf, leaf, leaf).output.requires_grad


@pytest.mark.parametrize("tile", ((0, 4), (4, -1)))
def test_a_tile_has_a_size(tile):
    q = draw(1, 4)
    with pytest.raises(Refusal, match="tile must be two whole numbers of at least 1"):
        trace(q, q, q, tile=tile)


def test_the_steps_leave_the_inputs_alone():
    q, k, v = draw(2, 9), draw(2, 9), draw(2, 9)
    copies = [tensor.clone() for tensor in (q, k, v)]
    attend(q, k, v, allowed=CAUSAL, bias=torch.zeros(9, 9), softcap=3.0)
    assert all(torch.equal(*pair) for pair in zip((q, k, v), copies, strict=True))


@pytest.mark.parametrize("mask", ["sliding_window", "own", "full"])
def test_tiles_that_are_not_skipped_change_nothing(mask):
    query, key, value = (torch.randn(1, 2, 40, 8) for _ in range(3))
    allowed = MASKS[mask].build()
    ends = []
    for skip in (True, False):
        steps = list(trace(query, key, value, allowed=allowed, tile=(8, 8), skip=skip))
        ends.append(len(steps))
        grid = torch.zeros(40, 8)
        for step in trace(query, key, value, allowed=allowed, tile=(8, 8), skip=skip):
            grid[slice(*step.rows)] = step.output[0, 0] / step.total[0, 0, :, None]
        assert torch.allclose(grid, attend(query, key, value, allowed=allowed).output[0, 0], atol=1e-6)
    assert ends[1] == 25 and (ends[0] < 25) == (mask != "full")


@pytest.mark.parametrize("rows", ((4, 4), (-1, 3), (0, 9)))
def test_rows_are_a_part_of_the_queries(rows):
    q = draw(1, 8)
    with pytest.raises(Refusal, match="rows must be a first query and a later one"):
        trace(q, q, q, rows=rows)


def test_a_block_alone_is_the_block_among_all():
    q, k = draw(2, 20), draw(1, 30)
    options = {"allowed": CAUSAL, "align": "bottom_right", "tile": (4, 8)}
    whole = [step.output.clone() for step in trace(q, k, k, **options) if step.rows == (8, 12)]
    alone = [step.output.clone() for step in trace(q, k, k, rows=(8, 12), **options)]
    assert len(alone) == len(whole) == 3 and all(map(torch.equal, alone, whole))


@pytest.mark.parametrize("mask", (None, "causal", "sliding_window", "document"))
@pytest.mark.parametrize("skip", (True, False))
def test_the_plan_is_the_walk(mask, skip):
    q, k = draw(4, 37, dtype=torch.float32), draw(2, 50, dtype=torch.float32)
    v = draw(2, 50, width=3, dtype=torch.float32)
    options = {"allowed": None if mask is None else MASKS[mask].build(), "tile": (8, 16), "skip": skip}
    walked = [(step.rows, step.cols, step.read) for step in trace(q, k, v, **options)]
    assert [(one.rows, one.cols, one.read) for one in plan(q, k, v, **options)] == walked


@pytest.mark.parametrize("dtype", (torch.float32, torch.float16))
def test_what_is_read_is_each_block_of_queries_once_and_its_keys_and_values(dtype):
    q, k, v = (draw(heads, 40, width, dtype=dtype) for heads, width in ((4, 8), (2, 8), (2, 6)))
    for options in ({}, {"allowed": CAUSAL}, {"allowed": MASKS["sliding_window"].build(window=5)}):
        seen, read = set(), 0
        for step in trace(q, k, v, tile=(16, 8), **options):
            cols = slice(*step.cols)
            read += k[:, :, cols].nbytes + v[:, :, cols].nbytes
            read += 0 if step.rows in seen else q[:, :, slice(*step.rows)].nbytes
            seen.add(step.rows)
        assert sum(step.read for step in trace(q, k, v, tile=(16, 8), **options)) == read > 0


@pytest.mark.parametrize("mask", ("sliding_window", "dilated", "attention_sinks", "local_window"))
def test_queries_behind_the_last_key_of_a_window_see_nothing_and_break_nothing(mask):
    q, k = draw(1, 600), draw(1, 33)
    allowed = MASKS[mask].build()
    found = attend(q, k, k, allowed=allowed)
    exact = BACKENDS["eager"].attend(q, k, k, allowed=dense(allowed, 600, 33))
    torch.testing.assert_close(found.output, exact.output)
    assert (found.logsumexp.isneginf() == exact.logsumexp.isneginf()).all()
    for tile in ((16, 4096), (16, 20), (1, 1)):
        assert all(cols[0] < cols[1] for _, cols, _ in tiles(q, k, k, allowed=allowed, tile=tile))
