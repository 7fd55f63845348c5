"""Reductions of codes to codes with a scale of their own. kernels/reference/reduce/coded.py says what they compute."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...primitives.kernel import ArgSpec, IndexSpace
from ...primitives.storage import stored_as
from .. import checks
from .rows import arranged, check_axes, data_spec, place_spec, places, row_space

OPS = ("sum", "mean", "max", "min")
CODES = ("u8", "s8", "u16", "s16")
EXACT = 32768  # codes of 16 bits whose sum int32 holds


@stored_as("reduce_codes")
@dataclass(frozen=True)
class ReduceCodes:
    """y = clip(rint(real / scale) + zero_point), real being what `op` makes of (x - x_zero_point) * x_scale.

    source, dtype  of the codes that are read and written
    joined         (internal) how many axes are reduced once those that follow each other in memory are one; -1: all
    across         (internal) neighbouring results lie closer in x than the elements of one: they are made together
    """

    op: str = "mean"
    source: str = "u8"
    dtype: str = "u8"
    rank: int = 2
    axes: tuple[int, ...] = (1,)
    keepdims: bool = False
    joined: int = -1
    across: bool = False

    def __post_init__(self) -> None:
        checks.one_of("reduce_codes", "op", self.op, OPS)
        checks.one_of("reduce_codes", "operand of type", self.source, CODES)
        checks.one_of("reduce_codes", "codes", self.dtype, CODES)
        check_axes("reduce_codes", self.rank, self.axes)

    @property
    def statuses(self) -> Mapping[int, tuple[type[Exception], str]]:
        return checks.DOUBTS

    @property
    def reduced(self) -> int:
        """How many axes a sweep's operand has behind those that are kept."""
        return len(self.axes) if self.joined < 0 else self.joined

    @property
    def name(self) -> str:
        return f"reduce_codes_{self.op}_{self.source}{self.dtype}"

    def signature(self) -> tuple[ArgSpec, ...]:
        return (
            data_spec("x", self.source, self.rank, self.axes),
            ArgSpec("x_scale", "f32", shape=()),
            ArgSpec("x_zero_point", self.source, shape=()),
            ArgSpec("scale", "f32", shape=()),
            ArgSpec("zero_point", self.dtype, shape=()),
            place_spec("y", self.dtype, self.rank, self.axes, self.keepdims),
        )

    def index_space(self) -> IndexSpace:
        return row_space(self.rank, self.axes)

    def infer(self, shapes: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
        for name in ("x_scale", "scale"):
            checks.scale(self.name, values.get(name), name)
        return {}

    def execute(self, ctx: Any) -> None:
        x, y = arranged(ctx.read("x"), self.axes), places(ctx.write("y"), self.axes, self.keepdims)
        kept = self.rank - len(self.axes)
        x = _joined(x, kept)
        across = kept > 0 and x.ndim > kept and abs(x.strides[kept - 1]) < abs(x.strides[-1]) and x.shape[kept - 1] > 1
        kernel = replace(self, joined=x.ndim - kept, across=across)
        numbers = [ctx.read(slot) for slot in ("x_scale", "x_zero_point", "scale", "zero_point")]
        scratch = ctx.scratch(12 * x.shape[kept - 1] if across else 0)
        ctx.sweep(kernel, x, *numbers, y, scratch.view(np.int32))


def _joined(x: Any, kept: int) -> Any:
    """Reduced axes that follow each other in memory as one."""
    d = kept
    while d < x.ndim - 1:
        if x.strides[d] == x.strides[d + 1] * x.shape[d + 1]:
            x = x.reshape((*x.shape[:d], x.shape[d] * x.shape[d + 1], *x.shape[d + 2 :]))
        else:
            d += 1
    return x
