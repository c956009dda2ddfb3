"""Multi-head, grouped-query and multi-query attention: one computation that differs in how many heads share a key."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from attnviz.backends import BACKENDS, CoreOutput
from attnviz.config import check_divides, quarter
from attnviz.masks import Mask
from attnviz.positions import Position
from attnviz.score_mods import ScoreMod
from attnviz.text import Text
from attnviz.variants import grouped_memory
from attnviz.variants.arguments import behind, changes, check_tokens, past_tokens, query_start
from attnviz.variants.base import AttentionOutput, Shapes, Tensors, Variant, refuse
from attnviz.variants.drawing import projection
from attnviz.variants.sink import with_sink
from attnviz.variants.sizes import BIASES, HEAD_DIM, HEADS, HIDDEN_SIZE, KV_HEADS, SINK, V_HEAD_DIM, read_sizes
from attnviz.variants.work import HeadShape, Work

SIZES = (HIDDEN_SIZE, HEADS, HEAD_DIM, V_HEAD_DIM, BIASES, SINK)
# Their numbers seed the draws: a new one goes to the end.
_STREAMS = ("query", "key", "value", "output")

_FIXED = Text("{heads} for {variant}", " {heads}（{variant}）")


@dataclass(frozen=True)
class GroupedConfig:
    """Hold the sizes of one layer, named as published ``config.json`` files have them.

    Args:
        hidden_size: Width of a token vector.
        num_attention_heads: Query heads.
        num_key_value_heads: Heads of keys and values; divides ``num_attention_heads``.
        head_dim: Width of a query and a key, d_k.
        v_head_dim: Width of a value.
        biases: Whether every projection adds a vector.
        sink: Whether each head has a logit that takes part in its softmax and brings no value.
    """

    hidden_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    v_head_dim: int
    biases: bool = True
    sink: bool = False


@dataclass(frozen=True)
class Grouped(Variant):
    """Attention whose query heads share KV heads: query head i uses KV head ``i // (heads // kv_heads)``.

    ``kv_heads`` is what the variant fixes: ``all``, ``one``, or None where it can be chosen.

    Source:
        MHA https://arxiv.org/abs/1706.03762, MQA https://arxiv.org/abs/1911.02150, GQA https://arxiv.org/abs/2305.13245
    """

    kv_heads: str | None = None

    def config(self, **sizes: Any) -> GroupedConfig:
        """Give a checked configuration.

        Args:
            sizes: ``hidden_size`` (512), ``num_attention_heads`` (8), ``num_key_value_heads`` (for GQA the largest
                divisor up to a quarter of the heads), ``head_dim`` (hidden_size / heads), ``v_head_dim``, ``biases``,
                ``sink`` (none).

        Raises:
            Refusal: If a size breaks a rule; names the size, the rule and the value received.
        """
        given = read_sizes((*SIZES, KV_HEADS), sizes)
        heads = given.get("num_attention_heads", 8)
        width = given.get("hidden_size", 512)
        head_dim = given.get("head_dim", max(1, width // heads))
        return GroupedConfig(
            hidden_size=width,
            num_attention_heads=heads,
            num_key_value_heads=self._kv_heads(heads, given.get("num_key_value_heads")),
            head_dim=head_dim,
            v_head_dim=given.get("v_head_dim", head_dim),
            biases=given.get("biases", True),
            sink=given.get("sink", False),
        )

    def _kv_heads(self, heads: int, given: int | None) -> int:
        fixed = {"all": heads, "one": 1, None: None}[self.kv_heads]
        if fixed is not None and given not in (None, fixed):
            raise refuse("num_key_value_heads", _FIXED.fill(heads=fixed, variant=self.label), given)
        if given is None:
            return fixed or quarter(heads)
        check_divides("num_key_value_heads", given, "num_attention_heads", heads)
        return given

    def matrices(self, config: GroupedConfig) -> Mapping[str, tuple[int, int]]:
        kv_heads, heads = config.num_key_value_heads, config.num_attention_heads
        return {
            "query": (config.hidden_size, heads * config.head_dim),
            "key": (config.hidden_size, kv_heads * config.head_dim),
            "value": (config.hidden_size, kv_heads * config.v_head_dim),
            "output": (heads * config.v_head_dim, config.hidden_size),
        }

    def vectors(self, config: GroupedConfig) -> Mapping[str, int]:
        biases = {f"{name}_bias": cols for name, (_, cols) in self.matrices(config).items()} if config.biases else {}
        return biases | ({"sink": config.num_attention_heads} if config.sink else {})

    def context_matrices(self, config: GroupedConfig) -> frozenset[str]:
        return frozenset(("key", "value"))

    def weights(
        self,
        config: GroupedConfig,
        *,
        seed: int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> dict[str, Tensor]:
        """Draw the weights head by head, so that more or wider heads leave the numbers drawn before as they were.

        Returns:
            Matrices ``[in, out]`` and, with biases, ``query_bias`` and so on, zero, as are the logits ``sink``.
        """
        heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
        rows = {
            "query": (heads, config.head_dim),
            "key": (kv_heads, config.head_dim),
            "value": (kv_heads, config.v_head_dim),
            "output": (heads, config.v_head_dim),
        }
        drawn: dict[str, Tensor] = {}
        for stream, name in enumerate(_STREAMS):
            matrix = projection(seed, stream, *rows[name], config.hidden_size, merges=name == "output")
            drawn[name] = matrix.to(device=device, dtype=dtype)
        return drawn | {n: torch.zeros(size, dtype=dtype, device=device) for n, size in self.vectors(config).items()}

    def cache(self, config: GroupedConfig, kv_len: int) -> Shapes:
        kv_heads = config.num_key_value_heads
        return {"key": (kv_heads, kv_len, config.head_dim), "value": (kv_heads, kv_len, config.v_head_dim)}

    def heads(self, config: GroupedConfig) -> HeadShape:
        return HeadShape(config.num_attention_heads, config.num_key_value_heads, config.head_dim, config.v_head_dim)

    def mix_flops(self, config: GroupedConfig, q_len: int, kv_len: int) -> int:
        """Count the FLOPs of QKᵀ and weights · V of one sequence; sharing KV heads saves none of them."""
        return 2 * config.num_attention_heads * q_len * kv_len * (config.head_dim + config.v_head_dim)

    def whole_peak_bytes(self, config: GroupedConfig, work: Work, backend: str) -> int | None:
        return grouped_memory.whole_peak_bytes(self, config, work, backend)

    def is_exact(self, config: GroupedConfig, backend: str) -> bool:
        return grouped_memory.is_exact(self, config, backend)

    def project(
        self,
        config: GroupedConfig,
        weights: Tensors,
        x: Tensor,
        context: Tensor | None = None,
        *,
        position: Position | None = None,
        start: int = 0,
        context_start: int = 0,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Give query ``[batch, heads, q_len, head_dim]``, key and value ``[batch, kv_heads, kv_len, width]``.

        Raises:
            Refusal: If ``x`` or ``context`` has other axes or another width than the configuration.
        """
        check_tokens("x", x, config.hidden_size)
        if context is None:
            context, context_start = x, start
        else:
            check_tokens("context", context, config.hidden_size, x.shape[0])
        keys = context
        if position is not None:
            # Self attention adds the encoding once: both sides are the same tokens.
            keys = position.add(context, context_start)
            x = keys if context is x else position.add(x, start)
        query = _split(_apply(weights, "query", x), config.num_attention_heads)
        key = _split(_apply(weights, "key", keys), config.num_key_value_heads)
        value = _split(_apply(weights, "value", keys), config.num_key_value_heads)
        if position is not None:
            query, key = position.turn(query, start), position.turn(key, context_start)
        return query, key, value

    def attend(
        self,
        config: GroupedConfig,
        weights: Tensors,
        x: Tensor,
        *,
        context: Tensor | None = None,
        allowed: Tensor | Mask | None = None,
        align: str = "top_left",
        score_mod: ScoreMod | None = None,
        position: Position | None = None,
        scale: float | None = None,
        backend: str | None = None,
        cache: Tensors | None = None,
    ) -> AttentionOutput:
        """Compute the layer, see ``Variant.attend``.

        The cache holds key and value, ``[batch, kv_heads, tokens, width]``, keys already rotated. With ``context`` the
        cache grows by the context's tokens: pass an empty context to ask a finished cache again. A query stands at its
        own index in ``x``, after the past in self attention, and as ``align`` says in cross attention.

        Returns:
            Output ``[batch, q_len, hidden_size]``, the backend's answer, and the longer cache.
        """
        check_tokens("x", x, config.hidden_size)
        past = past_tokens(self, config, cache, x.shape[0])
        start = query_start(x.shape[1], past, context, align)
        query, key, value = self.project(
            config, weights, x, context, position=position, start=start, context_start=past
        )
        if cache is not None:
            key, value = behind(cache["key"], key, 2), behind(cache["value"], value, 2)
        core = self.mix(
            config, weights, (query, key, value), allowed=allowed, align=align, score_mod=score_mod, scale=scale,
            backend=self.pick(backend),
        )  # fmt: skip
        core = with_sink(core, weights["sink"]) if config.sink else core
        output = _apply(weights, "output", core.output.transpose(1, 2).flatten(2))
        return AttentionOutput(output, core, {"key": key, "value": value})

    def mix(
        self,
        config: GroupedConfig,
        weights: Tensors,
        tensors: tuple[Tensor, ...],
        *,
        allowed: Tensor | Mask | None,
        align: str,
        score_mod: ScoreMod | None,
        scale: float | None,
        backend: str,
    ) -> CoreOutput:
        """Attend with query, key and value; ``scale`` None is the variant's own."""
        query, key, value = tensors
        shape = (config.num_attention_heads, query.shape[2], key.shape[2])
        usual = 1 / math.sqrt(config.head_dim) if scale is None else scale
        bias, softcap, scale = changes(score_mod, shape, usual, align=align, dtype=query.dtype, device=query.device)
        return BACKENDS[backend].attend(
            query, key, value, allowed=allowed, align=align, bias=bias, scale=scale, softcap=softcap
        )


def _apply(weights: Tensors, name: str, tokens: Float[Tensor, "batch len width"]) -> Float[Tensor, "batch len out"]:
    """Project tokens with one matrix and its bias, if there is one."""
    bias = weights.get(f"{name}_bias")
    return tokens @ weights[name] if bias is None else tokens @ weights[name] + bias


def _split(tokens: Float[Tensor, "batch len width"], heads: int) -> Float[Tensor, "batch heads len head_dim"]:
    """Cut each token's vector into heads."""
    return tokens.unflatten(2, (heads, -1)).transpose(1, 2)


_BACKENDS = tuple(BACKENDS)

ENTRIES = (
    Grouped(
        "mha",
        Text("MHA (multi-head)", "MHA（多头注意力）"),
        Text("Every query head has its own keys and values.", "每个查询头都有自己的键和值。"),
        "https://arxiv.org/abs/1706.03762",
        SIZES,
        _BACKENDS,
        "all",
    ),
    Grouped(
        "gqa",
        Text("GQA (grouped-query)", "GQA（分组查询注意力）"),
        Text(
            "Groups of query heads share keys and values: a smaller cache, the same arithmetic.",
            "若干查询头共用一组键和值：缓存更小，运算量不变。",
        ),
        "https://arxiv.org/abs/2305.13245",
        (*SIZES, KV_HEADS),
        _BACKENDS,
    ),
    Grouped(
        "mqa",
        Text("MQA (multi-query)", "MQA（多查询注意力）"),
        Text("All query heads share one head of keys and values.", "所有查询头共用一组键和值。"),
        "https://arxiv.org/abs/1911.02150",
        SIZES,
        _BACKENDS,
        "one",
    ),
)
