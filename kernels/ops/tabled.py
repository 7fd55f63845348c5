"""The operations of the table as ops: numbers of one type, or codes with scales of their own on each side."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...primitives import dtypes
from ...primitives.errors import ArgumentError, DTypeMismatch, Unsupported
from ...primitives.pipeline import Pipeline, Value
from ...primitives.quantization import QuantParams
from ..elementwise import CODES, TABLE, Elementwise, QuantizedElementwise
from ..indexing import Index, broadcast
from ..lookup import ENTRIES, Lookup
from ..reference.elementwise.steps import elementwise_quantized
from .given import Operand, constant_like, dtype_of, one, only, pipeline_of, reals, value_of
from .quantizations import affine_params

KEPT = ("minimum", "maximum", "where")  # what chooses between its operands keeps a quantization that they share


def numbers_of(op: str, given: Mapping[str, Operand]) -> dict[str, Any]:
    """The float32 parameters of an operation: what is given, or the usual values."""
    found = {}
    for slot, usual in TABLE[op].numbers:
        x = usual if given.get(slot) is None else given[slot]
        found[slot] = x if isinstance(x, Value) else one(reals(x, f"{op}: {slot}"), f"{op}: {slot}")
    return found


def tabled(op: str, *values: Operand, **numbers: Operand) -> Value:
    """An operation of the table on numbers of one type, broadcast; Python numbers take the type of the values."""
    row = TABLE[op]
    pipe = pipeline_of(op, *values, *numbers.values())
    first = 1 if row.condition else 0
    known = next((x for x in values[first:] if isinstance(x, Value)), None)
    if known is None:
        known = next((pipe.constant(np.asarray(x)) for x in values[first:] if hasattr(x, "dtype")), None)
    number = dtype_of(known) if known is not None else None
    made = [value_of(pipe, x, op, row.values[n], number=_scalar_type(number)) for n, x in enumerate(values)]
    sources = {dtype_of(x) for x in made[first:]}
    if len(sources) > 1:
        shown = " and ".join(f"{slot} is {dtype_of(x)}" for slot, x in zip(row.values, made, strict=True))
        raise DTypeMismatch(f"{op}: {shown}; operands of one type work (cast one of them)")
    source = sources.pop()
    if source not in row.types:
        raise DTypeMismatch(f"{op}: {row.values[-1]} is {source}; {', '.join(row.types)} work")
    if row.condition and dtype_of(made[0]) != "bool":
        raise DTypeMismatch(f"{op}: {row.values[0]} is {dtype_of(made[0])}; bool works")
    shape, indices = broadcast([x.shape for x in made], op)
    quant = _shared(op, made[first:])
    kernel = Elementwise(op, source, len(shape), tuple(indices))
    operands: dict[str, Any] = dict(zip(row.values, made, strict=True))
    y = only(pipe.add(kernel, **operands, **numbers_of(op, numbers)))
    y.quant = quant if quant is None or quant.axis is None else None
    return y


def _scalar_type(number: str | None) -> str | None:
    return "f32" if number in ("f16", "bf16") else number


def _shared(op: str, values: Sequence[Value]) -> QuantParams | None:
    """The quantization that the result keeps; ArgumentError where codes would be mixed as if they were numbers."""
    if TABLE[op].answer == "bool":
        return None
    found = [x.quant for x in values if x.quant is not None]
    if not found or dtype_of(values[0]) not in CODES:
        return None
    if op in KEPT and len(found) == len(values) and all(q == found[0] for q in found):
        return found[0]
    raise ArgumentError(f"{op}: the operands are codes with scales; give scale= of the result or to=QuantParams")


def quantized(
    op: str,
    values: Sequence[Operand],
    params: Sequence[tuple[Operand, Operand]],
    result: tuple[Operand, Operand, Any, QuantParams | None],
    **numbers: Operand,
) -> Value:
    """An operation of the table on codes, quantized again.

    params   (scale, zero_point) of each value; None: the quantization that it carries
    result   (scale, zero_point, dtype, to) of the result
    """
    row = TABLE[op]
    scale, zero_point, dtype, to = result
    pipe = pipeline_of(op, *values, *(p for pair in params for p in pair), scale, zero_point)
    if to is not None:
        if scale is not None or zero_point is not None or dtype is not None:
            raise ArgumentError(f"{op}: give scale, zero_point and dtype, or to=QuantParams, not both")
        if to.block is not None:
            raise Unsupported(f"{op}: to= has scales in blocks; one, or one for each channel works")
        scale, zero_point, dtype = to.scale, to.zero_point, to.dtype
    made = [value_of(pipe, x, op, row.values[n]) for n, x in enumerate(values)]
    for slot, x in zip(row.values, made, strict=True):
        if dtype_of(x) not in CODES:
            raise DTypeMismatch(f"{op}: {slot} is {dtype_of(x)}; with scale= or to=, codes {', '.join(CODES)} work")
    codes = dtypes.get(dtype or "u8").name
    shape, indices = broadcast([x.shape for x in made], op)
    rank = len(shape)
    operands: dict[str, Any] = dict(zip(row.values, made, strict=True))
    layouts: list[Index] = []
    for slot, x, (s, z) in zip(row.values, made, params, strict=True):
        axis = block = None
        if s is None:
            if x.quant is None:
                raise ArgumentError(f"{op}: {slot}_scale is missing, and {x!r} carries no quantization")
            s, z, axis, block = x.quant.scale, x.quant.zero_point if z is None else z, x.quant.axis, x.quant.block
        at = _param(op, f"{slot}_", x.shape, s, z, dtype_of(x), axis, block, operands)
        layouts.append(tuple(a and (a[0] + rank - len(x.shape), a[1]) for a in at))
    axis = to.axis if to is not None else None
    layouts.append(_param(op, "", shape, scale, zero_point, codes, axis, None, operands))
    settings = numbers_of(op, numbers)
    kernel = QuantizedElementwise(op, tuple(dtype_of(x) for x in made), codes, rank, tuple(indices), tuple(layouts))
    table = _table(kernel, operands, settings)
    if table is not None:
        y = pipe.add(Lookup(dtype_of(made[0]), codes, rank), x=made[0], table=table)
    else:
        y = pipe.add(kernel, **operands, **settings)
    s, z = operands["scale"], operands["zero_point"]
    if not isinstance(s, Value) and not isinstance(z, Value) and s.size == 1:
        y.quant = to or QuantParams(s.reshape(()), z.reshape(()), codes)
    return only(y)


def _param(
    op: str, prefix: str, shape: Any, s: Any, z: Any, codes: str, axis: Any, block: Any, operands: dict[str, Any]
) -> Index:
    """Put a scale and its zero point, of one shape, among the operands; returns how they lie over the data."""
    z = 0 if z is None else z
    if not isinstance(z, Value):
        z = np.asarray(z)
        if not isinstance(s, Value) and z.size == 1:
            z = np.broadcast_to(z.reshape(()), np.shape(s))
        elif isinstance(s, Value) and all(isinstance(n, int) for n in s.shape):
            z = np.broadcast_to(z, tuple(int(n) for n in s.shape))
    _, s, z, s_at, z_at = affine_params(op, shape, s, z, codes, axis, block)
    if s_at != z_at:
        raise Unsupported(f"{op}: {prefix}scale and {prefix}zero_point differ in shape; one shape works")
    operands[f"{prefix}scale"], operands[f"{prefix}zero_point"] = s, z
    return s_at


def _table(kernel: QuantizedElementwise, operands: Mapping[str, Any], settings: Mapping[str, Any]) -> Any:
    """The 256 answers of an operation on one 8-bit operand whose parameters are constants; None for any other."""
    source, out = dtypes.get(kernel.sources[0]), dtypes.get(kernel.dtype)
    fixed = [v for k, v in operands.items() if k not in kernel.row.values] + list(settings.values())
    if len(kernel.sources) != 1 or source.bits != 8 or out.bits != 8:
        return None
    if any(isinstance(p, Value) or p.size != 1 for p in fixed):
        return None
    codes = np.arange(ENTRIES, dtype=np.uint8).view(source.numpy)
    slot = kernel.row.values[0]
    params = [(operands[f"{p}scale"].reshape(()), operands[f"{p}zero_point"].reshape(())) for p in (f"{slot}_", "")]
    return elementwise_quantized(
        kernel.op, [codes], params, list(settings.values()), lo=int(out.min), hi=int(out.max), dtype=out.numpy
    )


def unary(op: str, what: str) -> Callable[..., Value]:
    """The op of an operation on one operand."""
    row = TABLE[op]
    real = bool(row.real) and row.answer == "same"

    def numbers_only(x: Operand, **numbers: Operand) -> Value:
        return tabled(op, x, **_checked(op, numbers))

    def either(
        x: Operand,
        *,
        x_scale: Operand = None,
        x_zero_point: Operand = None,
        scale: Operand = None,
        zero_point: Operand = None,
        dtype: Any = None,
        to: QuantParams | None = None,
        **numbers: Operand,
    ) -> Value:
        if scale is None and to is None:
            _no_params(op, x_scale, x_zero_point, zero_point, dtype)
            return tabled(op, x, **_checked(op, numbers))
        return quantized(op, [x], [(x_scale, x_zero_point)], (scale, zero_point, dtype, to), **_checked(op, numbers))

    return _named(either if real else numbers_only, op, what, real)


def binary(op: str, what: str) -> Callable[..., Value]:
    """The op of an operation on two operands."""
    row = TABLE[op]
    real = bool(row.real) and row.answer == "same"

    def numbers_only(a: Operand, b: Operand) -> Value:
        return tabled(op, a, b)

    def either(
        a: Operand,
        b: Operand,
        *,
        a_scale: Operand = None,
        a_zero_point: Operand = None,
        b_scale: Operand = None,
        b_zero_point: Operand = None,
        scale: Operand = None,
        zero_point: Operand = None,
        dtype: Any = None,
        to: QuantParams | None = None,
    ) -> Value:
        if scale is None and to is None:
            _no_params(op, a_scale, a_zero_point, b_scale, b_zero_point, zero_point, dtype)
            return tabled(op, a, b)
        pairs = [(a_scale, a_zero_point), (b_scale, b_zero_point)]
        return quantized(op, [a, b], pairs, (scale, zero_point, dtype, to))

    return _named(either if real else numbers_only, op, what, real)


def _checked(op: str, numbers: Mapping[str, Operand]) -> Mapping[str, Operand]:
    known = [slot for slot, _ in TABLE[op].numbers]
    for given in numbers:
        if given not in known:
            raise TypeError(f"{op}() got an unexpected keyword argument {given!r}; it has {', '.join(known) or 'none'}")
    return numbers


def _no_params(op: str, *given: Operand) -> None:
    if any(g is not None for g in given):
        raise ArgumentError(f"{op}: scales and zero points of codes need scale= (of the result) or to=QuantParams")


def _named(fn: Callable[..., Value], op: str, what: str, real: bool) -> Callable[..., Value]:
    row = TABLE[op]
    lines = [what, "", f"{', '.join(row.values):9s}  {', '.join(row.types)}, of one type, broadcast"]
    if row.numbers:
        lines.append(
            f"{', '.join(n for n, _ in row.numbers):9s}  f32, usually {', '.join(str(v) for _, v in row.numbers)}"
        )
    if real:
        each = ", ".join(f"{v}_scale, {v}_zero_point" for v in row.values)
        lines += [
            "",
            "With `scale` or `to`, operands are codes (u8 s8 u16 s16) and so is the result:",
            f"{each}  left out: the quantization that the operand carries",
            "scale, zero_point, dtype (u8)  of the result; or to=QuantParams",
        ]
    fn.__name__ = fn.__qualname__ = op
    fn.__doc__ = "\n".join(f"    {line}" if n and line else line for n, line in enumerate(lines)) + "\n"
    return fn


def constant_of(x: Operand, dtype: str, what: str) -> Any:
    """A number or array as a constant of a type; a value as it is."""
    return x if isinstance(x, Value) else constant_like(x, dtype, what)


__all__ = ["Pipeline", "binary", "constant_of", "quantized", "tabled", "unary"]
