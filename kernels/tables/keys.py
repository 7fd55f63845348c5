"""Keys found among keys: what joins and groups by any key are made of. kernels/reference/tables.py says what they compute."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ...primitives.errors import ArgumentError
from ...primitives.kernel import ArgSpec, Axis, IndexSpace
from ...primitives.storage import stored_as
from .. import checks

KEYS = ("s32", "s64")
TWICE, FULL = 1, 2
NANOSECOND = 28  # bytes that the executor takes a nanosecond of one thread for


@stored_as("key_table")
@dataclass(frozen=True)
class KeyTable:
    """A hash table of distinct keys and their places; made once where the keys are constants.

    bits   2**bits places, of which at most a quarter are taken
    """

    statuses: ClassVar[Mapping[int, Any]] = {TWICE: (ArgumentError, "a key is there twice; a join needs distinct keys")}

    dtype: str = "s64"
    bits: int = 4

    def __post_init__(self) -> None:
        checks.one_of("key_table", "keys", self.dtype, KEYS)

    @property
    def name(self) -> str:
        return "key_table"

    def signature(self) -> tuple[ArgSpec, ...]:
        return (
            ArgSpec("keys", self.dtype, shape=("K",)),
            ArgSpec("table", "s64", "write", shape=(2**self.bits, 2), strides="contiguous"),
        )

    def index_space(self) -> IndexSpace:
        return IndexSpace((Axis("k", 1, split=False),))

    def execute(self, ctx: Any) -> None:
        ctx.sweep(self, ctx.read("keys"), ctx.write("table"))


@stored_as("key_find")
@dataclass(frozen=True)
class KeyFind:
    """y[i] = the place of keys[i] among the table's keys, or -1."""

    dtype: str = "s64"

    def __post_init__(self) -> None:
        checks.one_of("key_find", "keys", self.dtype, KEYS)

    @property
    def name(self) -> str:
        return "key_find"

    def signature(self) -> tuple[ArgSpec, ...]:
        return (
            ArgSpec("keys", self.dtype, shape=("N",), follows=("n",)),
            ArgSpec("table", "s64", shape=("T", 2), strides="contiguous"),
            ArgSpec("y", "s32", "write", shape=("N",), follows=("n",)),
        )

    def index_space(self) -> IndexSpace:
        return IndexSpace((Axis("n", "N"),))

    def execute(self, ctx: Any) -> None:
        ctx.sweep(self, ctx.read("keys"), ctx.read("table"), ctx.write("y"))

    def cost(self, extents: Mapping[str, int], *operands: Any) -> float:
        return 3.0 * NANOSECOND * extents["n"]


@stored_as("key_codes")
@dataclass(frozen=True)
class KeyCodes:
    """y[i] = the number of keys[i] among all keys that ever came, in the order in which they first came.

    table   (2**bits, 2): the hash table, kept from run to run; found: the keys by number; used: how many there are
    """

    statuses: ClassVar[Mapping[int, Any]] = {FULL: (ArgumentError, "there are more distinct keys than `most`")}

    dtype: str = "s64"
    where: bool = False
    valid: bool = False

    def __post_init__(self) -> None:
        checks.one_of("key_codes", "keys", self.dtype, KEYS)

    @property
    def name(self) -> str:
        return "key_codes"

    def signature(self) -> tuple[ArgSpec, ...]:
        return (
            ArgSpec("keys", self.dtype, shape=("N",)),
            *([ArgSpec("where", "bool", shape=("N",))] if self.where else []),
            *([ArgSpec("valid", "s64", shape=())] if self.valid else []),
            ArgSpec("table", "s64", "update", shape=("T", 2), strides="contiguous"),
            ArgSpec("found", "s64", "update", shape=("M",), strides="contiguous"),
            ArgSpec("used", "s64", "update", shape=(1,)),
            ArgSpec("y", "s32", "write", shape=("N",)),
        )

    def index_space(self) -> IndexSpace:
        return IndexSpace((Axis("n", 1, split=False),))

    def execute(self, ctx: Any) -> None:
        specs = self.signature()
        ctx.sweep(self, *(ctx.read(s.slot) if s.access == "read" else ctx.write(s.slot) for s in specs))
