"""Steps that are one view copied to another: reshape, transpose, slice, expand, tile, and depth to space and back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...primitives.errors import ArgumentError, ShapeMismatch
from ...primitives.kernel import ArgSpec, IndexSpace
from ...primitives.sizes import floordiv, maximum, size
from ...primitives.storage import stored_as
from ..indexing import check_rank
from .copy import sweep_copy
from .relative import Extent, letters


class _View:
    """A step that copies a view of x to a view of y."""

    dtype: str
    rank: int
    likes: tuple[
        tuple[str, int], ...
    ] = ()  # type and rank of operands that are only measured: their sizes are J.., K..

    def index_space(self) -> IndexSpace:
        return IndexSpace(())

    def signature(self) -> tuple[ArgSpec, ...]:
        return (
            ArgSpec("x", self.dtype, shape=letters(self.rank)),
            *(ArgSpec(f"like{n}", t, shape=letters(rank, "JK"[n])) for n, (t, rank) in enumerate(self.likes)),
            ArgSpec("y", self.dtype, "write", shape=self.result()),
        )

    def result(self) -> tuple[Extent, ...]:
        """The shape of y, in the sizes of x; each step has its own."""
        raise NotImplementedError

    def execute(self, ctx: Any) -> None:
        x, y = self.views(ctx.read("x"), ctx.write("y"))
        sweep_copy(ctx, x, y)

    def views(self, x: Any, y: Any) -> tuple[Any, Any]:
        """The views of x and y, of one shape, that the step copies between; each step has its own."""
        raise NotImplementedError


@stored_as("reshape")
@dataclass(frozen=True)
class Reshape(_View):
    """The elements of x, in row-major order, under another shape.

    shape   sizes of the result, ints or expressions of I0, I1, ..: the sizes of x
    """

    dtype: str = "f32"
    rank: int = 2
    shape: tuple[Extent, ...] = ("I0*I1",)
    likes: tuple[tuple[str, int], ...] = ()

    @property
    def name(self) -> str:
        return "reshape"

    def result(self) -> tuple[Extent, ...]:
        return self.shape

    def views(self, x: Any, y: Any) -> tuple[Any, Any]:
        if x.size != y.size:
            raise ShapeMismatch(f"reshape of {tuple(x.shape)} to {tuple(y.shape)}: {x.size} and {y.size} elements")
        if _contiguous(y):
            return x, y.reshape(x.shape)
        return x.reshape(y.shape), y


def _contiguous(a: Any) -> bool:
    step = a.dtype.itemsize
    for n, stride in zip(reversed(a.shape), reversed(a.strides), strict=True):
        if n != 1 and stride != step:
            return False
        step *= n
    return True


@stored_as("transpose")
@dataclass(frozen=True)
class Transpose(_View):
    """Axis d of the result is axis perm[d] of x."""

    dtype: str = "f32"
    perm: tuple[int, ...] = (1, 0)

    def __post_init__(self) -> None:
        check_rank(len(self.perm), "transpose")
        if sorted(self.perm) != list(range(len(self.perm))):
            raise ArgumentError(f"transpose: perm {self.perm} is no order of the axes 0 to {len(self.perm) - 1}")

    @property
    def name(self) -> str:
        return "transpose"

    @property
    def rank(self) -> int:  # type: ignore[override]
        return len(self.perm)

    def result(self) -> tuple[Extent, ...]:
        return tuple(f"I{d}" for d in self.perm)

    def views(self, x: Any, y: Any) -> tuple[Any, Any]:
        return x.transpose(self.perm), y


@stored_as("slice")
@dataclass(frozen=True)
class Slice(_View):
    """x[start:stop:step] along each axis, counted as ONNX's Slice does.

    cuts   per axis (start, stop, step), or None for the whole of it; negative starts and stops count from the end,
           what lies outside is clamped; a stop below -size with a negative step runs to the first element
    """

    dtype: str = "f32"
    rank: int = 2
    cuts: tuple[tuple[int, int, int] | None, ...] = (None, None)

    def __post_init__(self) -> None:
        if len(self.cuts) != self.rank:
            raise ArgumentError(f"slice: {len(self.cuts)} cuts for {self.rank} axes")
        if any(cut is not None and cut[2] == 0 for cut in self.cuts):
            raise ArgumentError("slice: a step is 0; a positive or negative one works")

    @property
    def name(self) -> str:
        return "slice"

    def result(self) -> tuple[Extent, ...]:
        return tuple(f"I{d}" if cut is None else _length(f"I{d}", *cut) for d, cut in enumerate(self.cuts))

    def views(self, x: Any, y: Any) -> tuple[Any, Any]:
        parts = []
        for n, cut in zip(x.shape, self.cuts, strict=True):
            if cut is None:
                parts.append(slice(None))
                continue
            start, stop, step = clamp(n, *cut)
            parts.append(slice(start, stop if stop >= 0 else None, step) if n else slice(0, 0))
        return x[tuple(parts)], y


def clamp(n: int, start: int, stop: int, step: int) -> tuple[int, int, int]:
    """Start and stop inside an axis of n elements; stop -1 is before the first."""
    start, stop = (bound + n if bound < 0 else bound for bound in (start, stop))
    if step > 0:
        start, stop = (max(0, min(bound, n)) for bound in (start, stop))
        return start, max(start, stop), step
    start, stop = max(0, min(start, n - 1)), max(-1, min(stop, n - 1))
    return start, min(start, stop), step


def _length(letter: str, start: int, stop: int, step: int) -> Extent:
    """How many elements a cut takes, as an expression of the axis' size."""
    n = size(letter)

    def least(a: Any, b: Any) -> Any:
        return a + b - maximum(a, b)

    def place(bound: int) -> Any:
        return n + bound if bound < 0 else bound

    if step == 1 and 0 <= start and stop >= 2**31 - 1:
        return str(maximum(0, n - start)) if start else letter
    if step > 0:
        first = least(maximum(place(start), 0), n) if start else 0
        last = n if stop >= 2**31 - 1 else least(maximum(place(stop), 0), n)
        count = maximum(0, last - first)
    else:
        first = n - 1 if start >= 2**31 - 1 or start == -1 else maximum(0, least(place(start), n - 1))
        last = -1 if stop <= -(2**31) + 1 else maximum(-1, least(place(stop), n - 1))
        count = maximum(0, first - last)
    length = floordiv(count + (abs(step) - 1), abs(step))
    return length if isinstance(length, int) else str(length)


@stored_as("expand")
@dataclass(frozen=True)
class Expand(_View):
    """x broadcast to a shape by NumPy's rule.

    shape   of the result, ints or expressions of the sizes of x
    """

    dtype: str = "f32"
    rank: int = 2
    shape: tuple[Extent, ...] = ("I0", "I1")
    likes: tuple[tuple[str, int], ...] = ()

    @property
    def name(self) -> str:
        return "expand"

    def result(self) -> tuple[Extent, ...]:
        return self.shape

    def views(self, x: Any, y: Any) -> tuple[Any, Any]:
        lead = len(y.shape) - len(x.shape)
        for d, n in enumerate(x.shape):
            if n not in (1, y.shape[lead + d]):
                raise ShapeMismatch(f"expand of {tuple(x.shape)} to {tuple(y.shape)}: axis {d} has {n}, which is not 1")
        return np.broadcast_to(x, y.shape), y


@stored_as("tile")
@dataclass(frozen=True)
class Tile(_View):
    """x repeated along each axis."""

    dtype: str = "f32"
    repeats: tuple[int, ...] = (1, 1)

    def __post_init__(self) -> None:
        if any(n < 0 for n in self.repeats):
            raise ArgumentError(f"tile: repeats {self.repeats}; none may be negative")

    @property
    def name(self) -> str:
        return "tile"

    @property
    def rank(self) -> int:  # type: ignore[override]
        return len(self.repeats)

    def result(self) -> tuple[Extent, ...]:
        return tuple(f"I{d}" if n == 1 else f"{n}*I{d}" for d, n in enumerate(self.repeats))

    def views(self, x: Any, y: Any) -> tuple[Any, Any]:
        inside = tuple(part for n, r in zip(x.shape, self.repeats, strict=True) for part in (r, n))
        spread = x[tuple(part for _ in x.shape for part in (None, slice(None)))]
        return np.broadcast_to(spread, inside), y.reshape(inside)


@stored_as("rearrange")
@dataclass(frozen=True)
class Rearrange(_View):
    """Axes split, put in another order, and joined: depth to space, space to depth, channel shuffles.

    split   per axis of x, the factors that it is cut into, outermost first; 0 stands for what is left
    perm    the order of the factors, counted over all axes
    join    how many of them, one after another, make each axis of the result
    """

    dtype: str = "f32"
    split: tuple[tuple[int, ...], ...] = ((0,), (0,))
    perm: tuple[int, ...] = (0, 1)
    join: tuple[int, ...] = (1, 1)

    @property
    def name(self) -> str:
        return "rearrange"

    @property
    def rank(self) -> int:  # type: ignore[override]
        return len(self.split)

    def _factors(self, shape: Any) -> list[Any]:
        found: list[Any] = []
        for n, factors in zip(shape, self.split, strict=True):
            fixed = int(np.prod([f for f in factors if f], dtype=np.int64))
            if isinstance(n, int) and n % fixed:
                raise ShapeMismatch(f"{self.name}: an axis of {n} elements is not divided by {fixed}")
            found += [f or floordiv(n, fixed) for f in factors]
        return found

    def result(self) -> tuple[Extent, ...]:
        factors = self._factors([size(letter) for letter in letters(self.rank)])
        ordered = [factors[p] for p in self.perm]
        found: list[Extent] = []
        for count in self.join:
            product: Any = 1
            for factor in ordered[:count]:
                product = factor * product
            ordered = ordered[count:]
            found.append(product if isinstance(product, int) else str(product))
        return tuple(found)

    def views(self, x: Any, y: Any) -> tuple[Any, Any]:
        factors = self._factors(x.shape)
        return x.reshape(factors).transpose(self.perm), y.reshape([factors[p] for p in self.perm])
