"""Cost: golden numbers, and every prediction against what torch counts and allocates."""

import itertools
import math
from dataclasses import replace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from attnviz.backends import BACKENDS
from attnviz.config import Shape
from attnviz.cost import cost, fits, nearest_size
from attnviz.masks import MASKS
from attnviz.text import Refusal
from attnviz.variants import VARIANTS
from tests.peak import peak_bytes

MIB = 2**20


def wide(key, **sizes):
    return VARIANTS[key].config(hidden_size=1024, num_attention_heads=16, **sizes)


def plain(key, **settings):
    """Give the cost at 8 heads of 64 over 4,096 tokens."""
    config = VARIANTS[key].config(hidden_size=512, num_attention_heads=8)
    return cost(key, config, **{"q_len": 4096, "kv_len": 4096, "dtype": "float32", **settings})


@pytest.mark.parametrize(
    ("key", "sizes", "parameters"),
    [("mha", {}, 4_198_400), ("gqa", {"num_key_value_heads": 4}, 2_624_000), ("mqa", {}, 2_230_400)],
)
def test_parameters_at_width_1024(key, sizes, parameters):
    assert cost(key, wide(key, **sizes), q_len=1, kv_len=1).parameters == parameters
    bare = cost(key, wide(key, biases=False, **sizes), q_len=1, kv_len=1)
    kv_heads = {"mha": 16, "gqa": 4, "mqa": 1}[key]
    assert bare.parameters == 2 * 1024 * 1024 + 2 * 1024 * kv_heads * 64


def test_peak_of_one_call_of_4096_tokens():
    assert plain("mha", backend="eager").peak_bytes == 1032.5 * MIB
    assert round(plain("mha", backend="sdpa").peak_bytes / MIB, 2) == 8.69
    assert plain("mha", backend="flash").peak_bytes < 20 * MIB
    small = plain("mha", q_len=1024, kv_len=1024, backend="eager")
    masked = plain("mha", q_len=1024, kv_len=1024, backend="eager", masked=True)
    assert round(small.peak_bytes / MIB) == 66
    assert round(masked.peak_bytes / MIB) == 96


@pytest.mark.parametrize("backend", ["sdpa", "flash"])
def test_fused_memory_grows_with_length_not_its_square(backend):
    short, long = (plain("mha", q_len=n, kv_len=n, backend=backend).peak_bytes for n in (4096, 16_384))
    assert long < 4 * short
    eager = [plain("mha", q_len=n, kv_len=n, backend="eager").peak_bytes for n in (4096, 16_384)]
    assert eager[1] > 15 * eager[0]


def test_the_score_matrix_of_a_call_in_half_precision():
    config = VARIANTS["mha"].config(hidden_size=4096, num_attention_heads=32)
    got = cost("mha", config, q_len=4096, kv_len=4096, dtype="float16", backend="eager")
    assert got.score_bytes == 1024 * MIB
    assert got.peak_bytes > 2 * got.score_bytes


@pytest.mark.parametrize(("length", "gigabytes"), [(32_768, 26.8), (131_072, 429.5)])
def test_mask_bytes_stand_apart_from_score_bytes(length, gigabytes):
    config = VARIANTS["gqa"].config(hidden_size=512, num_attention_heads=8)
    got = cost("gqa", config, q_len=length, kv_len=length, dtype="bfloat16")
    assert 25 * got.mask_bytes / 1e9 == pytest.approx(gigabytes, abs=0.05)
    assert got.score_bytes == 2 * 8 * got.mask_bytes


def test_shared_heads_shrink_the_cache_by_their_number():
    mha, gqa, mqa = (
        cost(key, VARIANTS[key].config(hidden_size=4096, num_attention_heads=32, **sizes), q_len=1, kv_len=1000)
        for key, sizes in (("mha", {}), ("gqa", {"num_key_value_heads": 8}), ("mqa", {}))
    )
    assert mha.kv_cache_bytes == 4 * gqa.kv_cache_bytes == 32 * mqa.kv_cache_bytes == 2 * 32 * 1000 * 128 * 4
    # 32 layers of Llama-2-7B in bfloat16 are 512 KiB a token.
    config = VARIANTS["mha"].config(hidden_size=4096, num_attention_heads=32)
    assert 32 * cost("mha", config, q_len=1, kv_len=1, dtype="bfloat16").kv_cache_bytes == 512 * 1024


def tokens(batch, length, width=24):
    return torch.randn(batch, length, width)


@pytest.mark.parametrize("key", VARIANTS)
@pytest.mark.parametrize(
    ("q_len", "kv_len", "cross"), [(9, 9, False), (2, 9, False), (1, 1, False), (5, 9, True), (9, 5, True)]
)
def test_flops_are_what_torch_counts(key, q_len, kv_len, cross):
    variant = VARIANTS[key]
    config = variant.config(hidden_size=24, num_attention_heads=4, head_dim=8, v_head_dim=6)
    weights = variant.weights(config, seed=0)
    given = {"context": tokens(3, kv_len)} if cross else {}
    if q_len < kv_len and not cross:
        given["cache"] = variant.attend(config, weights, tokens(3, kv_len - q_len)).cache
    with FlopCounterMode(display=False) as counter:
        variant.attend(config, weights, tokens(3, q_len), backend=variant.backends[0], **given)
    predicted = cost(variant, config, q_len=q_len, kv_len=kv_len, batch=3, cross=cross)
    assert predicted.flops == counter.get_total_flops() > 0


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
@pytest.mark.parametrize("key", VARIANTS)
def test_bytes_are_what_torch_holds(key, dtype):
    variant = VARIANTS[key]
    config = variant.config(hidden_size=24, num_attention_heads=4, head_dim=8, v_head_dim=6)
    weights = variant.weights(config, seed=0, dtype=getattr(torch, dtype))
    run = variant.attend(config, weights, tokens(3, 7).to(getattr(torch, dtype)))
    predicted = cost(variant, config, q_len=7, kv_len=7, batch=3, dtype=getattr(torch, dtype))
    assert predicted.weight_bytes == sum(tensor.nbytes for tensor in weights.values())
    assert predicted.kv_cache_bytes == sum(tensor.nbytes for tensor in run.cache.values())
    if run.core.scores is not None:
        assert predicted.score_bytes == run.core.scores.nbytes


SHAPES = (
    Shape(1, 8, 8, 1024, 1024, 64),
    Shape(2, 4, 2, 300, 500, 32),
    Shape(1, 4, 1, 100, 200, 64, 48),
    Shape(2, 4, 4, 100, 200, 64, 48),
    Shape(1, 4, 2, 1, 300, 64),
    Shape(1, 8, 8, 700, 900, 16, 128),
)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_the_peak_is_what_the_profiler_sees(backend, shape, dtype, masked):
    query, key, value = (torch.randn(size, dtype=dtype) for size in (shape.query, shape.key, shape.value))
    allowed = torch.ones(shape.q_len, shape.kv_len, dtype=torch.bool).tril() if masked else None
    measured = peak_bytes(lambda: BACKENDS[backend].attend(query, key, value, allowed=allowed))
    predicted = BACKENDS[backend].peak_bytes(shape, dtype.itemsize, masked)
    if backend == "flash":
        assert predicted == pytest.approx(measured, rel=0.03)
    elif dtype == torch.float32:
        assert measured - 16 <= predicted <= measured
    else:
        # Matrix products of half types take buffers of their own, of some tens of KiB.
        assert measured - 70_000 <= predicted <= measured


def test_traffic_of_a_decode_step_is_weights_and_cache():
    config = VARIANTS["gqa"].config(hidden_size=1024, num_attention_heads=16, num_key_value_heads=4)
    step = cost("gqa", config, q_len=1, kv_len=65_536, dtype="bfloat16", backend="sdpa")
    # x, q, k, v and merged heads in and out of the projections, and the query and the output of the core.
    small = (1024 + 1024) + (1024 + 256) * 2 + (1024 + 1024) + 2 * 1024
    assert step.bytes_moved == step.weight_bytes + step.kv_cache_bytes + 2 * small
    assert step.intensity < 10
    eager = cost("gqa", config, q_len=1, kv_len=65_536, dtype="bfloat16", backend="eager")
    assert eager.bytes_moved - step.bytes_moved == 4 * eager.score_bytes


@pytest.mark.parametrize("key", ["linear", "delta"])
def test_a_step_reads_the_state_and_writes_the_next_one(key):
    config = VARIANTS[key].config(hidden_size=1024, num_attention_heads=16)
    (backend, *_) = VARIANTS[key].backends
    prompt, extended, step = (
        cost(key, config, q_len=queries, kv_len=keys, batch=3, backend=backend)
        for queries, keys in ((8, 8), (8, 9), (1, 9))
    )
    state = 3 * sum(math.prod(shape) for shape in VARIANTS[key].cache(config, 9).values()) * 4
    assert state == step.kv_cache_bytes > 0
    # The prompt finds no state; nothing else tells it from as many tokens behind one.
    assert extended.bytes_moved - prompt.bytes_moved == state
    each = (prompt.bytes_moved - prompt.weight_bytes - state) / 8
    assert step.bytes_moved == step.weight_bytes + 2 * state + each


def test_keys_and_values_made_of_latents_are_written_and_read():
    """DeepSeek-V3: 128 heads of 128 + 64 and values of 128, made of 512 + 64 numbers that a token keeps."""
    config = VARIANTS["mla"].config(hidden_size=7168, num_attention_heads=128, head_dim=192, v_head_dim=128,
                                    kv_lora_rank=512, qk_rope_head_dim=64, q_lora_rank=1536)  # fmt: skip
    extended, step = (cost("mla", config, q_len=n, kv_len=4096, dtype="bfloat16", backend="sdpa") for n in (512, 1))
    made = 4096 * 128 * (128 + 128)
    down = 512 * (7168 + 1536 + 1536 + 128 * 192 + 7168 + 512 + 7168 + 64 + 128 * 128 + 7168)
    core = 512 * 128 * (192 + 128) + 4096 * (512 + 64)
    assert extended.bytes_moved == extended.weight_bytes + 2 * (down + 4096 * 2 * 512 + core + 2 * made)
    # The absorbed form makes none: weights, cache, and little more.
    assert step.bytes_moved < 1.01 * (step.weight_bytes + step.kv_cache_bytes)
    heads = [VARIANTS["mla"].core_heads(config, n, 4096) for n in (512, 1)]
    assert heads == [(128, 128, 192, 128), (128, 1, 576, 576)]


def test_everything_grows_as_it_should():
    base = plain("gqa", batch=1)
    twice = plain("gqa", batch=2)
    for name in ("flops", "score_bytes", "kv_cache_bytes"):
        assert getattr(twice, name) == 2 * getattr(base, name)
    assert twice.parameters == base.parameters
    longer = plain("gqa", q_len=8192, kv_len=8192)
    assert longer.score_bytes == 4 * base.score_bytes and longer.kv_cache_bytes == 2 * base.kv_cache_bytes
    by_entry = plain("gqa", backend=BACKENDS["sdpa"])
    assert by_entry == plain("gqa", backend="sdpa") != base


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"q_len": 0}, "q_len must be a whole number of at least 1, got 0"),
        ({"kv_len": -1}, "kv_len must be"),
        ({"batch": 0}, "batch must be"),
        ({"dtype": "int8"}, "dtype must be one of float64, float32"),
        ({"backend": "abacus"}, "backend must be one of eager, sdpa.*, got 'abacus'"),
    ],
)
def test_misuse_is_named(setting, words):
    with pytest.raises(Refusal, match=words):
        plain("mha", **setting)
    with pytest.raises(KeyError, match="valid: mha"):
        cost("hydra", None, q_len=1, kv_len=1)


def test_fits_within_a_share():
    assert fits(50, 100, 0.5) and not fits(51, 100, 0.5) and fits(100, 100)
    for share in (0.0, 1.1, -1.0):
        with pytest.raises(ValueError, match="share must be above 0 and at most 1"):
            fits(1, 2, share)


def test_nearest_size_is_the_largest_that_fits():
    for limit, (low, high) in itertools.product(range(-1, 12), ((1, 1), (1, 8), (3, 10))):
        want = max((n for n in range(low, high + 1) if n <= limit), default=None)
        assert nearest_size(lambda n, limit=limit: n <= limit, low, high) == want
    with pytest.raises(ValueError, match="low must not exceed high, got 3 and 2"):
        nearest_size(bool, 3, 2)


def test_a_causal_mask_costs_the_fused_call_no_matrix():
    query = torch.randn(1, 2, 512, 16)
    causal = peak_bytes(lambda: BACKENDS["sdpa"].attend(query, query, query, allowed=MASKS["causal"].build()))
    assert causal <= BACKENDS["sdpa"].peak_bytes(Shape(1, 2, 2, 512, 512, 16), 4, False)


# Four heads of 8 over two KV heads, a token vector of 32, no biases: 3,072 weights.
SMALL = VARIANTS["gqa"].config(
    hidden_size=32, num_attention_heads=4, num_key_value_heads=2, head_dim=8, biases=False
)  # fmt: skip


def test_one_query_of_a_window_is_one_over_so_many_tokens():
    assert cost("gqa", SMALL, q_len=1, kv_len=50, window=16) == cost("gqa", SMALL, q_len=1, kv_len=16)
    assert cost("gqa", SMALL, q_len=7, kv_len=12, window=16) == cost("gqa", SMALL, q_len=7, kv_len=12)


def test_a_window_of_several_queries_is_counted_by_hand():
    """Twenty queries with 16 keys each see 35 keys together, of which 16 are kept for the next."""
    got = cost("gqa", SMALL, q_len=20, kv_len=50, window=16, backend="sdpa")
    assert got.flops == 20 * 2 * 3072 + 2 * 4 * 20 * 16 * (8 + 8)
    assert got.kv_cache_bytes == 16 * 2 * 2 * 8 * 4
    assert (got.score_bytes, got.mask_bytes) == (4 * 20 * 16 * 4, 20 * 35)
    # Projections read and write 64, 48, 48 and 64 numbers a token, the core reads 32 of a query and writes 32.
    assert got.bytes_moved == 4 * (3072 + 20 * (64 + 48 + 48 + 64) + 20 * 64 + 35 * 2 * 2 * 8)
    whole = cost("gqa", SMALL, q_len=50, kv_len=50, window=16, backend="sdpa")
    assert whole.flops == 50 * 2 * 3072 + 2 * 4 * 50 * 16 * 16
    assert whole.bytes_moved == cost("gqa", SMALL, q_len=50, kv_len=50, backend="sdpa").bytes_moved
    # Eager has every pair of the 35 keys, as the same call over 35 keys has, and a mask.
    eager = cost("gqa", SMALL, q_len=20, kv_len=50, window=16, backend="eager")
    same = cost("gqa", SMALL, q_len=20, kv_len=35, masked=True, backend="eager")
    assert eager == replace(same, kv_cache_bytes=got.kv_cache_bytes)


def test_a_state_has_no_window():
    config = VARIANTS["linear"].config(hidden_size=32, num_attention_heads=4)
    with pytest.raises(ValueError, match="window must be None for linear, which keeps no keys, got 16"):
        cost("linear", config, q_len=1, kv_len=50, window=16)
    with pytest.raises(Refusal, match="window must be a whole number"):
        cost("gqa", SMALL, q_len=1, kv_len=50, window=0)
