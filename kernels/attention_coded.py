"""Attention over a cache that stays in a scheme's codes: keys and values are decoded a block at a time, as they are read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..primitives.errors import LayoutError, ShapeMismatch
from ..primitives.kernel import ArgSpec
from ..primitives.storage import stored_as
from .attention import Attention
from .schemes.definition import Definition


@stored_as("attention_coded")
@dataclass(frozen=True)
class AttentionCoded(Attention):
    """attention(q, decode(k), decode(v)), with the bits of decoding first.

    scheme   of keys and values: blocks within a row
    columns  D, elements of a row
    """

    scheme: Definition | None = None
    columns: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.layout != "BHTD":
            raise LayoutError(f"attention: layout {self.layout!r} over coded rows; 'BHTD' works")

    @property
    def name(self) -> str:
        return "attention_coded"

    @property
    def definition(self) -> Definition:
        assert self.scheme is not None
        return self.scheme

    def slots(self, which: str) -> tuple[str, ...]:
        """Of k or v: codes, then each parameter."""
        return (which, *(f"{which}_{p.name}" for p in self.definition.stored))

    def signature(self) -> tuple[ArgSpec, ...]:
        scheme = self.definition
        q, _, _, *others = super().signature()
        blocks = scheme.grid(1, self.columns)[1]
        widths = [("u8", scheme.row_bytes(self.columns)), *((p.dtype, blocks) for p in scheme.stored)]
        rows = [
            ArgSpec(slot, dtype, shape=("B", "G", "N", width), follows=("b", None, None, None))
            for which in "kv"
            for slot, (dtype, width) in zip(self.slots(which), widths, strict=True)
        ]
        return (q, *rows, *others)

    def infer(self, shapes: Any, values: Any) -> dict[str, Any]:
        b, h, m, depth = shapes["q"]
        if depth != self.columns:
            raise ShapeMismatch(f"attention: q has rows of {depth} and the cache of {self.columns}; equal ones work")
        return {"y": (b, h, m, self.columns)}

    def execute(self, ctx: Any) -> None:
        q, y = ctx.read("q"), ctx.write("y")
        rows = [ctx.read(slot) for which in "kv" for slot in self.slots(which)]
        groups, keys = rows[0].shape[1:3]
        if groups * self.groups != q.shape[1]:
            raise ShapeMismatch(
                f"attention: {q.shape[1]} heads of q and {groups} of k; {self.groups} to a group asks for "
                f"{groups * self.groups}"
            )
        more = self.limiting(ctx, (*q.shape[:3], keys))
        scratch = ctx.scratch(self.scratch_bytes(keys, self.columns, self.columns))
        ctx.sweep(self, q, *rows, *more, ctx.read("scale"), y, scratch)

    def cost(self, extents: Any, q: Any, k: Any, *_: Any) -> float:
        """As that of attention, and decoding as much again for each row of a cache."""
        return float(extents["b"] * extents["h"] * (extents["m"] + 1) * k.shape[2] * self.columns)


def fuses(scheme: Definition) -> bool:
    """Whether rows of a scheme are decoded inside of attention: by a plain function that does not ask where they lie."""
    return (
        scheme.block_bytes is None
        and not scheme.nested
        and scheme.edges[0] == 1
        and not any(p.table for p in scheme.stored)
        and not scheme.decode_takes_index
    )
