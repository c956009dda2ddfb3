"""What a variant of attention declares: shapes, weights, cache, arithmetic, and the call itself."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from attnviz.backends import BACKENDS
from attnviz.backends.base import CoreOutput, Pass, peak_of
from attnviz.knobs import Knob
from attnviz.masks import Mask
from attnviz.positions import Position
from attnviz.score_mods import ScoreMod
from attnviz.text import Refusal, Text, same
from attnviz.variants.work import HeadShape, Work

Shapes = Mapping[str, tuple[int, ...]]
Tensors = Mapping[str, Tensor]

_BAD = Text("{name} must be {rule}, got {value}.", "{name} 应为{rule}，收到的是 {value}。")
ONE_OF = Text("one of {valid}", "以下之一：{valid}")


class AttentionOutput(NamedTuple):
    """Hold what one attention layer gives.

    ``output`` is ``[batch, q_len, hidden_size]``, ``core`` what the backend gave before the heads were merged, and
    ``cache`` what the next call may be given: the past of this call and its own tokens.
    """

    output: Tensor
    core: CoreOutput
    cache: Tensors


@dataclass(frozen=True)
class Variant(ABC):
    """Declare one variant. A file of ``variants`` holds a subclass and lists its entries in ``ENTRIES``.

    Everything that compares variants (cost, caches, pickers, tests) asks these declarations and names no variant.

    Args:
        key: Plain key for links and registries.
        label: What it is called on screen.
        help: One or two sentences on what it computes.
        source: URL of the paper.
        knobs: The sizes that ``config`` takes, with their ranges.
        backends: Keys of the backends that it runs on, the default first; or its own forms.
    """

    key: str
    label: Text
    help: Text
    source: str
    knobs: tuple[Knob, ...]
    backends: tuple[str, ...]

    @abstractmethod
    def config(self, **sizes: Any) -> Any:
        """Give a checked, frozen configuration.

        Raises:
            Refusal: If a size breaks a rule; names the size, the rule and the value received.
        """

    @abstractmethod
    def matrices(self, config: Any) -> Mapping[str, tuple[int, int]]:
        """Give each weight matrix as name → (in, out); tokens are rows, so a projection is ``x @ matrix``."""

    @abstractmethod
    def vectors(self, config: Any) -> Mapping[str, int]:
        """Give each weight vector (bias, norm, decay) as name → size."""

    @abstractmethod
    def context_matrices(self, config: Any) -> frozenset[str]:
        """Name the matrices that act on the tokens attended to, not on those that ask."""

    @abstractmethod
    def weights(
        self, config: Any, *, seed: int, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
    ) -> dict[str, Tensor]:
        """Draw the named weights, the same for a seed on every device.

        Entries of every projection have unit variance for input of unit variance; biases are zero.

        Returns:
            Exactly the names of ``matrices`` and ``vectors``, in their shapes.
        """

    @abstractmethod
    def cache(self, config: Any, kv_len: int) -> Shapes:
        """Give what one sequence keeps of ``kv_len`` tokens in one layer, as name → shape without the batch axis."""

    @abstractmethod
    def heads(self, config: Any) -> HeadShape:
        """Give the shape of the attention core, as a backend sees it."""

    @abstractmethod
    def mix_flops(self, config: Any, q_len: int, kv_len: int) -> int:
        """Count the FLOPs that mix tokens of one sequence (a multiply-add is 2), as the matrix products have them."""

    @abstractmethod
    def project(
        self,
        config: Any,
        weights: Tensors,
        x: Tensor,
        context: Tensor | None = None,
        *,
        position: Position | None = None,
        start: int = 0,
        context_start: int = 0,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Give query ``[batch, heads, q_len, head_dim]`` and the key and value that the core works on.

        Args:
            config: From ``config``.
            weights: From ``weights``.
            x: ``[batch, q_len, hidden_size]``.
            context: ``[batch, kv_len, hidden_size]`` for cross attention; None is self attention.
            position: Position encoding, or None.
            start: Position of the first token of ``x``.
            context_start: Position of the first token that keys are made of.
        """

    @abstractmethod
    def attend(
        self,
        config: Any,
        weights: Tensors,
        x: Tensor,
        *,
        context: Tensor | None = None,
        allowed: Tensor | Mask | None = None,
        align: str = "top_left",
        score_mod: ScoreMod | None = None,
        position: Position | None = None,
        scale: float | None = None,
        backend: str | None = None,
        cache: Tensors | None = None,
    ) -> AttentionOutput:
        """Compute the layer: project, mix, merge the heads, project back.

        Args:
            config: From ``config``.
            weights: From ``weights``, in the dtype and on the device of ``x``.
            x: The tokens that ask, ``[batch, q_len, hidden_size]``.
            context: The tokens attended to, for cross attention; None is self attention.
            allowed: Mask, or bool broadcastable to ``[batch, heads, q_len, kv_len]``; True = may attend.
            align: ``top_left`` or ``bottom_right``; decoding with a cache means ``bottom_right``.
            score_mod: Change of the scores before the mask, or None.
            position: Position encoding, or None.
            scale: Factor of the scores; None means 1/sqrt(head_dim).
            backend: One of ``backends``; None is the first.
            cache: What an earlier call gave; the new keys are put behind it.

        Raises:
            Refusal: If an argument breaks a rule; names the argument, the rule and the value received.
        """

    def core_shapes(self, config: Any, batch: int, q_len: int, kv_len: int) -> tuple[tuple[int, ...], ...]:
        """Give the shapes of what ``mix`` works on: query, key and value unless the variant says otherwise."""
        heads, kv_heads, head_dim, v_head_dim = self.heads(config)
        keys = (batch, kv_heads, kv_len)
        return (batch, heads, q_len, head_dim), (*keys, head_dim), (*keys, v_head_dim)

    def core_heads(self, config: Any, q_len: int, kv_len: int) -> HeadShape:
        """Give the shape of the attention core in a call of this size: ``heads`` unless another form runs then."""
        return self.heads(config)

    def made(self, config: Any, q_len: int, kv_len: int) -> int:
        """Count the numbers that projections make of what one sequence keeps, for the core to read in its place."""
        return 0

    def mix(
        self,
        config: Any,
        weights: Tensors,
        tensors: tuple[Tensor, ...],
        *,
        allowed: Tensor | Mask | None,
        align: str,
        score_mod: ScoreMod | None,
        scale: float | None,
        backend: str,
    ) -> CoreOutput:
        """Mix the tokens without any projection of tokens: what stands between ``project`` and the output's matrix.

        Args:
            config: From ``config``.
            weights: From ``weights``, for those that take part in it.
            tensors: As ``core_shapes`` has them.
            allowed: As in ``attend``, as are the others; ``scale`` None is the variant's own.
            align: As in ``attend``.
            score_mod: As in ``attend``.
            scale: As in ``attend``.
            backend: One of ``backends``.
        """
        raise NotImplementedError(f"{self.key} mixes its tokens only as a whole layer")

    def pick(self, backend: str | None) -> str:
        """Give the key of the backend asked for; None is the first.

        Raises:
            Refusal: If the variant does not run on it; the message lists those that it runs on.
        """
        name = self.backends[0] if backend is None else backend
        if name not in self.backends:
            raise refuse("backend", ONE_OF.fill(valid=", ".join(self.backends)), repr(name))
        return name

    def acts_on(self, config: Any, q_len: int, kv_len: int, new: int) -> Mapping[str, int]:
        """Give how many tokens of one sequence each matrix acts on; ``new`` of the ``kv_len`` keys are not cached."""
        context = self.context_matrices(config)
        return {name: new if name in context else q_len for name in self.matrices(config)}

    def flops(self, config: Any, q_len: int, kv_len: int, new: int, *, causal: bool = False) -> int:
        """Count the FLOPs of one sequence: its projections, each on so many tokens, and what mixes the tokens.

        ``causal`` matters where another algorithm runs then; a softmax backend is counted as if it skipped nothing.
        """
        tokens = self.acts_on(config, q_len, kv_len, new)
        projections = sum(2 * rows * cols * tokens[name] for name, (rows, cols) in self.matrices(config).items())
        return projections + self.mix_flops(config, q_len, kv_len)

    def scores(self, config: Any, q_len: int, kv_len: int) -> int:
        """Count the scores of one sequence; a variant without a score matrix gives 0."""
        return self.heads(config).heads * q_len * kv_len

    def grows(self, config: Any) -> bool:
        """Say whether what is kept grows with the tokens; else it is a state of fixed size, and no token is in it."""
        return self.cache(config, 1) != self.cache(config, 2)

    def cache_itemsize(self, itemsize: int) -> int:
        """Give the bytes of one number of the cache when the layer's numbers have ``itemsize``."""
        return itemsize

    def takes(self, score_mod: ScoreMod | None) -> bool:
        """Say whether a modification of the scores can be applied."""
        return True

    def score_passes(self, backend: str) -> int:
        """Give how often a backend writes the score matrix to memory or reads it."""
        return BACKENDS[backend].score_passes

    def peak_bytes(self, config: Any, work: Work, backend: str) -> int:
        """Predict what the core allocates at its peak in a forward pass on one CPU thread, results included."""
        how, shape = BACKENDS[backend], work.shape(self.heads(config))
        if how.forward is None:
            return how.peak_bytes(shape, work.itemsize, work.masked)
        return peak_of(how.forward, Pass(shape, work.itemsize, work.masked, work.causal))

    def whole_peak_bytes(self, config: Any, work: Work, backend: str) -> int | None:
        """Predict what a call takes at its peak where it is more than the core's forward pass: a layer, a gradient.

        None where nobody has worked it out.
        """
        return None

    def is_exact(self, config: Any, backend: str) -> bool:
        """Say whether ``peak_bytes`` and ``whole_peak_bytes`` are what torch allocates, to the byte."""
        return False

    def asks(self, config: Any) -> bool:
        """Say whether what a call takes depends on the numbers that it computes with."""
        return False

    def tiles(self, config: Any, work: Work) -> int:
        """Count the tiles that the variant itself cuts a call into."""
        return 1

    def piece(self, config: Any, backend: str) -> int | None:
        """Give how many tokens a call goes through at a time, doing the same with each; None where it does not."""
        return None

    def parameters(self, config: Any) -> int:
        """Count the weights."""
        return sum(rows * cols for rows, cols in self.matrices(config).values()) + sum(self.vectors(config).values())


def refuse(name: str, rule: Text, value: object) -> Refusal:
    """Give the refusal that names an argument, its rule and the value received."""
    return Refusal(_BAD.fill(name=same(name), rule=rule, value=same(str(value))))
