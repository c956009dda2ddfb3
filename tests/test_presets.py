"""Published models: golden sizes of their caches, and declarations that hold together."""

import math
import re

import pytest

from attnviz.config import DTYPES
from attnviz.presets import PARAMETERS, PRESETS
from attnviz.text import Refusal
from attnviz.variants import VARIANTS

KIB, MIB, GIB = 2**10, 2**20, 2**30


@pytest.mark.parametrize(
    ("key", "kib"),
    [
        ("llama-2-7b", 512),
        ("llama-3-1-8b", 128),
        ("llama-3-1-405b", 504),
        ("falcon-7b", 8),
        ("gpt-oss-120b", 72),
        ("deepseek-v3-r1-671b", 68.625),
    ],
)
def test_bytes_of_one_token(key, kib):
    assert PRESETS[key].kv_cache_bytes(1) == kib * KIB


@pytest.mark.parametrize(
    ("key", "tokens", "batch", "windows", "size", "unit"),
    [
        ("deepseek-v3-1", 163_840, 1, True, 10.72, GIB),
        ("gemma-3-1b", 32_768, 1, True, 139, MIB),
        ("gemma-3-1b", 32_768, 1, False, 832, MIB),
        ("gemma-3-27b", 131_072, 1, True, 10.41, GIB),
        ("gemma-3-27b", 131_072, 1, False, 62, GIB),
        ("gpt-oss-20b", 8192, 32, True, 6.09, GIB),
        ("gpt-oss-20b", 8192, 32, False, 12.00, GIB),
        ("qwen3-0-6b", 40_960, 1, True, 4.38, GIB),
        ("mistral-7b-v0-1", 32_768, 1, True, 512, MIB),
        ("mistral-7b-v0-1", 32_768, 1, False, 4, GIB),
    ],
)
def test_bytes_of_a_context(key, tokens, batch, windows, size, unit):
    got = PRESETS[key].kv_cache_bytes(tokens, batch=batch, windows=windows) / unit
    assert round(got, 0 if size > 100 else 2) == size


@pytest.mark.parametrize("key", PRESETS)
def test_a_preset_holds_together(key):
    preset = PRESETS[key]
    assert re.fullmatch(r"https://\S+/blob/\S+", preset.source)
    assert (preset.window is None) == (preset.sliding_layers == 0)
    assert sum(kind.layers for kind in preset.kinds()) == preset.layers - preset.linear_layers > 0
    assert len(preset.label.en) > 3 and preset.max_context >= 512
    config = preset.config
    assert {name: getattr(config, name) for name in preset.sizes} == preset.sizes
    heads, kv_heads, *_ = VARIANTS[preset.variant].heads(config)
    assert preset.variant == "mla" or preset.variant == (
        "mha" if heads == kv_heads else "mqa" if kv_heads == 1 else "gqa"
    )


@pytest.mark.parametrize("key", PRESETS)
def test_the_cache_is_the_variants_own(key):
    preset = PRESETS[key]
    variant, config = VARIANTS[preset.variant], preset.config

    def entries(tokens):
        return sum(math.prod(shape) for shape in variant.cache(config, tokens).values())

    every = preset.full_layers + preset.sliding_layers
    assert preset.kv_cache_bytes(70, windows=False, batch=3, dtype="float32") == 4 * 3 * every * entries(70)
    long = 1_000_000
    sliding = preset.sliding_layers * entries(preset.window) if preset.window else 0
    assert preset.kv_cache_bytes(long) == 2 * (preset.full_layers * entries(long) + sliding)


def test_a_window_counts_from_where_it_is_full():
    gemma = PRESETS["gemma-3-1b"]
    assert gemma.kv_cache_bytes(512) == gemma.kv_cache_bytes(512, windows=False)
    assert gemma.kv_cache_bytes(513) < gemma.kv_cache_bytes(513, windows=False)
    one = gemma.kv_cache_bytes(513) - gemma.kv_cache_bytes(512)
    assert one == gemma.full_layers * 2 * 256 * 2


@pytest.mark.parametrize("dtype", DTYPES)
def test_bytes_follow_the_dtype(dtype):
    assert PRESETS["llama-3-8b"].kv_cache_bytes(10, dtype=dtype) == 65_536 * 10 * DTYPES[dtype]


@pytest.mark.parametrize(
    ("given", "words"),
    [({"tokens": 0}, "tokens must be"), ({"batch": 0}, "batch must be"), ({"dtype": "int3"}, "dtype must be one of")],
)
def test_misuse_is_named(given, words):
    with pytest.raises(Refusal, match=words):
        PRESETS["llama-3-8b"].kv_cache_bytes(**{"tokens": 1, **given})


def test_weights_published_in_fewer_bits_are_told_with_what_they_take():
    told = {key: preset.published for key, preset in PRESETS.items() if preset.published is not None}
    assert set(told) == {"gpt-oss-20b", "gpt-oss-120b", "deepseek-v3-r1-671b", "deepseek-v3-1"}
    for layers, experts, key in ((24, 32, "gpt-oss-20b"), (36, 128, "gpt-oss-120b")):
        # Of each expert a matrix to twice the width of 2,880, for the gate, and one back.
        inside = layers * experts * 3 * 2880**2
        taken = inside * 4.25 / 8 + 2 * (PARAMETERS[key] - inside)
        for text in (told[key].text.en, told[key].text.zh):
            assert f"{taken / GIB:.1f} GiB" in text and "MXFP4" in text and "4.25" in text
    for published in told.values():
        assert re.fullmatch(r"https://(arxiv\.org/abs/\d{4}\.\d{5}|\S+/blob/main/\S+)", published.source)


def test_who_shares_heads_is_told_right():
    variants = {key: preset.variant for key, preset in PRESETS.items()}
    assert variants["llama-2-7b"] == variants["llama-2-13b"] == "mha" and variants["llama-2-70b"] == "gqa"
    assert variants["deepseek-v3-r1-671b"] == variants["deepseek-v2-236b"] == "mla"
    assert variants["falcon-7b"] == "mqa"
    assert [key for key, preset in PRESETS.items() if preset.window == 4096 and "mistral" in key] == ["mistral-7b-v0-1"]
