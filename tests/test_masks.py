"""Masks against grids written out by hand, against FlexAttention's own evaluation, and against each other."""

import random
from itertools import product

import pytest
import torch
from torch.nn.attention.flex_attention import create_mask

from attnviz.masks import MASKS, Mask, base, block, dense, offset, tile_state
from attnviz.text import Refusal

# Settings for a call of one sequence that are worth a test besides a mask's defaults; every other mask has those alone.
WORTH = {
    "full": [{}],
    "causal": [{}],
    "padding": [{}, {"lengths": (5,)}, {"lengths": (5,), "side": "left"}, {"lengths": (0,)}],
    "prefix_lm": [{}, {"prefix": 0}, {"prefix": 3}],
    "document": [{}, {"lengths": (3, 1, 2)}],
    "tree": [{}, {"prefix": 2}, {"prefix": 0, "parents": (0, 0, 1, 3)}],
    "sliding_window": [{}, {"window": 1}, {"window": 3}, {"window": 1000}],
    "local_window": [{}, {"radius": 0}, {"radius": 2}],
    "attention_sinks": [{}, {"sinks": 0, "window": 2}, {"sinks": 2, "window": 1}],
    "dilated": [{}, {"window": 3, "dilation": 1}, {"window": 2, "dilation": 5}],
    "global_local": [{}, {"globals": 0, "window": 3}, {"globals": 1, "window": 2}],
    "strided": [{}, {"stride": 1}, {"stride": 3}],
    "chunked": [{}, {"chunk": 1}, {"chunk": 3}],
    "block_sparse": [{}, {"block": 3, "radius": 0, "globals": 0}],
    "random_block": [{}, {"block": 1, "share": 0.5, "seed": 7}],
    "block_diffusion": [{}, {"block": 1}, {"block": 3}],
    "own": [
        {},
        {"rule": "abs(q_idx - kv_idx) <= min(2, head)"},
        {"rule": "not kv_idx % 3 == 1 or 0 < q_idx / kv_idx < 2"},
        {"rule": "1 < 2"},
        {"rule": "batch == 0 and max(q_idx, kv_idx, 4) ** 2 // (q_idx + 1) >= kv_idx"},
    ],
}
SETTINGS = {key: WORTH.get(key, [{}]) for key in MASKS}
BUILDS = [(key, settings) for key, many in SETTINGS.items() for settings in many]
IDS = [f"{key}-{index}" for key, many in SETTINGS.items() for index in range(len(many))]
SHAPES = [(1, 1), (7, 9), (16, 16), (33, 17)]


def build(key: str, **settings: object) -> Mask:
    return MASKS[key].build(**settings)


def grid(mask: Mask, q_len: int, kv_len: int | None = None, **options) -> str:
    """Give one head of a dense mask as rows of # and dots."""
    cells = dense(mask, q_len, kv_len or q_len, **options)[0, 0]
    return " ".join("".join("#" if cell else "." for cell in row) for row in cells.tolist())


def test_settings_are_of_masks_that_there_are():
    assert set(WORTH) <= set(MASKS)


# Rules written out

GRIDS = [
    ("full", {}, "#### #### #### ####"),
    ("causal", {}, "#... ##.. ###. ####"),
    ("padding", {"lengths": (2,)}, "##.. ##.. ##.. ##.."),
    ("padding", {"lengths": (2,), "side": "left"}, "..## ..## ..## ..##"),
    ("padding", {"lengths": (9,), "side": "left"}, "#### #### #### ####"),
    ("prefix_lm", {"prefix": 3}, "###.. ###.. ###.. ####. #####"),
    ("document", {"lengths": (2, 1)}, "##... ##... ..#.. ...## ...##"),
    ("tree", {"prefix": 1, "parents": (0, 1, 1, 2)}, "#..... ##.... ###... ##.#.. ###.#. #....#"),
    ("sliding_window", {"window": 2}, "#... ##.. .##. ..##"),
    ("local_window", {"radius": 1}, "##... ###.. .###. ..### ...##"),
    ("attention_sinks", {"sinks": 1, "window": 2}, "#.... ##... ###.. #.##. #..##"),
    ("dilated", {"window": 2, "dilation": 2}, "#..... .#.... #.#... .#.#.. ..#.#. ...#.#"),
    ("global_local", {"globals": 1, "window": 2}, "##### ###.. ####. #.### #..##"),
    ("strided", {"stride": 3}, "#...... ##..... ###.... ####... .####.. ..####. #..####"),
    ("chunked", {"chunk": 2}, "#.... ##... ..#.. ..##. ....#"),
    ("block_sparse", {"block": 2, "radius": 0, "globals": 1}, "###### ###### ####.. ####.. ##..## ##..##"),
    ("block_diffusion", {"block": 2}, "##... ##... ####. ####. #####"),
    ("own", {"rule": "kv_idx <= q_idx and (q_idx - kv_idx) % 2 == 0"}, "#... .#.. #.#. .#.#"),
    # Pinned: a hash must give the same picture on every machine and in every version.
    (
        "random_block",
        {"block": 1, "share": 0.3, "seed": 0},
        "#.#..##. .#.....# ..#..... ...#...# #...#.#. .##..### ..#...#. ....#..#",
    ),
]


@pytest.mark.parametrize(("key", "settings", "rows"), GRIDS)
def test_a_small_grid_is_as_written_out(key, settings, rows):
    assert grid(build(key, **settings), rows.count(" ") + 1) == rows


@pytest.mark.parametrize(("key", "settings"), BUILDS, ids=IDS)
@pytest.mark.parametrize("align", ["top_left", "bottom_right"])
def test_dense_is_what_flex_attention_makes_of_the_rule(key, settings, align):
    mask, draw = build(key, **settings), random.Random(0)
    shapes = [*SHAPES, *((draw.randint(1, 40), draw.randint(1, 40)) for _ in range(2))]
    for q_len, kv_len in shapes:
        fitted, shift = mask.at(1, kv_len), offset(q_len, kv_len, align)

        def rule(b, h, q, k, fitted=fitted, shift=shift):
            return fitted(b, h, q + shift, k)

        ours = dense(mask, q_len, kv_len, align=align, heads=3)
        assert torch.equal(ours.expand(1, 3, q_len, kv_len), create_mask(rule, 1, 3, q_len, kv_len, device="cpu"))


def test_flex_attention_makes_the_same_of_a_batch():
    mask = build("padding", lengths=(2, 5, 0)) & build("random_block", block=2) | build("attention_sinks", sinks=1)
    ours = dense(mask, 7, 9, batch=3, heads=2)
    assert ours.shape == (3, 2, 7, 9)
    assert torch.equal(ours, create_mask(mask, 3, 2, 7, 9, device="cpu"))


@pytest.mark.parametrize("key", MASKS)
def test_a_mask_answers_for_single_positions(key):
    mask = build(key)
    answer = mask(0, 0, 5, 3)
    assert answer.dtype == torch.bool
    assert bool(answer) == bool(dense(mask, 8, 8)[0, 0, 5, 3])


# Golden values and situations from bug reports


def test_case_12_alignment_of_two_queries_over_five_keys():
    causal = build("causal")
    assert dense(causal, 2, 5, align="top_left").sum(-1).tolist() == [[[1, 2]]]
    assert dense(causal, 2, 5, align="bottom_right").sum(-1).tolist() == [[[4, 5]]]
    assert dense(causal, 2, 5).equal(dense(causal, 2, 5, align="top_left"))


def test_more_queries_than_keys_leave_the_first_rows_empty_at_bottom_right():
    assert grid(build("causal"), 4, 2, align="bottom_right") == ".. .. #. ##"
    assert grid(build("causal"), 4, 2, align="top_left") == "#. ## ## ##"


def test_case_14_a_window_of_three_shows_three_keys_with_the_querys_own():
    counts = dense(build("sliding_window", window=3), 8, 8).sum(-1).flatten().tolist()
    assert counts == [1, 2, 3, 3, 3, 3, 3, 3]
    assert sum(counts) == 21
    back_plus_self = dense(build("sliding_window", window=4), 8, 8).sum(-1).flatten().tolist()
    assert back_plus_self == [1, 2, 3, 4, 4, 4, 4, 4]
    assert sum(back_plus_self) == 26


@pytest.mark.parametrize("length", [1, 5, 12])
def test_case_15_the_window_is_the_setting_at_both_ends(length):
    assert dense(build("sliding_window", window=1), length, length)[0, 0].equal(torch.eye(length, dtype=torch.bool))
    causal = dense(build("causal"), length, length)
    for window in (length, length + 1, 131_072):
        assert dense(build("sliding_window", window=window), length, length).equal(causal)
    for window in range(1, length + 1):
        assert dense(build("sliding_window", window=window), length, length).sum(-1).max() == window


@pytest.mark.parametrize(("key", "settings"), BUILDS, ids=IDS)
def test_case_17_one_mask_follows_every_length(key, settings):
    mask = build(key, **settings)
    first = dense(mask, 12, 12)
    for length in (1, 40, 5, 12):
        assert dense(mask, length, length).shape[2:] == (length, length)
    assert dense(mask, 12, 12).equal(first)


def test_case_5_padding_hides_columns_and_leaves_every_row():
    assert grid(build("padding", lengths=(2,)), 4) == "##.. ##.. ##.. ##.."


def test_case_7_each_sequence_of_a_batch_has_its_own_length():
    allowed = dense(build("padding", lengths=(4, 1, 3)), 4, 4, batch=3)
    assert allowed.shape == (3, 1, 4, 4)
    assert allowed.sum(-1)[:, 0].tolist() == [[4] * 4, [1] * 4, [3] * 4]


def test_left_padding_of_two_and_causal_leave_the_first_rows_no_key():
    mask = build("padding", lengths=(2,), side="left") & build("causal")
    assert dense(mask, 4, 4).sum(-1).flatten().tolist() == [0, 0, 1, 2]


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_wants_a_length_for_each_sequence(side):
    mask = build("padding", lengths=(3, 2), side=side) & build("causal")
    assert dense(mask, 4, 4, batch=2).shape[0] == 2
    for call in (dense, lambda *sizes, **rest: block(mask, (0, 1), (0, 1), q_len=4, kv_len=4, **rest)):
        with pytest.raises(ValueError, match="lengths has 2 entries, batch is 3"):
            call(mask, 4, 4, batch=3)


def test_left_padding_says_that_it_needs_the_number_of_keys():
    mask = build("padding", lengths=(2,), side="left")
    with pytest.raises(ValueError, match=r"call mask.at\(batch, kv_len\) first"):
        mask(0, 0, 1, 1)
    assert [bool(mask.at(1, 4)(0, 0, 1, key)) for key in range(4)] == [False, False, True, True]


# Combination

FIRST = [("causal", {}), ("local_window", {"radius": 2}), ("padding", {"lengths": (5,), "side": "left"})]
SECOND = [("full", {}), ("sliding_window", {"window": 3}), ("chunked", {"chunk": 3}), ("random_block", {"block": 2})]


@pytest.mark.parametrize("first", FIRST)
@pytest.mark.parametrize("second", SECOND)
def test_combined_masks_are_their_grids_combined(first, second):
    a, b = build(first[0], **first[1]), build(second[0], **second[1])
    grids = [dense(mask, 9, 11, align="bottom_right", heads=2) for mask in (a, b, a & b, a | b, ~a, a & ~b)]
    assert torch.equal(grids[2], grids[0] & grids[1])
    assert torch.equal(grids[3], grids[0] | grids[1])
    assert torch.equal(grids[4], ~grids[0])
    assert torch.equal(grids[5], grids[0] & ~grids[1])


def test_full_and_causal_are_known_by_construction():
    full, causal, window = build("full"), build("causal"), build("sliding_window", window=3)
    assert [full.is_full, causal.is_full, window.is_full] == [True, False, False]
    assert [full.is_causal, causal.is_causal, window.is_causal] == [False, True, False]
    assert (causal & full).is_causal
    assert (causal | window).is_causal
    assert (causal | full).is_full
    assert not (causal & build("padding")).is_causal
    assert not build("attention_sinks").is_causal
    assert not (~causal).is_causal
    assert not (~full).is_full


def test_bands_intersect_span_and_are_lost():
    window, local = build("sliding_window", window=3), build("local_window", radius=5)
    assert ((window & local).band, (window & local).exact) == ((2, 0), True)
    assert ((window | local).band, (window | local).exact) == ((5, 5), True)
    assert ((build("causal") | local).band, (build("causal") & local).band) == ((None, 5), (5, 0))
    assert ((~window).band, (~window).exact) == ((None, None), False)


def test_two_bands_with_a_gap_are_not_one_band():
    def band(low: int, high: int) -> Mask:
        return Mask(lambda b, h, q, k: (k >= q + low) & (k <= q + high), (-low, high), exact=True)

    far = band(-6, -4) | band(-1, 1)
    assert (far.band, far.exact) == ((6, 1), False)
    near = band(-6, -4) | band(-3, 1)
    assert (near.band, near.exact) == ((6, 1), True)
    never = band(-6, -4) & band(-1, 1)
    assert not dense(never, 9, 9).any()
    assert tile_state(never, (0, 9), (0, 9)) != "full"


@pytest.mark.parametrize(("key", "settings"), BUILDS, ids=IDS)
@pytest.mark.parametrize("align", ["top_left", "bottom_right"])
def test_a_band_bounds_its_mask_and_an_exact_one_is_it(key, settings, align):
    mask = build(key, **settings)
    for q_len, kv_len in SHAPES:
        cells = dense(mask, q_len, kv_len, align=align)
        q = torch.arange(q_len)[:, None] + offset(q_len, kv_len, align)
        k = torch.arange(kv_len)
        left, right = mask.band
        inside = torch.ones(q_len, kv_len, dtype=torch.bool)
        inside &= (k >= q - left) if left is not None else True
        inside &= (k <= q + right) if right is not None else True
        assert not (cells & ~inside).any()
        assert not mask.exact or torch.equal(cells.expand(1, 1, q_len, kv_len)[0, 0], inside)


@pytest.mark.parametrize("key", MASKS)
def test_a_mask_says_whether_it_looks_at_batch_and_head(key):
    mask = build(key).at(1, 8)
    q, k = torch.arange(8)[:, None], torch.arange(8)
    heads = torch.stack([mask(0, head, q, k) for head in range(8)])
    assert mask.per_head == bool((heads != heads[0]).any())
    if not mask.per_batch:
        assert torch.equal(mask(5, 0, q, k), mask(0, 0, q, k))


# Regions and tiles


@pytest.mark.parametrize(("key", "settings"), BUILDS, ids=IDS)
def test_a_block_is_that_region_of_the_grid(key, settings):
    mask = build(key, **settings)
    for align in ("top_left", "bottom_right"):
        whole = dense(mask, 33, 17, align=align, heads=2)
        for rows, cols in (((0, 33), (0, 17)), ((5, 6), (3, 11)), ((30, 33), (16, 17)), ((4, 4), (0, 9))):
            part = block(mask, rows, cols, q_len=33, kv_len=17, align=align, heads=2)
            assert torch.equal(part, whole[:, :, slice(*rows), slice(*cols)])


def test_a_grid_filled_in_pieces_is_the_same(monkeypatch):
    mask = build("padding", lengths=(9, 3)) & build("random_block", block=2)
    whole = dense(mask, 13, 11, batch=2, heads=3)
    monkeypatch.setattr(base, "_PIECE", 150)
    assert torch.equal(dense(mask, 13, 11, batch=2, heads=3), whole)


def test_a_block_of_a_very_long_mask_needs_no_grid():
    length = 10**12
    rows = (length - 2, length)
    part = block(build("sliding_window", window=3), rows, (length - 4, length), q_len=length, kv_len=length)
    assert part[0, 0].tolist() == [[True, True, True, False], [False, True, True, True]]


@pytest.mark.parametrize(("key", "settings"), BUILDS, ids=IDS)
def test_a_tile_is_never_called_full_or_empty_wrongly(key, settings):
    mask, draw = build(key, **settings), random.Random(1)
    for align in ("top_left", "bottom_right"):
        cells = dense(mask, 33, 17, align=align)[0, 0]
        for _ in range(150):
            rows, cols = (sorted(draw.sample(range(size + 1), 2)) for size in (33, 17))
            state = tile_state(mask, tuple(rows), tuple(cols), offset=offset(33, 17, align))
            tile = cells[slice(*rows), slice(*cols)]
            assert state != "full" or tile.all()
            assert state != "empty" or not tile.any()


@pytest.mark.parametrize("key", ["full", "causal", "sliding_window", "local_window"])
def test_a_tile_of_an_exact_band_is_always_decided_where_it_can_be(key):
    mask = build(key)
    cells = dense(mask, 40, 40)[0, 0]
    seen = set()
    for row, col in product(range(0, 40, 5), repeat=2):
        tile = cells[row : row + 5, col : col + 5]
        right = "full" if tile.all() else "partial" if tile.any() else "empty"
        assert tile_state(mask, (row, row + 5), (col, col + 5)) == right
        seen.add(right)
    assert len(seen) >= (1 if key == "full" else 2)


def test_tiles_follow_the_offset():
    causal = build("causal")
    assert tile_state(causal, (0, 4), (4, 8)) == "empty"
    assert tile_state(causal, (0, 4), (4, 8), offset=4) == "partial"
    assert tile_state(causal, (0, 4), (4, 8), offset=7) == "full"
    assert tile_state(causal, (3, 3), (0, 4)) == "empty"


# Random blocks


def test_random_blocks_are_whole_blocks_at_the_chosen_share():
    cells = dense(build("random_block", block=4, share=0.3, seed=5), 512, 512, heads=2)
    blocks = cells.unflatten(3, (128, 4)).unflatten(2, (128, 4))
    assert torch.equal(blocks.any(5).any(3), blocks.all(5).all(3))
    assert blocks[:, :, :, 0, :, 0].float().mean().item() == pytest.approx(0.3, abs=0.02)


@pytest.mark.parametrize(("share", "count"), [(0.0, 16), (1.0, 256)])
def test_random_blocks_reach_both_ends_of_the_share(share, count):
    assert dense(build("random_block", block=1, share=share), 16, 16).sum() == count


def test_random_blocks_change_with_seed_and_head_and_not_with_the_call():
    first, other = (dense(build("random_block", seed=seed), 64, 64, heads=2) for seed in (0, 1))
    assert not torch.equal(first, other)
    assert not torch.equal(first[:, 0], first[:, 1])
    torch.manual_seed(99)
    assert torch.equal(first, dense(build("random_block", seed=0), 64, 64, heads=2))


def test_random_blocks_are_not_symmetric_or_aligned():
    cells = dense(build("random_block", block=1, share=0.5), 64, 64)[0, 0]
    assert not torch.equal(cells, cells.T)
    assert torch.unique(cells, dim=0).shape[0] == 64


# Entries and misuse


@pytest.mark.parametrize("key", MASKS)
def test_an_entry_says_what_it_is_in_both_languages_with_a_source(key):
    kind = MASKS[key]
    assert kind.label.en
    assert kind.label.zh
    assert kind.help.en.endswith(".")
    assert kind.help.zh.endswith("。")
    assert kind.source.startswith("https://")
    for knob in kind.knobs:
        assert knob.parse(knob.write(knob.default)) == knob.default
        assert knob.label.en
        assert knob.label.zh


def test_an_unknown_setting_is_named_with_the_valid_ones():
    with pytest.raises(ValueError, match="'windows' is not a setting of the mask sliding_window; valid: window"):
        build("sliding_window", windows=3)
    with pytest.raises(ValueError, match="valid: none"):
        build("causal", window=3)


@pytest.mark.parametrize(
    ("key", "settings", "words"),
    [
        ("sliding_window", {"window": 0}, "window must be a whole number from 1 to 131,072"),
        ("padding", {"lengths": (-1,)}, "lengths must be whole numbers from 0"),
        ("padding", {"side": "top"}, "side must be one of right, left"),
        ("random_block", {"share": 1.5}, "share must be a number from 0 to 1"),
        ("tree", {"parents": (0, 2)}, "parent of draft token 2 must be from 0 to 1, got 2"),
    ],
)
def test_a_bad_setting_is_refused_by_name(key, settings, words):
    with pytest.raises(Refusal, match=words):
        build(key, **settings)


def test_lengths_may_be_a_tensor():
    assert grid(build("padding", lengths=torch.tensor([1])), 2) == "#. #."


def test_an_unknown_alignment_is_named():
    with pytest.raises(ValueError, match="align must be one of top_left, bottom_right, got 'left'"):
        dense(build("causal"), 2, 2, align="left")


@pytest.mark.parametrize("sizes", [{"q_len": -1}, {"kv_len": -1}, {"batch": -1}, {"heads": -1}])
def test_a_negative_size_is_named(sizes):
    with pytest.raises(ValueError, match=f"{next(iter(sizes))} must be at least 0, got -1"):
        dense(build("causal"), **({"q_len": 2, "kv_len": 2} | sizes))


@pytest.mark.parametrize(
    ("rows", "cols", "name"), [((0, 5), (0, 2), "rows"), ((0, 1), (2, 1), "cols"), ((-1, 1), (0, 1), "rows")]
)
def test_a_region_outside_the_grid_is_named(rows, cols, name):
    with pytest.raises(ValueError, match=f"{name} must lie within 0 to"):
        block(build("causal"), rows, cols, q_len=4, kv_len=4)


@pytest.mark.parametrize(("q_len", "kv_len"), [(0, 4), (4, 0)])
def test_an_empty_side_gives_an_empty_grid(q_len, kv_len):
    assert dense(build("causal"), q_len, kv_len).shape == (1, 1, q_len, kv_len)


def test_which_masks_hide_keys_from_all_queries_alike():
    causal, padding = MASKS["causal"].build(), MASKS["padding"].build(lengths=(2, 3), side="right")
    assert causal.by_key and padding.by_key and (causal & padding).by_key and (causal & padding).at(2, 4).by_key
    assert not (causal & padding).exact and (causal & padding).band == (None, 0)
    for other in (MASKS["prefix_lm"].build(prefix=2), causal | padding, ~padding, causal & ~padding):
        assert not other.by_key
