"""Why a pair may attend or not: the comparisons of the rule with the pair's own numbers."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from attnviz.mask_view.survey import region
from attnviz.mask_view.view import View
from attnviz.masks import MASKS
from attnviz.masks.own import read
from attnviz.masks.rule import Node, combine, holds, number, value
from attnviz.masks.rule_reader import Reader
from attnviz.text import Refusal, Text


@dataclass(frozen=True)
class Clause:
    """Hold one comparison: how it is written, its two sides' numbers with the sign between, and whether it holds.

    A clause with ``join`` (``and``, ``or``, ``not``) stands for those below it that are one deeper, and has no numbers.
    """

    text: str
    numbers: str
    holds: bool
    depth: int = 0
    join: str = ""


@dataclass(frozen=True)
class Reason:
    """Hold what one of the masks says of the pair: its name, its answer, its comparisons, or a sentence instead."""

    label: Text
    allowed: bool
    clauses: tuple[Clause, ...]
    sentence: Text | None


@dataclass(frozen=True)
class Why:
    """Hold the answer for one pair.

    Args:
        allowed: The pair may attend.
        position: Where the query stands on the keys' axis.
        reasons: What the mask says, and the second one where there is one.
    """

    allowed: bool
    position: int
    reasons: tuple[Reason, ...]


def why(view: View, query: int, key: int) -> Why:
    """Say why a query may attend to a key or not.

    Args:
        view: The view.
        query: Index of the query.
        key: Index of the key.

    Raises:
        ValueError: If the pair lies outside the grid.
    """
    if not (0 <= query < view.length and 0 <= key < view.key_length):
        raise ValueError(f"query and key must lie within {view.length} × {view.key_length}, got {query} and {key}")
    pair = ((query, query + 1), (key, key + 1))
    position = query + view.look.offset
    chosen = [(view.mask, dict(view.mask_settings))]
    chosen += [(view.other, dict(view.other_settings))] if view.join != "none" else []
    reasons = []
    for name, settings in chosen:
        kind = MASKS[name]
        allowed = bool(region(kind.build(**settings), view.look, *pair))
        sentence = None if kind.why is None else kind.why(position, key, **settings)
        tree = None if sentence is not None else _tree(view, name, settings)
        names = {"batch": view.sequence, "head": view.head, "q_idx": position, "kv_idx": key}
        clauses = () if tree is None else tuple(_clauses(tree, {n: torch.tensor(at) for n, at in names.items()}))
        reasons.append(Reason(kind.label, allowed, clauses, sentence))
    return Why(bool(region(view.build_mask(), view.look, *pair)), position, tuple(reasons))


def code_of(view: View, name: str, settings: dict) -> str:
    """Give a mask's rule in PyTorch for the sequence that is drawn."""
    if name == "own":
        settings = settings | {"batch": view.sequence}
    if name == "padding":
        settings = settings | {"lengths": (settings["lengths"][view.sequence],)}
    return MASKS[name].code(**settings)


def _tree(view: View, name: str, settings: dict) -> Node | None:
    """Give the tree of a mask's rule, or None where its code is more than comparisons."""
    if name == "own":
        return read(str(settings["rule"]))
    try:
        return _CodeReader(code_of(view, name, settings), view.key_length).read()
    except Refusal:
        return None


def _clauses(node: Node, names: dict[str, torch.Tensor], depth: int = 0) -> Iterator[Clause]:
    """Give a rule's comparisons, each below what joins it; at the top several simply have to hold together."""
    if node.op in ("and", "or", "not"):
        is_list = node.op == "and" and depth == 0
        if not is_list:
            yield Clause(node.text, "", bool(holds(node, names)), depth, node.op)
        for part in _joined(node):
            # A part of the list at the top stands as deep as the list; "and" inside it was taken apart.
            yield from _clauses(part, names, depth if is_list else depth + 1)
        return
    zeros: list[torch.Tensor] = []
    left, right = (float(value(part, names, zeros)) for part in node.parts)
    yield Clause(node.text, f"{_short(left)} {node.op} {_short(right)}", bool(holds(node, names)), depth)


def _joined(node: Node) -> Iterator[Node]:
    """Give the parts of a truth, those of a part that joins in the same way in its place."""
    for part in node.parts:
        yield from _joined(part) if part.op == node.op != "not" else (part,)


def _short(number: float) -> str:
    text = str(int(number)) if number.is_integer() else f"{number:.4g}"
    return text.replace("-", "−")


class _CodeReader(Reader):
    """Read the plain PyTorch of a mask as a rule: ``& | ~`` join comparisons, and earlier lines name numbers."""

    def __init__(self, code: str, kv_len: int):
        *before, last = code.split("\n")
        super().__init__(last, 0)
        self.before, self.bound = before, {"kv_len": number(float(kv_len))}

    def read(self) -> Node:
        """Give the tree.

        Raises:
            Refusal: If there is more in it than a rule has.
        """
        for line in self.before:
            (statement,) = ast.parse(line).body
            if not isinstance(statement, ast.Assign) or not isinstance(statement.targets[0], ast.Tuple):
                raise self.refuse(statement, Text("{piece}", "{piece}"))
            last, self.line = self.line, line
            values = statement.value.elts if isinstance(statement.value, ast.Tuple) else ()
            for target, made in zip(statement.targets[0].elts, values, strict=False):
                self.bound[ast.unparse(target)] = self.number(made, 1)
            self.line = last
        return self.truth(ast.parse(self.line, mode="eval").body, 1)

    def truth(self, node: ast.expr, depth: int) -> Node:
        """Read a comparison, or several joined by bits."""
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.BitAnd, ast.BitOr)):
            parts = tuple(self.truth(part, depth + 1) for part in (node.left, node.right))
            return Node("and" if isinstance(node.op, ast.BitAnd) else "or", parts, text=self.text(node))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
            return Node("not", (self.truth(node.operand, depth + 1),), text=self.text(node))
        return super().truth(node, depth)

    def number(self, node: ast.expr, depth: int) -> Node:
        """Read a number; an earlier line's name stands for what it was given."""
        if isinstance(node, ast.Name) and node.id in self.bound:
            return self.bound[node.id]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "abs":
            made = combine("abs", self.number(node.func.value, depth + 1))
            return Node(made.op, made.parts, made.value, made.span, made.whole, self.text(node))
        return super().number(node, depth)
