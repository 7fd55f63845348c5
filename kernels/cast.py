"""cast as a pipeline step: elements in another type. kernels/reference/cast.py says what it computes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..primitives import dtypes
from ..primitives.kernel import ArgSpec, IndexSpace
from ..primitives.storage import stored_as
from . import checks
from .indexing import index_space, spec, whole

NATIVE = ("bool", "u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64", "f32", "f64")
CODES = ("u4", "s4", "u2", "s2")  # written one code an element, in u8 or s8
BYTES = ("u4b", "s4b", "u2b", "s2b")
SMALL = tuple(d.name for d in dtypes.DTYPES.values() if d.kind in ("float", "scale") and d.name not in ("f32", "f64"))


@stored_as("cast")
@dataclass(frozen=True)
class Cast:
    """y = x in another type, element by element.

    source    type of x
    dtype     of the result: any, and u4 s4 u2 s2, whose codes are written one an element
    rank      of the data
    scale_rounding  of e8m0fnu, powers of two: half_up (as ml_dtypes), up or down
    saturate  what a small float cannot hold becomes its largest finite value (else infinity or NaN, as its format says)
    """

    source: str = "f32"
    dtype: str = "s32"
    rank: int = 2
    saturate: bool = True
    scale_rounding: str = "half_up"

    def __post_init__(self) -> None:
        checks.one_of("cast", "source", self.source, (*NATIVE, *SMALL, *BYTES))
        checks.one_of("cast", "scale_rounding", self.scale_rounding, ("half_up", "up", "down"))
        checks.one_of("cast", "dtype", self.dtype, (*NATIVE, *SMALL, *CODES, *BYTES))

    @property
    def name(self) -> str:
        return "cast"

    @property
    def stored(self) -> str:
        """The type that the result is stored in."""
        return {"u4": "u8", "u2": "u8", "s4": "s8", "s2": "s8"}.get(self.dtype, self.dtype)

    def signature(self) -> tuple[ArgSpec, ...]:
        full = whole(self.rank)
        return (spec("x", self.source, full), spec("y", self.stored, full, "write"))

    def index_space(self) -> IndexSpace:
        return index_space(self.rank)

    def execute(self, ctx: Any) -> None:
        x, y = ctx.read("x"), ctx.write("y")
        if self.source in SMALL and dtypes.get(self.source).itemsize == 1:
            ctx.sweep(self, x.view(np.uint8), values_of(self.source), y)
        else:
            ctx.sweep(self, x, y)


_VALUES: dict[str, np.ndarray[Any, Any]] = {}


def values_of(dtype: str) -> np.ndarray[Any, Any]:
    """The float32 value of every code of a type of one byte; codes that a format does not have read as their low bits."""
    if dtype not in _VALUES:
        kind = dtypes.get(dtype)
        codes = np.arange(256, dtype=np.uint8) & np.uint8((1 << min(8, kind.bits)) - 1)
        table = codes.view(kind.numpy).astype(np.float32)
        table.setflags(write=False)
        _VALUES[dtype] = table
    return _VALUES[dtype]
