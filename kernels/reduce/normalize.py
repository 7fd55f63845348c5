"""Layer and RMS normalization as a pipeline step. kernels/reference/reduce/steps.py says what they compute."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...primitives.errors import ArgumentError
from ...primitives.kernel import ArgSpec, IndexSpace
from ...primitives.storage import stored_as
from .. import checks
from ..indexing import AXES
from .rows import REAL, arranged, check_axes, data_spec, place_spec, places, row_space, scratch_for


@stored_as("normalize")
@dataclass(frozen=True)
class Normalize:
    """y = (x - mean) / sqrt(variance + epsilon) * scale + bias along the axes; without `centre`: x / sqrt(mean square ..).

    scale, bias  whether there are such operands, of the shape of the reduced axes; a bias needs a scale
    statistics   whether mean (with `centre`) and 1 / sqrt(..) of every row are results too, axes kept with size 1
    """

    dtype: str = "f32"
    rank: int = 2
    axes: tuple[int, ...] = (1,)
    centre: bool = True
    scale: bool = True
    bias: bool = False
    statistics: bool = False

    def __post_init__(self) -> None:
        checks.one_of("normalize", "dtype", self.dtype, REAL)
        check_axes("normalize", self.rank, self.axes)
        if self.bias and not self.scale:
            raise ArgumentError("normalize: a bias without a scale; give a scale of ones")

    @property
    def name(self) -> str:
        return f"normalize_{'layer' if self.centre else 'rms'}_{self.dtype}"

    @property
    def along(self) -> tuple[str, ...]:
        return (*(("scale",) if self.scale else ()), *(("bias",) if self.bias else ()))

    @property
    def results(self) -> tuple[str, ...]:
        if not self.statistics:
            return ()
        return ("mean", "inverse") if self.centre else ("inverse",)

    def signature(self) -> tuple[ArgSpec, ...]:
        shape = tuple(AXES[d].upper() for d in self.axes)
        return (
            data_spec("x", self.dtype, self.rank, self.axes),
            *(ArgSpec(slot, self.dtype, shape=shape, follows=(None,) * len(shape)) for slot in self.along),
            ArgSpec("epsilon", "f32", shape=()),
            data_spec("y", self.dtype, self.rank, self.axes, "write"),
            *(place_spec(slot, "f32", self.rank, self.axes, True) for slot in self.results),
        )

    def index_space(self) -> IndexSpace:
        return row_space(self.rank, self.axes)

    def execute(self, ctx: Any) -> None:
        x, y = arranged(ctx.read("x"), self.axes), arranged(ctx.write("y"), self.axes)
        along = [ctx.read(slot) for slot in self.along]
        scratch = scratch_for(ctx, len(self.axes), [x, y], along)
        statistics = [places(ctx.write(slot), self.axes, True) for slot in self.results]
        ctx.sweep(self, x, *along, ctx.read("epsilon"), y, *statistics, scratch)
