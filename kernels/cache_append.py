"""Writing new rows into a cache that lives from run to run. kernels/reference/cache_append.py says what it does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ..primitives.errors import ArgumentError
from ..primitives.kernel import ArgSpec, Axis, IndexSpace
from ..primitives.storage import stored_as
from . import checks

TYPES = ("f32", "f16", "bf16", "s8", "u8", "f8e4m3fn", "f8e5m2", "e8m0fnu")
FULL = 1  # status: a row would lie outside of the cache


@dataclass(frozen=True)
class Rows:
    """Of an update slot only rows are written: from the number at slot `start`, as many as `new` has along the axis."""

    slot: str
    axis: int
    start: str
    new: str


@stored_as("cache_append")
@dataclass(frozen=True)
class CacheAppend:
    """cache[b, g, position + t] = new[b, g, t], in place, for every t."""

    appends: ClassVar[Rows] = Rows("cache", 2, "position", "new")

    dtype: str = "f32"

    def __post_init__(self) -> None:
        checks.one_of("cache_append", "dtype", self.dtype, TYPES)

    @property
    def name(self) -> str:
        return f"cache_append_{self.dtype}"

    @property
    def statuses(self) -> Mapping[int, tuple[type[Exception], str]]:
        return {
            FULL: (ArgumentError, "the new rows end behind the cache, or begin before it; nothing was written there")
        }

    def signature(self) -> tuple[ArgSpec, ...]:
        follows = ("b", "g", None, None)
        return (
            ArgSpec("new", self.dtype, shape=("B", "G", "T", "D"), follows=follows),
            ArgSpec("position", "s64", shape=()),
            ArgSpec("cache", self.dtype, "update", shape=("B", "G", "C", "D"), follows=follows),
        )

    def index_space(self) -> IndexSpace:
        return IndexSpace((Axis("b", "B"), Axis("g", "G")))

    def execute(self, ctx: Any) -> None:
        ctx.sweep(self, ctx.read("new"), ctx.read("position"), ctx.write("cache"))
