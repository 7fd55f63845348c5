"""Registers the references of data movement."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...primitives import dtypes
from ...primitives.errors import ArgumentError
from ..cast import SMALL, Cast
from ..factory import Whole, register
from ..moving.gather import Gather, GatherElements, GatherND
from ..moving.order import CumSum, OneHot, TopK, Trilu
from ..moving.resize import Resize
from ..moving.scatter import ScatterElements, ScatterND
from . import moving
from .cast import cast


@register("copy", backend="reference")
@register("fill", backend="reference")
@register("transposed", backend="reference")
def copy() -> Whole:
    return Whole(moving.copy)


def _into(meaning: Any) -> Whole:
    def fn(*operands: Any) -> None:
        *read, out = operands
        try:
            out[...] = meaning(*read)
        except ValueError as error:
            raise ArgumentError(str(error)) from error

    return Whole(fn)


@register("gather", backend="reference")
def gather(kernel: Gather) -> Whole:
    return _into(lambda x, indices: moving.gather(x, indices, kernel.axis))


@register("gather_elements", backend="reference")
def gather_elements(kernel: GatherElements) -> Whole:
    return _into(lambda x, indices: moving.gather_elements(x, indices, kernel.axis))


@register("gather_nd", backend="reference")
def gather_nd(kernel: GatherND) -> Whole:
    return _into(lambda x, indices: moving.gather_nd(x, indices, kernel.batch))


@register("scatter_elements", backend="reference")
def scatter_elements(kernel: ScatterElements) -> Whole:
    def fn(indices: Any, updates: Any, y: Any) -> None:
        y[...] = moving.scatter_elements(y, indices, updates, kernel.axis, kernel.sums)

    return _checked(fn)


@register("scatter_nd", backend="reference")
def scatter_nd(kernel: ScatterND) -> Whole:
    def fn(indices: Any, updates: Any, y: Any) -> None:
        y[...] = moving.scatter_nd(y, indices, updates, kernel.sums)

    return _checked(fn)


def _checked(fn: Any) -> Whole:
    def run(*operands: Any) -> None:
        try:
            fn(*operands)
        except ValueError as error:
            raise ArgumentError(str(error)) from error

    return Whole(run)


@register("cumsum", backend="reference")
def cumsum(kernel: CumSum) -> Whole:
    return _into(lambda x: moving.cumsum(x, kernel.axis, kernel.exclusive, kernel.reverse))


@register("topk", backend="reference")
def topk(kernel: TopK) -> Whole:
    def fn(x: Any, values: Any, indices: Any) -> None:
        values[...], indices[...] = moving.topk(x, kernel.k, kernel.axis, kernel.largest)

    return Whole(fn)


@register("one_hot", backend="reference")
def one_hot(kernel: OneHot) -> Whole:
    return _into(lambda indices, values: moving.one_hot(indices, values, kernel.axis, kernel.depth))


@register("trilu", backend="reference")
def trilu(kernel: Trilu) -> Whole:
    return _into(lambda x: moving.trilu(x, kernel.k, kernel.upper))


@register("range", backend="reference")
def arange() -> Whole:
    def fn(start: Any, step: Any, y: Any) -> None:
        y[...] = moving.arange(start, step, y.shape[0])

    return Whole(fn)


@register("resize", backend="reference")
def resize(kernel: Resize) -> Whole:
    def fn(x: Any, y: Any) -> None:
        y[...] = moving.resize(x, kernel.axis, y.shape[kernel.axis], kernel)

    return Whole(fn)


@register("cast", backend="reference")
def cast_step(kernel: Cast) -> Whole:
    def fn(x: Any, *rest: Any) -> None:
        kind = dtypes.get(kernel.source)
        if kernel.source in SMALL and x.dtype != kind.numpy:
            x = (x & np.uint8((1 << kind.bits) - 1)).view(kind.numpy)
        rest[-1][...] = cast(np.asarray(x), kernel.dtype, kernel.saturate, kernel.scale_rounding)

    return Whole(fn)
