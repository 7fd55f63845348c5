"""Rewrites calls: of written sequences, of what Python and NumPy convert and round with, of other functions."""

from __future__ import annotations

import ast
from types import FunctionType
from typing import Any

import numpy as np

from ..sequence import SEQUENCES
from . import names
from .expressions import Expressions
from .kinds import ORDER, Expr, call, constant, name, number, short, spell


class Calls(Expressions):
    """Calls, by the object that is called and never by its spelling."""

    def expr_Call(self, node: ast.Call) -> Expr:
        if any(isinstance(a, ast.Starred) for a in node.args) or any(k.arg is None for k in node.keywords):
            self.refuse("* and ** in a call cannot be compiled", node)
        if isinstance(node.func, ast.Attribute) and self.is_computed(node.func.value):
            self.refuse(
                f"{short(node)!r} calls a method of a value, which cannot be compiled; functions of numbers can, and "
                f"what they make of an array is a loop: for v in x: m = max(m, abs(v))",
                node,
            )
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
            self.refuse(f"{short(node)!r}: takes {takes} positional arguments here", node)
        return [self.scalar(a) for a in node.args]

    def helper(self, helper: str, node: ast.Call, obj: Any) -> Expr:
        signatures = SEQUENCES[helper].signatures
        args = self.arguments_of(node, len(signatures[0][0]))
        if args and all(a.known for a in args) and not isinstance(obj, (FunctionType, type(SEQUENCES[helper]))):
            try:
                with np.errstate(all="ignore"):
                    return constant(obj(*(a.value for a in args)))
            except (ArithmeticError, ValueError) as error:
                self.refuse(f"{short(node)!r}: {error}", node)
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
            if all(ORDER[a.kind] <= ORDER[k] or b for a, k, b in zip(args, kinds, always, strict=True)):
                trees = [self.convert(a, k, node).tree for a, k in zip(args, kinds, strict=True)]
                return Expr(call(helper, *trees), result)
        self.refuse(f"{short(node)!r}: takes {', '.join(map(spell, signatures[-1][0]))}", node)

    def function(self, obj: Any, node: ast.Call) -> Expr:
        given = [(None, self.expr(a)) for a in node.args] + [(k.arg, self.expr(k.value)) for k in node.keywords]
        called, order, kind = self.program.function(obj, given, self, node)
        trees = [self.convert(e, k, node).tree for e, k in order]
        return Expr(call(called, *trees), kind)

    def extremum(self, node: ast.Call, helper: str) -> Expr:
        if len(node.args) < 2 or node.keywords:
            self.refuse(f"{short(node)!r}: takes two numbers or more; loop over an array", node)
        args = [self.scalar(a) for a in node.args]
        if all(a.known for a in args):
            return constant((min if helper == "py_min" else max)(*(a.value for a in args)))
        kind = max((a.kind for a in args), key=lambda k: ORDER[k])
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
        return self.convert(e, "i", node)

    def call_int64(self, node: ast.Call) -> Expr:
        self.note(node, f"{short(node)!r} is 64 bits wide", "int32, wrapping")
        return self.call_int(node)

    def call_u32(self, node: ast.Call) -> Expr:
        self.note(node, f"{short(node)!r} is unsigned", "the same bits as int32; compared and divided as signed")
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
        self.note(node, f"{short(node)!r} is float64", "float32")
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
        if e.size is None or e.kind in ORDER:
            self.refuse(f"{short(node)!r}: {spell(e.kind)} has no length", node)
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
            self.refuse(f"{short(node)!r}: a local array is np.zeros(n, np.float32 or np.int32), n known, 1..256", node)
        dtype = ast.Attribute(name("np"), "float32" if wanted is np.float32 else "int32", ast.Load())
        array = ast.Call(ast.Attribute(name("np"), "zeros", ast.Load()), [number(int(size.value)), dtype], [])
        return Expr(array, "f[]" if wanted is np.float32 else "i[]", size=number(int(size.value)))
