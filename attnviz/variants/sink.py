"""A learned logit per head that takes its share of every softmax and brings no value."""

import torch
from jaxtyping import Float
from torch import Tensor

from attnviz.backends import CoreOutput


def with_sink(core: CoreOutput, logits: Float[Tensor, " heads"]) -> CoreOutput:
    """Give what a core gives when each head's logit stands in every row's softmax beside the scores.

    The sum of exponentials grows by exp(logit), so output and weights shrink by what the row's own sum is of the new
    one, sigmoid(logsumexp - logit); rows of weights then add up to less than one. No backend needs to know.

    Args:
        core: What a backend gave.
        logits: One for each query head.

    Source:
        gpt-oss, sdpa(), https://github.com/openai/gpt-oss/blob/main/gpt_oss/torch/model.py
    """
    own = core.logsumexp
    if own is None:
        raise ValueError("a sink needs the log-sum-exp of the core")
    sinks = logits.to(own.dtype)[:, None].expand_as(own)
    share = torch.sigmoid(own - sinks)[..., None].to(core.output.dtype)
    weights = None if core.weights is None else core.weights * share
    return CoreOutput(core.output * share, weights, core.scores, torch.logaddexp(own, sinks), f"{core.kernel} · sink")
