"""A captured function run for many arguments at once: what plain Python does, on NumPy arrays with one lane for each.

The text that is run is the captured one, operation by operation and in its order; each operation is NumPy's on float32
or int32 arrays, which rounds as it does on single numbers. Where lanes go different ways both ways are run, and a mask
says which lanes keep what comes of it. Plain Python itself takes some 50 us for a weight; this takes 0.1.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from ...kernels.capture import Captured
from ...kernels.capture.kinds import wrapped
from ...kernels.sequence import SEQUENCES

Array = np.ndarray[Any, Any]

_OPERATORS: dict[type, Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.USub: operator.neg,
    ast.Invert: operator.invert,
    ast.Not: np.logical_not,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}


class Table:
    """A table of the function's own: the same for all lanes."""

    def __init__(self, values: Array) -> None:
        self.values = values


class Lanes:
    """A captured function for many lanes. Built once; see `run`."""

    def __init__(self, captured: Captured) -> None:
        self.functions: dict[str, ast.FunctionDef] = {}
        self.tables: dict[str, Table] = {}
        for text in captured.source.values():
            for node in ast.parse(text).body:
                if isinstance(node, ast.FunctionDef):
                    self.functions[node.name] = node
                else:
                    scope: dict[str, Any] = {"np": np}
                    exec(compile(ast.Module([node], []), "<table>", "exec"), scope)
                    self.tables |= {n: Table(v) for n, v in scope.items() if isinstance(v, np.ndarray)}
        self.main = next(f for name, f in self.functions.items() if name.endswith("__main"))

    def run(self, count: int, *arguments: Any) -> Any:
        """What the function returns, lane by lane.

        count      of the lanes
        arguments  a number for all lanes, or one for each (count,); arrays are (their length, count), and those that the
                   function fills are filled
        """
        with np.errstate(all="ignore"):
            return self._call(self.main, arguments, np.ones(count, bool))

    def _call(self, function: ast.FunctionDef, arguments: Any, active: Array) -> Any:
        names = [a.arg for a in function.args.args]
        frame = _Frame(self, dict(zip(names, arguments, strict=True)), active)
        frame.block(function.body, active)
        return frame.result


class _Frame:
    """One call: its names, and which lanes have left it, or a loop of it."""

    def __init__(self, lanes: Lanes, names: dict[str, Any], active: Array) -> None:
        self.lanes, self.names, self.count = lanes, names, active.size
        self.returned = np.zeros(active.size, bool)
        self.left: list[Array] = []  # of each loop around: the lanes that broke out of it
        self.skipped: list[Array] = []  # or that go on with its next turn
        self.active = active
        self.result: Any = None
        self.index = np.arange(active.size)

    # Statements ----------------------------------------------------------------------------------------------------

    def live(self, active: Array) -> Array:
        """Those of the lanes that have not left."""
        gone = self.returned
        if self.left:
            gone = gone | self.left[-1] | self.skipped[-1]
        return active & ~gone

    def block(self, body: list[ast.stmt], active: Array) -> None:
        for node in body:
            self.active = self.live(active)
            if not self.active.any():
                return
            getattr(self, f"stmt_{type(node).__name__}")(node, self.active)

    def stmt_Pass(self, node: ast.Pass, active: Array) -> None:
        pass

    def stmt_Break(self, node: ast.Break, active: Array) -> None:
        self.left[-1] = self.left[-1] | active

    def stmt_Continue(self, node: ast.Continue, active: Array) -> None:
        self.skipped[-1] = self.skipped[-1] | active

    def stmt_Return(self, node: ast.Return, active: Array) -> None:
        value = self.value(node.value)
        self.result = value if self.result is None else _merge(active, value, self.result)
        self.returned = self.returned | active

    def stmt_Assign(self, node: ast.Assign, active: Array) -> None:
        value = self.value(node.value)
        (target,) = node.targets
        if isinstance(target, ast.Tuple):
            for part, each in zip(target.elts, value, strict=True):
                self.store(part, each, active)
        else:
            self.store(target, value, active)

    def store(self, target: ast.expr, value: Any, active: Array) -> None:
        if isinstance(target, ast.Name):
            before = self.names.get(target.id)
            whole = before is None or active.all() or getattr(value, "ndim", 0) == 2
            self.names[target.id] = value if whole else _merge(active, value, before)
            return
        assert isinstance(target, ast.Subscript)
        array, at = self.value(target.value), self.value(target.slice)
        if not isinstance(at, np.ndarray):
            array[at] = np.where(active, value, array[at])
            return
        value = np.broadcast_to(np.asarray(value), active.shape)
        array[at[active], self.index[active]] = value[active]

    def stmt_If(self, node: ast.If, active: Array) -> None:
        test = self.value(node.test)
        if not isinstance(test, np.ndarray):
            self.block(node.body if test else node.orelse, active)
            return
        self.block(node.body, active & test)
        self.block(node.orelse, active & ~test)

    def loop(self, body: list[ast.stmt], active: Array) -> Array:
        """One turn; the lanes that are still in the loop."""
        self.skipped[-1] = np.zeros(self.count, bool)
        self.block(body, active)
        return active & ~self.returned & ~self.left[-1]

    def enter(self) -> None:
        self.left.append(np.zeros(self.count, bool))
        self.skipped.append(np.zeros(self.count, bool))

    def leave(self) -> None:
        self.left.pop()
        self.skipped.pop()

    def stmt_While(self, node: ast.While, active: Array) -> None:
        self.enter()
        while active.any():
            self.active = active
            active = active & self.value(node.test)
            active = self.loop(node.body, active)
        self.leave()

    def stmt_For(self, node: ast.For, active: Array) -> None:
        self.enter()
        ranged = (
            isinstance(node.iter, ast.Call) and isinstance(node.iter.func, ast.Name) and node.iter.func.id == "range"
        )
        if ranged:
            assert isinstance(node.iter, ast.Call)
            bounds = [self.value(a) for a in node.iter.args]
            start, stop, step = (0, bounds[0], 1) if len(bounds) == 1 else (*bounds, 1)[:3]
            self.turns(node, start, stop, step, active)
        else:
            for item in self.value(node.iter):
                if not active.any():
                    break
                self.store(node.target, item, active)
                active = self.loop(node.body, active)
        self.leave()

    def turns(self, node: ast.For, start: Any, stop: Any, step: Any, active: Array) -> None:
        """A loop over a range, whose bounds may differ from lane to lane."""
        item = start
        while True:
            going = (item < stop) & (step > 0) | (item > stop) & (step < 0)
            active = active & going
            if not active.any():
                return
            self.store(node.target, item, active)
            active = self.loop(node.body, active)
            item = item + step

    # Expressions ---------------------------------------------------------------------------------------------------

    def value(self, node: Any) -> Any:
        return getattr(self, f"expr_{type(node).__name__}")(node)

    def expr_Constant(self, node: ast.Constant) -> Any:
        return node.value

    def expr_Name(self, node: ast.Name) -> Any:
        return self.names[node.id] if node.id in self.names else self.lanes.tables[node.id]

    def expr_Attribute(self, node: ast.Attribute) -> Any:
        return getattr(np, node.attr)  # np.inf, np.nan, np.float32, np.int32: nothing else is left in captured text

    def expr_Tuple(self, node: ast.Tuple) -> tuple[Any, ...]:
        return tuple(map(self.value, node.elts))

    def expr_UnaryOp(self, node: ast.UnaryOp) -> Any:
        return _OPERATORS[type(node.op)](self.value(node.operand))

    def expr_BinOp(self, node: ast.BinOp) -> Any:
        return _OPERATORS[type(node.op)](self.value(node.left), self.value(node.right))

    def expr_BoolOp(self, node: ast.BoolOp) -> Any:
        join = np.logical_and if isinstance(node.op, ast.And) else np.logical_or
        found = self.value(node.values[0])
        for each in node.values[1:]:
            found = join(found, self.value(each))
        return found

    def expr_Compare(self, node: ast.Compare) -> Any:
        left, found = self.value(node.left), True
        for op, each in zip(node.ops, node.comparators, strict=True):
            right = self.value(each)
            found = np.logical_and(found, _OPERATORS[type(op)](left, right))
            left = right
        return found

    def expr_IfExp(self, node: ast.IfExp) -> Any:
        test = self.value(node.test)
        if not isinstance(test, np.ndarray):
            return self.value(node.body if test else node.orelse)
        return _merge(test, self.value(node.body), self.value(node.orelse))

    def expr_Subscript(self, node: ast.Subscript) -> Any:
        array, at = self.value(node.value), self.value(node.slice)
        if isinstance(array, Table):
            return array.values[at]
        if isinstance(array, tuple) or not isinstance(at, np.ndarray):
            return array[at]
        return array[at, self.index]

    def expr_Call(self, node: ast.Call) -> Any:
        if isinstance(node.func, ast.Attribute):  # np.zeros(n, type): a local array
            size, kind = (self.value(a) for a in node.args)
            return np.zeros((size, self.count), kind)
        assert isinstance(node.func, ast.Name)
        called, arguments = node.func.id, [self.value(a) for a in node.args]
        if called in self.lanes.functions:
            return self.lanes._call(self.lanes.functions[called], arguments, self.active)
        (first, *_) = arguments
        if called == "len":
            return first.values.shape[0] if isinstance(first, Table) else len(first)
        if called == "i32":
            return first.astype(np.int32) if isinstance(first, np.ndarray) else wrapped(first)
        if called == "f32":
            return first.astype(np.float32) if isinstance(first, np.ndarray) else np.float32(first)
        found = SEQUENCES[called](*arguments)
        if isinstance(found, np.ndarray):
            return found if found.ndim else found[()]
        return int(found) if isinstance(found, np.integer) else bool(found) if isinstance(found, np.bool_) else found


def _merge(mask: Array, yes: Any, no: Any) -> Any:
    """`yes` where the mask holds, else `no`; tuples part by part."""
    if isinstance(yes, tuple):
        return tuple(_merge(mask, a, b) for a, b in zip(yes, no, strict=True))
    made = np.where(mask, yes, no)
    return made.astype(np.int32) if made.dtype == np.int64 else made
