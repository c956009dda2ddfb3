"""Multi-head latent attention: all heads read keys and values out of one short vector per token.

A token is kept as c (the latent, normalised) and k_r (one rotary key for all heads). Head h has the matrices K_h and
V_h, and its score is q_h · (c K_h) + r_h · k_r, its output Σ w (c V_h). Two ways to compute the same numbers:

    expanded   make c K_h and c V_h of every token, then attend as usual
    absorbed   (q_h K_hᵀ) · c + r_h · k_r: move the query instead, attend over the latents themselves as one shared
               KV head, and apply V_h to the result: (Σ w c) V_h

The first is less work where queries are as many as keys, the second where a few queries meet a long cache: it never
makes the keys and values of past tokens.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from attnviz.backends import BACKENDS, CoreOutput
from attnviz.backends.base import Play
from attnviz.masks import Mask
from attnviz.positions import Position
from attnviz.score_mods import ScoreMod
from attnviz.text import Text
from attnviz.variants.arguments import behind, changes, check_tokens, past_tokens, query_start
from attnviz.variants.base import AttentionOutput, Shapes, Tensors, Variant
from attnviz.variants.drawing import projection
from attnviz.variants.latent.forms import absorb, expand, norm, pair_flops, release
from attnviz.variants.latent.memory import core_heads, core_peak_bytes, layer_peak_bytes
from attnviz.variants.latent.sizes import SIZES, LatentConfig, read_config
from attnviz.variants.work import HeadShape, Work

# Their numbers seed the draws: a new one goes to the end.
_STREAMS = ("query", "latent", "rope_key", "key", "value", "output", "query_down")


@dataclass(frozen=True)
class Latent(Variant):
    """Attention over a shared latent per token, with a decoupled rotary key.

    Source:
        DeepSeek-V2, section 2.1, https://arxiv.org/abs/2405.04434
    """

    def config(self, **sizes: Any) -> LatentConfig:
        """Give a checked configuration.

        Args:
            sizes: ``hidden_size`` (512), ``num_attention_heads`` (8), ``kv_lora_rank`` (512), ``qk_rope_head_dim`` (64,
                or a third of ``head_dim`` when only that is given), ``head_dim`` (hidden_size / heads and the rotary
                part), ``v_head_dim`` (``head_dim`` without the rotary part), ``q_lora_rank`` (0), ``form`` (auto).

        Raises:
            Refusal: If a size breaks a rule; names the size, the rule and the value received.
        """
        return read_config(sizes)

    def matrices(self, config: LatentConfig) -> Mapping[str, tuple[int, int]]:
        heads, hidden, rank = config.num_attention_heads, config.hidden_size, config.kv_lora_rank
        down = {"query_down": (hidden, config.q_lora_rank)} if config.q_lora_rank else {}
        return {
            **down,
            "query": (config.q_lora_rank or hidden, heads * config.head_dim),
            "latent": (hidden, rank),
            "rope_key": (hidden, config.qk_rope_head_dim),
            "key": (rank, heads * config.qk_nope_head_dim),
            "value": (rank, heads * config.v_head_dim),
            "output": (heads * config.v_head_dim, hidden),
        }

    def vectors(self, config: LatentConfig) -> Mapping[str, int]:
        down = {"query_norm": config.q_lora_rank} if config.q_lora_rank else {}
        return {**down, "latent_norm": config.kv_lora_rank}

    def context_matrices(self, config: LatentConfig) -> frozenset[str]:
        return frozenset(("latent", "rope_key", "key", "value"))

    def acts_on(self, config: LatentConfig, q_len: int, kv_len: int, new: int) -> Mapping[str, int]:
        """Give how many tokens each matrix acts on; absorbed, ``key`` and ``value`` act on queries."""
        made = q_len if self.absorbs(config, q_len, kv_len) else kv_len
        return {**super().acts_on(config, q_len, kv_len, new), "key": made, "value": made}

    def weights(
        self,
        config: LatentConfig,
        *,
        seed: int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> dict[str, Tensor]:
        """Draw the weights head by head; the norms' factors are one."""
        heads = config.num_attention_heads
        cut = {"query": config.head_dim, "key": config.qk_nope_head_dim, "value": config.v_head_dim}
        drawn: dict[str, Tensor] = {}
        for name, (rows, cols) in self.matrices(config).items():
            stream = _STREAMS.index(name)
            if name == "output":
                matrix = projection(seed, stream, heads, config.v_head_dim, cols, merges=True)
            else:
                matrix = projection(seed, stream, *((heads, cut[name]) if name in cut else (1, cols)), rows)
            drawn[name] = matrix.to(device=device, dtype=dtype)
        return drawn | {n: torch.ones(size, dtype=dtype, device=device) for n, size in self.vectors(config).items()}

    def cache(self, config: LatentConfig, kv_len: int) -> Shapes:
        """Give what is kept: the latent and behind it the rotary key, once for all heads."""
        return {"latent": (kv_len, config.kept)}

    def heads(self, config: LatentConfig) -> HeadShape:
        return core_heads(config, absorbed=False)

    def core_heads(self, config: LatentConfig, q_len: int, kv_len: int) -> HeadShape:
        return core_heads(config, absorbed=self.absorbs(config, q_len, kv_len))

    def made(self, config: LatentConfig, q_len: int, kv_len: int) -> int:
        """Count the keys and values that the expanded form makes; the rotary key is read from what is kept."""
        if self.absorbs(config, q_len, kv_len):
            return 0
        return config.num_attention_heads * kv_len * (config.qk_nope_head_dim + config.v_head_dim)

    def absorbs(self, config: LatentConfig, q_len: int, kv_len: int) -> bool:
        """Say whether a call of this size is computed in the absorbed form: if asked for, or if it has fewer FLOPs."""
        if config.form != "auto":
            return config.form == "absorbed"
        pair = pair_flops(config, absorbed=True) - pair_flops(config, absorbed=False)
        token = 2 * config.kv_lora_rank * (config.qk_nope_head_dim + config.v_head_dim)
        return token * q_len + pair * q_len * kv_len < token * kv_len

    def mix_flops(self, config: LatentConfig, q_len: int, kv_len: int) -> int:
        """Count the FLOPs of scores and weighted sums of one sequence, in the form that a call of this size takes.

        In the absorbed form the values are the whole kept vectors, rotary key included: the same memory is read as
        keys and as values, and torch's fused kernels take no values of another width.
        """
        pair = pair_flops(config, absorbed=self.absorbs(config, q_len, kv_len))
        return config.num_attention_heads * q_len * kv_len * pair

    def peak_bytes(self, config: LatentConfig, work: Work, backend: str) -> int:
        """Predict what the core allocates at its peak, with the keys and values that the expanded form makes first."""
        core = self._play(backend)
        return core_peak_bytes(config, work, core, absorbed=self.absorbs(config, work.q_len, work.kv_len))

    def whole_peak_bytes(self, config: LatentConfig, work: Work, backend: str) -> int | None:
        """Predict the peak of a layer's forward pass; of a gradient nothing is known."""
        if work.gradient or not work.layer:
            return None
        core = self._play(backend)
        return layer_peak_bytes(config, work, core, absorbed=self.absorbs(config, work.q_len, work.kv_len))

    def _play(self, backend: str) -> Play:
        play = BACKENDS[backend].forward
        assert play is not None  # of all softmax backends
        return play

    def project(
        self,
        config: LatentConfig,
        weights: Tensors,
        x: Tensor,
        context: Tensor | None = None,
        *,
        position: Position | None = None,
        start: int = 0,
        context_start: int = 0,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Give query, key and value of every head, ``[batch, heads, length, width]``, as the expanded form has them.

        Raises:
            Refusal: If ``x`` or ``context`` has other axes or another width than the configuration.
        """
        query, kept = self.compress(
            config, weights, x, context, position=position, start=start, context_start=context_start
        )
        return query, *expand(config, weights, kept)

    def compress(
        self,
        config: LatentConfig,
        weights: Tensors,
        x: Tensor,
        context: Tensor | None = None,
        *,
        position: Position | None = None,
        start: int = 0,
        context_start: int = 0,
    ) -> tuple[Tensor, Tensor]:
        """Give query ``[batch, heads, q_len, head_dim]`` and what is kept of each token, ``[batch, tokens, kept]``.

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
        if config.q_lora_rank:
            x = norm(x @ weights["query_down"], weights["query_norm"])
        query = (x @ weights["query"]).unflatten(2, (config.num_attention_heads, config.head_dim)).transpose(1, 2)
        latent, rope = norm(keys @ weights["latent"], weights["latent_norm"]), keys @ weights["rope_key"]
        if position is not None and config.qk_rope_head_dim:
            plain, turned = query.split((config.qk_nope_head_dim, config.qk_rope_head_dim), dim=-1)
            query = torch.cat((plain, position.turn(turned, start)), dim=-1)
            rope = position.turn(rope, context_start)
        return query, torch.cat((latent, rope), dim=-1)

    def attend(
        self,
        config: LatentConfig,
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
        """Compute the layer, see ``Variant.attend``; only the rotary part of queries and keys is rotated.

        Returns:
            Output ``[batch, q_len, hidden_size]``, the backend's answer, and the longer cache. In either form the
            core's output holds each head's values, ``[batch, heads, q_len, v_head_dim]``; its kernel says when it was
            absorbed.
        """
        check_tokens("x", x, config.hidden_size)
        past = past_tokens(self, config, cache, x.shape[0])
        start = query_start(x.shape[1], past, context, align)
        query, kept = self.compress(config, weights, x, context, position=position, start=start, context_start=past)
        kept = behind(None if cache is None else cache["latent"], kept, 1)
        core = self.mix(
            config,
            weights,
            (query, kept),
            allowed=allowed,
            align=align,
            score_mod=score_mod,
            scale=scale,
            backend=self.pick(backend),
        )
        output = core.output.transpose(1, 2).flatten(2) @ weights["output"]
        return AttentionOutput(output, core, {"latent": kept})

    def core_shapes(self, config: LatentConfig, batch: int, q_len: int, kv_len: int) -> tuple[tuple[int, ...], ...]:
        """Give the shapes of the query and of what is kept of each token."""
        return (batch, config.num_attention_heads, q_len, config.head_dim), (batch, kv_len, config.kept)

    def mix(
        self,
        config: LatentConfig,
        weights: Tensors,
        tensors: tuple[Tensor, ...],
        *,
        allowed: Tensor | Mask | None,
        align: str,
        score_mod: ScoreMod | None,
        scale: float | None,
        backend: str,
    ) -> CoreOutput:
        """Attend with a query over what is kept of each token, in the form that a call of this size takes."""
        query, kept = tensors
        shape = (config.num_attention_heads, query.shape[2], kept.shape[1])
        usual = 1 / math.sqrt(config.head_dim) if scale is None else scale
        bias, softcap, scale = changes(score_mod, shape, usual, align=align, dtype=query.dtype, device=query.device)
        absorbed = self.absorbs(config, *shape[1:])
        if absorbed:
            query = absorb(config, weights, query)
            key = value = kept[:, None]
        else:
            key, value = expand(config, weights, kept)
        core = BACKENDS[backend].attend(
            query, key, value, allowed=allowed, align=align, bias=bias, scale=scale, softcap=softcap
        )
        return release(config, weights, core) if absorbed else core


ENTRIES = (
    Latent(
        "mla",
        Text("MLA (multi-head latent)", "MLA（多头潜在注意力）"),
        Text(
            "Keeps one short latent and one rotary key per token; every head makes its keys and values out of them.",
            "每个 token 只保存一个较短的潜向量和一个旋转键，各头的键和值都由它们还原。",
        ),
        "https://arxiv.org/abs/2405.04434",
        SIZES,
        tuple(BACKENDS),
    ),
)
