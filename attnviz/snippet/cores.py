"""The lines of the attention itself, one way to compute it each: with every matrix, by torch's call, tile by tile."""

from typing import NamedTuple

from attnviz.mistakes import Mistake
from attnviz.score_mods import ScoreMod

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


class Lines(NamedTuple):
    """Hold what the lines depend on.

    ``hidden``: ``allowed`` was made and is to be used. ``shared``: query heads share KV heads. ``is_causal``: torch's
    own causal flag stands for the mask. ``is_half``: the dtype is narrower than float32. ``mod``: change of the scores.
    ``mistake``: what is done wrong on purpose; only the lines that keep every matrix can.
    """

    hidden: bool
    shared: bool
    is_causal: bool
    is_half: bool
    mod: ScoreMod
    mistake: Mistake


def indices(shift: int) -> str:
    """Give the lines that make the positions of queries and keys; query 0 stands at ``shift``."""
    at = f" + {shift}" if shift > 0 else f" - {-shift}" if shift else ""
    return f"q_idx, kv_idx = torch.arange(q_len)[:, None]{at}, torch.arange(kv_len)\n"


def allowed(code: str, per_head: bool) -> str:
    """Give the lines that make ``allowed``, True where a query may attend to a key."""
    *before, rule = code.split("\n")
    lines = ["head = torch.arange(heads)[:, None, None]"] if per_head else []
    shape = "heads, q_len, kv_len" if per_head else "q_len, kv_len"
    lines += [*before, f"allowed = ({rule}).expand({shape})  # True = may attend"]
    return "\n".join(lines) + "\n"


def bias(code: str) -> str:
    """Give the lines that make ``bias``, ``[heads, q_len, kv_len]``."""
    return f"distance = kv_idx - q_idx\n{code}bias = bias.to(q.dtype)\n"


def dropout(share: float) -> str:
    """Give the lines that drop weights."""
    return _DROPOUT.format(dropout=share)


def _repeat(shared: bool) -> str:
    return "k, v = (tensor.repeat_interleave(heads // kv_heads, dim=1) for tensor in (k, v))\n" if shared else ""


def _change(mod: ScoreMod, source: str, name: str, bias: str) -> str:
    """Give the lines that turn the scores ``source`` into ``name``."""
    lines = []
    if mod.scale != 1.0:
        lines.append(f"{source} * {mod.scale!r}  # temperature {1 / mod.scale:g}")
    if mod.softcap is not None:
        lines.append(f"{mod.softcap!r} * torch.tanh({{}} / {mod.softcap!r})")
    if mod.bias is not None:
        lines.append(f"{{}} + {bias}")
    said = ""
    for line in lines:
        said += f"{name} = {line.format(source)}\n"
        source = name
    return said


def eager(lines: Lines) -> str:
    """Give the lines that keep every matrix, with the mistake in its line."""
    mistake, note = lines.mistake, f"  # {lines.mistake.comment}\n"
    scaled = "scaled = scores * scale\n" if mistake.scale_at == "before" else f"scaled = scores{note}"
    said = _repeat(lines.shared) + "scores = q @ k.mT\n" + scaled
    change = _change(lines.mod, "scaled", "changed", "bias")
    said, last = said + change, "changed" if change else "scaled"
    last = f'{last}.masked_fill(~allowed, float("-inf"))' if lines.hidden else last
    said += (
        f"weights = torch.softmax({last}, dim=-2){note}"
        if mistake.by_column
        else (f"weights = torch.softmax({last}, dim=-1)\n")
    )
    if lines.hidden:
        said += "weights = weights.masked_fill(~allowed, 0.0)  # a row without a key: 0 instead of NaN\n"
    if mistake.scale_at == "after":
        said += f"weights = weights * scale{note}"
    return said + "output = weights @ v\n"


def sdpa(lines: Lines) -> str:
    """Give torch's fused call, which takes a bias as its mask; it has no cap, so that is written out."""
    if lines.mod.softcap is not None:
        return "# scaled_dot_product_attention has no cap: its steps are written out\n" + eager(lines)
    mask = ", attn_mask=allowed" if lines.hidden else ", is_causal=True" if lines.is_causal else ""
    if lines.mod.bias is not None:
        hide = '.masked_fill(~allowed, float("-inf"))' if lines.hidden else ""
        mask = f", attn_mask=bias{hide}[None]"
    group = ", enable_gqa=True" if lines.shared else ""
    scale = "scale" if lines.mod.scale == 1.0 else f"scale * {lines.mod.scale!r}"
    call = f"output = torch.nn.functional.scaled_dot_product_attention(q, k, v{mask}, scale={scale}{group})\n"
    empty = lines.hidden and lines.mod.bias is not None
    return call + ("output = output.masked_fill(~allowed.any(-1, keepdim=True), 0.0)\n" if empty else "")


def flash(lines: Lines) -> str:
    """Give the loop over tiles."""
    change = _change(lines.mod, "tile", "tile", "bias[..., keys]")
    hide = "".join(f"    {line}\n" for line in change.splitlines())
    hide += '    tile = tile.masked_fill(~allowed[..., keys], float("-inf"))\n' if lines.hidden else ""
    wide = ".float()" if lines.is_half else ""
    q, k, v = (f"{name}{wide}" for name in ("q", "k[..., keys, :]", "v[..., keys, :]"))
    return _repeat(lines.shared) + _TILES.format(hide=hide, q=q, k=k, v=v)
