"""A captured function on whole arrays: its own source, statement by statement, every operation on all elements at once.

    >>> cap = capture(leaky, ("f32", "f32"))
    >>> evaluate(cap, (x, slope))            # float32 (n,), float32 (n,) -> float32 (n,)

It reads the text that plain Python runs (`Captured.emit`). Operations are NumPy's on float32 and int32 arrays, and the
written sequences are the Python functions that plain Python calls, so each element takes the same IEEE operations in the
same order. Where elements go different ways, both ways are computed and each element keeps what belongs to its own: a
condition is a mask, a loop goes on until no element is left in it.

One operation is not NumPy's: the fused product and sum, which NumPy lacks and plain Python emulates in float64, is the
processor's instruction. Whoever relies on this file compares it with plain Python on a sample (check_captured.py does).
"""

from __future__ import annotations

import ast
import contextlib
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...kernels import floatops
from ...kernels.capture import Captured
from ...kernels.sequence import SEQUENCES
from ...primitives.errors import Unsupported

Array = np.ndarray[Any, Any]
KINDS = {"f": np.float32, "i": np.int32, "b": np.bool_}

_BINARY: dict[type, Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
}
_UNARY: dict[type, Callable[..., Any]] = {ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Invert: operator.invert}
_COMPARED: dict[type, Callable[..., Any]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}


def evaluate(captured: Captured, operands: Sequence[Any]) -> Any:
    """The function of equally long arrays, one for each argument; an array of its kind, or a tuple of them.

    Raises Unsupported for arguments that are arrays themselves, and for what is no part of captured source.
    """
    if any(kind not in KINDS for kind in captured.arg_kinds):
        raise Unsupported(f"{captured.name} takes arrays; functions of numbers can be evaluated on arrays")
    module = ast.parse(captured.emit("main", decorator=""))
    tables: list[ast.stmt] = [node for node in module.body if isinstance(node, ast.Assign)]
    scope: dict[str, Any] = {"np": np}
    exec(compile(ast.Module(tables, []), f"<tables of {captured.name}>", "exec"), scope)
    functions = {node.name: node for node in module.body if isinstance(node, ast.FunctionDef)}
    columns: list[Array] = [
        np.asarray(x).astype(KINDS[k], copy=False) for x, k in zip(operands, captured.arg_kinds, strict=True)
    ]
    length = len(columns[0])
    with np.errstate(all="ignore"), _fused():
        result = _Evaluation(functions, scope, length).call("main", columns, np.ones(length, bool))
    kinds = captured.returns if isinstance(captured.returns, tuple) else (captured.returns,)
    found = result if isinstance(captured.returns, tuple) else (result,)
    whole: tuple[Array, ...] = tuple(
        np.ascontiguousarray(np.broadcast_to(x, length)).astype(KINDS[k], copy=False)
        for x, k in zip(found, kinds, strict=True)
    )
    return whole if isinstance(captured.returns, tuple) else whole[0]


@contextlib.contextmanager
def _fused() -> Iterator[None]:
    """The processor's fused product and sum in place of the emulation for arrays."""
    from numba import vectorize

    from ...kernels.cpu import vectormath

    fma = vars(vectormath)["fma"]

    if not _FUSED:
        _FUSED.append(vectorize(["float32(float32, float32, float32)"])(lambda a, b, c: fma(a, b, c)))
    emulated = floatops._fma_array
    floatops._fma_array = _FUSED[0]
    try:
        yield
    finally:
        floatops._fma_array = emulated


_FUSED: list[Any] = []


@dataclass
class _Loop:
    """Elements that left a loop, and those that left this turn of it."""

    broken: Array
    continued: Array


@dataclass
class _Frame:
    """One call: its variables, what it returned so far, the loops that it is in."""

    names: dict[str, Any]
    result: Any = None
    loops: list[_Loop] = field(default_factory=list)


class _Evaluation:
    """Runs functions on `length` elements. A statement takes the mask of who comes to it, and returns who goes on."""

    def __init__(self, functions: dict[str, ast.FunctionDef], tables: dict[str, Any], length: int) -> None:
        self.functions, self.tables, self.length = functions, tables, length
        self.every = np.arange(length)
        self.frames: list[_Frame] = []

    def call(self, name: str, given: Sequence[Any], mask: Array) -> Any:
        tree = self.functions[name]
        self.frames.append(_Frame({a.arg: x for a, x in zip(tree.args.args, given, strict=True)}))
        self.block(tree.body, mask)
        return self.frames.pop().result

    def block(self, body: Sequence[ast.stmt], mask: Array) -> Array:
        for node in body:
            if not mask.any():
                break
            mask = self.known(node, "stmt")(node, mask)
        return mask

    def expr(self, node: ast.expr, mask: Array) -> Any:
        return self.known(node, "expr")(node, mask)

    def known(self, node: ast.AST, what: str) -> Callable[..., Any]:
        method = getattr(self, f"{what}_{type(node).__name__}", None)
        if method is None:
            raise Unsupported(f"{ast.unparse(node)!r} is no part of captured source")
        return method  # type: ignore[no-any-return]

    def empty(self) -> Array:
        return np.zeros(self.length, bool)

    def where(self, mask: Array, new: Any, old: Any) -> Any:
        """`new` for the elements of the mask; whoever has no old value is never read."""
        if old is None or mask.all():
            return new
        if isinstance(new, tuple):
            return tuple(self.where(mask, n, o) for n, o in zip(new, old, strict=True))
        return np.where(mask, new, old)

    # Statements ----------------------------------------------------------------------------------------------------

    def stmt_Pass(self, node: ast.Pass, mask: Array) -> Array:
        return mask

    def stmt_Return(self, node: ast.Return, mask: Array) -> Array:
        assert node.value is not None
        frame = self.frames[-1]
        frame.result = self.where(mask, self.expr(node.value, mask), frame.result)
        return self.empty()

    def stmt_Assign(self, node: ast.Assign, mask: Array) -> Array:
        value = self.expr(node.value, mask)
        for target in node.targets:
            self.store(target, value, mask)
        return mask

    def store(self, target: ast.expr, value: Any, mask: Array) -> None:
        names = self.frames[-1].names
        if isinstance(target, ast.Tuple):
            for part, x in zip(target.elts, value, strict=True):
                self.store(part, x, mask)
        elif isinstance(target, ast.Subscript):
            array, index = self.expr(target.value, mask), np.broadcast_to(self.expr(target.slice, mask), self.length)
            array[index[mask], self.every[mask]] = np.broadcast_to(value, self.length)[mask]
        else:
            assert isinstance(target, ast.Name)
            local = isinstance(value, np.ndarray) and value.ndim == 2
            names[target.id] = value if local else self.where(mask, value, names.get(target.id))

    def stmt_If(self, node: ast.If, mask: Array) -> Array:
        holds = self.expr(node.test, mask)
        yes = self.block(node.body, mask & holds)
        return yes | self.block(node.orelse, mask & np.logical_not(holds))

    def stmt_While(self, node: ast.While, mask: Array) -> Array:
        loop = self.enter()
        left, alive = self.empty(), mask
        while alive.any():
            holds = self.expr(node.test, alive)
            left |= alive & np.logical_not(holds)
            alive = self.turn(node.body, alive & holds, loop)
        self.frames[-1].loops.pop()
        return left | loop.broken

    def stmt_For(self, node: ast.For, mask: Array) -> Array:
        loop = self.enter()
        left, alive, n = self.empty(), mask, 0
        items = self.items(node.iter, mask)
        while alive.any():
            item, holds = items(n)
            left |= alive & np.logical_not(holds)
            alive = alive & holds
            if alive.any():
                self.store(node.target, item, alive)
                alive = self.turn(node.body, alive, loop)
            n += 1
        self.frames[-1].loops.pop()
        return left | loop.broken

    def items(self, node: ast.expr, mask: Array) -> Callable[[int], tuple[Any, Any]]:
        """What a loop goes over: a function of the turn, to the item and whether there is one."""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range":
            given = [np.asarray(self.expr(a, mask), np.int64) for a in node.args]
            first, last = (np.int64(0), given[0]) if len(given) == 1 else given[:2]
            step = given[2] if len(given) == 3 else np.int64(1)

            def counted(n: int) -> tuple[Any, Any]:
                item = first + n * step
                return item, np.where(step > 0, item < last, item > last)

            return counted
        array = self.expr(node, mask)
        return lambda n: (array[min(n, len(array) - 1)], n < len(array))

    def enter(self) -> _Loop:
        loop = _Loop(self.empty(), self.empty())
        self.frames[-1].loops.append(loop)
        return loop

    def turn(self, body: Sequence[ast.stmt], alive: Array, loop: _Loop) -> Array:
        loop.continued = self.empty()
        return self.block(body, alive) | loop.continued

    def stmt_Break(self, node: ast.Break, mask: Array) -> Array:
        self.frames[-1].loops[-1].broken |= mask
        return self.empty()

    def stmt_Continue(self, node: ast.Continue, mask: Array) -> Array:
        self.frames[-1].loops[-1].continued |= mask
        return self.empty()

    # Expressions ---------------------------------------------------------------------------------------------------

    def expr_Constant(self, node: ast.Constant, mask: Array) -> Any:
        return node.value

    def expr_Name(self, node: ast.Name, mask: Array) -> Any:
        names = self.frames[-1].names
        return names[node.id] if node.id in names else self.tables[node.id]

    def expr_Attribute(self, node: ast.Attribute, mask: Array) -> Any:
        return getattr(np, node.attr)

    def expr_Tuple(self, node: ast.Tuple, mask: Array) -> Any:
        return tuple(self.expr(e, mask) for e in node.elts)

    def expr_UnaryOp(self, node: ast.UnaryOp, mask: Array) -> Any:
        x = self.expr(node.operand, mask)
        if isinstance(node.op, ast.Not):
            return np.logical_not(x)
        return _UNARY[type(node.op)](x)

    def expr_BinOp(self, node: ast.BinOp, mask: Array) -> Any:
        return _BINARY[type(node.op)](self.expr(node.left, mask), self.expr(node.right, mask))

    def expr_BoolOp(self, node: ast.BoolOp, mask: Array) -> Any:
        joined = np.logical_and if isinstance(node.op, ast.And) else np.logical_or
        found = self.expr(node.values[0], mask)
        for value in node.values[1:]:
            found = joined(found, self.expr(value, mask))
        return found

    def expr_Compare(self, node: ast.Compare, mask: Array) -> Any:
        return _COMPARED[type(node.ops[0])](self.expr(node.left, mask), self.expr(node.comparators[0], mask))

    def expr_IfExp(self, node: ast.IfExp, mask: Array) -> Any:
        holds = self.expr(node.test, mask)
        yes = self.expr(node.body, mask & holds)
        no = self.expr(node.orelse, mask & np.logical_not(holds))
        if isinstance(yes, tuple):
            return tuple(np.where(holds, y, n) for y, n in zip(yes, no, strict=True))
        return np.where(holds, yes, no)

    def expr_Subscript(self, node: ast.Subscript, mask: Array) -> Any:
        array, index = self.expr(node.value, mask), self.expr(node.slice, mask)
        if isinstance(array, tuple):
            return array[index]
        if isinstance(node.value, ast.Name) and node.value.id not in self.tables:
            return array[np.broadcast_to(index, self.length), self.every]  # a local array: one for each element
        return array[index]

    def expr_Call(self, node: ast.Call, mask: Array) -> Any:
        if isinstance(node.func, ast.Attribute):  # np.zeros(n, type)
            size, kind = (self.expr(a, mask) for a in node.args)
            return np.zeros((size, self.length), kind)
        assert isinstance(node.func, ast.Name)
        name, given = node.func.id, [self.expr(a, mask) for a in node.args]
        if name in self.functions:
            return self.call(name, given, mask)
        if name == "len":
            return len(given[0])
        if name in ("f32", "i32"):
            (x,) = given
            kind = np.float32 if name == "f32" else np.int32
            return kind(x) if isinstance(x, (bool, int, float)) else np.asarray(x).astype(kind)[()]
        return SEQUENCES[name](*given)
