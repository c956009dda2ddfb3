"""Four ways to let tokens reach each other, untrained, as torch initialises them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor, nn

from attnviz.masks import MASKS
from attnviz.registry import Registry
from attnviz.text import Text
from attnviz.variants import VARIANTS

HEADS = 4


class Sizes(NamedTuple):
    """Hold the sizes of all models.

    Args:
        width: Width of a token and of a hidden state; a multiple of 4.
        layers: Convolutions on top of each other.
        kernel: Tokens that one convolution sees: its own and those before it.
        gain: Factor on the weights from one hidden state to the next.
        seed: Seed of the weights.
    """

    width: int = 32
    layers: int = 8
    kernel: int = 3
    gain: float = 1.0
    seed: int = 0

    @property
    def reach(self) -> int:
        """How many tokens back the last convolution sees."""
        return self.layers * (self.kernel - 1)


@dataclass(frozen=True)
class Model:
    """Describe one way.

    Args:
        key: Plain key.
        label: What it is called on screen.
        build: Gives a module from ``[batch, length, width]`` to the same, in which no token looks ahead.
        uses: The sizes that it depends on, beside width and seed.
        source: URL of what it is.
    """

    key: str
    label: Text
    build: Callable[[Sizes], nn.Module] = field(repr=False)
    uses: tuple[str, ...]
    source: str

    def of(self, sizes: Sizes) -> Sizes:
        """Give the sizes with all that the model does not depend on at their defaults."""
        used = {name: getattr(sizes, name) for name in ("width", "seed", *self.uses)}
        return Sizes(**used)


class _Recurrent(nn.Module):
    """A recurrent layer whose weights between hidden states are multiplied by the gain."""

    def __init__(self, kind: type[nn.RNN] | type[nn.LSTM], sizes: Sizes):
        super().__init__()
        self.layer = kind(sizes.width, sizes.width, batch_first=True)
        with torch.no_grad():
            dict(self.layer.named_parameters())["weight_hh_l0"].mul_(sizes.gain)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)[0]


class _Convolutions(nn.Module):
    """Convolutions that see a token and those just before it, with a ReLU between them."""

    def __init__(self, sizes: Sizes):
        super().__init__()
        self.behind = sizes.kernel - 1
        self.layers = nn.ModuleList(nn.Conv1d(sizes.width, sizes.width, sizes.kernel) for _ in range(sizes.layers))

    def forward(self, x: Tensor) -> Tensor:
        x = x.transpose(1, 2)
        for number, layer in enumerate(self.layers):
            x = layer(nn.functional.pad(x if number == 0 else torch.relu(x), (self.behind, 0)))
        return x.transpose(1, 2)


class _Attention(nn.Module):
    """One causal attention layer of four heads, without positions."""

    def __init__(self, sizes: Sizes):
        super().__init__()
        self.config = VARIANTS["mha"].config(hidden_size=sizes.width, num_attention_heads=HEADS, biases=False)
        drawn = VARIANTS["mha"].weights(self.config, seed=sizes.seed)
        self.weights = nn.ParameterDict({name: nn.Parameter(tensor) for name, tensor in drawn.items()})

    def forward(self, x: Tensor) -> Tensor:
        mask, weights = MASKS["causal"].build(), dict(self.weights.items())
        return VARIANTS["mha"].attend(self.config, weights, x, allowed=mask, backend="sdpa").output


def _seeded(make: Callable[[Sizes], nn.Module]) -> Callable[[Sizes], nn.Module]:
    """Draw a module's weights from the seed alone, and leave torch's own generator as it was."""

    def build(sizes: Sizes) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(sizes.seed)
            return make(sizes)

    return build


MODELS: Registry[Model] = Registry(
    "model",
    (
        Model(
            "rnn",
            Text("RNN", "RNN"),
            _seeded(lambda sizes: _Recurrent(nn.RNN, sizes)),
            ("gain",),
            "https://docs.pytorch.org/docs/stable/generated/torch.nn.RNN.html",
        ),
        Model(
            "lstm",
            Text("LSTM", "LSTM"),
            _seeded(lambda sizes: _Recurrent(nn.LSTM, sizes)),
            ("gain",),
            "https://docs.pytorch.org/docs/stable/generated/torch.nn.LSTM.html",
        ),
        Model(
            "conv",
            Text("convolutions", "卷积"),
            _seeded(_Convolutions),
            ("layers", "kernel"),
            "https://docs.pytorch.org/docs/stable/generated/torch.nn.Conv1d.html",
        ),
        Model("attention", Text("attention", "注意力"), _seeded(_Attention), (), "https://arxiv.org/abs/1706.03762"),
    ),
)
