"""What a published model's attention is, layer kind by layer kind, and what it caches."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from attnviz.config import check_size, dtype_size
from attnviz.text import Text
from attnviz.variants import VARIANTS


class LayerKind(NamedTuple):
    """Hold how many layers of a model are alike: ``window`` is how many tokens each keeps, None is all."""

    layers: int
    window: int | None


class Published(NamedTuple):
    """Say in what the published weights are stored, where that is less than 16 bits each, and who says so (URL)."""

    text: Text
    source: str


@dataclass(frozen=True)
class Preset:
    """Describe the attention of one published model.

    Args:
        key: Plain key for links.
        label: The model's name.
        variant: Key of its variant.
        sizes: What the variant's ``config`` takes, as published; biases are not among them.
        full_layers: Layers that keep every token.
        source: URL of the published file that the shape was read from.
        max_context: Tokens that the model is published for.
        sliding_layers: Layers that keep ``window`` tokens.
        linear_layers: Layers with a state of fixed size and no keys and values; they count for nothing here.
        window: Keys that a query of a sliding layer sees, its own included.
        note: What a reader should know beside the numbers.
        published: In what its weights are published, None where in 16 bits or more.
    """

    key: str
    label: Text
    variant: str
    sizes: Mapping[str, int]
    full_layers: int
    source: str
    max_context: int
    sliding_layers: int = 0
    linear_layers: int = 0
    window: int | None = None
    note: Text | None = None
    published: Published | None = None

    @property
    def config(self) -> Any:
        """Give the configuration of one layer, as its variant takes it."""
        return VARIANTS[self.variant].config(**self.sizes)

    @property
    def layers(self) -> int:
        """Count the layers of all kinds."""
        return self.full_layers + self.sliding_layers + self.linear_layers

    def kinds(self, *, windows: bool = True) -> tuple[LayerKind, ...]:
        """Give the layers that cache keys and values; with ``windows`` false each of them keeps every token."""
        if not windows:
            return (LayerKind(self.full_layers + self.sliding_layers, None),)
        kinds = (LayerKind(self.full_layers, None), LayerKind(self.sliding_layers, self.window))
        return tuple(kind for kind in kinds if kind.layers)

    def kv_cache_bytes(self, tokens: int, *, batch: int = 1, dtype: str = "bfloat16", windows: bool = True) -> int:
        """Give what the model keeps of ``tokens`` tokens, as its variant's cache is declared.

        Args:
            tokens: Tokens of each sequence, at least 1.
            batch: Sequences.
            dtype: Type of the cache.
            windows: Whether a sliding layer keeps its window only; some engines reserve every token on every layer.

        Raises:
            Refusal: If a number is not a whole number of at least 1, or the dtype is not known.
        """
        check_size("tokens", tokens)
        check_size("batch", batch)
        variant, config = VARIANTS[self.variant], self.config
        entries = 0
        for layers, window in self.kinds(windows=windows):
            kept = tokens if window is None else min(tokens, window)
            entries += layers * sum(math.prod(shape) for shape in variant.cache(config, kept).values())
        return batch * entries * dtype_size(dtype)
