"""What linear attention and the delta rule cost against softmax at each length, counted and measured."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from attnviz import device as devices
from attnviz.benchmark import Contestant, Request, predict
from attnviz.linear_view.settings import View
from attnviz.variants import VARIANTS

HEADS = 4
LENGTHS = (32, 64, 128, 256, 512, 1024, 2048, 4096)
BUDGET_S = 0.6
# What is measured of each kind: a variant, and how it is computed.
KINDS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {"softmax": ("mha", "sdpa"), "linear": ("linear", "chunked"), "delta": ("delta", "chunked")}
)
# Of eager softmax, which writes every pair down, the memory is shown too.
WEIGHED: Mapping[str, tuple[str, str]] = MappingProxyType({**KINDS, "eager": ("mha", "eager")})
# From this length on eager's matrices are not made only to be weighed: the formula says what they take.
MOST_EAGER = 1024


def sizes(view: View, kind: str) -> dict[str, int | str]:
    """Give the sizes of a kind's layer: the view's width, and for linear attention its feature map."""
    shared = {"hidden_size": HEADS * view.d_k, "num_attention_heads": HEADS, "head_dim": view.d_k}
    return shared | ({"feature_map": view.feature_map, "features": view.features} if kind == "linear" else {})


def flops(view: View, length: int) -> dict[str, int]:
    """Count the FLOPs that mix the tokens of ``HEADS`` heads causally; softmax skips what lies above the diagonal."""
    softmax = VARIANTS["mha"]
    pairs = softmax.mix_flops(softmax.config(**sizes(view, "softmax")), 1, 1)
    return {"softmax": pairs * length * (length + 1) // 2} | {
        kind: _mixing(view, kind, length) for kind in ("linear", "delta")
    }


def _mixing(view: View, kind: str, length: int) -> int:
    variant = VARIANTS[KINDS[kind][0]]
    layer = variant.config(**sizes(view, kind))
    # The projections are left out: what is left is what mixes.
    projections = variant.flops(layer, 1, 1, 1) - variant.mix_flops(layer, 1, 1)
    return variant.flops(layer, length, length, length, causal=True) - length * projections


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


def _contestant(view: View, kind: str, name: str = "") -> Contestant:
    variant, form = WEIGHED[kind]
    return Contestant(variant, form, sizes(view, kind), label=name)


def kinds(length: int) -> tuple[str, ...]:
    """Give the kinds that are measured at a length, in turn."""
    return tuple(kind for kind in WEIGHED if kind in KINDS or length <= MOST_EAGER)


def requests(view: View, names: Mapping[str, str]) -> tuple[Request, ...]:
    """Give one request for each length: its kinds in turn, causally, each called by its name."""
    return tuple(
        Request(
            tuple(_contestant(view, kind, names[kind]) for kind in kinds(length)), q_len=length, mask="causal",
            device=devices.default_device(), budget_s=BUDGET_S,
        )
        for length in LENGTHS
    )  # fmt: skip


def peaks(view: View, kind: str, lengths: Sequence[int]) -> list[int]:
    """Predict what a kind's call allocates at its peak at each length, its output included, its inputs not.

    Softmax's and linear attention's are to the byte on one CPU thread; the delta rule's is an estimate.
    """
    one = _contestant(view, kind)
    return [predict(one, Request((one,), q_len=length, mask="causal")).peak_bytes for length in lengths]


def every_state(view: View, length: int) -> int:
    """Count the bytes of a linear state kept for every token, as a cumulative sum over the tokens keeps it."""
    return 4 * HEADS * length * view.width * (view.d_k + 1)


def crossed(lengths: Sequence[int], softmax: Sequence[float], linear: Sequence[float]) -> int | None:
    """Give the first measured length from which on linear attention was faster, or None."""
    faster = [a > b for a, b in zip(softmax, linear, strict=True)]
    return next((length for at, length in enumerate(lengths) if all(faster[at:])), None)
