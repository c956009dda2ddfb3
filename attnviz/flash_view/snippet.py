"""The flash page's view as a script of plain PyTorch: the same walk, tile by tile, and the followed row's course."""

from attnviz.flash_view.view import View
from attnviz.flash_view.walk import now
from attnviz.masks import MASKS, offset
from attnviz.snippet import cores

_SCRIPT = """\
import torch

q_len, kv_len, d_k, seed = {q_len}, {kv_len}, {d_k}, {seed}
rows, cols = {rows}, {cols}  # queries and keys of a tile
followed = {followed}  # the query whose course is kept
generator = torch.Generator().manual_seed(seed)
q, k, v = torch.randn(q_len + 2 * kv_len, d_k, generator=generator).split((q_len, kv_len, kv_len))
{mask}
output, logsumexp = torch.zeros(q_len, d_k), torch.full((q_len,), float("-inf"))
visited, course = [], []
for top in range(0, q_len, rows):
    block = slice(top, top + rows)
    query = q[block] * {scale!r}
    maximum = torch.full((len(query), 1), float("-inf"))
    total, running = torch.zeros(len(query), 1), torch.zeros(len(query), d_k)
    for left in range(0, kv_len, cols):
        tile = slice(left, left + cols)
        if not allowed[block, tile].any():
            continue  # never loaded
        scores = (query @ k[tile].T).masked_fill(~allowed[block, tile], float("-inf"))
        larger = torch.maximum(maximum, scores.amax(-1, keepdim=True))
        # A row that has seen no key yet: -inf - -inf would be NaN.
        origin = larger.masked_fill(larger.isinf(), 0.0)
        shrink, scores = torch.exp(maximum - origin), torch.exp(scores - origin)
        total = total * shrink + scores.sum(-1, keepdim=True)
        running = running * shrink + scores @ v[tile]
        maximum = larger
        visited.append((top // rows, left // cols))
        if top <= followed < top + rows:
            at = followed - top
            course.append((maximum[at].item(), total[at].item(), running[at] / total[at].clamp_min(1e-30)))
    output[block] = running / total.masked_fill(total == 0, 1.0)
    logsumexp[block] = (maximum + total.log())[:, 0]

scores = (q @ k.T * {scale!r}).masked_fill(~allowed, float("-inf"))
eager = torch.softmax(scores, -1).nan_to_num(0.0) @ v  # a row without a key: 0
print(f"{{len(visited)}} tiles; largest difference from eager: {{(output - eager).abs().max():.2g}}")
"""


def flash_snippet(view: View) -> str:
    """Give a script that imports torch alone.

    It leaves ``visited`` (the tiles in their order), ``course`` (maximum, sum and output of the followed row after each
    tile), ``output`` and ``logsumexp``.
    """
    kind = MASKS[view.mask]
    lines = cores.indices(offset(view.length, view.key_length, view.align))
    lines += "head = torch.tensor(0)\n" if view.build_mask().per_head else ""
    lines += cores.allowed(kind.code(**dict(view.mask_settings)), False)
    return _SCRIPT.format(
        q_len=view.length, kv_len=view.key_length, d_k=view.d_k, seed=view.seed, rows=view.tile_rows,
        cols=view.tile_cols, followed=now(view).query, scale=view.scale, mask=lines,
    )  # fmt: skip
