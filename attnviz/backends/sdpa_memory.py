"""What torch's fused call takes, from its kernels' own buffers."""

import math

from attnviz.backends import products
from attnviz.backends.base import Pass, peak_of
from attnviz.config import Shape
from attnviz.ledger import Ledger

FEW_QUERIES = 16  # up to here stacking the heads' queries over one KV head pays, masks included
_KEYS = 512  # that flash takes at a time
_BLOCK_CELLS = 1 << 22  # score cells held at once where rows are worked out by plain operations (16 MiB in float32)


def peak_bytes(shape: Shape, itemsize: int, masked: bool) -> int:
    """Predict the call's peak with torch's CPU kernels: flash, or math where values have another width than keys.

    Many stacked rows over many keys are two plain products instead.

    Source:
        The buffers of aten/src/ATen/native/cpu/FlashAttentionKernel.cpp and of _scaled_dot_product_attention_math,
        https://github.com/pytorch/pytorch
    """
    return peak_of(forward, Pass(shape, itemsize, masked))


def rows_at_once(batch: int, heads: int, kv_len: int) -> int:
    """Give how many queries fit the cells that plain operations may hold."""
    return max(1, _BLOCK_CELLS // (batch * heads * kv_len))


def scratch(stacked: int, kv_len: int, head_dim: int, itemsize: int) -> int:
    """Predict flash's own buffers on one thread: a tile of scores, and two numbers and the output of its rows."""
    block, size = _block(stacked), max(4, itemsize)
    cells = block * min(_KEYS, kv_len)
    return size * (cells + block * (2 + head_dim)) + (cells * itemsize if itemsize < 4 else 0)


def gradient_scratch(stacked: int, kv_len: int, itemsize: int) -> int:
    """Predict the buffers of flash's gradient on one thread: two tiles of scores, and a number of each row."""
    block, size = _block(stacked), max(4, itemsize)
    cells = block * min(_KEYS, kv_len)
    return size * (2 * cells + block) + (2 * cells * itemsize if itemsize < 4 else 0)


def _block(stacked: int) -> int:
    """Give how many queries flash takes at a time."""
    return min(256 if stacked >= 768 else 64 if stacked >= 192 else 32, stacked)


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


def forward(ledger: Ledger, given: Pass) -> None:
    """Take what a pass takes on flash; what is left is its results and, with a gradient, what that will read again.

    Where values have another width than keys the plain kernel runs, of which only the whole is known.
    """
    shape, size = given.shape, max(4, given.itemsize)
    packed = _is_packed(given)
    if packed and shape.q_len > 1 and given.split_query:
        ledger.take(query_copy=given.query)
    if given.masked:
        ledger.take(mask=shape.q_len * shape.kv_len * given.itemsize)
    stacked = shape.q_len * (shape.group if packed else 1)
    statistics = given.rows * size
    if packed and not given.masked and _as_products(given, stacked):
        ledger.take(output=given.output, logsumexp=statistics)
        ledger.touch(products.peak_bytes(stacked, shape.kv_len, shape.value[3]))
    elif shape.value[3] != shape.head_dim:
        ledger.touch(plain_bytes(shape, given.itemsize, given.causal))
        ledger.take(output=given.output)
    else:
        # The output lies as the query does.
        name = "output_rows" if given.split_query and not packed else "output"
        ledger.take(**{name: given.output}, logsumexp=statistics)
        ledger.touch(scratch(stacked, shape.kv_len, shape.head_dim, given.itemsize))
        if packed and given.gradient and shape.kv_heads > 1:
            # Each head is given its rows back in a copy; the gradient reads the first.
            ledger.take(stacked_logsumexp=statistics)
    if not given.gradient:
        ledger.drop("query_copy", "mask")


def backward(ledger: Ledger, given: Pass) -> None:
    """Take what flash's gradient takes: the three gradients, the output's in rows of tokens, two tiles of scores."""
    shape, packed = given.shape, _is_packed(given)
    stacked = shape.q_len * (shape.group if packed else 1)
    heads = shape.kv_heads if packed else shape.heads
    ledger.take(query_grad=given.query, key_grad=given.key, value_grad=given.value)
    in_rows = given.split_query and not packed
    if not in_rows and stacked > 1 and heads > 1:
        ledger.take(rows_grad=given.output)
    ledger.touch(gradient_scratch(stacked, shape.kv_len, given.itemsize))
    ledger.drop("rows_grad", "output_grad", "query_copy", "query", "stacked_logsumexp", "mask")
    if given.fixed_keys:
        ledger.drop("key_grad", "value_grad")


def _is_packed(given: Pass) -> bool:
    return given.shape.group > 1 and given.shape.q_len <= FEW_QUERIES and not given.causal


def _as_products(given: Pass, stacked: int) -> bool:
    """Say whether two plain products are computed instead, which have no gradient and take keys as a cache has them."""
    shape = given.shape
    in_rows = not given.split_keys or shape.kv_heads == 1
    return (
        given.itemsize == 4
        and in_rows
        and not given.gradient
        and products.are_many(stacked, shape.kv_len, shape.head_dim)
    )
