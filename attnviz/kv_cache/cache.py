"""A layer that answers token by token: what its cache holds after each step, and what the step took."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from attnviz.kv_cache.layouts import LAYOUTS, Layout
from attnviz.kv_cache.quantised import STORAGES, Packed, Storage
from attnviz.positions import Position
from attnviz.score_mods import ScoreMod
from attnviz.text import Refusal, Text
from attnviz.variants import VARIANTS, Variant
from attnviz.variants.base import AttentionOutput, Tensors

_BIAS = Text(
    "score_mod must not depend on distance where tokens are dropped from the middle of a cache.",
    "缓存会丢弃中间的 token 时，score_mod 不能依赖距离。",
)
_STATE = Text(
    "layout must keep every token where a layer keeps a state: that holds all it has taken in only together.",
    "层只保留状态时，layout 必须保留每个 token：状态只保存各 token 的合并结果。",
)
_LENGTHS = Text(
    "lengths must be whole numbers of at least 1 that add up to {total}, got {got}.",
    "lengths 应为不小于 1 的整数，总和为 {total}，收到的是 {got}。",
)


class Step(NamedTuple):
    """Hold what one step did.

    Args:
        output: ``[batch, new, hidden_size]``.
        start: Position of the first new token.
        new: Tokens that came in.
        read: Tokens that were attended to: those still kept before, and the new ones.
        before: Positions of the kept tokens that were read: a window has let go of what no new token may see.
        kept: Positions of the tokens in the cache after the step.
        cache_bytes: What their tensors take, scales included.
        allocated_bytes: What is taken from memory for them, whole blocks.
        flops: Of the step's matrix products.
        flops_without: Of the same answer without a cache: every token so far goes through the layer again.
        weights: ``[batch, heads, new, read]`` where the backend gives them, else None.
    """

    output: Tensor
    start: int
    new: int
    read: int
    kept: tuple[int, ...]
    cache_bytes: int
    allocated_bytes: int
    flops: int
    flops_without: int
    before: tuple[int, ...] = ()
    weights: Tensor | None = None


@dataclass(frozen=True)
class KVCache:
    """Hold a layer and what it has kept so far; every step gives a new one and leaves this as it was.

    Args:
        variant: Any variant.
        config: Its configuration.
        weights: Its weights.
        layout: What stays.
        storage: How it lies in memory.
        position: Position encoding, or None; a token keeps its place in the whole sequence, whatever is dropped.
        score_mod: Change of the scores, or None.
        backend: One of the variant's backends; None is its first.
        packed: What is kept, by name.
        kept: Positions of the tokens that are kept, or that a state has taken in.
        seen: Tokens that have come in.
    """

    variant: Variant
    config: Any
    weights: Tensors = field(repr=False)
    layout: Layout = field(default_factory=LAYOUTS["full"].build)
    storage: Storage = STORAGES["plain"]
    position: Position | None = None
    score_mod: ScoreMod | None = None
    backend: str | None = None
    packed: dict[str, Packed] = field(default_factory=dict, repr=False)
    kept: tuple[int, ...] = ()
    seen: int = 0

    def __post_init__(self) -> None:
        if self.layout.sinks and self.score_mod is not None and self.score_mod.bias is not None:
            raise Refusal(_BIAS)
        if self.layout.window is not None and not self._grows:
            raise Refusal(_STATE)

    def feed(self, x: Tensor) -> tuple["KVCache", Step]:
        """Take in ``[batch, new, hidden_size]``: a prompt (prefill), some more tokens (extend) or one (decode).

        Returns:
            The cache after the step, and the step.

        Raises:
            Refusal: If ``x`` does not fit the layer.
        """
        return self._trimmed()._feed(x)

    def _trimmed(self) -> "KVCache":
        """Let go of what the next token may no longer see: with it, a window holds as many as before."""
        if self.layout.window is None:
            return self
        stays = [i for i, token in enumerate(self.kept) if self.layout.keeps(token, self.seen + 1)]
        return self if len(stays) == len(self.kept) else self._only(stays)

    def _only(self, stays: Sequence[int]) -> "KVCache":
        """Keep the tokens at these places of what is kept."""
        packed, places = {}, torch.tensor(stays, dtype=torch.int64)
        for name, tensors in self.packed.items():
            axis = self.token_axis(name)
            packed[name] = tuple(one.index_select(axis, places.to(one.device)) for one in tensors)
        return replace(self, packed=packed, kept=tuple(self.kept[i] for i in stays))

    def _feed(self, x: Tensor) -> tuple["KVCache", Step]:
        past = self.contents(x.dtype if self._grows else torch.promote_types(x.dtype, torch.float32))
        run = self.variant.attend(
            self.config,
            self.weights,
            x,
            allowed=self.layout.mask,
            align="bottom_right",
            score_mod=self.score_mod,
            position=_moved(self.position, self.seen - len(self.kept)),
            backend=self.backend,
            cache=past or None,
        )
        new, seen = x.shape[1], self.seen + x.shape[1]
        packed = {}
        for name, tensor in run.cache.items():
            if not self._grows:
                packed[name] = self.storage.pack(tensor)
                continue
            axis = self.token_axis(name)
            fresh = self.storage.pack(tensor.narrow(axis, len(self.kept), new))
            parts = [fresh] if name not in self.packed else [self.packed[name], fresh]
            packed[name] = tuple(torch.cat(same, dim=axis) for same in zip(*parts, strict=True))
        grown = replace(self, packed=packed, kept=(*self.kept, *range(self.seen, seen)), seen=seen)
        stays = [i for i, token in enumerate(grown.kept) if self.layout.keeps(token, seen)]
        after = grown if len(stays) == len(grown.kept) else grown._only(stays)
        return after, after._step(run, new, self.kept)

    def _step(self, run: AttentionOutput, new: int, before: tuple[int, ...]) -> Step:
        read = len(before) + new
        batch, size = run.output.shape[0], self.nbytes
        flops = self.variant.flops
        return Step(
            run.output,
            self.seen - new,
            new,
            read,
            self.kept,
            size,
            size // len(self.kept) * self.layout.allocated(len(self.kept)) if self._grows else size,
            batch * flops(self.config, new, read, new, causal=True),
            batch * flops(self.config, self.seen, self.seen, self.seen, causal=True),
            before,
            run.core.weights,
        )

    def contents(self, dtype: torch.dtype) -> dict[str, Tensor]:
        """Give what is kept as the layer reads it, by name; quantised vectors are unpacked."""
        width = {name: shape[-1] for name, shape in self.variant.cache(self.config, 1).items()}
        return {name: self.storage.unpack(packed, width[name], dtype) for name, packed in self.packed.items()}

    @property
    def nbytes(self) -> int:
        """Bytes of everything that is kept."""
        return sum(tensor.nbytes for packed in self.packed.values() for tensor in packed)

    @property
    def _grows(self) -> bool:
        return self.variant.grows(self.config)

    def token_axis(self, name: str) -> int:
        """Give which axis of a kept tensor, batch included, counts tokens."""
        short, long = (self.variant.cache(self.config, tokens)[name] for tokens in (1, 2))
        return 1 + next(axis for axis, (a, b) in enumerate(zip(short, long, strict=True)) if a != b)


def start(variant: Variant | str, config: Any, weights: Tensors, **settings: Any) -> KVCache:
    """Give an empty cache of a layer; ``settings`` are the other fields of ``KVCache``.

    Raises:
        Refusal: If the layout drops tokens from the middle and the score modification depends on distance, or drops
            tokens of a layer that keeps a state.
        KeyError: If the variant is not known.
    """
    return KVCache(VARIANTS[variant] if isinstance(variant, str) else variant, config, weights, **settings)


def feed_all(cache: KVCache, x: Tensor, lengths: Sequence[int]) -> tuple[KVCache, list[Step]]:
    """Feed tokens piece by piece.

    Args:
        cache: The cache to start with.
        x: ``[batch, tokens, hidden_size]``.
        lengths: Tokens of each piece; ``[6, 1, 1]`` is a prompt of six and two decoded.

    Raises:
        Refusal: If the lengths do not add up to the tokens.
    """
    if not lengths or min(lengths) < 1 or sum(lengths) != x.shape[1]:
        raise Refusal(_LENGTHS.fill(total=x.shape[1], got=list(lengths)))
    steps = []
    for piece in x.split(list(lengths), dim=1):
        cache, step = cache.feed(piece)
        steps.append(step)
    return cache, steps


def storage_error(cache: KVCache, x: Tensor, lengths: Sequence[int]) -> float:
    """Give how far the outputs are from those of a plain cache: norm of the difference over norm of the outputs."""
    plain = replace(cache, storage=STORAGES["plain"])
    got, want = (torch.cat([step.output for step in feed_all(kept, x, lengths)[1]], dim=1) for kept in (cache, plain))
    size = float(want.double().norm())
    return float((got.double() - want.double()).norm()) / size if size else math.nan


def _moved(position: Position | None, by: int) -> Position | None:
    """Give the encoding for places counted ``by`` tokens further: a cache that dropped tokens is that much shorter."""
    if position is None or by == 0:
        return position
    waves, angles = position.waves, position.angles
    return replace(
        position,
        waves=None if waves is None else lambda places, width: waves(places + by, width),
        angles=None if angles is None else lambda places, width: angles(places + by, width),
    )
