"""What happens to a tile's float32 sums while they are still in registers: bias, bounds, quantization, the store.

    y = sum + bias[n];  y = relu or clip of y, in the order given;  code = clamp(round(y / scale[n]) + zero_point, lo, hi)

Each is the step of the same name, in its order, rounded as it rounds: kernels/reference says what they compute. The
bias is plane 0 of the columns, the scales are plane 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from .. import isa
from ..simd import F32, I8, I16, I32, Emitter, vector

ITEM = {"f32": 4, "u8": 1, "s8": 1, "u16": 2, "s16": 2}
# The record at `epilogue`: name, offset in bytes. int32 unless the name ends in _f32. 24 is written by the fold.
CONSTANTS = {
    "zero_point": 0,
    "top_f32": 12,  # hi - zero_point: codes are clamped as numbers, before the zero point is added
    "bottom_f32": 16,  # lo - zero_point
    "relu_f32": 28,  # what relu compares with
    "lo_f32": 32,  # of clip
    "hi_f32": 36,
}


@dataclass(frozen=True)
class After:
    """
    out     element type of the output: f32, or codes u8, s8, u16, s16
    bias    whether a value for each column is added first
    bounds  "relu" and "clip", each at most once, in this order
    """

    out: str = "f32"
    bias: bool = False
    bounds: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return "_".join([self.out, *(["bias"] if self.bias else []), *self.bounds])

    @property
    def item(self) -> int:
        return ITEM[self.out]


class Finisher:
    """Takes vectors of sums to what is stored. Constants are loaded once, where it is made."""

    def __init__(self, e: Emitter, after: After, lanes: int, arch: str, constants: Any):
        self.e, self.after, self.lanes, self.arch = e, after, lanes, arch
        self.value = {}
        for name, at in CONSTANTS.items():
            if name in self._used():
                kind = F32 if name.endswith("_f32") else I32
                self.value[name] = e.splat(e.load(e.offset(constants, at), kind, 4), lanes)

    def _used(self) -> set[str]:
        used = {"relu": {"relu_f32"}, "clip": {"lo_f32", "hi_f32"}}
        found = set().union(*(used[b] for b in self.after.bounds)) if self.after.bounds else set()
        return found | ({"zero_point", "top_f32", "bottom_f32"} if self.after.out != "f32" else set())

    def __call__(self, x: Any, column: Callable[[int], Any]) -> Any:
        """x: a vector of sums. column: plane -> its vector for these columns."""
        e, b, value = self.e, self.e.b, self.value
        if self.after.bias:
            x = b.fadd(x, column(0))
        for bound in self.after.bounds:
            if bound == "relu":
                x = b.select(b.fcmp_ordered("<=", x, value["relu_f32"]), value["relu_f32"], x)
            else:
                x = b.select(b.fcmp_ordered("<", x, value["lo_f32"]), value["lo_f32"], x)
                x = b.select(b.fcmp_ordered(">", x, value["hi_f32"]), value["hi_f32"], x)
        if self.after.out == "f32":
            return x
        x = b.fdiv(x, column(1))
        x = b.select(b.fcmp_ordered("ord", x, x), x, e.constant(x.type, 0.0))  # NaN becomes the zero point
        x = e.fmax(e.fmin(x, value["top_f32"]), value["bottom_f32"])
        code = b.add(e.round_to_int(x, self.arch), value["zero_point"])
        return b.trunc(code, vector(I8 if self.after.item == 1 else I16, self.lanes))


def store_real(e: Any, tile: Any, sums: list[Any], arg: dict[str, Any]) -> None:
    """Store a tile's sums (row-major list of vectors), through what follows them where the tile has it."""
    level = isa.LEVELS[tile.level]
    lanes, n, after = level.lanes, tile.vectors, tile.after
    rows = e.row_addresses(arg["c"], arg["ldc"])
    finish = None if after is None else Finisher(e, after, lanes, level.arch or isa.host_arch(), arg["epilogue"])
    planes: dict[tuple[int, int], Any] = {}
    item = 4 if after is None else after.item
    mask = _mask(e, lanes, e.offset(arg["valid"], -lanes * (n - 1))) if tile.masked else None
    for k, x in enumerate(sums):
        j = k % n

        def column(plane: int, j: int = j) -> Any:
            if (plane, j) not in planes:
                first = e.b.add(arg["columns"], e.b.mul(arg["plane"], e.i64(plane))) if plane else arg["columns"]
                planes[plane, j] = e.load(e.offset(first, 4 * lanes * j), vector(F32, lanes), 4)
            return planes[plane, j]

        x = x if finish is None else finish(x, column)
        address = e.offset(rows[k // n], item * lanes * j)
        if mask is not None and j == n - 1:
            e.masked_store(x, address, item, mask)
        else:
            e.store(x, address, item)


def _mask(e: Any, lanes: int, valid: Any) -> Any:
    order = ir.Constant(vector(I32, lanes), list(range(lanes)))
    return e.b.icmp_signed("<", order, e.splat(e.b.trunc(valid, I32), lanes))
