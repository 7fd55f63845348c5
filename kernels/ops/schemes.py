"""Schemes inside a pipeline: activations, images and caches quantized where they are made."""

from __future__ import annotations

from ...primitives.errors import DTypeMismatch, ShapeMismatch, Unsupported
from ...primitives.pipeline import Value
from ...primitives.sizes import show
from ..schemes.definition import Definition
from ..schemes.steps import SchemeDecode, SchemeEncode, SchemeFit, SchemeQuantize
from .given import Operand, dtype_of, only, pipeline_of, value_of


def encode(x: Operand, scheme: Definition) -> tuple[Value, ...]:
    """The codes that a scheme makes of its input, and the parameters that are fitted to it at run time.

    x        f32 (N, K); a block lies within it as within weights (N, K)
    scheme   a Scheme, or a shipped one (`tw.schemes.get`), whose parameters no other scheme stores
    returns  codes u8 (N, row bytes), packed as a QuantizedTensor has them; then each parameter as it is stored
    """
    return _encode("encode", x, scheme)[0]


def fake_quantize(x: Operand, scheme: Definition) -> Value:
    """What a scheme leaves of its input: decode(encode(x)), with parameters that are fitted to x at run time.

    x        f32 (N, K), where K is known
    scheme   as for `encode`
    returns  f32 (N, K)
    """
    written, x = _encode("fake_quantize", x, scheme)
    if not isinstance(x.shape[1], int):
        raise ShapeMismatch(f"fake_quantize: x is {show(x.shape)}; (N, K) with a known K works")
    slots = ["codes", *(f"p_{p.name}" for p in scheme.stored)]
    return only(x.pipeline.add(SchemeDecode(scheme, x.shape[1]), **dict(zip(slots, written, strict=True))))


def _encode(op: str, x: Operand, scheme: Definition) -> tuple[tuple[Value, ...], Value]:
    """Codes and parameters, and what they were made of."""
    pipe = pipeline_of(op, x)
    x = value_of(pipe, x, op, "x")
    if dtype_of(x) != "f32":
        raise DTypeMismatch(f"{op}: x is {dtype_of(x)}; f32 works")
    if len(x.shape) != 2:
        raise ShapeMismatch(f"{op}: x is {show(x.shape)}; a matrix (N, K) works: reshape it")
    if scheme.nested:
        raise Unsupported(
            f"{op}: {', '.join(scheme.nested)} of {scheme.name} is stored by another scheme; "
            f"scheme.quantize(array) does that outside of a pipeline"
        )
    if not scheme.stored:
        return (pipe.add(SchemeEncode(scheme), x=x),), x
    if scheme.edges[0] == 1:
        *params, codes = pipe.add(SchemeQuantize(scheme), x=x)
        return (codes, *params), x
    fitted = pipe.add(SchemeFit(scheme), x=x)
    params = list(fitted) if isinstance(fitted, tuple) else [fitted]
    slots = [f"p_{p.name}" for p in scheme.stored]
    return (pipe.add(SchemeEncode(scheme), x=x, **dict(zip(slots, params, strict=True))), *params), x
