"""Scaled dot-product attention as a pipeline step. kernels/reference/attention.py says what it computes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ..primitives.errors import ArgumentError, ShapeMismatch
from ..primitives.kernel import ArgSpec, Axis, IndexSpace
from ..primitives.storage import stored_as
from . import checks
from .indexing import Index

ROWS = 64  # queries of one block
KEYS = 64  # keys of one block
LANES = 16
LAYOUTS = ("BHTD", "BTHD")


@stored_as("attention")
@dataclass(frozen=True)
class Attention:
    """y = softmax(q k^T * scale + mask) v for every batch and head, block of keys by block of keys.

    layout   of q, k, v and y: "BHTD" or "BTHD"
    groups   query heads that share a head of k and v
    mask     how an additive mask follows (b, h, i, j); None: there is none
    lengths  whether each batch has its own number of keys
    causal   query i sees keys 0 .. i + offset
    """

    data: ClassVar[str] = "f32"
    scales: ClassVar[tuple[str, ...]] = ()

    layout: str = "BHTD"
    groups: int = 1
    mask: Index | None = None
    lengths: bool = False
    causal: bool = False

    def __post_init__(self) -> None:
        checks.one_of("attention", "layout", self.layout, LAYOUTS)
        if self.groups < 1:
            raise ArgumentError(f"attention: {self.groups} heads to a group; at least 1 is needed")

    @property
    def name(self) -> str:
        return f"attention_{self.data}"

    def _spec(self, slot: str, head: str, time: str, depth: Any, dtype: str, access: str = "read") -> ArgSpec:
        follows: dict[str, str | None] = {
            "B": "b",
            "H": "h" if head == "H" else None,
            "T": "m" if time == "M" else None,
        }
        sizes = {"B": "B", "H": head, "T": time, "D": depth}
        return ArgSpec(
            slot,
            dtype,
            access,
            shape=tuple(sizes[c] for c in self.layout),
            follows=tuple(follows.get(c) for c in self.layout),
        )

    def signature(self) -> tuple[ArgSpec, ...]:
        places = {"q": ("H", "M", "D"), "k": ("G", "N", "D"), "v": ("G", "N", "E")}
        specs = [self._spec(slot, *sizes, dtype=self.data) for slot, sizes in places.items()]
        specs += [self._spec(f"{slot}_scale", *places[slot][:2], depth=1, dtype="f32") for slot in self.scales]
        if self.mask is not None:
            sizes, axes = ("B", "H", "M", "N"), ("b", "h", "m", None)
            specs.append(
                ArgSpec(
                    "mask",
                    "f32",
                    shape=tuple(1 if at is None else sizes[at[0]] for at in self.mask),
                    follows=tuple(None if at is None else axes[at[0]] for at in self.mask),
                )
            )
        if self.lengths:
            specs.append(ArgSpec("lengths", "s64", shape=("B",), follows=("b",)))
        if self.causal:
            specs.append(ArgSpec("offset", "s64", shape=()))
        specs += [ArgSpec("scale", "f32", shape=()), self._spec("y", "H", "M", "E", "f32", "write")]
        return tuple(specs)

    def index_space(self) -> IndexSpace:
        return IndexSpace((Axis("b", "B"), Axis("h", "H"), Axis("m", "M", multiple=ROWS)))

    def execute(self, ctx: Any) -> None:
        q, k, v, y = (self._heads_first(x) for x in (ctx.read("q"), ctx.read("k"), ctx.read("v"), ctx.write("y")))
        if k.shape[1] * self.groups != q.shape[1]:
            raise ShapeMismatch(
                f"attention: {q.shape[1]} heads of q and {k.shape[1]} of k; {self.groups} to a group asks for "
                f"{k.shape[1] * self.groups}"
            )
        more = [self._heads_first(ctx.read(f"{slot}_scale"))[..., 0] for slot in self.scales]
        more += self.limiting(ctx, (*q.shape[:3], k.shape[2]))
        scratch = ctx.scratch(self.scratch_bytes(k.shape[2], q.shape[3], v.shape[3]))
        ctx.sweep(self, q, k, v, *more, ctx.read("scale"), y, scratch)

    def limiting(self, ctx: Any, scores: tuple[int, ...]) -> list[Any]:
        """The operands that add to scores or say how far they go: mask, lengths and offset."""
        more = []
        if self.mask is not None:
            more.append(np.broadcast_to(ctx.read("mask"), scores))
        if self.lengths:
            more.append(ctx.read("lengths"))
        if self.causal:
            more.append(ctx.read("offset"))
        return more

    def _heads_first(self, x: Any) -> Any:
        return x if self.layout == "BHTD" else np.transpose(x, (0, 2, 1, 3))

    def cost(self, extents: Any, q: Any, k: Any, v: Any, *_: Any) -> float:
        """About the bytes that could have been moved meanwhile: two float32 products in the time of a byte."""
        return float(extents["b"] * extents["h"] * extents["m"] * k.shape[2] * (q.shape[3] + v.shape[3]) / 2)

    @staticmethod
    def scratch_bytes(keys: int, depth: int, width: int) -> int:
        """Packed keys and values of a head, a block of queries, of scores, of sums and of keys, and six numbers a query."""
        blocks, columns = -(-max(keys, 1) // KEYS), -(-width // LANES) * LANES
        packed = blocks * KEYS * (depth + columns)
        return 4 * (packed + ROWS * (depth + KEYS + columns) + KEYS * (depth + 1) + 6 * ROWS) + 1024


@stored_as("attention_codes")
@dataclass(frozen=True)
class AttentionCodes(Attention):
    """The same on s8 codes of q, k and v with a scale for each row of each; the weights of a block become u8 codes."""

    data: ClassVar[str] = "s8"
    scales: ClassVar[tuple[str, ...]] = ("q", "k", "v")

    @staticmethod
    def scratch_bytes(keys: int, depth: int, width: int) -> int:
        """Packed keys with their sums, packed values, a block of queries, scores, weights, sums twice, rows, and numbers."""
        blocks, columns = -(-max(keys, 1) // KEYS), -(-width // LANES) * LANES
        steps = -(-depth // 4) * 4
        packed = blocks * KEYS * (steps + columns + 4)
        blocks_of = ROWS * (steps + 5 * KEYS + 8 * columns) + KEYS * max(steps, columns)
        return packed + blocks_of + 4 * (3 * KEYS + 9 * ROWS) + steps + 1024
