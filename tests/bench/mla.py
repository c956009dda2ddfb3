"""Print what a decode step with latent attention takes against one with MHA: python tests/bench/mla.py [--expanded]."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
import torch.nn.functional as F

from attnviz.variants import VARIANTS
from tests.bench.race import race, show

HEADS, LENGTH, WIDTH = 32, 8192, 128
HIDDEN = 1024


def main() -> None:
    """Race one query over a cache of 8,192 tokens: whole layers with their projections, and MHA's bare fused call."""
    mha = VARIANTS["mha"]
    own = mha.config(hidden_size=HIDDEN, num_attention_heads=HEADS, head_dim=WIDTH)
    weights = mha.weights(own, seed=0)
    query = torch.randn(1, HEADS, 1, WIDTH)
    cache = {name: torch.randn(1, HEADS, LENGTH, WIDTH) for name in ("key", "value")}
    x = torch.randn(1, 1, HIDDEN)
    calls = {
        "MHA, layer": mha_step(own, weights, cache, x),
        "MHA, bare SDPA": lambda: F.scaled_dot_product_attention(query, cache["key"], cache["value"]),
    }
    for form in ("absorbed", "expanded") if "--expanded" in sys.argv else ("absorbed",):
        calls[f"MLA {form}, layer"] = latent_step(form, x)
    title = f"one query, {LENGTH} keys, {HEADS} heads of {WIDTH}, width {HIDDEN}, float32, one thread"
    show(title, race(calls, rounds=9), {"MLA absorbed, layer": 0.42})


def mha_step(config, weights: dict[str, torch.Tensor], cache: dict[str, torch.Tensor], x: torch.Tensor):
    """Give a whole layer's step over a full cache, with all its projections, those of the new key and value too."""
    mha = VARIANTS["mha"]

    # An empty context asks a finished cache again: no step here copies it to make it one token longer.
    def step() -> None:
        for name in ("key", "value"):
            x @ weights[name]
        mha.attend(config, weights, x, context=x[:, :0], cache=cache, backend="sdpa")

    return step


def latent_step(form: str, x: torch.Tensor):
    """Give a whole layer's step over a full cache, with all its projections, those of the new token's latent too."""
    mla = VARIANTS["mla"]
    config = mla.config(hidden_size=HIDDEN, num_attention_heads=HEADS, head_dim=WIDTH + 64, form=form)
    weights = mla.weights(config, seed=0)
    kept = torch.randn(1, LENGTH, config.kept)

    def step() -> None:
        for name in ("latent", "rope_key"):
            x @ weights[name]
        mla.attend(config, weights, x, context=x[:, :0], cache={"latent": kept}, backend="sdpa")

    return step


if __name__ == "__main__":
    main()
