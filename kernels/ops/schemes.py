"""Schemes inside a pipeline: activations, images and caches quantized where they are made."""

from __future__ import annotations

from typing import Any

from ...primitives.errors import DTypeMismatch, ShapeMismatch, Unsupported
from ...primitives.pipeline import Value
from ...primitives.sizes import show
from ..schemes.definition import Definition
from ..schemes.steps import SchemeDecode, SchemeEncode, SchemeFit, SchemeQuantize
from .given import Operand, dtype_of, only, pipeline_of, value_of


def fake_quantize(x: Operand, scheme: Definition) -> Value:
    """What a scheme leaves of its input: decode(encode(x)), with parameters that are fitted to x at run time.

    x        f32 (N, K), where K is known; a block lies within it as within weights (N, K)
    scheme   a Scheme, or a shipped one (`tw.schemes.get`), whose parameters no other scheme stores
    returns  f32 (N, K)
    """
    pipe = pipeline_of("fake_quantize", x)
    x = value_of(pipe, x, "fake_quantize", "x")
    if dtype_of(x) != "f32":
        raise DTypeMismatch(f"fake_quantize: x is {dtype_of(x)}; f32 works")
    if len(x.shape) != 2 or not isinstance(x.shape[1], int):
        raise ShapeMismatch(f"fake_quantize: x is {show(x.shape)}; (N, K) with a known K works: reshape it")
    if scheme.nested:
        raise Unsupported(
            f"fake_quantize: {', '.join(scheme.nested)} of {scheme.name} is stored by another scheme; "
            f"scheme.fake_quantize(array) does that outside of a pipeline"
        )
    slots = [f"p_{p.name}" for p in scheme.stored]
    if not slots:
        written: Any = (pipe.add(SchemeEncode(scheme), x=x),)
    elif scheme.edges[0] == 1:
        written = pipe.add(SchemeQuantize(scheme), x=x)
    else:
        fitted = pipe.add(SchemeFit(scheme), x=x)
        params = fitted if isinstance(fitted, tuple) else (fitted,)
        written = (*params, pipe.add(SchemeEncode(scheme), x=x, **dict(zip(slots, params, strict=True))))
    operands = dict(zip([*slots, "codes"], written, strict=True))
    return only(pipe.add(SchemeDecode(scheme, x.shape[1]), **operands))
