"""The saturation page's training as a script of plain PyTorch: the same start, the same batches, the same steps."""

from attnviz.saturation.training import BATCH, CLASSES, NAMES, PAIRS, WIDTH

_SCRIPT = '''\
import math

import torch

d_k, power, rate, seed, steps = {d_k}, {power!r}, {rate!r}, {seed}, {steps}
NAMES, CLASSES, PAIRS, WIDTH, BATCH = {names}, {classes}, {pairs}, {width}, {batch}


def normal(shape, seed):
    """Draw normal numbers."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def episodes(step):
    """Draw a batch: names with a thing each, which of them is asked for, and its thing."""
    chance = torch.Generator().manual_seed(seed * 100_003 + step)
    names = torch.rand(BATCH, NAMES, generator=chance).argsort(-1)[:, :PAIRS]
    things = torch.randint(CLASSES, (BATCH, PAIRS), generator=chance)
    place = torch.randint(PAIRS, (BATCH, 1), generator=chance)
    return names, things, names.gather(1, place)[:, 0], things.gather(1, place)[:, 0]


def unit(vectors):
    """Bring vectors to length 1."""
    return vectors / torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)


gain = math.log2(PAIRS * PAIRS - PAIRS)
scalings = {{
    "1/sqrt(d_k)": lambda q, k: q @ k.mT * d_k**-0.5,
    "none": lambda q, k: q @ k.mT,
    "1/d_k": lambda q, k: q @ k.mT * (1 / d_k),
    "d_k**-p, p = {power!r}": lambda q, k: q @ k.mT * d_k**-power,
    "QK-norm": lambda q, k: unit(q) @ unit(k).mT * gain,
}}
known = normal((NAMES, WIDTH), seed + 1)  # every name's fixed vector
shapes = (WIDTH, d_k), (WIDTH, d_k), (CLASSES, WIDTH), (WIDTH, CLASSES)  # query, key, value, out
losses = {{}}
for name, scores in scalings.items():
    matrices = [(normal(shape, seed + 2 + i) * WIDTH**-0.5).requires_grad_() for i, shape in enumerate(shapes)]
    w_q, w_k, w_v, w_o = matrices
    losses[name] = []
    for step in range(steps):
        names, things, asked, answers = episodes(step)
        weights = torch.softmax(scores((known[asked] @ w_q)[:, None], known[names] @ w_k), -1)
        said = (weights @ w_v[things])[:, 0] @ w_o
        loss = torch.nn.functional.cross_entropy(said, answers)
        gradients = torch.autograd.grad(loss, matrices)
        with torch.no_grad():
            for matrix, gradient in zip(matrices, gradients):
                matrix -= rate * gradient
        losses[name].append(loss.item())
    right = (said.argmax(-1) == answers).float().mean()
    print(f"{{name:>18}}: loss {{loss.item():.3f}}, {{100 * right:.0f}} % right at step {{steps}}")
'''


def training_snippet(*, d_k: int, power: float, rate: float, seed: int, steps: int) -> str:
    """Give a script that trains a layer with every scaling; ``losses`` holds the loss of each step.

    Args:
        d_k: Width of queries and keys.
        power: Exponent of the custom scaling.
        rate: Learning rate.
        seed: Seed of the start and of the data.
        steps: Number of steps.
    """
    return _SCRIPT.format(
        d_k=d_k, power=power, rate=rate, seed=seed, steps=steps, names=NAMES, classes=CLASSES, pairs=PAIRS, width=WIDTH,
        batch=BATCH,
    )  # fmt: skip
