"""The step that multiplies rows of x with packed panels: what the integer and the real paths have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ....primitives.kernel import ArgSpec, Axis, IndexSpace
from ...indexing import Index
from ..gemm.steps import MOST_COLUMNS, _spread

FEW = 8  # rows up to which a product counts as one of few rows; M is cut at multiples of it
_NO_BYTES = np.zeros(0, np.uint8)
_NO_ROWS = np.zeros((0, 0), np.uint8)


@dataclass(frozen=True)
class Panels:
    """
    engine  the decisions: an object with x_pitch, scratch_bytes(M), detail(M)
    shape   of the result, in the pipeline's sizes
    out     type of the result
    plane   bytes of a plane of columns
    extra   (type, index over the result's axes) of what a generated finish reads
    """

    engine: Any
    shape: tuple[Any, ...]
    out: str
    plane: int
    batch: int = 0
    extra: tuple[tuple[str, Index], ...] = ()

    own_tiles: ClassVar[tuple[str, ...]] = ("mc",)
    least_rows: ClassVar[int] = 96  # that a stage may take at once: each time all codes are unpacked anew

    def signature(self) -> tuple[ArgSpec, ...]:
        batch = "cdefgh"[: self.batch]
        lead = tuple(x.upper() for x in batch)
        axes = (*batch, "m", "n")
        return (
            ArgSpec("rows", "u8", shape=(*lead, "M", self.engine.x_pitch), follows=(*batch, "m", None)),
            ArgSpec("packed", "u8", align=64, follows=("n",)),
            ArgSpec("columns", "u8", align=64),
            ArgSpec("table", "u8"),
            *(
                ArgSpec(f"x{n}", dtype, follows=tuple(axes[at[0]] if at else None for at in index))
                for n, (dtype, index) in enumerate(self.extra)
            ),
            ArgSpec("out", self.out, "write", shape=(*lead, "M", "N"), follows=axes),
        )

    def infer(self, shapes: Mapping[str, Any], operands: Mapping[str, Any]) -> dict[str, Any]:
        return {"out": self.shape}

    def index_space(self) -> IndexSpace:
        return IndexSpace((Axis("m", "M", multiple=FEW), Axis("n", "N", multiple=MOST_COLUMNS)))

    def execute(self, ctx: Any) -> None:
        rows, packed, columns, table = (ctx.read(slot) for slot in ("rows", "packed", "columns", "table"))
        out = ctx.write("out")
        extra = [_spread(ctx.read(f"x{n}"), index, out.shape) for n, (_, index) in enumerate(self.extra)]
        scratch = ctx.scratch(self.engine.scratch_bytes(out.shape[-2]))
        for at in np.ndindex(out.shape[:-2]):
            ctx.sweep(
                self, rows[at], packed, out[at], columns, _NO_BYTES, _NO_ROWS, table, scratch, *(x[at] for x in extra)
            )

    def detail(self, rows: Any, *_: Any) -> str:
        """What runs at this number of rows, for `explain()`."""
        return str(self.engine.detail(rows.shape[0]))
