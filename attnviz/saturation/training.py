"""Train one attention layer to look things up, with each scaling from the same start and on the same data."""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from attnviz import inputs
from attnviz.saturation.scalings import SCALINGS, Scaling, scaled_scores

# The task: of PAIRS names each stands with one of CLASSES things; asked for a name, say its thing. Chance is 1/CLASSES.
NAMES, CLASSES, PAIRS, WIDTH, BATCH = 64, 16, 16, 32, 64


class Step(NamedTuple):
    """Hold what one step of training showed: cross-entropy in nats, share of right answers, gradient norm of W_q."""

    loss: float
    right: float
    gradient: float


class Layer:
    """Hold the layer of one scaling; names have fixed random vectors, all matrices are learnt by plain descent.

    Args:
        scaling: The scaling.
        d_k: Width of queries and keys.
        power: Exponent of the custom scaling.
        rate: Learning rate.
        seed: Seed of the start; the same for every scaling.
    """

    def __init__(self, scaling: Scaling, *, d_k: int, power: float, rate: float, seed: int):
        self._scaling, self._power, self._rate = scaling, power, rate
        self._names = inputs.random_normal((NAMES, WIDTH), seed + 1)
        shapes = {"query": (WIDTH, d_k), "key": (WIDTH, d_k), "value": (CLASSES, WIDTH), "out": (WIDTH, CLASSES)}
        self._weights = {
            name: (inputs.random_normal(shape, seed + 2 + index) * WIDTH**-0.5).requires_grad_()
            for index, (name, shape) in enumerate(shapes.items())
        }

    def step(self, episodes: "Episodes") -> Step:
        """Take one step on a batch and give what it showed before the step."""
        weights = self._weights
        query = (self._names[episodes.asked] @ weights["query"])[:, None]
        key = self._names[episodes.names] @ weights["key"]
        scores = scaled_scores(query, key, self._scaling, power=self._power, temperature=1.0)
        mixed = torch.softmax(scores, -1) @ weights["value"][episodes.things]
        answers = mixed[:, 0] @ weights["out"]
        loss = torch.nn.functional.cross_entropy(answers, episodes.answers)
        gradients = dict(zip(weights, torch.autograd.grad(loss, list(weights.values())), strict=True))
        with torch.no_grad():
            for name, gradient in gradients.items():
                weights[name] -= self._rate * gradient
        right = (answers.argmax(-1) == episodes.answers).float().mean()
        return Step(float(loss.detach()), float(right), float(torch.linalg.vector_norm(gradients["query"])))


class Episodes(NamedTuple):
    """Hold a batch: names and things ``[batch, pairs]``, the name asked for and its thing ``[batch]``."""

    names: Tensor
    things: Tensor
    asked: Tensor
    answers: Tensor


def episodes(seed: int, step: int) -> Episodes:
    """Draw the batch of one step; the same for every scaling."""
    generator = torch.Generator().manual_seed(seed * 100_003 + step)
    names = torch.rand(BATCH, NAMES, generator=generator).argsort(-1)[:, :PAIRS]
    things = torch.randint(CLASSES, (BATCH, PAIRS), generator=generator)
    place = torch.randint(PAIRS, (BATCH, 1), generator=generator)
    return Episodes(names, things, names.gather(1, place)[:, 0], things.gather(1, place)[:, 0])


class Race:
    """Train a layer with each scaling, a step of all of them at a time.

    Args:
        d_k: Width of queries and keys.
        power: Exponent of the custom scaling.
        rate: Learning rate.
        seed: Seed of the start and of the data.
    """

    def __init__(self, *, d_k: int, power: float, rate: float, seed: int):
        self._seed = seed
        sizes = {"d_k": d_k, "power": power, "rate": rate, "seed": seed}
        self._layers = {key: Layer(scaling, **sizes) for key, scaling in SCALINGS.items()}
        self._shown: dict[str, list[Step]] = {key: [] for key in SCALINGS}

    @property
    def steps(self) -> int:
        """Number of steps taken."""
        return len(next(iter(self._shown.values())))

    @property
    def shown(self) -> Mapping[str, list[Step]]:
        """What every step showed, by scaling."""
        return self._shown

    def step(self) -> None:
        """Take one step with every scaling on the same batch."""
        batch = episodes(self._seed, self.steps)
        for key, layer in self._layers.items():
            self._shown[key].append(layer.step(batch))
