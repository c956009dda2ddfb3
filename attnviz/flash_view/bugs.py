"""Tiled attention as it goes wrong: two versions that give NaN where a tile is masked, and the right one.

The three functions are shown on the page as they stand here, and run as they stand here: the walk of one head, all
queries at once, without skipping, which is how such code is usually written.
"""

import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from attnviz.flash_view.view import View
from attnviz.flash_view.walk import tensors
from attnviz.masks import MASKS, dense
from attnviz.registry import Registry
from attnviz.text import Text

# So many queries and keys at most.
MOST = 512
# Masks to try where a fault sleeps.
USUAL = ("causal", "sliding_window", "document")


def _own_maximum(q, k, v, allowed, size):
    output = torch.zeros(len(q), v.shape[1])
    maximum = torch.full((len(q), 1), -torch.inf)
    total = torch.zeros(len(q), 1)
    for start in range(0, len(k), size):
        tile = slice(start, start + size)
        scores = q @ k[tile].T
        scores[~allowed[:, tile]] = -torch.inf
        highest = scores.amax(-1, True)
        larger = torch.maximum(maximum, highest)
        parts = torch.exp(scores - highest)
        here = torch.exp(highest - larger)
        shrink = torch.exp(maximum - larger)
        total = total * shrink + parts.sum(-1, True) * here
        output = output * shrink + parts @ v[tile] * here
        maximum = larger
    return output / total.clamp_min(1e-30)


def _first_tile(q, k, v, allowed, size):
    output = torch.zeros(len(q), v.shape[1])
    maximum = torch.full((len(q), 1), -torch.inf)
    total = torch.zeros(len(q), 1)
    for start in range(0, len(k), size):
        tile = slice(start, start + size)
        scores = q @ k[tile].T
        scores[~allowed[:, tile]] = -torch.inf
        highest = scores.amax(-1, True)
        larger = torch.maximum(maximum, highest)
        parts = torch.exp(scores - larger)
        shrink = torch.exp(maximum - larger)
        total = total * shrink + parts.sum(-1, True)
        output = output * shrink + parts @ v[tile]
        maximum = larger
    return output / total.clamp_min(1e-30)


def _right(q, k, v, allowed, size):
    output = torch.zeros(len(q), v.shape[1])
    maximum = torch.full((len(q), 1), -torch.inf)
    total = torch.zeros(len(q), 1)
    for start in range(0, len(k), size):
        tile = slice(start, start + size)
        scores = q @ k[tile].T
        scores[~allowed[:, tile]] = -torch.inf
        highest = scores.amax(-1, True)
        larger = torch.maximum(maximum, highest)
        origin = larger.masked_fill(larger.isinf(), 0.0)
        parts = torch.exp(scores - origin)
        shrink = torch.exp(maximum - origin)
        total = total * shrink + parts.sum(-1, True)
        output = output * shrink + parts @ v[tile]
        maximum = larger
    return output / total.clamp_min(1e-30)


Attention = Callable[[Tensor, Tensor, Tensor, Tensor, int], Tensor]


@dataclass(frozen=True)
class Bug:
    """Describe one version that goes wrong.

    Args:
        key: Plain key.
        label: What it is called before anyone has found it.
        run: The code.
        faults: Text of the lines that can make a NaN → what a row must meet for it: ``tile``, one of its tiles masked
            whole, or ``start``, its first tile masked whole.
        why: What happens there, and what the right line does.
    """

    key: str
    label: Text
    run: Attention
    faults: Mapping[str, str]
    why: Text

    def lines(self, met: Collection[str] = ("tile", "start")) -> tuple[int, ...]:
        """Give the numbers, counted from 1, of the lines that make a NaN where rows meet these."""
        return tuple(number for number, line in enumerate(code(self.run), 1) if self.faults.get(line.strip()) in met)


BUGS: Registry[Bug] = Registry(
    "bug",
    (
        Bug(
            "own",
            Text("Version A", "版本 A"),
            _own_maximum,
            {
                "parts = torch.exp(scores - highest)": "tile",
                "here = torch.exp(highest - larger)": "start",
                "shrink = torch.exp(maximum - larger)": "start",
            },
            Text(
                "Where a row's whole tile is masked, the tile's own maximum is −inf, and −inf − (−inf) is NaN. A "
                "causal mask does that in every tile behind the row's last key. The right code measures from the "
                "running maximum, and from 0 while there is none.",
                "如果某一行在一个块里全被屏蔽，这个块自己的最大值就是 −inf，而 −inf − (−inf) 得到 NaN。"
                "因果掩码下，排在该行最后一个可见键之后的块都是这样。"
                "正确的代码以当前最大值为基准；还没有最大值时以 0 为基准。",
            ),
        ),
        Bug(
            "first",
            Text("Version B", "版本 B"),
            _first_tile,
            {
                "parts = torch.exp(scores - larger)": "start",
                "shrink = torch.exp(maximum - larger)": "start",
            },
            Text(
                "The running maximum is −inf until a row has seen its first key, and −inf − (−inf) is NaN. It takes a "
                "row whose first tile is masked whole: windows, documents and padding on the left have such rows, a "
                "causal mask only those that see no key at all. The right code measures from 0 while there is no "
                "maximum.",
                "一行在看到第一个键之前，当前最大值一直是 −inf，而 −inf − (−inf) 得到 NaN。"
                "只有第一个块就全被屏蔽的行才会碰到：滑动窗口、文档掩码、左侧填充都有这样的行；"
                "因果掩码下，只有一个键都看不到的行才会。"
                "正确的代码在还没有最大值时以 0 为基准。",
            ),
        ),
    ),
)


class Result(NamedTuple):
    """Hold what both codes give: outputs ``[queries, d_k]``, the rows with NaN, and how far the right one is off.

    ``lines`` are those in which a NaN begins with this mask; where none does, those in which one can. ``late`` counts
    the rows whose first tile is masked whole.
    """

    wrong: np.ndarray
    right: np.ndarray
    lost: np.ndarray
    distance: float
    size: tuple[int, int]
    lines: tuple[int, ...]
    late: int


def code(run: Attention) -> list[str]:
    """Give a function's lines as they are run, under the name that a reader would give it."""
    return inspect.getsource(run).rstrip().replace(run.__name__, "attention", 1).split("\n")


def right_lines() -> list[str]:
    """Give the right code's lines."""
    return code(_right)


def run(view: View, bug: str) -> Result:
    """Run the wrong code and the right one on the beginning of the view's call."""
    return _run(view.call, view.tile_cols, bug)


@lru_cache(maxsize=16)
def _run(view: View, size: int, bug: str) -> Result:
    rows, cols = min(view.length, MOST), min(view.key_length, MOST)
    query, key, value = (tensor[0, 0] for tensor in tensors(view))
    given = query[:rows] * view.scale, key[:cols], value[:cols]
    allowed = dense(view.build_mask(), rows, cols, align=view.align)[0, 0]
    wrong, right = BUGS[bug].run(*given, allowed, size), _right(*given, allowed, size)
    scores = (given[0].double() @ given[1].double().T).masked_fill(~allowed, -torch.inf)
    exact = torch.softmax(scores, -1).nan_to_num(0.0) @ given[2].double()
    lost = wrong.isnan().any(-1)
    masked = hidden(allowed, size)
    met = [name for name, there in (("tile", masked.any()), ("start", masked[:, 0].any())) if there]
    lines = BUGS[bug].lines(met) if lost.any() else BUGS[bug].lines()
    distance = float((right - exact).abs().max())
    return Result(
        wrong.numpy(), right.numpy(), lost.numpy(), distance, (rows, cols), lines, int(masked[:, 0].sum())
    )  # fmt: skip


def hidden(allowed: Tensor, size: int) -> Tensor:
    """Say of each row and each tile of so many keys whether it is masked whole, bool ``[rows, tiles]``."""
    return torch.stack([~tile.any(-1) for tile in allowed.split(size, -1)], -1)


def wakers(view: View, bug: str) -> tuple[str, ...]:
    """Give those of the usual masks, at their defaults, with which the fault gives NaN in the view's sizes."""
    return tuple(name for name in USUAL if _wakes(view.call, view.tile_cols, bug, name))


def _wakes(view: View, size: int, bug: str, mask: str) -> bool:
    rows, cols = min(view.length, MOST), min(view.key_length, MOST)
    masked = hidden(dense(MASKS[mask].build(), rows, cols, align=view.align)[0, 0], size)
    return bool((masked if "tile" in BUGS[bug].faults.values() else masked[:, 0]).any())
