"""Print causal linear attention and a window of 256 against torch's causal flash: python tests/bench/linear.py."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
import torch.nn.functional as F

from attnviz.backends import BACKENDS
from attnviz.masks import MASKS
from attnviz.variants.delta import delta_rule
from attnviz.variants.linear import linear_attention
from attnviz.variants.state.features import FEATURE_MAPS
from tests.bench.race import race, show

LIMITS = {"linear, elu + 1": 0.08, "sdpa, window 256": 0.17}


def main() -> None:
    """Race the causal forms at short and long lengths; the limits are those of 8,192 tokens."""
    causal, window = MASKS["causal"].build(), MASKS["sliding_window"].build(window=256)
    maps = FEATURE_MAPS["elu"].maps(1.0)
    for length, rounds in ((256, 15), (1024, 15), (8192, 7)):
        q, k, v = (torch.randn(1, 8, length, 64) for _ in range(3))
        unit, beta = F.normalize(k, dim=-1), torch.rand(1, 8, length, 1)
        calls = {
            "torch flash, causal": lambda q=q, k=k, v=v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
            "linear, elu + 1": lambda q=q, k=k, v=v: linear_attention(
                q, k, v, maps=maps, allowed=causal, normalize=True
            ),
            "delta rule": lambda q=q, k=unit, v=v, beta=beta: delta_rule(q, k, v, beta, allowed=causal),
            "sdpa, window 256": lambda q=q, k=k, v=v: BACKENDS["sdpa"].attend(q, k, v, allowed=window),
        }
        limits = LIMITS if length == 8192 else None
        show(f"8 heads of 64, length {length}, float32, one thread, causal", race(calls, rounds=rounds), limits)


if __name__ == "__main__":
    main()
