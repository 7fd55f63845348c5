"""Normalization by channels: of groups of them, and by their neighbours."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...factory import Whole, register
from ...powers import power
from ...reduce.groups import GroupNormalize
from ...reduce.response import LocalResponse
from ..arithmetic import to_f32
from .lanes import fold
from .steps import rows_of

_ONE = np.float32(1)


def group_normalize(x: ArrayLike, groups: int, scale: ArrayLike, bias: ArrayLike, epsilon: ArrayLike = 1e-5) -> NDArray:
    """Group normalization of data (N, C, ..); as many groups as channels make it instance normalization.

        mean = sum(x) / n;  d = x - mean;  out = d * (1 / sqrt(sum(d * d) / n + epsilon)) * scale[c] + bias[c]

    groups       the channels are cut into so many; sums go over a group's channels and all axes behind them, in
                 row-major order
    scale, bias  float32 (C,)
    Source: ONNX GroupNormalization 21, InstanceNormalization 6.
    """
    given = np.asarray(x)
    each = given.shape[1] // max(groups, 1)
    rows = rows_of(to_f32(given).reshape((given.shape[0], groups, each, *given.shape[2:])), given.ndim - 1)
    n = np.float32(rows.shape[-1])
    factor, term = (to_f32(p).reshape((groups, each, 1)) for p in (scale, bias))
    with np.errstate(all="ignore"):
        d = rows - (fold(rows) / n)[..., None]
        inverse = _ONE / np.sqrt(fold(d * d) / n + to_f32(epsilon))
        found = (d * inverse[..., None]).reshape((*rows.shape[:2], each, rows.shape[-1] // max(each, 1)))
        return (found * factor + term).reshape(given.shape).astype(given.dtype)


def local_response(x: ArrayLike, size: int, alpha: ArrayLike, beta: ArrayLike, bias: ArrayLike) -> NDArray:
    """Local response normalization of data (N, C, ..).

        out = x / power(bias + alpha * s, beta)

    s      x**2 added up over the channels c - (size - 1) // 2 .. c + size // 2 that exist, in ascending order
    alpha  already divided by size
    Source: ONNX LRN 13.
    """
    given = np.asarray(x)
    x = to_f32(given)
    channels, before = x.shape[1], (size - 1) // 2
    with np.errstate(all="ignore"):
        square = x * x
        total = np.empty_like(x)
        for c in range(channels):
            first, *others = range(max(0, c - before), min(channels, c + size - before))
            total[:, c] = square[:, first]
            for other in others:
                total[:, c] += square[:, other]
        found = x / power(to_f32(bias) + to_f32(alpha) * total, np.broadcast_to(to_f32(beta), x.shape))
        return found.astype(given.dtype)


@register("group_normalize", backend="reference")
def groups_step(kernel: GroupNormalize) -> Whole:
    def fn(x: Any, scale: Any, bias: Any, epsilon: Any, y: Any, scratch: Any) -> None:
        flat = x.reshape((x.shape[0], x.shape[1] * x.shape[2], *x.shape[3:]))
        y[...] = group_normalize(flat, x.shape[1], scale.reshape(-1), bias.reshape(-1), epsilon[()]).reshape(y.shape)

    return Whole(fn)


@register("local_response", backend="reference")
def response_step(kernel: LocalResponse) -> Whole:
    def fn(x: Any, alpha: Any, beta: Any, bias: Any, y: Any) -> None:
        y[...] = local_response(x, kernel.size, alpha[()], beta[()], bias[()])

    return Whole(fn)
