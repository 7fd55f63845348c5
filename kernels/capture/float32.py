"""Rewrites one function, for given kinds of its arguments, so that every step is float32, int32 or bool.

Kinds: "f" float32, "i" int32 (wrapping), "b" bool, "f[]" and "i[]" one-dimensional arrays, and tuples of kinds.

An expression of Python numbers alone is computed while capturing, in Python's own arithmetic, and enters as one
float32: `x * (1.0 / 3.0)` means x * float32(1/3), which is what NumPy does with it too. A variable has one kind, the
widest that is ever assigned to it. Integers meeting floats become float32; integer / integer is a float32 division.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import FunctionType, ModuleType
from typing import Any, NoReturn

import numpy as np

from ...primitives.errors import CaptureError
from ..sequence import SEQUENCES
from . import names
from .source import Definition

Kind = Any  # "f", "i", "b", "f[]", "i[]", or a tuple of kinds
PREFIX = "__captured__"  # becomes the name under which the function is emitted
MAX_TABLE_BYTES = 65536
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


_ORDER = {"b": 0, "i": 1, "f": 2}
_FOLD: dict[type, Callable[..., Any]] = {
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
_INT_HELPER = {
    ast.FloorDiv: "floor_divide",
    ast.Mod: "remainder",
    ast.LShift: "shift_left",
    ast.RShift: "shift_right",
}


class Rewriter:
    """Rewrites one definition. `program` keeps what several functions share: tables, other functions, notes."""

    def __init__(
        self,
        program: Any,
        definition: Definition,
        kinds: dict[str, Kind],
        known: dict[str, Any],
        writes: tuple[str, ...] = (),
    ) -> None:
        self.program, self.definition, self.known_arguments = program, definition, known
        self.writes = writes  # arguments that are filled
        self.arguments = kinds
        self.kinds: dict[str, Kind] = dict(kinds)
        self.returned: Kind = None
        self.changed = False
        self.line = definition.tree.lineno
        self.known: dict[str, Expr] = {}
        self.sizes: dict[str, ast.expr] = {}
        self.notes: dict[tuple[int, str], Note] = {}
        self.assigned = _assignments(definition.tree)
        taken = {n.id for n in ast.walk(definition.tree) if isinstance(n, ast.Name)} | set(kinds)
        if any(n.startswith(PREFIX) for n in taken):
            self.refuse(f"names may not begin with {PREFIX}")
        self.renamed = {n: self._free(n, taken) for n in taken if n in RESERVED}

    def _free(self, identifier: str, taken: set[str]) -> str:
        while identifier in taken or identifier in RESERVED:
            identifier += "_"
        return identifier

    # Results -------------------------------------------------------------------------------------------------------

    def rewrite(self, called: str) -> tuple[ast.FunctionDef, Kind]:
        """The rewritten function under the name `called`, and the kind of its result."""
        tree = self.definition.tree
        body = [ast.Return(tree.body)] if isinstance(tree, ast.Lambda) else tree.body
        if self.writes:
            body = [*body, ast.Return(None)]
        elif not isinstance(tree, ast.Lambda) and not _returns(body):
            self.refuse("can end without a return", tree)
        for _ in range(16):  # kinds only widen, so this ends
            self.changed = False
            self.notes.clear()
            self.known = {k: constant(v) for k, v in self.known_arguments.items()}
            self.kinds.update({k: self.known[k].kind for k in self.known if k not in self.kinds})
            lines = self.block(body)
            if not self.changed:
                break
        prologue: list[ast.stmt] = [
            ast.Assign([name(self.local(k), True)], self.known[k].tree)
            for k in self.known_arguments
            if self.assigned.get(k, 0) > 0
        ]
        parameters = [ast.arg(self.local(k)) for k in self.arguments]
        made = ast.FunctionDef(
            called, ast.arguments([], parameters, None, [], [], None, []), [*prologue, *lines], [], None, None
        )
        if "type_params" in ast.FunctionDef._fields:
            made.type_params = []
        self.program.notes.extend(self.notes.values())
        return ast.fix_missing_locations(made), self.returned

    def refuse(self, why: str, node: ast.AST | None = None) -> NoReturn:
        raise CaptureError(f"{self.definition.where(getattr(node, 'lineno', None) or self.line)}: {why}")

    def note(self, node: ast.AST, found: str, done: str) -> None:
        line = getattr(node, "lineno", self.line)
        self.notes.setdefault((line, found), Note(line, self.definition.name, found, done))

    def local(self, identifier: str) -> str:
        return self.renamed.get(identifier, identifier)

    # Kinds ---------------------------------------------------------------------------------------------------------

    def join(self, a: Kind, b: Kind, node: ast.AST, what: str) -> Kind:
        if a is None or a == b:
            return b
        if isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b):
            return tuple(self.join(x, y, node, what) for x, y in zip(a, b, strict=True))
        if a in _ORDER and b in _ORDER:
            return a if _ORDER[a] >= _ORDER[b] else b
        self.refuse(f"{what} is {_spell(a)} in one place and {_spell(b)} in another", node)

    def convert(self, e: Expr, kind: Kind, node: ast.AST) -> Expr:
        """The expression as another kind, as Python's arithmetic would widen it; never narrower but to bool."""
        if isinstance(kind, tuple):
            if not isinstance(e.kind, tuple) or len(e.kind) != len(kind):
                self.refuse(f"{_spell(e.kind)} where {_spell(kind)} is needed", node)
            parts = e.parts or tuple(
                Expr(ast.Subscript(e.tree, ast.Constant(n), ast.Load()), k) for n, k in enumerate(e.kind)
            )
            made = tuple(self.convert(p, k, node) for p, k in zip(parts, kind, strict=True))
            return Expr(ast.Tuple([p.tree for p in made], ast.Load()), kind, parts=made)
        if e.kind == kind:
            return e
        if e.kind not in _ORDER or kind not in _ORDER:
            self.refuse(f"{_spell(e.kind)} where {_spell(kind)} is needed", node)
        if e.known:
            return constant({"f": float, "i": int, "b": bool}[kind](e.value))
        if kind == "b":
            zero = constant(0.0 if e.kind == "f" else 0)
            return Expr(ast.Compare(e.tree, [ast.NotEq()], [zero.tree]), "b")
        if kind == "f":
            tree = call("i32", e.tree) if e.kind == "b" else e.tree
            return Expr(call("f32", tree), "f")
        if e.kind == "b":
            return Expr(call("i32", e.tree), "i")
        return Expr(call("to_int", e.tree), "i")

    def truth(self, node: ast.expr) -> Expr:
        return self.convert(self.expr(node), "b", node)

    def scalar(self, node: ast.expr) -> Expr:
        e = self.expr(node)
        if e.kind not in _ORDER:
            self.refuse(f"{_spell(e.kind)} where a number is needed", node)
        return e

    # Statements ----------------------------------------------------------------------------------------------------

    def block(self, body: list[ast.stmt]) -> list[ast.stmt]:
        lines: list[ast.stmt] = []
        for node in body:
            self.line = node.lineno if hasattr(node, "lineno") else self.line
            method = getattr(self, f"stmt_{type(node).__name__}", None)
            if method is None:
                self.refuse(f"a {type(node).__name__.lower()} statement cannot be compiled", node)
            made = method(node)
            lines.extend(made if isinstance(made, list) else [made])
        return lines or [ast.Pass()]

    def stmt_Pass(self, node: ast.Pass) -> ast.stmt:
        return ast.Pass()

    def stmt_Break(self, node: ast.Break) -> ast.stmt:
        return ast.Break()

    def stmt_Continue(self, node: ast.Continue) -> ast.stmt:
        return ast.Continue()

    def stmt_Assert(self, node: ast.Assert) -> ast.stmt:
        self.note(node, "assert", "left out")
        return ast.Pass()

    def stmt_Expr(self, node: ast.Expr) -> ast.stmt:
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            return ast.Pass()
        self.refuse("an expression whose value is not used; captured functions have no side effects", node)

    def stmt_Return(self, node: ast.Return) -> ast.stmt:
        if self.writes:
            if node.value is not None:
                self.refuse(f"returns a value; it fills {', '.join(self.writes)} and returns nothing", node)
            return ast.Return(ast.Constant(0))
        if node.value is None:
            self.refuse("returns nothing", node)
        e = self.expr(node.value)
        if e.kind in ("f[]", "i[]"):
            self.refuse("returns an array; return numbers or a tuple of them", node)
        wanted = self.join(self.returned, e.kind, node, "the result")
        wanted = self.program.result_kind(self, wanted, node)
        self.changed |= wanted != self.returned
        self.returned = wanted
        return ast.Return(self.convert(e, wanted, node).tree)

    def stmt_Assign(self, node: ast.Assign) -> list[ast.stmt]:
        e = self.expr(node.value)
        lines: list[ast.stmt] = []
        for target in node.targets:
            lines.extend(self.store(target, e, node))
        return lines

    def stmt_AnnAssign(self, node: ast.AnnAssign) -> list[ast.stmt]:
        if node.value is None:
            return [ast.Pass()]
        return self.store(node.target, self.expr(node.value), node)

    def stmt_AugAssign(self, node: ast.AugAssign) -> list[ast.stmt]:
        load = ast.copy_location(ast.fix_missing_locations(_as_load(node.target)), node)
        return self.store(node.target, self.binary(node.op, self.scalar(load), self.scalar(node.value), node), node)

    def store(self, target: ast.expr, e: Expr, node: ast.AST) -> list[ast.stmt]:
        if isinstance(target, (ast.Tuple, ast.List)):
            if not isinstance(e.kind, tuple) or len(e.kind) != len(target.elts):
                self.refuse(f"{len(target.elts)} names cannot take {_spell(e.kind)}", node)
            kinds = []
            for part, kind in zip(target.elts, e.kind, strict=True):
                if not isinstance(part, ast.Name):
                    self.refuse("only names can be unpacked into", node)
                kinds.append(self.widen(part.id, kind, node))
            places: list[ast.expr] = [name(self.local(p.id), True) for p in target.elts if isinstance(p, ast.Name)]
            return [ast.Assign([ast.Tuple(places, ast.Store())], self.convert(e, tuple(kinds), node).tree)]
        if isinstance(target, ast.Subscript):
            array = self.expr(target.value)
            if array.kind not in ("f[]", "i[]") or not isinstance(target.value, ast.Name):
                self.refuse("only a local array can be stored into by index", node)
            if target.value.id not in self.sizes and target.value.id not in self.writes:
                self.refuse(f"writes into {target.value.id!r}, which belongs to the caller", node)
            place = ast.Subscript(array.tree, self.index(target.slice, array, node), ast.Store())
            return [ast.Assign([place], self.convert(e, array.kind[0], node).tree)]
        if not isinstance(target, ast.Name):
            self.refuse("assigns to something that is neither a name nor an element", node)
        kind = self.widen(target.id, e.kind, node)
        if e.kind in ("f[]", "i[]"):
            if e.size is not None and isinstance(e.tree, ast.Call):
                self.sizes[target.id] = e.size
            elif self.assigned.get(target.id, 0) > 1:
                self.refuse(f"{target.id!r} is an array that is assigned twice", node)
        made = self.convert(e, kind, node)
        if self.assigned.get(target.id, 0) == 1 and e.known and kind in _ORDER:
            self.known[target.id] = e
        return [ast.Assign([name(self.local(target.id), True)], made.tree)]

    def widen(self, identifier: str, kind: Kind, node: ast.AST) -> Kind:
        wanted = self.join(self.kinds.get(identifier), kind, node, f"{identifier!r}")
        if identifier in self.arguments and wanted != self.arguments[identifier]:
            # the argument keeps its kind where it comes in; a wider local would change it
            self.refuse(
                f"{identifier!r} comes in as {_spell(self.arguments[identifier])} and is assigned "
                f"{_spell(kind)}; give the result another name",
                node,
            )
        if wanted != self.kinds.get(identifier):
            self.changed |= identifier in self.kinds
            self.kinds[identifier] = wanted
        return wanted

    def stmt_If(self, node: ast.If) -> ast.stmt:
        test = self.truth(node.test)
        return ast.If(test.tree, self.block(node.body), self.block(node.orelse) if node.orelse else [])

    def stmt_While(self, node: ast.While) -> ast.stmt:
        if node.orelse:
            self.refuse("while .. else cannot be compiled", node)
        return ast.While(self.truth(node.test).tree, self.block(node.body), [])

    def stmt_For(self, node: ast.For) -> ast.stmt:
        if node.orelse or not isinstance(node.target, ast.Name):
            self.refuse("a loop has one plain name and no else", node)
        target = node.target.id
        over = node.iter
        if isinstance(over, ast.Call) and self.resolve(over.func) is range:
            bounds = [self.convert_index(a) for a in over.args]
            if over.keywords or not 1 <= len(bounds) <= 3:
                self.refuse("range takes one to three numbers", node)
            kind, source, item = "i", call("range", *bounds), "i32"
        else:
            array = self.expr(over)
            if array.kind not in ("f[]", "i[]"):
                self.refuse(f"loops over {_spell(array.kind)}; a range or an array can be looped over", node)
            kind, source, item = array.kind[0], array.tree, "f32" if array.kind == "f[]" else "i32"
        widened = self.widen(target, kind, node)
        place = self.local(target)
        value = self.convert(Expr(call(item, name(place + "_item")), kind), widened, node)
        first: ast.stmt = ast.Assign([name(place, True)], value.tree)
        return ast.For(name(place + "_item", True), source, [first, *self.block(node.body)], [], None)

    def convert_index(self, node: ast.expr) -> ast.expr:
        e = self.scalar(node)
        if e.kind == "f":
            self.refuse("range of a float; use int(..)", node)
        return e.tree

    # Expressions ---------------------------------------------------------------------------------------------------

    def expr(self, node: ast.expr) -> Expr:
        method = getattr(self, f"expr_{type(node).__name__}", None)
        if method is None:
            self.refuse(f"{ast.unparse(node)!r}: a {type(node).__name__} cannot be compiled", node)
        return method(node)

    def expr_Constant(self, node: ast.Constant) -> Expr:
        if isinstance(node.value, (bool, int, float)):
            return replace(constant(node.value), made="literal")
        self.refuse(f"{node.value!r}, a {type(node.value).__name__}, is not a number", node)

    def expr_Name(self, node: ast.Name) -> Expr:
        identifier = node.id
        if identifier in self.known:
            return self.known[identifier]
        if identifier in self.kinds:
            kind = self.kinds[identifier]
            tree = name(self.local(identifier))
            return Expr(tree, kind, size=self.sizes.get(identifier) or call("i32", call("len", tree)))
        if identifier in self.assigned:
            self.refuse(f"{identifier!r} is read before it is assigned", node)
        return self.outside(identifier, self.resolve(node), node)

    def expr_Attribute(self, node: ast.Attribute) -> Expr:
        if isinstance(node.value, ast.Name) and node.value.id in self.kinds:
            array = self.expr(node.value)
            if node.attr == "size" and array.kind in ("f[]", "i[]") and array.size is not None:
                return Expr(array.size, "i")
            self.refuse(f"{ast.unparse(node)!r}: arrays have len() and size, numbers have no attributes here", node)
        return self.outside(ast.unparse(node), self.resolve(node), node)

    def outside(self, spelled: str, obj: Any, node: ast.AST) -> Expr:
        """A number or table from outside the function, with its value at this moment."""
        if isinstance(obj, (bool, int, float, np.bool_, np.integer, np.floating)):
            return constant(obj)
        if isinstance(obj, (np.ndarray, list, tuple)):
            return self.table(spelled, obj, node)
        self.refuse(
            f"uses {spelled!r}, {_article(type(obj).__name__)}; numbers, arrays of numbers, math, np and other plain "
            f"functions can be used",
            node,
        )

    def table(self, spelled: str, obj: Any, node: ast.AST) -> Expr:
        try:
            values = np.asarray(obj)
        except ValueError:
            values = np.empty(0, object)
        if values.dtype.kind not in "biuf" or values.ndim not in (1, 2) or not values.size:
            self.refuse(
                f"uses {spelled!r}, {_article(type(obj).__name__)} of {values.dtype} with shape {values.shape}; "
                f"a table has one or two dimensions of numbers",
                node,
            )
        if values.dtype.kind == "f":
            if values.dtype == np.float64:
                self.note(node, f"table {spelled!r} is float64", "stored as float32")
            with np.errstate(over="ignore"):
                values = values.astype(np.float32)
        else:
            if values.min() < -(1 << 31) or values.max() >= 1 << 31:
                self.refuse(f"table {spelled!r} has integers that int32 does not hold", node)
            values = values.astype(np.int32)
        if values.nbytes > MAX_TABLE_BYTES:
            self.refuse(f"table {spelled!r} has {values.nbytes} bytes; at most {MAX_TABLE_BYTES} are compiled in", node)
        kind = "f[]" if values.dtype.kind == "f" else "i[]"
        if values.ndim == 2:
            kind += "[]"
        return Expr(
            name(self.program.table(spelled, values)),
            kind,
            size=number(values.shape[0]),
            parts=(),
            made=str(values.shape[-1]),
        )

    def resolve(self, node: ast.expr) -> Any:
        """The object that a name or a dotted name stands for outside the function."""
        if isinstance(node, ast.Name):
            if node.id in self.kinds or node.id in self.assigned:
                self.refuse(f"{node.id!r} is a value of this function, not a function", node)
            try:
                return self.definition.lookup(node.id)
            except KeyError:
                self.refuse(f"the name {node.id!r} is not defined", node)
        if isinstance(node, ast.Attribute):
            home = self.resolve(node.value)
            if not isinstance(home, ModuleType):
                self.refuse(
                    f"{ast.unparse(node)!r}: attributes of {_article(type(home).__name__)} cannot be used; "
                    f"assign it to a name outside the function",
                    node,
                )
            try:
                return getattr(home, node.attr)
            except AttributeError:
                self.refuse(f"{home.__name__} has no {node.attr!r}", node)
        self.refuse(f"{ast.unparse(node)!r} cannot be called; only named functions can", node)

    def expr_Tuple(self, node: ast.Tuple) -> Expr:
        parts = tuple(self.expr(e) for e in node.elts)
        return Expr(ast.Tuple([p.tree for p in parts], ast.Load()), tuple(p.kind for p in parts), parts=parts)

    def expr_List(self, node: ast.List) -> Expr:
        parts = [self.expr(e) for e in node.elts]
        if not parts or not all(p.known for p in parts):
            self.refuse("a list of anything but known numbers; np.zeros(n, np.float32) makes a local array", node)
        return self.table("list", [p.value for p in parts], node)

    def expr_UnaryOp(self, node: ast.UnaryOp) -> Expr:
        if isinstance(node.op, ast.Not):
            e = self.truth(node.operand)
            return constant(not e.value) if e.known else Expr(ast.UnaryOp(ast.Not(), e.tree), "b")
        e = self.scalar(node.operand)
        if e.known:
            return self.fold(node, node.op, e)
        if e.kind == "b":
            e = self.convert(e, "i", node)
        if isinstance(node.op, ast.Invert) and e.kind == "f":
            self.refuse("~ of a float", node)
        if isinstance(node.op, ast.UAdd):
            return e
        tree = ast.UnaryOp(node.op, e.tree)
        return Expr(tree, "f") if e.kind == "f" else Expr(call("i32", tree), "i")

    def fold(self, node: ast.AST, op: ast.AST, *operands: Expr) -> Expr:
        try:
            return constant(_FOLD[type(op)](*(e.value for e in operands)))
        except (ArithmeticError, ValueError, TypeError) as error:
            self.refuse(f"{ast.unparse(node)!r}: {error}", node)

    def expr_BinOp(self, node: ast.BinOp) -> Expr:
        return self.binary(node.op, self.scalar(node.left), self.scalar(node.right), node)

    def binary(self, op: ast.operator, a: Expr, b: Expr, node: ast.AST) -> Expr:
        if a.known and b.known:
            return self.fold(node, op, a, b)
        if isinstance(op, ast.Pow):
            return self.power(a, b, node)
        if isinstance(op, ast.MatMult):
            self.refuse("@ is not an operation on numbers", node)
        float_result = isinstance(op, ast.Div) or "f" in (a.kind, b.kind)
        if not float_result:
            return self.integer(op, self.convert(a, "i", node), self.convert(b, "i", node), node)
        if not isinstance(op, (ast.Add, ast.Sub, ast.Mult, ast.Div)):
            hint = {ast.FloorDiv: "np.floor(a / b)", ast.Mod: "a - np.floor(a / b) * b"}.get(type(op), "int(..) first")
            self.refuse(
                f"{ast.unparse(node)!r}: {_OPERATOR[type(op)]} on floats cannot be compiled; write {hint}", node
            )
        self.note_mix(a, b, node, isinstance(op, ast.Div))
        return self.floats(op, self.convert(a, "f", node), self.convert(b, "f", node))

    def note_mix(self, a: Expr, b: Expr, node: ast.AST, division: bool) -> None:
        for e, other in ((a, b), (b, a)):
            if e.kind == "f" and e.known and not other.known:
                self.note(node, f"float64 literal in {_short(node)!r}", "float32")
            elif e.kind != "f" and not e.known and (other.kind == "f" or division):
                self.note(node, f"integer and float in {_short(node)!r} would be float64", "float32")

    def floats(self, op: ast.operator, a: Expr, b: Expr) -> Expr:
        return Expr(ast.BinOp(a.tree, op, b.tree), "f")

    def integer(self, op: ast.operator, a: Expr, b: Expr, node: ast.AST) -> Expr:
        if type(op) in _INT_HELPER:
            return Expr(call(_INT_HELPER[type(op)], a.tree, b.tree), "i")
        return Expr(call("i32", ast.BinOp(a.tree, op, b.tree)), "i")

    def power(self, base: Expr, exponent: Expr, node: ast.AST) -> Expr:
        if not exponent.known or base.kind == "b":
            self.refuse(f"{_short(node)!r}: the exponent must be a known number; exp2 and log2 make others", node)
        n = exponent.value
        if n == 0.5:
            return Expr(call("sqrt", self.convert(base, "f", node).tree), "f")
        if n != int(n) or not -16 <= n <= 16:
            self.refuse(f"{_short(node)!r}: exponents are the integers -16..16 and 0.5", node)
        if isinstance(n, float) or n < 0:
            base = self.convert(base, "f", node)
        self.note(node, f"{_short(node)!r} would call pow", "products")
        made = self.products(base, abs(int(n)), node)
        if n >= 0:
            return made
        return self.floats(ast.Div(), constant(1.0), self.convert(made, "f", node))

    def products(self, base: Expr, n: int, node: ast.AST) -> Expr:
        """base**n by squaring, from the highest bit of n down."""
        if n == 0:
            return constant(1.0 if base.kind == "f" else 1)
        if n == 1:
            return base
        base = self.once(base)
        half = self.products(base, n // 2, node)
        multiply = self.floats if base.kind == "f" else lambda op, a, b: self.integer(op, a, b, node)
        square = multiply(ast.Mult(), half, half)
        return multiply(ast.Mult(), square, base) if n % 2 else square

    def once(self, e: Expr) -> Expr:
        return e  # pure expressions may be written twice; the compiler computes them once

    def expr_BoolOp(self, node: ast.BoolOp) -> Expr:
        parts = [self.truth(v) for v in node.values]
        return Expr(ast.BoolOp(node.op, [p.tree for p in parts]), "b")

    def expr_Compare(self, node: ast.Compare) -> Expr:
        sides = [self.scalar(n) for n in (node.left, *node.comparators)]
        made: list[Expr] = []
        for op, a, b in zip(node.ops, sides, sides[1:], strict=False):
            if type(op) not in _FOLD:
                self.refuse(f"{_short(node)!r}: numbers are compared with < <= > >= == and !=", node)
            if a.known and b.known:
                made.append(self.fold(node, op, a, b))
                continue
            kind = max(a.kind, b.kind, key=lambda k: _ORDER[k])
            kind = "i" if kind == "b" else kind
            trees = [self.convert(e, kind, node).tree for e in (a, b)]
            made.append(Expr(ast.Compare(trees[0], [op], [trees[1]]), "b"))
        if len(made) == 1:
            return made[0]
        return Expr(ast.BoolOp(ast.And(), [m.tree for m in made]), "b")

    def expr_IfExp(self, node: ast.IfExp) -> Expr:
        test = self.truth(node.test)
        yes, no = self.expr(node.body), self.expr(node.orelse)
        if test.known:
            return yes if test.value else no
        kind = self.join(yes.kind, no.kind, node, "the value")
        trees = [self.convert(e, kind, node).tree for e in (yes, no)]
        return Expr(ast.IfExp(test.tree, *trees), kind)

    def expr_Subscript(self, node: ast.Subscript) -> Expr:
        e = self.expr(node.value)
        if isinstance(e.kind, tuple):
            index = self.scalar(node.slice)
            if index.known and isinstance(index.value, int) and -len(e.kind) <= index.value < len(e.kind):
                at = index.value % len(e.kind)
                if e.parts:
                    return e.parts[at]
                return Expr(ast.Subscript(e.tree, ast.Constant(at), ast.Load()), e.kind[at])
            if e.parts and all(p.known for p in e.parts):
                e = self.table("tuple", [p.value for p in e.parts], node)
            else:
                self.refuse("the index of a tuple must be a known number inside it", node)
        if e.kind in ("f[][]", "i[][]"):
            if not isinstance(node.slice, ast.Tuple) or len(node.slice.elts) != 2:
                self.refuse(f"{_short(node)!r}: a table with two dimensions is read as table[i, j]", node)
            row, column = node.slice.elts
            indices = ast.Tuple(
                [self.index(row, e, node), self.index(column, replace(e, size=number(int(e.made))), node)], ast.Load()
            )
            return Expr(ast.Subscript(e.tree, indices, ast.Load()), e.kind[0])
        if e.kind not in ("f[]", "i[]"):
            self.refuse(f"{_short(node)!r}: {_spell(e.kind)} has no elements", node)
        tree = ast.Subscript(e.tree, self.index(node.slice, e, node), ast.Load())
        return Expr(call("f32" if e.kind == "f[]" else "i32", tree), e.kind[0])

    def index(self, node: ast.expr, array: Expr, at: ast.AST) -> ast.expr:
        if isinstance(node, (ast.Slice, ast.Tuple)):
            self.refuse("arrays are read one element at a time", at)
        e = self.scalar(node)
        if e.kind == "f":
            self.refuse(f"{_short(node)!r}: an index must be an integer", at)
        assert array.size is not None
        size = array.size
        if e.known and isinstance(size, ast.Constant):
            if not -size.value <= e.value < size.value:
                self.refuse(f"index {e.value} is outside a table of {size.value}", at)
            return number(int(e.value) % size.value)
        size = call("i32", size) if isinstance(size, ast.Constant) else size
        return call("at", self.convert(e, "i", at).tree, size)

    # Calls ---------------------------------------------------------------------------------------------------------

    def expr_Call(self, node: ast.Call) -> Expr:
        if any(isinstance(a, ast.Starred) for a in node.args) or any(k.arg is None for k in node.keywords):
            self.refuse("* and ** in a call cannot be compiled", node)
        obj = self.resolve(node.func)
        special = names.special_of(obj)
        if special is not None:
            return getattr(self, f"call_{special}")(node)
        helper = names.helper_of(obj)
        if helper is not None:
            return self.helper(helper, node, obj)
        if isinstance(obj, FunctionType) or isinstance(getattr(obj, "py_func", None), FunctionType):
            if (obj.__module__ or "").partition(".")[0] not in ("numpy", "math", "scipy"):
                return self.function(obj, node)
        spelled = ast.unparse(node.func)
        self.refuse(f"calls {spelled!r}, which cannot be compiled; supported are {names.supported()}", node)

    def arguments_of(self, node: ast.Call, least: int, most: int | None = None) -> list[Expr]:
        most = least if most is None else most
        if node.keywords or not least <= len(node.args) <= most:
            takes = str(least) if least == most else f"{least} to {most}"
            self.refuse(f"{_short(node)!r}: takes {takes} positional arguments here", node)
        return [self.scalar(a) for a in node.args]

    def helper(self, helper: str, node: ast.Call, obj: Any) -> Expr:
        signatures = SEQUENCES[helper].signatures
        args = self.arguments_of(node, len(signatures[0][0]))
        if args and all(a.known for a in args) and not isinstance(obj, (FunctionType, type(SEQUENCES[helper]))):
            try:
                with np.errstate(all="ignore"):
                    return constant(obj(*(a.value for a in args)))
            except (ArithmeticError, ValueError) as error:
                self.refuse(f"{_short(node)!r}: {error}", node)
        if getattr(obj, "__module__", "") == "math" or isinstance(obj, np.ufunc):
            self.note(
                node, f"{ast.unparse(node.func)} would be a library call or float64", f"written sequence {helper}"
            )
        return self.apply(helper, args, node)

    def apply(self, helper: str, args: list[Expr], node: ast.AST) -> Expr:
        """A helper on arguments widened to the narrowest of its signatures that takes them."""
        signatures = SEQUENCES[helper].signatures
        always = [set(kinds) == {"b"} for kinds in zip(*(kinds for kinds, _ in signatures), strict=True)]  # a condition
        for kinds, result in signatures:
            if all(_ORDER[a.kind] <= _ORDER[k] or b for a, k, b in zip(args, kinds, always, strict=True)):
                trees = [self.convert(a, k, node).tree for a, k in zip(args, kinds, strict=True)]
                return Expr(call(helper, *trees), result)
        self.refuse(f"{_short(node)!r}: takes {', '.join(map(_spell, signatures[-1][0]))}", node)

    def function(self, obj: Any, node: ast.Call) -> Expr:
        given = [(None, self.expr(a)) for a in node.args] + [(k.arg, self.expr(k.value)) for k in node.keywords]
        called, order, kind = self.program.function(obj, given, self, node)
        trees = [self.convert(e, k, node).tree for e, k in order]
        return Expr(call(called, *trees), kind)

    def extremum(self, node: ast.Call, helper: str) -> Expr:
        if len(node.args) < 2 or node.keywords:
            self.refuse(f"{_short(node)!r}: takes two numbers or more; loop over an array", node)
        args = [self.scalar(a) for a in node.args]
        if all(a.known for a in args):
            return constant((min if helper == "py_min" else max)(*(a.value for a in args)))
        kind = max((a.kind for a in args), key=lambda k: _ORDER[k])
        kind = "i" if kind == "b" else kind
        made = self.convert(args[0], kind, node)
        for a in args[1:]:
            made = self.apply(helper, [made, self.convert(a, kind, node)], node)
        return made

    def call_min(self, node: ast.Call) -> Expr:
        return self.extremum(node, "py_min")

    def call_max(self, node: ast.Call) -> Expr:
        return self.extremum(node, "py_max")

    def call_round(self, node: ast.Call) -> Expr:
        return self.rounded(node, "rint")

    def call_round_float(self, node: ast.Call) -> Expr:
        (e,) = self.arguments_of(node, 1)
        return self.apply("rint", [e], node)

    def call_floor_int(self, node: ast.Call) -> Expr:
        return self.rounded(node, "floor")

    def call_ceil_int(self, node: ast.Call) -> Expr:
        return self.rounded(node, "ceil")

    def call_trunc_int(self, node: ast.Call) -> Expr:
        return self.rounded(node, "trunc")

    def rounded(self, node: ast.Call, helper: str) -> Expr:
        (e,) = self.arguments_of(node, 1)
        if e.kind != "f":
            return self.convert(e, "i", node)
        return self.apply("to_int", [self.apply(helper, [e], node)], node)

    def call_int(self, node: ast.Call) -> Expr:
        (e,) = self.arguments_of(node, 1)
        if e.known and np.isfinite(e.value):
            return constant(int(e.value))
        return self.convert(e, "i", node)

    def call_int64(self, node: ast.Call) -> Expr:
        self.note(node, f"{_short(node)!r} is 64 bits wide", "int32, wrapping")
        return self.call_int(node)

    def call_u32(self, node: ast.Call) -> Expr:
        self.note(node, f"{_short(node)!r} is unsigned", "the same bits as int32; compared and divided as signed")
        return self.call_int(node)

    def masked(self, node: ast.Call, mask: int) -> Expr:
        return self.integer(ast.BitAnd(), self.call_int(node), constant(mask), node)

    def call_u8(self, node: ast.Call) -> Expr:
        return self.masked(node, 0xFF)

    def call_u16(self, node: ast.Call) -> Expr:
        return self.masked(node, 0xFFFF)

    def call_s8(self, node: ast.Call) -> Expr:
        return self.apply("wrap_s8", [self.call_int(node)], node)

    def call_s16(self, node: ast.Call) -> Expr:
        return self.apply("wrap_s16", [self.call_int(node)], node)

    def call_float(self, node: ast.Call) -> Expr:
        (e,) = self.arguments_of(node, 1)
        if e.known and self.resolve(node.func) is np.float32:
            return constant(float(np.float32(e.value)))
        return self.convert(e, "f", node)

    def call_float64(self, node: ast.Call) -> Expr:
        self.note(node, f"{_short(node)!r} is float64", "float32")
        (e,) = self.arguments_of(node, 1)
        return self.convert(e, "f", node)

    def call_float16(self, node: ast.Call) -> Expr:
        (e,) = self.arguments_of(node, 1)
        return self.apply("f16_value", [self.apply("f16_bits", [e], node)], node)

    def call_bool(self, node: ast.Call) -> Expr:
        (e,) = self.arguments_of(node, 1)
        return self.convert(e, "b", node)

    def call_len(self, node: ast.Call) -> Expr:
        if len(node.args) != 1:
            self.refuse("len takes one argument", node)
        e = self.expr(node.args[0])
        if isinstance(e.kind, tuple):
            return constant(len(e.kind))
        if e.size is None or e.kind in _ORDER:
            self.refuse(f"{_short(node)!r}: {_spell(e.kind)} has no length", node)
        return constant(e.size.value) if isinstance(e.size, ast.Constant) else Expr(e.size, "i")

    def call_log(self, node: ast.Call) -> Expr:
        args = self.arguments_of(node, 1, 2)
        if len(args) == 2:
            self.refuse("log with a base; log2 is base 2", node)
        if args[0].known:
            return self.helper("log", node, np.log)
        self.note(node, f"{ast.unparse(node.func)} would be a library call or float64", "written sequence log")
        return self.apply("log", args, node)

    def call_pow(self, node: ast.Call) -> Expr:
        return self.binary(ast.Pow(), *self.arguments_of(node, 2), node)

    def call_square(self, node: ast.Call) -> Expr:
        (e,) = self.arguments_of(node, 1)
        return self.binary(ast.Mult(), e, e, node)

    def call_frexp(self, node: ast.Call) -> Expr:
        (e,) = self.arguments_of(node, 1)
        parts = (self.apply("frexp_mantissa", [e], node), self.apply("frexp_exponent", [e], node))
        return Expr(ast.Tuple([p.tree for p in parts], ast.Load()), ("f", "i"), parts=parts)

    def call_zeros(self, node: ast.Call) -> Expr:
        types = [*node.args[1:], *(k.value for k in node.keywords if k.arg == "dtype")]
        size = self.scalar(node.args[0]) if node.args else constant(0)
        wanted = self.resolve(types[0]) if len(types) == 1 else None
        if wanted not in (np.float32, np.int32) or not size.known or not 1 <= size.value <= 256:
            self.refuse(
                f"{_short(node)!r}: a local array is np.zeros(n, np.float32 or np.int32), n known, 1..256", node
            )
        dtype = ast.Attribute(name("np"), "float32" if wanted is np.float32 else "int32", ast.Load())
        array = ast.Call(ast.Attribute(name("np"), "zeros", ast.Load()), [number(int(size.value)), dtype], [])
        return Expr(array, "f[]" if wanted is np.float32 else "i[]", size=number(int(size.value)))


_OPERATOR = {
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.LShift: "<<",
    ast.RShift: ">>",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
}


def _assignments(tree: ast.AST) -> dict[str, int]:
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


def _returns(body: list[ast.stmt]) -> bool:
    """Whether a block always ends in a return."""
    for node in body:
        if isinstance(node, ast.Return):
            return True
        if isinstance(node, ast.If) and node.orelse and _returns(node.body) and _returns(node.orelse):
            return True
        if isinstance(node, ast.While) and isinstance(node.test, ast.Constant) and node.test.value:
            return True
    return False


def _as_load(node: ast.expr) -> ast.expr:
    if isinstance(node, ast.Name):
        return ast.Name(node.id, ast.Load())
    assert isinstance(node, ast.Subscript)
    return ast.Subscript(node.value, node.slice, ast.Load())


def _short(node: ast.AST) -> str:
    text = ast.unparse(node)
    return text if len(text) <= 48 else text[:45] + "..."


def _spell(kind: Kind) -> str:
    if isinstance(kind, tuple):
        return f"a tuple of {len(kind)}"
    return {"f": "float32", "i": "int32", "b": "bool", None: "nothing"}.get(kind, "an array")


def _article(word: str) -> str:
    return f"{'an' if word[:1] in 'aeiou' else 'a'} {word}"
