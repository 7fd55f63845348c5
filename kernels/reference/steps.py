"""Registers the references as the implementations of the backend "reference"."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...primitives import dtypes
from ...primitives.errors import QuantizationError
from ..argmax import Argmax
from ..conv import Conv
from ..elementwise import Add, AddQuantized
from ..factory import Whole, register
from ..gemm import Gemm
from ..linear import Linear
from ..lookup import Lookup
from ..map import Map
from ..pool import Pool, places
from ..quantize import Dequantize, Quantize
from ..requantize import Requantize
from ..window import Window, in_three
from . import argmax as argmax_
from . import attention as attention_steps  # noqa: F401  (registers)
from . import cache_append as cache_append_steps  # noqa: F401  (registers)
from . import elementwise
from .conv import conv_f32, conv_int
from .elementwise import steps as elementwise_steps  # noqa: F401  (registers)
from .gemm import gemm_f32, gemm_int
from .granularity import spread
from .linear import linear
from .lookup import lookup
from .map import map_elements
from .pool import average_pool, average_pool_codes, max_pool
from .quantize import dequantize, quantize
from .reduce import dynamic as dynamic_steps  # noqa: F401  (registers)
from .reduce import steps as reduce_steps  # noqa: F401  (registers)
from .requantize import requantize_fixed, requantize_float


def _into(meaning: Callable[..., Any]) -> Whole:
    """A reference that returns its result, as an implementation that writes its last operand."""

    def fn(*operands: Any) -> None:
        *read, out = operands
        try:
            out[...] = meaning(*read)
        except ValueError as error:
            raise QuantizationError(str(error)) from error

    return Whole(fn)


@register("gemm", backend="reference")
def gemm(kernel: Gemm) -> Whole:
    if kernel.real:
        return _into(gemm_f32)

    def meaning(a: Any, b: Any, *zero_points: Any) -> Any:
        left = iter(zero_points)
        za = next(left) if kernel.a_zero_point is not None else 0
        zb = next(left) if kernel.b_zero_point is not None else 0
        return gemm_int(a, b, za, zb)

    return _into(meaning)


@register("conv", backend="reference")
def conv(kernel: Conv) -> Whole:
    window = windows_of(kernel.window)
    if kernel.real:
        return _into(lambda x, w: conv_f32(x, w, **window))

    def meaning(x: Any, w: Any, *zero_points: Any) -> Any:
        left = iter(zero_points)
        za = next(left) if kernel.a_zero_point else 0
        zb = next(left) if kernel.b_zero_point else 0
        return conv_int(x, w, za, zb, **window)

    return _into(meaning)


@register("pool", backend="reference")
def pool(kernel: Pool) -> Whole:
    def fn(x: Any, *rest: Any) -> None:
        out = rest[-1]
        found = [places(kernel, d, x.shape[1 + d], out.shape[1 + d]) for d in range(3)]
        where, counts = [p for p, _ in found], [c for _, c in found]
        apart = [1, 1, 1] if kernel.adaptive else in_three(kernel.dilations, 1)
        if kernel.kind == "max":
            out[...] = max_pool(x, where, apart)
        elif not kernel.scaled:
            out[...] = average_pool(x, where, counts, apart)
        else:
            x_zero, multiplier, zero = rest[:3]
            codes = dtypes.get(kernel.dtype)
            out[...] = average_pool_codes(
                x, where, counts, apart, x_zero, multiplier, zero,
                lo=int(codes.min), hi=int(codes.max), dtype=codes.numpy,
            )  # fmt: skip

    return Whole(fn)


def windows_of(window: Window) -> dict[str, list[int]]:
    """What reference.conv.windows takes, along D, H and W."""
    return {
        "strides": in_three(window.strides, 1),
        "before": in_three(window.before, 0),
        "after": in_three(window.after, 0),
        "dilations": in_three(window.dilations, 1),
        "spread": in_three(window.spreads, 1),
    }


@register("quantize", backend="reference")
def quantize_step(kernel: Quantize) -> Whole:
    codes = dtypes.get(kernel.dtype)

    def meaning(x: Any, scale: Any, zero_point: Any, seed: Any = 0) -> Any:
        return quantize(
            x,
            scale,
            zero_point,
            lo=int(codes.min),
            hi=int(codes.max),
            dtype=codes.code,
            scale_index=kernel.scale,
            zero_point_index=kernel.zero_point,
            rounding=kernel.rounding,
            seed=int(seed),
        )

    return _into(meaning)


@register("dequantize", backend="reference")
def dequantize_step(kernel: Dequantize) -> Whole:
    return _into(
        lambda x, scale, zero_point: dequantize(
            x, scale, zero_point, scale_index=kernel.scale, zero_point_index=kernel.zero_point
        )
    )


@register("requantize", backend="reference")
def requantize_step(kernel: Requantize) -> Whole:
    meaning = requantize_fixed if kernel.fixed else requantize_float

    def bound(*operands: Any) -> Any:
        *params, lo, hi = operands
        return meaning(
            *params,
            lo=lo,
            hi=hi,
            dtype=dtypes.get(kernel.dtype).numpy,
            multiplier_index=kernel.multiplier,
            zero_point_index=kernel.zero_point,
        )

    return _into(bound)


@register("add", backend="reference")
def add(kernel: Add) -> Whole:
    def fn(a: Any, b: Any, out: Any) -> None:
        out[...] = elementwise.add(spread(a, out.shape, kernel.a), spread(b, out.shape, kernel.b))

    return Whole(fn)


@register("add_quantized", backend="reference")
def add_quantized(kernel: AddQuantized) -> Whole:
    codes = dtypes.get(kernel.dtype)

    def meaning(a: Any, b: Any, *params: Any) -> Any:
        shape = np.broadcast_shapes(a.shape, b.shape)
        spreads = (spread(p, shape, kernel.params[n // 2]) for n, p in enumerate(params))
        return elementwise.add_quantized(a, b, *spreads, lo=int(codes.min), hi=int(codes.max), dtype=codes.numpy)

    return _into(meaning)


@register("relu", backend="reference")
def relu(kernel: Any) -> Whole:
    return _into(lambda x, zero_point: elementwise.relu(x, spread(zero_point, x.shape, kernel.zero_point)))


@register("clip", backend="reference")
def clip(kernel: Any) -> Whole:
    return _into(lambda x, lo, hi: elementwise.clip(x, spread(lo, x.shape, kernel.lo), spread(hi, x.shape, kernel.hi)))


@register("argmax", backend="reference")
def argmax(kernel: Argmax) -> Whole:
    return _into(
        lambda x: argmax_.argmax(
            x,
            kernel.axis,
            keepdims=kernel.keepdims,
            dtype=dtypes.get(kernel.dtype).numpy,
            least=kernel.least,
            last=kernel.last,
        )
    )


@register("lookup", backend="reference")
def lookup_step(kernel: Lookup) -> Whole:
    return _into(lookup)


@register("map", backend="reference")
def map_step(kernel: Map) -> Whole:
    def meaning(*operands: Any) -> Any:
        shape = np.broadcast_shapes(*(x.shape for x in operands))
        given = [np.broadcast_to(operands[n], shape) for n in kernel.arguments]
        fn = kernel.captured.interpreted
        return np.broadcast_to(map_elements(fn, given, dtypes.get(kernel.dtype).numpy), shape)

    return _into(meaning)


@register("linear", backend="reference")
def linear_step(kernel: Linear) -> Whole:
    return _into(lambda *operands: linear(kernel, *operands))
