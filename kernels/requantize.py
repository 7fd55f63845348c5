"""requantize as a pipeline step. kernels/reference/requantize.py says what it computes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ..primitives.errors import ArgumentError
from ..primitives.kernel import ArgSpec, IndexSpace
from ..primitives.storage import stored_as
from . import checks
from .indexing import Index, index_space, spec, whole

CODES = ("u8", "s8", "u16", "s16", "s32")
ARITHMETIC = ("float", "fixed")


@stored_as("requantize")
@dataclass(frozen=True)
class Requantize:
    """Scale int32 accumulators down to codes.

        float  y = clip(rint(float32(acc) * multiplier) + zero_point, lo, hi)
        fixed  y = clip(round(acc * multiplier * 2**(shift - 31)) + zero_point, lo, hi)

    dtype        of the codes
    rank         of the data
    multiplier   how the multipliers (and shifts) are laid out over it (see indexing.Index); () is per tensor
    zero_point   likewise
    arithmetic   "float" (float32 multiplier) or "fixed" (int32 multiplier and shift)
    """

    elementwise: ClassVar[bool] = True

    dtype: str = "s8"
    rank: int = 2
    multiplier: Index = ()
    zero_point: Index = ()
    arithmetic: str = "float"

    def __post_init__(self) -> None:
        checks.one_of("requantize", "dtype", self.dtype, CODES)
        if self.arithmetic not in ARITHMETIC:
            raise ArgumentError(f"requantize has no arithmetic {self.arithmetic!r}; it has {', '.join(ARITHMETIC)}")

    @property
    def statuses(self) -> Mapping[int, tuple[type[Exception], str]]:
        return checks.FIXED_DOUBTS if self.fixed else checks.MULTIPLIER_DOUBTS

    @property
    def name(self) -> str:
        return f"requantize_s32{self.dtype}"

    @property
    def fixed(self) -> bool:
        return self.arithmetic == "fixed"

    def signature(self) -> tuple[ArgSpec, ...]:
        return (
            spec("acc", "s32", whole(self.rank)),
            spec("multiplier", "s32" if self.fixed else "f32", self.multiplier),
            *((spec("shift", "s32", self.multiplier),) if self.fixed else ()),
            spec("zero_point", self.dtype, self.zero_point),
            spec("lo", "s32", ()),
            spec("hi", "s32", ()),
            spec("y", self.dtype, whole(self.rank), "write", in_place=("acc",) if self.dtype == "s32" else ()),
        )

    def index_space(self) -> IndexSpace:
        return index_space(self.rank)

    def infer(self, shapes: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
        if self.fixed:
            checks.fixed(self.name, values.get("multiplier"), values.get("shift"))
        else:
            checks.multiplier(self.name, values.get("multiplier"))
        return {}

    def execute(self, ctx: Any) -> None:
        read = [spec.slot for spec in self.signature() if spec.reads]
        ctx.sweep(self, *(ctx.read(slot) for slot in read), ctx.write("y"))
