"""How an operand of an element-by-element step follows the index space."""

from __future__ import annotations

from collections.abc import Sequence

from ..primitives import sizes
from ..primitives.errors import LayoutError, ShapeMismatch
from ..primitives.kernel import ArgSpec, Axis, Follow, IndexSpace
from ..primitives.sizes import Shape, Size

AXES = "ijklmnopqrst"  # names of a step's axes, outermost first; its sizes are the same letters in upper case

Index = tuple["tuple[int, int] | None", ...]
"""Per dimension of an operand: (axis, block), it is read at the axis' index // block; None, it has size 1."""


def check_rank(rank: int, what: str) -> None:
    if rank > len(AXES):
        raise LayoutError(f"{what} has rank {rank}; at most {len(AXES)} dimensions work")


def whole(rank: int) -> Index:
    """The index of data that has every axis."""
    check_rank(rank, "data of an element-by-element step")
    return tuple((d, 1) for d in range(rank))


def shape_of(index: Index) -> tuple[int | str, ...]:
    """The sizes that an ArgSpec asks for: the letters of the axes, divided by the blocks."""
    return tuple(1 if at is None else _size(AXES[at[0]].upper(), at[1]) for at in index)


def _size(letter: str, block: int) -> str:
    return letter if block == 1 else f"ceildiv({letter}, {block})"


def follows(index: Index) -> tuple[Follow, ...]:
    """Per dimension of the operand, which axis it follows: only those that do one to one."""
    return tuple(AXES[at[0]] if at is not None and at[1] == 1 else None for at in index)


def index_space(rank: int) -> IndexSpace:
    return IndexSpace(tuple(Axis(a, a.upper()) for a in AXES[:rank]))


def spec(slot: str, dtype: str | tuple[str, ...], index: Index, access: str = "read", **more: object) -> ArgSpec:
    """The ArgSpec of an operand with this index."""
    return ArgSpec(slot, dtype, access, shape=shape_of(index), follows=follows(index), **more)  # type: ignore[arg-type]


def broadcast(shapes: Sequence[Shape], what: str) -> tuple[Shape, list[Index]]:
    """The common shape of operands, and the index of each of them in it, by NumPy's rule.

    A size known only at run time stands for itself: it is never taken for 1.
    Raises ShapeMismatch where two sizes are neither equal nor 1.
    """
    rank = max((len(s) for s in shapes), default=0)
    check_rank(rank, what)
    common: list[int | Size] = []
    for d in range(rank):
        found = [s[d - rank + len(s)] for s in shapes if d - rank + len(s) >= 0]
        others = [n for n in found if n != 1]
        if len({n for n in others if isinstance(n, int)}) > 1:
            shown = " and ".join(sizes.show(s) for s in shapes)
            raise ShapeMismatch(f"{what} has operands {shown}: axis {d - rank} differs; sizes must be equal or 1")
        common.append(next((n for n in others if isinstance(n, int)), others[0] if others else 1))
    indices: list[Index] = []
    for s in shapes:
        lead = rank - len(s)
        indices.append(tuple(None if n == 1 and common[lead + d] != 1 else (lead + d, 1) for d, n in enumerate(s)))
    return tuple(common), indices


def parameter(
    shape: Shape, data: Shape, axis: int | tuple[int, int] | None, block: int | tuple[int, int] | None, what: str
) -> Index:
    """How scales or zero points of this shape lie over the data, for an axis and a block as in QuantParams.

    One value is one for all. Without an axis the shape is broadcast by NumPy's rule: (N,) goes along the last axis,
    (M, 1) is one a row. With an axis it is (C,), or has the rank of the data and size 1 elsewhere. With a block it has
    the rank of the data, the blocked axes counting blocks.
    Raises ShapeMismatch where the rank fits none of these, or an axis is out of range.
    """
    rank = len(data)
    if all(n == 1 for n in shape) and len(shape) <= max(rank, 1):
        return (None,) * len(shape)
    if block is not None:
        blocks, axes = block if isinstance(block, tuple) else (block,), axis if isinstance(axis, tuple) else (axis,)
        if isinstance(block, tuple) and axis is None:
            axes = (-2, -1)
        if len(shape) != rank or len(axes) != len(blocks) or None in axes:
            raise ShapeMismatch(
                f"{what} has shape {sizes.show(shape)} for blocks {block} along axis {axis} of data "
                f"{sizes.show(data)}; it has the rank of the data, the blocked axes counting blocks"
            )
        size_of = {_axis(a, rank, what): b for a, b in zip(axes, blocks, strict=True)}
        for b in blocks:
            if b != -1 and not 1 <= b < 2**31:
                raise ShapeMismatch(
                    f"{what}: block {b} is no number of elements; 1 to 2**31 - 1, or -1 for the whole axis"
                )
        return tuple(None if n == 1 and data[d] != 1 else (d, size_of.get(d, 1)) for d, n in enumerate(shape))
    if axis is not None:
        if isinstance(axis, tuple):
            raise ShapeMismatch(f"{what}: axis {axis} names two axes, which needs block=(rows, columns)")
        along = _axis(axis, rank, what)
        if len(shape) == 1:
            return ((along, 1),)
        if len(shape) == rank and all(n == 1 for d, n in enumerate(shape) if d != along):
            return tuple((d, 1) if d == along else None for d in range(rank))
        raise ShapeMismatch(
            f"{what} has shape {sizes.show(shape)}; along axis {axis} of data {sizes.show(data)} it is one-dimensional"
        )
    if len(shape) > rank:
        raise ShapeMismatch(f"{what} has shape {sizes.show(shape)}, which does not fit data {sizes.show(data)}")
    lead = rank - len(shape)
    for d, n in enumerate(shape):
        m = data[lead + d]
        if n != 1 and isinstance(n, int) and isinstance(m, int) and n != m:
            raise ShapeMismatch(
                f"{what} has shape {sizes.show(shape)}, which does not fit data {sizes.show(data)}: axis {lead + d} is "
                f"{m}; give one value, one for each index of the last axis, or axis="
            )
    return tuple(None if n == 1 and data[lead + d] != 1 else (lead + d, 1) for d, n in enumerate(shape))


def _axis(axis: int | None, rank: int, what: str) -> int:
    if axis is None or not -rank <= axis < rank:
        raise ShapeMismatch(f"{what}: axis {axis} is out of range for {rank} dimensions; {-rank} to {rank - 1}")
    return axis % rank
