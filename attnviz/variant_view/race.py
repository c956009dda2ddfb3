"""Additive attention against the dot product: what is measured of the view, and when that would take too long."""

import math

from attnviz import units
from attnviz.benchmark import Contestant, Request
from attnviz.text import Refusal, Text
from attnviz.variant_view.view import View

# Entries of tanh(q + k) in one call: a second or two of one core.
MOST_ENTRIES = 2**28
# Entries of tanh(q + k) that exist at once.
TILE_ENTRIES = 2**20
# Score by step and in blocks: each is what the additive scores are put into.
BACKENDS = ("eager", "sdpa")

_TOO_LONG = Text(
    "Not measured: {heads} heads with d_k {d_k} at length {length} are {entries} values of tanh in one call, and at "
    "most {most} are measured. Take a shorter length, fewer heads or a smaller d_k.",
    "不予测量：{heads} 个头、d_k = {d_k}、长度 {length}，一次调用要算 {entries} 个 tanh，这里最多测 {most} 个。"
    "请减小长度、头数或 d_k。",
)  # fmt: skip
_LABELS = {
    "mha": Text("dot product · {backend}", "点积 · {backend}"),
    "additive": Text("additive · {backend}", "加性 · {backend}"),
}


def outgrows(view: View) -> int:
    """Give the length from which on one score matrix has more entries than a tile."""
    return math.isqrt(TILE_ENTRIES // view.heads) + 1


def request(view: View, language: str) -> Request:
    """Give what is measured: both ways to score the same queries and keys, causally, each by itself and in blocks.

    Raises:
        Refusal: If one call would take too long.
    """
    length = int(view.timed)
    entries = view.heads * view.d_k * length**2
    if entries > MOST_ENTRIES:
        said = {"heads": view.heads, "d_k": view.d_k, "length": units.count(length)}
        counts = {"entries": units.short_count(entries), "most": units.short_count(MOST_ENTRIES)}
        raise Refusal(_TOO_LONG.fill(**said, **counts))
    sizes = {"num_attention_heads": view.heads, "head_dim": view.d_k, "biases": False}
    contestants = tuple(
        Contestant(variant, backend, sizes, label=_LABELS[variant].fill(backend=backend).say(language))
        for backend in BACKENDS
        for variant in _LABELS
    )
    return Request(contestants, q_len=length, mask="causal")
