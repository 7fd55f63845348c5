"""pool as a pipeline step: the largest or the mean of a window. kernels/reference/pool.py says what it computes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..primitives import dtypes
from ..primitives.errors import LayoutError, Unsupported
from ..primitives.kernel import ArgSpec, Follow, IndexSpace
from ..primitives.storage import stored_as
from . import checks
from .window import (
    SPATIAL,
    Ints,
    Window,
    canonical,
    image_follows,
    in_three,
    index_axes,
    layout,
    result_follows,
    result_shape,
)

KINDS = ("max", "average")
NUMBERS = ("u8", "s8", "f32")
CODES = ("u8", "s8")


@stored_as("pool")
@dataclass(frozen=True)
class Pool:
    """y[n, .., c] = the largest, or the mean, of a window of x[n, .., c].

    kind                 "max" or "average"
    x_dtype, dtype       of the image and of the result: the same, but for the mean of codes, which may be u8 of s8
    kernel .. ceil       of a sliding window (window.Window)
    adaptive             outputs along each spatial axis instead: output i has the elements from floor(i * n / outputs)
                         to ceil((i + 1) * n / outputs)
    count_padding        whether positions of padding count in a mean
    x_layout, y_layout   NCHW or NHWC, and so on

    The mean of codes has slots x_zero_point, multiplier (f32: scale of x / scale of y) and zero_point, one each.
    """

    kind: str = "max"
    x_dtype: str = "u8"
    dtype: str = "u8"
    kernel: Ints = (1, 1)
    strides: Ints = (1, 1)
    before: Ints = (0, 0)
    after: Ints = (0, 0)
    dilations: Ints = (1, 1)
    ceil: bool = False
    adaptive: Ints = ()
    count_padding: bool = False
    x_layout: str = "NCHW"
    y_layout: str = "NCHW"

    def __post_init__(self) -> None:
        checks.one_of("pool", "kind", self.kind, KINDS)
        checks.one_of("pool", "x_dtype", self.x_dtype, NUMBERS)
        checks.one_of("pool", "dtype", self.dtype, CODES if self.scaled else (self.x_dtype,))
        layout(self.x_layout, self.spatial)
        layout(self.y_layout, self.spatial)
        if self.adaptive and len(self.adaptive) != self.spatial:
            raise LayoutError(f"pool: {self.adaptive} outputs for {self.spatial} spatial axes")

    @property
    def spatial(self) -> int:
        return len(self.kernel)

    @property
    def window(self) -> Window:
        return Window(self.kernel, self.strides, self.before, self.after, self.dilations, ceil=self.ceil)

    @property
    def scaled(self) -> bool:
        """Whether it is the mean of codes."""
        return self.kind == "average" and self.x_dtype in CODES

    @property
    def name(self) -> str:
        return f"pool_{self.kind}_{self.x_dtype}" + (f"{self.dtype}" if self.scaled else "")

    def signature(self) -> tuple[ArgSpec, ...]:
        follows: tuple[Follow, ...] = image_follows(self.window, self.x_layout, "o")
        shape: tuple[Any, ...] = result_shape(self.window, self.y_layout, "C")
        if self.adaptive:
            follows = tuple({"N": "n", "C": "o"}.get(a) for a in self.x_layout)
            sizes = dict(zip(SPATIAL[self.spatial], self.adaptive, strict=True))
            shape = tuple(sizes.get(a, a) for a in self.y_layout)
        specs = [ArgSpec("x", self.x_dtype, shape=tuple(self.x_layout), follows=follows)]
        if self.scaled:
            specs += [
                ArgSpec("x_zero_point", self.x_dtype, shape=()),
                ArgSpec("multiplier", "f32", shape=()),
                ArgSpec("zero_point", self.dtype, shape=()),
            ]
        specs.append(ArgSpec("y", self.dtype, "write", shape=shape, follows=result_follows(self.y_layout)))
        return tuple(specs)

    def index_space(self) -> IndexSpace:
        if not self.adaptive:
            return IndexSpace(index_axes(self.window, "C"))
        outputs = in_three(self.adaptive, 1)
        axes = index_axes(self.window, "C")
        return IndexSpace(
            tuple(
                type(a)(a.name, {"d": outputs[0], "h": outputs[1]}.get(a.name, a.extent), a.split, a.multiple)
                for a in axes
            )
        )

    def infer(self, shapes: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
        checks.multiplier(self.name, values.get("multiplier"))
        self._check(shapes["x"])
        return {}

    def _check(self, shape: tuple[Any, ...]) -> None:
        spatial = [shape[self.x_layout.index(a)] for a in SPATIAL[self.spatial]]
        if not self.adaptive:
            self.window.check("pool", spatial)
        if self.scaled:
            taps = np.prod([float(n) for n in (spatial if self.adaptive else self.kernel) if isinstance(n, int)])
            if taps * 255 > 2**31 - 1:
                raise Unsupported(
                    f"pool: a window of {taps:.0f} codes may pass int32; up to {(2**31 - 1) // 255} work: pool in two steps"
                )

    def execute(self, ctx: Any) -> None:
        x, y = ctx.read("x"), ctx.write("y")
        self._check(x.shape)
        operands = [canonical(x, self.x_layout)]
        if self.scaled:
            operands += [ctx.read(slot) for slot in ("x_zero_point", "multiplier", "zero_point")]
            operands.append(ctx.scratch(4 * max(1, operands[0].shape[4])).view(np.int32))
        ctx.sweep(self, *operands, canonical(y, self.y_layout))

    @property
    def least(self) -> float:
        """What a window without an element gives."""
        return -np.inf if self.x_dtype == "f32" else float(dtypes.get(self.x_dtype).min)


def places(kernel: Pool, d: int, n: int, outputs: int) -> tuple[Any, Any]:
    """Windows along D, H or W (d: 0, 1, 2): int64 (outputs, 2) first position and taps; and (outputs,) how many count."""
    i = np.arange(outputs)
    if kernel.adaptive:
        first = i * n // max(outputs, 1)
        taps = -(-(i + 1) * n // max(outputs, 1)) - first
        return np.stack([first, taps], 1), np.maximum(taps, 1)
    size, stride, step = (in_three(x, 1)[d] for x in (kernel.kernel, kernel.strides, kernel.dilations))
    before, after = in_three(kernel.before, 0)[d], in_three(kernel.after, 0)[d]
    first = i * stride - before
    end = n + after if kernel.count_padding else n
    start = first if kernel.count_padding else first + step * np.maximum(0, -(first // step))
    counted = np.minimum(size - (start - first) // step, np.maximum(0, -(-(end - start) // step)))
    return np.stack([first, np.full(outputs, size)], 1), np.maximum(counted, 1)
