"""lookup as a pipeline step: codes replaced by table entries. kernels/reference/lookup.py says what it computes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ..primitives.kernel import ArgSpec, IndexSpace
from ..primitives.storage import stored_as
from . import checks
from .indexing import index_space, spec, whole

CODES = ("u8", "s8")
ENTRIES = 256


@stored_as("lookup")
@dataclass(frozen=True)
class Lookup:
    """y = table[x & 255], element by element.

    source   type of the codes: u8 or s8, whose negative codes are the table's second half
    dtype    of the table and the result: u8 or s8
    rank     of the data
    """

    elementwise: ClassVar[bool] = True

    source: str = "u8"
    dtype: str = "u8"
    rank: int = 2

    def __post_init__(self) -> None:
        checks.one_of("lookup", "source", self.source, CODES)
        checks.one_of("lookup", "dtype", self.dtype, CODES)

    @property
    def name(self) -> str:
        return f"lookup_{self.source}{self.dtype}"

    def signature(self) -> tuple[ArgSpec, ...]:
        full = whole(self.rank)
        takes_over = ("x",) if self.source == self.dtype else ()
        return (
            spec("x", self.source, full),
            ArgSpec("table", self.dtype, shape=(ENTRIES,)),
            spec("y", self.dtype, full, "write", in_place=takes_over),
        )

    def index_space(self) -> IndexSpace:
        return index_space(self.rank)

    def execute(self, ctx: Any) -> None:
        ctx.sweep(self, ctx.read("x"), ctx.read("table"), ctx.write("y"))
