"""Pooling: the largest or the mean of windows of an image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...primitives import dtypes, sizes
from ...primitives.dtypes import DTypeLike
from ...primitives.errors import ArgumentError, DTypeMismatch, ShapeMismatch, Unsupported
from ...primitives.pipeline import Value
from ...primitives.quantization import QuantParams
from ..pool import CODES, NUMBERS, Pool
from ..window import SPATIAL, Window, layout, paddings, per_axis, same
from .given import Operand, dtype_of, one, only, pipeline_of, reals, value_of, zero_points

Size = int | Sequence[int]


def max_pool(
    x: Operand,
    kernel: Size,
    *,
    strides: Size | None = None,
    pads: Size | str = 0,
    dilations: Size = 1,
    ceil_mode: bool = False,
    layout: str | None = None,
) -> Value:
    """The largest element of each window; padding takes no part. The result has the quantization of x.

    x          u8, s8 or f32 image: (N, C, H, W), or as `layout` says, with W or DHW for HW
    kernel     one number for all spatial axes, or one each; strides and dilations likewise (strides: as kernel)
    pads       one number; one for each axis; before each and then behind each; or "same_upper", "same_lower"
    ceil_mode  whether a last window that is not full is taken too, if it begins before the padding behind
    layout     NCHW (the default), NHWC and the like; left out: the axes that x has, if it has any
    """
    return _windows("max_pool", "max", x, kernel, strides, pads, dilations, ceil_mode, layout, {})


def average_pool(
    x: Operand,
    kernel: Size,
    *,
    strides: Size | None = None,
    pads: Size | str = 0,
    dilations: Size = 1,
    ceil_mode: bool = False,
    count_include_pad: bool = False,
    layout: str | None = None,
    x_zero_point: Operand = None,
    multiplier: Operand = None,
    zero_point: Operand = None,
    dtype: DTypeLike | None = None,
    to: QuantParams | None = None,
) -> Value:
    """The mean of each window, of numbers or of codes: clip(rint(sum of (x - x_zero_point) * multiplier / count) + zero_point).

    count_include_pad  whether positions of padding count; they stand for real 0
    x_zero_point       of codes, one; left out: that of the quantization x carries, or 0
    multiplier         scale of x / scale of the result, f32, one; left out: 1
    zero_point, dtype  of the result; left out: as x
    to                 QuantParams of the result instead of the three; x must carry its own
    Everything else is as in `max_pool`.
    """
    codes = {"x_zero_point": x_zero_point, "multiplier": multiplier, "zero_point": zero_point, "dtype": dtype, "to": to}
    return _windows(
        "average_pool", "average", x, kernel, strides, pads, dilations, ceil_mode, layout, codes, count_include_pad
    )


def adaptive_max_pool(x: Operand, size: Size, *, layout: str | None = None) -> Value:
    """The largest element of each of `size` windows that cover an axis, whatever its length (see `max_pool`)."""
    return _adaptive("adaptive_max_pool", "max", x, size, layout, {})


def adaptive_average_pool(
    x: Operand,
    size: Size,
    *,
    layout: str | None = None,
    x_zero_point: Operand = None,
    multiplier: Operand = None,
    zero_point: Operand = None,
    dtype: DTypeLike | None = None,
    to: QuantParams | None = None,
) -> Value:
    """The mean of each of `size` windows that cover an axis, whatever its length (see `average_pool`)."""
    codes = {"x_zero_point": x_zero_point, "multiplier": multiplier, "zero_point": zero_point, "dtype": dtype, "to": to}
    return _adaptive("adaptive_average_pool", "average", x, size, layout, codes)


def global_max_pool(x: Operand, *, layout: str | None = None) -> Value:
    """The largest element of each channel of an image; its spatial axes keep size 1 (see `max_pool`)."""
    return _adaptive("global_max_pool", "max", x, 1, layout, {})


def global_average_pool(
    x: Operand,
    *,
    layout: str | None = None,
    x_zero_point: Operand = None,
    multiplier: Operand = None,
    zero_point: Operand = None,
    dtype: DTypeLike | None = None,
    to: QuantParams | None = None,
) -> Value:
    """The mean of each channel of an image; its spatial axes keep size 1 (see `average_pool`)."""
    codes = {"x_zero_point": x_zero_point, "multiplier": multiplier, "zero_point": zero_point, "dtype": dtype, "to": to}
    return _adaptive("global_average_pool", "average", x, 1, layout, codes)


def _image(op: str, x: Operand, given: str | None, more: Sequence[Any]) -> tuple[Value, str, int]:
    """The image as a value, its layout, and how many spatial axes it has."""
    value = value_of(pipeline_of(op, x, *more), x, op, "x")
    if dtype_of(value) not in NUMBERS:
        raise DTypeMismatch(f"{op}: x is {dtype_of(value)}; {', '.join(NUMBERS)} work")
    spatial = len(value.shape) - 2
    if spatial not in SPATIAL:
        raise ShapeMismatch(
            f"{op}: x is {sizes.show(value.shape)}; three, four or five dimensions work, one, two or three of them spatial"
        )
    return value, layout(given or value.axes or f"NC{SPATIAL[spatial]}", spatial), spatial


def _windows(
    op: str, kind: str, x: Operand, kernel: Size, strides: Size | None, pads: Size | str, dilations: Size, ceil: bool,
    given_layout: str | None, codes: dict[str, Any], count_padding: bool = False,
) -> Value:  # fmt: skip
    value, order, spatial = _image(op, x, given_layout, [v for v in codes.values() if isinstance(v, Value)])
    taps = per_axis(kernel, spatial, f"{op}: kernel")
    steps = per_axis(taps if strides is None else strides, spatial, f"{op}: strides")
    apart = per_axis(dilations, spatial, f"{op}: dilations")
    nothing = (0,) * spatial
    window = Window(taps, steps, nothing, nothing, apart)
    before, after = nothing, nothing
    if isinstance(pads, str):
        if pads not in ("same_upper", "same_lower", "valid"):
            raise ArgumentError(f"{op}: pads {pads!r}; numbers, 'same_upper', 'same_lower' or 'valid' work")
        if pads != "valid":
            shape = [value.shape[order.index(a)] for a in SPATIAL[spatial]]
            before, after = same(spatial, shape, window, pads == "same_upper", f"{op}: pads")
    else:
        before, after = paddings(pads, spatial, f"{op}: pads")
    for d, (p, q) in enumerate(zip(before, after, strict=True)):
        if max(p, q) >= window.reach(d):
            raise ArgumentError(
                f"{op}: padding {max(p, q)} along spatial axis {d} is not less than the {window.reach(d)} positions of a "
                f"window, so a window may hold nothing else"
            )
    made = Pool(
        kind, dtype_of(value), dtype_of(value), taps, steps, before, after, apart, bool(ceil),
        count_padding=bool(count_padding), x_layout=order, y_layout=order,
    )  # fmt: skip
    return _add(op, made, value, codes)


def _adaptive(op: str, kind: str, x: Operand, size: Size, given: str | None, codes: dict[str, Any]) -> Value:
    value, order, spatial = _image(op, x, given, [v for v in codes.values() if isinstance(v, Value)])
    outputs = per_axis(size, spatial, f"{op}: size")
    ones, nothing = (1,) * spatial, (0,) * spatial
    made = Pool(
        kind, dtype_of(value), dtype_of(value), ones, ones, nothing, nothing, ones, adaptive=outputs, x_layout=order,
        y_layout=order,
    )  # fmt: skip
    return _add(op, made, value, codes)


def _add(op: str, kernel: Pool, x: Value, codes: dict[str, Any]) -> Value:
    operands: dict[str, Any] = {"x": x}
    quant = x.quant
    if kernel.scaled:
        kernel, operands, quant = _scaled(op, kernel, x, codes)
    elif any(v is not None for v in codes.values()):
        raise ArgumentError(f"{op}: scales and zero points are those of codes; x is {kernel.x_dtype}")
    y = only(x.pipeline.add(kernel, **operands))
    y.quant, y.axes = quant, kernel.y_layout
    return y


def _scaled(op: str, kernel: Pool, x: Value, codes: dict[str, Any]) -> tuple[Pool, dict[str, Any], QuantParams | None]:
    """The mean of codes: its operands, and the quantization of the result."""
    carried, to = x.quant, codes["to"]
    if carried is not None and (carried.axis is not None or carried.block is not None):
        raise Unsupported(f"{op}: x has a scale for each index of axis {carried.axis}; one for the tensor works")
    multiplier, zero, dtype = codes["multiplier"], codes["zero_point"], codes["dtype"]
    if to is not None:
        if multiplier is not None or zero is not None or dtype is not None:
            raise ArgumentError(f"{op}: give multiplier, zero_point and dtype, or to=QuantParams, not both")
        if carried is None or to.axis is not None or to.block is not None:
            raise ArgumentError(f"{op}: to= is one scale for the tensor, and needs the scale of x, which {x!r} lacks")
        multiplier = carried.scale.astype(np.float32) / to.scale.astype(np.float32)
        zero, dtype = to.zero_point, to.dtype
    dtype = dtypes.get(dtype or kernel.x_dtype).name
    if dtype not in CODES:
        raise DTypeMismatch(f"{op}: the mean of codes is asked for as {dtype}; {' and '.join(CODES)} work")
    x_zero = codes["x_zero_point"]
    if x_zero is None:
        x_zero = 0 if carried is None else carried.zero_point
    quant = to
    if zero is None:
        zero = x_zero
        quant = carried if multiplier is None and dtype == kernel.x_dtype else to
    operands: dict[str, Any] = {"x": x}
    for slot, given, kind in (("x_zero_point", x_zero, kernel.x_dtype), ("zero_point", zero, dtype)):
        if not isinstance(given, Value):
            given = one(zero_points(given, kind, f"{op}: {slot}"), f"{op}: {slot}")
        operands[slot] = given
    if multiplier is None:
        multiplier = 1.0
    if not isinstance(multiplier, Value):
        multiplier = one(reals(multiplier, f"{op}: multiplier"), f"{op}: multiplier")
    operands["multiplier"] = multiplier
    return replace(kernel, dtype=dtype), operands, quant
