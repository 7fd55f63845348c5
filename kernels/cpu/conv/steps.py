"""What a convolution becomes on the CPU: weights arranged and packed, columns folded, and the image multiplied.

The first ones are the GEMM's, a group at a time, and are computed when the plan is made if the weights and the zero
points are constants. The driver (driver.py) does the last one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from ....primitives.kernel import ArgSpec, IndexSpace
from ...conv import Conv
from ...factory import WithParams, register
from ...forge import Native
from ...indexing import Index
from ...window import canonical, image_follows, index_axes, result_follows
from ..gemm import plan as gemm_plan
from ..gemm.steps import _NO_BYTES, MOST_COLUMNS, Engine, FoldColumns, _spread
from . import driver, plan
from .weights import Segments

_NO_IMAGE = np.zeros((0, 0, 0, 0, 0), np.uint8)


@dataclass(frozen=True)
class FoldGroups(FoldColumns):
    """FoldColumns where bias, multipliers and zero points go on from group to group."""

    name = "fold_columns"

    def execute(self, ctx: Any) -> None:
        sums, record, columns = ctx.read("sums"), ctx.read("record"), ctx.write("columns")
        n = sums.shape[-1] - MOST_COLUMNS
        for g in range(sums.shape[0]):
            operands = []
            for slot in ("bias", "multiplier", "shift", "a_zero_point", "b_zero_point"):
                if slot not in self.slots:
                    operands.append(np.zeros(0, np.int32) if slot in ("bias", "multiplier", "shift") else _NO_BYTES)
                    continue
                given = ctx.read(slot)
                given = given.reshape(given.size)
                if slot == "a_zero_point":
                    operands.append(given[:1])
                else:
                    operands.append(np.broadcast_to(given if given.size == 1 else given[g * n : (g + 1) * n], (n,)))
            ctx.sweep(self, sums[g][:n], *operands, record, columns[g])


@dataclass(frozen=True)
class PanelConv:
    """out[n, .., o] = epilogue(the window of x at n, .. times the packed columns of o), channels last.

    conv      what it computes; its layouts are NHWC
    shape     of the result, in the pipeline's sizes
    residual, table   types of what the epilogue reads; "" where it has none
    extra     (type, index over the result's axes) of what a generated finish reads
    band      rows of output that are made from one copy, instead of what fits L2
    idle      whether taps on padding change nothing in real sums: their weights are finite, so that they only turn -0
              into +0, and a bias follows that is not -0, to which both are the same
    """

    engine: Engine
    conv: Conv
    cut: Segments
    dot: str
    shape: tuple[Any, ...]
    residual: str = ""
    table: str = ""
    extra: tuple[tuple[str, Index], ...] = ()
    band: int | None = None
    idle: bool = False

    name = "conv_panels"
    most_again: ClassVar[float] = 1.04  # memory is a few parts in a hundred of its time
    own_tiles: ClassVar[tuple[str, ...]] = ("mr", "nr", "band")

    def signature(self) -> tuple[ArgSpec, ...]:
        conv = self.conv
        follows = result_follows(conv.y_layout)
        x = next(spec for spec in conv.signature() if spec.slot == "x")
        specs = [
            ArgSpec(
                "x", conv.x_dtype, shape=(*x.shape[:-1], "C"), follows=image_follows(conv.window, conv.x_layout, None)
            ),
            ArgSpec("packed", "u8", align=64, follows=("o" if self.cut.groups == 1 else None,)),
            ArgSpec("columns", "u8", align=64),
        ]
        if self.residual:
            specs.append(ArgSpec("residual", self.residual, follows=follows))
        if self.table:
            specs.append(ArgSpec("table", self.table, shape=(256,)))
        axes = follows
        for n, (dtype, index) in enumerate(self.extra):
            specs.append(ArgSpec(f"x{n}", dtype, follows=tuple(axes[at[0]] if at else None for at in index)))
        specs.append(ArgSpec("out", self.engine.store, "write", follows=follows))
        return tuple(specs)

    def infer(self, shapes: Mapping[str, Any], operands: Mapping[str, Any]) -> dict[str, Any]:
        return {"out": self.shape}

    def index_space(self) -> IndexSpace:
        multiple = MOST_COLUMNS if self.cut.groups == 1 else self.cut.outputs
        return IndexSpace(index_axes(self.conv.window, self.cut.groups * self.cut.outputs, multiple))

    def execute(self, ctx: Any) -> None:
        x, packed, columns, out = ctx.read("x"), ctx.read("packed"), ctx.read("columns"), ctx.write("out")
        conv = self.conv
        conv.window.check("conv", x.shape[1:-1])
        others = [ctx.read("residual")] if self.residual else []
        others = [np.broadcast_to(o, out.shape) for o in others]
        others += [_spread(ctx.read(f"x{n}"), index, out.shape) for n, (_, index) in enumerate(self.extra)]
        others = [canonical(o, conv.y_layout) for o in others]
        x, y = canonical(x, conv.x_layout), canonical(out, conv.y_layout)
        kernel = self if out.shape[-1] <= 1 or out.strides[-1] == out.itemsize else self._finished()
        scratch = ctx.scratch(kernel.laid(x, y, others).scratch)
        ctx.sweep(
            kernel,
            x,
            packed,
            columns,
            y,
            others[0] if self.residual else _NO_IMAGE,
            ctx.read("table") if self.table else _NO_BYTES,
            scratch,
            *others[bool(self.residual) :],
        )

    def _finished(self) -> PanelConv:
        """The same, with no tile that stores whole vectors by itself."""
        return replace(self, engine=replace(self.engine, direct=False))

    def laid(self, x: Any, out: Any, others: Any) -> plan.Laid:
        made = plan.tiles(self.engine, self.cut, self.dot, self.conv.window)
        needed = self.engine.finish is not None and (made.finish or made.finish_rest)
        finish = gemm_plan.finisher(self.engine.finish).address if needed else 0
        return plan.lay(self.engine, self.conv, self.cut, self.dot, x, out, tuple(others), finish, self.band, self.idle)

    def detail(self, x: Any, packed: Any, columns: Any, out: Any, *rest: Any) -> str:
        """Instruction, register tile and band at these sizes, for `explain()`."""
        laid = self.laid(x, out, self._others(rest))
        family, layout = laid.plan.family, laid.plan.layout
        vectors = family.vectors if family.full else family.rest
        how = "copied between padding" if laid.copied else "read in place"
        how += ", windows past the edges copied" * laid.inside
        groups = f", {self.cut.groups} groups" if self.cut.groups > 1 else ""
        if self.cut.own:
            groups = f", columns in groups of {self.cut.own} read channels of their own"
        return (
            f"{family.dot} on {family.level}, mr x nr {family.rows} x {vectors * layout.lanes}, "
            f"bands of {laid.band} rows, {how}, {self.cut.count} segments of {self.cut.length}{groups}"
        )

    def _others(self, rest: Any) -> list[Any]:
        """Residual and extras among the operands that follow `out` in the sweep: residual, table, scratch, extras."""
        return ([rest[0]] if self.residual else []) + list(rest[3:])

    def cost(self, extents: Mapping[str, int], x: Any, packed: Any, columns: Any, out: Any, *_: Any) -> float:
        """About the bytes that could have been moved meanwhile, as in gemm_steps."""
        results = extents["n"] * extents["d"] * extents["h"] * out.shape[3] * extents["o"]
        return max(results * self.cut.K / 8, float(x.nbytes), 4.0 * results)


@register("conv_panels", backend="cpu", variant="microkernel")
def build_conv(kernel: PanelConv) -> WithParams:
    def params(x: Any, packed: Any, columns: Any, out: Any, *rest: Any) -> list[int]:
        words = list(kernel.laid(x, out, kernel._others(rest)).words)
        words[driver.NAMES.index("extras")] = len(kernel.extra)
        return words

    return WithParams(
        Native("from tilework.kernels.cpu.conv.driver import conv_entry as entry\n", raw=True),
        params,
        trailing=len(kernel.extra),
    )
