"""Reductions over any axes, softmax and normalization.

Here data is arranged: what is reduced lies along the last axis. float32 is summed in the order of lanes.py; f16 and
bf16 are widened exactly and the result is rounded once, ties to even.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...factory import Whole, register
from ...reduce import Normalize, Reduce, Softmax
from ...vectormath import exp, log
from ..arithmetic import to_f32
from .lanes import fold

_ONE = np.float32(1)


def reduce(op: str, x: ArrayLike) -> NDArray:
    """One reduction of the last axis; the result has the type of x.

    op    sum          x[0] + x[1] + ..; integers modulo 2**bits; 0 for no elements
          mean         sum / n; of integers: the sum modulo 2**64 divided toward zero, 0 for no elements
          prod         the product; 1 for no elements
          max, min     NaN if there is one; for no elements -inf and inf, or the type's least and greatest number
          l1           sum of |x|;  sum_square: sum of x * x;  l2: sqrt(sum_square)
          log_sum      ln(sum);  log_sum_exp: ln(sum of exp(x - m)) + m with m = max, or 0 where that is not finite
    """
    x = np.asarray(x)
    if x.dtype.kind in "biu":
        return _of_integers(op, x)
    with np.errstate(all="ignore"):
        return np.asarray(_of_reals(op, to_f32(x))).astype(x.dtype)


def _of_reals(op: str, x: NDArray[np.float32]) -> Any:
    n = np.float32(x.shape[-1])
    if op == "log_sum_exp":
        top = fold(x, "max")
        top = np.where(np.abs(top) < np.inf, top, np.float32(0))
        return log(fold(exp(x - top[..., None]))) + top
    found: dict[str, Callable[[], Any]] = {
        "sum": lambda: fold(x),
        "mean": lambda: fold(x) / n,
        "max": lambda: fold(x, "max"),
        "min": lambda: fold(x, "min"),
        "prod": lambda: fold(x, "mul"),
        "l1": lambda: fold(np.abs(x)),
        "l2": lambda: np.sqrt(fold(x * x)),
        "sum_square": lambda: fold(x * x),
        "log_sum": lambda: log(fold(x)),
    }
    return found[op]()


def _of_integers(op: str, x: NDArray) -> NDArray:
    if op in ("max", "min"):
        info = np.iinfo(np.uint8 if x.dtype == bool else x.dtype)
        ufunc, start = (np.maximum, info.min) if op == "max" else (np.minimum, info.max)
        return ufunc.reduce(x.view(np.uint8) if x.dtype == bool else x, axis=-1, initial=start).astype(x.dtype)
    with np.errstate(all="ignore"):
        if op == "prod":
            return np.multiply.reduce(x, axis=-1, dtype=x.dtype)
        terms = {"l1": np.abs(x) if x.dtype.kind == "i" else x, "sum_square": x * x}.get(op, x)
        if op != "mean":
            return np.add.reduce(terms, axis=-1, dtype=x.dtype)
        total = np.add.reduce(x, axis=-1, dtype=np.uint64 if x.dtype.kind == "u" else np.int64)
        n = max(x.shape[-1], 1)
        down = total // n
        return np.where((down < 0) & (down * n != total), down + 1, down).astype(x.dtype)


def softmax(x: ArrayLike, log_of_it: bool = False) -> NDArray:
    """Softmax of the last axis.

        m = max(x);  e = exp(x - m);  s = sum(e);  out = e * (1 / s)       log: (x - m) - ln(s)

    A row of -inf alone, or with a NaN, is NaN. Source: ONNX Softmax 13, LogSoftmax 13.
    """
    given = np.asarray(x)
    x = to_f32(given)
    with np.errstate(all="ignore"):
        top = fold(x, "max")[..., None]
        e = exp(x - top)
        total = fold(e)[..., None]
        found = (x - top) - log(total) if log_of_it else e * (_ONE / total)
        return found.astype(given.dtype)


def normalize(
    x: ArrayLike,
    scale: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    epsilon: ArrayLike = 1e-5,
    centre: bool = True,
) -> tuple[NDArray, NDArray[np.float32], NDArray[np.float32]]:
    """Layer (or RMS) normalization of the last axis: the result, the mean and 1 / sqrt(..) of each row.

        mean = sum(x) / n;  d = x - mean;  inverse = 1 / sqrt(sum(d * d) / n + epsilon);  out = d * inverse * scale + bias

    scale, bias  (n,); left out: 1 and 0, without an operation
    centre       False: RMS normalization, where d is x
    Source: ONNX LayerNormalization 17, RMSNormalization 23.
    """
    given = np.asarray(x)
    x = to_f32(given)
    n = np.float32(x.shape[-1])
    with np.errstate(all="ignore"):
        mean = fold(x) / n
        d = x - mean[..., None] if centre else x
        inverse = _ONE / np.sqrt(fold(d * d) / n + to_f32(epsilon))
        out = d * inverse[..., None]
        if scale is not None:
            out = out * to_f32(scale)
        if bias is not None:
            out = out + to_f32(bias)
        return out.astype(given.dtype), mean, inverse


def rows_of(x: NDArray, reduced: int) -> NDArray:
    """Arranged data with its reduced axes as one."""
    n = int(np.prod(x.shape[x.ndim - reduced :], dtype=np.int64))
    return np.reshape(x, (*x.shape[: x.ndim - reduced], n))


@register("reduce", backend="reference")
def reduce_step(kernel: Reduce) -> Whole:
    def fn(x: Any, y: Any, scratch: Any) -> None:
        y[...] = reduce(kernel.op, rows_of(x, len(kernel.axes)))

    return Whole(fn)


@register("softmax", backend="reference")
@register("logsoftmax", backend="reference")
def softmax_step(kernel: Softmax) -> Whole:
    def fn(x: Any, y: Any, scratch: Any) -> None:
        y[...] = softmax(rows_of(x, len(kernel.axes)), kernel.log).reshape(y.shape)

    return Whole(fn)


@register("normalize", backend="reference")
def normalize_step(kernel: Normalize) -> Whole:
    def fn(x: Any, *operands: Any) -> None:
        along = [p.reshape(-1) for p in operands[: len(kernel.along)]]
        epsilon, y, *statistics = operands[len(kernel.along) : -1]
        scale, bias = (*along, None, None)[:2]
        out, mean, inverse = normalize(rows_of(x, len(kernel.axes)), scale, bias, epsilon[()], kernel.centre)
        y[...] = out.reshape(y.shape)
        found = {"mean": mean, "inverse": inverse}
        for slot, target in zip(kernel.results, statistics, strict=True):
            target[...] = found[slot]

    return Whole(fn)
