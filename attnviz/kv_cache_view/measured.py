"""What is measured of decoding: a token's time with the cache and without, and the variants' steps."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from attnviz import device as devices
from attnviz.benchmark import Contestant, Failure, Point, Request, Result, predict
from attnviz.config import dtype_size
from attnviz.kv_cache_view.view import View
from attnviz.variants import VARIANTS

# A layer that is large enough to take time and small enough for every machine; MLA in the proportions of DeepSeek-V2.
HEADS, D_K, WIDTH = 32, 64, 1024
KV_HEADS = 8
CONTEXTS = (64, 128, 256, 512, 1024)
LATENT = {"kv_lora_rank": 4 * D_K, "qk_rope_head_dim": D_K // 2, "head_dim": D_K + D_K // 2, "v_head_dim": D_K}
WORK_BUDGET_S, STEP_BUDGET_S = 1.0, 6.0
# On a busy machine making seven layers and caches alone can take a while.
STEP_LIMIT_S = 180.0


class Grown(NamedTuple):
    """Hold one way to decode over growing contexts: FLOPs by declaration, and seconds where they were measured.

    ``predicted`` are the seconds that the FLOPs would take at the speed of the largest whole pass, None before that is
    known; ``xs`` are the contexts of what was measured.
    """

    contexts: tuple[int, ...]
    flops: tuple[int, ...]
    xs: tuple[int, ...]
    medians: tuple[float, ...]
    lows: tuple[float, ...]
    highs: tuple[float, ...]
    noisy: tuple[bool, ...]
    predicted: tuple[float, ...] | None


def sizes_of(variant: str) -> Mapping[str, int]:
    """Give the sizes of the layer that is measured."""
    common = {"hidden_size": WIDTH, "num_attention_heads": HEADS}
    if variant == "mla":
        return common | LATENT
    return common | {"head_dim": D_K, **({"num_key_value_heads": KV_HEADS} if variant == "gqa" else {})}


def work_requests(view: View, names: tuple[str, str]) -> tuple[Request, ...]:
    """Give one request for each context: the view's variant with its cache, and without, named so."""
    with_cache, without = (
        Contestant(view.variant, "sdpa", sizes_of(view.variant), what="decode", cached=cached, label=name)
        for cached, name in zip((True, False), names, strict=True)
    )
    return tuple(
        Request(
            (with_cache, without), q_len=1, kv_len=context, device=devices.default_device(), memory=False,
            budget_s=WORK_BUDGET_S,
        )
        for context in CONTEXTS
    )  # fmt: skip


def step_request(view: View, packed: str, expanded: str) -> Request:
    """Give the request for one token's step of every variant, heads that share computed together and spread out."""
    latent = f"{LATENT['kv_lora_rank']} + {LATENT['qk_rope_head_dim']}"
    heads = {"gqa": f" {HEADS}/{KV_HEADS}", "mqa": f" {HEADS}/1", "mla": f" {latent}"}
    entrants = [Contestant("mha", "sdpa", sizes_of("mha"), what="decode", label=f"MHA {HEADS}/{HEADS}")]
    for variant, count in heads.items():
        for kv, name in (("packed", packed), ("expanded", expanded)):
            label = f"{variant.upper()}{count} · {name}"
            entrants.append(Contestant(variant, "sdpa", sizes_of(variant), what="decode", kv=kv, label=label))
    return Request(
        tuple(entrants), q_len=1, kv_len=int(view.decode_context), device=devices.default_device(),
        budget_s=STEP_BUDGET_S, limit_s=STEP_LIMIT_S, memory=False,
    )  # fmt: skip


def grown(requests: Sequence[Request], results: Sequence[Result]) -> tuple[Grown, Grown]:
    """Give both ways over the contexts, with what is known of their times."""
    contexts = tuple(request.keys for request in requests)
    flops = [tuple(predict(request.contestants[way], request).flops for request in requests) for way in (0, 1)]
    known = [
        [(request.keys, point.latency_s) for request, point in _points(requests, results, way) if point.latency_s]
        for way in (0, 1)
    ]
    rate = None
    if known[1]:
        context, latency = known[1][-1]
        rate = flops[1][contexts.index(context)] / latency.median
    found = []
    for way in (0, 1):
        times = [latency for _, latency in known[way]]
        found.append(
            Grown(
                contexts, flops[way], tuple(context for context, _ in known[way]), tuple(one.median for one in times),
                tuple(one.lower for one in times), tuple(one.upper for one in times), tuple(one.noisy for one in times),
                None if rate is None else tuple(size / rate for size in flops[way]),
            )
        )  # fmt: skip
    return found[0], found[1]


def _points(requests: Sequence[Request], results: Sequence[Result], way: int) -> Iterator[tuple[Request, Point]]:
    """Give each request with what is known of one of its contestants."""
    for request, result in zip(requests, results, strict=False):
        known = result.partial if isinstance(result, Failure) else result
        if known is not None:
            yield request, known.points[way]


def pair_flops(variant: str, keys: int) -> int:
    """Give what one query does with one of so many keys, over all heads of the layer that is measured."""
    config = VARIANTS[variant].config(**sizes_of(variant))
    return VARIANTS[variant].mix_flops(config, 1, keys) // keys


def cache_bytes(request: Request, contestant: Contestant) -> int:
    """Give what a contestant's cache takes, as its variant declares it."""
    shapes = VARIANTS[contestant.variant].cache(contestant.config, request.keys).values()
    return sum(math.prod(shape) for shape in shapes) * dtype_size(request.dtype)
