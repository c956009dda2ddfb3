"""Train one attention layer to look things up, with each scaling from the same start and on the same data."""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from attnviz import inputs
from attnviz.saturation.scalings import SCALINGS, Scaling, scaled_scores

# The task: of PAIRS names each stands with one of CLASSES things; asked for a name, say its thing. Chance is 1/CLASSES.
NAMES, CLASSES, PAIRS, WIDTH, BATCH = 64, 16, 16, 32, 64
# The step whose batch is looked at and never trained on.
UNSEEN = 99_999


class Step(NamedTuple):
    """Hold what one step of training showed: cross-entropy in nats, share of right answers, gradient norm of W_q."""

    loss: float
    right: float
    gradient: float


class Head(NamedTuple):
    """Hold what a layer's queries and keys are like on a batch that no step has seen.

    ``spread`` is the standard deviation of the scores as softmax gets them. Means over the rows: ``top``, the largest
    weight, ``own``, the weight of the key that is asked for, and ``cosine``, between a query and this key.
    """

    spread: float
    top: float
    own: float
    cosine: float


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

    def vectors(self, episodes: "Episodes") -> tuple[Tensor, Tensor]:
        """Give the queries ``[batch, 1, d_k]`` and keys ``[batch, pairs, d_k]`` of a batch."""
        query = (self._names[episodes.asked] @ self._weights["query"])[:, None]
        return query, self._names[episodes.names] @ self._weights["key"]

    @torch.no_grad()
    def head(self, episodes: "Episodes") -> Head:
        """Look at the queries and keys of a batch."""
        query, key = self.vectors(episodes)
        scores = scaled_scores(query, key, self._scaling, power=self._power, temperature=1.0)[:, 0]
        weights = torch.softmax(scores, -1)
        own = (episodes.names == episodes.asked[:, None]).int().argmax(-1, keepdim=True)
        cosines = torch.nn.functional.cosine_similarity(query, key, dim=-1)
        numbers = (scores.std(correction=0), weights.amax(-1), weights.gather(1, own), cosines.gather(1, own))
        return Head(*(float(number.mean()) for number in numbers))

    def step(self, episodes: "Episodes") -> Step:
        """Take one step on a batch and give what it showed before the step."""
        weights = self._weights
        query, key = self.vectors(episodes)
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
        self._unseen = episodes(seed, UNSEEN)
        self.first: Mapping[str, Head] = self.heads()

    @property
    def steps(self) -> int:
        """Number of steps taken."""
        return len(next(iter(self._shown.values())))

    @property
    def shown(self) -> Mapping[str, list[Step]]:
        """What every step showed, by scaling."""
        return self._shown

    def heads(self) -> dict[str, Head]:
        """Say what every layer's queries and keys are like as they now stand; ``first`` is what they were like."""
        return {key: layer.head(self._unseen) for key, layer in self._layers.items()}

    def step(self) -> None:
        """Take one step with every scaling on the same batch."""
        batch = episodes(self._seed, self.steps)
        for key, layer in self._layers.items():
            self._shown[key].append(layer.step(batch))
