"""From a kernel's Python source to closures over lane vectors.

Each node of the syntax tree becomes one Python closure `node(s, f)`: s is the strand of threads that runs, f the
variables of the function. Control flow that lanes disagree about runs every path that any lane takes, under a mask.

The rules are those of the compiled kernel: integers are 64 bits wide in registers, an operator on float32 would be
contracted or widened by the compiler and is refused (kernels call ptx.add, ptx.mul, ..), and so is what mixes kinds.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import operator
import textwrap
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from ...sequence import Sequence
from .. import ptx, seam
from . import instructions
from .faults import KernelFault
from .memory import Local, Pointer
from .strand import Strand

Node = Callable[[Strand, dict[str, Any]], Any]
UNKNOWN = object()

_OPERATORS: dict[type, tuple[Callable[..., Any], Callable[..., Any]]] = {
    ast.Add: (operator.add, np.add),
    ast.Sub: (operator.sub, np.subtract),
    ast.Mult: (operator.mul, np.multiply),
    ast.FloorDiv: (operator.floordiv, np.floor_divide),
    ast.Mod: (operator.mod, np.mod),
    ast.BitAnd: (operator.and_, np.bitwise_and),
    ast.BitOr: (operator.or_, np.bitwise_or),
    ast.BitXor: (operator.xor, np.bitwise_xor),
    ast.LShift: (operator.lshift, np.left_shift),
    ast.RShift: (operator.rshift, np.right_shift),
}
_COMPARES: dict[type, tuple[Callable[..., Any], Callable[..., Any]]] = {
    ast.Lt: (operator.lt, np.less),
    ast.LtE: (operator.le, np.less_equal),
    ast.Gt: (operator.gt, np.greater),
    ast.GtE: (operator.ge, np.greater_equal),
    ast.Eq: (operator.eq, np.equal),
    ast.NotEq: (operator.ne, np.not_equal),
}
_CASTS = {np.int8, np.uint8, np.int16, np.uint16, np.int32, np.int64, np.uint64, np.float32, np.bool_, int, bool}


class Frame(dict):  # type: ignore[type-arg]
    """Variables of one call, and what it returns: `result`, and the lanes that have returned."""

    result: Any = None
    loops: list[dict[str, Any]]


_programs: dict[Any, Program] = {}


def program_of(fn: Callable[..., Any]) -> Program:
    found = _programs.get(fn)
    if found is None:
        found = _programs[fn] = Program(fn)
    return found


class Program:
    """A kernel or a device function, ready to run on strands."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.fn, self.name = fn, fn.__name__
        lines, first = inspect.getsourcelines(fn)
        tree = ast.parse(textwrap.dedent("".join(lines)))
        definition = next(n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef))
        ast.increment_lineno(tree, first - 1)
        self.file = fn.__code__.co_filename
        self.parameters = [a.arg for a in definition.args.args]
        self.local = set(self.parameters) | {
            n.id for n in ast.walk(definition) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        }
        self.scope = {**fn.__globals__, **inspect.getclosurevars(fn).nonlocals}
        self.exchanges = False  # whether it uses shared memory or barriers
        self.body = self._block(definition.body)

    def call(self, s: Strand, args: list[Any]) -> Any:
        """Run it for the lanes that take part; they all go on afterwards."""
        if len(args) != len(self.parameters):
            s.fault("typing", f"{self.name} takes {len(self.parameters)} arguments; {len(args)} were given")
        f = Frame(zip(self.parameters, args, strict=True))
        f.loops = []
        mask, line = s.mask, s.line
        self.body(s, f)
        s.mask, s.line = mask, line
        return f.result

    # Statements ------------------------------------------------------------------------------------------------------

    def _block(self, statements: list[ast.stmt]) -> Node:
        made = [(self._statement(n), _escapes(n)) for n in statements if not _is_text(n)]

        def run(s: Strand, f: Any) -> None:
            for statement, escapes in made:
                statement(s, f)
                if escapes and s.mask is not None and not s.mask.any():
                    return

        return run

    def _statement(self, node: ast.stmt) -> Node:
        method: Any = getattr(self, f"_{type(node).__name__}", None)
        if method is None:
            self._refuse(node, f"a {type(node).__name__} statement")
        made, line = method(node), node.lineno

        def run(s: Strand, f: Any) -> None:
            s.line = line
            made(s, f)

        return run

    def _refuse(self, node: ast.AST, what: str) -> Any:
        line = getattr(node, "lineno", 0)
        raise KernelFault("unsupported", f"kernel {self.name!r}, {self.file}:{line}: {what} is not interpreted")

    def _Pass(self, node: ast.Pass) -> Node:
        return lambda s, f: None

    def _Expr(self, node: ast.Expr) -> Node:
        return self._expression(node.value)

    def _Assign(self, node: ast.Assign) -> Node:
        value = self._expression(node.value)
        targets = [self._target(t) for t in node.targets]

        def run(s: Strand, f: Any) -> None:
            found = value(s, f)
            for target in targets:
                target(s, f, found)

        return run

    def _AugAssign(self, node: ast.AugAssign) -> Node:
        read = _as_load(node.target)
        return self._Assign(
            ast.copy_location(
                ast.Assign([node.target], ast.copy_location(ast.BinOp(read, node.op, node.value), node)), node
            )
        )

    def _target(self, node: ast.expr) -> Callable[..., None]:
        if isinstance(node, ast.Name):
            name = node.id

            def assign(s: Strand, f: Any, value: Any) -> None:
                if isinstance(value, (Local, Pointer)):
                    if value.name == "":
                        value.name = name
                    f[name] = value
                else:
                    f[name] = s.merged(f.get(name), value)

            return assign
        if isinstance(node, ast.Tuple):
            parts = [self._target(e) for e in node.elts]

            def unpack(s: Strand, f: Any, value: Any) -> None:
                for part, found in zip(parts, value, strict=True):
                    part(s, f, found)

            return unpack
        if isinstance(node, ast.Subscript):
            array, index = self._expression(node.value), self._expression(node.slice)

            def store(s: Strand, f: Any, value: Any) -> None:
                array(s, f).store(s, index(s, f), value)

            return store
        return self._refuse(node, f"assignment to {ast.unparse(node)}")

    def _If(self, node: ast.If) -> Node:
        test, yes, no = self._expression(node.test), self._block(node.body), self._block(node.orelse)
        escapes = _escapes(node)

        def run(s: Strand, f: Any) -> None:
            found = _truth(test(s, f))
            if not isinstance(found, np.ndarray):
                (yes if found else no)(s, f)
                return
            before = s.mask
            inside = found if before is None else before & found
            outside = ~found if before is None else before & ~found
            if not outside.any():
                yes(s, f)
                return
            if not inside.any():
                no(s, f)
                return
            left = np.zeros(s.size, bool)
            branches = [(yes, inside), (no, outside)]
            for branch, lanes in reversed(branches) if s.machine.coin() else branches:
                s.mask = lanes
                branch(s, f)
                if escapes:
                    left |= s.mask
            s.mask = left if escapes else before

        return run

    def _For(self, node: ast.For) -> Node:
        if not (isinstance(node.iter, ast.Call) and self._static(node.iter.func) is builtins.range):
            return self._refuse(node, "a for over anything but range()")
        bounds = [self._expression(a) for a in node.iter.args]
        target, body = self._target(node.target), self._block(node.body)
        escapes = any(_escapes(n) for n in node.body)

        def run(s: Strand, f: Any) -> None:
            given = [b(s, f) for b in bounds]
            start, stop, step = (0, given[0], 1) if len(given) == 1 else (*given, 1)[:3]
            line = s.line
            if not any(isinstance(g, np.ndarray) for g in (start, stop, step)):
                if not escapes:
                    for n in range(int(start), int(stop), int(step)):
                        target(s, f, n)
                        body(s, f)
                    return
                values = list(range(int(start), int(stop), int(step)))
                self._loop(s, f, lambda k: k < len(values), lambda k: values[k], target, body, line)
                return
            if isinstance(step, np.ndarray):
                taken = step[s.lanes()]
                if (taken != taken[0]).any():
                    s.fault("unsupported", "a range whose step differs between lanes")
                step = int(taken[0])
            start, stop = s.vector(start), s.vector(stop)
            more = (lambda k: start + k * step < stop) if step > 0 else (lambda k: start + k * step > stop)
            self._loop(s, f, more, lambda k: start + k * step, target, body, line)

        return run

    def _While(self, node: ast.While) -> Node:
        test, body = self._expression(node.test), self._block(node.body)

        def run(s: Strand, f: Any) -> None:
            self._loop(s, f, lambda k: _truth(test(s, f)), lambda k: None, None, body, s.line)

        return run

    @staticmethod
    def _loop(s: Strand, f: Any, more: Any, value: Any, target: Any, body: Any, line: int) -> None:
        """Iterate until every lane has left: by the test, a break or a return."""
        finished = np.zeros(s.size, bool)
        before = s.mask
        state = {"broken": np.zeros(s.size, bool), "skipped": np.zeros(s.size, bool)}
        f.loops.append(state)
        k = 0
        while True:
            s.line = line
            found = more(k)
            lanes = np.ones(s.size, bool) if s.mask is None else s.mask
            if isinstance(found, np.ndarray):
                finished |= lanes & ~found
                lanes = lanes & found
            elif not found:
                finished |= lanes
                break
            if not lanes.any():
                break
            s.mask = None if lanes.all() else lanes
            if target is not None:
                target(s, f, value(k))
            body(s, f)
            if state["skipped"].any():
                s.mask = (np.ones(s.size, bool) if s.mask is None else s.mask) | state["skipped"]
                state["skipped"] = np.zeros(s.size, bool)
            k += 1
            if k > 10_000_000:
                s.fault("deadlock", "a loop that does not end")
        f.loops.pop()
        after = finished | state["broken"]
        s.mask = before if before is None and after.all() else after

    def _Return(self, node: ast.Return) -> Node:
        value = self._expression(node.value) if node.value is not None else None

        def run(s: Strand, f: Any) -> None:
            if value is not None:
                f.result = s.merged(f.result, value(s, f))
            s.mask = np.zeros(s.size, bool)

        return run

    def _Break(self, node: ast.Break) -> Node:
        return self._leave("broken")

    def _Continue(self, node: ast.Continue) -> Node:
        return self._leave("skipped")

    @staticmethod
    def _leave(how: str) -> Node:
        def run(s: Strand, f: Any) -> None:
            f.loops[-1][how] |= np.ones(s.size, bool) if s.mask is None else s.mask
            s.mask = np.zeros(s.size, bool)

        return run

    # Expressions -----------------------------------------------------------------------------------------------------

    def _expression(self, node: ast.expr) -> Node:
        found = self._static(node)
        if found is not UNKNOWN and not isinstance(found, (seam.Name, types.ModuleType)):
            if isinstance(found, np.ndarray):
                table = _Table(found, ast.unparse(node))
                return lambda s, f: table
            return lambda s, f: found
        method = getattr(self, f"_{type(node).__name__}", None)
        if method is None:
            return self._refuse(node, f"{ast.unparse(node)!r}")
        return method(node)

    def _static(self, node: ast.AST) -> Any:
        """What a name or a dotted name stands for where the kernel was written, or UNKNOWN."""
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name) and node.id not in self.local:
            return self.scope.get(node.id, getattr(builtins, node.id, UNKNOWN))
        if isinstance(node, ast.Attribute):
            base = self._static(node.value)
            return getattr(base, node.attr, UNKNOWN) if base is not UNKNOWN else UNKNOWN
        return UNKNOWN

    def _Name(self, node: ast.Name) -> Node:
        name = node.id

        def read(s: Strand, f: Any) -> Any:
            try:
                return f[name]
            except KeyError:
                s.fault("uninitialised", f"reads {name!r} before anything was assigned to it")

        return read

    def _Attribute(self, node: ast.Attribute) -> Node:
        found = self._static(node)
        if isinstance(found, seam.Name):
            path = repr(found)
            return lambda s, f: s.machine.place_of(s, path)
        value, name = self._expression(node.value), node.attr
        if name in ("size", "shape"):
            return lambda s, f: getattr(value(s, f), name)
        return self._refuse(node, ast.unparse(node))

    def _Tuple(self, node: ast.Tuple) -> Node:
        parts = [self._expression(e) for e in node.elts]
        return lambda s, f: tuple(p(s, f) for p in parts)

    def _Subscript(self, node: ast.Subscript) -> Node:
        array, index = self._expression(node.value), self._expression(node.slice)

        def load(s: Strand, f: Any) -> Any:
            found, at = array(s, f), index(s, f)
            return found[at] if isinstance(found, tuple) else found.load(s, at)

        return load

    def _BinOp(self, node: ast.BinOp) -> Node:
        left, right = self._expression(node.left), self._expression(node.right)
        if type(node.op) not in _OPERATORS:
            return self._refuse(node, f"the operator of {ast.unparse(node)!r}")
        plain, vector = _OPERATORS[type(node.op)]
        shift = isinstance(node.op, (ast.LShift, ast.RShift))
        logic = isinstance(node.op, (ast.BitAnd, ast.BitOr, ast.BitXor))
        text = ast.unparse(node)

        def run(s: Strand, f: Any) -> Any:
            a, b = left(s, f), right(s, f)
            if a.__class__ is int and b.__class__ is int:
                return plain(a, b)
            ka, kb = s.kind(a), s.kind(b)
            if ka in "fd" or kb in "fd":
                s.fault("typing", f"{text!r} is float arithmetic, which the compiler contracts or widens; call ptx")
            if logic and ka == kb == "b":
                return vector(a, b)
            if "u" in (ka, kb):
                if ka != kb:
                    s.fault(
                        "typing",
                        f"{text!r} mixes uint64 and {kb if ka == 'u' else ka!r}: the compiler makes it float64",
                    )
                return vector(a, b)
            a, b = (x.astype(np.int64) if isinstance(x, np.ndarray) else int(x) for x in (a, b))
            if shift:
                count = b[s.lanes()] if isinstance(b, np.ndarray) else np.array([b])
                if count.size and (count.min() < 0 or count.max() > 63):
                    s.fault("typing", f"{text!r} shifts by {int(count.min())} .. {int(count.max())}; 0 to 63 work")
            return vector(a, b)

        return run

    def _UnaryOp(self, node: ast.UnaryOp) -> Node:
        value = self._expression(node.operand)
        if isinstance(node.op, ast.Not):
            return lambda s, f: _inverted(_truth(value(s, f)))
        fn: Any = {ast.USub: operator.neg, ast.Invert: operator.invert, ast.UAdd: operator.pos}[type(node.op)]
        return lambda s, f: fn(value(s, f))

    def _Compare(self, node: ast.Compare) -> Node:
        terms = [self._expression(e) for e in (node.left, *node.comparators)]
        ops = [_COMPARES[type(op)] for op in node.ops]
        text = ast.unparse(node)

        def run(s: Strand, f: Any) -> Any:
            values = [t(s, f) for t in terms]
            result: Any = True
            for n, (plain, vector) in enumerate(ops):
                a, b = values[n], values[n + 1]
                if a.__class__ is int and b.__class__ is int:
                    found = plain(a, b)
                else:
                    ka, kb = s.kind(a), s.kind(b)
                    if ka != kb and ("f" in (ka, kb) or "d" in (ka, kb) or "u" in (ka, kb)):
                        s.fault("typing", f"{text!r} compares {ka!r} with {kb!r}")
                    found = vector(a, b)
                result = found if n == 0 else _both(result, found)
            return result

        return run

    def _BoolOp(self, node: ast.BoolOp) -> Node:
        parts = [self._expression(v) for v in node.values]
        conjunction = isinstance(node.op, ast.And)

        def run(s: Strand, f: Any) -> Any:
            before = s.mask
            result: Any = _truth(parts[0](s, f))
            for part in parts[1:]:
                if not isinstance(result, np.ndarray):
                    if bool(result) != conjunction:
                        break
                    result = _truth(part(s, f))
                    continue
                open_ = result if conjunction else ~result
                s.mask = open_ if before is None else before & open_
                if not s.mask.any():
                    break
                found = _truth(part(s, f))
                result = result & found if conjunction else result | found
            s.mask = before
            return result

        return run

    def _IfExp(self, node: ast.IfExp) -> Node:
        test, yes, no = (self._expression(n) for n in (node.test, node.body, node.orelse))

        def run(s: Strand, f: Any) -> Any:
            found = _truth(test(s, f))
            if not isinstance(found, np.ndarray):
                return (yes if found else no)(s, f)
            before = s.mask
            inside = found if before is None else before & found
            outside = ~found if before is None else before & ~found
            results = []
            for branch, lanes in ((yes, inside), (no, outside)):
                if lanes.any():
                    s.mask = lanes
                    results.append((branch(s, f), lanes))
            s.mask = before
            if len(results) == 1:
                return results[0][0]
            if not results:
                return no(s, f)
            a, b = results[0][0], results[1][0]
            if s.kind(a) != s.kind(b) and "f" in (s.kind(a), s.kind(b)):
                s.fault(
                    "typing", f"{ast.unparse(node)!r} is {s.kind(a)!r} or {s.kind(b)!r}: the compiler makes it float64"
                )
            return np.where(found, a, b)

        return run

    def _Call(self, node: ast.Call) -> Node:
        fn = self._static(node.func)
        args = [self._expression(a) for a in node.args]
        if isinstance(fn, seam.Name):
            return self._cuda(node, repr(fn), args)
        if isinstance(fn, ptx.Instruction):
            name = fn.name
            return lambda s, f: instructions.execute(s, name, [a(s, f) for a in args])
        if isinstance(fn, Sequence):
            return lambda s, f: _sequence(s, fn, [a(s, f) for a in args])
        if seam.is_device(fn):
            called = program_of(fn)
            self.exchanges |= called.exchanges
            return lambda s, f: called.call(s, [a(s, f) for a in args])
        if fn in _CASTS:
            return lambda s, f: _cast(s, fn, args[0](s, f))
        if fn in (builtins.min, builtins.max):
            return self._extreme(fn, args)
        return self._refuse(node, f"the call of {ast.unparse(node.func)!r}")

    def _extreme(self, fn: Any, args: list[Node]) -> Node:
        vector: Any = np.minimum if fn is builtins.min else np.maximum

        def run(s: Strand, f: Any) -> Any:
            result = args[0](s, f)
            for arg in args[1:]:
                other = arg(s, f)
                if s.kind(result) in "fd" or s.kind(other) in "fd":
                    s.fault(
                        "typing", f"{fn.__name__}() of floats: NaN and zeros differ between compilers; write a compare"
                    )
                plain = result.__class__ is int and other.__class__ is int
                result = fn(result, other) if plain else vector(result, other)
            return result

        return run

    def _cuda(self, node: ast.Call, path: str, args: list[Node]) -> Node:
        if path == "cuda.syncthreads":
            self.exchanges = True
            return lambda s, f: s.sync_block()
        if path == "cuda.syncwarp":
            return lambda s, f: s.sync_warp()
        if path in ("cuda.shared.array", "cuda.local.array"):
            size, dtype = self._static(node.args[0]), self._static(node.args[1])
            if size is UNKNOWN or dtype is UNKNOWN:
                return self._refuse(
                    node, f"{ast.unparse(node)!r}, whose size or type is not fixed where it is written,"
                )
            if path == "cuda.local.array":
                return lambda s, f: Local(size, dtype, "")
            self.exchanges = True
            site = (self.fn, node.lineno, node.col_offset)
            return lambda s, f: s.machine.shared_array(s, site, size, dtype)
        if path.startswith("cuda.grid") and len(args) == 1:
            axes = [f"cuda.{kind}.x" for kind in ("blockIdx", "blockDim", "threadIdx")]
            return lambda s, f: _linear(*(s.machine.place_of(s, a) for a in axes))
        return self._refuse(node, f"{path}()")


def _linear(block: Any, size: Any, thread: Any) -> Any:
    return block * size + thread


class _Table:
    """An array of constants from around a kernel."""

    def __init__(self, values: np.ndarray[Any, Any], name: str) -> None:
        self.values, self.name = values, name
        self.size, self.shape = values.size, values.shape

    def load(self, s: Strand, index: Any) -> Any:
        places = index if isinstance(index, tuple) else (index,)
        safe = []
        for n, (at, size) in enumerate(zip(places, self.values.shape, strict=True)):
            lanes = s.lanes()
            taken = at[lanes] if isinstance(at, np.ndarray) else np.array([at])
            if taken.size and (taken.min() < 0 or taken.max() >= size):
                s.fault(
                    "bounds", f"reads {self.name} at {int(taken.min())} .. {int(taken.max())} of axis {n}, size {size}"
                )
            safe.append(np.clip(at, 0, size - 1))
        found = self.values[tuple(safe)]
        return (
            found
            if found.dtype.kind == "f"
            else found.astype(np.int64)
            if isinstance(found, np.ndarray)
            else int(found)
        )


def _truth(x: Any) -> Any:
    if isinstance(x, np.ndarray):
        return x if x.dtype.kind == "b" else x != 0
    return bool(x)


def _inverted(x: Any) -> Any:
    return ~x if isinstance(x, np.ndarray) else not x


def _both(a: Any, b: Any) -> Any:
    return np.logical_and(a, b) if isinstance(a, np.ndarray) or isinstance(b, np.ndarray) else a and b


def _cast(s: Strand, kind: Any, x: Any) -> Any:
    found = s.kind(x)
    if kind is np.float32:
        if found in "fd":
            return np.float32(x) if not isinstance(x, np.ndarray) else x
        return s.vector(x).astype(np.float32) if isinstance(x, np.ndarray) else np.float32(x)
    if found in "fd":
        s.fault("typing", f"{kind.__name__}() of a float: out of range differs between machines; call ptx.to_int")
    if kind in (bool, np.bool_):
        return _truth(x)
    if kind is np.uint64:
        return (
            x.astype(np.int64).astype(np.uint64)
            if isinstance(x, np.ndarray) and x.dtype != np.uint64
            else (x if isinstance(x, np.ndarray) else np.uint64(int(x) % 2**64))
        )
    if kind is int:
        kind = np.int64
    return s.wrapped(x, kind)


def _sequence(s: Strand, fn: Sequence, args: list[Any]) -> Any:
    kinds = fn._kinds(tuple(args))
    dtypes = {"f": np.float32, "i": np.int32, "b": np.bool_}
    for n, (kind, arg) in enumerate(zip(kinds, args, strict=True)):
        if (s.kind(arg) in "fd") != (kind == "f"):
            s.fault("typing", f"{fn.name}: argument {n + 1} is {s.kind(arg)!r}; {kind!r} is needed")
    result = fn(*(s.vector(a, dtypes[k]).astype(dtypes[k]) for a, k in zip(args, kinds, strict=True)))
    return result.astype(np.int64) if result.dtype.kind in "iu" else result


def _escapes(node: ast.AST) -> bool:
    """Whether lanes may leave at a statement: by return, or by a break or continue of a loop around it."""
    if isinstance(node, (ast.Return, ast.Break, ast.Continue)):
        return True
    if isinstance(node, (ast.For, ast.While)):
        return any(isinstance(n, ast.Return) for n in ast.walk(node))
    return any(_escapes(child) for child in ast.iter_child_nodes(node))


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _as_load(node: ast.expr) -> ast.expr:
    copied = ast.parse(ast.unparse(node), mode="eval").body
    return ast.copy_location(copied, node)
