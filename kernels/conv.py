"""conv as a pipeline step. kernels/reference/conv.py says what it computes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from ..primitives import sizes
from ..primitives.errors import LayoutError, ShapeMismatch
from ..primitives.kernel import ArgSpec, IndexSpace
from ..primitives.storage import stored_as
from . import accumulators, checks
from .gemm import PARTNERS, REAL
from .window import (
    PLACES,
    SPATIAL,
    Window,
    canonical,
    image_follows,
    index_axes,
    layout,
    letters,
    result_follows,
    result_shape,
)

Ints = tuple[int, ...]


@stored_as("conv")
@dataclass(frozen=True)
class Conv:
    """acc[n, .., o] = sum over taps and channels of (x - a_zero_point) * (w - b_zero_point[o]).

    x_dtype, w_dtype     u8 or s8 each, or both s16, giving s32; or f32, f16 or bf16 each, giving f32
    kernel .. spread     one number for each spatial axis (window.Window)
    groups               channels and outputs are in so many groups, each with weights of its own
    x_layout, y_layout   NCHW or NHWC, NCW, NDHWC and so on
    w_layout             OIHW, HWIO, OHWI, IOHW and the like
    transposed           taps are read from last to first, and the I of w counts all inputs, its O the outputs of one group
    a_zero_point         whether there is such a slot: one value
    b_zero_point         "" (no slot), "one", or "each" output
    """

    x_dtype: str = "u8"
    w_dtype: str = "s8"
    kernel: Ints = (1, 1)
    strides: Ints = (1, 1)
    before: Ints = (0, 0)
    after: Ints = (0, 0)
    dilations: Ints = (1, 1)
    spread: Ints = ()
    groups: int = 1
    x_layout: str = "NCHW"
    y_layout: str = "NCHW"
    w_layout: str = "OIHW"
    transposed: bool = False
    a_zero_point: bool = False
    b_zero_point: str = ""

    def __post_init__(self) -> None:
        checks.one_of("conv", "x_dtype", self.x_dtype, tuple(PARTNERS))
        checks.one_of("conv", "w_dtype", self.w_dtype, PARTNERS[self.x_dtype])
        layout(self.x_layout, self.spatial)
        layout(self.y_layout, self.spatial)
        if self.w_layout not in weight_layouts(self.spatial):
            raise LayoutError(
                f"conv: weights {self.w_layout!r} of {self.spatial} spatial axes; "
                f"{', '.join(weight_layouts(self.spatial))} work"
            )
        if self.symmetric and (self.a_zero_point or self.b_zero_point):
            raise LayoutError(f"conv of {self.x_dtype} has no zero points; leave them out")

    @property
    def spatial(self) -> int:
        return len(self.kernel)

    @property
    def window(self) -> Window:
        return Window(self.kernel, self.strides, self.before, self.after, self.dilations, self.spread)

    @property
    def real(self) -> bool:
        """Whether the sums are float32."""
        return self.x_dtype in REAL

    @property
    def symmetric(self) -> bool:
        """Whether the types have no zero points."""
        return self.real or self.x_dtype == "s16"

    @property
    def acc_dtype(self) -> str:
        return "f32" if self.real else "s32"

    @property
    def name(self) -> str:
        if self.x_dtype == self.w_dtype == "f32":
            return "conv_f32"
        return f"conv_{self.x_dtype}{self.w_dtype}{self.acc_dtype}"

    def signature(self) -> tuple[ArgSpec, ...]:
        taken = dict(zip(SPATIAL[self.spatial], self.kernel, strict=True))
        across = self.transposed
        channels: Any = "I" if across else sizes.size("I") * self.groups
        outputs: Any = sizes.size("O") * self.groups if across else "O"
        names: dict[str, Any] = {"N": "N", "C": channels, **{x: x for x in SPATIAL[self.spatial]}}
        specs = [
            ArgSpec(
                "x",
                self.x_dtype,
                shape=tuple(names[x] for x in letters(self.x_layout)),
                follows=image_follows(self.window, self.x_layout, None),
            ),
            ArgSpec(
                "w",
                self.w_dtype,
                shape=tuple(taken.get(x, x) for x in self.w_layout),
                follows=tuple("o" if x == "O" and not across else None for x in self.w_layout),
            ),
        ]
        if self.a_zero_point:
            specs.append(ArgSpec("a_zero_point", self.x_dtype, shape=()))
        if self.b_zero_point:
            each = self.b_zero_point == "each"
            specs.append(
                ArgSpec("b_zero_point", self.w_dtype, shape=(outputs,) if each else (), follows=("o",) if each else ())
            )
        specs.append(
            ArgSpec(
                "acc",
                self.acc_dtype,
                "write",
                shape=result_shape(self.window, self.y_layout, outputs),
                follows=result_follows(self.y_layout),
            )
        )
        return tuple(specs)

    def outputs(self, w: Any) -> Any:
        """How many output channels weights of this shape have."""
        n = w[self.w_layout.index("O")]
        return n * self.groups if self.transposed else n

    def channels(self, x: Any) -> Any:
        """The input channels of an image of this shape."""
        return x[self.x_layout.index("C")]

    def index_space(self) -> IndexSpace:
        outputs: Any = sizes.size("O") * self.groups if self.transposed else "O"
        return IndexSpace(index_axes(self.window, outputs))

    def infer(self, shapes: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
        self.check(shapes["x"], shapes["w"])
        return {}

    def check(self, x: tuple[Any, ...], w: tuple[Any, ...]) -> None:
        """Raise ShapeMismatch where the shapes of image and weights do not go together."""
        inside = w[self.w_layout.index("I")]
        wanted = inside if self.transposed else inside * self.groups
        have = self.channels(x)
        if isinstance(have, int) and isinstance(wanted, int) and have != wanted:
            raise ShapeMismatch(
                f"conv: x is {sizes.show(x)} ({self.x_layout}), so it has {have} channels, but w is {sizes.show(w)} "
                f"({self.w_layout}), which takes {wanted} in {self.groups} group{'s' * (self.groups != 1)}"
            )
        split = inside if self.transposed else w[self.w_layout.index("O")]
        if isinstance(split, int) and split % self.groups:
            raise ShapeMismatch(
                f"conv: {split} {'inputs' if self.transposed else 'outputs'} cannot be in {self.groups} groups of one "
                f"size; w is {sizes.show(w)} ({self.w_layout})"
            )
        self.window.check("conv", [x[self.x_layout.index(a)] for a in SPATIAL[self.spatial]])

    def prove(self, step: str, operands: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Raise AccumulatorOverflow unless the true sums fit int32, whatever the image holds."""
        if self.real:
            return
        w, zero_point = operands["w"], operands.get("b_zero_point")
        depth = self.channels(shapes["x"]) // self.groups * int(np.prod(self.kernel))
        matrix, zeros = w, zero_point
        if accumulators.constant(w) is not None:
            data = self.weights(w.data)  # (G, Og, taps.., Cg)
            rows = data.reshape(data.shape[0] * data.shape[1], int(np.prod(data.shape[2:])))
            matrix = SimpleNamespace(kind="constant", data=rows.T)
            known = accumulators.constant(zero_point) if zero_point is not None else None
            if known is not None:
                zeros = SimpleNamespace(kind="constant", data=known.reshape(-1))
        accumulators.prove(
            step,
            accumulators.shifted_range(self.x_dtype, operands.get("a_zero_point")),
            matrix,
            accumulators.shifted_range(self.w_dtype, zero_point),
            zeros,
            depth,
        )

    def weights(self, w: Any) -> Any:
        """A view of the weights as (G, Og, taps.., Cg), taps along the spatial axes that there are."""
        order = [self.w_layout.index(x) for x in ("O", *SPATIAL[self.spatial], "I")]
        w = w.transpose(*order)
        if self.transposed:
            backwards = (slice(None), *(slice(None, None, -1) for _ in self.kernel), slice(None))
            w = w[backwards]
        outputs, *taps, inputs = w.shape
        if self.transposed:
            w = w.reshape(outputs, *taps, self.groups, inputs // self.groups)
            return w.transpose(self.spatial + 1, *range(self.spatial + 1), self.spatial + 2)
        return w.reshape(self.groups, outputs // self.groups, *taps, inputs)

    def canonical_weights(self, w: Any) -> Any:
        """The same as (G, Og, KD, KH, KW, Cg)."""
        at: list[Any] = [None, None, None]
        for place in PLACES[self.spatial]:
            at[place] = slice(None)
        index = (slice(None), slice(None), *at, slice(None))
        return self.weights(w)[index]

    def execute(self, ctx: Any) -> None:
        x, w, acc = ctx.read("x"), ctx.read("w"), ctx.write("acc")
        self.check(x.shape, w.shape)
        operands = [canonical(x, self.x_layout), self.canonical_weights(w)]
        if self.a_zero_point:
            operands.append(ctx.read("a_zero_point"))
        if self.b_zero_point:
            operands.append(np.broadcast_to(ctx.read("b_zero_point"), (self.outputs(w.shape),)))
        ctx.sweep(self, *operands, canonical(acc, self.y_layout))

    def cost(self, extents: Mapping[str, int], x: Any, w: Any, *_: Any) -> float:
        """About the bytes that could have been moved meanwhile; a plain loop takes a byte's time for a product."""
        return float(w.size / max(1, w.shape[0] * w.shape[1])) * np.prod([float(n) for n in extents.values()])


def weight_layouts(spatial: int) -> tuple[str, ...]:
    """The layouts that weights may have."""
    inner = SPATIAL[spatial]
    return (f"OI{inner}", f"{inner}IO", f"O{inner}I", f"IO{inner}", f"{inner}OI", f"I{inner}O")
