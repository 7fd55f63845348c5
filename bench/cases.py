"""The GEMM shapes that are timed, and the data for them. Tests read the same table, so what is timed is what is checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ..primitives.errors import ArgumentError

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Shape:
    """C (M, N) = A (M, K) times B (K, N)."""

    M: int
    K: int
    N: int

    def __str__(self) -> str:
        return f"{self.M}x{self.K}x{self.N}"

    @classmethod
    def parse(cls, text: str) -> Shape:
        """From "MxKxN"."""
        parts = text.lower().split("x")
        if len(parts) != 3 or not all(p.isdigit() and int(p) for p in parts):
            raise ArgumentError(f"shape {text!r}: MxKxN is needed, three positive integers, like 256x768x3072")
        return cls(*map(int, parts))

    @property
    def operations(self) -> int:
        """Multiplications and additions."""
        return 2 * self.M * self.K * self.N


@dataclass(frozen=True)
class Group:
    """Shapes that one thing limits.

    calls     ways to call a plan: "bind" (checked once) and "run" (checked each time)
    least     what the ratio to the best peer should be at least, for each shape; `exempt` has its own
    mean      geometric mean of the ratios that is wanted, by output
    rotated   also with weights that come from beyond the last cache
    """

    name: str
    shapes: tuple[Shape, ...]
    least: float
    mean: Mapping[str, float]
    exempt: Mapping[Shape, float] = field(default_factory=dict)
    calls: tuple[str, ...] = ("bind",)
    rotated: bool = False

    def wanted(self, shape: Shape, call: str) -> float:
        """The least ratio that is wanted of a shape. A checked call has to be level with the peer."""
        return 1.0 if call == "run" else self.exempt.get(shape, self.least)


def _shapes(*sizes: tuple[int, int, int]) -> tuple[Shape, ...]:
    return tuple(Shape(*size) for size in sizes)


OUTPUTS = ("s32", "u8")  # the accumulators, or fused: bias, a multiplier for each column, relu
GROUPS: dict[str, Group] = {
    group.name: group
    for group in (
        Group(
            "compute",
            _shapes(
                (1024, 1024, 1024),
                (2048, 2048, 2048),
                (512, 512, 512),
                (256, 768, 3072),  # BERT-base, first layer of the feed-forward part
                (128, 3072, 768),
                (32, 4096, 4096),
                (197, 384, 384),  # ViT-S
                (197, 384, 1536),
                (50, 768, 768),
                (127, 511, 513),  # off every tile
                (3136, 64, 64),  # ResNet-50's 1 x 1
                (784, 1152, 128),
                (49, 4608, 512),
            ),
            1.02,
            {"s32": 1.10, "u8": 1.18},
        ),
        Group(
            "overhead",
            _shapes((64, 64, 64), (100, 27, 32), (10000, 16, 16), (8, 8, 8), (4, 1024, 1024), (16, 64, 256)),
            1.5,
            {"s32": 2.2, "u8": 2.5},
            {Shape(4, 1024, 1024): 1.25},
            ("bind", "run"),
        ),
        Group(
            "memory",
            _shapes((1, 4096, 4096), (2, 4096, 4096), (8, 4096, 4096), (1, 768, 3072), (1, 4096, 14336)),
            1.0,
            {"s32": 1.25, "u8": 1.25},
            rotated=True,
        ),
    )
}
PEAK = _shapes((1024, 1024, 1024), (256, 768, 3072), (128, 3072, 768))  # held against the peak of the registers
TINY = Shape(8, 8, 8)
CHECKED_OVER = 5e-6  # seconds; a checked call is held against peers that take longer than this


@dataclass(frozen=True)
class Case:
    """Operands of one GEMM: a u8, b s8, and what the fused form needs besides.

    multiplier  f32 (N,): about the size that spreads the results over all codes
    bias        s32 (N,)
    """

    shape: Shape
    a: Array
    b: Array
    bias: Array
    multiplier: Array
    weight_bits: int = 8
    a_zero_point: int = 121
    y_zero_point: int = 9

    @classmethod
    def make(cls, shape: Shape, seed: int = 0, weight_bits: int = 8) -> Case:
        """Uniform over all codes of both types: friendlier data would hide saturation. Weights may have fewer bits."""
        rng = np.random.default_rng(seed)
        a = rng.integers(0, 256, (shape.M, shape.K), np.uint8)
        bound = 2 ** (weight_bits - 1)
        b = rng.integers(-bound, bound, (shape.K, shape.N), np.int8)
        spread = int(74 * 0.58 * bound) * shape.K**0.5  # standard deviation of a sum
        bias = rng.integers(-int(spread), int(spread) + 1, shape.N).astype(np.int32)
        multiplier = (rng.uniform(0.5, 1.5, shape.N) * 60 / spread).astype(np.float32)
        return cls(shape, a, b, bias, multiplier, weight_bits)

    def with_weights(self, seed: int) -> Case:
        """The same A with another B."""
        other = Case.make(self.shape, seed, self.weight_bits)
        return Case(self.shape, self.a, other.b, other.bias, other.multiplier, self.weight_bits)

    @cached_property
    def sums(self) -> Array:
        """The exact sums, s32 (M, N)."""
        return self.sums_of(self.a, self.a_zero_point)

    def sums_of(self, a: Array, zero_point: int) -> Array:
        """(a - zero_point) times b, from float64: every product and sum is an integer below 2**53."""
        return ((a.astype(np.float64) - zero_point) @ self.b.astype(np.float64)).astype(np.int32)

    def codes(self, sums: Array, *, bias: bool = True, relu: bool = True) -> Array:
        """What the fused form gives for these sums, u8 (M, N): float32, halves to even."""
        scaled = (sums + self.bias if bias else sums).astype(np.float32) * self.multiplier
        low = self.y_zero_point if relu else 0
        return np.clip(np.rint(scaled).astype(np.int64) + self.y_zero_point, low, 255).astype(np.uint8)

    def reference(self, output: str) -> Array:
        """The right answer, computed apart from the library."""
        return self.sums if output == "s32" else self.codes(self.sums)

    def pipeline(self, output: str) -> Any:
        """The pipeline whose output y is timed."""
        from .. import Pipeline, ops

        pipe = Pipeline(f"gemm_{output}")
        a = pipe.input("a", "u8", ("M", self.shape.K))
        y = ops.gemm(a, pipe.constant("b", self.b), a_zero_point=self.a_zero_point)
        if output == "u8":
            y = ops.add(y, self.bias)
            y = ops.requantize(y, multiplier=self.multiplier, zero_point=self.y_zero_point, dtype="u8")
            y = ops.relu(y, zero_point=self.y_zero_point)
        pipe.output("y", y)
        return pipe

    def empty(self, output: str) -> Array:
        """Memory for the result."""
        return np.zeros((self.shape.M, self.shape.N), np.int32 if output == "s32" else np.uint8)


def group_of(shape: Shape) -> Group:
    """The group a shape belongs to; one that is in no table counts by its operations and by its rows."""
    for group in GROUPS.values():
        if shape in group.shapes:
            return group
    if shape.operations < 2 * 128**3:
        return GROUPS["overhead"]
    return GROUPS["memory" if shape.M <= 8 else "compute"]


def select(groups: Iterable[str], shapes: Iterable[Shape]) -> dict[str, list[Shape]]:
    """The shapes to time in each group: those named, or all of the groups'."""
    named = list(shapes)
    if named:
        chosen: dict[str, list[Shape]] = {}
        for shape in named:
            chosen.setdefault(group_of(shape).name, []).append(shape)
        return chosen
    return {name: list(GROUPS[name].shapes) for name in groups}
