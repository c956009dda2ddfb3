"""Print the own tiled form against torch's flash kernel: python tests/bench/flash.py."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
import torch.nn.functional as F

from attnviz.backends import BACKENDS
from attnviz.masks import MASKS
from tests.bench.race import race, show


def main() -> None:
    """Race all backends without a mask, causal and with a window of 256."""
    causal, window = MASKS["causal"].build(), MASKS["sliding_window"].build(window=256)
    for length, rounds in ((1024, 15), (4096, 5)):
        q, k, v = (torch.randn(1, 8, length, 64) for _ in range(3))
        calls = {
            "torch flash": lambda q=q, k=k, v=v: F.scaled_dot_product_attention(q, k, v),
            "torch flash, causal": lambda q=q, k=k, v=v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        }
        for name, backend in BACKENDS.items():
            attend = backend.attend
            calls[f"{name}"] = lambda q=q, k=k, v=v, attend=attend: attend(q, k, v)
            calls[f"{name}, causal"] = lambda q=q, k=k, v=v, attend=attend: attend(q, k, v, allowed=causal)
            calls[f"{name}, window 256"] = lambda q=q, k=k, v=v, attend=attend: attend(q, k, v, allowed=window)
        limits = {"flash": 1.8} if length == 4096 else None
        show(f"8 heads of 64, length {length}, float32, one thread", race(calls, rounds=rounds), limits)


if __name__ == "__main__":
    main()
