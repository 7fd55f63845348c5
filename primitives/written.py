"""Users' functions as text, and what they use from outside of it: how a file keeps them."""

from __future__ import annotations

import dis
import inspect
import linecache
import math
import textwrap
import types
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .errors import FileFormatError, PipelineError

MODULES = {"numpy": np, "math": math}


def text_of(function: Any, where: str) -> str:
    """The text of a plain function; PipelineError where it has none of its own."""
    name = getattr(function, "__name__", repr(function))
    try:
        source = textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError):
        raise PipelineError(f"{where} holds {name!r}, whose source Python cannot find; define it in a file") from None
    if not name.isidentifier() or not source.startswith(f"def {name}("):
        raise PipelineError(f"{where} holds {name!r}; a file keeps the source of a plain function, made by def")
    return source


def outside_of(function: Any, where: str) -> dict[str, Any]:
    """What a function's text names and does not hold, but for np and math: numbers, tables, other functions, modules.

    Raises PipelineError for anything else.
    """
    used = {i.argval for i in dis.get_instructions(function) if i.opname == "LOAD_GLOBAL"}
    found = {n: function.__globals__[n] for n in used & function.__globals__.keys()}
    for free, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        found[free] = cell.cell_contents
    known = {"np": np, "math": math}
    kept = {n: x for n, x in found.items() if x is not known.get(n) and x is not function}
    for name, x in kept.items():
        number = isinstance(x, (bool, int, float, np.generic)) or (isinstance(x, np.ndarray) and x.dtype.kind in "biuf")
        if not (number or isinstance(x, types.FunctionType) or x in (np, math) or _numbers(x)):
            raise PipelineError(
                f"{where} holds function {function.__name__!r}, which uses {name}, {type(x).__name__}, from outside of it; "
                f"a file keeps numbers, arrays and other plain functions, np and math: pass what else it needs as arguments"
            )
    return kept


def _numbers(x: Any) -> bool:
    return isinstance(x, (tuple, list)) and all(isinstance(v, (bool, int, float, np.generic)) for v in x)


def made(name: str, source: str, outside: Mapping[str, Any]) -> Callable[..., Any]:
    """The function again: its text is run. Raises FileFormatError for a text that does not define it."""
    filename = f"<tilework {name} {zlib.crc32(source.encode()):08x}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    scope: dict[str, Any] = {"np": np, "math": math, "__name__": filename, **outside}
    try:
        exec(compile(source, filename, "exec"), scope)
        function: Callable[..., Any] = scope[name]
        return function
    except Exception as error:  # whatever its text does
        raise FileFormatError(
            f"the source of function {name!r} does not define it ({type(error).__name__}: {error})"
        ) from error
