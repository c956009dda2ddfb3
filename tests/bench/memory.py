"""Print the peak memory of one call beside what is declared, and whether times are those of a plain loop outside.

``python tests/bench/memory.py``: 8 heads of 64, float32, one thread, as the app's measuring process finds them.
"""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
import torch.nn.functional as F

from attnviz.backends import BACKENDS
from attnviz.benchmark import Contestant, Failure, Request, declared_peak, measure
from attnviz.benchmark.process import ENVIRONMENT
from tests.bench.race import race

HEADS, WIDTH = 8, 64
SIZES = {"hidden_size": HEADS * WIDTH, "num_attention_heads": HEADS, "head_dim": WIDTH}
MIB = 2**20


def contestants() -> tuple[Contestant, ...]:
    """Give the ways of computing that are compared."""
    ways = (("mha", "eager", "auto"), ("mha", "sdpa", "math"), ("mha", "sdpa", "auto"), ("mha", "flash", "auto"))
    made = [Contestant(variant, way, SIZES, kernel=kernel, label=f"{way} {kernel}") for variant, way, kernel in ways]
    return (*made, Contestant("linear", "chunked", SIZES, label="linear chunked"))


def memory() -> None:
    """Print measured and declared bytes without a mask, and of eager with one."""
    print(f"{'tokens':>7} {'':22}{'measured':>14}{'declared':>14}   difference")
    for length in (1024, 4096):
        asked = [(contestants(), "full"), (contestants()[:1], "causal")]
        for entries, mask in asked:
            request = Request(entries, length, mask=mask, rounds=3, budget_s=1.0, limit_s=180)
            result = measure(request)
            if isinstance(result, Failure):
                print(length, result.text.en)
                continue
            for entry, point in zip(entries, result.points, strict=True):
                declared = declared_peak(entry, request) or 0
                name = entry.label + (f", {mask}" if mask != "full" else "")
                print(f"{length:>7} {name:22}{point.peak_bytes:>14,}{declared:>14,}   {point.peak_bytes - declared:+,}")


def times() -> None:
    """Print the ratio of eager to sdpa as the measuring process and as a plain interleaved loop find it."""
    for length in (512, 1024, 2048):
        entries = (contestants()[2], contestants()[0])
        found = measure(Request(entries, length, rounds=21, budget_s=20.0, limit_s=120, memory=False))
        query, key, value = torch.randn(3, 1, HEADS, length, WIDTH)
        calls = {
            "sdpa": lambda q=query, k=key, v=value: F.scaled_dot_product_attention(q, k, v),
            "eager": lambda q=query, k=key, v=value: BACKENDS["eager"].attend(q, k, v),
        }
        loop = race(calls)[1].ratio
        inside = "failed" if isinstance(found, Failure) else f"{found.points[1].ratio:.3f}"
        print(f"{length:>7} eager / sdpa: measuring process {inside}, plain loop {loop:.3f}")


if __name__ == "__main__":
    if not ENVIRONMENT.items() <= os.environ.items():
        # The C library reads them once: without them the plain loop maps every score matrix anew and eager looks slow.
        os.execve(sys.executable, [sys.executable, __file__], {**os.environ, **ENVIRONMENT})
    memory()
    times()
