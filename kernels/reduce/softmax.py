"""softmax and log-softmax as a pipeline step. kernels/reference/reduce/steps.py says what they compute."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...primitives.kernel import ArgSpec, IndexSpace
from ...primitives.storage import stored_as
from .. import checks
from .rows import REAL, arranged, check_axes, data_spec, row_space, scratch_for


@stored_as("softmax")
@dataclass(frozen=True)
class Softmax:
    """y = exp(x - max) / sum(exp(x - max)) along the axes; log: x - max - ln(sum)."""

    dtype: str = "f32"
    rank: int = 2
    axes: tuple[int, ...] = (1,)
    log: bool = False

    def __post_init__(self) -> None:
        checks.one_of("softmax", "dtype", self.dtype, REAL)
        check_axes("softmax", self.rank, self.axes)

    @property
    def name(self) -> str:
        return f"{'logsoftmax' if self.log else 'softmax'}_{self.dtype}"

    def signature(self) -> tuple[ArgSpec, ...]:
        return (
            data_spec("x", self.dtype, self.rank, self.axes),
            data_spec("y", self.dtype, self.rank, self.axes, "write"),
        )

    def index_space(self) -> IndexSpace:
        return row_space(self.rank, self.axes)

    def execute(self, ctx: Any) -> None:
        x, y = arranged(ctx.read("x"), self.axes), arranged(ctx.write("y"), self.axes)
        ctx.sweep(self, x, y, scratch_for(ctx, len(self.axes), [x, y]))
