"""Linear attention: a feature map in place of the softmax, so that keys and values can be summed up once for all.

With weights φ(q) · φ(k) the output of a query is φ(q) · S / φ(q) · z, where S = Σ φ(k) vᵀ and z = Σ φ(k). Both have a
fixed size, so a causal layer is a recurrence. Three ways to the same numbers: ``parallel`` makes the weight of every
pair, ``recurrent`` goes token by token, ``chunked`` makes the pairs inside a chunk and carries the state on.
"""

from dataclasses import dataclass
from typing import cast

from torch import Tensor

from attnviz.knobs import Flag
from attnviz.masks import Mask
from attnviz.text import Text
from attnviz.variants.base import Tensors, refuse
from attnviz.variants.grouped import GroupedConfig
from attnviz.variants.state.layer import StateLayer
from attnviz.variants.state.linear_forms import chunked, parallel, recurrent
from attnviz.variants.state.pieces import Map, StateOutput, call_of, pick_form
from attnviz.variants.state.sizes import StateConfig, feature_map_knob, knobs
from attnviz.variants.work import Work

FORMS = {"chunked": chunked, "recurrent": recurrent, "parallel": parallel}

_MASK = Text(
    "causal, by key, or both in the {form} form; the parallel form takes any mask",
    "因果掩码、按键的掩码或两者之交（{form} 形式）；parallel 形式接受任意掩码",
)


def linear_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    maps: tuple[Map, Map] | None = None,
    allowed: Tensor | Mask | None = None,
    align: str = "top_left",
    log_decay: Tensor | None = None,
    state: tuple[Tensor, Tensor | None] | None = None,
    past: int = 0,
    normalize: bool = False,
    scale: float = 1.0,
    form: str | None = None,
    chunk: int = 64,
) -> StateOutput:
    """Compute Σ φ(q)·φ(k) v over the keys that each query sees, over the sum of the weights where asked for.

    A query that sees no key gives 0. Without a causal mask every query reads the state after the last key.

    Args:
        query: ``[batch, heads, q_len, width]``.
        key: ``[batch, kv_heads, kv_len, width]``; kv_heads divides heads.
        value: ``[batch, kv_heads, kv_len, value width]``.
        maps: φ of queries and of keys; None takes them as they are.
        allowed: Mask, or bool broadcastable to ``[batch, heads, q_len, past + kv_len]``; None = everything. A state can
            follow causal masks, masks that hide keys from all queries, and both; any other is for ``parallel``.
        align: Where query 0 of a ``Mask`` stands when q_len ≠ past + kv_len: ``top_left`` or ``bottom_right``.
        log_decay: Logarithm of what each token leaves of the state, none above 0:
            ``[batch | 1, kv_heads | 1, kv_len, 1 | features]``.
        state: What an earlier call gave as ``state`` and ``sum``.
        past: Tokens in that state.
        normalize: Divide each row by the sum of its weights.
        scale: Factor of the output where it is not normalised.
        form: ``chunked``, ``recurrent`` or ``parallel``; None is the first that the mask allows.
        chunk: Tokens of a chunk.

    Raises:
        Refusal: If an argument breaks a rule; names the argument, the rule and what was received.

    Source:
        Katharopoulos et al. 2020, sections 3.2 to 3.4, https://arxiv.org/abs/2006.16236
        Chunks: Yang et al. 2023, section 3, https://arxiv.org/abs/2312.06635
    """
    pick_form(form or "chunked", tuple(FORMS), chunk)
    call = call_of(
        query, key, value, maps=maps, allowed=allowed, align=align, rates=log_decay, state=state, past=past,
        normalize=normalize, scale=scale,
    )  # fmt: skip
    if call.reading.pairs is not None:
        if form not in (None, "parallel"):
            raise refuse("allowed", _MASK.fill(form=form), "a mask of another kind")
        form = "parallel"
    return FORMS[form or "chunked"](call, chunk)


@dataclass(frozen=True)
class Linear(StateLayer):
    """The layer around ``linear_attention``.

    Source:
        Katharopoulos et al. 2020, https://arxiv.org/abs/2006.16236
    """

    def sums(self, config: StateConfig) -> bool:
        return config.normalize

    def mix_flops(self, config: GroupedConfig, q_len: int, kv_len: int) -> int:
        """Count the FLOPs of one sequence without a mask: every key written, every query read, pairs nowhere."""
        return self._flops(cast("StateConfig", config), q_len, kv_len)

    def flops(self, config: GroupedConfig, q_len: int, kv_len: int, new: int, *, causal: bool = False) -> int:
        """Count the FLOPs of one sequence; past keys are in the state and cost nothing."""
        mine = cast("StateConfig", config)
        tokens = self.acts_on(config, q_len, kv_len, new)
        projections = sum(2 * rows * cols * tokens[name] for name, (rows, cols) in self.matrices(config).items())
        return projections + self._flops(mine, q_len, new) + (self._pairs(mine, q_len) if causal else 0)

    def _flops(self, config: StateConfig, q_len: int, new: int) -> int:
        width, out = config.width, config.v_head_dim + config.normalize
        mapped = config.head_dim * width if config.map.is_random else 0
        return 2 * config.num_attention_heads * (q_len + new) * (width * out + mapped)

    def _pairs(self, config: StateConfig, length: int) -> int:
        """Count the FLOPs of the pairs inside chunks."""
        whole, rest = divmod(length, config.chunk)
        pairs = whole * config.chunk**2 + rest**2
        return 2 * config.num_attention_heads * pairs * (config.width + config.v_head_dim + config.normalize)

    def peak_bytes(self, config: GroupedConfig, work: Work, backend: str) -> int:
        """Predict what the core allocates at its peak: output, two states and the piece that is worked on."""
        mine = cast("StateConfig", config)
        size, width, out = max(4, work.itemsize), mine.width, mine.v_head_dim + mine.normalize
        q_len, kv_len, heads = work.q_len, work.kv_len, work.batch * mine.num_attention_heads
        results = heads * q_len * mine.v_head_dim * work.itemsize
        if backend == "parallel":
            mapped = (q_len + kv_len) * (width + out) + q_len * out
            return results + heads * size * (2 * q_len * kv_len + mapped + width * out)
        chunk = 1 if backend == "recurrent" else min(mine.chunk, max(q_len, kv_len))
        if backend == "chunked":
            give = self._causal_numbers if work.causal else self._full_numbers
            # The first state stays from beginning to end.
            return results + heads * size * width * out + give(mine, q_len, kv_len, heads, size)
        return results + heads * size * (3 * width * out + chunk * (chunk + 3 * width + 2 * out))

    def _full_numbers(self, config: StateConfig, q_len: int, kv_len: int, heads: int, size: int) -> int:
        """Predict the bytes of chunks where all keys are written before any query reads."""
        width, out = config.width, config.v_head_dim + config.normalize
        first, later = _chunks(config, kv_len)
        state, queries = width * out, min(config.chunk, q_len)
        written = max(state + first * (width + out), later and 2 * state + later * (width + out))
        # The quotient, which of its rows have no weight, and two numbers.
        divided = queries * (config.v_head_dim * size + 1) * heads + 12 if config.normalize else 0
        read = heads * size * (state + queries * out) + max(heads * size * queries * width, divided)
        return max(heads * size * written, read)

    def _causal_numbers(self, config: StateConfig, q_len: int, kv_len: int, heads: int, size: int) -> int:
        """Predict the bytes of chunks whose pairs are made before the state takes the keys in."""
        width, out = config.width, config.v_head_dim + config.normalize
        first, later = _chunks(config, min(q_len, kv_len))
        state = width * out

        def most(tokens: int) -> int:
            # Queries, keys and values, and then: what the state gives, the pairs and both summed; or the next state.
            return tokens * (2 * width + 2 * out) + max(tokens * (out + tokens), state)

        # From the second chunk on the sums of the one before are still there, beside another state.
        return heads * size * max(most(first), later and state + most(later) + first * out)

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
        return linear_attention(
            *tensors,
            maps=config.map.maps(scale, rows),
            allowed=allowed,
            align=align,
            log_decay=self.rates(config, weights, context),
            state=state,
            past=past,
            normalize=config.normalize,
            scale=1.0 if config.map.is_random else scale,
            form=form,
            chunk=config.chunk,
        )


def _chunks(config: StateConfig, length: int) -> tuple[int, int]:
    """Give the tokens of the first chunk and of the longest that follows, 0 where none does."""
    first = min(config.chunk, length)
    return first, min(config.chunk, length - first)


_NORMALIZE = Flag(
    "normalize",
    Text("Normalise rows", "按行归一化"),
    True,
    Text("Divide each output by the sum of its weights, as softmax does.", "像 softmax 那样，把输出除以权重之和。"),
)

ENTRIES = (
    Linear(
        "linear",
        Text("Linear attention", "线性注意力"),
        Text(
            "Weighs a pair by φ(q) · φ(k): keys and values are summed into one matrix, however many there are.",
            "用 φ(q) · φ(k) 给一对加权：键和值累加进一个矩阵，不论有多少个。",
        ),
        "https://arxiv.org/abs/2006.16236",
        knobs(feature_map_knob("elu"), _NORMALIZE),
        tuple(FORMS),
        "all",
    ),
)
