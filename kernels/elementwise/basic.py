"""add, relu and clip as pipeline steps. kernels/reference/elementwise/basic.py says what they compute."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ...primitives.kernel import ArgSpec, IndexSpace
from ...primitives.storage import stored_as
from .. import checks
from ..indexing import Index, index_space, spec, whole

NUMBERS = ("f32", "s32", "s64", "u8", "s8", "u16", "s16", "u32", "u64")
SUMS = ("f32", "s32", "s64")
CODES = ("u8", "s8", "u16", "s16")


@stored_as("add")
@dataclass(frozen=True)
class Add:
    """y = a + b of one type, element by element; integers modulo 2**bits.

    a, b   how each operand follows the axes of the result (see indexing.Index): broadcasting
    """

    elementwise: ClassVar[bool] = True

    dtype: str = "f32"
    rank: int = 2
    a: Index = ((0, 1), (1, 1))
    b: Index = ((0, 1), (1, 1))

    def __post_init__(self) -> None:
        checks.one_of("add", "dtype", self.dtype, SUMS)

    @property
    def name(self) -> str:
        return f"add_{self.dtype}"

    def signature(self) -> tuple[ArgSpec, ...]:
        full = whole(self.rank)
        return (
            spec("a", self.dtype, self.a),
            spec("b", self.dtype, self.b),
            spec("y", self.dtype, full, "write", in_place=tuple(s for s in "ab" if getattr(self, s) == full)),
        )

    def index_space(self) -> IndexSpace:
        return index_space(self.rank)

    def execute(self, ctx: Any) -> None:
        ctx.sweep(self, ctx.read("a"), ctx.read("b"), ctx.write("y"))


@stored_as("add_quantized")
@dataclass(frozen=True)
class AddQuantized:
    """y = clip(rint(((a - a_zero_point) * a_scale + (b - b_zero_point) * b_scale) / scale) + zero_point).

    a_dtype, b_dtype, dtype   of the codes
    a, b                      how each operand follows the axes of the result (see indexing.Index)
    params                    likewise for the scale and the zero point of a, b and y; () is per tensor
    """

    elementwise: ClassVar[bool] = True

    a_dtype: str = "u8"
    b_dtype: str = "u8"
    dtype: str = "u8"
    rank: int = 2
    a: Index = ((0, 1), (1, 1))
    b: Index = ((0, 1), (1, 1))
    params: tuple[Index, Index, Index] = ((), (), ())

    def __post_init__(self) -> None:
        for field in ("a_dtype", "b_dtype", "dtype"):
            checks.one_of("add", field, getattr(self, field), CODES)

    @property
    def statuses(self) -> Mapping[int, tuple[type[Exception], str]]:
        return checks.DOUBTS

    @property
    def name(self) -> str:
        return f"add_quantized_{self.a_dtype}{self.b_dtype}{self.dtype}"

    def signature(self) -> tuple[ArgSpec, ...]:
        full = whole(self.rank)
        return (
            spec("a", self.a_dtype, self.a),
            spec("b", self.b_dtype, self.b),
            spec("a_scale", "f32", self.params[0]),
            spec("a_zero_point", self.a_dtype, self.params[0]),
            spec("b_scale", "f32", self.params[1]),
            spec("b_zero_point", self.b_dtype, self.params[1]),
            spec("scale", "f32", self.params[2]),
            spec("zero_point", self.dtype, self.params[2]),
            spec(
                "y",
                self.dtype,
                full,
                "write",
                in_place=tuple(
                    s for s in "ab" if getattr(self, s) == full and getattr(self, f"{s}_dtype") == self.dtype
                ),
            ),
        )

    def index_space(self) -> IndexSpace:
        return index_space(self.rank)

    def infer(self, shapes: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
        for slot in ("a_scale", "b_scale", "scale"):
            checks.scale(self.name, values.get(slot), slot)
        return {}

    def execute(self, ctx: Any) -> None:
        read = [spec.slot for spec in self.signature() if spec.reads]
        ctx.sweep(self, *(ctx.read(slot) for slot in read), ctx.write("y"))


@stored_as("relu")
@dataclass(frozen=True)
class Relu:
    """y = zero_point where x <= zero_point, else x."""

    elementwise: ClassVar[bool] = True

    dtype: str = "f32"
    rank: int = 2
    zero_point: Index = ()

    def __post_init__(self) -> None:
        checks.one_of("relu", "dtype", self.dtype, NUMBERS)

    @property
    def name(self) -> str:
        return f"relu_{self.dtype}"

    def signature(self) -> tuple[ArgSpec, ...]:
        return (
            spec("x", self.dtype, whole(self.rank)),
            spec("zero_point", self.dtype, self.zero_point),
            spec("y", self.dtype, whole(self.rank), "write", in_place=("x",)),
        )

    def index_space(self) -> IndexSpace:
        return index_space(self.rank)

    def execute(self, ctx: Any) -> None:
        ctx.sweep(self, ctx.read("x"), ctx.read("zero_point"), ctx.write("y"))


@stored_as("clip")
@dataclass(frozen=True)
class Clip:
    """y = x bounded to lo .. hi; a float NaN stays.

    lo, hi   how the bounds are laid out over the data (see indexing.Index); () is one for all
    """

    elementwise: ClassVar[bool] = True

    dtype: str = "f32"
    rank: int = 2
    lo: Index = ()
    hi: Index = ()

    def __post_init__(self) -> None:
        checks.one_of("clip", "dtype", self.dtype, NUMBERS)

    @property
    def name(self) -> str:
        return f"clip_{self.dtype}"

    def signature(self) -> tuple[ArgSpec, ...]:
        return (
            spec("x", self.dtype, whole(self.rank)),
            spec("lo", self.dtype, self.lo),
            spec("hi", self.dtype, self.hi),
            spec("y", self.dtype, whole(self.rank), "write", in_place=("x",)),
        )

    def index_space(self) -> IndexSpace:
        return index_space(self.rank)

    def infer(self, shapes: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
        checks.bounds(self.name, values.get("lo"), values.get("hi"))
        return {}

    def execute(self, ctx: Any) -> None:
        ctx.sweep(self, ctx.read("x"), ctx.read("lo"), ctx.read("hi"), ctx.write("y"))
