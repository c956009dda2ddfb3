"""The lines that make query, key and value: token vectors, positions, projections, or whole numbers."""

from collections.abc import Sequence

from attnviz.inputs import token_seed

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

_LATENT_WEIGHTS = '''\
def matrix(stream, count, rows, cols):
    """Draw [count x rows, cols], each head from a seed of its own, so that more heads leave these as they are."""
    drawn = []
    for index in range(count):
        place = (seed + 1) * 0x9E3779B97F4A7C15 + stream * 0xC2B2AE3D27D4EB4F + index * 0x165667B19E3779F9
        mixed = ((place ^ (place >> 29)) * 0xBF58476D1CE4E5B9) & (2**64 - 1)
        generator, size = torch.Generator().manual_seed(mixed >> 32), rows * cols
        drawn.append(torch.randn(-(-size // 16) * 16, generator=generator)[:size].view(rows, cols))
    return torch.cat(drawn) * cols**-0.5


def split(tokens, size):
    """Cut [1, length, heads x size] into heads, [1, heads, length, size]."""
    return tokens.unflatten(2, (heads, size)).transpose(1, 2)
'''

_LATENT = """\
c = torch.nn.functional.rms_norm({source} @ matrix(1, 1, latent, width).T, (latent,), eps=1e-6)  # kept
k_rope = {source} @ matrix(2, 1, rope, width).T  # kept, once for all heads
q, v = split(x @ matrix(0, heads, d_k, width).T, d_k), split(c @ matrix(4, heads, d_k, latent).T, d_k)
k = split(c @ matrix(3, heads, d_k - rope, latent).T, d_k - rope)
k = torch.cat((k, k_rope[:, None].expand(-1, heads, -1, -1)), dim=-1)
"""

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


def tensors(
    tokens: Sequence[str] | None,
    context: Sequence[str] | None,
    seed: int,
    *,
    cross: bool,
    worked: bool,
    dtype: str,
    added: str,
    turned: str,
    shift: int,
    latent: bool = False,
) -> str:
    """Give the lines that leave ``q``, ``k`` and ``v``.

    Args:
        tokens: The tokens that ask; None is random normal input.
        context: The tokens attended to; None likewise.
        seed: Seed of tokens and weights.
        cross: The keys come from other tokens than the queries.
        worked: Small whole numbers instead of tokens and projections.
        dtype: Type that they are turned into, by torch's name.
        added: Definition of ``waves(places)``, added to the token vectors; "" for none.
        turned: Definition of ``turn(x, places)``, which rotates queries and keys; "" for none.
        shift: Position of query 0; key 0 stands at 0.
        latent: Keys and values are made of a latent, and only the last ``rope`` entries of a head are rotated.
    """
    defined = "".join(f"\n\n{code}" for code in (added, turned) if code)
    queries = f"torch.arange(q_len) + {shift}" if shift > 0 else f"torch.arange(q_len) - {-shift}" if shift else ""
    places = queries or "torch.arange(q_len)", "torch.arange(kv_len)"
    made = (
        _INTEGERS.rsplit("\n\n\n", 1)
        if worked
        else (
            (_LATENT_WEIGHTS if latent else _WEIGHTS).rstrip(),
            _inputs(tokens, context, seed, cross, places if added else None, latent),
        )
    )
    rotated = _rotated(places, latent) if turned else ""
    return f"\n{made[0]}\n{defined}\n\n{made[1]}{rotated}{_cast(dtype)}"


def _inputs(
    tokens: Sequence[str] | None,
    context: Sequence[str] | None,
    seed: int,
    cross: bool,
    places: tuple[str, str] | None,
    latent: bool,
) -> str:
    """Give the lines that make the token vectors, add waves at ``places`` where there are any, and project them."""
    lines = [vectors("x", tokens, "q_len", seed, 0)]
    if cross:
        lines.append(vectors("context", context, "kv_len", seed, 1))
    if places is not None:
        lines.append(f"x = x + waves({places[0]})\n")
        lines += [f"context = context + waves({places[1]})\n"] if cross else []
    source = "context" if cross else "x"
    if latent:
        return "".join(lines) + _LATENT.format(source=source)
    lines.append(f"q, k, v = project(x, 0, heads), project({source}, 1, kv_heads), project({source}, 2, kv_heads)\n")
    return "".join(lines)


def _rotated(places: tuple[str, str], latent: bool) -> str:
    """Give the line that rotates queries and keys; of a key made of a latent only the part beside it."""
    if not latent:
        return f"q, k = turn(q, {places[0]}), turn(k, {places[1]})\n"
    return (
        f"first = d_k - rope\nsides = (q, {places[0]}), (k, {places[1]})\n"
        "q, k = (torch.cat((t[..., :first], turn(t[..., first:], at)), dim=-1) for t, at in sides)\n"
    )


def _cast(dtype: str) -> str:
    return "" if dtype == "float32" else f"q, k, v = (tensor.to(torch.{dtype}) for tensor in (q, k, v))\n"


def vectors(name: str, tokens: Sequence[str] | None, length: str, seed: int, side: int) -> str:
    """Give the lines that leave ``name``, the token vectors of one side, ``[1, length, width]``."""
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
