"""Print what one decode step gains from shared KV heads: python tests/bench/decode.py."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
import torch.nn.functional as F

from attnviz.backends import BACKENDS
from tests.bench.race import race, show

HEADS, LENGTH, WIDTH = 32, 8192, 128


def main() -> None:
    """Race one query over a cache of 8,192 tokens with 32, 8 and 1 KV heads."""
    attend = BACKENDS["sdpa"].attend
    for dtype in (torch.float32, torch.bfloat16):
        query = torch.randn(1, HEADS, 1, WIDTH, dtype=dtype)
        caches = {n: tuple(torch.randn(1, n, LENGTH, WIDTH, dtype=dtype) for _ in range(2)) for n in (HEADS, 8, 1)}
        calls = {
            "MHA, bare SDPA": lambda q=query, kv=caches[HEADS]: F.scaled_dot_product_attention(q, *kv),
            "MHA, sdpa": lambda q=query, kv=caches[HEADS]: attend(q, *kv),
            "GQA-8, bare SDPA, enable_gqa": lambda q=query, kv=caches[8]: F.scaled_dot_product_attention(
                q, *kv, enable_gqa=True
            ),
            "GQA-8, sdpa (packed)": lambda q=query, kv=caches[8]: attend(q, *kv),
            "MQA, sdpa (packed)": lambda q=query, kv=caches[1]: attend(q, *kv),
        }
        limits = {"GQA-8, sdpa (packed)": 0.35, "MQA, sdpa (packed)": 0.09} if dtype == torch.float32 else None
        title = f"one query, {LENGTH} keys, {HEADS} heads of {WIDTH}, {dtype}, one thread"
        show(title, race(calls), limits)


if __name__ == "__main__":
    main()
