"""What one attention layer costs, from what variants and backends declare of themselves; names none of them."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from attnviz.backends import Backend
from attnviz.config import check_size, dtype_size
from attnviz.variants import VARIANTS, Variant, Work


@dataclass(frozen=True)
class Cost:
    """Hold what one layer costs: numbers, bytes and FLOPs of one call.

    Args:
        parameters: Weights of the layer.
        flops: Of the matrix products, a multiply-add counted as 2; softmax and biases are not counted.
        bytes_moved: Traffic with main memory if each tensor is written once and read once.
        weight_bytes: What the weights take.
        score_bytes: What the whole score matrix takes; ``peak_bytes`` says how much of it a backend holds.
        mask_bytes: What a dense boolean mask takes, shared by heads and batch; no mask of known structure needs it.
        kv_cache_bytes: What ``kv_len`` tokens keep in this layer for the tokens that follow, no more than a window.
        peak_bytes: What the attention core allocates at its peak, its results included.
    """

    parameters: int
    flops: int
    bytes_moved: int
    weight_bytes: int
    score_bytes: int
    mask_bytes: int
    kv_cache_bytes: int
    peak_bytes: int

    @property
    def intensity(self) -> float:
        """FLOPs per byte moved: below a machine's FLOP/s per byte/s the memory is what is waited for."""
        return self.flops / self.bytes_moved


def cost(
    variant: Variant | str,
    config: Any,
    *,
    q_len: int,
    kv_len: int,
    batch: int = 1,
    dtype: torch.dtype | str = "float32",
    backend: Backend | str | None = None,
    cross: bool = False,
    masked: bool = False,
    causal: bool = False,
    window: int | None = None,
) -> Cost:
    """Predict what one layer costs.

    With fewer queries than keys the other keys come from the cache: decoding one token over 8,192 is ``q_len=1,
    kv_len=8192``.

    Args:
        variant: Entry of ``VARIANTS``, or its key.
        config: From the variant's ``config``.
        q_len: Tokens that ask.
        kv_len: Tokens attended to.
        batch: Sequences.
        dtype: Type of weights, tokens and cache.
        backend: One of the variant's backends, or its key; None is its first.
        cross: The keys are those of another sequence of ``kv_len`` tokens, projected in this call.
        masked: A dense boolean mask is given.
        causal: A causal mask is given as a rule.
        window: Keys that each query sees, its own the last of them; None is all. A backend that keeps the score matrix
            has the pairs of all keys that any query sees, under a dense mask; another has the window's alone. What is
            outside it at the beginning of the sequence is not subtracted. The peak is that under a dense mask, too.

    Raises:
        Refusal: If a size is not a whole number of at least 1, or dtype or backend is not known.
        ValueError: If a window is given to a variant that keeps a state in place of keys.
        KeyError: If the variant is not known.

    Source:
        Counting of traffic by tensors written and read: FlashAttention, section 3.1, https://arxiv.org/abs/2205.14135
        FLOPs of a matrix product, 2·m·n·k: Kaplan et al. 2020, section 2.1, https://arxiv.org/abs/2001.08361
    """
    for name, size in (
        ("q_len", q_len),
        ("kv_len", kv_len),
        ("batch", batch),
        ("window", 1 if window is None else window),
    ):
        check_size(name, size)
    variant = VARIANTS[variant] if isinstance(variant, str) else variant
    itemsize = dtype_size(str(dtype).removeprefix("torch."))
    backend = variant.pick(backend.key if isinstance(backend, Backend) else backend)
    work = Work(q_len, kv_len, batch, itemsize, masked, causal)
    return _count(variant, config, work, backend, kv_len if cross else min(q_len, kv_len), window)


def _count(variant: Variant, config: Any, work: Work, backend: str, new: int, window: int | None) -> Cost:
    """Add up what the variant declares; ``new`` of the keys are not cached."""
    q_len, batch, itemsize = work.q_len, work.batch, work.itemsize
    keys, seen = _reach(variant, config, q_len, work.kv_len, window)
    passes, parameters = variant.score_passes(backend), variant.parameters(config)
    pairs = keys if passes else seen
    flops = variant.flops(config, q_len, keys, new)
    if pairs < keys:
        flops += variant.mix_flops(config, q_len, pairs) - variant.mix_flops(config, q_len, keys)
    score_bytes = batch * variant.scores(config, q_len, pairs) * itemsize
    read, kept = (batch * _elements(variant, config, n) * variant.cache_itemsize(itemsize) for n in (keys, seen))
    # A state that was there is read, and its successor written; keys and values stay as they were.
    state = _elements(variant, config, 0) if new < keys else 0
    read += batch * state * variant.cache_itemsize(itemsize)
    tokens = variant.acts_on(config, q_len, keys, new)
    made = variant.made(config, q_len, keys)
    moved = batch * (_moved(variant, config, q_len, tokens) + made) * itemsize + read
    held = work._replace(kv_len=keys, masked=work.masked or seen < keys)
    return Cost(
        parameters=parameters,
        flops=batch * flops,
        bytes_moved=parameters * itemsize + moved + passes * score_bytes,
        weight_bytes=parameters * itemsize,
        score_bytes=score_bytes,
        mask_bytes=q_len * keys,
        kv_cache_bytes=kept,
        peak_bytes=variant.peak_bytes(config, held, backend),
    )


def _reach(variant: Variant, config: Any, q_len: int, kv_len: int, window: int | None) -> tuple[int, int]:
    """Give how many keys all queries together see, and how many one of them does."""
    if window is None:
        return kv_len, kv_len
    if not variant.grows(config):
        raise ValueError(f"window must be None for {variant.key}, which keeps no keys, got {window}")
    seen = min(window, kv_len)
    return min(seen + q_len - 1, kv_len), seen


def _elements(variant: Variant, config: Any, tokens: int) -> int:
    """Count what one sequence keeps of its tokens."""
    return sum(math.prod(shape) for shape in variant.cache(config, tokens).values())


def _moved(variant: Variant, config: Any, q_len: int, tokens: Mapping[str, int]) -> int:
    """Count the elements of one sequence that cross memory beside weights, scores and the cache that is read.

    Every projection reads its input and writes its output; the core reads the query; the new tokens enter the cache
    as the outputs of the projections on the keys' side. What is made of a cache and read in its place is added apart.
    """
    projected = sum((rows + cols) * tokens[name] for name, (rows, cols) in variant.matrices(config).items())
    shape = variant.heads(config)
    return projected + shape.heads * (shape.head_dim + shape.v_head_dim) * q_len


def fits(need_bytes: int, free_bytes: int, share: float = 1.0) -> bool:
    """Say whether a need stays within a share of the free memory.

    Args:
        need_bytes: Bytes that would be taken.
        free_bytes: Bytes that are free.
        share: Share of the free bytes that may be taken, above 0 to 1.

    Raises:
        ValueError: If ``share`` is not above 0 and at most 1.
    """
    if not 0 < share <= 1:
        raise ValueError(f"share must be above 0 and at most 1, got {share}")
    return need_bytes <= free_bytes * share


def nearest_size(fitting: Callable[[int], bool], low: int, high: int) -> int | None:
    """Give the largest size from ``low`` to ``high`` that fits, or None; a size that fits has all smaller ones fit.

    Args:
        fitting: Says whether a size fits.
        low: Smallest size.
        high: Largest size.

    Raises:
        ValueError: If ``low`` exceeds ``high``.
    """
    if low > high:
        raise ValueError(f"low must not exceed high, got {low} and {high}")
    if not fitting(low):
        return None
    above = high + 1
    while above - low > 1:
        middle = (low + above) // 2
        low, above = (middle, above) if fitting(middle) else (low, middle)
    return low
