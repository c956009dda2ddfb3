"""Attention as it is defined, with every matrix kept: the reference that people read and the others are held to."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnviz.backends.base import Backend, CoreOutput, Pass, peak_of
from attnviz.backends.call import check, group
from attnviz.backends.eager_memory import backward, forward
from attnviz.config import Shape
from attnviz.masks import Mask
from attnviz.score_mods import LateBias
from attnviz.text import Text


class Matrices(NamedTuple):
    """Hold every matrix of one pass: output, weights, scores before masking, and the rows' log-sum-exp."""

    output: Float[Tensor, "batch heads q_len value_width"]
    weights: Float[Tensor, "batch heads q_len kv_len"]
    scores: Float[Tensor, "batch heads q_len kv_len"]
    logsumexp: Float[Tensor, "batch heads q_len"]


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    allowed: Tensor | Mask | None = None,
    align: str = "top_left",
    bias: Tensor | LateBias | None = None,
    scale: float | None = None,
    softcap: float | None = None,
) -> CoreOutput:
    """Compute softmax(q kᵀ · scale, capped, plus bias, masked) · v and keep scores and weights.

    Everything is computed in the dtype given, so float16 scores can overflow (``nonfinite_rows`` finds such rows). A
    row without a key gives weights 0, output 0 and log-sum-exp -inf, and gradients without NaN. A masked key never
    counts, however large its numbers; but NaN or inf in a masked *value* row reaches every output: 0 · NaN is NaN.

    Args:
        query: [batch, heads, q_len, head_dim].
        key: [batch, kv_heads, kv_len, head_dim]; kv_heads divides heads.
        value: [batch, kv_heads, kv_len, value width].
        allowed: Mask, or bool broadcastable to [batch, heads, q_len, kv_len]; True = may attend; None = everything.
        align: Where query 0 of a ``Mask`` stands when q_len ≠ kv_len: ``top_left`` or ``bottom_right``.
        bias: Float, broadcastable likewise; added after scale and softcap; -inf means "not allowed". Or
            a ``LateBias``.
        scale: Factor of the scores; None means 1/sqrt(head_dim); 0.0 is legal.
        softcap: Bound c > 0 of the scores, c · tanh(score / c); None for none.

    Returns:
        Output, weights, scores (before masking) and log-sum-exp. Without a mask two [q_len, kv_len] matrices exist per
        head; with one a third lives until the weights are known.

    Raises:
        Refusal: If an argument breaks a rule; names the argument, the rule and what was received.

    Source:
        Vaswani et al. 2017, section 3.2.1, https://arxiv.org/abs/1706.03762
        Softcap before the mask: Gemma 2, section 2, https://arxiv.org/abs/2408.00118
    """
    call = check(query, key, value, allowed, align, bias, scale, softcap)
    keep, finite_bias = call.terms((0, query.shape[2]), (0, key.shape[2]))
    matrices = compute(query, key, value, keep, finite_bias, call.scale, softcap)
    return CoreOutput(*matrices, kernel="eager")


def compute(
    query: Float[Tensor, "batch heads q_len width"],
    key: Float[Tensor, "batch kv_heads kv_len width"],
    value: Float[Tensor, "batch kv_heads kv_len value_width"],
    keep: Bool[Tensor, "..."] | None,
    bias: Float[Tensor, "..."] | None,
    scale: float,
    softcap: float | None,
) -> Matrices:
    """Compute attention from checked arguments with a finite bias."""
    scores = score(query, key, bias, scale, softcap)
    if keep is None:
        masked, dead = scores, None
    else:
        # A row without a key is filled with 0 instead of -inf and cleared after the softmax: no NaN is ever made, so
        # none can come back through the gradients either.
        dead = ~keep.any(-1, keepdim=True)
        fill = torch.zeros_like(dead, dtype=scores.dtype).masked_fill_(~dead, float("-inf"))
        masked = torch.where(keep, scores, fill)
    weights = torch.softmax(masked, dim=-1)
    # In half precision the maximum of a row still is exact, and the statistics are kept in float32.
    maximum = masked.amax(-1).to(torch.promote_types(scores.dtype, torch.float32))
    del masked
    if dead is not None and dead.any():
        weights = weights.masked_fill(dead, 0.0)
    output = _apply(weights, value)
    # The largest weight is exp(0) / sum, so the row's sum needs no second pass of exponentials (nor L × L memory).
    largest = weights.amax(-1).to(maximum.dtype)
    if dead is None:
        return Matrices(output, weights, scores, maximum - largest.log())
    gone = dead.squeeze(-1).expand_as(maximum)
    logsumexp = maximum - torch.where(gone, 1.0, largest).log()
    return Matrices(output, weights, scores, logsumexp.masked_fill(gone, float("-inf")))


def score(
    query: Float[Tensor, "batch heads q_len width"],
    key: Float[Tensor, "batch kv_heads kv_len width"],
    bias: Float[Tensor, "..."] | None,
    scale: float,
    softcap: float | None,
) -> Float[Tensor, "batch heads q_len kv_len"]:
    """Give the scores after scale, softcap and bias, in one [q_len, kv_len] matrix per head.

    The steps write in place: none of them needs its input for the gradient.
    """
    batch, heads, q_len, _ = query.shape
    # Written before the view: the gradient of writing into a view copies the whole matrix twice.
    rows = torch.matmul(group(query, key.shape[1]), key.transpose(-2, -1)).mul_(scale)
    scores = rows.view(batch, heads, q_len, key.shape[2])
    if softcap is not None:
        scores = scores.div_(softcap).tanh_() * softcap
    return scores if bias is None else scores.add_(bias)


def _apply(
    weights: Float[Tensor, "batch heads q_len kv_len"], value: Float[Tensor, "batch kv_heads kv_len value_width"]
) -> Float[Tensor, "batch heads q_len value_width"]:
    """Give the weighted sums of the values."""
    batch, heads, q_len, _ = weights.shape
    rows = torch.matmul(group(weights, value.shape[1]), value)
    return rows.view(batch, heads, q_len, value.shape[3])


def _peak_bytes(shape: Shape, itemsize: int, masked: bool) -> int:
    """Predict the call's peak: scores and weights, and either the output or, while they are masked, a third matrix."""
    return peak_of(forward, Pass(shape, itemsize, masked))


EAGER = Backend(
    "eager",
    Text("Eager (step by step)", "逐步计算 (eager)"),
    Text(
        "Computes scores, softmax and output one after the other and keeps every matrix: memory grows with length².",
        "依次计算分数、softmax 和输出，并保留每个矩阵：内存随长度的平方增长。",
    ),
    "https://arxiv.org/abs/1706.03762",
    attend,
    _peak_bytes,
    # Written, read by the softmax, written as weights, read for the output: algorithm 0 of arXiv 2205.14135.
    score_passes=4,
    forward=forward,
    backward=backward,
)
