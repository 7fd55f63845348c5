"""map as a pipeline step: a user's scalar function over arrays. kernels/reference/map.py says what it computes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from ..primitives.kernel import ArgSpec, IndexSpace
from ..primitives.storage import stored_as
from . import checks
from .indexing import Index, index_space, spec, whole

ELEMENTS = ("f32", "s32", "s16", "u16", "s8", "u8", "bool")


@stored_as("map")
@dataclass(frozen=True)
class Map:
    """y = fn(*values, **keywords), element by element.

    fn         a plain Python function over numbers
    sources    types of the operands: the values, then the keyword arguments
    dtype      of the result
    rank       of the result
    indices    how each operand follows the axes of the result (see indexing.Index): broadcasting
    keywords   names of the keyword arguments, which are the last operands
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
