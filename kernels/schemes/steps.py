"""Schemes as pipeline steps: fit, encode, both at once, and decode. kernels/reference/schemes.py says what they compute."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ...primitives.errors import ArgumentError, CaptureError, ShapeMismatch
from ...primitives.kernel import ArgSpec, Axis, Follow, IndexSpace
from ...primitives.sizes import SizeLike
from ...primitives.storage import stored_as
from .definition import WHOLE, Definition

TABLE_SIZE = 2  # the status of a tile whose fit returned a table of another size
STATUSES = {TABLE_SIZE: (CaptureError, "fit returned an array of another size than the scheme's Table has")}


def _grid(scheme: Definition) -> tuple[SizeLike, SizeLike]:
    """Sizes of a parameter: how many blocks x has, down and across."""
    down, across = scheme.edges
    return (
        1 if down == WHOLE else "N" if down == 1 else f"ceildiv(N, {down})",
        1 if across == WHOLE else f"ceildiv(K, {across})",
    )


def parameter_specs(scheme: Definition, access: str, axis: str | None) -> list[ArgSpec]:
    """A slot for each parameter. `axis`: what its rows follow, where they follow one."""
    specs = []
    for parameter in scheme.stored:
        shape, follows = _grid(scheme), (axis, None)
        if parameter.table:
            shape, follows = (*shape, parameter.table), (*follows, None)  # type: ignore[assignment]
        specs.append(ArgSpec(f"p_{parameter.name}", parameter.dtype, access, shape=shape, follows=follows))
    return specs


@dataclass(frozen=True)
class _Step:
    scheme: Definition

    statuses: ClassVar[Mapping[int, Any]] = STATUSES

    @property
    def _rows_follow(self) -> str | None:
        """Whether parameters have a row for each row of the data."""
        return "n" if self.scheme.edges[0] == 1 else None

    def _x(self, slot: str = "x", access: str = "read", follow: Follow = "n") -> ArgSpec:
        return ArgSpec(slot, "f32", access, shape=("N", "K"), strides="rows", follows=(follow, None))

    def _codes(self, access: str) -> ArgSpec:
        row = f"ceildiv(ceildiv(K, {self.scheme.vector})*{self.scheme.bits}, 8)"
        if self.scheme.block_bytes is not None:
            row = f"ceildiv(K, {self.scheme.block})*{self.scheme.block_bytes}"
        return ArgSpec("codes", "u8", access, shape=("N", row), strides="rows", follows=("n", None))

    def index_space(self) -> IndexSpace:
        return IndexSpace((Axis("n", "N"),))

    def signature(self) -> tuple[ArgSpec, ...]:
        raise NotImplementedError

    def execute(self, ctx: Any) -> None:
        specs = self.signature()
        ctx.sweep(self, *(ctx.read(s.slot) if s.access == "read" else ctx.write(s.slot) for s in specs))


@stored_as("scheme_fit")
@dataclass(frozen=True)
class SchemeFit(_Step):
    """params = fit(x), for each block."""

    @property
    def name(self) -> str:
        return "scheme_fit"

    def __post_init__(self) -> None:
        if not self.scheme.params:
            raise ArgumentError(f"{self.scheme.name} has no parameters to fit")

    def signature(self) -> tuple[ArgSpec, ...]:
        rows = self._rows_follow
        return (self._x(follow=rows), *parameter_specs(self.scheme, "write", "n" if rows else "r"))

    def index_space(self) -> IndexSpace:
        if self._rows_follow:
            return IndexSpace((Axis("n", "N"),))
        return IndexSpace((Axis("r", _grid(self.scheme)[0]),))


@stored_as("scheme_encode")
@dataclass(frozen=True)
class SchemeEncode(_Step):
    """codes = encode(x, params)."""

    @property
    def name(self) -> str:
        return "scheme_encode" if self.scheme.block_bytes is None else "bytes_encode"

    def signature(self) -> tuple[ArgSpec, ...]:
        return (self._x(), *parameter_specs(self.scheme, "read", self._rows_follow), self._codes("write"))


@stored_as("scheme_quantize")
@dataclass(frozen=True)
class SchemeQuantize(_Step):
    """params = fit(x); codes = encode(x, params): one pass over x, for blocks inside a row."""

    @property
    def name(self) -> str:
        return "scheme_quantize"

    def __post_init__(self) -> None:
        if self.scheme.edges[0] != 1:
            raise ArgumentError(f"{self.scheme.name}: blocks of several rows are fitted before anything is encoded")

    def signature(self) -> tuple[ArgSpec, ...]:
        return (self._x(), *parameter_specs(self.scheme, "write", "n"), self._codes("write"))


@stored_as("scheme_decode")
@dataclass(frozen=True)
class SchemeDecode(_Step):
    """y = decode(codes, params).

    columns   K, which the packed codes alone do not tell
    """

    columns: int = 0

    @property
    def name(self) -> str:
        return "scheme_decode" if self.scheme.block_bytes is None else "bytes_decode"

    def signature(self) -> tuple[ArgSpec, ...]:
        down, across = self.scheme.edges
        rows: SizeLike = 1 if down == WHOLE else "N" if down == 1 else f"ceildiv(N, {down})"
        wide: SizeLike = min(self.columns, 1) if across == WHOLE else -(-self.columns // across)
        specs = []
        for parameter in self.scheme.stored:
            shape: tuple[SizeLike, ...] = (rows, wide)
            follows: tuple[Follow, ...] = (self._rows_follow, None)
            if parameter.table:
                shape, follows = (*shape, parameter.table), (*follows, None)
            specs.append(ArgSpec(f"p_{parameter.name}", parameter.dtype, shape=shape, follows=follows))
        return (
            ArgSpec(
                "codes", "u8", shape=("N", self.scheme.row_bytes(self.columns)), strides="rows", follows=("n", None)
            ),
            *specs,
            ArgSpec("y", "f32", "write", shape=("N", self.columns), strides="rows", follows=("n", None)),
        )

    def __post_init__(self) -> None:
        if self.columns < 0:
            raise ShapeMismatch(f"{self.scheme.name}: {self.columns} columns")


@stored_as("scheme_split")
@dataclass(frozen=True)
class SchemeSplit(_Step):
    """q, scale (and offset) = split(codes): blocks of bytes as a product takes them.

    columns   K, which the bytes alone do not tell
    """

    columns: int = 0

    @property
    def name(self) -> str:
        return "bytes_split"

    def __post_init__(self) -> None:
        if self.scheme.grouped is None:
            raise ArgumentError(f"{self.scheme.name} has no groups of integers to split its blocks into")

    def signature(self) -> tuple[ArgSpec, ...]:
        grouped = self.scheme.grouped
        assert grouped is not None
        groups = -(-self.columns // grouped.group)
        packed = -(-self.columns * grouped.bits // 8)

        def rows(slot: str, dtype: str, access: str, width: int) -> ArgSpec:
            return ArgSpec(slot, dtype, access, shape=("N", width), strides="rows", follows=("n", None))  # type: ignore[arg-type]

        specs = [
            rows("codes", "u8", "read", self.scheme.row_bytes(self.columns)),
            rows("q", "u8", "write", packed),
            rows("scale", "f32", "write", groups),
        ]
        if grouped.offset:
            specs.append(rows("offset", "f32", "write", groups))
        return tuple(specs)
