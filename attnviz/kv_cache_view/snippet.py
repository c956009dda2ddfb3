"""The decoding of a view as a script of plain PyTorch: a cache that grows, and nothing of attnviz in it."""

from attnviz.inputs import token_seed
from attnviz.kv_cache_view.decode import layer_of
from attnviz.kv_cache_view.view import Scene
from attnviz.view_run import WIDTH

_HEAD = '''\
import torch

seed, width, prompt = {seed}, {width}, {prompt}
{sizes}
words = {words!r}
seeds = {seeds!r}


def draw(stream, heads, size, other, merges=False):
    """Draw a projection head by head, each from a seed of its own."""
    rows = []
    for head in range(heads):
        place = (seed + 1) * 0x9E3779B97F4A7C15 + stream * 0xC2B2AE3D27D4EB4F + head * 0x165667B19E3779F9
        mixed = ((place ^ (place >> 29)) * 0xBF58476D1CE4E5B9) & (2**64 - 1)
        count, generator = size * other, torch.Generator().manual_seed(mixed >> 32)
        rows.append(torch.randn(-(-count // 16) * 16, generator=generator)[:count].view(size, other))
    matrix = torch.cat(rows) if merges else torch.cat(rows).T
    return matrix * matrix.shape[0] ** -0.5


def turn(x, start):
    """Rotate pairs of entries by their token's place (RoPE)."""
    half = x.shape[-1] // 2
    rates = torch.exp(torch.arange(half).double() * (-9.210340371976184 / max(half, 1)))
    angles = torch.arange(start, start + x.shape[-2])[:, None] * rates
    cos, sin, a, b = angles.cos().float(), angles.sin().float(), x[..., :half], x[..., half : 2 * half]
    return torch.cat((a * cos - b * sin, b * cos + a * sin, x[..., 2 * half :]), dim=-1)

'''

_GROUPED = '''
w_q, w_k, w_v = draw(0, heads, d_k, width), draw(1, kv_heads, d_k, width), draw(2, kv_heads, d_k, width)
w_o = draw(3, heads, d_k, width, merges=True)


def step(x, k_cache, v_cache):
    """Take in new tokens [1, new, width]; give their output and the longer cache."""
    past, new = k_cache.shape[2], x.shape[1]
    q = turn((x @ w_q).unflatten(2, (heads, d_k)).transpose(1, 2), past)
    k = turn((x @ w_k).unflatten(2, (kv_heads, d_k)).transpose(1, 2), past)
    v = (x @ w_v).unflatten(2, (kv_heads, d_k)).transpose(1, 2)
    k_cache, v_cache = torch.cat((k_cache, k), dim=2), torch.cat((v_cache, v), dim=2)  # old keys stay as they are
    q_idx, kv_idx = torch.arange(past, past + new)[:, None], torch.arange(past + new)
    allowed = {rule}  # bottom-right: the last query sees the last key
    # Query head i reads KV head i // (heads // kv_heads); no key is copied.
    q = q.unflatten(1, (kv_heads, heads // kv_heads))
    scores = q @ k_cache[:, :, None].mT * d_k**-0.5
    weights = scores.masked_fill(~allowed, float("-inf")).softmax(-1)
    output = (weights @ v_cache[:, :, None]).flatten(1, 2).transpose(1, 2).flatten(2) @ w_o
    return output, weights.flatten(1, 2), k_cache, v_cache

'''

_LATENT = '''
w_q, w_c = draw(0, heads, d_k + rope, width), draw(1, 1, rank, width)
w_r = draw(2, 1, rope, width)
w_k, w_v = draw(3, heads, d_k, rank), draw(4, heads, d_k, rank)
w_o = draw(5, heads, d_k, width, merges=True)


def step(x, c_cache, r_cache):
    """Take in new tokens [1, new, width]; give their output and the longer cache of latents and rotary keys."""
    past, new = c_cache.shape[1], x.shape[1]
    plain, turned = (x @ w_q).unflatten(2, (heads, d_k + rope)).transpose(1, 2).split((d_k, rope), dim=-1)
    c = torch.nn.functional.rms_norm(x @ w_c, (rank,), eps=1e-6)
    c_cache, r_cache = torch.cat((c_cache, c), dim=1), torch.cat((r_cache, turn(x @ w_r, past)), dim=1)
    q_idx, kv_idx = torch.arange(past, past + new)[:, None], torch.arange(past + new)
    allowed = {rule}  # bottom-right: the last query sees the last key
    # Absorbed: the query goes to the latents, no key and no value of a past token is ever made.
    q = torch.einsum("bhqn,rhn->bhqr", plain, w_k.unflatten(1, (heads, d_k)))
    scores = (q @ c_cache[:, None].mT + turn(turned, past) @ r_cache[:, None].mT) * (d_k + rope) ** -0.5
    weights = scores.masked_fill(~allowed, float("-inf")).softmax(-1)
    values = torch.einsum("bhqr,rhv->bhqv", weights @ c_cache[:, None], w_v.unflatten(1, (heads, d_k)))
    return values.transpose(1, 2).flatten(2) @ w_o, weights, c_cache, r_cache

'''

_RUN = """
table = {{word: torch.randn(width, generator=torch.Generator().manual_seed(s)) for word, s in seeds.items()}}
x = torch.stack([table[word] for word in words])[None]
cache = {empty}
outputs, rows = [], []
for piece in x.split([prompt] + [1] * (len(words) - prompt), dim=1):  # the prompt at once, then token by token
    output, weights, *cache = step(piece, *cache)
    outputs.append(output)
    rows.append(weights)
    print(piece.shape[1], "new, cache holds", sum(part.numel() for part in cache), "numbers")
output = torch.cat(outputs, dim=1)
whole = step(x, *{empty})[0]  # without a cache: everything at once
print("largest difference:", float((output - whole).abs().max()))
"""

_RULES = {
    "full": "kv_idx <= q_idx",
    "sliding_window": "(kv_idx <= q_idx) & (kv_idx > q_idx - {window})",
    "attention_sinks": "(kv_idx <= q_idx) & ((kv_idx > q_idx - {window}) | (kv_idx < {sinks}))",
}


def decode_snippet(scene: Scene) -> str:
    """Give a script that decodes the sentence with a cache; ``output``, ``rows`` and ``cache`` are the page's.

    A layout that drops tokens is written as the mask that gives the same numbers; the cache is kept as computed.
    """
    config, _, _ = layer_of(scene)
    if scene.variant == "mla":
        sizes = f"heads, d_k, rope, rank = {scene.heads}, {scene.d_k}, {config.qk_rope_head_dim}, {config.kv_lora_rank}"
        body, empty = _LATENT, "torch.zeros(1, 0, rank), torch.zeros(1, 0, rope)"
    else:
        sizes = f"heads, kv_heads, d_k = {scene.heads}, {scene.kv_heads}, {scene.d_k}"
        body, empty = _GROUPED, "torch.zeros(1, kv_heads, 0, d_k), torch.zeros(1, kv_heads, 0, d_k)"
    head = _HEAD.format(
        seed=scene.seed, width=WIDTH, prompt=scene.prompt, sizes=sizes, words=list(scene.tokens),
        seeds={token: token_seed(token, scene.seed) for token in dict.fromkeys(scene.tokens)},
    )  # fmt: skip
    rule = _RULES[scene.layout].format(window=scene.window, sinks=scene.sinks)
    return head + body.format(rule=rule) + _RUN.format(empty=f"({empty})")
