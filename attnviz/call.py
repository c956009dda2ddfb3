"""Everything that one attention call depends on."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from attnviz.masks import Mask
from attnviz.mistakes import Mistake
from attnviz.score_mods import ScoreMod, Terms
from attnviz.stage_list import STAGES, present


@dataclass(frozen=True)
class Call:
    """Hold everything one attention call depends on.

    Args:
        query: ``[1, heads, q_len, d_k]``, rotated where the position encoding rotates.
        key: ``[1, kv_heads, kv_len, d_k]``, likewise.
        value: ``[1, kv_heads, kv_len, d_v]``.
        mask: Who may attend to whom.
        align: ``top_left`` or ``bottom_right``.
        scale: Factor on the scores; None means 1/√d_k.
        backend: Key of ``BACKENDS``.
        dropout: Share of weights set to zero, 0 to below 1.
        seed: Seed of the dropout.
        score_mod: Change of the scores before the mask; None leaves them as they are.
        unturned: Query and key before they were rotated; None where nothing rotates.
        mistake: What is done wrong on purpose; None is nothing. Computed by hand, whatever the backend.
        columns: Log-sum-exp of each key's column, ``[1, heads, kv_len]``, which a softmax over queries needs.
        waves: What was added to the token vectors of the queries, ``[q_len, width]``; None where nothing was.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    mask: Mask
    align: str = "top_left"
    scale: float | None = None
    backend: str = "eager"
    dropout: float = 0.0
    seed: int = 0
    score_mod: ScoreMod | None = None
    unturned: tuple[Tensor, Tensor] | None = None
    waves: Tensor | None = None
    mistake: Mistake | None = None
    columns: Tensor | None = None

    @property
    def heads(self) -> int:
        """Number of query heads."""
        return self.query.shape[1]

    @property
    def q_len(self) -> int:
        """Number of queries."""
        return self.query.shape[2]

    @property
    def kv_len(self) -> int:
        """Number of keys."""
        return self.key.shape[2]

    @property
    def factor(self) -> float:
        """The scale as a number."""
        return self.query.shape[3] ** -0.5 if self.scale is None else self.scale

    @property
    def before(self) -> float:
        """What the scores really are multiplied by before the softmax."""
        return self.factor if self.mistake is None else self.mistake.before(self.factor)

    @property
    def stages(self) -> tuple[str, ...]:
        """The stages that this call has, in order."""
        parts = {"waves": self.waves, "turn": self.unturned, "change": self.score_mod}
        return present([name for name, part in parts.items() if part is not None])

    def given(self, stage: str) -> Tensor:
        """Give a stage that is there before any score, ``[1, heads | kv_heads | 1, length, width]``."""
        if stage == "waves":
            assert self.waves is not None
            return self.waves[None, None]
        query, key = (self.query, self.key) if self.unturned is None else self.unturned
        tensors = {"query": query, "key": key, "value": self.value}
        return tensors[stage] if stage in tensors else {"query_turned": self.query, "key_turned": self.key}[stage]

    def extent(self, stage: str) -> tuple[int, int]:
        """Give the sizes of a stage's two axes."""
        entry = STAGES[stage]
        width = (self.given(stage) if entry.given else self.value).shape[-1]
        sizes = {"query": self.q_len, "key": self.kv_len, "feature": width}
        return sizes[entry.rows], sizes[entry.cols]

    def terms(self, heads: Sequence[int], start: int, stop: int, cols: tuple[int, int] | None = None) -> Terms:
        """Give what changes the scores of some heads in some rows; the bias is no larger than those scores."""
        if self.score_mod is None:
            return Terms(None, None, 1.0)
        sizes, place = (self.heads, self.q_len, self.kv_len), {"align": self.align, "rows": (start, stop), "cols": cols}
        target = {"dtype": self.query.dtype, "device": self.query.device}
        return self.score_mod.terms(*sizes, which=heads, **place, **target)

    def of_heads(self, heads: Sequence[int]) -> tuple[Tensor, Tensor, Tensor]:
        """Give query, key and value of some query heads, with the KV heads that these read."""
        if list(heads) == list(range(self.heads)):
            return self.query, self.key, self.value
        group = self.heads // self.key.shape[1]
        kv = [head // group for head in heads]
        index = list(heads)
        return self.query[:, index], self.key[:, kv], self.value[:, kv]
