"""A layer that is narrowed, beside the whole one, as a script of plain PyTorch: fewer KV heads, a narrower latent."""

from collections.abc import Mapping, Sequence

from attnviz.snippet.tensors import vectors

_DRAW = '''\
def draw(stream, index, rows, cols):
    """Draw one head's weights from a seed of their own, so that more heads leave these as they are."""
    place = (seed + 1) * 0x9E3779B97F4A7C15 + stream * 0xC2B2AE3D27D4EB4F + index * 0x165667B19E3779F9
    mixed = ((place ^ (place >> 29)) * 0xBF58476D1CE4E5B9) & (2**64 - 1)
    generator = torch.Generator().manual_seed(mixed >> 32)
    size = rows * cols
    return torch.randn(-(-size // 16) * 16, generator=generator)[:size].view(rows, cols)


def matrix(stream, count, rows, cols):
    """Draw [count x rows, cols]; what it makes of tokens with unit variance has unit variance."""
    return torch.cat([draw(stream, index, rows, cols) for index in range(count)]) * cols**-0.5


def split(tokens, count):
    """Cut [length, count x d] into heads, [count, length, d]."""
    return tokens.unflatten(1, (count, -1)).transpose(0, 1)


def attend(scores, v, output_stream):
    """Give causal weights, and the layer's output: values summed, heads joined, projected back."""
    allowed = torch.ones(length, length, dtype=torch.bool).tril()
    weights = torch.softmax(scores.masked_fill(~allowed, float("-inf")), dim=-1)
    o = torch.cat([draw(output_stream, head, d_k, width) for head in range(heads)]) * (heads * d_k) ** -0.5
    return weights, (weights @ v).transpose(0, 1).flatten(1) @ o
'''

_GROUPED = '''\
def layer(kv_heads):
    """Give weights and output with the key and value heads merged into kv_heads."""
    q, (k, v) = split(x @ matrix(0, heads, d_k, width).T, heads), (merged(stream, kv_heads) for stream in (1, 2))
    k, v = (tensor.repeat_interleave(heads // kv_heads, dim=0) for tensor in (k, v))
    return attend(q @ k.mT * d_k**-0.5, v, 3)


def merged(stream, kv_heads):
    """Give keys (stream 1) or values (2) of kv_heads heads, each made of the matrices of its group."""
    whole = matrix(stream, heads, d_k, width)
    group = whole.view(kv_heads, heads // kv_heads, d_k, width)
    one = {merge}
    return split(x @ one.reshape(-1, width).T, kv_heads)


before, whole = layer(heads)  # MHA
weights, output = layer({kv_heads})
'''

_MERGES = {
    "mean": "group.mean(1)",
    "first": "group[:, 0]",
    "random": (
        "whole if kv_heads == heads else matrix(100 + stream, kv_heads, d_k, width) * whole.square().mean().sqrt() * "
        "width**0.5"
    ),
}

_LATENT = '''\
def turn(tokens):
    """Rotate pairs of entries, each by its place times a rate of its own."""
    pairs = rope // 2
    rates = 10000.0 ** -(torch.arange(pairs).double() / max(pairs, 1))
    angles = torch.arange(length)[:, None] * rates
    cos, sin = angles.cos().float(), angles.sin().float()
    a, b, rest = tokens[..., :pairs], tokens[..., pairs : 2 * pairs], tokens[..., 2 * pairs :]
    return torch.cat((a * cos - b * sin, b * cos + a * sin, rest), dim=-1)


def layer(latent):
    """Give weights and output with the first `latent` numbers of a latent of {most}."""
    c = (x @ matrix(1, 1, {most}, width).T)[:, :latent]  # kept
    k_rope = turn((x @ matrix(2, 1, {most_rope}, width).T)[:, :rope])  # kept, once for all heads
    c = torch.nn.functional.rms_norm(c, (latent,), eps=1e-6)
    k, v = (c @ matrix(s, heads, d_k, {most})[:, :latent].T * ({most} / latent) ** 0.5 for s in (3, 4))
    q = split(x @ matrix(0, heads, d_k + {most_rope}, width).T, heads)
    scores = q[..., :d_k] @ split(k, heads).mT + turn(q[..., d_k : d_k + rope]) @ k_rope.T
    return attend(scores * (d_k + rope) ** -0.5, split(v, heads), 5)


before, whole = layer({most})
weights, output = layer({latent})
'''

_ADDITIVE = """\
q, k, v = (split(x @ matrix(stream, heads, d_k, width).T, heads) for stream in (0, 1, 2))
vector = torch.stack([draw(201, head, d_k, 1) for head in range(heads)]) * d_k**-0.5  # one for each head
pairs = torch.tanh(q[:, :, None] + k[:, None])  # [heads, length, length, d_k]: why it is slow
before, whole = attend(q @ k.mT * d_k**-0.5, v, 3)  # the dot product
weights, output = attend((pairs @ vector[:, None])[..., 0], v, 3)
"""

_END = """\
error = ((output - whole).norm() / whole.norm()).item()
print(weights.shape, f"output error {error:.1%}")
"""


def layer_snippet(
    variant: str,
    *,
    heads: int,
    d_k: int,
    width: int,
    tokens: Sequence[str],
    seed: int,
    kv_heads: int = 1,
    method: str = "mean",
    latent: int = 512,
    rope: int = 64,
    whole: tuple[int, int] = (512, 64),
) -> str:
    """Give a script that imports torch alone and leaves ``before``, ``weights`` and ``error`` of a view.

    Args:
        variant: ``grouped``, ``mla`` or ``additive``.
        heads: Query heads.
        d_k: Width of a head; of MLA the part without the rotary one.
        width: Width of a token vector.
        tokens: The tokens that attend to each other, causally.
        seed: Seed of token vectors and weights.
        kv_heads: Heads of keys and values that remain, of ``grouped``.
        method: How they are made of those there were, a key of ``attnviz.conversion.METHODS``.
        latent: Numbers of the latent that remain, of ``mla``.
        rope: Numbers of the rotary key that remain.
        whole: What there was of both.

    Raises:
        ValueError: If the variant or the method is not known.
    """
    if variant == "mla":
        fields = {"most": whole[0], "most_rope": whole[1], "latent": latent}
        sizes, body = f"rope = {rope}\n", _filled(_LATENT, fields)
    elif variant == "grouped":
        if method not in _MERGES:
            raise ValueError(f"method must be one of {', '.join(_MERGES)}, got {method!r}")
        sizes, body = "", _filled(_GROUPED, {"merge": _MERGES[method], "kv_heads": kv_heads})
    elif variant == "additive":
        sizes, body = "", _ADDITIVE
    else:
        raise ValueError(f"variant must be one of grouped, mla, additive, got {variant!r}")
    head = (
        "import torch\n\n"
        f"seed, width, length = {seed}, {width}, {len(tokens)}\nheads, d_k = {heads}, {d_k}\n{sizes}"
        f"{vectors('x', tokens, 'length', seed, 0)}x = x[0]\n"
    )
    return f"{head}\n\n{_DRAW}\n\n{body}{_END}"


def _filled(text: str, fields: Mapping[str, object]) -> str:
    """Put values where their names stand in braces; the script's own braces stay."""
    for name, value in fields.items():
        text = text.replace("{" + name + "}", str(value))
    return text
