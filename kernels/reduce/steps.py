"""Reductions over any axes as a pipeline step. kernels/reference/reduce/steps.py says what they compute."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...primitives.kernel import ArgSpec, IndexSpace
from ...primitives.storage import stored_as
from .. import checks
from .rows import REAL, arranged, check_axes, data_spec, place_spec, places, row_space, scratch_for

WHOLE = ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64")
_EXACT = ("sum", "mean", "max", "min", "prod", "l1", "sum_square")
REDUCTIONS = {
    **{op: (*REAL, *WHOLE) for op in _EXACT},
    "max": (*REAL, *WHOLE, "bool"),
    "min": (*REAL, *WHOLE, "bool"),
    **{op: REAL for op in ("l2", "log_sum", "log_sum_exp")},
}


@stored_as("reduce")
@dataclass(frozen=True)
class Reduce:
    """y = what `op` makes of the elements along the axes.

    op        sum mean max min prod l1 l2 sum_square log_sum log_sum_exp
    dtype     of the data and the result
    axes      ascending, 0 to rank - 1
    keepdims  keep the axes with size 1
    """

    op: str = "sum"
    dtype: str = "f32"
    rank: int = 2
    axes: tuple[int, ...] = (1,)
    keepdims: bool = False

    def __post_init__(self) -> None:
        checks.one_of("reduce", "op", self.op, tuple(REDUCTIONS))
        checks.one_of(f"reduce_{self.op}", "dtype", self.dtype, REDUCTIONS[self.op])
        check_axes(f"reduce_{self.op}", self.rank, self.axes)

    @property
    def name(self) -> str:
        return f"reduce_{self.op}_{self.dtype}"

    def signature(self) -> tuple[ArgSpec, ...]:
        return (
            data_spec("x", self.dtype, self.rank, self.axes),
            place_spec("y", self.dtype, self.rank, self.axes, self.keepdims),
        )

    def index_space(self) -> IndexSpace:
        return row_space(self.rank, self.axes)

    def execute(self, ctx: Any) -> None:
        x, y = arranged(ctx.read("x"), self.axes), places(ctx.write("y"), self.axes, self.keepdims)
        ctx.sweep(self, x, y, scratch_for(ctx, len(self.axes), [x]))
