"""The operations of the table on CUDA, one element at a time.

kernels/reference/elementwise/steps.py says what they compute.
"""

from __future__ import annotations

import ast
import string

from ....primitives import dtypes
from ...elementwise import Elementwise, Operation, QuantizedElementwise
from ...elementwise.table import DOUBLE, REAL
from ...factory import register
from ...sequence import SEQUENCES
from .. import vectormath  # noqa: F401  (it has the sequences registered)
from ..launch import Device
from ..nest import Element, nest

WIDEN = {"f16": "f16_to_f32({})", "bf16": "bf16_to_f32({})", "bool": "({} != 0)"}
NARROW = {"f16": "f16_bits({})", "bf16": "bf16_bits({})"}
HELPERS = (
    "power_signed power_unsigned quotient_signed quotient_unsigned remainder_signed remainder_unsigned "
    "rest_signed shifted_left shifted_right_signed shifted_right_unsigned"
).split()
_CALLS = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div"}


def called(expression: str, names: tuple[str, ...]) -> str:
    """A float expression over names in braces with its + - * / as calls, which the compiler does not contract."""

    class Calls(ast.NodeTransformer):
        def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
            self.generic_visit(node)
            function = ast.Attribute(ast.Name("ptx", ast.Load()), _CALLS[type(node.op)], ast.Load())
            return ast.Call(function, [node.left, node.right], [])

        def visit_Name(self, node: ast.Name) -> ast.AST:
            return ast.Name("{" + node.id.removeprefix("operand_") + "}", ast.Load()) if node.id in marked else node

    marked = {f"operand_{name}" for name in names}
    tree = ast.parse(expression.format(**{name: f"operand_{name}" for name in names}), mode="eval")
    return ast.unparse(ast.fix_missing_locations(Calls().visit(tree)))


def prelude(text: str) -> str:
    """Imports of what an expression calls; `_floor` is the sequence, as scalar.py has a rounding rule of that name."""
    words = set("".join(c if c.isalnum() or c == "_" else " " for c in text).split())
    used = sorted(w for w in words if w in SEQUENCES and f"{w}(" in text and w != "floor")
    package = __package__.rpartition(".")[0]
    lines = [f"from {package}.vectormath import {', '.join(used)}"] if used else []
    if "_floor" in words:
        lines.append(f"from {package}.vectormath import floor as _floor")
    helpers = sorted(w for w in words if w in HELPERS)
    if helpers:
        lines.append(f"from {__package__}.whole import {', '.join(helpers)}")
    return "\n".join(lines)


def refuses(kernel: Elementwise | QuantizedElementwise) -> str | None:
    """Why CUDA has no expression of an operation, or None."""
    if isinstance(kernel, Elementwise) and kernel.source == DOUBLE:
        return "float64 has no CUDA kernels"
    text = kernel.row.real if isinstance(kernel, QuantizedElementwise) else kernel.row.expression(kernel.source)
    return "the remainder of floats has no CUDA kernel" if "fmod32" in text else None


def _numbers(row: Operation) -> list[tuple[str, tuple]]:
    return [(slot, ()) for slot, _ in row.numbers]


def _names(row: Operation) -> tuple[str, ...]:
    return (*row.values, *(slot for slot, _ in row.numbers))


def elementwise_element(kernel: Elementwise) -> Element:
    row, source = kernel.row, kernel.source
    result = row.expression(source)
    if source in REAL and not row.condition:
        result = called(result, _names(row))
        if row.answer == "same":
            result = NARROW.get(source, "{}").replace("{}", result)
    else:
        dtype = dtypes.get(source)
        result = result.replace("T(", f"np.{dtype.numpy}(").replace("BITS", str(dtype.bits))
    widen = {}
    for slot, dtype_of in zip(row.values, kernel.sources, strict=True):
        if dtype_of == "bool" or (dtype_of in WIDEN and not row.condition):
            widen[slot] = WIDEN[dtype_of]
    return Element(
        kernel.rank,
        [*zip(row.values, kernel.indices, strict=True), *_numbers(row)],
        result=result,
        widen=widen,
        prelude=prelude(result),
        name=f"elementwise_{kernel.op}",
    )


def quantized_element(kernel: QuantizedElementwise) -> Element:
    row, codes = kernel.row, dtypes.get(kernel.dtype)
    real = string.Formatter().vformat(
        called(row.real, _names(row)),
        (),
        {slot: f"dequantized({{{slot}}}, {{{slot}_scale}}, {{{slot}_zero_point}})" for slot in row.values}
        | {slot: f"{{{slot}}}" for slot, _ in row.numbers},
    )
    low, high = int(codes.min), int(codes.max)
    return Element(
        kernel.rank,
        [
            *zip(row.values, kernel.indices, strict=True),
            *((slot, index) for slot, _, index in kernel.parameters),
            *_numbers(row),
        ],
        result=f"saturate_narrow(ptx.rint(ptx.div({real}, {{scale}})), {{zero_point}}, {low}, {high})",
        doubt=[((slot,), f"bad_scale({{{slot}}})") for slot, dtype, _ in kernel.parameters if dtype == "f32"],
        prelude=prelude(row.real),
        name=f"quantized_{kernel.op}",
    )


@register("elementwise", backend="cuda", requires=refuses)
def build(kernel: Elementwise) -> Device:
    return nest(elementwise_element(kernel))


@register("elementwise_quantized", backend="cuda", requires=refuses)
def build_quantized(kernel: QuantizedElementwise) -> Device:
    return nest(quantized_element(kernel))
