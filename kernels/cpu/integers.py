"""Functions of 64-bit integers as LLVM IR, from their own text.

Drivers count addresses, sizes and words of a block: nothing in them has a type that must be inferred, and Numba's
inference is most of the time that they take to compile. What is here reads the function's syntax tree and writes the
instructions, each variable an int64 in memory that LLVM turns into registers.

    @integers
    def ceiling(block, n):           # `block` is a pointer to int64: one that is subscripted
        return (n + block[3] - 1) // block[3]

Known are assignments (of tuples, too), if, while, for over range() with a step above 0, break, continue, return,
arithmetic, comparisons, and, or, not, conditional expressions, min, max, np.int32 and np.int64, integers of the module
and of closures, intrinsics of integers (simd.py), and other such functions. Division rounds down, and by 0 gives what
division by 1 does. Anything else is a TypeError when the function is compiled.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .simd import I32, I64, VOID

BOOL = ir.IntType(1)
_ARITHMETIC = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.BitAnd: "and_", ast.BitOr: "or_", ast.BitXor: "xor",
               ast.LShift: "shl", ast.RShift: "ashr"}  # fmt: skip
_ORDER = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}
_STATIC: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: lambda a, b: a + b, ast.Sub: lambda a, b: a - b, ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: a // b, ast.Mod: lambda a, b: a % b, ast.LShift: lambda a, b: a << b,
    ast.Lt: lambda a, b: a < b, ast.LtE: lambda a, b: a <= b, ast.Gt: lambda a, b: a > b, ast.GtE: lambda a, b: a >= b,
    ast.Eq: lambda a, b: a == b, ast.NotEq: lambda a, b: a != b,
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Written:
    """A function as its syntax tree: what an intrinsic of `integers` is made of.

    results  how many integers it returns
    """

    fn: Callable[..., Any]
    tree: ast.FunctionDef
    pointers: frozenset[str]
    results: int

    @property
    def arguments(self) -> list[str]:
        return [a.arg for a in self.tree.args.args]

    def declared(self, context: Any, module: Any) -> Any:
        """Its LLVM function in a module, written there at its first use."""
        functions = module.__dict__.setdefault("functions_of_integers", {})
        known = functions.get(self.fn)
        if known is None:
            given = [I64.as_pointer() if a in self.pointers else I64 for a in self.arguments]
            result = {0: VOID, 1: I64}.get(self.results) or ir.LiteralStructType([I64] * self.results)
            name = module.get_unique_name(f"integers.{self.fn.__name__}")
            known = functions[self.fn] = ir.Function(module, ir.FunctionType(result, given), name)
            known.linkage = "internal"
            known.attributes.add("nounwind")
            _Writer(self, context, known).write()
        return known


def integers(fn: Callable[..., Any]) -> Any:
    """Decorator: an intrinsic that does what the function says. Its arguments are int64, or pointers to int64."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(fn))).body
    assert isinstance(tree, ast.FunctionDef)
    subscripted = {n.value.id for n in ast.walk(tree) if isinstance(n, ast.Subscript) and isinstance(n.value, ast.Name)}
    passed = {
        a.id
        for n in ast.walk(tree) if isinstance(n, ast.Call)
        for a in n.args if isinstance(a, ast.Name) and a.id in ("bases", "block", "ranges")
    }  # fmt: skip
    names = {a.arg for a in tree.args.args}
    counts = {
        len(n.value.elts) if isinstance(n.value, ast.Tuple) else 1
        for n in ast.walk(tree) if isinstance(n, ast.Return) and n.value is not None
    }  # fmt: skip
    written = Written(fn, tree, frozenset((subscripted | passed) & names), max(counts, default=0))
    pointer = types.CPointer(types.int64)
    given = [pointer if a in written.pointers else types.int64 for a in written.arguments]
    returned = {0: types.void, 1: types.int64}.get(written.results) or types.UniTuple(types.int64, written.results)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        found = builder.call(written.declared(context, builder.module), args)
        if not written.results:
            return context.get_dummy_value()
        if written.results == 1:
            return found
        return context.make_tuple(
            builder, signature.return_type, [builder.extract_value(found, n) for n in range(written.results)]
        )

    def typed(typingctx: Any) -> Any:
        return returned(*given), codegen

    listed = ", ".join(f"a{n}" for n in range(len(given)))
    scope: dict[str, Any] = {"typed": typed}
    exec(f"def {fn.__name__}(typingctx, {listed}):\n    return typed(typingctx)", scope)
    made = intrinsic(scope[fn.__name__])
    made.written, made.plain = written, _plain(fn)
    return made


def _plain(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function as plain Python, which reads and writes memory (forge.python_tile)."""
    scope = {name: getattr(found, "plain", found) for name, found in fn.__globals__.items()}
    return FunctionType(fn.__code__, scope, fn.__name__, None, fn.__closure__)


def native_entry(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: a native entry (kernels/entry.py) that does what a function of integers says and returns its status."""
    made = integers(fn)

    def entry(bases, block, ranges):  # type: ignore[no-untyped-def]
        return np.int32(made(bases, block, ranges))

    entry.__doc__ = fn.__doc__
    return entry


class _Writer:
    """Writes one function. A value is an int, an LLVM value (i64, i32, i1, a pointer), or a list of these."""

    def __init__(self, written: Written, context: Any, made: Any) -> None:
        self.context, self.made, self.tree = context, made, written.tree
        fn = written.fn
        cells = zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True)
        self.outside = {**vars(builtins), **fn.__globals__, **{name: cell.cell_contents for name, cell in cells}}
        self.b = ir.IRBuilder(made.append_basic_block("entry"))
        self.variables: dict[str, Any] = {}
        self.pointers: dict[str, Any] = {}
        self.loops: list[tuple[Any, Any]] = []
        for name, value in zip(written.arguments, made.args, strict=True):
            if name in written.pointers:
                self.pointers[name] = value
            else:
                self.variable(name, value)

    def write(self) -> None:
        self.statements(self.tree.body)
        if not self.b.block.is_terminated:
            if self.made.function_type.return_type == VOID:
                self.b.ret_void()
            else:
                self.b.unreachable()

    def wrong(self, node: ast.AST) -> TypeError:
        return TypeError(
            f"{self.tree.name}, line {getattr(node, 'lineno', 0)}: {ast.unparse(node)!r} is not known here"
        )

    # Statements ------------------------------------------------------------------------------------------------------

    def statements(self, nodes: Sequence[ast.stmt]) -> None:
        for node in nodes:
            if self.b.block.is_terminated:
                return
            write = getattr(self, f"write_{type(node).__name__}", None)
            if write is None:
                raise self.wrong(node)
            write(node)

    def variable(self, name: str, value: Any) -> None:
        if name not in self.variables:
            with self.b.goto_entry_block():
                self.variables[name] = self.b.alloca(I64, name=name)
        self.b.store(self.word(value), self.variables[name])

    def assign(self, target: ast.expr, value: Any) -> None:
        if isinstance(target, ast.Name):
            self.variable(target.id, value)
        elif isinstance(target, ast.Tuple) and isinstance(value, list):
            for each, part in zip(target.elts, [self.word(v) for v in value], strict=True):
                self.assign(each, part)
        else:
            raise self.wrong(target)

    def write_Assign(self, node: ast.Assign) -> None:
        value = self.value(node.value)
        for target in node.targets:
            self.assign(target, value)

    def write_AugAssign(self, node: ast.AugAssign) -> None:
        assert isinstance(node.target, ast.Name)
        left = self.value(ast.Name(node.target.id, ast.Load()))
        self.variable(node.target.id, self.arithmetic(node.op, left, self.value(node.value), node))

    def write_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):
            self.value(node.value)

    def write_Pass(self, node: ast.Pass) -> None:
        pass

    def write_Return(self, node: ast.Return) -> None:
        if node.value is None:
            self.b.ret_void()
            return
        value = self.value(node.value)
        if isinstance(value, list):
            made: Any = ir.Constant(self.made.function_type.return_type, ir.Undefined)
            for n, part in enumerate(value):
                made = self.b.insert_value(made, self.word(part), n)
            self.b.ret(made)
        else:
            self.b.ret(self.word(value))

    def write_If(self, node: ast.If) -> None:
        test = self.truth(self.value(node.test))
        if isinstance(test, bool):
            self.statements(node.body if test else node.orelse)
            return
        self.either(test, lambda: self.statements(node.body), lambda: self.statements(node.orelse))

    def either(self, test: Any, then: Callable[[], None], other: Callable[[], None]) -> None:
        yes, no, after = (self.made.append_basic_block(name) for name in ("then", "else", "after"))
        self.b.cbranch(test, yes, no)
        for block, write in ((yes, then), (no, other)):
            self.b.position_at_end(block)
            write()
            if not self.b.block.is_terminated:
                self.b.branch(after)
        self.b.position_at_end(after)

    def write_While(self, node: ast.While) -> None:
        self.loop(lambda: self.truth(self.value(node.test)), lambda: self.statements(node.body), lambda: None)

    def write_For(self, node: ast.For) -> None:
        call = node.iter
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "range"):
            raise self.wrong(node)
        given = [self.word(self.value(a)) for a in call.args]
        start, stop, step = {1: (self.word(0), *given, self.word(1)), 2: (*given, self.word(1)), 3: tuple(given)}[
            len(given)
        ]
        with self.b.goto_entry_block():
            at = self.b.alloca(I64)
        self.b.store(start, at)

        def body() -> None:
            self.assign(node.target, self.b.load(at))
            self.statements(node.body)

        self.loop(
            lambda: self.b.icmp_signed("<", self.b.load(at), stop),
            body,
            lambda: self.b.store(self.b.add(self.b.load(at), step, flags=["nsw"]), at),
        )

    def loop(self, test: Callable[[], Any], body: Callable[[], None], step: Callable[[], Any]) -> None:
        head, inside, next_, after = (self.made.append_basic_block(n) for n in ("head", "body", "next", "after"))
        self.b.branch(head)
        self.b.position_at_end(head)
        found = test()
        self.b.cbranch(ir.Constant(BOOL, found) if isinstance(found, bool) else found, inside, after)
        self.b.position_at_end(inside)
        self.loops.append((next_, after))
        body()
        self.loops.pop()
        if not self.b.block.is_terminated:
            self.b.branch(next_)
        self.b.position_at_end(next_)
        step()
        self.b.branch(head)
        self.b.position_at_end(after)

    def write_Continue(self, node: ast.Continue) -> None:
        self.b.branch(self.loops[-1][0])

    def write_Break(self, node: ast.Break) -> None:
        self.b.branch(self.loops[-1][1])

    # Values ----------------------------------------------------------------------------------------------------------

    def word(self, value: Any) -> Any:
        """A value as int64."""
        if isinstance(value, (bool, int, np.integer)):
            return ir.Constant(I64, int(value))
        if value.type == BOOL:
            return self.b.zext(value, I64)
        return self.b.sext(value, I64) if value.type != I64 else value

    def truth(self, value: Any) -> Any:
        if isinstance(value, (bool, int, np.integer)):
            return bool(value)
        return value if value.type == BOOL else self.b.icmp_signed("!=", value, ir.Constant(value.type, 0))

    def value(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Constant) and isinstance(node.value, (bool, int)):
            return node.value
        if isinstance(node, ast.Name) and node.id in self.variables:
            return self.b.load(self.variables[node.id])
        if isinstance(node, ast.Name) and node.id in self.pointers:
            return self.pointers[node.id]
        if isinstance(node, (ast.Name, ast.Attribute)):
            found = self.known(node)
            if isinstance(found, (bool, int, np.integer)):
                return found
            raise self.wrong(node)
        read = getattr(self, f"value_{type(node).__name__}", None)
        if read is None:
            raise self.wrong(node)
        return read(node)

    def known(self, node: ast.expr) -> Any:
        """What a name, or a name in a module, stands for outside of the function."""
        if isinstance(node, ast.Attribute):
            home = self.known(node.value)
            if isinstance(home, ModuleType):
                return getattr(home, node.attr)
        elif isinstance(node, ast.Name) and node.id in self.outside:
            return self.outside[node.id]
        raise self.wrong(node)

    def value_Tuple(self, node: ast.Tuple) -> list[Any]:
        return [self.value(each) for each in node.elts]

    def value_Subscript(self, node: ast.Subscript) -> Any:
        start = self.value(node.value)
        return self.b.load(self.b.gep(start, [self.word(self.value(node.slice))], inbounds=True))

    def value_UnaryOp(self, node: ast.UnaryOp) -> Any:
        value = self.value(node.operand)
        if isinstance(node.op, ast.Not):
            found = self.truth(value)
            return not found if isinstance(found, bool) else self.b.not_(found)
        if isinstance(node.op, ast.USub):
            return -value if isinstance(value, int) else self.b.neg(self.word(value))
        raise self.wrong(node)

    def value_BinOp(self, node: ast.BinOp) -> Any:
        return self.arithmetic(node.op, self.value(node.left), self.value(node.right), node)

    def arithmetic(self, op: ast.operator, left: Any, right: Any, node: ast.AST) -> Any:
        if isinstance(left, int) and isinstance(right, int) and type(op) in _STATIC:
            return _STATIC[type(op)](left, right)
        a, c = self.word(left), self.word(right)
        if type(op) in _ARITHMETIC:
            return getattr(self.b, _ARITHMETIC[type(op)])(a, c)
        if not isinstance(op, (ast.FloorDiv, ast.Mod)):
            raise self.wrong(node)
        zero = ir.Constant(I64, 0)
        if not isinstance(right, int):
            c = self.b.select(self.b.icmp_signed("==", c, zero), ir.Constant(I64, 1), c)
        rest = self.b.srem(a, c)
        signs = self.b.icmp_signed("<", self.b.xor(rest, c), zero)
        off = self.b.and_(self.b.icmp_signed("!=", rest, zero), signs)
        if isinstance(op, ast.Mod):
            return self.b.select(off, self.b.add(rest, c), rest)
        return self.b.sub(self.b.sdiv(a, c), self.b.zext(off, I64))

    def value_Compare(self, node: ast.Compare) -> Any:
        found: Any = True
        left = self.value(node.left)
        for op, each in zip(node.ops, node.comparators, strict=True):
            right = self.value(each)
            pairs = list(zip(left, right, strict=True)) if isinstance(left, list) else [(left, right)]
            for a, c in pairs:
                if isinstance(a, int) and isinstance(c, int):
                    here: Any = _STATIC[type(op)](a, c)
                else:
                    here = self.b.icmp_signed(_ORDER[type(op)], self.word(a), self.word(c))
                if isinstance(found, bool):
                    found = here if found else False
                elif isinstance(here, bool):
                    found = found if here else False
                else:
                    found = self.b.and_(found, here)
            left = right
        return found

    def value_BoolOp(self, node: ast.BoolOp) -> Any:
        """The truth of it; what comes after the first that decides is not evaluated."""
        every = isinstance(node.op, ast.And)
        found: Any = every
        for each in node.values:
            if isinstance(found, bool):
                if found != every:
                    return found
                found = self.truth(self.value(each))
                continue
            with self.b.goto_entry_block():
                kept = self.b.alloca(BOOL)
            self.b.store(found, kept)

            def rest(each: ast.expr = each, kept: Any = kept) -> None:
                value = self.truth(self.value(each))
                self.b.store(ir.Constant(BOOL, value) if isinstance(value, bool) else value, kept)

            self.either(found, *((rest, lambda: None) if every else (lambda: None, rest)))
            found = self.b.load(kept)
        return found

    def value_IfExp(self, node: ast.IfExp) -> Any:
        test = self.truth(self.value(node.test))
        if isinstance(test, bool):
            return self.value(node.body if test else node.orelse)
        with self.b.goto_entry_block():
            kept = self.b.alloca(I64)

        def keep(chosen: ast.expr) -> None:
            self.b.store(self.word(self.value(chosen)), kept)

        self.either(test, lambda: keep(node.body), lambda: keep(node.orelse))
        return self.b.load(kept)

    def value_Call(self, node: ast.Call) -> Any:
        called = self.known(node.func)
        given = [self.value(a) for a in node.args]
        if called in (min, max):
            return self.extreme("<" if called is min else ">", given)
        if called is np.int32:
            return self.b.trunc(self.word(given[0]), I32)
        if called is np.int64:
            return self.word(given[0])
        written = getattr(called, "written", None)
        if isinstance(written, Written):
            pointers = [a in written.pointers for a in written.arguments]
            words = [v if at else self.word(v) for v, at in zip(given, pointers, strict=True)]
            found = self.b.call(written.declared(self.context, self.made.module), words)
            return found if written.results < 2 else [self.b.extract_value(found, n) for n in range(written.results)]
        if hasattr(called, "_defn"):
            return self.intrinsic(called, given, node)
        raise self.wrong(node)

    def extreme(self, order: str, values: list[Any]) -> Any:
        if all(isinstance(v, int) for v in values):
            return (min if order == "<" else max)(values)
        found = self.word(values[0])
        for value in map(self.word, values[1:]):
            found = self.b.select(self.b.icmp_signed(order, value, found), value, found)
        return found

    def intrinsic(self, called: Any, given: list[Any], node: ast.AST) -> Any:
        """What an intrinsic of Numba writes for integers and pointers."""
        kinds: list[Any] = []
        values = []
        for value in given:
            value = self.word(value) if isinstance(value, int) else value
            kind = {I64: types.int64, I32: types.int32, BOOL: types.boolean}.get(value.type)
            kinds.append(kind or types.CPointer(types.int64))
            values.append(value)
        signature, codegen = called._defn(None, *kinds)
        cast = [
            self.context.cast(self.b, v, k, wanted)
            for v, k, wanted in zip(values, kinds, signature.args, strict=True)
        ]  # fmt: skip
        found = codegen(self.context, self.b, signature, cast)
        if signature.return_type == types.void:
            return None
        if not isinstance(signature.return_type, (types.Integer, types.Boolean)):
            raise self.wrong(node)
        unsigned = isinstance(signature.return_type, types.Integer) and not signature.return_type.signed
        return self.b.zext(found, I64) if unsigned and found.type != I64 else self.word(found)


__all__ = ["Written", "integers", "native_entry"]
