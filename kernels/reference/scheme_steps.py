"""Registers the references of schemes as the implementations of the backend "reference"."""

from __future__ import annotations

from typing import Any

from ..factory import Whole, register
from ..schemes.packing import pack
from ..schemes.steps import SchemeDecode, SchemeEncode, SchemeFit, SchemeQuantize, SchemeSplit
from . import scheme_bytes, schemes


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


@register("bytes_encode", backend="reference")
def bytes_encode_step(kernel: SchemeEncode) -> Whole:
    def fn(x: Any, codes: Any) -> None:
        codes[...] = scheme_bytes.encode_bytes(kernel.scheme, x)

    return Whole(fn)


@register("bytes_decode", backend="reference")
def bytes_decode_step(kernel: SchemeDecode) -> Whole:
    def fn(codes: Any, y: Any) -> None:
        y[...] = scheme_bytes.decode_bytes(kernel.scheme, codes, kernel.columns)

    return Whole(fn)


@register("bytes_split", backend="reference")
def bytes_split_step(kernel: SchemeSplit) -> Whole:
    def fn(codes: Any, q: Any, scale: Any, *offset: Any) -> None:
        grouped = kernel.scheme.grouped
        assert grouped is not None
        integers, scale[...], made = scheme_bytes.split_bytes(kernel.scheme, codes, kernel.columns)
        q[...] = pack(integers & ((1 << grouped.bits) - 1), grouped.bits)
        for out in offset:
            out[...] = made

    return Whole(fn)
