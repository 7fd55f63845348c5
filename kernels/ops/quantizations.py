"""Scales and zero points that ops are given or that values carry, made ready for a kernel."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...primitives import sizes
from ...primitives.errors import (
    ArgumentError,
    ShapeMismatch,
    TileworkError,
    Unsupported,
)
from ...primitives.pipeline import Value
from ...primitives.quantization import QuantParams
from ...primitives.sizes import Shape
from ..indexing import Index, parameter
from ..rounding import quantize_multiplier
from .given import Axis, Block, check_native, integers, reals, zero_points


def affine_params(
    op: str, data: Shape, scale: Any, zero_point: Any, codes: str, axis: Axis, block: Block
) -> tuple[QuantParams | None, Any, Any, Index, Index]:
    """Scales and zero points made ready: the quantization where both are constants, the operands, and their layouts."""
    quant = None
    if not isinstance(scale, Value):
        scale = np.asarray(scale)
        check_native(scale, f"{op}: scale")
    if not isinstance(zero_point, Value):
        zero_point = zero_points(zero_point, codes, f"{op}: zero_point")
    if not isinstance(scale, Value):
        if not isinstance(zero_point, Value):
            quant = quant_params(scale, zero_point, codes, axis, block, data, op)
        scale = reals(scale, f"{op}: scale")
    scale_at = parameter(scale.shape, data, axis, block, f"{op}: scale")
    zero_at = parameter(zero_point.shape, data, axis, block, f"{op}: zero_point")
    return quant, scale, zero_point, scale_at, zero_at


def quant_params(
    scale: Any, zero_point: Any, codes: str, axis: Axis, block: Block, data: Shape, op: str
) -> QuantParams | None:
    """QuantParams of constants, which checks them; None where their layout is one that it does not have."""
    try:
        if scale.size == zero_point.size == 1:
            return QuantParams(scale.reshape(()), zero_point.reshape(()), codes)
        if block is not None:
            return QuantParams(scale, zero_point, codes, axis, block)
        longest = scale if scale.size != 1 else zero_point
        along = [at[0] for at in parameter(longest.shape, data, axis, None, "scale") if at is not None]
        if len(along) != 1:
            return None
        return QuantParams(
            np.broadcast_to(scale.reshape(-1), longest.size),
            zero_point.reshape(-1 if zero_point.size != 1 else ()),
            codes,
            along[0],
        )
    except TileworkError as error:
        raise type(error)(f"{op}: {error}") from None


def axis_of(quant: QuantParams, rank: int) -> int:
    assert isinstance(quant.axis, int)
    return quant.axis % rank


def product_scale(
    a: QuantParams | None, b: QuantParams | None, a_shape: Shape, b_shape: Shape, rank: int
) -> QuantParams | None:
    """scale_a * scale_b in float32, where it is constant along k and along all axes of the result but one."""
    if a is None or b is None or a.block is not None or b.block is not None:
        return None
    axis = None
    if a.axis is not None:
        if axis_of(a, len(a_shape)) != len(a_shape) - 2 or b.axis is not None:
            return None
        axis = rank - 2
    if b.axis is not None:
        if axis_of(b, len(b_shape)) != len(b_shape) - 1:
            return None
        axis = rank - 1
    with np.errstate(all="ignore"):
        scale = a.scale.astype(np.float32) * b.scale.astype(np.float32)
    if not ((scale > 0) & np.isfinite(scale)).all():
        return None
    return QuantParams(scale, 0, "s32", axis)


def scale_ratio(acc: Value, to: QuantParams) -> tuple[np.ndarray[Any, Any], int | None]:
    """The multiplier from the quantization that acc carries to another, and the axis that it goes along."""
    if acc.quant is None:
        raise ArgumentError(
            f"requantize: to= needs the scale of {acc.name!r}, which carries none; give multiplier=, or give quant= to "
            f"both operands of the gemm"
        )
    for quant, whose in ((acc.quant, "acc"), (to, "to")):
        if quant.block is not None:
            raise Unsupported(f"requantize: {whose} has scales in blocks; one, or one for each channel works")
    if acc.quant.zero_point.any():
        raise Unsupported(f"requantize: {acc.name!r} has zero point {acc.quant.zero_point}; accumulators have 0")
    rank = len(acc.shape)
    axes = {axis_of(q, rank) for q in (acc.quant, to) if q.axis is not None}
    if len(axes) > 1:
        raise Unsupported(
            f"requantize: acc has scales along axis {acc.quant.axis}, to= along {to.axis}; one axis works"
        )
    with np.errstate(all="ignore"):
        return acc.quant.scale.astype(np.float32) / to.scale.astype(np.float32), axes.pop() if axes else None


def fixed_pairs(multiplier: Any, shift: Any) -> tuple[Any, Any]:
    """A fixed-point multiplier and its shift; computed where a real constant is given alone."""
    if shift is not None:
        both = []
        for name, given in (("multiplier", multiplier), ("shift", shift)):
            both.append(given if isinstance(given, Value) else integers(given, "s32", f"requantize: {name}"))
        if both[0].shape != both[1].shape:
            if any(isinstance(x, Value) for x in both):
                raise ShapeMismatch(
                    f"requantize: multiplier is {sizes.show(both[0].shape)} and shift {sizes.show(both[1].shape)}; "
                    f"they have one shape"
                )
            both = [np.ascontiguousarray(x) for x in np.broadcast_arrays(*both)]
        return both[0], both[1]
    if isinstance(multiplier, Value):
        raise ArgumentError(
            "requantize: arithmetic='fixed' with a run-time multiplier needs shift= too; a constant ratio needs none"
        )
    ratios = np.asarray(multiplier, np.float64)
    pairs = [quantize_multiplier(r) for r in ratios.ravel()]
    return (np.array([p[n] for p in pairs], np.int32).reshape(ratios.shape) for n in (0, 1))  # type: ignore[return-value]
