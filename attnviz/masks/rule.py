"""A mask's rule as a tree of what is allowed in one: the range of each number, its value over tensors, its PyTorch.

All numbers are float64. Each carries the range it can have, so that a rule whose numbers could leave what a float64
holds exactly is refused when it is read and not wrong when it is used. A comparison that divides by zero is false.
"""

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

Interval = tuple[float, float]
Number = Tensor | float

# Whole numbers up to here are exact in float64.
MOST_VALUE = 2.0**53
# A query stands before the first key when it is aligned to the last ones.
NAMES: Mapping[str, Interval] = MappingProxyType(
    {"batch": (0.0, 4095.0), "head": (0.0, 4095.0), "q_idx": (-131_072.0, 131_072.0), "kv_idx": (0.0, 131_072.0)}
)
COMPARE: Mapping[str, Callable[[Any, Any], Any]] = MappingProxyType(
    {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne}
)
ARITHMETIC: Mapping[str, Callable[[Any, Any], Any]] = MappingProxyType(
    {
        "+": operator.add,
        "-": operator.sub,
        "*": operator.mul,
        "/": operator.truediv,
        "//": operator.floordiv,
        "%": operator.mod,
        "**": operator.pow,
    }
)
DIVISIONS = ("/", "//", "%")


@dataclass(frozen=True)
class Node:
    """Hold one part of a rule.

    Args:
        op: ``number``, ``name``, an arithmetic sign, ``neg``, ``min``, ``max``, ``abs``, a comparison sign, ``and``,
            ``or`` or ``not``.
        parts: What it is made of.
        value: The number, or the name.
        span: Least and greatest number it can be; unused for truths.
        whole: It is always a whole number.
        text: How it was written.
    """

    op: str
    parts: tuple["Node", ...] = ()
    value: float | str = 0.0
    span: Interval = (0.0, 0.0)
    whole: bool = False
    text: str = field(default="", compare=False)

    @property
    def is_truth(self) -> bool:
        """It is a comparison or joins some; otherwise it is a number."""
        return self.op in TRUTHS

    @property
    def can_be_zero(self) -> bool:
        """Whether zero lies in its range."""
        return self.span[0] <= 0.0 <= self.span[1]

    def size(self) -> int:
        """Give of how many parts it is made, itself included."""
        return 1 + sum(part.size() for part in self.parts)

    def names(self) -> frozenset[str]:
        """Give the names that it uses."""
        own = frozenset((str(self.value),)) if self.op == "name" else frozenset()
        return own.union(*(part.names() for part in self.parts))


TRUTHS = frozenset((*COMPARE, "and", "or", "not"))


def number(value: float, text: str = "") -> Node:
    """Give a constant."""
    return Node("number", (), value, (value, value), value.is_integer(), text)


def combine(op: str, *parts: Node) -> Node:
    """Give an operation on numbers, worked out where all of them are constants.

    The divisor of a division must not be the constant 0, nor an exponent anything but a constant.
    """
    if all(part.op == "number" for part in parts):
        return number(float(_apply(op, [float(part.value) for part in parts])))
    whole = op == "//" or (op != "/" and all(part.whole for part in parts))
    return Node(op, parts, 0.0, _span(op, [part.span for part in parts], parts[-1].whole), whole)


def _span(op: str, spans: Sequence[Interval], whole_last: bool) -> Interval:
    """Give the range of an operation from the ranges of its parts; ``whole_last``: the last is a whole number."""
    (a, b), (c, d) = spans[0], spans[-1]
    if op == "neg":
        return -b, -a
    if op == "abs":
        return (0.0 if a <= 0 <= b else min(abs(a), abs(b))), max(abs(a), abs(b))
    if op in ("min", "max"):
        pick = min if op == "min" else max
        return pick(low for low, _ in spans), pick(high for _, high in spans)
    if op == "%":
        return min(0.0, c), max(0.0, d)
    if op == "**":
        ends = [a**c, b**c, *([0.0] if a <= 0 <= b and c > 0 else [])]
    elif op in DIVISIONS and c <= 0 <= d:
        # The whole number nearest to zero that divides is 1; a fraction can be as near to it as it likes.
        most = max(abs(a), abs(b)) if whole_last else MOST_VALUE
        ends = [-most, most]
    else:
        apply = ARITHMETIC["/" if op == "//" else op]
        ends = [apply(left, right) for left in (a, b) for right in (c, d)]
    low, high = min(ends), max(ends)
    return (float(math.floor(low)), float(math.floor(high))) if op == "//" else (low, high)


def _apply(op: str, values: Sequence[Any]) -> Any:
    """Work out one operation on floats or tensors."""
    if op in ARITHMETIC:
        return ARITHMETIC[op](*values)
    if op == "neg":
        return -values[0]
    if op == "abs":
        return abs(values[0])
    # The constants first: what is left of them is one bound.
    rest = [value for value in values if isinstance(value, Tensor)]
    fixed = [value for value in values if not isinstance(value, Tensor)]
    if not rest:
        return min(fixed) if op == "min" else max(fixed)
    made = rest[0]
    for value in rest[1:]:
        made = torch.minimum(made, value) if op == "min" else torch.maximum(made, value)
    if fixed:
        made = made.clamp(max=min(fixed)) if op == "min" else made.clamp(min=max(fixed))
    return made


def holds(node: Node, names: Mapping[str, Tensor]) -> Tensor:
    """Give where a rule holds.

    Args:
        node: A truth.
        names: A tensor for each name that it uses; they broadcast.

    Returns:
        bool, of the shape that the tensors used broadcast to.
    """
    if node.op == "not":
        return ~holds(node.parts[0], names)
    if node.op in ("and", "or"):
        join = torch.logical_and if node.op == "and" else torch.logical_or
        made = holds(node.parts[0], names)
        for part in node.parts[1:]:
            made = join(made, holds(part, names))
        return made
    zeros: list[Tensor] = []
    left, right = (value(part, names, zeros) for part in node.parts)
    made = COMPARE[node.op](left, right)
    if not isinstance(made, Tensor):
        made = torch.tensor(made, device=next(iter(names.values())).device)
    for zero in zeros:
        made = made & ~zero
    return made


def value(node: Node, names: Mapping[str, Tensor], zeros: list[Tensor]) -> Number:
    """Give the value of a number; where a divisor is zero is put into ``zeros``, and it divides by 1 there."""
    if node.op == "number":
        return float(node.value)
    if node.op == "name":
        index = names[str(node.value)]
        # Apple's GPUs have no float64.
        return index.to(torch.float32 if index.device.type == "mps" else torch.float64)
    values = [value(part, names, zeros) for part in node.parts]
    if node.op in DIVISIONS and node.parts[1].can_be_zero:
        divisor = torch.as_tensor(values[1])
        zeros.append(divisor == 0)
        values[1] = torch.where(zeros[-1], 1.0, divisor)
    return _apply(node.op, values)


def torch_code(node: Node, names: Mapping[str, str]) -> str:
    """Write a rule as one expression of PyTorch.

    Args:
        node: A truth.
        names: What each name is called there, a float64 tensor.
    """
    if node.op == "not":
        return f"~({torch_code(node.parts[0], names)})"
    if node.op in ("and", "or"):
        sign = " & " if node.op == "and" else " | "
        return sign.join(f"({torch_code(part, names)})" for part in node.parts)
    zeros: list[str] = []
    left, right = (_number_code(part, names, zeros) for part in node.parts)
    made = f"{left} {node.op} {right}"
    if all(part.op == "number" for part in node.parts):
        return f"torch.tensor({made})"
    return " & ".join([f"({made})", *(f"({zero} != 0)" for zero in zeros)]) if zeros else made


def _number_code(node: Node, names: Mapping[str, str], zeros: list[str]) -> str:
    if node.op == "number":
        worth = float(node.value)
        return str(int(worth)) if worth.is_integer() else repr(worth)
    if node.op == "name":
        return names[str(node.value)]
    parts = [_number_code(part, names, zeros) for part in node.parts]
    if node.op in DIVISIONS and node.parts[1].can_be_zero:
        zeros.append(parts[1])
        parts[1] = f"{parts[1]}.where({parts[1]} != 0, 1)"
    if node.op in ARITHMETIC:
        return f"({parts[0]} {node.op} {parts[1]})"
    if node.op == "neg":
        return f"(-{parts[0]})"
    if node.op == "abs":
        return f"{parts[0]}.abs()"
    fixed = [part for part, made in zip(parts, node.parts, strict=True) if made.op == "number"]
    rest = [part for part, made in zip(parts, node.parts, strict=True) if made.op != "number"]
    made = rest[0]
    for part in rest[1:]:
        made = f"torch.{node.op}imum({made}, {part})"
    for part in fixed:
        made = f"{made}.clamp({'max' if node.op == 'min' else 'min'}={part})"
    return made
