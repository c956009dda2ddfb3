"""Mistakes that people really make in attention, to be switched on and seen; each says what gives it away."""

from dataclasses import dataclass
from typing import Literal

from attnviz.registry import Registry
from attnviz.text import Text


@dataclass(frozen=True)
class Mistake:
    """Describe one mistake.

    Args:
        key: Plain key.
        label: What it is called on screen.
        help: What is done wrong.
        sign: What gives it away.
        source: Where it happened.
        comment: What the line of code says that makes it.
        scale_at: Where the scale is applied: before the softmax as is right, after it, or never.
        by_column: The softmax runs over the queries of a key, not over the keys of a query.
    """

    key: str
    label: Text
    help: Text
    sign: Text
    source: str
    comment: str = ""
    scale_at: Literal["before", "after", "never"] = "before"
    by_column: bool = False

    def before(self, scale: float) -> float:
        """Give what the scores are multiplied by before the softmax."""
        return scale if self.scale_at == "before" else 1.0

    def after(self, scale: float) -> float:
        """Give what the weights are multiplied by after the softmax."""
        return scale if self.scale_at == "after" else 1.0


MISTAKES: Registry[Mistake] = Registry(
    "mistake",
    (
        Mistake(
            "none",
            Text("None", "无"),
            Text("Everything is computed as it should be.", "一切都按正确方式计算。"),
            Text("Every row of weights sums to 1.", "权重的每一行之和为 1。"),
            "https://arxiv.org/abs/1706.03762",
        ),
        Mistake(
            "wrong_axis",
            Text("Softmax over the wrong axis", "softmax 作用在错误的轴上"),
            Text(
                "The softmax runs down each column, over the queries, instead of along each row, over the keys.",
                "softmax 沿每一列（各个查询）计算，而不是沿每一行（各个键）。",
            ),
            Text("Columns sum to 1, rows do not.", "列和为 1，行和不为 1。"),
            "https://github.com/karpathy/minGPT/issues/132",
            "mistake: the softmax runs over the queries",
            by_column=True,
        ),
        Mistake(
            "late_scale",
            Text("Scale after the softmax", "softmax 之后才缩放"),
            Text(
                "The weights are multiplied by the scale instead of the scores: divided by √d_k after the softmax.",
                "缩放乘在权重上而不是分数上：在 softmax 之后才除以 √d_k。",
            ),
            Text(
                "Every row sums to the scale, 1/√d_k unless you set another, instead of to 1, and is as peaked as "
                "without any scale.",
                "每一行之和等于缩放系数（默认为 1/√d_k）而不是 1，并且分布像不缩放时一样尖锐。",
            ),
            "https://github.com/FrancescoSaverioZuppichini/ViT/issues/2",
            "mistake: the scale comes after the softmax",
            scale_at="after",
        ),
        Mistake(
            "no_scale",
            Text("Scale forgotten", "忘记缩放"),
            Text(
                "The scores go into the softmax as they are, without the scale.",
                "分数不经缩放就直接进入 softmax。",
            ),
            Text(
                "Row sums are still 1: only the output gives it away, and the weights collapse onto few keys.",
                "行和仍为 1：只有输出会露馅，而且权重会坍缩到少数键上。",
            ),
            "https://github.com/mlc-ai/mlc-llm/pull/3426",
            "mistake: the scale is forgotten",
            scale_at="never",
        ),
    ),
)
