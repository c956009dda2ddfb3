"""What a change of the scores is made of: a bias, a cap, a factor; and a bias that is nowhere held whole."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from attnviz.knobs import Knob, checked
from attnviz.text import Refusal, Text, same

Span = tuple[int, int]
# Gives the bias of some of a number of heads by distance: (heads, which, key - query [count]) -> [which, count].
Bias = Callable[[int, Sequence[int], Tensor], Tensor]

_BAD = Text("{name} must be {rule}, got {value}.", "{name} 应为{rule}，收到的是 {value}。")
_ALIGN = Text("one of top_left, bottom_right", " top_left 或 bottom_right")


class Terms(NamedTuple):
    """Hold what a backend is given.

    ``bias`` is ``[1, heads, rows, cols]`` or None, ``softcap`` a bound or None, ``scale`` a factor on the scale.
    """

    bias: Tensor | None
    softcap: float | None
    scale: float


@dataclass(frozen=True)
class LateBias:
    """Hold a bias that is worked out region by region, so that no [q_len, kv_len] matrix of it ever exists.

    Args:
        region: Gives ``[1, heads, rows, cols]`` from the spans of rows and columns.
    """

    region: Callable[[Span, Span], Tensor]


@dataclass(frozen=True)
class ScoreMod:
    """Change scores to softcap(score · scale) + bias.

    Args:
        key: Plain key of its kind.
        bias: Gives the bias from heads and distances, or None.
        softcap: Bound c > 0, as c · tanh(score / c), or None.
        scale: Factor on the scale of the scores.
    """

    key: str
    bias: Bias | None = None
    softcap: float | None = None
    scale: float = 1.0

    def terms(
        self,
        heads: int,
        q_len: int,
        kv_len: int,
        *,
        align: str = "top_left",
        rows: Span | None = None,
        cols: Span | None = None,
        which: Sequence[int] | None = None,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> Terms:
        """Give bias, softcap and scale factor for a call, or for one region of its score matrix.

        Args:
            heads: Query heads.
            q_len: Queries.
            kv_len: Keys.
            align: Where query 0 stands: ``top_left`` at key 0, ``bottom_right`` at key kv_len - q_len.
            rows: First query of the region and the one after the last; None is all.
            cols: First key and the one after the last.
            which: The heads to give, by index; None is all.
            dtype: Type of the bias.
            device: Device of the bias.

        Raises:
            Refusal: If ``align`` is neither of the two.
        """
        if align not in ("top_left", "bottom_right"):
            raise Refusal(_BAD.fill(name=same("align"), rule=_ALIGN, value=same(repr(align))))
        if self.bias is None:
            return Terms(None, self.softcap, self.scale)
        offset = kv_len - q_len if align == "bottom_right" else 0
        (top, bottom), (left, right) = rows or (0, q_len), cols or (0, kv_len)
        # The bias depends on the distance alone: worked out once for each, then laid out along the diagonals.
        distance = torch.arange(left - bottom + 1 - offset, right - top - offset, device=device)
        line = self.bias(heads, range(heads) if which is None else which, distance).to(dtype)
        return Terms(line.unfold(1, right - left, 1).flip(1)[None], self.softcap, self.scale)

    def late_bias(
        self, heads: int, q_len: int, kv_len: int, *, align: str, dtype: torch.dtype, device: torch.device | str
    ) -> LateBias | None:
        """Give the bias of a whole call without making it: a backend asks for the regions that it works on."""
        if self.bias is None:
            return None

        def region(rows: Span, cols: Span) -> Tensor:
            terms = self.terms(heads, q_len, kv_len, align=align, rows=rows, cols=cols, dtype=dtype, device=device)
            assert terms.bias is not None
            return terms.bias

        return LateBias(region)


@dataclass(frozen=True)
class ScoreModKind:
    """Describe one kind of change: what it is called, what can be set, and how it is built from the settings.

    ``code`` gives the lines of plain PyTorch that make ``bias``, ``[heads, q_len, kv_len]``, from ``heads`` and
    ``distance``, key position less query position; None for a kind without a bias.
    """

    key: str
    label: Text
    help: Text
    source: str
    make: Callable[..., ScoreMod]
    knobs: tuple[Knob, ...] = ()
    code: Callable[..., str] | None = None

    def build(self, **settings: Any) -> ScoreMod:
        """Build the change from the values of its knobs; those not given take their default.

        Raises:
            Refusal: If a value breaks its knob's rule.
            ValueError: If a setting is not one of the knobs.
        """
        return self.make(**self.read(**settings))

    def read(self, **settings: Any) -> dict[str, Any]:
        """Give the checked value of every knob, see ``build``."""
        return checked(self.key, self.knobs, settings)
