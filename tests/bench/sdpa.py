"""Print what the sdpa backend adds to torch's bare call: python tests/bench/sdpa.py."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
import torch.nn.functional as F

from attnviz.backends import BACKENDS
from attnviz.masks import MASKS
from tests.bench.race import race

SHARE, SECONDS = 0.05, 10e-6  # what may be added to the bare call


def main() -> None:
    """Race bare call and backend without a mask, causal and with a boolean mask."""
    attend, causal = BACKENDS["sdpa"].attend, MASKS["causal"].build()
    print(f"{'length':>8} {'mask':10}{'bare':>12}{'sdpa':>12}{'added':>12}{'allowed':>12}")
    for length in (1, 16, 64, 256, 1024):
        q, k, v = (torch.randn(1, 8, length, 64) for _ in range(3))
        grid = torch.ones(length, length, dtype=torch.bool).tril()
        for mask, bare, ours in (
            ("none", {}, {}),
            ("causal", {"is_causal": True}, {"allowed": causal}),
            ("boolean", {"attn_mask": grid}, {"allowed": grid}),
        ):
            calls = {
                "bare": lambda q=q, k=k, v=v, bare=bare: F.scaled_dot_product_attention(q, k, v, **bare),
                "sdpa": lambda q=q, k=k, v=v, ours=ours: attend(q, k, v, **ours),
            }
            base, mine = race(calls)
            added, allowed = mine.seconds - base.seconds, SHARE * base.seconds + SECONDS
            numbers = "".join(f"{seconds * 1e6:9.1f} µs" for seconds in (base.seconds, mine.seconds, added, allowed))
            print(f"{length:8} {mask:10}{numbers}  {'ok' if added <= allowed else 'OVER'}")


if __name__ == "__main__":
    main()
