"""quantize and dequantize as pipeline steps. kernels/reference/quantize.py says what they compute."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ..primitives import dtypes
from ..primitives.errors import ArgumentError
from ..primitives.kernel import ArgSpec, IndexSpace
from ..primitives.storage import stored_as
from . import checks
from .indexing import Index, index_space, spec, whole
from .rounding import ROUNDINGS

REAL = ("f32", "f16", "bf16")
CODES = ("u8", "s8", "u16", "s16", "s32", "u4", "s4", "u2", "s2")
SEED = "u64"


def code_storage(dtype: str) -> str:
    """The type that holds one code an element: u4 and u2 in u8, s4 and s2 in s8, the others in themselves."""
    return dtypes.get(dtypes.get(dtype).code).name


@stored_as("quantize")
@dataclass(frozen=True)
class Quantize:
    """y = clip(round(x / scale) + zero_point), element by element.

    source       f32, f16 or bf16
    dtype        of the codes; u4, s4, u2 and s2 are written one code an element
    rank         of the data
    scale        how the scales are laid out over it (see indexing.Index); () is per tensor
    zero_point   likewise
    rounding     see reference.arithmetic.round_f32; "stochastic" adds a slot `seed`
    """

    elementwise: ClassVar[bool] = True

    source: str = "f32"
    dtype: str = "u8"
    rank: int = 2
    scale: Index = ()
    zero_point: Index = ()
    rounding: str = "half_even"

    def __post_init__(self) -> None:
        checks.one_of("quantize", "source", self.source, REAL)
        checks.one_of("quantize", "dtype", self.dtype, CODES)
        if self.rounding not in ROUNDINGS:
            raise ArgumentError(f"quantize has no rounding {self.rounding!r}; it has {', '.join(ROUNDINGS)}")

    @property
    def statuses(self) -> Mapping[int, tuple[type[Exception], str]]:
        return checks.DOUBTS

    @property
    def name(self) -> str:
        return f"quantize_{self.source}{self.dtype}"

    def signature(self) -> tuple[ArgSpec, ...]:
        codes = code_storage(self.dtype)
        seed = (spec("seed", SEED, ()),) if self.rounding == "stochastic" else ()
        return (
            spec("x", self.source, whole(self.rank)),
            spec("scale", "f32", self.scale),
            spec("zero_point", codes, self.zero_point),
            *seed,
            spec("y", codes, whole(self.rank), "write"),
        )

    def index_space(self) -> IndexSpace:
        return index_space(self.rank)

    def infer(self, shapes: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
        checks.scale(self.name, values.get("scale"))
        checks.zero_point(self.name, values.get("zero_point"), self.dtype)
        return {}

    def execute(self, ctx: Any) -> None:
        seed = (ctx.read("seed"),) if self.rounding == "stochastic" else ()
        ctx.sweep(self, ctx.read("x"), ctx.read("scale"), ctx.read("zero_point"), *seed, ctx.write("y"))


@stored_as("dequantize")
@dataclass(frozen=True)
class Dequantize:
    """y = float32(x - zero_point) * scale, element by element.

    source       type of the codes; u4, s4, u2 and s2 are read one code an element
    rank         of the data
    scale        how the scales are laid out over it (see indexing.Index); () is per tensor
    zero_point   likewise
    """

    elementwise: ClassVar[bool] = True

    source: str = "u8"
    rank: int = 2
    scale: Index = ()
    zero_point: Index = ()

    def __post_init__(self) -> None:
        checks.one_of("dequantize", "source", self.source, CODES)

    @property
    def statuses(self) -> Mapping[int, tuple[type[Exception], str]]:
        return checks.DOUBTS

    @property
    def name(self) -> str:
        return f"dequantize_{self.source}f32"

    def signature(self) -> tuple[ArgSpec, ...]:
        codes = code_storage(self.source)
        return (
            spec("x", codes, whole(self.rank)),
            spec("scale", "f32", self.scale),
            spec("zero_point", codes, self.zero_point),
            spec("y", "f32", whole(self.rank), "write", in_place=("x",) if codes == "s32" else ()),
        )

    def index_space(self) -> IndexSpace:
        return index_space(self.rank)

    def infer(self, shapes: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
        checks.scale(self.name, values.get("scale"))
        checks.zero_point(self.name, values.get("zero_point"), self.source)
        return {}

    def execute(self, ctx: Any) -> None:
        ctx.sweep(self, ctx.read("x"), ctx.read("scale"), ctx.read("zero_point"), ctx.write("y"))


__all__ = ["Dequantize", "Quantize", "code_storage"]
