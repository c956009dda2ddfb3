"""Accelerators: published figures against measurements and shares published elsewhere."""

import subprocess
import sys

import pytest

from attnviz.hardware import HARDWARE, recognise
from attnviz.presets import PRESETS
from attnviz.text import Refusal
from attnviz.units import DTYPES


@pytest.mark.parametrize("key", HARDWARE)
def test_an_entry_holds_together(key):
    entry = HARDWARE[key]
    assert entry.source.startswith("https://") and len(entry.label.en) > 3
    # Apple alone publishes no peak.
    assert set(entry.peak) <= set(DTYPES) and bool(entry.peak) != key.startswith("apple-")
    assert 15e9 < entry.memory_bytes < 1e12 and 1e11 < entry.bandwidth < 2e13
    for dtype in entry.peak:
        assert 1e12 < entry.peak_flops(dtype) < 1e16
        assert entry.ridge(dtype) == entry.peak_flops(dtype) / entry.bandwidth
    ordered = [entry.peak[dtype] for dtype in ("float64", "float32", "float16") if dtype in entry.peak]
    assert ordered == sorted(ordered)


@pytest.mark.parametrize(
    ("key", "reached", "share"),
    # Measured speeds and their shares of the peak, as the papers of FlashAttention-3 and -4 give them.
    [("h100", 740e12, 0.75), ("b200", 1613e12, 0.71)],
)
def test_peaks_agree_with_shares_that_papers_report(key, reached, share):
    assert reached / HARDWARE[key].peak_flops("float16") == pytest.approx(share, abs=0.01)


def test_matrix_cores_multiply_whole_float32_and_float64_on_a_cdna_3():
    """AMD's footnote MI300-11: 304 compute units at 2,100 MHz give 163.4 TFLOP/s of both, and 1307.4 of float16."""
    peak = HARDWARE["mi300x"].peak
    for dtype, each in (("float64", 256), ("float32", 256), ("float16", 2048)):
        assert peak[dtype] == pytest.approx(304 * 2.1e9 * each, rel=1e-3)


def test_a_maker_may_publish_no_peak_at_all():
    entry = HARDWARE["apple-m4-max"]
    assert (entry.bandwidth, entry.memory_bytes) == (546e9, 128 * 10**9)
    with pytest.raises(Refusal, match="Apple M4 Max has no published peak, only a bandwidth"):
        entry.ridge("float16")


def test_short_names_are_told_apart():
    short = [entry.short for entry in HARDWARE.values()]
    assert len(set(short)) == len(short)
    assert HARDWARE["h100"].short == "H100" and HARDWARE["apple-m4"].short == "Apple M4"


def test_what_is_not_published_is_named():
    with pytest.raises(
        Refusal, match="NVIDIA T4 has no published peak for bfloat16; there is one for float16, float32"
    ):
        HARDWARE["t4"].peak_flops("bfloat16")


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("NVIDIA H200", "h200"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA A100-SXM4-40GB", "a100-40gb"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA L4", "l4"),
        ("Tesla T4", "t4"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("NVIDIA GeForce RTX 4090 D", None),
        ("NVIDIA H100 PCIe", None),
        ("Apple M4", "apple-m4"),
        ("Apple M4 Pro", "apple-m4-pro"),
        ("AMD EPYC", None),
    ],
)
def test_devices_are_recognised_by_name(name, key):
    found = recognise(name)
    assert (None if found is None else found.key) == key


def test_a_cache_that_fits_and_one_that_does_not():
    cache = PRESETS["llama-2-7b"].kv_cache_bytes(4096, batch=32)
    assert HARDWARE["rtx-4090"].memory_bytes < cache < HARDWARE["a100-80gb"].memory_bytes


def test_memory_is_what_the_driver_reports_where_that_is_known():
    """Cards are sold in GB that are about GiB: what a driver has lies from the data sheet's 10⁹ to 2³⁰ bytes a GB."""
    for entry in HARDWARE.values():
        if entry.reported is not None:
            assert entry.total_bytes == entry.reported[0] and entry.reported[1].startswith("https://github.com/")
        assert 1 <= entry.total_bytes / entry.memory_bytes <= 1.0738
    assert HARDWARE["a100-80gb"].total_bytes == 80 * 2**30 and HARDWARE["h100"].total_bytes == 81_559 * 2**20
    unknown = [key for key, entry in HARDWARE.items() if entry.reported is None]
    assert (
        unknown == ["h200", *(key for key in HARDWARE if key.startswith("apple-"))]
        and HARDWARE["h200"].total_bytes == 141 * 10**9
    )


def test_it_loads_no_torch():
    code = "import sys, attnviz.hardware; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
