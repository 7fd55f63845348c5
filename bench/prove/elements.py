"""Steps that act element by element, on numbers and on codes; tables; user functions."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...kernels import ops
from ...kernels.elementwise import TABLE
from ...kernels.ops.tabled import tabled
from ...primitives import dtypes
from .draw import Cell, Draw, Family, cells

CODES = ("u8", "s8", "u16", "s16")
BINARY = ("add", "sub", "mul", "div", "maximum", "minimum")
UNARY = ("sigmoid", "tanh", "hard_swish", "leaky_relu", "gelu", "sqrt", "abs")


def _plain(draw: Draw, cell: Cell) -> Any:
    row = TABLE[cell.step]
    shape = draw.shape(int(draw.rng.integers(0, 4)))
    values = []
    for n in range(len(row.values)):
        dtype = "bool" if row.condition and n == 0 else cell.dtype
        given = tuple(1 if draw.numbers.random() < 0.15 and n else size for size in shape)[
            int(draw.rng.integers(0, 2)) and n :
        ]
        values.append(draw.input(dtype, given if n else shape))
    return tabled(cell.step, *values)


def _bounded(draw: Draw, cell: Cell) -> Any:
    x = draw.input(cell.dtype, draw.shape(int(draw.rng.integers(1, 4))))
    if cell.step == "relu":
        return ops.relu(x)
    if cell.step == "add":
        return ops.add(x, draw.input(cell.dtype, draw.inputs["x0"].shape[-1:]))
    lo, hi = sorted(float(v) for v in draw.numbers.integers(-100 if dtypes.get(cell.dtype).min < 0 else 0, 101, 2))
    number = dtypes.get(cell.dtype).numpy
    return ops.clip(x, np.asarray(lo).astype(number), np.asarray(hi).astype(number))


def _on_codes(draw: Draw, cell: Cell) -> Any:
    op = cell.step.removeprefix("quantized ")
    shape = draw.shape(int(draw.rng.integers(1, 4)))
    zero, dtype = int(draw.code(cell.dtype)), cell.dtype
    if op in UNARY:
        x = draw.input(cell.dtype, shape)
        return getattr(ops, op)(
            x,
            x_scale=draw.scale(),
            x_zero_point=draw.code(cell.dtype),
            scale=draw.scale(),
            zero_point=zero,
            dtype=dtype,
        )
    a, b = draw.input(cell.dtype, shape), draw.input(cell.dtype, shape[int(draw.rng.integers(0, 2)) :])
    many = shape[-1:] if cell.granularity == "channel" else ()
    return getattr(ops, op)(
        a, b, a_scale=draw.scale(many), a_zero_point=draw.code(cell.dtype, many), b_scale=draw.scale(),
        b_zero_point=draw.code(cell.dtype), scale=draw.scale(), zero_point=zero, dtype=dtype,
    )  # fmt: skip


def _table(draw: Draw, cell: Cell) -> Any:
    x = draw.input(cell.dtype, draw.shape(int(draw.rng.integers(1, 4))))
    return ops.lookup(x, draw.values(draw.pick("u8", "s8"), (256,)))


def bent(x, scale):
    """A user's function with a branch, a division and a call of the vector mathematics."""
    t = x * scale
    return t / (1.0 + abs(t)) if t < 0.5 else np.tanh(t)


def _mapped(draw: Draw, cell: Cell) -> Any:
    shape = draw.shape(int(draw.rng.integers(1, 4)))
    x = draw.input(cell.dtype, shape)
    return ops.map(bent, x, draw.input("f32", shape[-1:], tame=True), dtype=draw.pick("f32", "u8"))


_NUMBERS = ("f32", "u8", "s8", "s32", "s64")
FAMILIES = (
    Family(tuple(Cell(name, dtype) for name, row in TABLE.items() for dtype in row.types), _plain),
    Family(
        (
            *cells(("relu", "clip"), (*_NUMBERS, "s16", "u16", "u32", "u64")),
            *cells(("relu",), ("f16", "bf16", "f64")),
            *cells(("add",), ("f32", "s32", "s64")),
        ),
        _bounded,
    ),
    Family(
        (
            *cells([f"quantized {op}" for op in BINARY if op != "add"], CODES, ("tensor", "channel")),
            *cells(["quantized add", *(f"quantized {op}" for op in UNARY)], CODES, ("tensor",)),
        ),
        _on_codes,
    ),
    Family(cells(("lookup",), ("u8", "s8")), _table),
    Family(cells(("user function",), ("f32", "u8", "s8", "s16", "u16", "s32", "bool")), _mapped),
)
