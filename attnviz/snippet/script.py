"""One view as a script of plain PyTorch: the same numbers, and nothing of attnviz in it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from attnviz.backends.call import LEAST_CAUSAL_SCALE
from attnviz.config import dtype_size
from attnviz.knobs import Value
from attnviz.masks import MASKS, MaskKind, offset
from attnviz.mistakes import MISTAKES, Mistake
from attnviz.positions import POSITIONS
from attnviz.score_mods import SCORE_MODS, ScoreModKind
from attnviz.snippet import cores
from attnviz.snippet.tensors import tensors
from attnviz.text import Refusal, Text
from attnviz.variants.grouped import GroupedConfig
from attnviz.variants.latent.sizes import LatentConfig

Sizes = GroupedConfig | LatentConfig

_BACKEND = Text(
    "backend must be one of {options} for a snippet, got {value!r}.",
    "代码片段的 backend 应为以下之一：{options}，收到的是 {value!r}。",
)


K = TypeVar("K", MaskKind, ScoreModKind)


@dataclass(frozen=True)
class _Chosen(Generic[K]):
    """Hold an entry of a registry with the checked value of each of its knobs."""

    kind: K
    settings: Mapping[str, Value]


def attention_snippet(
    config: Sizes,
    *,
    seed: int,
    q_len: int,
    kv_len: int,
    tokens: Sequence[str] | None = None,
    context: Sequence[str] | None = None,
    cross: bool = False,
    worked: bool = False,
    mask: str = "full",
    mask_settings: Mapping[str, Value] | None = None,
    align: str = "top_left",
    scale: float | None = None,
    position: str = "none",
    position_settings: Mapping[str, Value] | None = None,
    score_mod: str = "none",
    score_mod_settings: Mapping[str, Value] | None = None,
    backend: str = "eager",
    dtype: str = "float32",
    dropout: float = 0.0,
    mistake: str = "none",
) -> str:
    """Give a script that imports torch alone and leaves the view's tensors: ``q, k, v``, ``output`` and its steps.

    Args:
        config: Sizes of the layer, its weights and tokens drawn by ``seed``; ``q_len`` queries look at ``kv_len`` keys.
        tokens: The tokens that ask, ``q_len`` of them; None is random normal input.
        context: With ``cross`` the tokens attended to instead of these; None likewise.
        worked: Queries, keys and values are small whole numbers, made without tokens.
        mask: Key of ``MASKS``; its knobs, and those of the next two, take their defaults where not given.
        align: ``top_left`` or ``bottom_right``: where a query stands, for mask, position and score modification.
        scale: Factor of the scores; None means 1/sqrt(head_dim).
        position: Key of ``POSITIONS``; ``score_mod`` is one of ``SCORE_MODS``, ``mistake`` of ``MISTAKES``.
        backend: ``eager``, ``sdpa`` or ``flash``; dropout and mistakes are written out step by step whatever it is.
        dtype: Type that queries, keys and values are turned into, by torch's name.
        dropout: Share of the weights set to zero, by a hash of seed, head, query and key.

    Returns:
        The script; its ``output`` is ``[1, heads, q_len, head_dim]``, before the heads are merged.

    Raises:
        Refusal: If a setting of the mask, the dtype or the backend is not known.
        ValueError: If values and keys differ in width, or the tokens are not as many as the length says.
    """
    _check_lengths(config, (("tokens", tokens, q_len), ("context", context if cross else None, kv_len)))
    shift = offset(q_len, kv_len, align)
    made = {"cross": cross, "worked": worked, "dtype": dtype, "shift": shift}
    made |= {"latent": isinstance(config, LatentConfig)} | _position(position, position_settings or {})
    rule, change = _chosen(MASKS[mask], mask_settings), _chosen(SCORE_MODS[score_mod], score_mod_settings)
    core = _core(backend, dropout > 0 or mistake != "none")
    parts = (
        "import torch\n\n" + _sizes(config, seed, q_len, kv_len, scale),
        tensors(tokens, context, seed, **made),
        *_attention(config, rule, change, core, shift, dtype, MISTAKES[mistake], scale),
        cores.dropout(dropout) if dropout else "",
        "print(output.shape, output)\n",
    )
    return "\n".join(part for part in parts if part)


def _attention(
    config: Sizes,
    rule: _Chosen[MaskKind],
    change: _Chosen[ScoreModKind],
    core: Callable[[cores.Lines], str],
    shift: int,
    dtype: str,
    mistake: Mistake,
    scale: float | None,
) -> tuple[str, ...]:
    """Give the lines from the scores to the output: what they need, and one way to compute it."""
    shared = _kv_heads(config) != config.num_attention_heads
    mask, mod, code = rule.kind.make(**rule.settings), change.kind.make(**change.settings), change.kind.code
    is_causal = mask.is_causal and shift == 0 and core is cores.sdpa and mod.bias is None and mod.softcap is None
    is_causal = is_causal and (scale is None or scale * mod.scale >= LEAST_CAUSAL_SCALE)
    hidden = not mask.is_full and not is_causal
    return (
        cores.indices(shift) if hidden or code else "",
        cores.allowed(rule.kind.code(**rule.settings), mask.per_head) if hidden else "",
        cores.bias(code(**change.settings)) if code else "",
        core(cores.Lines(hidden, shared, is_causal, dtype_size(dtype) < 4, mod, mistake)),
    )


def _check_lengths(config: Sizes, sides: Sequence[tuple[str, Sequence[str] | None, int]]) -> None:
    for name, given, length in sides:
        if given is not None and len(given) != length:
            raise ValueError(f"{name} must be {length} tokens, got {len(given)}")
    if config.v_head_dim != config.head_dim:
        raise ValueError(f"v_head_dim must equal head_dim in a snippet, got {config.v_head_dim} and {config.head_dim}")
    if isinstance(config, GroupedConfig) and config.sink:
        raise ValueError("sink must be off in a snippet, got True")


def _core(backend: str, by_hand: bool) -> Callable[[cores.Lines], str]:
    """Give what writes the lines of a backend; a fused call shows no weights for dropout or a mistake."""
    steps = {"eager": cores.eager, "sdpa": cores.sdpa, "flash": cores.flash}
    if backend not in steps:
        raise Refusal(_BACKEND.fill(options=", ".join(steps), value=backend))
    return cores.eager if by_hand else steps[backend]


def _chosen(kind: K, given: Mapping[str, Value] | None) -> _Chosen[K]:
    """Give an entry with the checked value of each of its knobs."""
    given = given or {}
    kind.build(**given)
    return _Chosen(kind, {knob.name: knob.parse(given.get(knob.name, knob.default)) for knob in kind.knobs})


def _position(key: str, given: Mapping[str, Value]) -> dict[str, str]:
    """Give the definition of what is added to token vectors, and of what rotates queries and keys; "" for neither."""
    kind = POSITIONS[key]
    settings = kind.read(**given)
    code = "" if kind.code is None else kind.code(**settings)
    is_added = kind.make(**settings).waves is not None
    return {"added": code if is_added else "", "turned": "" if is_added else code}


def _kv_heads(config: Sizes) -> int:
    return config.num_key_value_heads if isinstance(config, GroupedConfig) else config.num_attention_heads


def _sizes(config: Sizes, seed: int, q_len: int, kv_len: int, scale: float | None) -> str:
    latent = (
        f"latent, rope = {config.kv_lora_rank}, {config.qk_rope_head_dim}\n" if isinstance(config, LatentConfig) else ""
    )
    return (
        f"seed, width, q_len, kv_len = {seed}, {config.hidden_size}, {q_len}, {kv_len}\n"
        f"heads, kv_heads, d_k = {config.num_attention_heads}, {_kv_heads(config)}, {config.head_dim}\n"
        f"{latent}scale = {'d_k**-0.5' if scale is None else repr(scale)}\n"
    )
