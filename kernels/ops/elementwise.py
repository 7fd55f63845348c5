"""Steps that act element by element."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from ...primitives import dtypes, sizes
from ...primitives.dtypes import DTypeLike
from ...primitives.errors import (
    ArgumentError,
    DTypeMismatch,
    ShapeMismatch,
    Unsupported,
)
from ...primitives.pipeline import Pipeline, Value
from ...primitives.quantization import QuantParams
from .. import elementwise as steps
from ..indexing import broadcast, parameter
from ..lookup import ENTRIES, Lookup
from ..map import Map
from .given import (
    Operand,
    check_order,
    constant_like,
    dtype_of,
    narrowed,
    one,
    only,
    pipeline_of,
    reals,
    value_of,
    zero_points,
)
from .tabled import tabled


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
    pipe = pipeline_of("map", *values, *scalars.values())
    if not callable(fn):
        raise ArgumentError(f"map: {fn!r} is not a function")
    arrays = [value_of(pipe, v, "map", f"value {n}") for n, v in enumerate(values)]
    named = {name: value_of(pipe, narrowed(v, f"map: {name}"), "map", name) for name, v in scalars.items()}
    order = _keyword_order(fn, len(arrays), named)
    operands = [*arrays, *(named[name] for name in order)]
    shape, indices = broadcast([o.shape for o in operands], "map")
    kernel = Map(
        fn,
        tuple(dtype_of(o) for o in operands),
        dtypes.get(dtype).name,
        len(shape),
        tuple(indices),
        tuple(order),
    )
    given: dict[str, Any] = dict(zip(kernel.slots, operands, strict=True))
    return only(pipe.add(kernel, **given))


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

    a, b                   both f32, f64, s32 or s64: a + b, integers modulo 2**bits. With `scale` or `to`, u8 s8 u16 s16:
                           clip(rint(real / scale) + zero_point), where
                           real = (a - a_zero_point) * a_scale + (b - b_zero_point) * b_scale
    a_scale, a_zero_point  one each; left out: the quantization that a carries. b likewise
    scale, zero_point      of the result, one each; dtype: its type (u8)
    to                     QuantParams per tensor instead of the three
    """
    given = (a_scale, a_zero_point, b_scale, b_zero_point, scale, zero_point)
    pipe = pipeline_of("add", a, b, *given)
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
    a, b = value_of(pipe, a, "add", "a"), value_of(pipe, b, "add", "b")
    shape, (a_at, b_at) = broadcast([a.shape, b.shape], "add")
    codes = dtypes.get(dtype or "u8")
    operands: dict[str, Any] = {"a": a, "b": b}
    for prefix, operand, s, z in (
        ("a_", a, a_scale, a_zero_point),
        ("b_", b, b_scale, b_zero_point),
        ("", None, scale, zero_point),
    ):
        source = codes.name if operand is None else dtype_of(operand)
        carried = getattr(operand, "quant", None)
        if s is None:
            if carried is None or carried.axis is not None:
                raise ArgumentError(
                    f"add: {prefix}scale is missing, and {operand!r} carries no quantization per tensor; "
                    f"give {prefix}scale="
                )
            s, z = carried.scale, carried.zero_point if z is None else z
        z = 0 if z is None else z
        what = f"add: {prefix}scale"
        operands[f"{prefix}scale"] = s if isinstance(s, Value) else one(reals(s, what), what)
        what = f"add: {prefix}zero_point"
        operands[f"{prefix}zero_point"] = z if isinstance(z, Value) else one(zero_points(z, source, what), what)
    kernel = steps.AddQuantized(dtype_of(a), dtype_of(b), codes.name, len(shape), a_at, b_at)
    y = pipe.add(kernel, **operands)
    s, z = operands["scale"], operands["zero_point"]
    if not isinstance(s, Value) and not isinstance(z, Value):
        y.quant = to or QuantParams(s, z, codes)
    return only(y)


def _add_numbers(pipe: Pipeline, a: Operand, b: Operand) -> Value:
    known = next(x for x in (a, b) if isinstance(x, Value))
    a, b = (value_of(pipe, x, "add", name, number=dtype_of(known)) for name, x in (("a", a), ("b", b)))
    if dtype_of(a) != dtype_of(b):
        raise DTypeMismatch(f"add: a is {dtype_of(a)} and b is {dtype_of(b)}; two of one type (f32, s32 or s64) work")
    if dtype_of(a) == "f64":
        return tabled("add", a, b)
    if dtype_of(a) not in steps.SUMS:
        raise DTypeMismatch(
            f"add: a and b are {dtype_of(a)}, whose sum may not fit; f32, s32 and s64 work, and codes with to=QuantParams"
        )
    shape, (a_at, b_at) = broadcast([a.shape, b.shape], "add")
    y = pipe.add(steps.Add(dtype_of(a), len(shape), a_at, b_at), a=a, b=b)
    quants = {x.quant for x in (a, b) if isinstance(x, Value) and x.quant is not None}
    if len(quants) == 1 and len(known.shape) == len(shape):
        y.quant = quants.pop()  # a bias is in units of the accumulator
    return only(y)


def relu(x: Operand, zero_point: Operand = None) -> Value:
    """What is below zero becomes zero: max(x, zero_point).

    x           a float or integer, any shape; a float NaN stays
    zero_point  the code of real 0, of x's type; left out: that of the quantization x carries, or 0
    """
    pipe = pipeline_of("relu", x, zero_point)
    x = value_of(pipe, x, "relu", "x")
    axis = None
    if dtype_of(x) in ("f16", "bf16", "f64") and zero_point is None:
        return tabled("maximum", x, np.zeros((), x.dtype.numpy))  # type: ignore[union-attr]
    if zero_point is None and x.quant is not None:
        if x.quant.block is not None and x.quant.zero_point.ndim:
            raise Unsupported("relu: x has one zero point for each block; one for the tensor or for each channel works")
        zero_point, axis = x.quant.zero_point, x.quant.axis
    zero_point = 0 if zero_point is None else zero_point
    if not isinstance(zero_point, Value):
        zero_point = constant_like(zero_point, dtype_of(x), "relu: zero_point")
    at = parameter(zero_point.shape, x.shape, axis, None, "relu: zero_point")
    y = pipe.add(steps.Relu(dtype_of(x), len(x.shape), at), x=x, zero_point=zero_point)
    y.quant = x.quant
    return only(y)


def clip(x: Operand, lo: Operand = None, hi: Operand = None) -> Value:
    """Bound every element to lo .. hi; a float NaN stays.

    x       f32 or integer, any shape
    lo, hi  of x's type: one, or an array that broadcasts to x; left out: no bound
    """
    pipe = pipeline_of("clip", x, lo, hi)
    x = value_of(pipe, x, "clip", "x")
    dtype = dtypes.get(dtype_of(x))
    open_ends = (-np.inf, np.inf) if dtype.is_float else (dtype.min, dtype.max)
    bounds: dict[str, Any] = {}
    places = []
    for name, given, limit in (("lo", lo, open_ends[0]), ("hi", hi, open_ends[1])):
        given = limit if given is None else given
        bounds[name] = given if isinstance(given, Value) else constant_like(given, dtype.name, f"clip: {name}")
        places.append(parameter(bounds[name].shape, x.shape, None, None, f"clip: {name}"))
    check_order("clip", bounds["lo"], bounds["hi"])
    y = pipe.add(steps.Clip(dtype.name, len(x.shape), *places), x=x, **bounds)
    y.quant = x.quant
    return only(y)


def lookup(x: Operand, table: Operand) -> Value:
    """Codes replaced by table entries: table[x & 255].

    x       u8 or s8, any shape
    table   u8 or s8 (256,), whose type the result has; where x is s8, entries 128 to 255 are those of -128 to -1

    After a requantize it is a stage of the GEMM's epilogue.
    """
    pipe = pipeline_of("lookup", x, table)
    x, table = value_of(pipe, x, "lookup", "x"), value_of(pipe, table, "lookup", "table")
    if tuple(table.shape) != (ENTRIES,):
        raise ShapeMismatch(f"lookup: table has shape {sizes.show(table.shape)}; ({ENTRIES},) works")
    kernel = Lookup(dtype_of(x), dtype_of(table), len(x.shape))
    return only(pipe.add(kernel, x=x, table=table))


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
