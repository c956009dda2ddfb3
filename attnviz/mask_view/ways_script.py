"""A comparison of conventions as a script of plain PyTorch: the same mask, the same input, every way run."""

import textwrap
from collections.abc import Mapping
from types import MappingProxyType

from attnviz.mask_view.conventions import Part, corner_part, part_of, window_of, window_part
from attnviz.mask_view.export import rules
from attnviz.mask_view.scores import WIDTH
from attnviz.mask_view.view import View
from attnviz.masks import MASKS, offset

_INPUT = """\
q = torch.randn(1, {rows}, {width}, generator=torch.Generator().manual_seed({seed}))[None]
k = torch.randn(1, {cols}, {width}, generator=torch.Generator().manual_seed({seed} + 1))[None]
"""
_PLAIN = '''

def plain(allowed, fill=float("-inf"), dtype=torch.float32):
    """Softmax over scores in which the hidden ones are overwritten."""
    scores = (q.to(dtype) @ k.to(dtype).mT)[0, 0] * {width}**-0.5
    return torch.softmax(scores.masked_fill(~allowed, fill), -1)


def ours(allowed):
    """This app: float64, and a row without a key is 0 instead of NaN."""
    return plain(allowed, dtype=torch.float64).nan_to_num(0.0)
'''
_FUSED = '''

def fused(mask, **options):
    """What SDPA weighs with: the values are a unit matrix, so that its output is the weights."""
    values = torch.eye(k.shape[2])[None, None]
    return torch.nn.functional.scaled_dot_product_attention(q, k, values, attn_mask=mask, **options)[0, 0]
'''
_MODULE = '''

def module(hidden, need_weights=True):
    """What nn.MultiheadAttention weighs with; True hides. Without need_weights its output is, as in fused."""
    keys = k.shape[2]
    width = max({width}, keys)  # as wide as the values; the query makes up for the scale
    layer = torch.nn.MultiheadAttention(width, 1, bias=False, batch_first=True)
    layer.load_state_dict({{"in_proj_weight": torch.eye(width).repeat(3, 1), "out_proj.weight": torch.eye(width)}})
    wide = (torch.nn.functional.pad(x[0], (0, width - {width})) for x in (q * (width / {width}) ** 0.5, k))
    output, weights = layer(*wide, torch.eye(keys, width)[None], attn_mask=hidden, need_weights=need_weights)
    return weights[0] if need_weights else output[0, :, :keys]
'''
_FILLS = """
    "this app": lambda: ours(allowed),
    "SDPA": lambda: fused(allowed),
    "nn.MultiheadAttention": lambda: module(~allowed),
    "nn.MultiheadAttention, need_weights=False": lambda: module(~allowed, need_weights=False),
    "softmax, -inf": lambda: plain(allowed),
    "-1e9, float32": lambda: plain(allowed, -1e9),
    "-1e9, float16": lambda: plain(allowed, -1e9, torch.float16),
    "finfo.min, float32": lambda: plain(allowed, torch.finfo(torch.float32).min),
    "finfo.min, bfloat16": lambda: plain(allowed, torch.finfo(torch.bfloat16).min, torch.bfloat16),
    "finfo.min, float16": lambda: plain(allowed, torch.finfo(torch.float16).min, torch.float16),
"""
_MEANINGS = """
    "SDPA: True keeps": lambda: fused(allowed),
    "nn.MultiheadAttention: True hides": lambda: module(allowed),
    "SDPA, mask turned around": lambda: fused(~allowed),
"""
_FLOATS = """
    "bool mask": lambda: fused(allowed),
    "0/1 float mask": lambda: fused(allowed.float()),
    "0/-inf float mask": lambda: fused(torch.zeros(allowed.shape).masked_fill(~allowed, float("-inf"))),
"""
_CORNERS = """
    "top-left": lambda: ours(allowed),
    "bottom-right": lambda: ours(bottom_right),
    "torch is_causal=True": lambda: fused(None, is_causal=True),
"""
_WINDOWS = """
    "w keys, self included": lambda: ours(allowed),
    "w back plus self": lambda: ours(plus_self),
"""
_RUN = """\
truth, given = ours(allowed), {}
with torch.no_grad():
    for name, way in ways.items():
        try:
            given[name] = way().double()
        except RuntimeError as error:
            print(f"{name:>42}: fails: {error}")
            continue
        apart = given[name] - truth
        most = apart[apart.isfinite()].abs().max() if apart.isfinite().any() else 0.0
        print(f"{name:>42}: {int(given[name].isnan().sum())} NaN cells, largest difference {most:.2e}")
"""
# Each comparison's functions and ways.
_PARTS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "fill": (_PLAIN + _FUSED + _MODULE, _FILLS),
        "corner": (_PLAIN + _FUSED, _CORNERS),
        "window": (_PLAIN, _WINDOWS),
        "meaning": (_PLAIN + _FUSED + _MODULE, _MEANINGS),
        "floats": (_PLAIN + _FUSED, _FLOATS),
    }
)


def ways_script(view: View) -> str:
    """Give a script that runs the ways of the view's comparison; ``given`` holds the weights of those that work.

    It needs torch alone.
    """
    grids, part = _grids(view)
    functions, ways = _PARTS[view.convention]
    rows, cols = part.shape
    made = _INPUT.format(rows=rows, cols=cols, width=WIDTH, seed=view.seed)
    return f"import torch\n\n{grids}{made}{functions.format(width=WIDTH)}\n\nways = {{{ways}}}\n{_RUN}"


def _grids(view: View) -> tuple[str, Part]:
    """Give the lines that make ``allowed`` and what it is compared with, and where they stand in the view's grid."""
    if view.convention == "corner":
        part = corner_part(view)
        return _rule(view, part) + "".join(
            _grid(part, name, align) for name, align in (("allowed", "top_left"), ("bottom_right", "bottom_right"))
        ), part
    if view.convention == "window":
        part, window = window_part(view), window_of(view)
        lines = [
            f"q_idx, kv_idx = {_indices(part, view.align)}",
            *(f"{name} = {MASKS['sliding_window'].code(window=size)}" for name, size in
              (("allowed", window), ("plus_self", window + 1))),
        ]  # fmt: skip
        return "\n".join(lines) + "\n", part
    part = part_of(view)
    emptied = "allowed[-1] = False  # a row without a key\n" if view.empty else ""
    return f"{_rule(view, part)}{_grid(part, 'allowed', view.align)}{emptied}", part


def _rule(view: View, part: Part) -> str:
    lines, made = rules(view)
    head = [f"head = torch.tensor({view.head})"] if view.build_mask().per_head else []
    body = textwrap.indent("\n".join([*head, *lines, f"return {made}"]), "    ")
    return f"kv_len = {part.look.kv_len}\n\n\ndef rule(q_idx, kv_idx):  # True = may attend\n{body}\n\n\n"


def _grid(part: Part, name: str, align: str) -> str:
    return f"{name} = rule({_indices(part, align)}).expand{part.shape}.clone()\n"


def _indices(part: Part, align: str) -> str:
    """Give the positions of the queries and of the keys."""
    shift = offset(part.look.q_len, part.look.kv_len, align)
    (top, bottom), (left, right) = part.rows, part.cols
    return f"torch.arange({top + shift}, {bottom + shift})[:, None], torch.arange({left}, {right})[None]"
