"""Steps that reduce along axes, and those that are made of reductions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...primitives import dtypes, sizes
from ...primitives.dtypes import DTypeLike
from ...primitives.errors import ArgumentError, DTypeMismatch, ShapeMismatch
from ...primitives.pipeline import Value
from ...primitives.quantization import QuantParams
from .. import argmax as argmax_step
from ..reduce import REDUCTIONS, DynamicQuantize, Extremes, Normalize, Parameters, Reduce, ReduceCodes, Softmax
from ..reduce.coded import CODES
from ..reduce.coded import OPS as CODED
from ..reduce.rows import REAL
from .given import Operand, dtype_of, one, only, pipeline_of, reals, value_of, zero_points
from .moving import reshape
from .quantize import quantize
from .tabled import tabled

Axes = int | Sequence[int] | None


def axes_of(op: str, x: Value, axes: Axes) -> tuple[int, ...]:
    """Axes from the end where negative, as ascending ones from the front; None: all."""
    rank = len(x.shape)
    if axes is None:
        return tuple(range(rank))
    given = [axes] if isinstance(axes, (int, np.integer)) else list(axes)
    for axis in given:
        if isinstance(axis, bool) or not isinstance(axis, (int, np.integer)) or not -rank <= axis < rank:
            raise ArgumentError(
                f"{op}: axis {axis} is out of range for shape {sizes.show(x.shape)}; {-rank} to {rank - 1}"
            )
    found = sorted({int(a) % rank for a in given})
    if len(found) != len(given):
        raise ArgumentError(f"{op}: axes {tuple(given)} name one axis twice")
    return tuple(found)


def _value(op: str, x: Operand, known: Sequence[str]) -> Value:
    x = value_of(pipeline_of(op, x), x, op, "x")
    if dtype_of(x) not in known:
        raise DTypeMismatch(f"{op}: x is {dtype_of(x)}; {', '.join(known)} work")
    return x


def reduce(
    op: str,
    x: Operand,
    axes: Axes = None,
    keepdims: bool = False,
    *,
    x_scale: Operand = None,
    x_zero_point: Operand = None,
    scale: Operand = None,
    zero_point: Operand = None,
    dtype: DTypeLike | None = None,
    to: QuantParams | None = None,
) -> Value:
    """A reduction over axes.

    op        sum mean max min prod l1 l2 sum_square log_sum log_sum_exp
    x         f32 f16 bf16, and but for l2, log_sum and log_sum_exp integers; max and min: bool too
    axes      one or several, from the end where negative; None: all
    keepdims  keep the axes with size 1

    float32 is summed in a fixed order (sixteen lanes and a tree), so the bits depend on nothing but the data. Integers
    wrap modulo 2**bits; their mean is rounded toward zero.

    With `scale` or `to`, x is codes (u8 s8 u16 s16) with one scale, and so is the result of sum, mean, max or min. The
    codes are added up exactly, and the sum is scaled once:
    x_scale, x_zero_point     left out: the quantization that x carries
    scale, zero_point, dtype  of the result (u8); or to=QuantParams
    """
    if scale is not None or to is not None:
        return _of_codes(op, x, axes, keepdims, (x_scale, x_zero_point), (scale, zero_point, dtype), to)
    if any(p is not None for p in (x_scale, x_zero_point, zero_point, dtype)):
        raise ArgumentError("reduce: scales and zero points of codes need scale= (of the result) or to=QuantParams")
    if op not in REDUCTIONS:
        raise ArgumentError(f"reduce: there is no {op!r}; there is {', '.join(REDUCTIONS)}")
    x = _value(f"reduce_{op}", x, REDUCTIONS[op])
    kernel = Reduce(op, dtype_of(x), len(x.shape), axes_of(f"reduce_{op}", x, axes), bool(keepdims))
    return only(x.pipeline.add(kernel, x=x))


def _of_codes(
    op: str,
    x: Operand,
    axes: Axes,
    keepdims: bool,
    source: tuple[Operand, Operand],
    result: tuple[Operand, Operand, DTypeLike | None],
    to: QuantParams | None,
) -> Value:
    if op not in CODED:
        raise ArgumentError(f"reduce: {op!r} of codes; {', '.join(CODED)} work (dequantize for others)")
    name = f"reduce_{op}"
    x = _value(name, x, CODES)
    codes = dtype_of(x)
    if to is not None:
        if any(p is not None for p in result):
            raise ArgumentError(f"{name}: give scale, zero_point and dtype, or to=QuantParams, not both")
        result = to.scale, to.zero_point, to.dtype
    x_scale, x_zero = source
    if x_scale is None:
        if x.quant is None:
            raise ArgumentError(f"{name}: x_scale is missing, and {x!r} carries no quantization")
        x_scale, x_zero = x.quant.scale, x.quant.zero_point if x_zero is None else x_zero
    out = dtypes.get(result[2] or "u8").name
    kernel = ReduceCodes(op, codes, out, len(x.shape), axes_of(name, x, axes), bool(keepdims))
    operands: dict[str, Any] = {}
    for slot, given in (("x_scale", x_scale), ("scale", result[0])):
        operands[slot] = given if isinstance(given, Value) else reals(given, f"{name}: {slot}")
    for slot, given, kind in (("x_zero_point", x_zero, codes), ("zero_point", result[1], out)):
        given = 0 if given is None else given
        operands[slot] = given if isinstance(given, Value) else zero_points(given, kind, f"{name}: {slot}")
    for slot, given in operands.items():
        if any(n != 1 for n in given.shape):
            raise ShapeMismatch(f"{name}: {slot} has shape {sizes.show(given.shape)}; one for the whole tensor works")
        operands[slot] = (
            given if not given.shape else reshape(given, ()) if isinstance(given, Value) else given.reshape(())
        )
    y = only(x.pipeline.add(kernel, x=x, **operands))
    if not any(isinstance(operands[slot], Value) for slot in ("scale", "zero_point")):
        y.quant = to or QuantParams(operands["scale"], operands["zero_point"], out)
    return y


def argmax(x: Operand, axis: int = -1, keepdims: bool = False, dtype: DTypeLike = "s64", last: bool = False) -> Value:
    """Index of the first largest element along an axis; NaN is the largest.

    x        f32, f16, bf16, f64 or integer, with an element along the axis at least
    axis     from the end where negative
    dtype    s64 or s32
    last     of several equal ones take the last
    """
    return _arg("argmax", x, axis, keepdims, dtype, last)


def argmin(x: Operand, axis: int = -1, keepdims: bool = False, dtype: DTypeLike = "s64", last: bool = False) -> Value:
    """Index of the first smallest element along an axis; NaN is the smallest. As argmax otherwise."""
    return _arg("argmin", x, axis, keepdims, dtype, last)


def _arg(op: str, x: Operand, axis: int, keepdims: bool, dtype: DTypeLike, last: bool) -> Value:
    x = value_of(pipeline_of(op, x), x, op, "x")
    rank = len(x.shape)
    if not -rank <= axis < rank:
        raise ArgumentError(f"{op}: axis {axis} is out of range for shape {sizes.show(x.shape)}; {-rank} to {rank - 1}")
    kernel = argmax_step.Argmax(
        dtype_of(x), dtypes.get(dtype).name, rank, axis % rank, bool(keepdims), op == "argmin", bool(last)
    )
    return only(x.pipeline.add(kernel, x=x))


def softmax(x: Operand, axis: Axes = -1) -> Value:
    """exp(x - max) / sum(exp(x - max)) along an axis, or over several; x is f32, f16 or bf16."""
    x = _value("softmax", x, REAL)
    return only(x.pipeline.add(Softmax(dtype_of(x), len(x.shape), axes_of("softmax", x, axis)), x=x))


def log_softmax(x: Operand, axis: Axes = -1) -> Value:
    """The logarithm of softmax: x - max - ln(sum(exp(x - max))); x is f32, f16 or bf16."""
    x = _value("log_softmax", x, REAL)
    return only(x.pipeline.add(Softmax(dtype_of(x), len(x.shape), axes_of("log_softmax", x, axis), True), x=x))


def layer_norm(
    x: Operand,
    scale: Operand = None,
    bias: Operand = None,
    axis: int = -1,
    epsilon: Operand = 1e-5,
    statistics: bool = False,
) -> Any:
    """(x - mean) / sqrt(variance + epsilon) * scale + bias over the axes from `axis` on.

    x            f32, f16 or bf16
    scale, bias  of x's type, of the shape of those axes; left out: 1 and 0
    statistics   return (y, mean, 1 / sqrt(variance + epsilon)), f32, the axes kept with size 1
    """
    return _normalize("layer_norm", x, scale, bias, axis, epsilon, True, statistics)


def rms_norm(x: Operand, scale: Operand = None, bias: Operand = None, axis: int = -1, epsilon: Operand = 1e-5) -> Value:
    """x / sqrt(mean of x**2 + epsilon) * scale + bias over the axes from `axis` on. As layer_norm otherwise."""
    return only(_normalize("rms_norm", x, scale, bias, axis, epsilon, False, False))


def _normalize(
    op: str, x: Operand, scale: Operand, bias: Operand, axis: int, epsilon: Operand, centre: bool, statistics: bool
) -> Any:
    x = _value(op, x, REAL)
    first = axes_of(op, x, axis)[0]
    axes, pipe, dtype = tuple(range(first, len(x.shape))), x.pipeline, dtype_of(x)
    operands: dict[str, Any] = {}
    for slot, given in (("scale", scale), ("bias", bias)):
        if given is not None:
            operands[slot] = _along(op, slot, value_of(pipe, given, op, slot), x, axes)
    if "bias" in operands and "scale" not in operands:
        shape = tuple(operands["bias"].shape)
        operands["scale"] = pipe.constant(np.ones([int(n) for n in shape], dtypes.get(dtype).numpy))
    kernel = Normalize(dtype, len(x.shape), axes, centre, "scale" in operands, "bias" in operands, statistics)
    epsilon = epsilon if isinstance(epsilon, Value) else one(reals(epsilon, f"{op}: epsilon"), f"{op}: epsilon")
    return pipe.add(kernel, x=x, epsilon=epsilon, **operands)


def _along(op: str, slot: str, given: Value, x: Value, axes: Sequence[int]) -> Value:
    wanted = tuple(x.shape[a] for a in axes)
    if len(given.shape) != len(wanted):
        raise ShapeMismatch(
            f"{op}: {slot} has shape {sizes.show(given.shape)}; that of the normalized axes, {sizes.show(wanted)}, works"
        )
    return given


def batch_norm(
    x: Operand, scale: Operand, bias: Operand, mean: Operand, variance: Operand, axis: int = 1, epsilon: float = 1e-5
) -> Value:
    """(x - mean) / sqrt(variance + epsilon) * scale + bias with constant statistics, folded to x * factor + term.

        factor = scale / sqrt(variance + epsilon);  term = bias - mean * factor        in float32

    x                            f32, f16 or bf16, with channels along `axis`
    scale, bias, mean, variance  constants (C,)
    """
    x = _value("batch_norm", x, REAL)
    along = axes_of("batch_norm", x, axis)[0]
    given = {"scale": scale, "bias": bias, "mean": mean, "variance": variance}
    parts = {}
    for name, part in given.items():
        part = part.data if isinstance(part, Value) and part.kind == "constant" else part
        if isinstance(part, Value):
            raise ArgumentError(f"batch_norm: {name} is known only at run time; constants are folded")
        parts[name] = reals(part, f"batch_norm: {name}")
        if parts[name].ndim != 1:
            raise ShapeMismatch(f"batch_norm: {name} has shape {parts[name].shape}; one for each channel, (C,), works")
    factor = parts["scale"] / np.sqrt(parts["variance"] + np.float32(epsilon))
    term = parts["bias"] - parts["mean"] * factor
    shape = [-1 if d == along else 1 for d in range(len(x.shape))]
    kind = dtypes.get(dtype_of(x)).numpy
    return tabled("multiply_add", x, factor.reshape(shape).astype(kind), term.reshape(shape).astype(kind))


def dynamic_quantize(
    x: Operand,
    dtype: DTypeLike = "u8",
    symmetric: bool = False,
    granularity: str = "tensor",
    group: int | None = None,
) -> tuple[Value, Value, Value]:
    """Codes with a scale that the data itself gives: (codes, scale, zero_point).

    x            f32, f16 or bf16
    dtype        u8 or s8
    symmetric    zero point 0 (128 of u8) and the largest magnitude at code 127 of it; else all codes cover min .. max
    granularity  "tensor": scale and zero point of shape (). "row": one for each row along the last axis, (.., 1).
                 "group": one for each `group` elements of a row, (.., groups); dequantize takes them with block=group

    By row and by group the data is read once.
    """
    x = _value("dynamic_quantize", x, REAL)
    pipe, source, rank = x.pipeline, dtype_of(x), len(x.shape)
    codes = dtypes.get(dtype).name
    if granularity not in ("tensor", "row", "group") or (group is None) == (granularity == "group"):
        raise ArgumentError(
            f"dynamic_quantize: granularity {granularity!r} with group {group}; 'tensor', 'row', or 'group' with group="
        )
    if granularity == "tensor":
        if rank == 0:
            raise ShapeMismatch("dynamic_quantize: x is a number; an array of rank 1 at least works")
        lo, hi = pipe.add(Extremes(source, rank), x=x)
        if rank > 1:  # both ends of each, so that one kernel does
            rows = Extremes("f32", rank - 1, rank - 1)
            lo, hi = pipe.add(rows, x=lo)[0], pipe.add(rows, x=hi)[1]
        scale, zero_point = pipe.add(Parameters(codes, symmetric), lo=lo, hi=hi)
        return quantize(x, scale, zero_point, codes), scale, zero_point
    if rank == 0 or (group is not None and not 1 <= group < 2**31):
        raise ArgumentError(f"dynamic_quantize: group {group} of shape {sizes.show(x.shape)}; 1 to 2**31 - 1 works")
    kernel = DynamicQuantize(source, codes, rank, bool(symmetric), group or 0)
    y, scale, zero_point = pipe.add(kernel, x=x)
    return y, scale, zero_point
