"""Steps that a NumPy function of whole arrays carries out: operators that are rare, and shaped like no loop nest.

kernels/reference/arrays/ holds the functions and says what each means; every executor of the processor runs them as they
are, so that there is one meaning and no second implementation to keep in step with it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..primitives.errors import ArgumentError, ShapeMismatch, TileworkError
from ..primitives.kernel import ArgSpec
from ..primitives.storage import stored_as
from .moving.relative import letters

PREFIXES = "ABCDEFGH"  # of the names of the operands' sizes, in their order


@dataclass(frozen=True)
class ArrayFunction:
    """A function of arrays that a step may name.

    fn      fn(*arrays, **attributes) -> an array, or a tuple of them
    shapes  shapes(*shapes, **attributes) -> the shapes of the results; sizes may be expressions of run-time names
    """

    fn: Callable[..., Any]
    shapes: Callable[..., Any]


FUNCTIONS: dict[str, ArrayFunction] = {}


def array_function(shapes: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: steps may name this function."""

    def enter(fn: Callable[..., Any]) -> Callable[..., Any]:
        FUNCTIONS[fn.__name__] = ArrayFunction(fn, shapes)
        return fn

    return enter


def named(function: str) -> ArrayFunction:
    from .reference import arrays

    arrays.load()
    if function not in FUNCTIONS:
        raise ArgumentError(f"there is no array function {function!r}; {', '.join(sorted(FUNCTIONS))} work")
    return FUNCTIONS[function]


@stored_as("array_step")
@dataclass(frozen=True)
class ArrayStep:
    """y0, y1, .. = function(x0, x1, .., **attributes) of whole arrays.

    function    its name in kernels/reference/arrays/
    operands    (type, rank) of each operand, at most 8
    results     type of each result
    attributes  (name, value) pairs: numbers, texts, and tuples of them
    """

    function: str = "determinant"
    operands: tuple[tuple[str, int], ...] = (("f32", 2),)
    results: tuple[str, ...] = ("f32",)
    attributes: tuple[tuple[str, Any], ...] = ()

    def __post_init__(self) -> None:
        if len(self.operands) > len(PREFIXES):
            raise ArgumentError(f"{self.function}: {len(self.operands)} operands; at most {len(PREFIXES)} work")
        allowed = inspect.signature(named(self.function).fn).parameters
        unknown = [name for name, _ in self.attributes if name not in allowed]
        if unknown:
            raise ArgumentError(f"{self.function} has no attribute {', '.join(unknown)}")

    @property
    def name(self) -> str:
        return f"arrays_{self.function}"

    def signature(self) -> tuple[ArgSpec, ...]:
        read = [
            ArgSpec(f"x{n}", dtype, shape=letters(rank, PREFIXES[n])) for n, (dtype, rank) in enumerate(self.operands)
        ]
        return (*read, *(ArgSpec(f"y{n}", dtype, "write") for n, dtype in enumerate(self.results)))

    def index_space(self) -> None:
        return None

    def infer(self, shapes: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
        given = [shapes[f"x{n}"] for n in range(len(self.operands))]
        try:
            found = named(self.function).shapes(*given, **dict(self.attributes))
        except TileworkError:
            raise
        except (TypeError, ValueError, IndexError) as error:
            raise ShapeMismatch(f"{self.function} of shapes {', '.join(map(str, given))}: {error}") from error
        return {f"y{n}": shape for n, shape in enumerate(found)}

    def execute(self, ctx: Any) -> None:
        self.run(
            *(ctx.read(f"x{n}") for n in range(len(self.operands))),
            into=[ctx.write(f"y{n}") for n in range(len(self.results))],
        )

    def run(self, *read: Any, into: Sequence[Any]) -> None:
        """Compute the results of arrays."""
        try:
            found = named(self.function).fn(*read, **dict(self.attributes))
        except (ValueError, IndexError) as error:
            raise ArgumentError(f"{self.function}: {error}") from error
        for y, result in zip(into, found if isinstance(found, tuple) else (found,), strict=True):
            y[...] = result
