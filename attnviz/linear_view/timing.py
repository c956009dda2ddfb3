"""What linear attention costs against softmax at each length: FLOPs counted, times measured on this machine."""

import time
from statistics import median
from typing import NamedTuple

import torch
import torch.nn.functional as F

from attnviz import inputs
from attnviz.linear_view.run import maps
from attnviz.linear_view.settings import View
from attnviz.masks import MASKS
from attnviz.variants import VARIANTS
from attnviz.variants.linear import linear_attention

HEADS = 4
LENGTHS = (32, 64, 128, 256, 512, 1024, 2048, 4096)
ROUNDS, BUDGET_S = 9, 4.0
KINDS = ("softmax", "linear")


class Timing(NamedTuple):
    """Hold the median seconds of each kind at each length, and how many rounds went into the least measured one."""

    seconds: dict[str, tuple[float, ...]]
    rounds: int


def flops(view: View, length: int) -> dict[str, int]:
    """Count the FLOPs that mix the tokens of ``HEADS`` heads causally; softmax skips what lies above the diagonal."""
    sizes = {"hidden_size": HEADS * view.d_k, "num_attention_heads": HEADS, "head_dim": view.d_k}
    mha, linear = VARIANTS["mha"], VARIANTS["linear"]
    layer = linear.config(**sizes, feature_map=view.feature_map, features=view.features)
    # The projections are the same in both: what is left is what mixes.
    projections = linear.flops(layer, 1, 1, 1) - linear.mix_flops(layer, 1, 1)
    causal = linear.flops(layer, length, length, length, causal=True) - length * projections
    pairs = mha.mix_flops(mha.config(**sizes), 1, 1)
    return {"softmax": pairs * length * (length + 1) // 2, "linear": causal}


def crossover(view: View) -> int | None:
    """Give the first length from which on linear attention takes fewer FLOPs, up to 2²⁰; None beyond."""
    lengths = [2**power for power in range(21)]
    above = next((n for n in lengths if _less(view, n) and _less(view, 2 * n)), None)
    if above is None or above == 1:
        return above
    low, high = above // 2, above
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _less(view, middle) else (middle, high)
    return high


def _less(view: View, length: int) -> bool:
    counted = flops(view, length)
    return counted["linear"] < counted["softmax"]


@torch.no_grad()
def measure(view: View) -> Timing:
    """Time torch's own causal softmax attention and our chunked form, in turn, so that a busy machine slows both."""
    samples: dict[str, list[list[float]]] = {kind: [[] for _ in LENGTHS] for kind in KINDS}
    causal = MASKS["causal"].build()
    tensors = [
        tuple(inputs.random_normal((HEADS, n, view.d_k), view.seed + part)[None] for part in range(3)) for n in LENGTHS
    ]
    both = maps(view)
    began = time.perf_counter()
    for round_ in range(ROUNDS + 1):
        for at, (query, key, value) in enumerate(tensors):
            calls = (
                lambda q=query, k=key, v=value: F.scaled_dot_product_attention(q, k, v, is_causal=True),
                lambda q=query, k=key, v=value: linear_attention(q, k, v, maps=both, allowed=causal, normalize=True),
            )
            for kind, call in zip(KINDS, calls, strict=True):
                start = time.perf_counter()
                call()
                if round_:  # the first one warms up
                    samples[kind][at].append(max(time.perf_counter() - start, 1e-9))
        if round_ > 1 and time.perf_counter() - began > BUDGET_S:
            break
    least = min(len(each) for each in samples["linear"])
    return Timing({kind: tuple(median(each) for each in samples[kind]) for kind in KINDS}, least)


def crossed(timing: Timing) -> int | None:
    """Give the first measured length from which on linear attention was faster, or None."""
    faster = [a > b for a, b in zip(timing.seconds["softmax"], timing.seconds["linear"], strict=True)]
    place = next((at for at in range(len(LENGTHS)) if all(faster[at:])), None)
    return None if place is None else LENGTHS[place]
