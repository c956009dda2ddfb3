"""A score change seen apart and together with the mask, on the scores of a small real input."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from attnviz import inputs
from attnviz.maps.draw import stage_map
from attnviz.mask_view.settings import HEADS
from attnviz.mask_view.survey import region
from attnviz.mask_view.view import View
from attnviz.masks import Mask

WIDTH = 16


class Change(NamedTuple):
    """Hold maps of one head, float32 ``[rows, cols]``, pooled by the mean.

    ``difference`` is the changed scores less the plain ones, ``together`` the changed scores where the mask lets them
    count, with ``state`` as ``maps`` gives it.
    """

    difference: np.ndarray
    together: np.ndarray
    state: np.ndarray | None
    pool: tuple[int, int]


@lru_cache(maxsize=4)
def query_and_key(q_len: int, kv_len: int, seed: int, heads: int = HEADS) -> tuple[Tensor, Tensor]:
    """Give random normal queries and keys, ``[1, heads, length, WIDTH]``; shared between calls, not to be changed."""
    query = inputs.random_normal((1, q_len, heads * WIDTH), seed).unflatten(2, (heads, WIDTH)).transpose(1, 2)
    key = inputs.random_normal((1, kv_len, heads * WIDTH), seed + 1).unflatten(2, (heads, WIDTH)).transpose(1, 2)
    return query, key


def change(view: View, max_side: int = 512) -> Change:
    """Compute what the score change does to the scores, and what the mask leaves of them.

    Args:
        view: The view.
        max_side: Longer maps are pooled.
    """
    query, key = query_and_key(view.length, view.key_length, view.seed)
    common = {"heads": (view.head,), "align": view.align, "max_side": max_side, "reduce": "mean"}
    plain = stage_map("scaled", query, key, **common)
    mod = view.build_score_mod()
    changed = stage_map("scaled", query, key, score_mod=mod, **common)
    together = stage_map("masked", query, key, score_mod=mod, allowed=drawn_mask(view), **common)
    difference = changed.values[0] - plain.values[0]
    state = None if together.state is None else together.state[0]
    return Change(difference, together.values[0], state, changed.pool)


def drawn_mask(view: View) -> Mask:
    """Give the mask of the sequence and head that are drawn, as a call of one sequence takes it; heads are alike."""
    mask, look = view.build_mask(), view.look
    if not (mask.per_batch or mask.per_head):
        return mask
    fitted = mask.at(look.batch, look.kv_len)

    def rule(batch: Tensor, head: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        return fitted.rule(torch.full_like(batch, look.sequence), torch.full_like(head, look.head), q_idx, kv_idx)

    return Mask(rule, mask.band)


def cell(view: View, query: int, key: int) -> tuple[float, float, bool]:
    """Give one pair's difference and changed score, and whether the pair may attend."""
    queries, keys = query_and_key(view.length, view.key_length, view.seed)
    spans = {"rows": (query, query + 1), "cols": (key, key + 1)}
    common = {"heads": (view.head,), "align": view.align, **spans}
    plain = stage_map("scaled", queries, keys, **common).values[0, 0, 0]
    changed = stage_map("scaled", queries, keys, score_mod=view.build_score_mod(), **common).values[0, 0, 0]
    return float(changed - plain), float(changed), bool(region(view.build_mask(), view.look, *spans.values()))
