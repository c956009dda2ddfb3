"""A few stacked queries over many keys as two plain products, where that is faster than torch's fused kernel.

torch's CPU kernel multiplies by MKL, which uses half of the vector width of a processor that is not Intel's; oneDNN,
which comes in the same package, uses all of it. The matrix of scores is small here: some rows by the keys.
"""

from itertools import product

import torch
from jaxtyping import Float
from torch import Tensor

from attnviz.backends.call import CPU

KERNEL = "two products"
# Multiplications for which the calls' own cost no longer counts: from here on it was faster at every size measured.
_LEAST_WORK = 1 << 24
_NUMBERS, _LEAST_KEYS = 1 << 16, 256  # of the values summed up in one go: sums of sums round less than one long sum
# The operator behind compiled linear layers, without a gradient of its own.
_linear = getattr(torch.ops.mkldnn, "_linear_pointwise", None) if torch.backends.mkldnn.is_available() else None


def are_many(rows: int, kv_len: int, width: int) -> bool:
    """Say whether there is enough work in one head's product of queries and keys."""
    return _linear is not None and rows * kv_len * width >= _LEAST_WORK


def pay(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Say whether ``attend`` can take these tensors, each of four axes, and is worth it."""
    tensors = (query, key, value)
    return (
        query.device.type in CPU
        and query.dtype == torch.float32
        and are_many(query.shape[2], key.shape[2], key.shape[3])
        # Rows that do not follow each other would be sorted anew at each call, which takes far longer than all else.
        and all(each.stride(3) == 1 and each.stride(2) == each.shape[3] for each in (key, value))
        and not (torch.is_grad_enabled() and any(each.requires_grad for each in tensors))
    )


def attend(
    query: Float[Tensor, "batch heads rows width"],
    key: Float[Tensor, "batch heads kv_len width"],
    value: Float[Tensor, "batch heads kv_len value_width"],
    scale: float,
) -> tuple[Float[Tensor, "batch heads rows value_width"], Float[Tensor, "batch heads rows"]]:
    """Compute attention without a mask, one head after the other.

    Returns:
        Output and log-sum-exp.
    """
    output = query.new_zeros(*query.shape[:3], value.shape[3])
    logsumexp = query.new_empty(query.shape[:3])
    for place in product(range(query.shape[0]), range(query.shape[1])):
        logsumexp[place] = _head(query[place], key[place], value[place], scale, output[place])
    return output, logsumexp


def _head(query: Tensor, key: Tensor, value: Tensor, scale: float, output: Tensor) -> Tensor:
    """Add one head's result to ``output`` and give its log-sum-exp; its scores are gone before the next head's come."""
    scores = _product(query, key).mul_(scale)
    most = scores.amax(-1, keepdim=True)
    total = scores.sub_(most).exp_().sum(-1, keepdim=True)
    keys = _at_once(value.shape[1])
    for part, values in zip(scores.split(keys, -1), value.split(keys), strict=True):
        output += _product(part, values.T)
    output /= total
    return (most + total.log_())[:, 0]


def _product(left: Float[Tensor, "rows inner"], right: Float[Tensor, "columns inner"]) -> Float[Tensor, "rows columns"]:
    assert _linear is not None
    return _linear(left, right, None, "none", [], "")


def _at_once(value_width: int) -> int:
    return max(_LEAST_KEYS, _NUMBERS // value_width)


def peak_bytes(rows: int, kv_len: int, value_width: int) -> int:
    """Predict what the head at work takes: scores, a copy of the part at work, its product, two numbers of each row.

    oneDNN's own scratch, which was below 64 KiB at every size measured, is left out.
    """
    keys = _at_once(value_width)
    copied = keys if kv_len > keys else 0
    return 4 * rows * (kv_len + copied + value_width + 2)
