"""Attention as loops over single numbers in float64, written apart from attnviz: what the tests compare with."""

import math
from typing import NamedTuple

import numpy as np


class Expected(NamedTuple):
    """Hold output [B, H, Lq, dv], weights and scores [B, H, Lq, Lk] and log-sum-exp [B, H, Lq]."""

    output: np.ndarray
    weights: np.ndarray
    scores: np.ndarray
    logsumexp: np.ndarray


def attention(query, key, value, *, allowed=None, bias=None, scale=None, softcap=None) -> Expected:
    """Compute softmax attention one number at a time.

    Args:
        query, key, value: arrays [batch, heads, length, width]; key and value may have fewer heads.
        allowed: bool, broadcastable to [batch, heads, q_len, kv_len]; True = may attend.
        bias: float, likewise; -inf means "not allowed".
        scale: factor of the scores; 1/sqrt(width) when None.
        softcap: bound of the scores, or None.
    """
    query, key, value = (np.asarray(array, dtype=np.float64) for array in (query, key, value))
    batch, heads, q_len, width = query.shape
    kv_heads, kv_len = key.shape[1:3]
    shape = (batch, heads, q_len, kv_len)
    may = np.broadcast_to(True if allowed is None else np.asarray(allowed, dtype=bool), shape)
    added = np.broadcast_to(0.0 if bias is None else np.asarray(bias, dtype=np.float64), shape)
    factor = 1.0 / math.sqrt(width) if scale is None else float(scale)
    result = Expected(
        np.zeros((*shape[:3], value.shape[3])), np.zeros(shape), np.zeros(shape), np.full(shape[:3], -math.inf)
    )
    for b in range(batch):
        for h in range(heads):
            shared = h // (heads // kv_heads)
            for i in range(q_len):
                row = [
                    _score(query[b, h, i], key[b, shared, j], factor, softcap) + _finite(added[b, h, i, j])
                    for j in range(kv_len)
                ]
                seen = [j for j in range(kv_len) if may[b, h, i, j] and added[b, h, i, j] != -math.inf]
                result.scores[b, h, i] = row
                _fill_row(result, (b, h, i), row, seen, value[b, shared])
    return result


def _score(query_row, key_row, factor, softcap) -> float:
    """Give one score: product dimension by dimension, times the factor, capped."""
    product = math.fsum(float(x) * float(y) for x, y in zip(query_row, key_row, strict=True)) * factor
    return product if softcap is None else softcap * math.tanh(product / softcap)


def _finite(number: float) -> float:
    return 0.0 if number == -math.inf else float(number)


def _fill_row(result: Expected, where, row, seen, values) -> None:
    """Write weights, output and log-sum-exp of one query from the scores of the keys that it sees."""
    if not seen:
        return
    top = max(row[j] for j in seen)
    total = math.fsum(math.exp(row[j] - top) for j in seen)
    result.logsumexp[where] = top + math.log(total)
    for j in seen:
        result.weights[where][j] = math.exp(row[j] - top) / total
    for c in range(values.shape[1]):
        result.output[where][c] = math.fsum(result.weights[where][j] * values[j, c] for j in seen)
