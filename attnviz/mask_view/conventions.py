"""What other conventions make of a mask, computed on the spot: ways to hide, corners, windows, what True means."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from attnviz.backends import BACKENDS
from attnviz.mask_view.scores import WIDTH, query_and_key
from attnviz.mask_view.survey import Look, Span, region
from attnviz.mask_view.view import View
from attnviz.masks import MASKS

# A small input is enough to see who gets what, and small enough to follow a slider.
SIDE = 32
FILL = -1e9
# Masks whose window is of the last keys before the query.
SLIDING = ("sliding_window", "attention_sinks")


class Way(NamedTuple):
    """Hold what one way gives.

    ``weights`` is float64 ``[q_len, kv_len]``, NaN where the way gives NaN, or None where it fails, with ``problem`` as
    it was said. ``difference`` is the weights less those of this app. ``most`` is the largest absolute difference among
    the finite cells, ``elsewhere`` the same in rows that have a key, ``nans`` the number of NaN cells.
    """

    key: str
    weights: np.ndarray | None
    difference: np.ndarray | None
    problem: str = ""
    most: float = 0.0
    elsewhere: float = 0.0
    nans: int = 0


class Part(NamedTuple):
    """Hold which queries and keys of a grid are compared; the last of either is the one before ``stop``."""

    look: Look
    rows: Span
    cols: Span

    @property
    def is_whole(self) -> bool:
        """It is the whole grid."""
        return (self.rows, self.cols) == ((0, self.look.q_len), (0, self.look.kv_len))

    @property
    def shape(self) -> tuple[int, int]:
        """Number of queries and keys."""
        return self.rows[1] - self.rows[0], self.cols[1] - self.cols[0]


class Comparison(NamedTuple):
    """Hold the ways of one comparison, and the mask that the first of them had: bool ``[q_len, kv_len]``.

    ``part`` is where in its grid that mask stands.
    """

    ways: tuple[Way, ...]
    allowed: np.ndarray
    part: Part

    def way(self, key: str) -> Way:
        """Give one of the ways."""
        return next(way for way in self.ways if way.key == key)


@lru_cache(maxsize=16)
def compare(view: View) -> Comparison:
    """Compute the comparison that the view asks for, on at most ``SIDE`` of its queries and keys.

    Args:
        view: The view; a selected cell, tiles and layers do not matter.
    """
    made = {"fill": _fills, "corner": _corners, "window": _windows, "meaning": _meanings, "floats": _floats}
    return made[view.convention](view)


def part_of(view: View) -> Part:
    """Give the part of the view's grid that is compared: its first tokens, or the last where those tell more.

    The last ones where the grid is aligned at that end, and where the first ones hide nothing but the last do.
    """
    at_end = view.align == "bottom_right" and not view.is_square
    part = _part(view.look, at_end)
    if at_end or part.is_whole or not _hides_nothing(view, part):
        return part
    last = _part(view.look, True)
    return part if _hides_nothing(view, last) else last


def _part(look: Look, at_end: bool) -> Part:
    sizes = (look.q_len, look.kv_len)
    rows, cols = ((max(0, size - SIDE), size) if at_end else (0, min(size, SIDE)) for size in sizes)
    return Part(look, rows, cols)


def _hides_nothing(view: View, part: Part) -> bool:
    return bool(region(view.build_mask(), *part).all())


def grid(view: View, part: Part) -> Tensor:
    """Give the mask that is compared, bool ``[q_len, kv_len]``; its last row is emptied where the view says so."""
    allowed = region(view.build_mask(), *part).clone()
    if view.empty:
        allowed[-1] = False
    return allowed


def _ours(query: Tensor, key: Tensor, allowed: Tensor) -> Tensor:
    """Give this app's weights in float64, ``[q_len, kv_len]``."""
    query, key = query.double(), key.double()
    weights = BACKENDS["eager"].attend(query, key, key, allowed=allowed).weights
    assert weights is not None
    return weights[0, 0]


def _fused(query: Tensor, key: Tensor, mask: Tensor | None, *, is_causal: bool = False) -> Tensor:
    """Give the weights that torch's own call uses: with values that are a unit matrix its output is the weights."""
    values = torch.eye(key.shape[2], dtype=query.dtype)[None, None]
    return scaled_dot_product_attention(query, key, values, attn_mask=mask, is_causal=is_causal)[0, 0]


def _module(query: Tensor, key: Tensor, hidden: Tensor, *, need_weights: bool = True) -> Tensor:
    """Give the weights that ``torch.nn.MultiheadAttention`` uses, with one head and projections that change nothing.

    Without ``need_weights`` it gives none: the values are a unit matrix, and its output is then the weights. It has to
    be as wide as there are keys for that; the query makes up for the scale of the wider head.
    """
    keys = key.shape[2]
    width = max(WIDTH, keys)
    wide = [torch.nn.functional.pad(given[0], (0, width - WIDTH)) for given in (query * (width / WIDTH) ** 0.5, key)]
    layer = torch.nn.utils.skip_init(torch.nn.MultiheadAttention, width, 1, bias=False, batch_first=True)
    layer.load_state_dict({"in_proj_weight": torch.eye(width).repeat(3, 1), "out_proj.weight": torch.eye(width)})
    output, weights = layer(*wide, torch.eye(keys, width)[None], attn_mask=hidden, need_weights=need_weights)
    return weights[0] if need_weights else output[0, :, :keys]


def _filled(query: Tensor, key: Tensor, allowed: Tensor, value: float, dtype: torch.dtype) -> Tensor:
    """Give the weights of a softmax over scores in which hidden ones were overwritten."""
    scores = (query.to(dtype) @ key.to(dtype).mT)[0, 0] * WIDTH**-0.5
    return torch.softmax(scores.masked_fill(~allowed, value), dim=-1)


@torch.no_grad()
def _collect(ways: "dict[str, Callable[[], Tensor]]", ours: Tensor, allowed: Tensor, part: Part) -> Comparison:
    """Run every way and hold it against this app's weights."""
    return Comparison(tuple(_run(key, way, ours, allowed) for key, way in ways.items()), allowed.numpy(), part)


def _run(key: str, way: Callable[[], Tensor], ours: Tensor, allowed: Tensor) -> Way:
    try:
        weights = way().double()
    except RuntimeError as error:
        # A way that fails is a result too: its words are shown.
        return Way(key, None, None, str(error).splitlines()[0])
    difference = weights - ours
    finite = torch.isfinite(difference)
    sizes = difference.abs().masked_fill(~finite, 0.0)
    rows = allowed.any(-1)
    return Way(
        key,
        weights.numpy(),
        difference.numpy(),
        "",
        float(sizes.max()),
        float(sizes[rows].max()) if bool(rows.any()) else 0.0,
        int((~finite).sum()),
    )


def _input(view: View, part: Part) -> tuple[Tensor, Tensor]:
    return query_and_key(*part.shape, view.seed, 1)


def _fills(view: View) -> Comparison:
    part = part_of(view)
    allowed, (query, key) = grid(view, part), _input(view, part)
    ways: dict[str, Callable[[], Tensor]] = {
        "ours": lambda: _ours(query, key, allowed),
        "sdpa": lambda: _fused(query, key, allowed),
        "mha": lambda: _module(query, key, ~allowed),
        "mha_fast": lambda: _module(query, key, ~allowed, need_weights=False),
        "inf": lambda: _filled(query, key, allowed, float("-inf"), torch.float32),
        "e9": lambda: _filled(query, key, allowed, FILL, torch.float32),
        "e9_half": lambda: _filled(query, key, allowed, FILL, torch.float16),
        **dict(_least(query, key, allowed)),
    }
    return _collect(ways, _ours(query, key, allowed), allowed, part)


def _least(query: Tensor, key: Tensor, allowed: Tensor) -> Iterator[tuple[str, Callable[[], Tensor]]]:
    """Give the fill with the least finite number in three types."""
    for name in ("float32", "bfloat16", "float16"):
        dtype = getattr(torch, name)
        yield f"least_{name}", lambda dtype=dtype: _filled(query, key, allowed, torch.finfo(dtype).min, dtype)


def corner_part(view: View) -> Part:
    """Give a grid of its own on which corners differ: of the view's shape where that is no square, else half as high.

    A corner is one of the grid: a part of a longer one would not have both, so the mask is built at this size.
    """
    rows, cols = min(view.length, SIDE), min(view.key_length, SIDE)
    rows = rows if rows != cols else max(1, cols // 2)
    return Part(replace(view.look, q_len=rows, kv_len=cols), (0, rows), (0, cols))


def _corners(view: View) -> Comparison:
    part = corner_part(view)
    query, key = _input(view, part)
    grids = {
        align: region(view.build_mask(), replace(part.look, align=align), part.rows, part.cols)
        for align in ("top_left", "bottom_right")
    }
    ours = _ours(query, key, grids["top_left"])
    ways: dict[str, Callable[[], Tensor]] = {
        "top_left": lambda: ours,
        "bottom_right": lambda: _ours(query, key, grids["bottom_right"]),
        "is_causal": lambda: _fused(query, key, None, is_causal=True),
    }
    return _collect(ways, ours, grids["top_left"], part)


def window_of(view: View) -> int:
    """Give the window that is compared: the mask's own where it is one of past keys, else 3."""
    own = dict(view.mask_settings) if view.mask in SLIDING else {}
    return int(str(own.get("window", 3)))


def window_part(view: View) -> Part:
    """Give the part of the view's grid on which windows are compared."""
    return _part(view.look, view.align == "bottom_right" and not view.is_square)


def _windows(view: View) -> Comparison:
    part, window = window_part(view), window_of(view)
    query, key = _input(view, part)
    grids = [region(MASKS["sliding_window"].build(window=size), *part) for size in (window, window + 1)]
    ours = _ours(query, key, grids[0])
    ways: dict[str, Callable[[], Tensor]] = {
        "with_self": lambda: ours,
        "plus_self": lambda: _ours(query, key, grids[1]),
    }
    return _collect(ways, ours, grids[0], part)


def _meanings(view: View) -> Comparison:
    part = part_of(view)
    allowed, (query, key) = grid(view, part), _input(view, part)
    ways: dict[str, Callable[[], Tensor]] = {
        "keep_sdpa": lambda: _fused(query, key, allowed),
        "drop_mha": lambda: _module(query, key, allowed),
        "turned_sdpa": lambda: _fused(query, key, ~allowed),
    }
    return _collect(ways, _ours(query, key, allowed), allowed, part)


def _floats(view: View) -> Comparison:
    part = part_of(view)
    allowed, (query, key) = grid(view, part), _input(view, part)
    additive = torch.zeros(allowed.shape).masked_fill(~allowed, float("-inf"))
    ways: dict[str, Callable[[], Tensor]] = {
        "bool": lambda: _fused(query, key, allowed),
        "zero_one": lambda: _fused(query, key, allowed.float()),
        "additive": lambda: _fused(query, key, additive),
    }
    return _collect(ways, _ours(query, key, allowed), allowed, part)
