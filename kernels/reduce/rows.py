"""What steps that reduce have in common: which axes are kept, operands with the kept axes first, scratch for rows.

A row is what is reduced at one place of the kept axes, in C order of the reduced axes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...primitives.errors import ArgumentError
from ...primitives.kernel import ArgSpec, Axis, IndexSpace
from ..indexing import AXES, check_rank

WIDTH = 256 * 1024  # bytes of scratch that rows which are no runs of memory are copied to, 16 at a time or fewer
REAL = ("f32", "f16", "bf16")


def check_axes(what: str, rank: int, axes: Sequence[int]) -> None:
    """Raise ArgumentError unless the axes are distinct, ascending and inside the rank."""
    check_rank(rank, what)
    if list(axes) != sorted(set(axes)) or any(not 0 <= a < rank for a in axes):
        raise ArgumentError(f"{what} of rank {rank} reduces axes {tuple(axes)}; distinct ones of 0 to {rank - 1} work")


def kept(rank: int, axes: Sequence[int]) -> tuple[int, ...]:
    """The axes that remain."""
    return tuple(d for d in range(rank) if d not in axes)


def row_space(rank: int, axes: Sequence[int]) -> IndexSpace:
    return IndexSpace(tuple(Axis(AXES[d], AXES[d].upper()) for d in kept(rank, axes)))


def data_spec(slot: str, dtype: str, rank: int, axes: Sequence[int], access: str = "read", **more: Any) -> ArgSpec:
    """Data of the full shape, which follows the kept axes."""
    return ArgSpec(
        slot,
        dtype,
        access,
        shape=tuple(AXES[d].upper() for d in range(rank)),
        follows=tuple(None if d in axes else AXES[d] for d in range(rank)),
        **more,
    )


def place_spec(slot: str, dtype: str, rank: int, axes: Sequence[int], keepdims: bool, **more: Any) -> ArgSpec:
    """A written value with one element for each row."""
    dims = [d for d in range(rank) if keepdims or d not in axes]
    return ArgSpec(
        slot,
        dtype,
        "write",
        shape=tuple(1 if d in axes else AXES[d].upper() for d in dims),
        follows=tuple(None if d in axes else AXES[d] for d in dims),
        **more,
    )


def arranged(x: Any, axes: Sequence[int]) -> Any:
    """A view with the kept axes first and the reduced ones last."""
    return np.transpose(x, (*kept(x.ndim, axes), *axes))


def places(y: Any, axes: Sequence[int], keepdims: bool) -> Any:
    """A view of one element for each row, without the axes that were kept with size 1."""
    if not keepdims or not axes:
        return y
    index: list[Any] = [0 if d in axes else slice(None) for d in range(y.ndim)]
    index.append(Ellipsis)  # a view of one element too
    return y[tuple(index)]


def scratch_for(ctx: Any, reduced: int, data: Sequence[Any], along: Sequence[Any] = (), spare: int = 0) -> Any:
    """Scratch for rows that are no runs of memory, and `spare` bytes before them.

    data   arranged operands
    along  operands that lie along a row
    """
    nbytes = 64 + (_padded(spare) if spare else 0)
    n = int(np.prod([int(s) for s in data[0].shape[data[0].ndim - reduced :]], dtype=object)) if reduced else 1
    if not all(is_run(x, reduced) for x in data):
        sizes = [_padded(n * x.itemsize) for x in data]
        nbytes += min(16, max(1, WIDTH // max(sum(sizes), 1))) * sum(sizes)
    nbytes += sum(_padded(n * x.itemsize) for x in along if not is_run(x, reduced))
    return ctx.scratch(nbytes)


def _padded(nbytes: int) -> int:
    return (nbytes + 127) // 64 * 64


def is_run(x: Any, reduced: int) -> bool:
    """Whether the last `reduced` axes are one run of memory."""
    step = x.itemsize
    for n, stride in reversed(list(zip(x.shape, x.strides, strict=True))[x.ndim - reduced :]):
        if n > 1 and stride != step:
            return False
        step *= n
    return True
