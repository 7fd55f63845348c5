"""gemm as a pipeline step. kernels/reference/gemm.py says what it computes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..primitives.errors import LayoutError, ShapeMismatch
from ..primitives.kernel import ArgSpec, Axis, Follow, IndexSpace
from ..primitives.sizes import Size
from ..primitives.storage import stored_as
from . import accumulators, checks
from .indexing import Index

BATCH = "cdefgh"  # names of the leading axes; their sizes are the same letters in upper case
REAL = ("f32", "f16", "bf16")
PARTNERS = {"u8": ("u8", "s8"), "s8": ("u8", "s8"), "s16": ("s16",), **dict.fromkeys(REAL, REAL)}  # a: what b may be
OPERANDS = tuple(PARTNERS)


@stored_as("gemm")
@dataclass(frozen=True)
class Gemm:
    """acc[.., m, n] = sum over k of (a[.., m, k] - a_zero_point) * (b[.., k, n] - b_zero_point).

    a_dtype, b_dtype             u8 or s8 each, or both s16, giving s32; or f32, f16 or bf16 each, giving f32
    batch                        number of leading dimensions of the result
    a_batch, b_batch             per leading dimension of an operand, the batch axis that it follows; None: size 1
    a_zero_point, b_zero_point   how zero points follow the axes of the result (see indexing.Index; m and n are the
                                 last two); () is one for all. None: there is no such slot, and the zero point is 0
    """

    a_dtype: str = "u8"
    b_dtype: str = "s8"
    batch: int = 0
    a_batch: tuple[int | None, ...] = ()
    b_batch: tuple[int | None, ...] = ()
    a_zero_point: Index | None = None
    b_zero_point: Index | None = None

    def __post_init__(self) -> None:
        checks.one_of("gemm", "a_dtype", self.a_dtype, OPERANDS)
        checks.one_of("gemm", "b_dtype", self.b_dtype, PARTNERS[self.a_dtype])
        if self.batch > len(BATCH):
            raise LayoutError(f"gemm of {self.batch} leading dimensions; at most {len(BATCH)} work")
        if self.symmetric and (self.a_zero_point is not None or self.b_zero_point is not None):
            raise LayoutError(f"gemm of {self.a_dtype} has no zero points; leave them out")

    @property
    def real(self) -> bool:
        """Whether the sums are float32."""
        return self.a_dtype in REAL

    @property
    def symmetric(self) -> bool:
        """Whether the types have no zero points."""
        return self.real or self.a_dtype == "s16"

    @property
    def acc_dtype(self) -> str:
        return "f32" if self.real else "s32"

    @property
    def name(self) -> str:
        if self.a_dtype == self.b_dtype == "f32":
            return "gemm_f32"
        return f"gemm_{self.a_dtype}{self.b_dtype}{self.acc_dtype}"

    @property
    def axes(self) -> tuple[str, ...]:
        return (*BATCH[: self.batch], "m", "n")

    def signature(self) -> tuple[ArgSpec, ...]:
        a = self._batch_sizes(self.a_batch)
        b = self._batch_sizes(self.b_batch)
        batch: tuple[int | None, ...] = tuple(range(self.batch))
        out = self._batch_sizes(batch)
        specs = [
            ArgSpec("a", self.a_dtype, shape=(*a, "M", "K"), follows=(*self._batch_follows(self.a_batch), "m", None)),
            ArgSpec("b", self.b_dtype, shape=(*b, "K", "N"), follows=(*self._batch_follows(self.b_batch), None, "n")),
        ]
        for slot, dtype in (("a_zero_point", self.a_dtype), ("b_zero_point", self.b_dtype)):
            index = getattr(self, slot)
            if index is not None:
                specs.append(
                    ArgSpec(
                        slot,
                        dtype,
                        shape=tuple(1 if at is None else self.axes[at[0]].upper() for at in index),
                        follows=tuple(None if at is None else self.axes[at[0]] for at in index),
                    )
                )
        specs.append(ArgSpec("acc", self.acc_dtype, "write", shape=(*out, "M", "N"), follows=self.axes))
        return tuple(specs)

    def _batch_sizes(self, batch: tuple[int | None, ...]) -> tuple[int | str | Size, ...]:
        return tuple(1 if d is None else BATCH[d].upper() for d in batch)

    def _batch_follows(self, batch: tuple[int | None, ...]) -> tuple[Follow, ...]:
        return tuple(None if d is None else BATCH[d] for d in batch)

    def index_space(self) -> IndexSpace:
        return IndexSpace(tuple(Axis(a, a.upper()) for a in self.axes))

    def infer(self, shapes: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
        a, b = shapes["a"], shapes["b"]
        if isinstance(a[-1], int) and isinstance(b[-2], int) and a[-1] != b[-2]:
            raise ShapeMismatch(f"a is {a} but b is {b}: a's columns must equal b's rows")
        return {}

    def prove(self, step: str, operands: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Raise AccumulatorOverflow unless the true sums fit int32, whatever A holds."""
        if self.real:
            return
        b, zero_point = operands["b"], operands.get("b_zero_point")
        accumulators.prove(
            step,
            accumulators.shifted_range(self.a_dtype, operands.get("a_zero_point")),
            b,
            accumulators.shifted_range(self.b_dtype, zero_point),
            zero_point,
            shapes["a"][-1],
        )

    def execute(self, ctx: Any) -> None:
        a, b, acc = ctx.read("a"), ctx.read("b"), ctx.write("acc")
        if a.shape[-1] != b.shape[-2]:
            raise ShapeMismatch(f"a is {a.shape} but b is {b.shape}: a's columns must equal b's rows")
        zero_points = [ctx.read(s) for s in ("a_zero_point", "b_zero_point") if getattr(self, s) is not None]
        ctx.sweep(self, a, b, *zero_points, acc)
