"""The mask that a person writes: an expression of positions, read and checked, never executed."""

from functools import lru_cache

import torch
from torch import Tensor

from attnviz.knobs import Words
from attnviz.masks.base import Mask, MaskKind
from attnviz.masks.rule import Node, holds, torch_code
from attnviz.masks.rule_reader import MOST_LETTERS, parse
from attnviz.text import Text

DEFAULT_RULE = "kv_idx <= q_idx and (q_idx - kv_idx < 4 or kv_idx % 4 == 0)"
# So many parts of a rule, in float64, take as long as a mask of its own.
PARTS_OF_WORK = 4
_CODE_NAMES = {"batch": "b_at", "head": "h_at", "q_idx": "q_at", "kv_idx": "k_at"}
_CODE_VALUES = {
    "head": "head.double()",
    "q_idx": "q_idx.double()",
    "kv_idx": "kv_idx.double()",
}


@lru_cache(maxsize=64)
def read(rule: str) -> Node:
    """Give the tree of a rule; see ``rule_reader.parse``."""
    return parse(rule)


def own(rule: str) -> Mask:
    """Let a query see the keys for which ``rule`` holds.

    Args:
        rule: An expression in ``batch, head, q_idx, kv_idx``, all counted from 0; a comparison that divides by zero is
            false.

    Raises:
        Refusal: If it is no such expression.
    """
    tree = read(rule)
    used = tree.names()

    def allows(batch: Tensor, head: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        made = holds(tree, {"batch": batch, "head": head, "q_idx": q_idx, "kv_idx": kv_idx})
        return made.expand(torch.broadcast_shapes(made.shape, q_idx.shape, kv_idx.shape))

    return Mask(allows, per_batch="batch" in used, per_head="head" in used, work=1 + tree.size() // PARTS_OF_WORK)


def _code(rule: str, batch: int = 0) -> str:
    """Write a rule for one sequence of the batch; a name for it, not its number, so that it may divide as any does."""
    tree = read(rule)
    values = _CODE_VALUES | {"batch": f"torch.tensor({batch}, dtype=torch.float64)  # the sequence"}
    lines = [f"{_CODE_NAMES[name]} = {made}" for name, made in values.items() if name in tree.names()]
    return "\n".join([*lines, torch_code(tree, _CODE_NAMES)])


OWN = (
    MaskKind(
        "own",
        Text("Own rule", "自定义规则"),
        Text(
            "Your own rule: an expression in batch, head, q_idx and kv_idx that says which pairs may attend.",
            "自己写规则：用 batch、head、q_idx 和 kv_idx 的表达式说明哪些位置对可以关注。",
        ),
        own,
        "https://docs.pytorch.org/docs/stable/nn.attention.flex_attention.html",
        (
            Words(
                "rule",
                Text("Rule", "规则"),
                DEFAULT_RULE,
                Text(
                    "Numbers, + - * / // % **, comparisons, and, or, not, min, max, abs. A comparison that divides by "
                    "zero is false.",
                    "可用数字、+ - * / // % **、比较、and、or、not、min、max、abs。比较中除以零时，结果视为假。",
                ),
                most=MOST_LETTERS,
            ),
        ),
        code=_code,
    ),
)
