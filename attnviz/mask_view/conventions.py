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
from attnviz.mask_view.survey import Look, region
from attnviz.mask_view.view import View
from attnviz.masks import MASKS

# A small input is enough to see who gets what, and small enough to follow a slider.
SIDE = 32
FILL = -1e9


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


class Comparison(NamedTuple):
    """Hold the ways of one comparison, and the mask that the first of them had: bool ``[q_len, kv_len]``."""

    ways: tuple[Way, ...]
    allowed: np.ndarray

    def way(self, key: str) -> Way:
        """Give one of the ways."""
        return next(way for way in self.ways if way.key == key)


@lru_cache(maxsize=16)
def compare(view: View) -> Comparison:
    """Compute the comparison that the view asks for, on its first ``SIDE`` tokens.

    Args:
        view: The view; a selected cell, tiles and layers do not matter.
    """
    made = {"fill": _fills, "corner": _corners, "window": _windows, "meaning": _meanings, "floats": _floats}
    return made[view.convention](view)


def cut(view: View) -> Look:
    """Give the grid that is compared: the view's, cut to ``SIDE``."""
    return replace(view.look, q_len=min(view.length, SIDE), kv_len=min(view.key_length, SIDE))


def grid(view: View, look: Look) -> Tensor:
    """Give the mask that is compared, bool ``[q_len, kv_len]``; its last row is emptied where the view says so."""
    allowed = region(view.build_mask(), look, (0, look.q_len), (0, look.kv_len)).clone()
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


def _module(query: Tensor, key: Tensor, hidden: Tensor) -> Tensor:
    """Give the weights of ``torch.nn.MultiheadAttention`` with one head and projections that change nothing."""
    layer = torch.nn.utils.skip_init(torch.nn.MultiheadAttention, WIDTH, 1, bias=False, batch_first=True)
    layer.load_state_dict({"in_proj_weight": torch.eye(WIDTH).repeat(3, 1), "out_proj.weight": torch.eye(WIDTH)})
    return layer(query[0], key[0], key[0], attn_mask=hidden)[1][0]


def _filled(query: Tensor, key: Tensor, allowed: Tensor, value: float, dtype: torch.dtype) -> Tensor:
    """Give the weights of a softmax over scores in which hidden ones were overwritten."""
    scores = (query.to(dtype) @ key.to(dtype).mT)[0, 0] * WIDTH**-0.5
    return torch.softmax(scores.masked_fill(~allowed, value), dim=-1)


@torch.no_grad()
def _collect(ways: "dict[str, Callable[[], Tensor]]", ours: Tensor, allowed: Tensor) -> Comparison:
    """Run every way and hold it against this app's weights."""
    return Comparison(tuple(_run(key, way, ours, allowed) for key, way in ways.items()), allowed.numpy())


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


def _input(view: View, look: Look) -> tuple[Tensor, Tensor]:
    return query_and_key(look.q_len, look.kv_len, view.seed, 1)


def _fills(view: View) -> Comparison:
    look = cut(view)
    allowed, (query, key) = grid(view, look), _input(view, look)
    ways: dict[str, Callable[[], Tensor]] = {
        "ours": lambda: _ours(query, key, allowed),
        "sdpa": lambda: _fused(query, key, allowed),
        "mha": lambda: _module(query, key, ~allowed),
        "inf": lambda: _filled(query, key, allowed, float("-inf"), torch.float32),
        "e9": lambda: _filled(query, key, allowed, FILL, torch.float32),
        "e9_half": lambda: _filled(query, key, allowed, FILL, torch.float16),
        **dict(_least(query, key, allowed)),
    }
    return _collect(ways, _ours(query, key, allowed), allowed)


def _least(query: Tensor, key: Tensor, allowed: Tensor) -> Iterator[tuple[str, Callable[[], Tensor]]]:
    """Give the fill with the least finite number in three types."""
    for name in ("float32", "bfloat16", "float16"):
        dtype = getattr(torch, name)
        yield f"least_{name}", lambda dtype=dtype: _filled(query, key, allowed, torch.finfo(dtype).min, dtype)


def corner_look(view: View) -> Look:
    """Give a grid on which corners differ: the view's where it is no square, else the last half of its queries."""
    look = cut(view)
    return look if look.q_len != look.kv_len else replace(look, q_len=max(1, look.kv_len // 2))


def _corners(view: View) -> Comparison:
    look = corner_look(view)
    query, key = _input(view, look)
    grids = {
        align: region(view.build_mask(), replace(look, align=align), (0, look.q_len), (0, look.kv_len))
        for align in ("top_left", "bottom_right")
    }
    ours = _ours(query, key, grids["top_left"])
    ways: dict[str, Callable[[], Tensor]] = {
        "top_left": lambda: ours,
        "bottom_right": lambda: _ours(query, key, grids["bottom_right"]),
        "is_causal": lambda: _fused(query, key, None, is_causal=True),
    }
    return _collect(ways, ours, grids["top_left"])


def window_of(view: View) -> int:
    """Give the window that is compared: the mask's own, else 3."""
    return int(str(dict(view.mask_settings).get("window", 3)))


def _windows(view: View) -> Comparison:
    look, window = cut(view), window_of(view)
    query, key = _input(view, look)
    grids = [
        region(MASKS["sliding_window"].build(window=size), look, (0, look.q_len), (0, look.kv_len))
        for size in (window, window + 1)
    ]
    ours = _ours(query, key, grids[0])
    return _collect({"with_self": lambda: ours, "plus_self": lambda: _ours(query, key, grids[1])}, ours, grids[0])


def _meanings(view: View) -> Comparison:
    look = cut(view)
    allowed, (query, key) = grid(view, look), _input(view, look)
    ways: dict[str, Callable[[], Tensor]] = {
        "keep_sdpa": lambda: _fused(query, key, allowed),
        "drop_mha": lambda: _module(query, key, allowed),
        "turned_sdpa": lambda: _fused(query, key, ~allowed),
    }
    return _collect(ways, _ours(query, key, allowed), allowed)


def _floats(view: View) -> Comparison:
    look = cut(view)
    allowed, (query, key) = grid(view, look), _input(view, look)
    additive = torch.zeros(allowed.shape).masked_fill(~allowed, float("-inf"))
    ways: dict[str, Callable[[], Tensor]] = {
        "bool": lambda: _fused(query, key, allowed),
        "zero_one": lambda: _fused(query, key, allowed.float()),
        "additive": lambda: _fused(query, key, additive),
    }
    return _collect(ways, _ours(query, key, allowed), allowed)
