"""Say the first token again: a fixed-size last state against attention, both trained here and now."""

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor, nn

from attnviz import inputs

CLASSES = 16
WIDTH = 32
BATCH = 32
RATE = 3e-3
KINDS = ("rnn", "lstm", "attention")


class Step(NamedTuple):
    """Hold one training step: loss in nats, and the share of first tokens said right, before the step's update."""

    loss: float
    right: float


class _Reader(nn.Module):
    """Read a sequence of token numbers and say one: from the last state, or from what the last token attends to."""

    def __init__(self, kind: str, length: int):
        super().__init__()
        self.kind = kind
        self.tokens = nn.Embedding(CLASSES, WIDTH)
        if kind == "attention":
            self.places = nn.Parameter(0.5 * torch.randn(length, WIDTH))
            self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(3))
        else:
            self.layer = {"rnn": nn.RNN, "lstm": nn.LSTM}[kind](WIDTH, WIDTH, batch_first=True)
        self.say = nn.Linear(WIDTH, CLASSES)

    def forward(self, numbers: Tensor) -> Tensor:
        x = self.tokens(numbers)
        if self.kind == "attention":
            x = x + self.places
            query = self.query(x[:, -1:])
            mixed = nn.functional.scaled_dot_product_attention(query, self.key(x), self.value(x))
            return self.say(mixed[:, 0])
        return self.say(self.layer(x)[0][:, -1])


@lru_cache(maxsize=256)
def sizes(length: int) -> tuple[int, ...]:
    """Give how many numbers each kind learns, in the order of ``KINDS``; last, attention's for positions alone."""
    with torch.device("meta"):
        readers = [_Reader(kind, length) for kind in KINDS]
    return *(sum(weight.numel() for weight in reader.parameters()) for reader in readers), length * WIDTH


class Recall:
    """Train all kinds side by side on the same data, with the same width and learning rate (Adam).

    They are not alike in size, and attention alone has a learned vector for each position; the others read in order.

    Args:
        length: Tokens of a sequence; the first is asked for after the last.
        seed: Seed of weights and data.
    """

    def __init__(self, length: int, seed: int):
        self.length, self.seed = length, seed
        self.shown: dict[str, list[Step]] = {kind: [] for kind in KINDS}
        self._readers: dict[str, _Reader] = {}
        for kind in KINDS:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                self._readers[kind] = _Reader(kind, length)
        self._optimisers = {
            kind: torch.optim.Adam(reader.parameters(), lr=RATE) for kind, reader in self._readers.items()
        }

    @property
    def steps(self) -> int:
        """Give how many steps have been made."""
        return len(self.shown[KINDS[0]])

    def step(self) -> None:
        """Make one step with every kind on the same fresh sequences."""
        drawn = inputs.random_normal((BATCH, self.length), self.seed + 1000 + self.steps)
        # Of equal probability each: the normal distribution function, cut into classes.
        numbers = (torch.special.ndtr(drawn) * CLASSES).long().clamp(0, CLASSES - 1)
        first = numbers[:, 0]
        with torch.enable_grad():
            for kind in KINDS:
                answer = self._readers[kind](numbers)
                loss = nn.functional.cross_entropy(answer, first)
                right = float((answer.argmax(-1) == first).float().mean())
                self._optimisers[kind].zero_grad()
                loss.backward()
                self._optimisers[kind].step()
                self.shown[kind].append(Step(float(loss.detach()), right))
