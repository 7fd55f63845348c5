"""conv: sums over a sliding window, of integers with zero points and of real numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .arithmetic import fma32, to_f32


def conv_int(
    x: ArrayLike,
    w: ArrayLike,
    a_zero_point: ArrayLike = 0,
    b_zero_point: ArrayLike = 0,
    **window: Sequence[int],
) -> NDArray[np.int32]:
    """Convolution of two integer arrays, exact modulo 2**32.

        acc[n, i.., g * Og + o] = sum over taps k.. and channels c of
            (x[n, i.. * strides + k.. * dilations - before.., g * Cg + c] - a_zero_point)
            * (w[g, o, k.., c] - b_zero_point[g * Og + o])

    x             uint8, int8 or int16 (N, spatial.., C), C = G * Cg
    w             likewise (G, Og, taps.., Cg): groups, outputs of a group, taps, channels of a group
    a_zero_point  integer, one value; what lies in the padding is this value, so it adds nothing
    b_zero_point  integer, one value or (G * Og,)
    window        strides, before, after, dilations and spread, one number for each spatial axis (see `windows`)
    returns       int32 (N, output.., G * Og) in units of scale_x * scale_w

    The differences have 9 bits and are never stored in 8. A sum outside int32 wraps here; that it can't is proven from
    the weights before a pipeline runs.
    Source: ONNX ConvInteger.
    """
    x, w = np.asarray(x), np.asarray(w)
    groups, outputs = w.shape[:2]
    zb = np.broadcast_to(np.asarray(b_zero_point).astype(np.int64), (groups * outputs,)).reshape(groups, outputs)
    weights = w.astype(np.float64) - zb.reshape(groups, outputs, *(1,) * (w.ndim - 2))
    real = x.astype(np.float64) - float(np.asarray(a_zero_point).astype(np.int64).reshape(()))
    view = windows(real, w.shape[2:-1], 0.0, **window)
    spatial = w.ndim - 3
    taps = [*range(1 + spatial + 1, 1 + 2 * spatial + 1), 1 + spatial]  # of the view: taps, then channels
    depth = w.shape[-1]
    parts = []
    for g in range(groups):
        part = view[(slice(None),) * (1 + spatial) + (slice(g * depth, (g + 1) * depth),)]
        # every product and every sum is an integer below 2**53
        parts.append(np.tensordot(part, weights[g], (taps, list(range(1, spatial + 2)))))
    with np.errstate(invalid="ignore"):
        return np.concatenate(parts, axis=-1).astype(np.int64).astype(np.int32)


def conv_f32(x: ArrayLike, w: ArrayLike, **window: Sequence[int]) -> NDArray[np.float32]:
    """Convolution of two real arrays in float32; the order of the sum is part of the definition.

        acc = fma(x, w, .. fma(x, w, +0.0)) over ascending taps, outermost axis first, and within a tap over channels

    x        float32, float16 or bfloat16 (N, spatial.., C), widened to float32, which is exact; padding is +0.0, and
             is multiplied like everything else
    w        likewise (G, Og, taps.., Cg)
    window   as in `conv_int`
    returns  float32 (N, output.., G * Og)

    The one exception is bfloat16 times bfloat16 where the machine multiplies pairs of them (vdpbf16ps): then
    gemm.bf16_bound holds for each window.
    """
    x, w = to_f32(x), to_f32(w)
    groups, outputs, *kernel, depth = w.shape
    view = windows(x, kernel, 0.0, **window)
    spatial = len(kernel)
    acc = np.zeros((*view.shape[: 1 + spatial], groups, outputs), np.float32)
    for tap in np.ndindex(*kernel):
        at = view[(slice(None),) * (2 + spatial) + tap]
        at = at.reshape(*at.shape[:-1], groups, depth)
        for c in range(depth):
            weight = (slice(None), slice(None), *tap, c)
            acc = fma32(at[..., c, None], w[weight], acc)
    return acc.reshape(*acc.shape[:-2], groups * outputs)


def windows(
    x: NDArray,
    kernel: Sequence[int],
    padding: Any,
    *,
    strides: Sequence[int],
    before: Sequence[int],
    after: Sequence[int],
    dilations: Sequence[int],
    spread: Sequence[int] = (),
) -> NDArray:
    """Every window of an image: (N, spatial.., C) to (N, output.., C, taps..).

    spread         positions from one element to the next; what lies between is padding (transposed convolution)
    before, after  positions of padding at both ends; negative ones are cut off
    A window that would cover more than there is has no place, so an axis may have no output at all.
    """
    spread = tuple(spread) or (1,) * len(kernel)
    # no element at all is laid out on 1 - spread positions, as (n - 1) * spread + 1 says
    after = [p - (u - 1) * (n == 0) for p, u, n in zip(after, spread, x.shape[1:-1], strict=True)]
    shape = list(x.shape)
    for d, u in enumerate(spread):
        shape[1 + d] = max(0, (shape[1 + d] - 1) * u + 1)
    laid = np.full(shape, padding, x.dtype)
    elements = (slice(None), *(slice(None, None, u) for u in spread))
    laid[elements] = x
    for d in range(len(kernel)):
        lead, trail = (max(0, p[d]) for p in (before, after))
        widths = [(0, 0)] * laid.ndim
        widths[1 + d] = (lead, trail)
        laid = np.pad(laid, widths, constant_values=padding)
        cut = [slice(None)] * laid.ndim
        cut[1 + d] = slice(max(0, -before[d]), laid.shape[1 + d] - max(0, -after[d]))
        laid = laid[tuple(cut)]
    reach = [(k - 1) * l + 1 for k, l in zip(kernel, dilations, strict=True)]  # noqa: E741
    out = [max(0, (n - r) // s + 1) if n >= r else 0 for n, r, s in zip(laid.shape[1:-1], reach, strides, strict=True)]
    step = laid.strides
    return np.lib.stride_tricks.as_strided(
        laid,
        (laid.shape[0], *out, laid.shape[-1], *kernel),
        (
            step[0],
            *(s * t for s, t in zip(strides, step[1:-1], strict=True)),
            step[-1],
            *(l * t for l, t in zip(dilations, step[1:-1], strict=True)),  # noqa: E741
        ),
        writeable=False,
    )
