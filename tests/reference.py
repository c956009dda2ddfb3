"""Stages of a call, whole and unpooled, from the loops of ``oracle``; and pooling one cell at a time."""

import math
from typing import NamedTuple

import numpy as np
import torch

from attnviz.masks import MASKS, dense
from attnviz.stages import MASKED, NO_KEY, VALUE, Call
from tests import oracle


class Whole(NamedTuple):
    """Hold a stage ``[heads, rows, cols]``, which of its cells count, and which of its rows have a key."""

    values: np.ndarray
    counts: np.ndarray
    has_key: np.ndarray


def make_call(q_len=7, kv_len=9, heads=4, kv_heads=2, width=8, dtype=torch.float64, mask=None, **setting) -> Call:
    """Draw a call from the generator as it stands; without a mask everything is allowed."""
    query = torch.randn(1, heads, q_len, width, dtype=torch.float64).to(dtype)
    key, value = (torch.randn(1, kv_heads, kv_len, width, dtype=torch.float64).to(dtype) for _ in range(2))
    return Call(query, key, value, mask or MASKS["full"].build(), **setting)


def grid(call: Call) -> np.ndarray:
    """Give who may attend to whom, bool ``[heads, q_len, kv_len]``."""
    allowed = dense(call.mask, call.q_len, call.kv_len, align=call.align, heads=call.heads)[0].numpy()
    return np.broadcast_to(allowed, (call.heads, call.q_len, call.kv_len))


def whole(call: Call, stage: str) -> Whole:
    """Give one stage of every query head."""
    return wholes(call)[stage]


def wholes(call: Call) -> dict[str, Whole]:
    """Give every stage of every query head."""
    may = grid(call)
    query, key, value = (tensor.to(torch.float64).numpy() for tensor in (call.query, call.key, call.value))
    raw = oracle.attention(query, key, value, allowed=may[None], scale=1.0)
    scaled = raw.scores[0] * call.factor
    expected = oracle.attention(query, key, value, allowed=may[None], **changes(call))
    all_keys = np.ones(may.shape[:2], dtype=bool)
    has_key = may.any(-1)
    output = expected.output[0]
    parts = {
        "scores": Whole(raw.scores[0], np.ones_like(may), all_keys),
        "scaled": Whole(scaled, np.ones_like(may), all_keys),
        "change": Whole(expected.scores[0] - scaled, np.ones_like(may), all_keys),
        "changed": Whole(expected.scores[0], np.ones_like(may), all_keys),
        "masked": Whole(expected.scores[0], may, has_key),
        "weights": Whole(expected.weights[0], may, has_key),
        "output": Whole(output, np.broadcast_to(has_key[..., None], output.shape), has_key),
    }
    before = (query, key) if call.unturned is None else [t.to(torch.float64).numpy() for t in call.unturned]
    projected = {"query": before[0], "key": before[1], "query_turned": query, "key_turned": key, "value": value}
    if call.waves is not None:
        projected["waves"] = call.waves.to(torch.float64).numpy()[None, None]
    for stage, array in projected.items():
        values = np.repeat(array[0], call.heads // array.shape[1], axis=0)
        parts[stage] = Whole(values, np.ones(values.shape, dtype=bool), np.ones(values.shape[:2], dtype=bool))
    return parts


def changes(call: Call) -> dict[str, object]:
    """Give what the loops are told of the call's score modification, and its scale."""
    if call.score_mod is None:
        return {"scale": call.factor}
    terms = call.score_mod.terms(call.heads, call.q_len, call.kv_len, align=call.align, dtype=torch.float64)
    bias = None if terms.bias is None else terms.bias.numpy()
    return {"scale": call.factor * terms.scale, "softcap": terms.softcap, "bias": bias}


def pooled(part: Whole, pool: tuple[int, int], reduce: str) -> tuple[np.ndarray, np.ndarray]:
    """Pool cell by cell: a cell is the one farthest from 0 or the mean of those of its cells that count."""
    heads, height, width = part.values.shape
    shape = (heads, math.ceil(height / pool[0]), math.ceil(width / pool[1]))
    values, state = np.zeros(shape), np.full(shape, VALUE, dtype=np.uint8)
    for h, r, c in np.ndindex(*shape):
        rows = slice(r * pool[0], (r + 1) * pool[0])
        cols = slice(c * pool[1], (c + 1) * pool[1])
        seen = part.values[h, rows, cols][part.counts[h, rows, cols]]
        if len(seen):
            values[h, r, c] = max(seen, key=abs) if reduce == "max" else seen.mean()
        else:
            state[h, r, c] = MASKED if part.has_key[h, rows].any() else NO_KEY
    return values, state


def cut(part: Whole, heads, rows: tuple[int, int], cols: tuple[int, int]) -> Whole:
    """Give a region of some heads; whether a row has a key is a matter of all keys, not of the region."""
    heads, rows, cols = list(heads), slice(*rows), slice(*cols)
    return Whole(part.values[heads, rows, cols], part.counts[heads, rows, cols], part.has_key[heads, rows])
