"""The operations of the table on the CPU, one element at a time, in a loop that LLVM vectorises.

kernels/reference/elementwise/steps.py says what they compute.
"""

from __future__ import annotations

import string

from ....primitives import dtypes
from ...elementwise import Elementwise, Operation, QuantizedElementwise
from ...factory import Whole, WithParams, register
from ...reference.elementwise.steps import elementwise_step, quantized_step
from ...sequence import SEQUENCES
from ..map import compiled
from ..nest import Element, nest

WIDEN = {"f16": "f16_value(np.int32({}))", "bf16": "bf16_value(np.int32({}))"}
NARROW = {"f16": "np.uint16(f16_bits({}))", "bf16": "np.uint16(bf16_bits({}))"}
HELPERS = (
    "fmod32 power_signed power_unsigned quotient_signed quotient_unsigned remainder_signed remainder_unsigned "
    "rest_signed shifted_left shifted_right_signed shifted_right_unsigned"
).split()


def _prelude(text: str) -> str:
    """Imports of what an expression calls; `_floor` is the sequence, as scalar.py has a rounding rule of that name."""
    words = set("".join(c if c.isalnum() or c == "_" else " " for c in text).split())
    used = sorted(w for w in words if w in SEQUENCES and f"{w}(" in text and w != "floor")
    lines = [f"from {__package__.rpartition('.')[0]}.vectormath import {', '.join(used)}"] if used else []
    if "_floor" in words:
        lines.append(f"from {__package__.rpartition('.')[0]}.vectormath import floor as _floor")
    helpers = sorted(w for w in words if w in HELPERS)
    if helpers:
        lines.append(f"from {__package__}.whole import {', '.join(helpers)}")
    return "\n".join(lines)


def _numbers(row: Operation) -> list[tuple[str, tuple]]:
    return [(slot, ()) for slot, _ in row.numbers]


def elementwise_element(kernel: Elementwise) -> Element:
    row, dtype = kernel.row, dtypes.get(kernel.source)
    result = row.expression(kernel.source).replace("T(", f"np.{dtype.numpy}(").replace("BITS", str(dtype.bits))
    widen = {}
    if kernel.source in WIDEN and not row.condition:  # a choice between values needs none of their meaning
        widen = dict.fromkeys(row.values, WIDEN[kernel.source])
        if row.answer == "same":
            result = NARROW[kernel.source].format(result)
    return Element(
        kernel.rank,
        [*zip(row.values, kernel.indices, strict=True), *_numbers(row)],
        result=result,
        widen=widen,
        prelude=_prelude("".join([result, *widen.values()])),
    )


def quantized_element(kernel: QuantizedElementwise) -> Element:
    row, codes = kernel.row, dtypes.get(kernel.dtype)
    real = string.Formatter().vformat(
        row.real,
        (),
        {slot: f"dequantized({{{slot}}}, {{{slot}_scale}}, {{{slot}_zero_point}})" for slot in row.values}
        | {slot: f"{{{slot}}}" for slot, _ in row.numbers},
    )
    return Element(
        kernel.rank,
        [
            *zip(row.values, kernel.indices, strict=True),
            *((slot, index) for slot, _, index in kernel.parameters),
            *_numbers(row),
        ],
        result=f"saturate_narrow(rint32(({real}) / {{scale}}), {{zero_point}}, {int(codes.min)}, {int(codes.max)})",
        doubt=[((slot,), f"bad_scale({{{slot}}})") for slot, dtype, _ in kernel.parameters if dtype == "f32"],
        prelude=_prelude(row.real),
    )


@register("elementwise", backend="cpu", requires=compiled)
def build(kernel: Elementwise) -> WithParams:
    return nest(elementwise_element(kernel))


@register("elementwise", backend="cpu", variant="interpreted", priority=-100)
def build_interpreted(kernel: Elementwise) -> Whole:
    """Whole arrays under plain Python."""
    return elementwise_step(kernel)


@register("elementwise_quantized", backend="cpu", requires=compiled)
def build_quantized(kernel: QuantizedElementwise) -> WithParams:
    return nest(quantized_element(kernel))


@register("elementwise_quantized", backend="cpu", variant="interpreted", priority=-100)
def build_quantized_interpreted(kernel: QuantizedElementwise) -> Whole:
    """Whole arrays under plain Python."""
    return quantized_step(kernel)
