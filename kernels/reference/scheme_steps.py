"""Registers the references of schemes as the implementations of the backend "reference"."""

from __future__ import annotations

from typing import Any

from ..factory import Whole, register
from ..schemes.steps import SchemeDecode, SchemeEncode, SchemeFit, SchemeQuantize
from . import schemes


@register("scheme_fit", backend="reference")
def fit_step(kernel: SchemeFit) -> Whole:
    def fn(x: Any, *params: Any) -> None:
        for out, made in zip(params, schemes.fit(kernel.scheme, x), strict=True):
            out[...] = made

    return Whole(fn)


@register("scheme_encode", backend="reference")
def encode_step(kernel: SchemeEncode) -> Whole:
    def fn(x: Any, *params: Any) -> None:
        *read, codes = params
        codes[...] = schemes.encode(kernel.scheme, x, read)

    return Whole(fn)


@register("scheme_quantize", backend="reference")
def quantize_step(kernel: SchemeQuantize) -> Whole:
    def fn(x: Any, *outputs: Any) -> None:
        *params, codes = outputs
        for out, made in zip(params, schemes.fit(kernel.scheme, x), strict=True):
            out[...] = made
        codes[...] = schemes.encode(kernel.scheme, x, params)

    return Whole(fn)


@register("scheme_decode", backend="reference")
def decode_step(kernel: SchemeDecode) -> Whole:
    def fn(codes: Any, *operands: Any) -> None:
        *params, y = operands
        y[...] = schemes.decode(kernel.scheme, codes, params, kernel.columns)

    return Whole(fn)
