"""Copy and fill: what most steps that move data sweep. Types do not matter to them, only element sizes.

`sweep_copy` brings two views of one shape into the simplest form (axes that lie together merged, the innermost one
contiguous where that can be) and sweeps the copy that fits it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...primitives.kernel import ArgSpec, Axis, IndexSpace
from ...primitives.memory import strided

BITS = {1: "u8", 2: "u16", 4: "u32", 8: "u64"}
_NAMES = "ijklmnopqrst"


@dataclass(frozen=True)
class _Move:
    """A sweep over given extents; it is no step of a pipeline by itself.

    size      bytes of an element
    extents   of the axes, outermost first
    """

    size: int
    extents: tuple[int, ...]

    def signature(self) -> tuple[ArgSpec, ...]:
        return (ArgSpec("x", BITS[self.size]), ArgSpec("y", BITS[self.size], "write"))

    def index_space(self) -> IndexSpace:
        return IndexSpace(tuple(Axis(_NAMES[d], n) for d, n in enumerate(self.extents)))

    def execute(self, ctx: Any) -> None:
        ctx.sweep(self, ctx.read("x"), ctx.write("y"))


@dataclass(frozen=True)
class Copy(_Move):
    """y[...] = x[...], for two views of one shape."""

    @property
    def name(self) -> str:
        return "copy"


@dataclass(frozen=True)
class Fill(_Move):
    """y[...] = x, for x of one element."""

    @property
    def name(self) -> str:
        return "fill"


@dataclass(frozen=True)
class TransposedCopy(_Move):
    """y[..., i, j] = x[..., i, j], where y is contiguous along j and x along i."""

    @property
    def name(self) -> str:
        return "transposed"


def bits(view: Any) -> Any:
    """The view with its elements as unsigned integers of their size."""
    wanted = np.dtype(f"u{view.dtype.itemsize}")
    return view if view.dtype == wanted else view.view(wanted)


def merged(shape: Sequence[int], strides: Sequence[Sequence[int]]) -> tuple[list[int], list[list[int]]]:
    """Axes joined with the next one where every view steps through both at one stride; size-1 axes dropped.

    strides   one sequence for each view
    """
    order = [d for d, n in enumerate(shape) if n != 1]
    sizes: list[int] = []
    steps: list[list[int]] = [[] for _ in strides]
    for d in order:
        if sizes and all(s[-1] == given[d] * shape[d] for s, given in zip(steps, strides, strict=True)):
            sizes[-1] *= shape[d]
            for s, given in zip(steps, strides, strict=True):
                s[-1] = given[d]
            continue
        sizes.append(shape[d])
        for s, given in zip(steps, strides, strict=True):
            s.append(given[d])
    return sizes, steps


def sweep_copy(ctx: Any, x: Any, y: Any) -> None:
    """Copy one view to another of the same shape and element size."""
    x, y = bits(x), bits(y)
    size = y.dtype.itemsize
    order = sorted(range(y.ndim), key=lambda d: (-abs(y.strides[d]), d))
    x, y = x.transpose(order), y.transpose(order)
    if 0 in y.shape:
        x, y = _flat(x, (0,), (size,)), _flat(y, (0,), (size,))
        ctx.sweep(Copy(size, (0,)), x, y)
        return
    sizes, (from_, to) = merged(y.shape, (x.strides, y.strides))
    if not sizes:
        sizes, from_, to = [1], [size], [size]
    if all(step == 0 for step in from_):
        ctx.sweep(Fill(size, tuple(sizes)), _flat(x, (), ()), _flat(y, sizes, to))
        return
    across = next((d for d in range(len(sizes) - 1) if from_[d] == size), None)
    if to[-1] == size and from_[-1] != size and across is not None:
        last = [d for d in range(len(sizes)) if d not in (across, len(sizes) - 1)] + [across, len(sizes) - 1]
        sizes, from_, to = ([row[d] for d in last] for row in (sizes, from_, to))
        ctx.sweep(TransposedCopy(size, tuple(sizes)), _flat(x, sizes, from_), _flat(y, sizes, to))
        return
    ctx.sweep(Copy(size, tuple(sizes)), _flat(x, sizes, from_), _flat(y, sizes, to))


def sweep_fill(ctx: Any, value: Any, y: Any) -> None:
    """Set every element of a view to one value, an operand of one element."""
    sweep_copy(ctx, np.broadcast_to(value.reshape(()) if value.ndim else value, y.shape), y)


def _flat(view: Any, shape: Sequence[int], strides: Sequence[int]) -> Any:
    """The same memory under another shape and other strides, which the caller has made of the view's own."""
    restrided = getattr(view, "restrided", None)
    if restrided is not None:
        return restrided(tuple(shape), tuple(strides))
    return strided(view, tuple(shape), tuple(strides), writeable=view.flags.writeable)
