"""x as the real kernels of linear read it: rows of float32 or bfloat16, filled up with zeros, at a pitch of their own.

Rows of x whose stride is a power of two would share sets of L1, and 2-byte elements have to be widened or rounded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit

from ....primitives.kernel import ArgSpec, Axis, IndexSpace
from ...factory import WithParams, register
from ...forge import Native
from ..gemm.wide_rows import get_bf16, get_f16
from ..scalar import bf16_to_f32
from ..simd import copy_bytes, get_f32, put_f32, put_s16, zero_bytes

LINE = 64
FORMS = {"f32": 4, "rounded": 4, "bf16": 2}  # bytes of an element: float32, float32 rounded to bfloat16, bfloat16


@dataclass(frozen=True)
class CopyRows:
    """x (.., M, K) as rows of `form` (FORMS)."""

    K: int
    x_dtype: str
    form: str
    batch: int = 0

    name = "linear_copy"

    @property
    def pitch(self) -> int:
        """Bytes of a row: an even number of values, in whole cache lines."""
        pitch = -(-max(1, -(-self.K // 2) * 2) * FORMS[self.form] // LINE) * LINE
        return pitch + LINE * (pitch % 1024 == 0)

    def signature(self) -> tuple[ArgSpec, ...]:
        lead = tuple(f"B{d}" for d in range(self.batch))
        free = (None,) * self.batch
        return (
            ArgSpec("x", self.x_dtype, shape=(*lead, "M", self.K), follows=(*free, "m", None)),
            ArgSpec("rows", "u8", "write", shape=(*lead, "M", self.pitch), align=LINE, follows=(*free, "m", None)),
        )

    def index_space(self) -> IndexSpace:
        return IndexSpace((Axis("m", "M"),))

    def execute(self, ctx: Any) -> None:
        x, rows = ctx.read("x"), ctx.write("rows")
        for at in np.ndindex(x.shape[:-2]):
            ctx.sweep(self, x[at], rows[at])

    def cost(self, extents: Mapping[str, int], *_: Any) -> float:
        return float(extents["m"] * self.K * 8)


@register("linear_copy", backend="cpu")
def build(kernel: CopyRows) -> WithParams:
    text = f"from {__name__} import copy_entry\n\nentry = copy_entry({kernel.x_dtype!r}, {kernel.form!r})\n"
    return WithParams(Native(text, raw=True), lambda *_: ())


@njit(error_model="numpy")
def to_bf16(x):
    """The 16 bits of x rounded to bfloat16, ties to even; NaN stays NaN."""
    bits = np.float32(x).view(np.uint32)
    up = np.uint32(bits + np.uint32(0x7FFF) + np.uint32(np.uint32(bits >> np.uint32(16)) & np.uint32(1)))
    quiet = np.uint32(bits | np.uint32(0x400000))
    return np.uint16(np.uint32(up if x == x else quiet) >> np.uint32(16))


@njit(error_model="numpy")
def put_bf16(target, p, x):
    """Store x rounded to bfloat16 as element p."""
    put_s16(target, p, np.int16(to_bf16(x)))


@njit(error_model="numpy")
def put_rounded(target, p, x):
    """Store x rounded to bfloat16, as float32, as element p."""
    put_f32(target, p, bf16_to_f32(to_bf16(x)))


def copy_entry(x_dtype: str, form: str) -> Callable[..., Any]:
    """The entry: words of x and rows."""
    item, size = 4 if x_dtype == "f32" else 2, FORMS[form]
    put = {"f32": put_f32, "bf16": put_bf16, "rounded": put_rounded}[form]
    get = {"f32": get_f32, "bf16": get_bf16, "f16": get_f16}[x_dtype]
    plain = item == size and x_dtype == form

    def entry(bases, block, ranges):
        x, depth, lda, step = bases[block[0]] + block[1], block[3], block[4], block[5]
        rows, pitch = bases[block[6]] + block[7], block[10]
        for m in range(ranges[0], ranges[1]):
            source, target = x + m * lda, rows + m * pitch
            if plain and step == item:
                copy_bytes(target, source, depth * item)
            elif step == item:
                for p in range(depth):
                    put(target, p, get(source, p))
            else:
                for p in range(depth):
                    put(target, p, get(source + p * step, 0))
            zero_bytes(target + depth * size, pitch - depth * size)
        return np.int32(0)

    return entry
