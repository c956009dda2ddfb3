"""KV cache and memory sums, from the variants' own declarations."""

import torch

from attnviz.cost import cost
from attnviz.presets import PRESETS
from attnviz.units import binary_bytes, both_bytes, decimal_bytes
from attnviz.variants import VARIANTS
from pages.ui.translate import say
from tests.pages import plots, visit


def test_case_76_keys_and_values_both_count():
    """https://github.com/alvarobartt/hf-mem/pull/60: 36 layers, 8 KV heads of 64, bfloat16."""
    config = VARIANTS["gqa"].config(hidden_size=2880, num_attention_heads=64, num_key_value_heads=8, head_dim=64)
    layer = cost("gqa", config, q_len=1, kv_len=1, dtype="bfloat16")
    assert 36 * layer.kv_cache_bytes == 73_728
    assert PRESETS["gpt-oss-120b"].kv_cache_bytes(1) == 73_728
    weights = VARIANTS["gqa"].weights(config, seed=0, dtype=torch.bfloat16)
    kept = VARIANTS["gqa"].attend(config, weights, torch.zeros(1, 1, 2880, dtype=torch.bfloat16)).cache
    assert 36 * sum(tensor.nbytes for tensor in kept.values()) == 73_728


def test_case_77_with_windows_and_without_are_two_figures():
    """https://github.com/alvarobartt/hf-mem/pull/70: gpt-oss-20b, 24 layers, half of them with a window of 128."""
    preset = PRESETS["gpt-oss-20b"]
    assert (preset.layers, preset.sliding_layers, preset.window) == (24, 12, 128)
    with_windows, without = (preset.kv_cache_bytes(8192, batch=32, windows=on) for on in (True, False))
    assert [round(size / 2**30, 2) for size in (with_windows, without)] == [6.09, 12.00]
    assert [kind.window for kind in preset.kinds()] == [None, 128]
    assert [kind.window for kind in preset.kinds(windows=False)] == [None]


def test_case_77_is_on_the_page_by_link_with_both_labels():
    """The same, as a reader meets it: the number, and which of the two it is."""
    settings = {"model": "gpt-oss-20b", "context": "8192", "batch": "32"}
    for windows, size, label in (("1", "6.09 GiB", "windows"), ("0", "12 GiB", "ignored")):
        app = visit(page="kv_cache", **settings, windows=windows)
        assert app.metric[1].value == size
        (name, *_) = (trace["name"] for trace in plots(app)["kv_cache.sizes"]["data"])
        assert name.endswith(say("en", f"kv_cache.curve.{label}"))


def test_case_79_head_size_is_a_setting_of_its_own():
    """https://github.com/unslothai/unsloth/pull/4757: Qwen3-0.6B at 40,960 tokens."""
    preset = PRESETS["qwen3-0-6b"]
    config = preset.config
    assert config.head_dim == 128 != config.hidden_size // config.num_attention_heads == 64
    assert round(preset.kv_cache_bytes(40_960) / 2**30, 2) == 4.38


def test_case_81_a_quarter_of_the_heads_keeps_a_quarter():
    """https://github.com/vllm-project/vllm/pull/29736: 32 query heads, 8 KV heads."""
    sizes = {"hidden_size": 4096, "num_attention_heads": 32}
    shared = cost("gqa", VARIANTS["gqa"].config(**sizes, num_key_value_heads=8), q_len=1, kv_len=1000)
    own = cost("mha", VARIANTS["mha"].config(**sizes), q_len=1, kv_len=1000)
    assert 4 * shared.kv_cache_bytes == own.kv_cache_bytes
    assert shared.flops < own.flops


def test_case_82_gib_and_gb_are_not_mixed():
    """https://github.com/LMCache/LMCache/pull/694: both units, each with its own number."""
    size = PRESETS["gpt-oss-20b"].kv_cache_bytes(8192, batch=32)
    assert both_bytes(size) == f"{binary_bytes(size)} ({decimal_bytes(size)})" == "6.09 GiB (6.54 GB)"
    assert both_bytes(PRESETS["llama-2-7b"].kv_cache_bytes(1)) == "512 KiB (524 kB)"


def test_case_82_the_page_gives_both_units():
    """The cache in GiB and in GB, each with its own number, beside the makers' GB of the accelerators."""
    app = visit(page="kv_cache", model="gpt-oss-20b", context="8192", batch="32")
    assert "6.09 GiB (6.54 GB)" in plots(app)["kv_cache.sizes"]["layout"]["meta"]["caption"]
    assert app.metric[1].help == "6.09 GiB (6.54 GB)"
