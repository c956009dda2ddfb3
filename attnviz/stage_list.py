"""The stages of an attention call: what each is called, what its axes are, and when a call has it."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from attnviz.registry import Registry
from attnviz.text import Text, same

Dim = Literal["query", "key", "feature"]
Part = Literal["waves", "turn", "change"]


@dataclass(frozen=True)
class Stage:
    """Describe one stage.

    Args:
        key: Plain key.
        label: What it is called on screen.
        help: One sentence on what it holds.
        rows: What its rows count.
        cols: What its columns count.
        signed: Whether its values have a sign.
        only: The part without which a call has no such stage: ``waves`` or ``turn`` of a position encoding, ``change``
            of the scores; None is always there.
        given: It is there before any score is computed.
    """

    key: str
    label: Text
    help: Text
    rows: Dim
    cols: Dim
    signed: bool = True
    only: Part | None = None
    given: bool = False


STAGES: Registry[Stage] = Registry(
    "stage",
    (
        Stage(
            "waves",
            Text("position", "位置编码"),
            Text("Sines and cosines added to the token vectors.", "加到 token 向量上的正弦与余弦。"),
            "query",
            "feature",
            only="waves",
            given=True,
        ),
        Stage(
            "query",
            same("Q"),
            Text("What each token looks for.", "每个 token 在找什么。"),
            "query",
            "feature",
            given=True,
        ),
        Stage(
            "key",
            same("K"),
            Text("What each token is found by.", "每个 token 凭什么被找到。"),
            "key",
            "feature",
            given=True,
        ),
        Stage(
            "query_turned",
            Text("Q rotated", "Q 旋转后"),
            Text("Queries rotated by their position.", "按位置旋转后的查询。"),
            "query",
            "feature",
            only="turn",
            given=True,
        ),
        Stage(
            "key_turned",
            Text("K rotated", "K 旋转后"),
            Text("Keys rotated by their position.", "按位置旋转后的键。"),
            "key",
            "feature",
            only="turn",
            given=True,
        ),
        Stage(
            "scores",
            same("QKᵀ"),
            Text("Dot product of every query with every key.", "每个查询与每个键的点积。"),
            "query",
            "key",
        ),
        Stage(
            "scaled",
            Text("× scale", "× 缩放"),
            Text("Scores times the scale.", "分数乘以缩放系数。"),
            "query",
            "key",
        ),
        Stage(
            "change",
            Text("score mod", "分数修正"),
            Text("What the score modification adds to each score.", "分数修正给每个分数加上的量。"),
            "query",
            "key",
            only="change",
        ),
        Stage(
            "changed",
            Text("modified", "修正后"),
            Text("Scores after the modification, before the mask.", "修正之后、掩码之前的分数。"),
            "query",
            "key",
            only="change",
        ),
        Stage("masked", Text("mask", "掩码"), Text("Scores that count.", "计入的分数。"), "query", "key"),
        Stage(
            "weights",
            same("softmax"),
            Text("Each row turned into shares of 1.", "每一行变成总和为 1 的份额。"),
            "query",
            "key",
            signed=False,
        ),
        Stage(
            "value",
            same("V"),
            Text("What each token hands over.", "每个 token 交出的内容。"),
            "key",
            "feature",
            given=True,
        ),
        Stage("output", same("· V"), Text("Values summed with the weights.", "按权重对值求和。"), "query", "feature"),
    ),
)


def present(parts: Collection[str]) -> tuple[str, ...]:
    """Give the keys of the stages that a call with these parts has, in the order of the computation."""
    return tuple(key for key, stage in STAGES.items() if stage.only is None or stage.only in parts)
