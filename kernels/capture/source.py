"""Finds the definition of a Python function: its syntax tree, where it stands, and what its names mean."""

from __future__ import annotations

import ast
import builtins
import inspect
import linecache
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import CodeType, FunctionType
from typing import Any

from ...primitives.errors import CaptureError
from ..sequence import SEQUENCES, Sequence
from .names import helper_of


@dataclass(frozen=True)
class Definition:
    """A function's tree (a FunctionDef or a Lambda), and its names."""

    function: FunctionType
    tree: ast.FunctionDef | ast.Lambda
    filename: str
    cells: dict[str, Any] = field(repr=False)

    @property
    def name(self) -> str:
        return self.function.__name__

    def where(self, line: int | None = None) -> str:
        """The function and line, as error messages name them."""
        return f"{self.name} ({self.filename.rsplit('/', 1)[-1]}, line {line or self.tree.lineno})"

    def lookup(self, name: str) -> Any:
        """The object that a free name stands for. Raises KeyError."""
        for names in (self.cells, self.function.__globals__, vars(builtins)):
            if name in names:
                return names[name]
        raise KeyError(name)


def define(fn: Any) -> Definition:
    """Find the definition of `fn`.

    A written sequence, and a function of math or NumPy that one stands for, is a function that calls it.

    Raises CaptureError if it is no plain function, has no source, or was edited since it was defined.
    """
    if (helper := helper_of(fn)) is not None:
        return _calling(SEQUENCES[helper])
    fn = getattr(fn, "py_func", fn)  # what Numba's own decorators wrap
    if not isinstance(fn, FunctionType):
        raise CaptureError(f"{fn!r} is a {type(fn).__name__}; a plain Python function (def or lambda) can be captured")
    code = fn.__code__
    linecache.checkcache(code.co_filename)
    lines = linecache.getlines(code.co_filename, fn.__globals__)
    if not lines:
        raise CaptureError(
            f"Python has no source of {fn.__name__} ({code.co_filename}): define it in a file or a notebook cell, "
            f"not through exec or python -c"
        )
    trees, codes = _candidates(code, "".join(lines))
    for tree, compiled in zip(trees, codes, strict=False):
        if _same(code, compiled) or any(isinstance(node, ast.Assert) for node in ast.walk(tree)):
            return Definition(fn, tree, code.co_filename, dict(_cells(fn)))
    raise CaptureError(
        f"{fn.__name__} ({code.co_filename}, line {code.co_firstlineno}): the source there is no longer what was "
        f"loaded; reload the module or run the cell again"
    )


def _calling(sequence: Sequence) -> Definition:
    names = ", ".join(inspect.signature(sequence.fn).parameters)
    text = f"def {sequence.name}({names}):\n    return sequence({names})\n"
    scope: dict[str, Any] = {"sequence": sequence}
    exec(text, scope)
    tree = ast.parse(text).body[0]
    assert isinstance(tree, ast.FunctionDef)
    return Definition(scope[sequence.name], tree, sequence.fn.__code__.co_filename, {})


def _cells(fn: FunctionType) -> Iterator[tuple[str, Any]]:
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not assigned yet
            continue


# Of a file's text: its definitions and lambdas, and all code in it.
_parsed: dict[tuple[str, int], tuple[list[ast.FunctionDef | ast.Lambda], list[CodeType]]] = {}


def _candidates(code: CodeType, text: str) -> tuple[list[ast.FunctionDef | ast.Lambda], list[CodeType]]:
    """Definitions that begin on the line where the code begins, and what they compile to, in the order of the text."""
    key = (code.co_filename, hash(text))
    if key not in _parsed:
        if len(_parsed) > 64:
            _parsed.clear()
        try:
            module = ast.parse(text)
            compiled = compile(module, code.co_filename, "exec", dont_inherit=True)
        except (SyntaxError, ValueError) as error:
            raise CaptureError(f"{code.co_name} ({code.co_filename}): the source does not parse: {error}") from None
        nodes = [node for node in ast.walk(module) if isinstance(node, (ast.FunctionDef, ast.Lambda))]
        _parsed[key] = nodes, list(_codes(compiled))
    nodes, known = _parsed[key]
    found: list[ast.FunctionDef | ast.Lambda] = []
    for node in nodes:
        if isinstance(node, ast.FunctionDef) and node.name == code.co_name:
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            if first == code.co_firstlineno:
                found.append(node)
        elif isinstance(node, ast.Lambda) and code.co_name == "<lambda>" and node.lineno == code.co_firstlineno:
            found.append(node)
    found.sort(key=lambda node: node.col_offset)
    codes = [c for c in known if (c.co_name, c.co_firstlineno) == (code.co_name, code.co_firstlineno)]
    return found, codes


def _same(code: CodeType, compiled: CodeType) -> bool:
    """Whether this is the code of that source. Assertions may have been rewritten, so they are not compared."""
    return compiled.co_code == code.co_code and _constants(compiled) == _constants(code)


def _constants(code: CodeType) -> list[str]:
    return [repr(c) for c in code.co_consts if not isinstance(c, CodeType)]


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)


def parameters(definition: Definition) -> list[inspect.Parameter]:
    """The parameters. Raises CaptureError for *args and **kwargs."""
    found = list(inspect.signature(definition.function, follow_wrapped=False).parameters.values())
    for p in found:
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            raise CaptureError(f"{definition.where()}: takes {p}; name each argument instead")
    return found
