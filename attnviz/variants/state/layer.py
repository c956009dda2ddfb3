"""A layer around a core that keeps a state: the same projections as MHA, and a cache that does not grow."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from attnviz.backends import CoreOutput
from attnviz.masks import Mask
from attnviz.positions import Position
from attnviz.score_mods import ScoreMod
from attnviz.text import Text, same
from attnviz.variants.arguments import check_tokens, query_start
from attnviz.variants.base import AttentionOutput, Shapes, Tensors, refuse
from attnviz.variants.drawing import projection
from attnviz.variants.grouped import Grouped, GroupedConfig
from attnviz.variants.state.features import directions
from attnviz.variants.state.pieces import StateOutput
from attnviz.variants.state.sizes import StateConfig, read_config
from attnviz.variants.work import Work

_STREAM = 311
_GATE = 16.0  # a gate's logarithm is divided by it, so that a state is not forgotten within two tokens

_PAST = Text("a cache of this configuration and batch: {shapes}", "由同一配置、同一批大小产生的缓存：{shapes}")
_MOD = Text(
    "None or a factor alone, since no score stands alone that could be capped or shifted",
    "None 或仅含一个系数的修改，因为没有单独的分数可供截断或平移",
)


@dataclass(frozen=True)
class StateLayer(Grouped):
    """Attention that reads a state instead of keys: the query, key, value and output of MHA around another core.

    The cache holds ``state`` ``[batch, heads, features, v_head_dim]``, where rows are normalised ``sum``
    ``[batch, heads, features]``, and ``tokens`` ``[batch, 1]``, how many it has taken in; all at least float32. An
    initial state is a cache whose ``tokens`` are 0.
    """

    def config(self, **sizes: Any) -> StateConfig:
        """Give a checked configuration.

        Args:
            sizes: ``hidden_size`` (512), ``num_attention_heads`` (8), ``head_dim`` (hidden_size / heads),
                ``v_head_dim``, ``biases``, ``feature_map``, ``features`` (256), ``normalize``, ``decay``, ``chunk``.

        Raises:
            Refusal: If a size breaks a rule; names the size, the rule and the value received.
        """
        return read_config(self.knobs, sizes)

    @abstractmethod
    def sums(self, config: StateConfig) -> bool:
        """Say whether the sum of the mapped keys is kept beside the state."""

    @abstractmethod
    def core(
        self,
        config: StateConfig,
        weights: Tensors,
        tensors: tuple[Tensor, Tensor, Tensor],
        context: Tensor,
        *,
        allowed: Tensor | Mask | None,
        align: str,
        scale: float,
        form: str | None,
        state: tuple[Tensor, Tensor | None] | None,
        past: int,
    ) -> StateOutput:
        """Mix query, key and value; ``context`` holds the tokens that keys are made of."""

    def matrices(self, config: GroupedConfig) -> Mapping[str, tuple[int, int]]:
        rates = cast("StateConfig", config).rates
        gate = {"decay": (config.hidden_size, rates)} if rates else {}
        return {**super().matrices(config), **gate}

    def vectors(self, config: GroupedConfig) -> Mapping[str, int]:
        mine = cast("StateConfig", config)
        drawn = {"directions": mine.features * mine.head_dim} if mine.map.is_random else {}
        return {**super().vectors(config), **drawn}

    def whole_peak_bytes(self, config: GroupedConfig, work: Work, backend: str) -> int | None:
        return None

    def is_exact(self, config: GroupedConfig, backend: str) -> bool:
        return False

    def asks(self, config: GroupedConfig) -> bool:
        # Its blocks of pairs are cut where the places say, which are numbers.
        return cast("StateConfig", config).decay == "gated_features"

    def piece(self, config: GroupedConfig, backend: str) -> int | None:
        return {"chunked": cast("StateConfig", config).chunk, "recurrent": 1}.get(backend)

    def context_matrices(self, config: GroupedConfig) -> frozenset[str]:
        return frozenset(("key", "value", "decay", "beta")) & frozenset(self.matrices(config))

    def weights(
        self,
        config: GroupedConfig,
        *,
        seed: int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> dict[str, Tensor]:
        """Draw the weights head by head, those of query, key, value and output as MHA has them."""
        mine = cast("StateConfig", config)
        drawn = super().weights(config, seed=seed, dtype=dtype, device=device)
        for stream, name in enumerate(("decay", "beta"), _STREAM):
            if name in (sizes := self.matrices(config)):
                rows, cols = sizes[name]
                matrix = projection(seed, stream, config.num_attention_heads, cols // config.num_attention_heads, rows)
                drawn[name] = matrix.to(device=device, dtype=dtype)
        if mine.map.is_random:
            rows = directions(mine.features, mine.head_dim, seed=seed)
            drawn["directions"] = rows.flatten().to(device=device, dtype=dtype)
        return drawn

    def cache(self, config: GroupedConfig, kv_len: int) -> Shapes:
        """Give what is kept, the same for any number of tokens."""
        heads, width = config.num_attention_heads, cast("StateConfig", config).width
        total = {"sum": (heads, width)} if self.sums(cast("StateConfig", config)) else {}
        return {"state": (heads, width, config.v_head_dim), **total, "tokens": (1,)}

    def cache_itemsize(self, itemsize: int) -> int:
        """Give the bytes of one number of the cache: a running sum in half precision would lose what it adds."""
        return max(4, itemsize)

    def takes(self, score_mod: ScoreMod | None) -> bool:
        return score_mod is None or (score_mod.bias is None and score_mod.softcap is None)

    def scores(self, config: GroupedConfig, q_len: int, kv_len: int) -> int:
        return 0

    def score_passes(self, backend: str) -> int:
        return 0

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

        Without a causal mask every query reads the state after the last key.

        Raises:
            Refusal: Also for a mask that a state cannot follow, and for a score modification beyond a factor.
        """
        mine = cast("StateConfig", config)
        check_tokens("x", x, config.hidden_size)
        if not self.takes(score_mod):
            raise refuse("score_mod", _MOD, cast("ScoreMod", score_mod).key)
        past, state = self._past(mine, cache, x.shape[0])
        start = query_start(x.shape[1], past, context, align)
        tensors = self.project(config, weights, x, context, position=position, start=start, context_start=past)
        factor = (config.head_dim**-0.5 if scale is None else scale) * (1.0 if score_mod is None else score_mod.scale)
        form = None if backend is None else self.pick(backend)
        result = self.core(
            mine,
            weights,
            tensors,
            x if context is None else context,
            allowed=allowed,
            align=align,
            scale=factor,
            form=form,
            state=state,
            past=past,
        )
        output = result.output.transpose(1, 2).flatten(2) @ weights["output"]
        output = output + weights["output_bias"] if config.biases else output
        core = CoreOutput(result.output, result.weights, kernel=result.kernel)
        return AttentionOutput(output, core, self._kept(result, past + tensors[1].shape[2]))

    def core_shapes(self, config: Any, batch: int, q_len: int, kv_len: int) -> tuple[tuple[int, ...], ...]:
        """Give the shapes of query, key, value and of the tokens that decay and step sizes are read from."""
        return *super().core_shapes(config, batch, q_len, kv_len), (batch, kv_len, config.hidden_size)

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
        """Mix from an empty state."""
        if not self.takes(score_mod):
            raise refuse("score_mod", _MOD, cast("ScoreMod", score_mod).key)
        *parts, context = tensors
        factor = (config.head_dim**-0.5 if scale is None else scale) * (1.0 if score_mod is None else score_mod.scale)
        mine, given = cast("StateConfig", config), cast("tuple[Tensor, Tensor, Tensor]", tuple(parts))
        result = self.core(
            mine, weights, given, context, allowed=allowed, align=align, scale=factor, form=backend, state=None, past=0
        )
        return CoreOutput(result.output, result.weights, kernel=result.kernel)

    def rates(self, config: StateConfig, weights: Tensors, context: Tensor) -> Tensor | None:
        """Give the logarithms of decay, ``[batch | 1, heads, kv_len, 1 | features]``, or None.

        Source:
            Fixed: RetNet, section 2.3, https://arxiv.org/abs/2307.08621
            Read from the token: gated linear attention, section 4.3, https://arxiv.org/abs/2312.06635
        """
        heads, length = config.num_attention_heads, context.shape[1]
        if config.decay == "none":
            return None
        if config.decay == "fixed":
            left = 1 - 2.0 ** -(5 + torch.arange(heads, device=context.device, dtype=torch.float64))
            return left.log()[None, :, None, None].expand(1, heads, length, 1)
        return torch.nn.functional.logsigmoid(gate(config, weights, "decay", context)) / _GATE

    def _past(
        self, config: StateConfig, cache: Tensors | None, batch: int
    ) -> tuple[int, tuple[Tensor, Tensor | None] | None]:
        """Check a cache against what is declared; give its tokens and its state."""
        if cache is None:
            return 0, None
        shapes = {name: (batch, *shape) for name, shape in self.cache(config, 0).items()}
        for name, shape in shapes.items():
            got = tuple(cache[name].shape) if name in cache else None
            if got != shape:
                words = ", ".join(f"{key} {list(axes)}" for key, axes in shapes.items())
                raise refuse(f'cache["{name}"]', _PAST.fill(shapes=same(words)), got)
        return round(float(cache["tokens"][0, 0])), (cache["state"], cache.get("sum"))

    def _kept(self, result: StateOutput, tokens: int) -> Tensors:
        count = result.state.new_full((result.state.shape[0], 1), tokens)
        return {"state": result.state, **({} if result.sum is None else {"sum": result.sum}), "tokens": count}


def gate(config: StateConfig, weights: Tensors, name: str, context: Tensor) -> Tensor:
    """Read some numbers for each head and token, ``[batch, heads, kv_len, numbers]``."""
    read = context @ weights[name]
    read = read + weights[f"{name}_bias"] if config.biases else read
    return read.unflatten(2, (config.num_attention_heads, -1)).transpose(1, 2)
