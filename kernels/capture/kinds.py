"""What the rewriting of a user's function is written in: kinds, expressions, and small syntax trees.

Kinds: "f" float32, "i" int32 (wrapping), "b" bool, "f[]" and "i[]" one-dimensional arrays, and tuples of kinds.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..floatops import to_int
from ..sequence import SEQUENCES

Kind = Any  # "f", "i", "b", "f[]", "i[]", or a tuple of kinds
PREFIX = "__captured__"  # becomes the name under which the function is emitted
RESERVED = {"f32", "i32", "np", "njit", *SEQUENCES}


@dataclass(frozen=True)
class Note:
    """A line that other compilers would have taken to float64 or to a library call, and what was done with it."""

    line: int
    function: str
    found: str
    done: str

    def __str__(self) -> str:
        return f"{self.function}, line {self.line}: {self.found}: {self.done}"


@dataclass(frozen=True)
class Expr:
    """A rewritten expression: its tree and kind; its value where it is known now; its parts where it is a tuple."""

    tree: ast.expr
    kind: Kind
    value: Any = None
    parts: tuple[Expr, ...] = ()
    size: ast.expr | None = None  # of an array
    made: str = ""  # "literal", "int" ..: for notes

    @property
    def known(self) -> bool:
        return self.value is not None


def name(identifier: str, store: bool = False) -> ast.expr:
    return ast.Name(identifier, ast.Store() if store else ast.Load())


def call(function: str, *args: ast.expr) -> ast.expr:
    return ast.Call(name(function), list(args), [])


def number(value: Any) -> ast.expr:
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        spelled = "nan" if value != value else "inf"
        tree: ast.expr = ast.Attribute(name("np"), spelled, ast.Load())
        return ast.UnaryOp(ast.USub(), tree) if value < 0 else tree
    if not isinstance(value, bool) and (value < 0 or (value == 0 and str(value).startswith("-"))):
        return ast.UnaryOp(ast.USub(), ast.Constant(-value))
    return ast.Constant(value)


def wrapped(value: int) -> int:
    """An integer modulo 2**32, signed."""
    return (int(value) + (1 << 31)) % (1 << 32) - (1 << 31)


def saturated(value: Any) -> int:
    """A number as to_int makes it of a float: without its fraction, held inside int32, 0 for NaN. Integers stay."""
    if isinstance(value, (int, np.integer)):
        return int(value)
    with np.errstate(over="ignore"):
        return int(to_int(np.float32(value)))


def constant(value: Any) -> Expr:
    """A number that is known now."""
    if isinstance(value, (bool, np.bool_)):
        return Expr(ast.Constant(bool(value)), "b", bool(value))
    if isinstance(value, (int, np.integer)):
        return Expr(call("i32", number(wrapped(value))), "i", int(value))
    value = float(value)
    with np.errstate(over="ignore"):
        stored = float(np.float32(value))
    shown = value if np.isfinite(stored) else stored
    return Expr(call("f32", number(shown)), "f", value)


ORDER = {"b": 0, "i": 1, "f": 2}
FOLD: dict[type, Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Invert: operator.invert,
    ast.Not: operator.not_,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
INT_HELPER = {
    ast.FloorDiv: "floor_divide",
    ast.Mod: "remainder",
    ast.LShift: "shift_left",
    ast.RShift: "shift_right",
}
OPERATOR = {
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.LShift: "<<",
    ast.RShift: ">>",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
}


def assignments(tree: ast.AST) -> dict[str, int]:
    """How often each local name is assigned; a loop counts twice, because it assigns again."""
    counts: dict[str, int] = {}

    def visit(node: ast.AST, weight: int) -> None:
        weight = 2 if isinstance(node, (ast.For, ast.While)) else weight
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            counts[node.target.id] = counts.get(node.target.id, 0) + 2
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            counts[node.id] = counts.get(node.id, 0) + weight
        for child in ast.iter_child_nodes(node):
            visit(child, weight)

    visit(tree, 1)
    return counts


def returns(body: list[ast.stmt]) -> bool:
    """Whether a block always ends in a return."""
    for node in body:
        if isinstance(node, ast.Return):
            return True
        if isinstance(node, ast.If) and node.orelse and returns(node.body) and returns(node.orelse):
            return True
        if isinstance(node, ast.While) and isinstance(node.test, ast.Constant) and node.test.value:
            return True
    return False


def as_load(node: ast.expr) -> ast.expr:
    if isinstance(node, ast.Name):
        return ast.Name(node.id, ast.Load())
    assert isinstance(node, ast.Subscript)
    return ast.Subscript(node.value, node.slice, ast.Load())


def short(node: ast.AST) -> str:
    text = ast.unparse(node)
    return text if len(text) <= 48 else text[:45] + "..."


def spell(kind: Kind) -> str:
    if isinstance(kind, tuple):
        return f"a tuple of {len(kind)}"
    return {"f": "float32", "i": "int32", "b": "bool", None: "nothing"}.get(kind, "an array")


def article(word: str) -> str:
    return f"{'an' if word[:1] in 'aeiou' else 'a'} {word}"
