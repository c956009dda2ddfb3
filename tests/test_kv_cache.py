"""KV cache: steps equal the whole, dropping equals masking, bytes are what lies there, rounding is real."""

import itertools
import math

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from attnviz.kv_cache import LAYOUTS, STORAGES, block_tables, feed_all, paged, reserved, start, storage_error
from attnviz.masks import MASKS, dense
from attnviz.positions import POSITIONS
from attnviz.score_mods import SCORE_MODS
from attnviz.text import Refusal
from attnviz.variants import VARIANTS

SMALL = {"hidden_size": 24, "num_attention_heads": 4, "head_dim": 8, "v_head_dim": 6}
SPLITS = ([9], [1] * 9, [5, 1, 1, 1, 1], [2, 3, 4], [1, 8])


def layer(key, dtype=torch.float64):
    config = VARIANTS[key].config(**SMALL)
    return VARIANTS[key], config, VARIANTS[key].weights(config, seed=0, dtype=dtype)


def tokens(batch, length, dtype=torch.float64):
    return torch.randn(batch, length, 24, dtype=dtype)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("key", VARIANTS)
def test_any_way_of_feeding_is_the_masked_whole(key, position, layout):
    """A cache that drops tokens gives what a mask over all of them gives, with every token in its own place."""
    knobs = {"window": 3} if layout != "attention_sinks" else {"window": 3, "sinks": 2}
    built = LAYOUTS[layout].build(**{k: v for k, v in knobs.items() if k in {n.name for n in LAYOUTS[layout].knobs}})
    variant, config, weights = layer(key)
    x, turned = tokens(2, 9), POSITIONS[position].build()
    if built.window is not None and not variant.grows(config):
        with pytest.raises(Refusal, match="layout must keep every token where a layer keeps a state"):
            start(key, config, weights, layout=built)
        return
    want = variant.attend(config, weights, x, allowed=built.mask, position=turned).output
    for lengths in SPLITS:
        empty = start(key, config, weights, layout=built, position=turned)
        after, steps = feed_all(empty, x, lengths)
        got = torch.cat([step.output for step in steps], dim=1)
        torch.testing.assert_close(got, want, rtol=0, atol=1e-11)
        expected = {
            "full": range(9), "paged": range(9), "sliding_window": (6, 7, 8), "attention_sinks": (0, 1, 6, 7, 8)
        }[layout]  # fmt: skip
        assert after.kept == tuple(expected) and after.seen == 9
        assert empty.kept == () and empty.nbytes == 0


@pytest.mark.parametrize("mod", SCORE_MODS)
def test_score_mods_go_along(mod):
    variant, config, weights = layer("gqa")
    x, changed = tokens(1, 9), SCORE_MODS[mod].build()
    want = variant.attend(config, weights, x, allowed=MASKS["causal"].build(), score_mod=changed).output
    got = feed_all(start("gqa", config, weights, score_mod=changed), x, [4, 5])[1]
    torch.testing.assert_close(torch.cat([step.output for step in got], dim=1), want, rtol=0, atol=1e-11)


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("key", VARIANTS)
def test_bytes_and_contents_at_each_step(key, storage):
    variant, config, weights = layer(key, torch.float32)
    cache = start(key, config, weights, storage=STORAGES[storage])
    cache, steps = feed_all(cache, tokens(2, 7, torch.float32), [4, 1, 2])
    assert [(step.start, step.new, step.read) for step in steps] == [(0, 4, 4), (4, 1, 5), (5, 2, 7)]
    for step in steps:
        shapes = variant.cache(config, len(step.kept)).values()
        if storage == "plain":
            want = 4 * sum(math.prod(shape) for shape in shapes)
        else:
            per_vector = {"int8": lambda n: n, "fp8": lambda n: n, "int4": lambda n: -(-n // 2)}[storage]
            want = sum(math.prod(shape[:-1]) * (per_vector(shape[-1]) + 4) for shape in shapes)
        assert step.cache_bytes == step.allocated_bytes == 2 * want
    contents = cache.contents(torch.float32)
    assert {n: tuple(t.shape) for n, t in contents.items()} == {
        name: (2, *shape) for name, shape in variant.cache(config, 7).items()
    }


@pytest.mark.parametrize("key", VARIANTS)
def test_work_is_what_torch_counts(key):
    variant, config, weights = layer(key)
    x = tokens(2, 8)
    cache = start(key, config, weights)
    for lengths in ((6, 8), (7, 8)):
        past, _ = feed_all(cache, x[:, : lengths[0]], [lengths[0]])
        with FlopCounterMode(display=False) as counter:
            _, step = past.feed(x[:, lengths[0] :])
        assert step.flops == counter.get_total_flops() > 0
    with FlopCounterMode(display=False) as counter:
        variant.attend(config, weights, x, allowed=MASKS["causal"].build())
    assert step.flops_without == counter.get_total_flops() > 4 * step.flops


def test_work_per_token_grows_by_one_key_with_a_cache_and_by_all_tokens_without():
    _, config, weights = layer("mha")
    _, steps = feed_all(start("mha", config, weights), tokens(1, 12), [1] * 12)
    pair = 2 * 4 * (8 + 6)
    assert {b.flops - a.flops for a, b in itertools.pairwise(steps)} == {pair}
    second = [
        steps[i + 1].flops_without - 2 * steps[i].flops_without + steps[i - 1].flops_without for i in range(1, 11)
    ]
    assert set(second) == {2 * pair}


def test_a_window_stops_growing():
    _, config, weights = layer("gqa")
    cache = start("gqa", config, weights, layout=LAYOUTS["sliding_window"].build(window=4))
    _, steps = feed_all(cache, tokens(1, 10), [1] * 10)
    sizes = [step.cache_bytes for step in steps]
    assert sizes[3:] == [sizes[3]] * 7 and sizes[:4] == [sizes[0] * n for n in (1, 2, 3, 4)]
    assert {step.flops for step in steps[4:]} == {steps[-1].flops}


@pytest.mark.parametrize("window", [1, 3])
@pytest.mark.parametrize(("layout", "sinks"), [("sliding_window", 0), ("attention_sinks", 2)])
def test_a_step_reads_only_what_its_mask_lets_it_see(layout, sinks, window):
    """The newest token is one of the window: the oldest leaves before it is read, and is not counted as work."""
    _, config, weights = layer("gqa")
    built = LAYOUTS[layout].build(**({"window": window, "sinks": sinks} if sinks else {"window": window}))
    _, steps = feed_all(start("gqa", config, weights, layout=built), tokens(1, 10), [4, *[1] * 4, 2])
    allowed = dense(built.mask, 10, 10)[0, 0]
    for step in steps:
        seen = allowed[step.start : step.start + step.new].any(0).nonzero()[:, 0].tolist()
        assert [*step.before, *range(step.start, step.start + step.new)] == seen
        assert step.read == len(seen) and len(step.kept) == min(step.start + step.new, window + sinks)


def test_blocks_are_taken_whole():
    _, config, weights = layer("gqa")
    _, steps = feed_all(start("gqa", config, weights, layout=LAYOUTS["paged"].build(block=4)), tokens(1, 9), [1] * 9)
    one = steps[0].cache_bytes
    assert [step.allocated_bytes // one for step in steps] == [4] * 4 + [8] * 4 + [12]
    assert [step.cache_bytes // one for step in steps] == list(range(1, 10))


def test_paged_memory_against_reserved():
    assert block_tables((5, 2, 9), 4) == ((0, 3), (1,), (2, 4, 5))
    assert paged((5, 2, 9), 4) == (16, 24) and reserved((5, 2, 9), 16) == (16, 48)
    assert paged((5, 2, 9), 4).waste == pytest.approx(1 / 3) and reserved((5, 2, 9), 16).waste == pytest.approx(2 / 3)
    for lengths in ((1,), (16, 17, 1, 400), (7,) * 5):
        tables = block_tables(lengths, 16)
        blocks = [block for table in tables for block in table]
        assert sorted(blocks) == list(range(len(blocks)))
        assert [len(table) for table in tables] == [math.ceil(length / 16) for length in lengths]
    with pytest.raises(Refusal, match="lengths must be a whole number of at least 1, got 0"):
        paged((3, 0), 4)


@pytest.mark.parametrize(("storage", "steps"), [("int8", 254), ("int4", 14)])
def test_integers_round_to_the_nearest_step(storage, steps):
    vectors = torch.randn(3, 2, 50, 17, dtype=torch.float64) * torch.logspace(-3, 3, 50)[:, None]
    vectors[0, 0, 0] = 0
    back = STORAGES[storage].round_trip(vectors)
    step = 2 * vectors.abs().amax(-1, keepdim=True) / steps
    assert ((back - vectors).abs() <= step / 2 * (1 + 1e-5)).all()
    assert ((back - vectors).abs().amax(-1) > step[..., 0] / 5)[vectors.abs().sum(-1) > 0].float().mean() > 0.95
    assert not back[0, 0, 0].any()
    # What is kept is what is given back: keeping it again changes nothing.
    torch.testing.assert_close(STORAGES[storage].round_trip(back), back, rtol=1e-6, atol=0)
    packed = STORAGES[storage].pack(vectors)
    assert packed[0].dtype == (torch.int8 if storage == "int8" else torch.uint8)
    assert packed[0].shape[-1] == (17 if storage == "int8" else 9)


def test_fp8_keeps_three_bits_of_mantissa():
    vectors = torch.randn(200, 64, dtype=torch.float64)
    back = STORAGES["fp8"].round_trip(vectors)
    large = vectors.abs() > vectors.abs().amax(-1, keepdim=True) / 2**10
    relative = ((back - vectors).abs() / vectors.abs())[large]
    assert 2**-5 < relative.max() <= 2**-4 * (1 + 1e-6)
    assert STORAGES["fp8"].pack(vectors)[0].dtype == torch.float8_e4m3fn


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("key", VARIANTS)
def test_fewer_bits_cost_more_error(key, dtype):
    _, config, weights = layer(key, dtype)
    x = tokens(1, 24, dtype)
    errors = {
        name: storage_error(start(key, config, weights, storage=STORAGES[name]), x, [16, *[1] * 8]) for name in STORAGES
    }
    assert errors["plain"] == 0
    assert 0 < errors["int8"] < errors["int4"] < 0.5 and errors["int8"] < errors["fp8"] < errors["int4"]


def test_the_prompt_itself_is_computed_before_it_is_rounded():
    _, config, weights = layer("mha")
    assert storage_error(start("mha", config, weights, storage=STORAGES["int4"]), tokens(1, 9), [9]) == 0


def test_misuse_is_named():
    _, config, weights = layer("mha")
    cache = start("mha", config, weights)
    for lengths in ([3, 3], [0, 5], []):
        with pytest.raises(Refusal, match="lengths must be whole numbers of at least 1 that add up to 5"):
            feed_all(cache, tokens(1, 5), lengths)
    sinks = LAYOUTS["attention_sinks"].build()
    with pytest.raises(Refusal, match="score_mod must not depend on distance"):
        start("mha", config, weights, layout=sinks, score_mod=SCORE_MODS["alibi"].build())
    with pytest.raises(Refusal, match="window must be a whole number"):
        LAYOUTS["sliding_window"].build(window=0)
    with pytest.raises(ValueError, match="full has no setting window"):
        LAYOUTS["full"].build(window=3)
    with pytest.raises(KeyError, match="valid: mha"):
        start("hydra", config, weights)
