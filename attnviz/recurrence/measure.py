"""How much of the last output's gradient reaches each token, how many operations wait for each other, and the time."""

import time
from functools import lru_cache
from statistics import median
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from attnviz import inputs
from attnviz.recurrence.models import HEADS, MODELS, Sizes

SEQUENCES = 8
LENGTHS = (16, 32, 64, 128, 256, 512, 1024)
ROUNDS, BUDGET_S = 7, 4.0


class Timing(NamedTuple):
    """Hold the median seconds of one forward pass by model, at each of ``LENGTHS``, and of how many rounds."""

    seconds: dict[str, tuple[float, ...]]
    rounds: int


def gradients(sizes: Sizes, length: int) -> dict[str, np.ndarray]:
    """Give, for each model, the size of the gradient of the last output at each distance, ``[length]``.

    Autograd carries a random direction of the last token's output back to every token's vector, in float64; the norms
    are averaged (root mean square) over ``SEQUENCES`` sequences of independent normal numbers. Distance 0 is the last
    token itself.
    """
    return {key: _gradient(key, model.of(sizes), length) for key, model in MODELS.items()}


@lru_cache(maxsize=128)
def _gradient(key: str, sizes: Sizes, length: int) -> np.ndarray:
    x = inputs.random_normal((SEQUENCES, length, sizes.width), sizes.seed + 1).double().requires_grad_()
    toward = inputs.random_normal((SEQUENCES, sizes.width), sizes.seed + 2).double()
    with torch.enable_grad():
        output = MODELS[key].build(sizes).double()(x)[:, -1]
        (gradient,) = torch.autograd.grad((output * toward).sum(), x)
    return gradient.square().sum(-1).mean(0).sqrt().flip(0).numpy()


def chain(sizes: Sizes, length: int) -> dict[str, int]:
    """Give the longest chain of operations in autograd's graph, each of which needs the one before it."""
    # Neither width nor weights lengthen a chain: the narrowest models have the same.
    narrow = Sizes(width=HEADS, layers=sizes.layers, kernel=sizes.kernel)
    return {key: _chain(key, model.of(narrow), length) for key, model in MODELS.items()}


@lru_cache(maxsize=512)
def _chain(key: str, sizes: Sizes, length: int) -> int:
    x = torch.zeros(1, length, sizes.width, dtype=torch.float64, requires_grad=True)
    with torch.enable_grad():
        return _depth(MODELS[key].build(sizes).double()(x)[:, -1])


def predicted_chain(sizes: Sizes, length: int) -> dict[str, int]:
    """Give how many layer steps wait for each other: one for each token, for each layer, or one."""
    return {"rnn": length, "lstm": length, "conv": sizes.layers, "attention": 1}


def _depth(output: Tensor) -> int:
    """Count the nodes of the longest path behind an output, without recursion: a recurrent graph is deep."""
    depth: dict[object, int] = {}
    stack = [output.grad_fn]
    while stack:
        node = stack[-1]
        before = [entry for entry, _ in node.next_functions if entry is not None] if node is not None else []
        missing = [entry for entry in before if entry not in depth]
        if missing:
            stack.extend(missing)
        else:
            depth[node] = 1 + max((depth[entry] for entry in before), default=0)
            stack.pop()
    return depth[output.grad_fn]


@torch.no_grad()
def time_forward(sizes: Sizes) -> Timing:
    """Time one forward pass of every model at every length, in turn, so that a busy machine slows all alike."""
    built = {key: model.build(sizes).eval() for key, model in MODELS.items()}
    tokens = [inputs.random_normal((1, length, sizes.width), sizes.seed) for length in LENGTHS]
    samples: dict[str, list[list[float]]] = {key: [[] for _ in LENGTHS] for key in MODELS}
    began = time.perf_counter()
    for round_ in range(ROUNDS + 1):
        for at, x in enumerate(tokens):
            for key, model in built.items():
                start = time.perf_counter()
                model(x)
                if round_:  # the first one warms up
                    samples[key][at].append(max(time.perf_counter() - start, 1e-9))
        if round_ and time.perf_counter() - began > BUDGET_S:
            break
    seconds = {key: tuple(median(each) for each in lists) for key, lists in samples.items()}
    return Timing(seconds, len(samples["rnn"][-1]))
