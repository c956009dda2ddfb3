"""One view as a script of plain PyTorch: the same numbers, and nothing of attnviz in it."""

from collections.abc import Callable, Mapping, Sequence

from attnviz.config import dtype_size
from attnviz.inputs import token_seed
from attnviz.knobs import Value
from attnviz.masks import MASKS, offset
from attnviz.text import Refusal, Text
from attnviz.variants.grouped import GroupedConfig

_BACKEND = Text(
    "backend must be one of {options} for a snippet, got {value!r}.",
    "代码片段的 backend 应为以下之一：{options}，收到的是 {value!r}。",
)

_WEIGHTS = '''\
def draw(stream, index):
    """Draw one head's weights from a seed of their own, so that more heads leave these as they are."""
    place = (seed + 1) * 0x9E3779B97F4A7C15 + stream * 0xC2B2AE3D27D4EB4F + index * 0x165667B19E3779F9
    mixed = ((place ^ (place >> 29)) * 0xBF58476D1CE4E5B9) & (2**64 - 1)
    generator = torch.Generator().manual_seed(mixed >> 32)
    size = d_k * width
    return torch.randn(-(-size // 16) * 16, generator=generator)[:size].view(d_k, width)


def project(tokens, stream, count):
    """Project tokens to `count` heads: [1, length, width] to [1, count, length, d_k], with unit variance."""
    matrix = torch.cat([draw(stream, index) for index in range(count)]) * width**-0.5
    return (tokens @ matrix.T).unflatten(2, (count, d_k)).transpose(1, 2)
'''

_INTEGERS = '''\
def integers(stream, count, length):
    """Draw whole numbers from -1 to 2 by a hash of seed, stream, head, position and dimension."""
    mixed = torch.arange(count)[:, None, None] * 0x9E3779B1 + torch.arange(length)[:, None] * 0x85EBCA77
    mixed = mixed + torch.arange(d_k) * 0xC2B2AE3D + (3 * seed + stream + 1) * 0x27D4EB2F
    for shift, factor in ((15, 0x2C1B3C6D), (12, 0x297A2D39)):
        mixed = ((mixed ^ (mixed >> shift)) * factor) & 0xFFFFFFFF
    return ((mixed ^ (mixed >> 15)) & 3).float()[None] - 1


q, k, v = integers(0, heads, q_len), integers(1, kv_heads, kv_len), integers(2, kv_heads, kv_len)
'''

_DROPOUT = """\
row, col = torch.arange(q_len)[:, None], torch.arange(kv_len)
mixed = row * 0x9E3779B1 + col * 0x85EBCA77 + torch.arange(heads)[:, None, None] * 0xC2B2AE3D + (seed + 1) * 0x27D4EB2F
for shift, factor in ((15, 0x2C1B3C6D), (12, 0x297A2D39)):
    mixed = ((mixed ^ (mixed >> shift)) * factor) & 0xFFFFFFFF
kept = (mixed ^ (mixed >> 15)) >= {dropout!r} * 2**32
weights = torch.where(kept, weights / (1 - {dropout!r}), 0.0).to(v.dtype)
output = weights @ v
"""

_TILES = """\
maximum = {q}.new_full((1, heads, q_len, 1), float("-inf"))
total, output = torch.zeros_like(maximum), {q}.new_zeros(1, heads, q_len, d_k)
for start in range(0, kv_len, 256):  # no q_len x kv_len matrix of scores ever exists
    keys = slice(start, start + 256)
    tile = ({q} @ {k}.mT) * scale
{hide}\
    higher = torch.maximum(maximum, tile.amax(-1, keepdim=True))
    origin = higher.masked_fill(higher.isinf(), 0.0)
    shrink, tile = torch.exp(maximum - origin), torch.exp(tile - origin)
    total = total * shrink + tile.sum(-1, keepdim=True)
    output = output * shrink + tile @ {v}
    maximum = higher
output = (output / total.masked_fill(total == 0, 1.0)).to(v.dtype)
"""


def attention_snippet(
    config: GroupedConfig,
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
    backend: str = "eager",
    dtype: str = "float32",
    dropout: float = 0.0,
) -> str:
    """Give a script that imports torch alone and leaves the view's tensors: ``q, k, v``, ``output`` and its steps.

    Args:
        config: Sizes of the layer.
        seed: Seed of tokens and weights.
        q_len: Number of queries.
        kv_len: Number of keys.
        tokens: The tokens that ask, ``q_len`` of them; None is random normal input.
        context: The tokens attended to in cross attention; None is random normal input.
        cross: The keys come from other tokens than the queries.
        worked: Queries, keys and values are small whole numbers, made without tokens.
        mask: Key of ``MASKS``.
        mask_settings: Values of its knobs; those not given take their default.
        align: ``top_left`` or ``bottom_right``.
        scale: Factor of the scores; None means 1/sqrt(head_dim).
        backend: ``eager``, ``sdpa`` or ``flash``; with dropout the steps are written out whatever it is.
        dtype: Type that queries, keys and values are turned into, by torch's name.
        dropout: Share of the weights set to zero, by a hash of seed, head, query and key.

    Returns:
        The script; its ``output`` is ``[1, heads, q_len, head_dim]``, before the heads are merged.

    Raises:
        Refusal: If a setting of the mask, the dtype or the backend is not known.
        ValueError: If values and keys differ in width, or the tokens are not as many as the length says.
    """
    _check_lengths(config, (("tokens", tokens, q_len), ("context", context if cross else None, kv_len)))
    settings = _settings(mask, mask_settings or {})
    built, shift = MASKS[mask].make(**settings), offset(q_len, kv_len, align)
    core = _core(backend, dropout)
    is_causal = built.is_causal and shift == 0 and core is _sdpa
    hidden = not built.is_full and not is_causal
    shared = config.num_key_value_heads != config.num_attention_heads
    parts = (
        "import torch\n\n" + _sizes(config, seed, q_len, kv_len, scale),
        (f"\n{_INTEGERS}" if worked else f"\n{_WEIGHTS}\n\n{_inputs(tokens, context, seed, cross)}") + _cast(dtype),
        _allowed(MASKS[mask].code(**settings), shift, built.per_head) if hidden else "",
        core(hidden, shared, is_causal, dtype_size(dtype) < 4),
        _DROPOUT.format(dropout=dropout) if dropout else "",
        "print(output.shape, output)\n",
    )
    return "\n".join(part for part in parts if part)


def _check_lengths(config: GroupedConfig, sides: Sequence[tuple[str, Sequence[str] | None, int]]) -> None:
    for name, given, length in sides:
        if given is not None and len(given) != length:
            raise ValueError(f"{name} must be {length} tokens, got {len(given)}")
    if config.v_head_dim != config.head_dim:
        raise ValueError(f"v_head_dim must equal head_dim in a snippet, got {config.v_head_dim} and {config.head_dim}")


def _core(backend: str, dropout: float) -> Callable[[bool, bool, bool, bool], str]:
    """Give what writes the lines of a backend; a fused call shows no weights that dropout could be put on."""
    steps = {"eager": _eager, "sdpa": _sdpa, "flash": _flash}
    if backend not in steps:
        raise Refusal(_BACKEND.fill(options=", ".join(steps), value=backend))
    return _eager if dropout else steps[backend]


def _settings(mask: str, given: Mapping[str, Value]) -> dict[str, Value]:
    """Give the checked value of each of the mask's knobs."""
    MASKS[mask].build(**given)
    return {knob.name: knob.parse(given.get(knob.name, knob.default)) for knob in MASKS[mask].knobs}


def _sizes(config: GroupedConfig, seed: int, q_len: int, kv_len: int, scale: float | None) -> str:
    return (
        f"seed, width, q_len, kv_len = {seed}, {config.hidden_size}, {q_len}, {kv_len}\n"
        f"heads, kv_heads, d_k = {config.num_attention_heads}, {config.num_key_value_heads}, {config.head_dim}\n"
        f"scale = {'d_k**-0.5' if scale is None else repr(scale)}\n"
    )


def _inputs(tokens: Sequence[str] | None, context: Sequence[str] | None, seed: int, cross: bool) -> str:
    """Give the lines that make the token vectors and project them."""
    lines = [_vectors("x", tokens, "q_len", seed, 0)]
    if cross:
        lines.append(_vectors("context", context, "kv_len", seed, 1))
    source = "context" if cross else "x"
    lines.append(f"q, k, v = project(x, 0, heads), project({source}, 1, kv_heads), project({source}, 2, kv_heads)\n")
    return "".join(lines)


def _cast(dtype: str) -> str:
    return "" if dtype == "float32" else f"q, k, v = (tensor.to(torch.{dtype}) for tensor in (q, k, v))\n"


def _vectors(name: str, tokens: Sequence[str] | None, length: str, seed: int, side: int) -> str:
    if tokens is None:
        shift = f" + {side}" if side else ""
        return f"{name} = torch.randn(1, {length}, width, generator=torch.Generator().manual_seed(seed{shift}))\n"
    # A token may be anything that can be typed: repr writes it as one literal.
    own = _period(tokens)
    words = (
        repr(list(own)) if len(own) == len(tokens) else f"({list(own)!r} * {-(-len(tokens) // len(own))})[:{length}]"
    )
    seeds = {token: token_seed(token, seed) for token in own}
    return (
        f"words = {words}\n"
        f"seeds = {seeds!r}\n"
        "# Random vectors, not trained: each word has its own seed and the same vector wherever it stands.\n"
        "table = {word: torch.randn(width, generator=torch.Generator().manual_seed(s)) for word, s in seeds.items()}\n"
        f"{name} = torch.stack([table[word] for word in words])[None]\n"
    )


def _period(tokens: Sequence[str]) -> tuple[str, ...]:
    """Give the shortest beginning that the tokens are repetitions of: a sentence goes round where it is too short."""
    own = tuple(tokens)
    # The failure function of Knuth, Morris and Pratt: how much of the beginning ends at each place.
    reach = [0] * len(own)
    for place in range(1, len(own)):
        length = reach[place - 1]
        while length and own[place] != own[length]:
            length = reach[length - 1]
        reach[place] = length + (own[place] == own[length])
    return own[: len(own) - reach[-1]]


def _allowed(code: str, shift: int, per_head: bool) -> str:
    """Give the lines that make ``allowed``, True where a query may attend to a key."""
    *before, rule = code.split("\n")
    at = f" + {shift}" if shift > 0 else f" - {-shift}" if shift else ""
    lines = [f"q_idx, kv_idx = torch.arange(q_len)[:, None]{at}, torch.arange(kv_len)"]
    if per_head:
        lines.append("head = torch.arange(heads)[:, None, None]")
    shape = "heads, q_len, kv_len" if per_head else "q_len, kv_len"
    lines += [*before, f"allowed = ({rule}).expand({shape})  # True = may attend"]
    return "\n".join(lines) + "\n"


def _repeat(shared: bool) -> str:
    return "k, v = (tensor.repeat_interleave(heads // kv_heads, dim=1) for tensor in (k, v))\n" if shared else ""


def _eager(hidden: bool, shared: bool, is_causal: bool, is_half: bool) -> str:
    lines = _repeat(shared) + "scores = q @ k.mT\nscaled = scores * scale\n"
    if not hidden:
        return lines + "weights = torch.softmax(scaled, dim=-1)\noutput = weights @ v\n"
    return lines + (
        'weights = torch.softmax(scaled.masked_fill(~allowed, float("-inf")), dim=-1)\n'
        "weights = weights.masked_fill(~allowed, 0.0)  # a row without a key: 0 instead of NaN\n"
        "output = weights @ v\n"
    )


def _sdpa(hidden: bool, shared: bool, is_causal: bool, is_half: bool) -> str:
    mask = ", attn_mask=allowed" if hidden else ", is_causal=True" if is_causal else ""
    group = ", enable_gqa=True" if shared else ""
    return f"output = torch.nn.functional.scaled_dot_product_attention(q, k, v{mask}, scale=scale{group})\n"


def _flash(hidden: bool, shared: bool, is_causal: bool, is_half: bool) -> str:
    hide = '    tile = tile.masked_fill(~allowed[..., keys], float("-inf"))\n' if hidden else ""
    wide = ".float()" if is_half else ""
    q, k, v = (f"{name}{wide}" for name in ("q", "k[..., keys, :]", "v[..., keys, :]"))
    return _repeat(shared) + _TILES.format(hide=hide, q=q, k=k, v=v)
