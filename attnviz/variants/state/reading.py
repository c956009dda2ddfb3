"""Which keys each query reads: what a state can do of a mask, and how a call is cut for it."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from attnviz.masks import Mask, dense, offset
from attnviz.text import Text
from attnviz.variants.base import refuse

_UNDONE = Text(
    "such that no query stands before the last of the {past} tokens in the state, which holds them only together",
    "能保证没有查询排在状态中 {past} 个 token 的最后一个之前的设置，因为状态只保存各 token 的合并结果",
)
_WHOLE = Text(
    "causal, by key, or both, and show all {past} tokens in the state, which holds them only together",
    "因果掩码、按键的掩码或两者之交，且不隐藏状态中的 {past} 个 token（状态只保存各 token 的合并结果）",
)


class Reading(NamedTuple):
    """Say what the queries of one call read of its new keys.

    Args:
        first: Query i sees the keys up to i + first; None is all keys.
        keys: bool ``[batch | 1, heads | 1, kv_len]``, False for keys that nobody sees; None is all.
        pairs: bool ``[batch | 1, heads | 1, q_len | 1, kv_len]`` where the mask is none of these.
    """

    first: int | None
    keys: Bool[Tensor, "batch heads kv_len"] | None = None
    pairs: Bool[Tensor, "batch heads q_len kv_len"] | None = None

    def places(self, q_len: int, kv_len: int, device: torch.device) -> Int[Tensor, " q_len"]:
        """Give the last key that each query sees; -1 is none of the new ones."""
        if self.first is None:
            return torch.full((q_len,), kv_len - 1, device=device)
        return (torch.arange(q_len, device=device) + self.first).clamp(-1, kv_len - 1)

    def cut(self, q_len: int, kv_len: int) -> "Cut":
        """Say in what order queries read and keys are written."""
        if self.first is None:
            return Cut(0, kv_len, 0)
        early = min(max(-self.first, 0), q_len)
        lead = min(max(self.first, 0), kv_len)
        return Cut(early, lead, min(q_len - early, kv_len - lead))


class Cut(NamedTuple):
    """Hold how a call is cut.

    ``early`` queries read what was there, ``lead`` keys are written, then ``both`` go together, key by key; at last the
    other keys are written and the other queries read.
    """

    early: int
    lead: int
    both: int


def read(
    allowed: Tensor | Mask | None, align: str, shape: tuple[int, int, int, int], past: int, device: torch.device
) -> Reading:
    """Find out what a mask means to a state.

    Args:
        allowed: Checked mask; a tensor has four axes, and kv_len counts the past too.
        align: ``top_left`` or ``bottom_right``.
        shape: Batch, heads, q_len, and the number of new keys.
        past: Tokens in the state.
        device: Device of the call.

    Raises:
        Refusal: If a query should not see all of the past.
    """
    batch, heads, q_len, new = shape
    if allowed is None or (isinstance(allowed, Mask) and allowed.is_full):
        return Reading(None)
    sizes = {"batch": batch, "heads": heads, "device": device}
    kv_len = past + new
    start = offset(q_len, kv_len, align) - past
    if isinstance(allowed, Mask):
        mask = allowed.at(batch, kv_len)
        left, right = mask.band
        if mask.by_key and left is None:
            keys = None if mask.exact else _keys(mask, past, new, batch, heads, device)
            return Reading(None, keys) if right is None else _kept(start + right, keys, past, align)
        allowed = dense(mask, q_len, kv_len, align=align, **sizes)
    found = _taken_apart(allowed, (start, new - q_len, -past), past)
    if found is None:
        if past:
            raise refuse("allowed", _WHOLE.fill(past=past), "a mask of another kind")
        return Reading(None, pairs=allowed)
    return found if found.first is None else _kept(found.first, found.keys, past, align)


def _kept(first: int, keys: Tensor | None, past: int, align: str) -> Reading:
    """Give the reading, if the past is seen whole."""
    if past and first < -1:
        raise refuse("align", _UNDONE.fill(past=past), align)
    return Reading(first, keys)


def _keys(mask: Mask, past: int, new: int, batch: int, heads: int, device: torch.device) -> Tensor:
    """Ask the rule of a mask by key, at places where its band allows everything."""
    b = torch.arange(batch if mask.per_batch else 1, device=device)[:, None, None]
    h = torch.arange(heads if mask.per_head else 1, device=device)[None, :, None]
    k = torch.arange(past, past + new, device=device)[None, None, :]
    return mask.rule(b, h, k - min(mask.band[1] or 0, 0), k).expand(len(b), h.shape[1], new)


def _taken_apart(allowed: Tensor, starts: tuple[int, ...], past: int) -> Reading | None:
    """Read a grid as a mask by key, or as a causal one beside it; None where it is neither."""
    if not bool(allowed[..., :past].all()):
        return None
    fresh = allowed[..., past:]
    keys = fresh.any(-2)
    if torch.equal(fresh, keys[..., None, :].expand_as(fresh)):
        return Reading(None, None if keys.all() else keys)
    rows, cols = (torch.arange(size, device=fresh.device) for size in fresh.shape[2:])
    for start in starts:
        seen = cols <= rows[:, None] + start
        if torch.equal(fresh, seen & keys[..., None, :]):
            keys = keys | ~seen.any(0)  # nobody sees them yet, but they are part of the sequence
            return Reading(start, None if keys.all() else keys)
    return None
