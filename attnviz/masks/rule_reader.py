"""A mask's rule as a person types it: read into a small tree of what is allowed; nothing of it is ever executed.

A rule is one comparison, or several joined by ``and``, ``or``, ``not``, of numbers made of ``batch, head, q_idx,
kv_idx``, constants, ``+ - * / // % **`` and ``min max abs``. Anything else is refused, with its position.
"""

import ast
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from attnviz.masks.rule import MOST_VALUE, NAMES, Node, combine
from attnviz.masks.rule import number as constant
from attnviz.text import Refusal, Text

MOST_LETTERS = 240
MOST_PARTS, MOST_DEPTH = 64, 20
MOST_POWER = 52
COMPARISONS: Mapping[type, str] = MappingProxyType(
    {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}
)
SIGNS: Mapping[type, str] = MappingProxyType(
    {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**"}
)
CALLS: Mapping[str, tuple[int, int]] = MappingProxyType({"min": (2, 8), "max": (2, 8), "abs": (1, 1)})

_AT = Text(
    "rule: at character {place}, {fault}. A rule may use batch, head, q_idx, kv_idx, numbers, + - * / // % **, "
    "comparisons, and, or, not, min, max and abs.",
    "规则（rule）：第 {place} 个字符处，{fault}。规则可用 batch、head、q_idx、kv_idx、数字、+ - * / // % **、"
    "比较、and、or、not、min、max 和 abs。",
)
_EMPTY = Text("nothing is written", "什么也没写")
_LONG = Text("the rule goes on for more than {most} characters", "规则超过了 {most} 个字符")
_SYNTAX = Text("the expression cannot be read", "表达式无法读懂")
_NAME = Text("{piece} is not a known name", "{piece} 不是已知的名字")
_FORM = Text("{piece} is not allowed", "不允许使用 {piece}")
_COUNT = Text("{piece} takes {low} to {high} numbers", "{piece} 需要 {low} 到 {high} 个数")
_TRUTH = Text("{piece} is a number where a comparison is needed", "{piece} 是数，此处需要比较")
_NUMBER = Text("{piece} is a comparison where a number is needed", "{piece} 是比较，此处需要数")
_DEEP = Text("the rule is nested or composed too far", "规则嵌套过深或组成过多")
_ZERO = Text("{piece} divides by zero", "{piece} 除以零")
_POWER = Text("the exponent must be a whole number from 0 to {most}", "指数应为 0 到 {most} 的整数")
_LARGE = Text("{piece} could grow beyond 2^53", "{piece} 可能超过 2^53")


def parse(text: str) -> Node:
    """Read a rule.

    Args:
        text: The rule, at most ``MOST_LETTERS`` characters; line breaks count as spaces.

    Returns:
        The tree; its root is a truth.

    Raises:
        Refusal: If it is not such a rule; names the position, what is wrong there and what may be used.
    """
    line = "".join(" " if sign.isspace() else sign for sign in text)
    lead = len(line) - len(line.lstrip())
    if len(line) > MOST_LETTERS:
        raise _refuse(MOST_LETTERS + 1, _LONG, most=MOST_LETTERS)
    if not line.strip():
        raise _refuse(1, _EMPTY)
    try:
        body = ast.parse(line.strip(), mode="eval").body
    except SyntaxError as error:
        raise _refuse(lead + min(max(1, error.offset or 1), len(line.strip())), _SYNTAX) from None
    except (ValueError, MemoryError, RecursionError):
        raise _refuse(lead + 1, _SYNTAX) from None
    return Reader(line.strip(), lead).truth(body, 1)


def _refuse(place: int, fault: Text, **fields: object) -> Refusal:
    return Refusal(_AT.fill(place=place, fault=fault.fill(**fields)))


class Reader:
    """Walk Python's own tree of an expression, taking only what is listed here."""

    def __init__(self, line: str, lead: int):
        self.line, self.lead, self.count = line, lead, 0

    def refuse(self, node: ast.AST, fault: Text, **fields: object) -> Refusal:
        """Give the refusal of a part: where it stands, and what it is in its own words."""
        start = getattr(node, "col_offset", 0)
        place = len(self.line.encode()[:start].decode(errors="ignore")) + 1 + self.lead
        return _refuse(place, fault, piece=self.piece(node), **fields)

    def piece(self, node: ast.AST) -> str:
        """Give how a part is written, cut so that it cannot flood the page."""
        text = self.text(node)
        return repr(text if len(text) <= 30 else text[:29] + "…")

    def text(self, node: ast.AST) -> str:
        """Give how a part is written."""
        return ast.get_source_segment(self.line, node) or self.line

    def enter(self, node: ast.AST, depth: int) -> None:
        """Count a part and how deep it stands."""
        self.count += 1
        if self.count > MOST_PARTS or depth > MOST_DEPTH:
            raise self.refuse(node, _DEEP)

    def truth(self, node: ast.expr, depth: int) -> Node:
        """Read a comparison, or several joined."""
        self.enter(node, depth)
        if isinstance(node, ast.BoolOp):
            parts = tuple(self.truth(part, depth + 1) for part in node.values)
            return Node("and" if isinstance(node.op, ast.And) else "or", parts, text=self.text(node))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return Node("not", (self.truth(node.operand, depth + 1),), text=self.text(node))
        if isinstance(node, ast.Compare):
            return self.comparison(node, depth)
        self.number(node, depth)  # what is wrong inside is named first
        raise self.refuse(node, _TRUTH)

    def comparison(self, node: ast.Compare, depth: int) -> Node:
        """Read a comparison; a chain of them is all of its neighbours joined by and."""
        sides = [self.number(side, depth + 1) for side in (node.left, *node.comparators)]
        pairs = []
        for operator, left, right, side in zip(node.ops, sides, sides[1:], node.comparators, strict=False):
            sign = COMPARISONS.get(type(operator))
            if sign is None:
                raise self.refuse(node if side is node.comparators[0] else side, _FORM)
            pairs.append(Node(sign, (left, right), text=f"{left.text} {sign} {right.text}"))
        return pairs[0] if len(pairs) == 1 else Node("and", tuple(pairs), text=self.text(node))

    def number(self, node: ast.expr, depth: int) -> Node:
        """Read a number."""
        self.enter(node, depth)
        read = self._kinds.get(type(node))
        if read is None:
            raise self.refuse(node, _FORM)
        made = read(self, node, depth)
        if not (abs(made.span[0]) <= MOST_VALUE and abs(made.span[1]) <= MOST_VALUE):
            raise self.refuse(node, _LARGE)
        return replace(made, text=self.text(node))

    def _constant(self, node: ast.Constant, depth: int) -> Node:
        # A truth value is a whole number to Python.
        if isinstance(node.value, bool) or not isinstance(node.value, (int, float)):
            raise self.refuse(node, _FORM)
        if not -MOST_VALUE <= node.value <= MOST_VALUE:
            raise self.refuse(node, _LARGE)
        return constant(float(node.value))

    def _name(self, node: ast.Name, depth: int) -> Node:
        if node.id not in NAMES:
            raise self.refuse(node, _NAME)
        return Node("name", (), node.id, NAMES[node.id], True)

    def _unary(self, node: ast.UnaryOp, depth: int) -> Node:
        if isinstance(node.op, ast.Not):
            raise self.refuse(node, _NUMBER)
        if not isinstance(node.op, (ast.USub, ast.UAdd)):
            raise self.refuse(node, _FORM)
        part = self.number(node.operand, depth + 1)
        if isinstance(node.op, ast.UAdd):
            return part
        return combine("neg", part)

    def _binary(self, node: ast.BinOp, depth: int) -> Node:
        sign = SIGNS.get(type(node.op))
        if sign is None:
            raise self.refuse(node, _FORM)
        left, right = self.number(node.left, depth + 1), self.number(node.right, depth + 1)
        if sign == "**":
            if right.op != "number" or not right.whole or not 0 <= right.span[0] <= MOST_POWER:
                raise self.refuse(node.right, _POWER, most=MOST_POWER)
            most = max(map(abs, left.span))
            if most > 1 and right.span[0] * math.log2(most) > math.log2(MOST_VALUE):
                raise self.refuse(node, _LARGE)
        if sign in ("/", "//", "%") and right.span == (0.0, 0.0):
            raise self.refuse(node, _ZERO)
        return combine(sign, left, right)

    def _call(self, node: ast.Call, depth: int) -> Node:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name not in CALLS or node.keywords or any(isinstance(part, ast.Starred) for part in node.args):
            raise self.refuse(node, _FORM)
        low, high = CALLS[name]
        if not low <= len(node.args) <= high:
            raise self.refuse(node, _COUNT, low=low, high=high)
        parts = tuple(self.number(part, depth + 1) for part in node.args)
        return combine(name, *parts)

    def _comparison_as_number(self, node: ast.expr, depth: int) -> Node:
        raise self.refuse(node, _NUMBER)

    _kinds: Mapping[type, Callable[["Reader", Any, int], Node]] = MappingProxyType(
        {
            ast.Constant: _constant,
            ast.Name: _name,
            ast.UnaryOp: _unary,
            ast.BinOp: _binary,
            ast.Call: _call,
            ast.Compare: _comparison_as_number,
            ast.BoolOp: _comparison_as_number,
        }
    )
