"""What torch's fused call takes, from its kernels' own buffers."""

import math

from attnviz.backends import products
from attnviz.config import Shape

FEW_QUERIES = 16  # up to here stacking the heads' queries over one KV head pays, masks included


def peak_bytes(shape: Shape, itemsize: int, masked: bool) -> int:
    """Predict the call's peak with torch's CPU kernels: flash, or math where values have another width than keys.

    Many stacked rows over many keys are two plain products instead.

    Source:
        The buffers of aten/src/ATen/native/cpu/FlashAttentionKernel.cpp and of _scaled_dot_product_attention_math,
        https://github.com/pytorch/pytorch
    """
    mask = shape.q_len * shape.kv_len * itemsize if masked else 0
    rows = math.prod(shape.query[:3])
    packed = shape.group > 1 and shape.q_len <= FEW_QUERIES
    stacked = shape.q_len * (shape.group if packed else 1)
    if packed and not masked and itemsize == 4 and products.are_many(stacked, shape.kv_len, shape.head_dim):
        kept = 4 * rows * (shape.value[3] + 1)
        return kept + products.peak_bytes(stacked, shape.kv_len, shape.value[3])
    if shape.value[3] != shape.head_dim:
        return mask + _math_bytes(shape, itemsize)
    block = min(256 if stacked >= 768 else 64 if stacked >= 192 else 32, stacked)
    cells = block * min(512, shape.kv_len)
    size = max(4, itemsize)
    scratch = size * (cells + block * (2 + shape.head_dim)) + (cells * itemsize if itemsize < 4 else 0)
    return mask + rows * (shape.head_dim * itemsize + size) + scratch


def plain_bytes(shape: Shape, itemsize: int, masked: bool) -> int:
    """Predict the peak of the plain kernel, asked for by name; a causal mask becomes a matrix of float32 there."""
    mask = shape.q_len * shape.kv_len * max(4, itemsize) if masked else 0
    # Short sequences peak earlier: query and key are scaled in copies, and the key's is gone before the weights come.
    spread = 2 * shape.heads if shape.group > 1 else 0
    copies = math.prod(shape.query) + shape.batch * (shape.heads + spread) * shape.kv_len * shape.head_dim
    early = max(4, itemsize) * (copies + math.prod(shape.scores))
    return mask + max(early, _math_bytes(shape, itemsize))


def _math_bytes(shape: Shape, itemsize: int) -> int:
    """Predict the plain kernel's peak: scores, weights, a boolean matrix, and copies of what it scales and spreads."""
    size = max(4, itemsize)
    rows = math.prod(shape.query[:3])
    scores = rows * shape.kv_len
    query, keys = rows * shape.head_dim, shape.kv_len * (shape.head_dim + shape.value[3])
    spread = shape.heads * keys if shape.group > 1 else 0
    widened = query + shape.kv_heads * shape.batch * keys if itemsize < size else 0
    # Which rows saw no key takes a byte for each score, one for each row, and a number.
    return size * (2 * scores + query + shape.batch * spread + widened) + scores + rows + 4
