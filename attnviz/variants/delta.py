"""Delta rule: before a value is written, what the state already answers to its key is taken away.

    S_t = S_{t-1} + β_t k_t (v_t - S_{t-1}ᵀ k_t)ᵀ,   o_t = S_tᵀ q_t

so that asking with the same key gives the new value instead of a sum of old ones. The gated rule first multiplies the
state by what the token leaves of it. In a chunk, with u_t = β_t (v_t - S_{t-1}ᵀ k_t), the state is S_0 plus a sum of
k_t u_tᵀ, and the u solve a triangular system: (1 + A) U = β (V - K S_0), where A holds β_i k_i · k_j for j < i.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from attnviz.knobs import Flag
from attnviz.masks import Mask
from attnviz.text import Text
from attnviz.variants.base import Tensors, refuse
from attnviz.variants.grouped import GroupedConfig
from attnviz.variants.state.decay import weigh
from attnviz.variants.state.layer import StateLayer, gate
from attnviz.variants.state.pieces import Map, StateOutput, call_of, pick_form
from attnviz.variants.state.sizes import StateConfig, feature_map_knob, knobs
from attnviz.variants.state.walk import Piece, walk, written
from attnviz.variants.work import Work

_GATED = 16  # tokens of a chunk whose every feature decays on its own: its pairs are taken feature by feature
_MASK = Text(
    "causal, by key, or both, since a state follows no other mask",
    "因果掩码、按键的掩码或两者之交，因为状态无法实现其他掩码",
)


def delta_rule(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    beta: Tensor,
    *,
    maps: tuple[Map, Map] | None = None,
    allowed: Tensor | Mask | None = None,
    align: str = "top_left",
    log_decay: Tensor | None = None,
    state: tuple[Tensor, Tensor | None] | None = None,
    past: int = 0,
    scale: float = 1.0,
    form: str | None = None,
    chunk: int = 64,
) -> StateOutput:
    """Compute the delta rule, or with ``log_decay`` the gated delta rule.

    Without a causal mask every query reads the state after the last key.

    Args:
        query: ``[batch, heads, q_len, width]``.
        key: ``[batch, kv_heads, kv_len, width]``; kv_heads divides heads. Keys of length one keep the state bounded.
        value: ``[batch, kv_heads, kv_len, value width]``.
        beta: How much of the difference is written, ``[batch | 1, kv_heads | 1, kv_len, 1]``.
        maps: Maps of queries and of keys; None takes them as they are.
        allowed: As for ``linear_attention``, but a causal mask, one by key, or both.
        align: ``top_left`` or ``bottom_right``.
        log_decay: As for ``linear_attention``.
        state: What an earlier call gave as ``state``, and None.
        past: Tokens in that state.
        scale: Factor of the output.
        form: ``chunked`` or ``recurrent``; None is the first.
        chunk: Tokens of a chunk.

    Raises:
        Refusal: If an argument breaks a rule; names the argument, the rule and what was received.

    Source:
        Schlag et al. 2021, section 4.2, https://arxiv.org/abs/2102.11174
        Chunks: Yang et al. 2024, section 3, https://arxiv.org/abs/2406.06484
        Gated: Yang et al. 2024, section 3.1, https://arxiv.org/abs/2412.06464
    """
    form = form or "chunked"
    pick_form(form, FORMS, chunk)
    call = call_of(
        query, key, value, maps=maps, allowed=allowed, align=align, rates=log_decay, beta=beta, state=state, past=past,
        normalize=False, scale=scale,
    )  # fmt: skip
    if call.reading.pairs is not None:
        raise refuse("allowed", _MASK, "a mask of another kind")
    if form == "recurrent":
        return walk(call, 1, 1, _step, "recurrent")
    chunk = chunk if call.rates is None or call.rates.shape[-1] == 1 else min(chunk, _GATED)
    return walk(call, chunk, chunk, _chunk, f"chunked ({chunk})")


def _chunk(query: Tensor | None, state: Tensor, piece: Piece) -> tuple[Tensor | None, Tensor]:
    """Give the sums of one chunk's queries, if there are any, and the state after its keys."""
    key, total, beta = piece.key, piece.total, piece.beta
    assert beta is not None
    places = torch.arange(key.shape[-2], device=key.device)
    carried = key if total is None else key * total.exp()
    pairs = beta * weigh(key, key, total, places)
    # What stands on the diagonal and above it is not read.
    update = torch.linalg.solve_triangular(
        pairs, beta * (piece.value - carried @ state), upper=False, unitriangular=True
    )
    sums = None
    if query is not None:
        asked = query if total is None else query * total.exp()
        sums = asked @ state + weigh(query, key, total, places) @ update
    return sums, written(state, key, update, total)


def _step(query: Tensor | None, state: Tensor, piece: Piece) -> tuple[Tensor | None, Tensor]:
    """Forget, write one token, then read."""
    assert piece.beta is not None
    left = state if piece.total is None else piece.total.exp().mT * state
    state = left + piece.key.mT @ (piece.beta * (piece.value - piece.key @ left))
    return (None if query is None else query @ state), state


FORMS = ("chunked", "recurrent")


@dataclass(frozen=True)
class Delta(StateLayer):
    """The layer around ``delta_rule``: β of each head is the sigmoid of a projection of the token.

    Source:
        Yang et al. 2024, https://arxiv.org/abs/2406.06484
    """

    def matrices(self, config: GroupedConfig) -> Mapping[str, tuple[int, int]]:
        return {**super().matrices(config), "beta": (config.hidden_size, config.num_attention_heads)}

    def sums(self, config: StateConfig) -> bool:
        return False

    def mix_flops(self, config: GroupedConfig, q_len: int, kv_len: int) -> int:
        """Count the FLOPs of one sequence without a mask; the triangular systems are not counted."""
        return self._flops(cast("StateConfig", config), q_len, kv_len)

    def flops(self, config: GroupedConfig, q_len: int, kv_len: int, new: int, *, causal: bool = False) -> int:
        """Count the FLOPs of one sequence; past keys are in the state and cost nothing."""
        mine = cast("StateConfig", config)
        tokens = self.acts_on(config, q_len, kv_len, new)
        projections = sum(2 * rows * cols * tokens[name] for name, (rows, cols) in self.matrices(config).items())
        pairs = self._pairs(mine, q_len) * (mine.width + mine.v_head_dim) if causal else 0
        return projections + self._flops(mine, q_len, new) + 2 * config.num_attention_heads * pairs

    def _flops(self, config: StateConfig, q_len: int, new: int) -> int:
        width, out = config.width, config.v_head_dim
        mapped = (q_len + new) * config.head_dim * width if config.map.is_random else 0
        each = (q_len + 2 * new) * width * out + self._pairs(config, new) * width + mapped
        return 2 * config.num_attention_heads * each

    def _pairs(self, config: StateConfig, length: int) -> int:
        whole, rest = divmod(length, config.chunk)
        return whole * config.chunk**2 + rest**2

    def peak_bytes(self, config: GroupedConfig, work: Work, backend: str) -> int:
        """Predict what the core allocates at its peak: output, two states, and the chunk that is worked on."""
        mine = cast("StateConfig", config)
        heads, size = work.batch * mine.num_attention_heads, max(4, work.itemsize)
        chunk = 1 if backend == "recurrent" else min(mine.chunk, work.kv_len)
        states = 3 * mine.width * mine.v_head_dim
        worked = chunk * (2 * chunk + 2 * mine.width + 2 * mine.v_head_dim)
        return heads * (work.q_len * mine.v_head_dim * work.itemsize + size * (states + worked))

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
        rows = weights["directions"].view(config.features, -1) if config.map.is_random else None
        maps = config.map.maps(scale, rows)
        return delta_rule(
            *tensors,
            beta=torch.sigmoid(gate(config, weights, "beta", context)),
            maps=(_unit(maps[0]), _unit(maps[1])) if config.normalize else maps,
            allowed=allowed,
            align=align,
            log_decay=self.rates(config, weights, context),
            state=state,
            past=past,
            scale=1.0 if config.map.is_random else scale,
            form=form,
            chunk=config.chunk,
        )


def _unit(mapping: Map) -> Map:
    """Give a map whose vectors have length one; a vector of zeros stays."""
    return lambda x: torch.nn.functional.normalize(mapping(x), dim=-1)


_NORMALIZE = Flag(
    "normalize",
    Text("Unit keys and queries", "键与查询取单位长度"),
    True,
    Text(
        "Keys of length one: β = 1 replaces all that their direction held.",
        "键取单位长度：β = 1 时，该方向上的旧内容全部被替换。",
    ),
)

ENTRIES = (
    Delta(
        "delta",
        Text("Delta rule", "增量规则 (delta rule)"),
        Text(
            "A state of fixed size like linear attention, but a key's old value is taken away before the new one is "
            "written.",
            "与线性注意力一样只保留固定大小的状态，但写入新值前先减去该键的旧值。",
        ),
        "https://arxiv.org/abs/2406.06484",
        knobs(feature_map_knob("identity"), _NORMALIZE),
        FORMS,
        "all",
    ),
)
