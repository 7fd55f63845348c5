"""Rewrites expressions: numbers, names, tables, operators, comparisons, indices."""

from __future__ import annotations

import ast
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np

from .kinds import FOLD, INT_HELPER, OPERATOR, ORDER, Expr, article, call, constant, name, number, short, spell
from .scope import Scope

MAX_TABLE_BYTES = 65536


class Expressions(Scope):
    """The expressions but calls."""

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
            f"uses {spelled!r}, {article(type(obj).__name__)}; numbers, arrays of numbers, math, np and other plain "
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
                f"uses {spelled!r}, {article(type(obj).__name__)} of {values.dtype} with shape {values.shape}; "
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

    def is_computed(self, node: ast.expr) -> bool:
        """Whether an expression is a value of this function: no module or other object from outside it."""
        while isinstance(node, ast.Attribute):
            node = node.value
        return not isinstance(node, ast.Name) or node.id in self.kinds or node.id in self.assigned

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
                    f"{ast.unparse(node)!r}: attributes of {article(type(home).__name__)} cannot be used; "
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
            return constant(FOLD[type(op)](*(e.value for e in operands)))
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
            self.refuse(f"{ast.unparse(node)!r}: {OPERATOR[type(op)]} on floats cannot be compiled; write {hint}", node)
        self.note_mix(a, b, node, isinstance(op, ast.Div))
        return self.floats(op, self.convert(a, "f", node), self.convert(b, "f", node))

    def note_mix(self, a: Expr, b: Expr, node: ast.AST, division: bool) -> None:
        for e, other in ((a, b), (b, a)):
            if e.kind == "f" and e.known and not other.known:
                self.note(node, f"float64 literal in {short(node)!r}", "float32")
            elif e.kind != "f" and not e.known and (other.kind == "f" or division):
                self.note(node, f"integer and float in {short(node)!r} would be float64", "float32")

    def floats(self, op: ast.operator, a: Expr, b: Expr) -> Expr:
        return Expr(ast.BinOp(a.tree, op, b.tree), "f")

    def integer(self, op: ast.operator, a: Expr, b: Expr, node: ast.AST) -> Expr:
        if type(op) in INT_HELPER:
            return Expr(call(INT_HELPER[type(op)], a.tree, b.tree), "i")
        return Expr(call("i32", ast.BinOp(a.tree, op, b.tree)), "i")

    def power(self, base: Expr, exponent: Expr, node: ast.AST) -> Expr:
        if base.kind == "b" or (not exponent.known and base.kind != "f"):
            hint = "write 2.0 ** n for a float, 1 << n for an integer" if base.kind == "i" else "int(..) first"
            self.refuse(f"{short(node)!r}: an integer to a power that is not known is a float or not; {hint}", node)
        if not exponent.known:
            if base.known and base.value == 2.0 and exponent.kind == "i":
                return self.apply("ldexp", [constant(1.0), exponent], node)
            return self.apply("power", [base, exponent], node)
        n = exponent.value
        if n == 0.5:
            return Expr(call("sqrt", self.convert(base, "f", node).tree), "f")
        if n != int(n) or not -16 <= n <= 16:
            self.refuse(f"{short(node)!r}: exponents are the integers -16..16 and 0.5", node)
        if isinstance(n, float) or n < 0:
            base = self.convert(base, "f", node)
        self.note(node, f"{short(node)!r} would call pow", "products")
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
            if type(op) not in FOLD:
                self.refuse(f"{short(node)!r}: numbers are compared with < <= > >= == and !=", node)
            if a.known and b.known:
                made.append(self.fold(node, op, a, b))
                continue
            kind = max(a.kind, b.kind, key=lambda k: ORDER[k])
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
                self.refuse(f"{short(node)!r}: a table with two dimensions is read as table[i, j]", node)
            row, column = node.slice.elts
            indices = ast.Tuple(
                [self.index(row, e, node), self.index(column, replace(e, size=number(int(e.made))), node)], ast.Load()
            )
            return Expr(ast.Subscript(e.tree, indices, ast.Load()), e.kind[0])
        if e.kind not in ("f[]", "i[]"):
            self.refuse(f"{short(node)!r}: {spell(e.kind)} has no elements", node)
        tree = ast.Subscript(e.tree, self.index(node.slice, e, node), ast.Load())
        return Expr(call("f32" if e.kind == "f[]" else "i32", tree), e.kind[0])

    def index(self, node: ast.expr, array: Expr, at: ast.AST) -> ast.expr:
        if isinstance(node, (ast.Slice, ast.Tuple)):
            self.refuse("arrays are read one element at a time", at)
        e = self.scalar(node)
        if e.kind == "f":
            self.refuse(f"{short(node)!r}: an index must be an integer", at)
        assert array.size is not None
        size = array.size
        if e.known and isinstance(size, ast.Constant):
            if not -size.value <= e.value < size.value:
                self.refuse(f"index {e.value} is outside a table of {size.value}", at)
            return number(int(e.value) % size.value)
        size = call("i32", size) if isinstance(size, ast.Constant) else size
        return call("at", self.convert(e, "i", at).tree, size)
