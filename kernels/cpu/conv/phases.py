"""Transposed convolutions whose kernel is whole strides: one plain convolution, whose outputs are then put side by side.

Result position q * s + r of a stride s reads x at q, q - 1, .. through taps r, r + s, .. of the kernel: for each phase r
a convolution of the image as it is, with every s-th tap. All phases together are one convolution with s times as many
outputs, and none of the multiplications by what is put between the elements of x is done. Terms keep their order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ....primitives.pipeline import Value
from ...conv import Conv
from ...moving.views import Rearrange, Slice
from ..gemm.expand import _constant


def serves(base: Conv, operands: Mapping[str, Any]) -> str | None:
    """Why a transposed convolution is not made of phases; None where it is."""
    window = base.window
    if not base.transposed or all(s == 1 for s in window.spreads):
        return "it is not transposed, or its strides are 1"
    for k, s, d, before, after in zip(
        base.kernel, window.spreads, base.dilations, base.before, base.after, strict=True
    ):
        if s > 1 and (k % s or d > 1 or not 0 <= before < k or after < 0):
            return "its kernel is not whole strides"
    w, zero = _constant(operands["w"]), operands.get("b_zero_point")
    if w is None or (zero is not None and _constant(zero) is None):
        return "its weights are known only at run time"
    if base.real and not np.isfinite(w.astype(np.float32)).all():
        return "a weight is not finite"
    return None


def arranged(base: Conv, w: Any) -> Any:
    """Weights (O, taps.., I) of the plain convolution; its outputs are (group, phases.., output of the group)."""
    data, d = base.weights(w), base.spatial  # (G, Og, taps.., Cg), taps from last to first
    groups, outputs, *taps, inputs = data.shape
    steps = base.window.spreads
    shape = [n for k, s in zip(taps, steps, strict=True) for n in (k // s, s)]
    data = data.reshape(groups, outputs, *shape, inputs)
    data = data[(slice(None), slice(None), *(slice(None), slice(None, None, -1)) * d)]
    phases, whole = [3 + 2 * n for n in range(d)], [2 + 2 * n for n in range(d)]
    data = data.transpose(0, *phases, 1, *whole, 2 + 2 * d)
    return np.ascontiguousarray(data.reshape(-1, *(k // s for k, s in zip(taps, steps, strict=True)), inputs))


def repeated(values: Any, groups: int, count: int) -> Any:
    """One value for each output, once for each phase of it."""
    values = values.reshape(groups, 1, -1)
    return np.ascontiguousarray(np.broadcast_to(values, (groups, count, values.shape[2])).reshape(-1))


def side_by_side(pipe: Any, y: Value, base: Conv, off: list[int]) -> Value:
    """The phases of (N, spatial.., groups * phases * outputs) between each other, cut to the result's size.

    off  what is cut off the front of each spatial axis; what is behind follows from the strides, whatever the size
    """
    d, steps, rank = base.spatial, base.window.spreads, base.spatial + 2
    assert y.dtype is not None
    split = ((0,), *((0,) for _ in steps), (base.groups, *steps, 0))
    perm = [0]
    for n in range(d):
        perm += [1 + n, d + 2 + n]
    perm += [d + 1, 2 * d + 2]
    out: Value = pipe.add(Rearrange(y.dtype.name, split, tuple(perm), (1, *(2 for _ in steps), 2)), x=y)
    cuts: list[tuple[int, int, int] | None] = [None] * rank
    for n, (s, front) in enumerate(zip(steps, off, strict=True)):
        size_of_one = base.before[n] + base.after[n] - base.kernel[n] + 2  # of the result for a single element
        back = -(front + size_of_one) % s
        if s > 1 and (front or back):
            cuts[1 + n] = (front, -back if back else 2**62, 1)
    if any(cuts):
        out = pipe.add(Slice(y.dtype.name, rank, tuple(cuts)), x=out)
    return out
