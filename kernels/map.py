"""map as a pipeline step: a user's scalar function over arrays. kernels/reference/map.py says what it computes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from ..primitives.errors import CaptureError
from ..primitives.kernel import ArgSpec, IndexSpace
from ..primitives.storage import stored_as
from . import checks
from .capture import Captured, capture
from .capture.source import define, parameters
from .indexing import Index, index_space, spec, whole

ELEMENTS = ("f32", "s32", "s16", "u16", "s8", "u8", "bool")


@stored_as("map")
@dataclass(frozen=True)
class Map:
    """y = fn(*values, **keywords), element by element.

    fn         a plain Python function over numbers, captured (kernels/capture) as it is when the step is made
    sources    types of the operands: the values, then the keyword arguments
    dtype      of the result
    rank       of the result
    indices    how each operand follows the axes of the result (see indexing.Index): broadcasting
    keywords   names of the keyword arguments, which are the last operands

    Raises CaptureError, with function, line and name, for what cannot be compiled.
    """

    elementwise: ClassVar[bool] = True

    fn: Callable[..., Any]
    sources: tuple[str, ...] = ("s32",)
    dtype: str = "f32"
    rank: int = 2
    indices: tuple[Index, ...] = (((0, 1), (1, 1)),)
    keywords: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for source in self.sources:
            checks.one_of("map", "operand of type", source, ELEMENTS)
        checks.one_of("map", "dtype", self.dtype, ELEMENTS)
        if isinstance(self.captured.returns, tuple):
            raise CaptureError(f"{define(self.fn).where()}: returns {len(self.captured.returns)} values; map takes one")

    @cached_property
    def captured(self) -> Captured:
        """The function as float32 source: what every backend runs."""
        names = [p.name for p in parameters(define(self.fn))]
        values = len(self.sources) - len(self.keywords)
        if len(names) < values:
            return capture(self.fn, self.sources)  # which says how many it takes
        return capture(self.fn, dict(zip((*names[:values], *self.keywords), self.sources, strict=True)))

    @property
    def arguments(self) -> tuple[int, ...]:
        """Which operand each argument of the captured function is."""
        names = [p.name for p in parameters(define(self.fn))]
        order = (*names[: len(self.sources) - len(self.keywords)], *self.keywords)
        return tuple(order.index(name) for name in self.captured.parameters)

    @property
    def name(self) -> str:
        return "map"

    @property
    def slots(self) -> tuple[str, ...]:
        """x0, x1, .. for the values, and arg_name for each keyword argument."""
        values = len(self.sources) - len(self.keywords)
        return (*(f"x{n}" for n in range(values)), *(f"arg_{name}" for name in self.keywords))

    def signature(self) -> tuple[ArgSpec, ...]:
        full = whole(self.rank)
        operands = list(zip(self.slots, self.sources, self.indices, strict=True))
        takes_over = tuple(s for s, dtype, index in operands if dtype == self.dtype and index == full)
        return (
            *(spec(slot, dtype, index) for slot, dtype, index in operands),
            spec("y", self.dtype, full, "write", in_place=takes_over),
        )

    def index_space(self) -> IndexSpace:
        return index_space(self.rank)

    def execute(self, ctx: Any) -> None:
        ctx.sweep(self, *(ctx.read(slot) for slot in self.slots), ctx.write("y"))
