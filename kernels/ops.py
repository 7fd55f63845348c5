"""The ops: functions that take pipeline values, add a kernel and its edges, and return values.

Every argument may be a constant (a number, an array, a Buffer), a run-time argument or another value. What is known
when the op is called is checked then; errors say what was asked, what was found and what would work.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from ..primitives import dtypes, sizes
from ..primitives.buffer import Buffer
from ..primitives.dtypes import DTypeLike
from ..primitives.errors import (
    ArgumentError,
    DTypeMismatch,
    PipelineError,
    QuantizationError,
    ShapeMismatch,
    TileworkError,
    Unsupported,
)
from ..primitives.pipeline import Pipeline, Value
from ..primitives.quantization import QuantParams
from ..primitives.sizes import Shape
from . import argmax as argmax_step
from . import elementwise
from .gemm import PARTNERS, Gemm
from .indexing import Index, broadcast, parameter
from .lookup import ENTRIES, Lookup
from .map import Map
from .quantize import REAL, Dequantize, Quantize
from .requantize import Requantize
from .rounding import quantize_multiplier as quantize_multiplier

__all__ = ["add", "argmax", "clip", "dequantize", "gemm", "lookup", "map", "quantize", "relu", "requantize"]

Operand = Any  # a pipeline value, or what becomes a constant: a number, an array, a Buffer
Axis = int | tuple[int, int] | None
Block = int | tuple[int, int] | None


def gemm(a: Operand, b: Operand, a_zero_point: Operand = None, b_zero_point: Operand = None) -> Value:
    """Matrix product: acc[.., m, n] = sum over k of (a - a_zero_point)[.., m, k] * (b - b_zero_point)[.., k, n].

    a             u8, s8, s16, f32, f16 or bf16 (.., M, K)
    b             u8 or s8 where a is one of them, s16 where a is, else f32, f16 or bf16 (.., K, N); leading sizes are
                  equal or 1
    a_zero_point  one, (M,) or (.., M, 1), of a's type; left out: that of the quantization a carries, or 0
    b_zero_point  one, (N,) or (.., 1, N), of b's type; left out: likewise
    returns       s32 (exact modulo 2**32) or f32 (one chain of fused multiply-adds over ascending k; bf16 times bf16 on
                  a machine that multiplies pairs of them within reference.gemm.bf16_bound) (.., M, N);
                  it carries scale_a * scale_b where both operands carry a quantization that is constant along k
    """
    pipe = _pipeline("gemm", a, b)
    a, b = _data(pipe, a, "gemm", "a"), _data(pipe, b, "gemm", "b")
    a_dtype, b_dtype = _dtype(a), _dtype(b)
    if b_dtype not in PARTNERS.get(a_dtype, ()):
        raise DTypeMismatch(
            f"gemm: a is {a_dtype} and b is {b_dtype}; u8 or s8 times u8 or s8, s16 times s16, or f32, f16 or bf16 "
            f"times f32, f16 or bf16 work"
        )
    for name, operand in (("a", a), ("b", b)):
        if len(operand.shape) < 2:
            raise ShapeMismatch(
                f"gemm: {name} has shape {sizes.show(operand.shape)}; a matrix has two dimensions at least"
            )
    k, k_of_b = a.shape[-1], b.shape[-2]
    if isinstance(k, int) and isinstance(k_of_b, int) and k != k_of_b:
        raise ShapeMismatch(
            f"gemm: a is {sizes.show(a.shape)} but b is {sizes.show(b.shape)}: a's columns must equal b's rows"
        )
    batch, (a_lead, b_lead) = broadcast([a.shape[:-2], b.shape[:-2]], "gemm's leading dimensions")
    kernel: dict[str, Any] = {
        "a_dtype": a_dtype,
        "b_dtype": b_dtype,
        "batch": len(batch),
        "a_batch": tuple(at and at[0] for at in a_lead),
        "b_batch": tuple(at and at[0] for at in b_lead),
    }
    operands = {"a": a, "b": b}
    out = (*batch, a.shape[-2], b.shape[-1])
    for slot, given, operand, along in (("a_zero_point", a_zero_point, a, -2), ("b_zero_point", b_zero_point, b, -1)):
        if given is None:
            given = _zero_point_of(operand, along, slot)
        if not isinstance(given, Value):
            given = _codes(given, _dtype(operand), f"gemm: {slot}") if a_dtype in ("u8", "s8") else np.asarray(given)
            if not given.any():
                continue
        if a_dtype not in ("u8", "s8"):
            raise DTypeMismatch(f"gemm of {a_dtype} has no zero points; leave {slot} out")
        kernel[slot] = _gemm_zero_point(given.shape, out, along, f"gemm: {slot}")
        operands[slot] = given
    acc = pipe.add(Gemm(**kernel), **operands)
    if a_dtype in ("u8", "s8", "s16"):
        acc.quant = _product(a.quant, b.quant, a.shape, b.shape, len(out))
    return _one(acc)


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
    pipe = _pipeline("quantize", x, scale, zero_point, seed)
    x = _data(pipe, x, "quantize", "x")
    if _dtype(x) not in REAL:
        raise DTypeMismatch(f"quantize: x is {_dtype(x)}; {', '.join(REAL)} work")
    if to is not None:
        if scale is not None or dtype is not None or axis is not None or block is not None:
            raise ArgumentError("quantize: give scale, dtype, axis and block, or to=QuantParams, not both")
        scale, zero_point, dtype, axis, block = to.scale, to.zero_point, to.dtype, to.axis, to.block
    if scale is None:
        raise ArgumentError("quantize: scale is missing; give scale= (a number, an array or a value) or to=QuantParams")
    codes = dtypes.get(dtype or "u8")
    quant, scale, zero_point, scale_at, zero_at = _affine(
        "quantize", x.shape, scale, zero_point, codes.name, axis, block
    )
    kernel = Quantize(_dtype(x), codes.name, len(x.shape), scale_at, zero_at, rounding)
    operands: dict[str, Any] = {"x": x, "scale": scale, "zero_point": zero_point}
    if rounding == "stochastic":
        operands["seed"] = seed if isinstance(seed, Value) else _integer(seed, "u64", "quantize: seed")
    y = pipe.add(kernel, **operands)
    y.quant = to or quant
    return _one(y)


def dequantize(
    q: Operand, scale: Operand = None, zero_point: Operand = None, axis: Axis = None, block: Block = None
) -> Value:
    """Real numbers of codes: float32(q - zero_point) * scale.

    q            u8 s8 u16 s16 s32, any shape
    scale        f32, finite and positive, laid out as in `quantize`; left out: the quantization that q carries
    zero_point   one, or shaped as scale, of q's type; left out: that quantization's, or 0 where scale is given
    axis, block  as in QuantParams
    """
    pipe = _pipeline("dequantize", q, scale, zero_point)
    q = _data(pipe, q, "dequantize", "q")
    if dtypes.get(_dtype(q)).packed:
        raise Unsupported(f"dequantize: q is packed {_dtype(q)}; unpack it to one code an element (u8 or s8) first")
    source = _dtype(q)
    if scale is None:
        carried = getattr(q, "quant", None)
        if carried is None:
            raise ArgumentError(f"dequantize: scale is missing, and {q!r} carries no quantization; give scale=")
        if axis is not None or block is not None:
            raise ArgumentError("dequantize: axis and block belong to scale=; the value's own quantization has its own")
        scale, axis, block = carried.scale, carried.axis, carried.block
        zero_point = carried.zero_point if zero_point is None else zero_point
    _, scale, zero_point, scale_at, zero_at = _affine(
        "dequantize", q.shape, scale, 0 if zero_point is None else zero_point, source, axis, block
    )
    kernel = Dequantize(source, len(q.shape), scale_at, zero_at)
    return _one(pipe.add(kernel, x=q, scale=scale, zero_point=zero_point))


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
    pipe = _pipeline("requantize", acc, multiplier, zero_point, shift, lo, hi)
    acc = _data(pipe, acc, "requantize", "acc")
    if _dtype(acc) != "s32":
        raise DTypeMismatch(f"requantize: acc is {_dtype(acc)}; s32 works")
    zero_axis: Axis = axis
    if to is not None:
        if multiplier is not None or zero_point is not None or dtype is not None or axis is not None:
            raise ArgumentError("requantize: give multiplier, zero_point, dtype and axis, or to=QuantParams, not both")
        multiplier, axis = _ratio(acc, to)
        zero_point, zero_axis, dtype = to.zero_point, to.axis, to.dtype
    elif multiplier is None:
        raise ArgumentError(
            "requantize: multiplier is missing; give multiplier= (a number, an array or a value) or to="
        )
    codes = dtypes.get(dtype or "s8")
    zero_point = 0 if zero_point is None else zero_point
    operands: dict[str, Any] = {"acc": acc}
    if arithmetic == "fixed":
        multiplier, shift = _fixed(multiplier, shift)
        operands["shift"] = shift
    elif shift is not None:
        raise ArgumentError(
            "requantize: shift belongs to arithmetic='fixed'; with 'float' give the ratio as multiplier"
        )
    elif not isinstance(multiplier, Value):
        multiplier = _real(multiplier, "requantize: multiplier")
    if not isinstance(zero_point, Value):
        zero_point = _codes(zero_point, codes.name, "requantize: zero_point")
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
        bounds[name] = given if isinstance(given, Value) else _integer(given, "s32", f"requantize: {name}")
    _check_order("requantize", bounds["lo"], bounds["hi"])
    y = pipe.add(kernel, **operands, multiplier=multiplier, zero_point=zero_point, **bounds)
    y.quant = to
    return _one(y)


def map(fn: Callable[..., Any], *values: Operand, dtype: DTypeLike = "f32", **scalars: Operand) -> Value:
    """A user's scalar function over arrays, element by element.

    fn       plain Python over numbers; `np.float32`, `np.rint`, `math` and the like may be used. It is called as
             fn(*values, **scalars) with one element of each
    values   arrays of f32, bool or an integer type up to 32 bits (u32 excepted), broadcast against each other
    scalars  fn's keyword arguments: numbers, arrays that broadcast likewise, arguments or values; constants become
             f32 or s32
    dtype    of the result: f32, bool, or an integer type, to which a float is converted by dropping its fraction,
             saturating; NaN gives 0

    Raises CaptureError, with function, line and name, for what cannot be compiled.
    """
    pipe = _pipeline("map", *values, *scalars.values())
    if not callable(fn):
        raise ArgumentError(f"map: {fn!r} is not a function")
    arrays = [_data(pipe, v, "map", f"value {n}") for n, v in enumerate(values)]
    named = {name: _data(pipe, _narrowed(v, f"map: {name}"), "map", name) for name, v in scalars.items()}
    order = _keyword_order(fn, len(arrays), named)
    operands = [*arrays, *(named[name] for name in order)]
    shape, indices = broadcast([o.shape for o in operands], "map")
    kernel = Map(
        fn,
        tuple(_dtype(o) for o in operands),
        dtypes.get(dtype).name,
        len(shape),
        tuple(indices),
        tuple(order),
    )
    given: dict[str, Any] = dict(zip(kernel.slots, operands, strict=True))
    return _one(pipe.add(kernel, **given))


def add(
    a: Operand,
    b: Operand,
    *,
    a_scale: Operand = None,
    a_zero_point: Operand = None,
    b_scale: Operand = None,
    b_zero_point: Operand = None,
    scale: Operand = None,
    zero_point: Operand = None,
    dtype: DTypeLike | None = None,
    to: QuantParams | None = None,
) -> Value:
    """Sum, element by element, operands broadcast: of numbers, or of codes with their own scales.

    a, b                   both f32, s32 or s64: a + b, integers modulo 2**bits. With `scale` or `to`, u8 s8 u16 s16:
                           clip(rint(real / scale) + zero_point), where
                           real = (a - a_zero_point) * a_scale + (b - b_zero_point) * b_scale
    a_scale, a_zero_point  one each; left out: the quantization that a carries. b likewise
    scale, zero_point      of the result, one each; dtype: its type (u8)
    to                     QuantParams per tensor instead of the three
    """
    given = (a_scale, a_zero_point, b_scale, b_zero_point, scale, zero_point)
    pipe = _pipeline("add", a, b, *given)
    if scale is None and to is None:
        if any(g is not None for g in given) or dtype is not None:
            raise ArgumentError("add: scales and zero points of codes need scale= (of the result) or to=QuantParams")
        return _add_numbers(pipe, a, b)
    if to is not None:
        if scale is not None or zero_point is not None or dtype is not None:
            raise ArgumentError("add: give scale, zero_point and dtype, or to=QuantParams, not both")
        if to.axis is not None:
            raise Unsupported(f"add: to= has one scale for each index of axis {to.axis}; one for the tensor works")
        scale, zero_point, dtype = to.scale, to.zero_point, to.dtype
    a, b = _data(pipe, a, "add", "a"), _data(pipe, b, "add", "b")
    shape, (a_at, b_at) = broadcast([a.shape, b.shape], "add")
    codes = dtypes.get(dtype or "u8")
    operands: dict[str, Any] = {"a": a, "b": b}
    for prefix, operand, s, z in (
        ("a_", a, a_scale, a_zero_point),
        ("b_", b, b_scale, b_zero_point),
        ("", None, scale, zero_point),
    ):
        source = codes.name if operand is None else _dtype(operand)
        carried = getattr(operand, "quant", None)
        if s is None:
            if carried is None or carried.axis is not None:
                raise ArgumentError(
                    f"add: {prefix}scale is missing, and {operand!r} carries no quantization per tensor; "
                    f"give {prefix}scale="
                )
            s, z = carried.scale, carried.zero_point if z is None else z
        z = 0 if z is None else z
        operands[f"{prefix}scale"] = s if isinstance(s, Value) else _real(s, f"add: {prefix}scale").reshape(())
        operands[f"{prefix}zero_point"] = (
            z if isinstance(z, Value) else _codes(z, source, f"add: {prefix}zero_point").reshape(())
        )
    kernel = elementwise.AddQuantized(_dtype(a), _dtype(b), codes.name, len(shape), a_at, b_at)
    y = pipe.add(kernel, **operands)
    s, z = operands["scale"], operands["zero_point"]
    if not isinstance(s, Value) and not isinstance(z, Value):
        y.quant = to or QuantParams(s, z, codes)
    return _one(y)


def _add_numbers(pipe: Pipeline, a: Operand, b: Operand) -> Value:
    known = next(x for x in (a, b) if isinstance(x, Value))
    a, b = (_data(pipe, x, "add", name, number=_dtype(known)) for name, x in (("a", a), ("b", b)))
    if _dtype(a) != _dtype(b):
        raise DTypeMismatch(f"add: a is {_dtype(a)} and b is {_dtype(b)}; two of one type (f32, s32 or s64) work")
    if _dtype(a) not in elementwise.SUMS:
        raise DTypeMismatch(
            f"add: a and b are {_dtype(a)}, whose sum may not fit; f32, s32 and s64 work, and codes with to=QuantParams"
        )
    shape, (a_at, b_at) = broadcast([a.shape, b.shape], "add")
    y = pipe.add(elementwise.Add(_dtype(a), len(shape), a_at, b_at), a=a, b=b)
    quants = {x.quant for x in (a, b) if isinstance(x, Value) and x.quant is not None}
    if len(quants) == 1 and len(known.shape) == len(shape):
        y.quant = quants.pop()  # a bias is in units of the accumulator
    return _one(y)


def relu(x: Operand, zero_point: Operand = None) -> Value:
    """What is below zero becomes zero: max(x, zero_point).

    x           f32 or integer, any shape; a float NaN stays
    zero_point  the code of real 0, of x's type; left out: that of the quantization x carries, or 0
    """
    pipe = _pipeline("relu", x, zero_point)
    x = _data(pipe, x, "relu", "x")
    axis = None
    if zero_point is None and x.quant is not None:
        if x.quant.block is not None and x.quant.zero_point.ndim:
            raise Unsupported("relu: x has one zero point for each block; one for the tensor or for each channel works")
        zero_point, axis = x.quant.zero_point, x.quant.axis
    zero_point = 0 if zero_point is None else zero_point
    if not isinstance(zero_point, Value):
        zero_point = _like(zero_point, _dtype(x), "relu: zero_point")
    at = parameter(zero_point.shape, x.shape, axis, None, "relu: zero_point")
    y = pipe.add(elementwise.Relu(_dtype(x), len(x.shape), at), x=x, zero_point=zero_point)
    y.quant = x.quant
    return _one(y)


def clip(x: Operand, lo: Operand = None, hi: Operand = None) -> Value:
    """Bound every element to lo .. hi; a float NaN stays.

    x       f32 or integer, any shape
    lo, hi  of x's type: one, or an array that broadcasts to x; left out: no bound
    """
    pipe = _pipeline("clip", x, lo, hi)
    x = _data(pipe, x, "clip", "x")
    dtype = dtypes.get(_dtype(x))
    open_ends = (-np.inf, np.inf) if dtype.is_float else (dtype.min, dtype.max)
    bounds: dict[str, Any] = {}
    places = []
    for name, given, limit in (("lo", lo, open_ends[0]), ("hi", hi, open_ends[1])):
        given = limit if given is None else given
        bounds[name] = given if isinstance(given, Value) else _like(given, dtype.name, f"clip: {name}")
        places.append(parameter(bounds[name].shape, x.shape, None, None, f"clip: {name}"))
    _check_order("clip", bounds["lo"], bounds["hi"])
    y = pipe.add(elementwise.Clip(dtype.name, len(x.shape), *places), x=x, **bounds)
    y.quant = x.quant
    return _one(y)


def lookup(x: Operand, table: Operand) -> Value:
    """Codes replaced by table entries: table[x & 255].

    x       u8 or s8, any shape
    table   u8 or s8 (256,), whose type the result has; where x is s8, entries 128 to 255 are those of -128 to -1

    After a requantize it is a stage of the GEMM's epilogue.
    """
    pipe = _pipeline("lookup", x, table)
    x, table = _data(pipe, x, "lookup", "x"), _data(pipe, table, "lookup", "table")
    if tuple(table.shape) != (ENTRIES,):
        raise ShapeMismatch(f"lookup: table has shape {sizes.show(table.shape)}; ({ENTRIES},) works")
    kernel = Lookup(_dtype(x), _dtype(table), len(x.shape))
    return _one(pipe.add(kernel, x=x, table=table))


def argmax(x: Operand, axis: int = -1, keepdims: bool = False, dtype: DTypeLike = "s64") -> Value:
    """Index of the first largest element along an axis; NaN is the largest.

    x        f32 or integer, with an element along the axis at least
    axis     from the end where negative
    dtype    s64 or s32
    """
    pipe = _pipeline("argmax", x)
    x = _data(pipe, x, "argmax", "x")
    rank = len(x.shape)
    if not -rank <= axis < rank:
        raise ArgumentError(
            f"argmax: axis {axis} is out of range for shape {sizes.show(x.shape)}; {-rank} to {rank - 1}"
        )
    kernel = argmax_step.Argmax(_dtype(x), dtypes.get(dtype).name, rank, axis % rank, bool(keepdims))
    return _one(pipe.add(kernel, x=x))


# What is given -------------------------------------------------------------------------------------------------------


def _pipeline(op: str, *given: Any) -> Pipeline:
    for x in given:
        if isinstance(x, Value):
            return x.pipeline
    raise PipelineError(
        f"{op}: none of the operands is a value of a pipeline; use pipe.input(...) or pipe.constant(...), "
        f"or tilework.eager.{op}, which takes arrays"
    )


def _one(written: Any) -> Value:
    assert isinstance(written, Value)
    return written


def _dtype(x: Any) -> str:
    return str(x.dtype.name) if x.dtype is not None else "a function"


def _data(pipe: Pipeline, given: Any, op: str, name: str, number: str | None = None) -> Value:
    """An operand as a value; a constant is made of anything else. Python numbers take the type `number`."""
    if isinstance(given, Value):
        return given
    if isinstance(given, Buffer):
        return pipe.constant(given)
    if given is None or callable(given):
        raise ArgumentError(f"{op}: {name} is {given!r}; a value, an array or a number is asked for")
    if number is not None and isinstance(given, (bool, int, float)):
        return pipe.constant(_like(given, number, f"{op}: {name}"))
    if isinstance(given, (bool, int, float)):
        raise ArgumentError(
            f"{op}: {name} is the number {given!r}, whose type is not known; give an array, as np.float32(...)"
        )
    array = np.asarray(given)
    _native(array, f"{op}: {name}")
    return pipe.constant(array)


def _narrowed(given: Any, what: str) -> Any:
    """A constant argument of a user's function in a type that functions take: reals f32, integers s32, bool itself."""
    if isinstance(given, (Value, Buffer)) or given is None or callable(given):
        return given
    array = np.asarray(given)
    if array.dtype == bool:
        return array
    if array.dtype.kind in "iu":
        return _integer(array, "s32", what)
    return _real(array, what)


def _native(array: np.ndarray[Any, Any], what: str) -> None:
    if array.dtype.kind in "OUSVMmc" and array.dtype.names is None and array.dtype.kind != "V":
        raise DTypeMismatch(f"{what} is an array of {array.dtype}; integers and real numbers work")
    if not array.dtype.isnative:
        raise DTypeMismatch(
            f"{what} is {array.dtype}, in the other byte order; .astype({array.dtype.newbyteorder('=').name!r}) works"
        )


def _real(given: Any, what: str) -> np.ndarray[Any, Any]:
    """Constant scales or multipliers as float32; types of fewer bits are widened exactly."""
    array = np.asarray(given)
    _native(array, what)
    if array.dtype.kind == "b":
        raise DTypeMismatch(f"{what} is bool; a real number works")
    with np.errstate(all="ignore"):
        return array.astype(np.float32)


def _integer(given: Any, dtype: str, what: str) -> np.ndarray[Any, Any]:
    """A constant of an integer type, exactly."""
    array = np.asarray(given)
    _native(array, what)
    known = dtypes.get(dtype)
    if array.dtype.kind == "f" and np.isfinite(array).all() and (array == np.rint(array)).all():
        array = array.astype(np.int64) if (np.abs(array) < 2.0**62).all() else array
    if array.dtype.kind not in "iu":
        if array.dtype.kind == "O" or (array.dtype.kind == "f" and array.size):
            raise ArgumentError(f"{what} is {given!r}; an integer of {dtype} ({known.min} to {known.max}) works")
        raise DTypeMismatch(f"{what} is {array.dtype}; an integer of {dtype} ({known.min} to {known.max}) works")
    if array.size and not (int(array.min()) >= known.min and int(array.max()) <= known.max):
        bad = array[(array < known.min) | (array > known.max)].flat[0]
        raise ArgumentError(f"{what} {bad} is outside {dtype}, which is {known.min} to {known.max}")
    return array.astype(known.code)


def _codes(given: Any, dtype: str, what: str) -> np.ndarray[Any, Any]:
    """Constant zero points, in the range of the codes."""
    try:
        return _integer(given, dtype, what)
    except DTypeMismatch:
        raise
    except ArgumentError as error:
        raise QuantizationError(str(error)) from None


def _like(given: Any, dtype: str, what: str) -> np.ndarray[Any, Any]:
    """A constant of the type of the data that it meets."""
    return _real(given, what) if dtype == "f32" else _integer(given, dtype, what)


def _check_order(op: str, lo: Any, hi: Any) -> None:
    if not isinstance(lo, Value) and not isinstance(hi, Value) and not np.all(np.less_equal(lo, hi)):
        raise ArgumentError(f"{op}: lo {lo} is above hi {hi}; nothing lies between them")


# Quantizations -------------------------------------------------------------------------------------------------------


def _affine(
    op: str, data: Shape, scale: Any, zero_point: Any, codes: str, axis: Axis, block: Block
) -> tuple[QuantParams | None, Any, Any, Index, Index]:
    """Scales and zero points made ready: the quantization where both are constants, the operands, and their layouts."""
    quant = None
    if not isinstance(scale, Value):
        scale = np.asarray(scale)
        _native(scale, f"{op}: scale")
    if not isinstance(zero_point, Value):
        zero_point = _codes(zero_point, codes, f"{op}: zero_point")
    if not isinstance(scale, Value):
        if not isinstance(zero_point, Value):
            quant = _quant(scale, zero_point, codes, axis, block, data, op)
        scale = _real(scale, f"{op}: scale")
    scale_at = parameter(scale.shape, data, axis, block, f"{op}: scale")
    zero_at = parameter(zero_point.shape, data, axis, block, f"{op}: zero_point")
    return quant, scale, zero_point, scale_at, zero_at


def _quant(
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


def _gemm_zero_point(shape: Shape, out: Shape, along: int, what: str) -> Index:
    """Zero points of gemm over its result: one, one for each row (along -2) or column (along -1), or with batches."""
    rank = len(out)
    if all(n == 1 for n in shape) and len(shape) <= rank:
        return (None,) * len(shape)
    if len(shape) == 1:
        return ((rank + along, 1),)
    across = -1 if along == -2 else -2
    if len(shape) > rank or shape[across] != 1:
        axis = "a's rows" if along == -2 else "b's columns"
        raise ShapeMismatch(
            f"{what} has shape {sizes.show(shape)}; one, one for each of {axis}, or "
            f"{'(.., M, 1)' if along == -2 else '(.., 1, N)'} work"
        )
    lead = rank - len(shape)
    return tuple(None if n == 1 else (lead + d, 1) for d, n in enumerate(shape))


def _zero_point_of(operand: Value, along: int, slot: str) -> Any:
    """The zero point that an operand of gemm carries, shaped for its slot."""
    quant = operand.quant
    if quant is None or not quant.zero_point.any():
        return 0
    if quant.zero_point.ndim == 0 or quant.axis is None:
        return quant.zero_point.reshape(())
    if quant.block is None and _axis_of(quant, len(operand.shape)) == len(operand.shape) + along:
        return quant.zero_point
    raise Unsupported(
        f"gemm: {operand.name!r} carries zero points along axis {quant.axis}, block {quant.block}, which is no axis of "
        f"the result; give {slot}=, or dequantize and multiply f32"
    )


def _axis_of(quant: QuantParams, rank: int) -> int:
    assert isinstance(quant.axis, int)
    return quant.axis % rank


def _product(
    a: QuantParams | None, b: QuantParams | None, a_shape: Shape, b_shape: Shape, rank: int
) -> QuantParams | None:
    """scale_a * scale_b in float32, where it is constant along k and along all axes of the result but one."""
    if a is None or b is None or a.block is not None or b.block is not None:
        return None
    axis = None
    if a.axis is not None:
        if _axis_of(a, len(a_shape)) != len(a_shape) - 2 or b.axis is not None:
            return None
        axis = rank - 2
    if b.axis is not None:
        if _axis_of(b, len(b_shape)) != len(b_shape) - 1:
            return None
        axis = rank - 1
    with np.errstate(all="ignore"):
        scale = a.scale.astype(np.float32) * b.scale.astype(np.float32)
    if not ((scale > 0) & np.isfinite(scale)).all():
        return None
    return QuantParams(scale, 0, "s32", axis)


def _ratio(acc: Value, to: QuantParams) -> tuple[np.ndarray[Any, Any], int | None]:
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
    axes = {_axis_of(q, rank) for q in (acc.quant, to) if q.axis is not None}
    if len(axes) > 1:
        raise Unsupported(
            f"requantize: acc has scales along axis {acc.quant.axis}, to= along {to.axis}; one axis works"
        )
    with np.errstate(all="ignore"):
        return acc.quant.scale.astype(np.float32) / to.scale.astype(np.float32), axes.pop() if axes else None


def _fixed(multiplier: Any, shift: Any) -> tuple[Any, Any]:
    """A fixed-point multiplier and its shift; computed where a real constant is given alone."""
    if shift is not None:
        both = []
        for name, given in (("multiplier", multiplier), ("shift", shift)):
            both.append(given if isinstance(given, Value) else _integer(given, "s32", f"requantize: {name}"))
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


def _keyword_order(fn: Callable[..., Any], positional: int, named: dict[str, Any]) -> list[str]:
    """The keyword arguments in the order of the function's parameters, each of which must be there."""
    try:
        parameters = inspect.signature(fn).parameters
    except (TypeError, ValueError):
        raise ArgumentError(f"map: {fn!r} shows no parameters; write a plain Python function") from None
    names = list(parameters)
    name = getattr(fn, "__name__", repr(fn))
    for p in parameters.values():
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            raise ArgumentError(f"map: {name} takes *args or **kwargs; name its parameters")
    for given in named:
        if given not in names[positional:]:
            raise ArgumentError(
                f"map: {name} has no parameter {given!r} after {positional} values; it has {', '.join(names)}"
            )
    missing = [
        n
        for n in names
        if n not in named and names.index(n) >= positional and parameters[n].default is inspect.Parameter.empty
    ]
    if positional > len(names) or missing:
        raise ArgumentError(
            f"map: {name} takes {', '.join(names) or 'nothing'}; {positional} values were given"
            + (f", and {', '.join(missing)} is missing" if missing else "")
        )
    return [n for n in names[positional:] if n in named]
