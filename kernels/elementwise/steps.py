"""Any operation of the table as a pipeline step, on numbers and on codes.

kernels/reference/elementwise/steps.py says what they compute.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ...primitives.errors import ArgumentError
from ...primitives.kernel import ArgSpec, IndexSpace
from ...primitives.storage import stored_as
from .. import checks
from ..indexing import Index, index_space, spec, whole
from .basic import CODES
from .table import TABLE, Operation


def _known(op: str) -> Operation:
    if op not in TABLE:
        raise ArgumentError(f"there is no element-wise operation {op!r}; there is {', '.join(TABLE)}")
    return TABLE[op]


@stored_as("elementwise")
@dataclass(frozen=True)
class Elementwise:
    """y = op(*values, *numbers), element by element.

    op       a row of the table (table.py)
    source   element type of the values (but a condition, which is bool)
    rank     of the result
    indices  how each value follows the axes of the result (see indexing.Index): broadcasting
    """

    elementwise: ClassVar[bool] = True

    op: str
    source: str = "f32"
    rank: int = 2
    indices: tuple[Index, ...] = (((0, 1), (1, 1)),)

    def __post_init__(self) -> None:
        checks.one_of(self.op, "operand of type", self.source, _known(self.op).types)

    @property
    def row(self) -> Operation:
        return TABLE[self.op]

    @property
    def name(self) -> str:
        return f"elementwise_{self.op}_{self.source}"

    @property
    def dtype(self) -> str:
        return "bool" if self.row.answer == "bool" else self.source

    @property
    def sources(self) -> tuple[str, ...]:
        """Types of the values."""
        return tuple("bool" if self.row.condition and n == 0 else self.source for n, _ in enumerate(self.row.values))

    def signature(self) -> tuple[ArgSpec, ...]:
        full = whole(self.rank)
        values = list(zip(self.row.values, self.sources, self.indices, strict=True))
        takes_over = tuple(s for s, dtype, index in values if dtype == self.dtype and index == full)
        return (
            *(spec(slot, dtype, index) for slot, dtype, index in values),
            *(spec(slot, "f32", ()) for slot, _ in self.row.numbers),
            spec("y", self.dtype, full, "write", in_place=takes_over),
        )

    def index_space(self) -> IndexSpace:
        return index_space(self.rank)

    def execute(self, ctx: Any) -> None:
        read = [spec.slot for spec in self.signature() if spec.reads]
        ctx.sweep(self, *(ctx.read(slot) for slot in read), ctx.write("y"))


@stored_as("elementwise_quantized")
@dataclass(frozen=True)
class QuantizedElementwise:
    """y = clip(rint(op(values as real numbers, *numbers) / scale) + zero_point).

    op       a row of the table that takes real numbers and returns one
    sources  types of the values' codes
    dtype    of the result's codes
    indices  how each value follows the axes of the result (see indexing.Index)
    params   likewise for the scale and zero point of each value, and of the result last; () is per tensor
    """

    elementwise: ClassVar[bool] = True

    op: str
    sources: tuple[str, ...] = ("u8",)
    dtype: str = "u8"
    rank: int = 2
    indices: tuple[Index, ...] = (((0, 1), (1, 1)),)
    params: tuple[Index, ...] = ((), ())

    def __post_init__(self) -> None:
        row = _known(self.op)
        if not row.real or row.answer != "same" or row.condition:
            raise ArgumentError(f"{self.op} has no quantized form; one that maps real numbers to one works")
        for source in (*self.sources, self.dtype):
            checks.one_of(self.op, "codes", source, CODES)

    @property
    def statuses(self) -> Mapping[int, tuple[type[Exception], str]]:
        return checks.DOUBTS

    @property
    def row(self) -> Operation:
        return TABLE[self.op]

    @property
    def name(self) -> str:
        return f"elementwise_quantized_{self.op}_{''.join(self.sources)}{self.dtype}"

    @property
    def parameters(self) -> tuple[tuple[str, str, Index], ...]:
        """(slot, type, index) of every scale and zero point."""
        found = []
        for slot, dtype, index in zip((*self.row.values, ""), (*self.sources, self.dtype), self.params, strict=True):
            prefix = f"{slot}_" if slot else ""
            found += [(f"{prefix}scale", "f32", index), (f"{prefix}zero_point", dtype, index)]
        return tuple(found)

    def signature(self) -> tuple[ArgSpec, ...]:
        full = whole(self.rank)
        values = list(zip(self.row.values, self.sources, self.indices, strict=True))
        takes_over = tuple(s for s, dtype, index in values if dtype == self.dtype and index == full)
        return (
            *(spec(slot, dtype, index) for slot, dtype, index in values),
            *(spec(slot, dtype, index) for slot, dtype, index in self.parameters),
            *(spec(slot, "f32", ()) for slot, _ in self.row.numbers),
            spec("y", self.dtype, full, "write", in_place=takes_over),
        )

    def index_space(self) -> IndexSpace:
        return index_space(self.rank)

    def infer(self, shapes: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
        for slot, dtype, _ in self.parameters:
            if dtype == "f32":
                checks.scale(self.name, values.get(slot), slot)
        return {}

    def execute(self, ctx: Any) -> None:
        read = [spec.slot for spec in self.signature() if spec.reads]
        ctx.sweep(self, *(ctx.read(slot) for slot in read), ctx.write("y"))
