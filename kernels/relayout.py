"""Images turned between channels first and channels last, and steps that are told of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ..primitives.kernel import ArgSpec, Axis, Follow, IndexSpace
from ..primitives.pipeline import Value
from .elementwise import Add, AddQuantized, Clip, Elementwise, QuantizedElementwise, Relu
from .indexing import Index
from .lookup import Lookup
from .map import Map
from .moving.resize import Resize
from .quantize import Dequantize, Quantize
from .requantize import Requantize
from .window import PLACES, SPATIAL, canonical

# The fields of element-wise steps that say how an operand follows the axes of the result, and those that hold several.
_INDICES: dict[type, tuple[str, ...]] = {
    Add: ("a", "b"),
    AddQuantized: ("a", "b"),
    Clip: ("lo", "hi"),
    Dequantize: ("scale", "zero_point"),
    Lookup: (),
    Elementwise: (),
    Map: (),
    QuantizedElementwise: (),
    Quantize: ("scale", "zero_point"),
    Relu: ("zero_point",),
    Requantize: ("multiplier", "zero_point"),
}
_SEVERAL: dict[type, tuple[str, ...]] = {
    AddQuantized: ("params",),
    Elementwise: ("indices",),
    Map: ("indices",),
    QuantizedElementwise: ("indices", "params"),
}


@dataclass(frozen=True)
class Relayout:
    """An image of any type turned to channels last, or back to channels first.

    rank   of the image: 3, 4 or 5
    last   whether the result has its channels last; else the image has
    """

    own_tiles: ClassVar[tuple[str, ...]] = ("mr", "nr", "band", "o")  # of the convolution between two of them

    dtype: str
    rank: int
    last: bool

    @property
    def name(self) -> str:
        return f"relayout_{self.dtype}"

    @property
    def layouts(self) -> tuple[str, str]:
        """Of the image and of the result."""
        inner = SPATIAL[self.rank - 2]
        both = (f"NC{inner}", f"N{inner}C")
        return both if self.last else (both[1], both[0])

    def signature(self) -> tuple[ArgSpec, ...]:
        x, y = self.layouts
        return (
            ArgSpec("x", self.dtype, shape=tuple(x), follows=self._follows(x)),
            ArgSpec("y", self.dtype, "write", shape=tuple(y), follows=self._follows(y)),
        )

    def _follows(self, layout: str) -> tuple[Follow, ...]:
        found: dict[str, Follow] = {"N": "n", "C": None}
        for letter, place in zip(SPATIAL[self.rank - 2], PLACES[self.rank - 2], strict=True):
            found[letter] = None if place == 2 else "dh"[place]
        return tuple(found[letter] for letter in layout)

    def index_space(self) -> IndexSpace:
        sizes: list[Any] = [1, 1, 1]
        for letter, place in zip(SPATIAL[self.rank - 2], PLACES[self.rank - 2], strict=True):
            sizes[place] = letter
        return IndexSpace((Axis("n", "N"), Axis("d", sizes[0], split=self.rank == 5), Axis("h", sizes[1])))

    def undoes(self, other: Any) -> bool:
        """Whether this step gives back what the other one was given."""
        return isinstance(other, Relayout) and other == replace(self, last=not self.last)

    def execute(self, ctx: Any) -> None:
        x, y = self.layouts
        ctx.sweep(self, canonical(ctx.read("x"), x), canonical(ctx.write("y"), y))


def turned(pipe: Any, value: Value, last: bool) -> Value:
    """The value with its channels last, or first. What was only just turned the other way is taken as it was before."""
    assert value.dtype is not None
    kernel = Relayout(value.dtype.name, value.ndim, last)
    if value.producer is not None and kernel.undoes(value.producer[0].kernel):
        before: Value = value.producer[0].inputs["x"]
        return before
    made: Value = pipe.add(kernel, x=value)
    made.axes = kernel.layouts[1]
    return made


def channels_last(layout: str) -> str:
    """The layout of the same rank with channels last."""
    return f"N{SPATIAL[len(layout) - 2]}C"


def permuted(kernel: Any, rank: int) -> Any:
    """An element-wise step, or a resize, of an image with channels first as it is of one with channels last.

    None if unknown. Operands that have the rank of the image are turned too (`turned`); others keep their shape and
    follow other axes.
    """
    if getattr(kernel, "rank", rank) != rank:
        return None
    if isinstance(kernel, Resize):
        place = _places(rank)
        size = re.sub(r"\bI(\d+)\b", lambda found: f"I{place[int(found[1])]}", str(kernel.size))
        return replace(kernel, axis=place[kernel.axis], size=kernel.size if isinstance(kernel.size, int) else size)
    if type(kernel) not in _INDICES:
        return None
    fields: dict[str, Any] = {name: moved(getattr(kernel, name), rank) for name in _INDICES[type(kernel)]}
    for several in _SEVERAL.get(type(kernel), ()):
        fields[several] = tuple(moved(index, rank) for index in getattr(kernel, several))
    return replace(kernel, **fields) if fields else kernel


def pushed(pipe: Any, kernel: Any, operands: Mapping[str, Any], name: str) -> Value | None:
    """A step that `permuted` knows, over images that were turned to channels first: run before they are, and turned
    itself.

    So neighbours on both sides meet channels last. None where an image is not so, and the step is left as it is.
    """
    rank = getattr(kernel, "rank", 0)
    images = {
        slot: v for slot, v in operands.items() if isinstance(v, Value) and v.ndim == rank and v.kind != "constant"
    }
    if rank not in (3, 4, 5) or permuted(kernel, rank) is None or not images:
        return None
    if not all(v.producer and Relayout(str(v.dtype), rank, True).undoes(v.producer[0].kernel) for v in images.values()):
        return None
    turned_kernel = permuted(kernel, rank)
    last = {
        slot: turned(pipe, v, last=True) if isinstance(v, Value) and v.ndim == rank else v
        for slot, v in operands.items()
    }
    result = pipe.add(turned_kernel, step_name=name, **last)
    return turned(pipe, result, last=False)


def drop_turned(pipe: Any, wanted: set[int]) -> set[str]:
    """Take out turned images that nothing reads; returns the steps' names. wanted: ids of values that are kept anyhow."""
    dropped: set[str] = set()
    while True:
        read = wanted | {id(v) for step in pipe.steps for v in step.inputs.values()}
        idle = [s for s in pipe.steps if isinstance(s.kernel, Relayout) and id(s.outputs["y"]) not in read]
        if not idle:
            return dropped
        for step in idle:
            pipe.steps.remove(step)
            dropped.add(step.name)


def _places(rank: int) -> dict[int, int]:
    """Where each axis lies once channels are last."""
    return {0: 0, 1: rank - 1, **{d: d - 1 for d in range(2, rank)}}


def moved(index: Index, rank: int) -> Index:
    """How an operand follows the axes once channels are last."""
    place = _places(rank)
    found = tuple(at and (place[at[0]], at[1]) for at in index)
    if len(index) == rank:
        found = (found[0], *found[2:], found[1])
    return found
