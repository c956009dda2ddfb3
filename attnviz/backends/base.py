"""What every backend gives, and how it is listed."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Bool
from torch import Tensor

from attnviz.config import Shape
from attnviz.ledger import Ledger
from attnviz.masks import Mask
from attnviz.score_mods import LateBias
from attnviz.text import Text


@dataclass(frozen=True)
class CoreOutput:
    """Hold what one call of a backend gives.

    Args:
        output: [batch, heads, q_len, value width], in the dtype of the query.
        weights: [batch, heads, q_len, kv_len], after softmax; only from eager.
        scores: [batch, heads, q_len, kv_len], after scale, softcap and bias and before masking; only from eager.
        logsumexp: [batch, heads, q_len], logarithm of the row's sum of exponentials; -inf in a row without a key.
        kernel: What ran, for people ("flash", "packed decode · flash").
    """

    output: Tensor
    weights: Tensor | None = None
    scores: Tensor | None = None
    logsumexp: Tensor | None = field(default=None, repr=False)
    kernel: str = ""


class LateCoreOutput(CoreOutput):
    """Hold the answer of a kernel that keeps no row statistics: the log-sum-exp is worked out when first asked for.

    Until then the answer keeps the call's inputs alive.

    Args:
        output: As in ``CoreOutput``.
        kernel: As in ``CoreOutput``.
        statistics: Gives the log-sum-exp.
    """

    def __init__(self, output: Tensor, kernel: str, statistics: Callable[[], Tensor]):
        super().__init__(output, kernel=kernel)
        # The instance's own entry would hide the property below.
        del self.__dict__["logsumexp"]
        self.__dict__["_statistics"] = statistics

    @cached_property
    def logsumexp(self) -> Tensor | None:  # type: ignore[override]  # a field of the base, late here
        """Work out the log-sum-exp and let the inputs go."""
        return self.__dict__.pop("_statistics")()


@runtime_checkable
class Attend(Protocol):
    """The call that every backend answers."""

    def __call__(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        allowed: Tensor | Mask | None = None,
        align: str = "top_left",
        bias: Tensor | LateBias | None = None,
        scale: float | None = None,
        softcap: float | None = None,
    ) -> CoreOutput: ...


class Pass(NamedTuple):
    """Say what one call works on, as far as its memory goes; sizes are given in bytes.

    Args:
        shape: Sizes of the call.
        itemsize: Bytes of one number.
        masked: A dense boolean mask is given.
        causal: The causal mask is given as a rule.
        split_query: The query is a view of rows of tokens, cut into heads as a projection leaves it.
        split_keys: The keys are, too.
        split_values: The values are, too.
        gradient: What a gradient reads again is kept.
        fixed_keys: Keys and values ask for no gradient: they come from a cache.
    """

    shape: Shape
    itemsize: int
    masked: bool = False
    causal: bool = False
    split_query: bool = False
    split_keys: bool = False
    split_values: bool = False
    gradient: bool = False
    fixed_keys: bool = False

    @property
    def rows(self) -> int:
        """Number of queries of all heads and sequences."""
        return math.prod(self.shape.query[:3])

    @property
    def scores(self) -> int:
        """Bytes of a number for each pair of query and key."""
        return math.prod(self.shape.scores) * self.itemsize

    @property
    def query(self) -> int:
        """Bytes of the queries."""
        return math.prod(self.shape.query) * self.itemsize

    @property
    def key(self) -> int:
        """Bytes of the keys."""
        return math.prod(self.shape.key) * self.itemsize

    @property
    def value(self) -> int:
        """Bytes of the values."""
        return math.prod(self.shape.value) * self.itemsize

    @property
    def output(self) -> int:
        """Bytes of the output."""
        return self.rows * self.shape.value[3] * self.itemsize

    def take_copies(self, ledger: Ledger, *names: str) -> None:
        """Take the copies that a batched product of split tensors needs.

        It wants sequences and heads as one axis, which they are only where one of them is alone, or the tokens are.
        Queries that share a head of keys are stacked as its rows, for which they are copied in any case.
        """
        shape = self.shape
        apart = shape.batch > 1 and shape.kv_heads > 1
        needed = {
            "query_copy": self.split_query and shape.q_len > 1 and (apart or shape.group > 1),
            "key_copy": self.split_keys and shape.kv_len > 1 and apart,
            "value_copy": self.split_values and shape.kv_len > 1 and apart,
        }
        sizes = {"query_copy": self.query, "key_copy": self.key, "value_copy": self.value}
        ledger.take(**{name: sizes[name] for name in names if needed[name]})


Play = Callable[[Ledger, Pass], None]


def peak_of(play: Play, given: Pass) -> int:
    """Give the most that a play holds at once."""
    ledger = Ledger()
    play(ledger, given)
    return ledger.most


@dataclass(frozen=True)
class Backend:
    """Describe one way to compute softmax attention.

    Args:
        key: Plain key for links and registries.
        label: What it is called on screen.
        help: One or two sentences on how it computes.
        source: URL of where the method is described.
        attend: The call.
        peak_bytes: Predicts what the call allocates at its peak on one CPU thread, results included and inputs (with
            the mask) left out: takes the shape, the bytes of one element, and whether a dense boolean mask is given.
        score_passes: How often the score matrix is written to memory or read from it.
        kernel_bytes: The same as ``peak_bytes`` for kernels that can be asked for by name, where it is known.
        forward: Takes in a ledger what a pass takes, so that what is held around it can be counted too. Left are the
            results, ``output`` among them (``output_rows`` if it lies as rows of tokens), and what a gradient reads.
        backward: Takes what the gradient takes: lets go of ``output_grad`` and of ``query``, and leaves ``query_grad``,
            ``key_grad`` and ``value_grad``. None where the backend computes none.
    """

    key: str
    label: Text
    help: Text
    source: str
    attend: Attend
    peak_bytes: Callable[[Shape, int, bool], int] = field(repr=False)
    score_passes: int = 0
    kernel_bytes: Mapping[str, Callable[[Shape, int, bool], int]] = field(default_factory=dict, repr=False)
    forward: Play | None = field(default=None, repr=False)
    backward: Play | None = field(default=None, repr=False)


def nonfinite_rows(result: CoreOutput) -> Bool[Tensor, "batch heads q_len"]:
    """Mark the rows whose numbers left the range of the dtype (or whose inputs were not finite).

    In float16 a score above 65,504 becomes inf, and its row of weights and outputs NaN, where bfloat16 still has a
    number. A score that overflows in a masked cell changes nothing and marks nothing.

    Returns:
        True where the row's output holds NaN or inf.
    """
    return ~torch.isfinite(result.output).all(-1)
