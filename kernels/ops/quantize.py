"""From real numbers to codes, back, and from accumulators to codes."""

from __future__ import annotations

from typing import Any

from ...primitives import dtypes
from ...primitives.dtypes import DTypeLike
from ...primitives.errors import (
    ArgumentError,
    DTypeMismatch,
    Unsupported,
)
from ...primitives.pipeline import Value
from ...primitives.quantization import QuantParams
from ..indexing import parameter
from ..quantize import REAL, Dequantize, Quantize
from ..requantize import Requantize
from .given import (
    Axis,
    Block,
    Operand,
    check_order,
    dtype_of,
    integers,
    only,
    pipeline_of,
    reals,
    value_of,
    zero_points,
)
from .quantizations import affine_params, fixed_pairs, scale_ratio


def quantize(
    x: Operand,
    scale: Operand = None,
    zero_point: Operand = 0,
    dtype: DTypeLike | None = None,
    axis: Axis = None,
    block: Block = None,
    rounding: str = "half_even",
    seed: Operand = 0,
    to: QuantParams | None = None,
) -> Value:
    """Codes of real numbers: clip(round(x / scale) + zero_point).

    x            f32, f16 or bf16, any shape
    scale        f32, finite and positive: one; (C,) along `axis` (by default the last); with `block`, the shape of x
                 with the blocked axes counting blocks
    zero_point   one, or shaped as scale, of the codes' type
    dtype        u8 (the default) s8 u16 s16 s32, or u4 s4 u2 s2, which are written one code an element in u8 or s8
    axis, block  as in QuantParams
    rounding     half_even half_away half_up toward_zero floor stochastic
    seed         for stochastic: 0 to 2**64 - 1; the draw of an element depends on the seed and its position only
    to           QuantParams instead of scale, zero_point, dtype, axis and block

    NaN gives the zero point, infinities saturate. The result carries its quantization where it is constant.
    """
    pipe = pipeline_of("quantize", x, scale, zero_point, seed)
    x = value_of(pipe, x, "quantize", "x")
    if dtype_of(x) not in REAL:
        raise DTypeMismatch(f"quantize: x is {dtype_of(x)}; {', '.join(REAL)} work")
    if to is not None:
        if scale is not None or dtype is not None or axis is not None or block is not None:
            raise ArgumentError("quantize: give scale, dtype, axis and block, or to=QuantParams, not both")
        scale, zero_point, dtype, axis, block = to.scale, to.zero_point, to.dtype, to.axis, to.block
    if scale is None:
        raise ArgumentError("quantize: scale is missing; give scale= (a number, an array or a value) or to=QuantParams")
    codes = dtypes.get(dtype or "u8")
    quant, scale, zero_point, scale_at, zero_at = affine_params(
        "quantize", x.shape, scale, zero_point, codes.name, axis, block
    )
    kernel = Quantize(dtype_of(x), codes.name, len(x.shape), scale_at, zero_at, rounding)
    operands: dict[str, Any] = {"x": x, "scale": scale, "zero_point": zero_point}
    if rounding == "stochastic":
        operands["seed"] = seed if isinstance(seed, Value) else integers(seed, "u64", "quantize: seed")
    y = pipe.add(kernel, **operands)
    y.quant = to or quant
    return only(y)


def dequantize(
    q: Operand, scale: Operand = None, zero_point: Operand = None, axis: Axis = None, block: Block = None
) -> Value:
    """Real numbers of codes: float32(q - zero_point) * scale.

    q            u8 s8 u16 s16 s32, any shape
    scale        f32, finite and positive, laid out as in `quantize`; left out: the quantization that q carries
    zero_point   one, or shaped as scale, of q's type; left out: that quantization's, or 0 where scale is given
    axis, block  as in QuantParams
    """
    pipe = pipeline_of("dequantize", q, scale, zero_point)
    q = value_of(pipe, q, "dequantize", "q")
    if dtypes.get(dtype_of(q)).packed:
        raise Unsupported(f"dequantize: q is packed {dtype_of(q)}; unpack it to one code an element (u8 or s8) first")
    source = dtype_of(q)
    if scale is None:
        carried = getattr(q, "quant", None)
        if carried is None:
            raise ArgumentError(f"dequantize: scale is missing, and {q!r} carries no quantization; give scale=")
        if axis is not None or block is not None:
            raise ArgumentError("dequantize: axis and block belong to scale=; the value's own quantization has its own")
        scale, axis, block = carried.scale, carried.axis, carried.block
        zero_point = carried.zero_point if zero_point is None else zero_point
    _, scale, zero_point, scale_at, zero_at = affine_params(
        "dequantize", q.shape, scale, 0 if zero_point is None else zero_point, source, axis, block
    )
    kernel = Dequantize(source, len(q.shape), scale_at, zero_at)
    return only(pipe.add(kernel, x=q, scale=scale, zero_point=zero_point))


def requantize(
    acc: Operand,
    multiplier: Operand = None,
    zero_point: Operand = None,
    dtype: DTypeLike | None = None,
    shift: Operand = None,
    arithmetic: str = "float",
    lo: Operand = None,
    hi: Operand = None,
    axis: int | None = None,
    to: QuantParams | None = None,
) -> Value:
    """Codes of s32 accumulators: clip(round(acc * multiplier) + zero_point, lo, hi).

    acc          s32, any shape
    multiplier   one, or (C,) along `axis` (by default the last). arithmetic="float": f32, finite, not negative.
                 "fixed": s32, 2**30 to 2**31 - 1 together with `shift`; or a real constant, whose pair is computed
    zero_point   one, or shaped as multiplier, of the codes' type
    dtype        u8 s8 (the default) u16 s16 s32
    shift        s32, left exponent, -31 to 30: the ratio is multiplier * 2**(shift - 31)
    lo, hi       the codes' range, narrower for a clip; lo=zero_point is a relu
    to           QuantParams of the result instead of multiplier, zero_point and dtype; acc must carry its own:
                 multiplier = float32(scale of acc) / float32(scale of the result)
    """
    pipe = pipeline_of("requantize", acc, multiplier, zero_point, shift, lo, hi)
    acc = value_of(pipe, acc, "requantize", "acc")
    if dtype_of(acc) != "s32":
        raise DTypeMismatch(f"requantize: acc is {dtype_of(acc)}; s32 works")
    zero_axis: Axis = axis
    if to is not None:
        if multiplier is not None or zero_point is not None or dtype is not None or axis is not None:
            raise ArgumentError("requantize: give multiplier, zero_point, dtype and axis, or to=QuantParams, not both")
        multiplier, axis = scale_ratio(acc, to)
        zero_point, zero_axis, dtype = to.zero_point, to.axis, to.dtype
    elif multiplier is None:
        raise ArgumentError(
            "requantize: multiplier is missing; give multiplier= (a number, an array or a value) or to="
        )
    codes = dtypes.get(dtype or "s8")
    zero_point = 0 if zero_point is None else zero_point
    operands: dict[str, Any] = {"acc": acc}
    if arithmetic == "fixed":
        multiplier, shift = fixed_pairs(multiplier, shift)
        operands["shift"] = shift
    elif shift is not None:
        raise ArgumentError(
            "requantize: shift belongs to arithmetic='fixed'; with 'float' give the ratio as multiplier"
        )
    elif not isinstance(multiplier, Value):
        multiplier = reals(multiplier, "requantize: multiplier")
    if not isinstance(zero_point, Value):
        zero_point = zero_points(zero_point, codes.name, "requantize: zero_point")
    kernel = Requantize(
        codes.name,
        len(acc.shape),
        parameter(multiplier.shape, acc.shape, axis, None, "requantize: multiplier"),
        parameter(zero_point.shape, acc.shape, zero_axis, None, "requantize: zero_point"),
        arithmetic,
    )
    bounds: dict[str, Any] = {}
    for name, given, limit in (("lo", lo, codes.min), ("hi", hi, codes.max)):
        given = int(limit) if given is None else given
        bounds[name] = given if isinstance(given, Value) else integers(given, "s32", f"requantize: {name}")
    check_order("requantize", bounds["lo"], bounds["hi"])
    y = pipe.add(kernel, **operands, multiplier=multiplier, zero_point=zero_point, **bounds)
    y.quant = to
    return only(y)
