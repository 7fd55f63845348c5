"""Capture: a user's plain Python function becomes float32 source text that compiles, and that Python runs to the bit.

    >>> cap = capture(leaky, args=("s32", "f32"))
    >>> module_text = cap.prelude + cap.emit("epilogue")      # pasted into a generated module
    >>> cap.interpreted(3, 0.5)                                # the same source under plain Python: the same bits

What a function may use: numbers, arrays of numbers (at most 64 KB) and other plain functions from around it; `math` and
NumPy scalar functions (names.py); if, for over a range or an array, while, tuples, small local arrays.

The rules, the same in both modes: a float is float32 and an integer wraps at 32 bits; what is made of Python numbers
alone is computed once, in Python's arithmetic; int(x) truncates and saturates, with 0 for NaN; an index is held inside
its table; min and max are Python's, np.minimum and np.maximum pass NaN on; nothing is contracted or reordered. The sign
and payload of a NaN are outside the promise.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ...primitives.errors import ArgumentError, CaptureError
from ..sequence import SEQUENCES
from .float32 import Rewriter
from .kinds import PREFIX, Expr, Kind, Note, wrapped
from .source import define, parameters

__all__ = ["Captured", "Note", "capture"]

VERSION = 1
DECORATOR = '@njit(forceinline=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)'
LOCAL = re.compile(r"\bnp\.zeros\((\d+), np\.(float32|int32)\)")  # a local array in captured text


@dataclass(frozen=True)
class Captured:
    """A captured function.

    name        of the user's function
    parameters  names of the arguments, in the order in which the emitted function takes them
    arg_kinds   their kinds: "f" float32, "i" int32, "b" bool, "f[]" and "i[]" arrays
    returns     kind of the result, or a tuple of kinds
    source      text of each piece: tables, functions that it calls, itself last; names begin with a placeholder
    lint        lines that would have become float64 or a library call
    """

    name: str
    parameters: tuple[str, ...]
    arg_kinds: tuple[Kind, ...]
    returns: Kind
    source: Mapping[str, str]
    lint: tuple[Note, ...] = field(compare=False)
    _trees: Mapping[str, ast.FunctionDef] = field(repr=False, compare=False)

    @cached_property
    def digest(self) -> str:
        """Hash of everything that the result depends on, but for the package's own source."""
        text = "\0".join((str(VERSION), str(self.arg_kinds), *self.source.values()))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def helpers(self) -> tuple[str, ...]:
        """Names that the emitted text takes from kernels/cpu/vectormath.py."""
        used = {n.id for tree in self._trees.values() for n in ast.walk(tree) if isinstance(n, ast.Name)}
        return tuple(sorted(used & {"f32", "i32", *SEQUENCES}))

    @property
    def prelude(self) -> str:
        """Imports that the emitted text needs; the same helpers may be imported more than once."""
        package = __name__.partition(".")[0]
        helpers = ", ".join(self.helpers)
        line = f"from {package}.kernels.cpu.vectormath import {helpers}\n" if helpers else ""
        if any(LOCAL.search(text) for text in self.source.values()):
            line += f"from {package}.kernels.cpu.views import zeros_f32, zeros_i32\n"
        return f"import numpy as np\nfrom numba import njit\n{line}"

    def emit(self, name: str, decorator: str = DECORATOR, arithmetic: str = "operators") -> str:
        """Text of a module part that defines the function as `name`; whatever else it defines begins with `name`_.

        decorator    the usual one is for the CPU, where local arrays that are not returned are on the stack
        arithmetic   "operators", or "calls" to write float32 + - * / as add(a, b), sub, mul and div, for a compiler
                     that would contract a product and a sum
        """
        if not name.isidentifier():
            raise ArgumentError(f"{name!r} is no name for a function")
        if arithmetic not in ("operators", "calls"):
            raise ArgumentError(f"arithmetic {arithmetic!r} is unknown: operators and calls are known")
        parts = []
        for piece, text in self.source.items():
            if piece in self._trees:
                if arithmetic == "calls":
                    text = _with_calls(text)
                if decorator == DECORATOR and not _returns_arrays(self._trees[piece]):
                    text = LOCAL.sub(lambda found: f"zeros_{found[2][0]}32({found[1]})", text)
                text = f"{decorator}\n{text}" if decorator else text
            parts.append(text)
        text = "\n\n".join(parts)
        return text.replace(f"{PREFIX}main", name).replace(PREFIX, f"{name}_") + "\n"

    @cached_property
    def main(self) -> Callable[..., Any]:
        """`interpreted` without the conversion of its arguments: for np.float32, int and arrays, in np.errstate."""
        scope: dict[str, Any] = {"np": np, "f32": np.float32, "i32": wrapped, **_plain_helpers()}
        exec(compile(self.emit("main", decorator=""), f"<captured {self.name}>", "exec"), scope)
        return scope["main"]  # type: ignore[no-any-return]

    @cached_property
    def interpreted(self) -> Callable[..., Any]:
        """The same source under plain Python: np.float32 scalars, and ints that wrap at 32 bits."""
        main, kinds = self.main, self.arg_kinds

        def run(*args: Any) -> Any:
            if len(args) != len(kinds):
                raise TypeError(f"{self.name} takes {len(kinds)} arguments; {len(args)} were given")
            with np.errstate(all="ignore"):
                return main(*(_as_kind(a, k) for a, k in zip(args, kinds, strict=True)))

        run.__name__ = run.__qualname__ = self.name
        return run


def capture(
    fn: Callable[..., Any],
    args: Sequence[str] | Mapping[str, str] = (),
    returns: Kind = None,
    writes: Sequence[str] = (),
) -> Captured:
    """Capture `fn` for arguments of given kinds.

    args      kind or dtype name of each argument in order, or by parameter name: "f" or any float type, "i" or any
              integer type, "b" or "bool"; with "[]" behind it a one-dimensional array. A parameter that is not given
              and has a default is that number
    returns   kind or dtype name that the result is converted to; by default what the function makes
    writes    names of the arrays among the arguments that the function fills; such a function returns nothing

    Raises CaptureError with function, line and name for what cannot be compiled.
    """
    definition = define(fn)
    program = _Program()
    program.writes = tuple(writes)
    given = dict(args) if isinstance(args, Mapping) else None
    kinds: dict[str, Kind] = {}
    known: dict[str, Any] = {}
    found = parameters(definition)
    if given is None:
        if len(args) > len(found):
            raise CaptureError(f"{definition.where()}: takes {len(found)} arguments; {len(args)} were given")
        given = {p.name: kind for p, kind in zip(found, args, strict=False)}
    if unknown := set(given) - {p.name for p in found}:
        raise CaptureError(f"{definition.where()}: has no argument {', '.join(map(repr, sorted(unknown)))}")
    for p in found:
        if p.name in given:
            kinds[p.name] = _kind(given[p.name])
        elif isinstance(p.default, (bool, int, float, np.number)):
            known[p.name] = p.default
        else:
            raise CaptureError(f"{definition.where()}: the argument {p.name!r} is missing and has no default number")
    program.returns = None if returns is None else _result(returns)
    result = program.add(definition, kinds, known, "main")
    source = {**program.tables, **{k: ast.unparse(v) for k, v in program.trees.items()}}
    lint = tuple(sorted(set(program.notes), key=lambda n: (n.function, n.line)))
    return Captured(definition.name, tuple(kinds), tuple(kinds.values()), result, source, lint, program.trees)


class _Program:
    """What the functions of one capture share."""

    def __init__(self) -> None:
        self.tables: dict[str, str] = {}
        self.trees: dict[str, ast.FunctionDef] = {}
        self.notes: list[Note] = []
        self.returns: Kind = None
        self.writes: tuple[str, ...] = ()
        self._made: dict[Any, tuple[str, Kind]] = {}
        self._stack: list[Any] = []

    def add(self, definition: Any, kinds: dict[str, Kind], known: dict[str, Any], name: str) -> Kind:
        self._stack.append(definition.function)
        rewriter = Rewriter(self, definition, kinds, known, self.writes if name == "main" else ())
        tree, kind = rewriter.rewrite(PREFIX + name)
        self._stack.pop()
        self.trees[name] = tree
        return kind

    def returns_lone(self, kind: Kind) -> bool:
        """Whether the outermost function may return such an array by itself, for a tuple of one."""
        return len(self._stack) == 1 and self.returns == (kind,)

    def result_kind(self, rewriter: Rewriter, kind: Kind, node: ast.AST) -> Kind:
        """The kind of the outermost function's result, where the caller asked for one."""
        if self.returns is None or len(self._stack) > 1:
            return kind
        if isinstance(self.returns, tuple) != isinstance(kind, tuple):
            asked = "a tuple" if isinstance(self.returns, tuple) else "a number"
            rewriter.refuse(f"returns {'a tuple' if isinstance(kind, tuple) else 'a number'}; {asked} is needed", node)
        if isinstance(kind, tuple) and len(kind) != len(self.returns):
            rewriter.refuse(f"returns {len(kind)} values; {len(self.returns)} are needed", node)
        return self.returns

    def function(
        self, fn: Any, given: list[tuple[str | None, Expr]], caller: Rewriter, node: ast.AST
    ) -> tuple[str, list[tuple[Expr, Kind]], Kind]:
        """Add another function for these arguments: its name, the arguments in its order, the kind of its result."""
        fn = getattr(fn, "py_func", fn)
        if fn in self._stack:
            caller.refuse(f"{fn.__name__!r} calls itself; a loop can be compiled", node)
        definition = define(fn)
        found = parameters(definition)
        try:
            bound = inspect.Signature(found).bind(
                *(e for k, e in given if k is None), **{k: e for k, e in given if k is not None}
            )
        except TypeError as error:
            caller.refuse(f"the call of {fn.__name__!r}: {error}", node)
        kinds = {k: e.kind for k, e in bound.arguments.items()}
        known = {p.name: p.default for p in found if p.name not in kinds}
        for k, v in known.items():
            if not isinstance(v, (bool, int, float, np.number)):
                caller.refuse(f"the default of {k!r} of {fn.__name__!r} is {v!r}, not a number", node)
        key = (fn, tuple(kinds.items()))
        if key not in self._made:
            name = self._free(fn.__name__.strip("<>"))
            self._made[key] = (name, self.add(definition, kinds, known, name))
        name, result = self._made[key]
        return PREFIX + name, [(e, kinds[k]) for k, e in bound.arguments.items()], result

    def table(self, spelled: str, values: np.ndarray) -> str:
        """Add a table: the name that stands for it."""
        kind = "np.float32" if values.dtype.kind == "f" else "np.int32"
        if values.size <= 64:
            made = f"np.array({values.tolist()!r}, {kind})".replace("nan", "np.nan").replace("inf", "np.inf")
        else:
            made = f"np.frombuffer(bytes.fromhex({values.tobytes().hex()!r}), {kind})"
            made += f".reshape({values.shape!r}).copy()"
        key = ("table", made)
        if key not in self._made:
            name = self._free("".join(c if c.isalnum() else "_" for c in spelled))
            self._made[key] = (name, None)
            self.tables[name] = f"{PREFIX}{name} = {made}"
        return PREFIX + self._made[key][0]

    def _free(self, name: str) -> str:
        taken = {made for made, _ in self._made.values()} | {"main"}
        found, n = name, 2
        while found in taken:
            found, n = f"{name}{n}", n + 1
        return found


def _kind(asked: str) -> Kind:
    base, array = (asked[:-2], "[]") if asked.endswith("[]") else (asked, "")
    base = str(base)
    if base in ("f", "i", "b"):
        return base + array
    if base == "bool":
        return "b" + array
    if base.startswith(("f", "bf", "e", "float")):
        return "f" + array
    if base.startswith(("s", "u", "i")):
        return "i" + array
    raise ArgumentError(f"{asked!r} is no kind of argument: f, i and b, and the names of data types, are")


def _result(asked: Kind) -> Kind:
    return tuple(_kind(k) for k in asked) if isinstance(asked, (tuple, list)) else _kind(asked)


def _as_kind(x: Any, kind: Kind) -> Any:
    if kind == "f":
        return np.float32(x)
    if kind == "i":
        return wrapped(x)
    if kind == "b":
        return bool(x)
    return np.asarray(x, np.float32 if kind == "f[]" else np.int32)


def _plain_helpers() -> dict[str, Callable[..., Any]]:
    """The sequences for plain Python: integers come back as int, so that the caller's arithmetic wraps by i32."""

    def plain(name: str) -> Callable[..., Any]:
        run = SEQUENCES[name]

        def call(*args: Any) -> Any:
            y = run(*args)
            return int(y) if isinstance(y, np.integer) else bool(y) if isinstance(y, np.bool_) else y

        return call

    return {name: plain(name) for name in SEQUENCES}


def _returns_arrays(tree: ast.FunctionDef) -> bool:
    """Whether an array that the function makes may leave it in a result."""

    def arrays(node: ast.AST) -> bool:
        """Whether a value may be or hold one: elements, lengths and the results of sequences are numbers."""
        if isinstance(node, ast.Name):
            return node.id in made
        if isinstance(node, ast.Call):
            own = isinstance(node.func, ast.Name) and node.func.id.startswith(PREFIX)
            return bool(LOCAL.fullmatch(ast.unparse(node))) or (own and any(map(arrays, node.args)))
        return not isinstance(node, ast.Subscript) and any(map(arrays, ast.iter_child_nodes(node)))

    made: set[str] = set()
    assigned = [node for node in ast.walk(tree) if isinstance(node, ast.Assign)]
    for _ in assigned:  # an array may go from name to name
        for node in assigned:
            if arrays(node.value):
                made |= {n.id for t in node.targets for n in ast.walk(t) if isinstance(n, ast.Name)}
    returned = [node.value for node in ast.walk(tree) if isinstance(node, ast.Return) and node.value is not None]
    return any(map(arrays, returned))


def _with_calls(text: str) -> str:
    """Float32 + - * / as calls. In captured text every integer operation stands inside i32(..)."""

    class Calls(ast.NodeTransformer):
        def visit_Call(self, node: ast.Call) -> ast.AST:
            if isinstance(node.func, ast.Name) and node.func.id == "i32" and isinstance(node.args[0], ast.BinOp):
                inner = node.args[0]
                inner.left, inner.right = self.visit(inner.left), self.visit(inner.right)
                return node
            return self.generic_visit(node)

        def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
            self.generic_visit(node)
            called = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div"}[type(node.op)]
            return ast.Call(ast.Name(called, ast.Load()), [node.left, node.right], [])

    return ast.unparse(ast.fix_missing_locations(Calls().visit(ast.parse(text))))
