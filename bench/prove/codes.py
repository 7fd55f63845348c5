"""Quantize, dequantize, requantize, dynamic quantize, casts, reductions and norms."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...kernels import ops
from ...kernels.cast import BYTES, NATIVE, SMALL
from ...kernels.cast import CODES as CODES_OF_CAST
from ...kernels.reduce import REDUCTIONS
from ...kernels.reduce.coded import OPS as CODED
from .draw import Cell, Draw, Family, cells

REAL = ("f32", "f16", "bf16")
CODES = ("u8", "s8", "u16", "s16", "s32", "u4", "s4", "u2", "s2")
ROUNDINGS = ("half_even", "half_even", "half_even", "half_away", "half_up", "toward_zero", "floor", "stochastic")
GRANULARITIES = ("tensor", "channel", "group")


def _parameters(draw: Draw, shape: tuple[int, ...], granularity: str) -> tuple[tuple[int, ...], dict[str, Any]]:
    """Shape of the scales, and axis= and block= as quantize takes them."""
    if granularity == "tensor":
        return (), {}
    axis = int(draw.rng.integers(len(shape)))
    if granularity == "channel":
        return (shape[axis],), {"axis": axis}
    block = int(draw.pick(1, 3, 16, 32))
    return tuple(-(-n // block) if d == axis else n for d, n in enumerate(shape)), {"axis": axis, "block": block}


def _quantize(draw: Draw, cell: Cell) -> Any:
    shape = draw.shape(int(draw.rng.integers(1, 4)))
    many, where = _parameters(draw, shape, cell.granularity)
    dtype = cell.step.removeprefix("quantize to ")
    zero = draw.code(dtype, many) if dtype != "s32" else np.zeros(many, np.int32)
    more = {"rounding": draw.pick(*ROUNDINGS)}
    if more["rounding"] == "stochastic":
        more["seed"] = int(draw.numbers.integers(2**40))
    return ops.quantize(draw.input(cell.dtype, shape), draw.scale(many), zero, dtype, **where, **more)


def _dequantize(draw: Draw, cell: Cell) -> Any:
    shape = draw.shape(int(draw.rng.integers(1, 4)))
    many, where = _parameters(draw, shape, cell.granularity)
    return ops.dequantize(draw.input(cell.dtype, shape), draw.scale(many), draw.code(cell.dtype, many), **where)


def _requantize(draw: Draw, cell: Cell) -> Any:
    shape = draw.shape(int(draw.rng.integers(1, 4)))
    axis = int(draw.rng.integers(len(shape)))
    many = (shape[axis],) if cell.granularity == "channel" else ()
    ratio = (2.0 ** draw.numbers.uniform(-40, 3, many)).astype(np.float32)
    along = axis if cell.granularity == "channel" else None
    arithmetic = "fixed" if cell.step.endswith("fixed") else "float"
    if arithmetic == "fixed":
        ratio = np.maximum(ratio, np.float32(2.0**-30))
    return ops.requantize(
        draw.input("s32", shape), ratio, draw.code(cell.dtype, many), cell.dtype, arithmetic=arithmetic, axis=along
    )


def _dynamic(draw: Draw, cell: Cell) -> Any:
    group = int(draw.pick(1, 4, 16, 32)) if cell.granularity == "group" else None
    x = draw.input(cell.dtype, draw.shape(int(draw.rng.integers(1, 4)), least=1))
    return ops.dynamic_quantize(x, draw.pick("u8", "s8"), draw.maybe(), cell.granularity, group)


def _cast(draw: Draw, cell: Cell) -> Any:
    x = draw.input(cell.dtype, draw.shape(int(draw.rng.integers(0, 4))))
    return ops.cast(x, cell.step.removeprefix("cast to "), draw.maybe(0.7))


def _reduce(draw: Draw, cell: Cell) -> Any:
    op = cell.step.removeprefix("reduce ")
    rank = int(draw.rng.integers(1, 4))
    if op in ("argmax", "argmin"):
        axis = int(draw.rng.integers(rank))
        return getattr(ops, op)(draw.input(cell.dtype, draw.shape(rank, least=1)), axis, draw.maybe())
    axes = tuple(sorted(int(a) for a in draw.rng.choice(rank, int(draw.rng.integers(1, rank + 1)), replace=False)))
    return ops.reduce(op, draw.input(cell.dtype, draw.shape(rank)), axes, draw.maybe())


def _reduce_codes(draw: Draw, cell: Cell) -> Any:
    shape = draw.shape(int(draw.rng.integers(1, 5)))
    rank = len(shape)
    axes = tuple(sorted(int(a) for a in draw.rng.choice(rank, int(draw.rng.integers(1, rank + 1)), replace=False)))
    dtype = draw.pick("u8", "s8", "s16")
    return ops.reduce(
        cell.step.removeprefix("reduce codes "),
        draw.input(cell.dtype, shape),
        axes,
        draw.maybe(),
        x_scale=draw.scale(),
        x_zero_point=draw.code(cell.dtype),
        scale=draw.scale(),
        zero_point=draw.code(dtype),
        dtype=dtype,
    )


def _by_channel(draw: Draw, cell: Cell) -> Any:
    """Data (N, C, ..) in groups of channels, or each channel with its neighbours."""
    groups, each = draw.size(1, 9), draw.size(1, 5)
    shape = (draw.size(0, 3), groups * each, *draw.shape(int(draw.rng.integers(1, 4)), elements=400))
    x = draw.input(cell.dtype, shape)
    if cell.step == "local_response_norm":
        return ops.local_response_norm(x, draw.size(1, 9), 0.01, float(draw.pick(0.5, 0.75, 1.0)))
    parameters = [draw.input("f32", (shape[1],), tame=True) for _ in range(2)]
    if cell.step == "group_norm":
        return ops.group_norm(x, groups, *parameters)
    return ops.instance_norm(x, *parameters)


def _normalised(draw: Draw, cell: Cell) -> Any:
    rank = int(draw.rng.integers(1, 4))
    shape, axis = draw.shape(rank), int(draw.rng.integers(rank))
    x = draw.input(cell.dtype, shape)
    if not cell.step.endswith("norm") or draw.maybe():
        return getattr(ops, cell.step)(x, axis=axis)
    parameters = [draw.input(cell.dtype, shape[axis:], tame=True) for _ in range(draw.pick(1, 2))]
    more = {"statistics": draw.maybe()} if cell.step == "layer_norm" else {}
    return getattr(ops, cell.step)(x, *parameters, axis=axis, epsilon=float(draw.pick(0.0, 1e-5, 0.5)), **more)


_TYPES = (*NATIVE, *SMALL, *BYTES)
_ARGUMENTS = ("f32", "f16", "bf16", "f64", "u8", "s8", "s16", "u16", "s32", "u32", "s64", "u64")
FAMILIES = (
    Family(cells([f"quantize to {c}" for c in CODES], REAL, GRANULARITIES), _quantize),
    Family(cells(("dequantize",), ("u8", "s8", "u16", "s16", "s32"), GRANULARITIES), _dequantize),
    Family(
        cells(("requantize", "requantize fixed"), ("u8", "s8", "u16", "s16", "s32"), ("tensor", "channel")), _requantize
    ),
    Family(cells(("dynamic quantize",), REAL, ("tensor", "row", "group")), _dynamic),
    Family(tuple(Cell(f"reduce {op}", dtype) for op, types in REDUCTIONS.items() for dtype in types), _reduce),
    Family(cells(("reduce argmax", "reduce argmin"), _ARGUMENTS), _reduce),
    Family(
        tuple(Cell(f"cast to {to}", source) for source in _TYPES for to in (*_TYPES, *CODES_OF_CAST) if to != source),
        _cast,
    ),
    Family(cells([f"reduce codes {op}" for op in CODED], ("u8", "s8", "u16", "s16")), _reduce_codes),
    Family(cells(("group_norm", "instance_norm", "local_response_norm"), REAL), _by_channel),
    Family(cells(("softmax", "log_softmax", "layer_norm", "rms_norm"), REAL), _normalised),
)
