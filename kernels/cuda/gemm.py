"""gemm on CUDA: tensor cores or, for few rows, dp4a where the types allow; else threads with sums of their own.

kernels/reference/gemm.py says what it computes; this file only chooses.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...primitives.errors import ShapeMismatch
from ..factory import register
from ..gemm import Gemm
from . import gemm_mma, gemm_simt, gemm_skinny
from .finish import Finish
from .launch import Device, Launches


def finish_of(kernel: Gemm, steps: Any = ()) -> Finish:
    """The finish of a gemm: its operands come after a, b and the zero points."""
    slots = [s for s in ("a_zero_point", "b_zero_point") if getattr(kernel, s) is not None]
    return Finish((*(f"g{d}" for d in range(kernel.batch)), "m", "n"), 2 + len(slots), steps)


def planned(kernel: Gemm, operands: Any, finish: Finish, tile: Mapping[str, int] | None = None) -> Launches:
    """The launches of whichever kernel serves these sizes best; a tile that was asked for is one of tensor cores."""
    if gemm_mma.refuses(kernel):
        return gemm_simt.plan(kernel, operands, finish)
    if not tile and operands[0].shape[-2] <= gemm_skinny.MOST_ROWS:
        return gemm_skinny.plan(kernel, operands, finish)
    return gemm_mma.plan(kernel, operands, finish, tile)


@register(
    "gemm",
    backend="cuda",
    variant="best",
    requires=gemm_mma.refuses,
    priority=10,
    tile_params=gemm_mma.TILES,
    tile_model=gemm_mma.work,
)
def build(kernel: Gemm, tile: Mapping[str, int] | None = None) -> Device:
    return Device(lambda *operands: planned(kernel, operands, finish_of(kernel), tile))


@register("gemm", backend="cuda", variant="mma", requires=gemm_mma.refuses)
def build_mma(kernel: Gemm) -> Device:
    return Device(lambda *operands: gemm_mma.plan(kernel, operands, finish_of(kernel)))


@register("gemm", backend="cuda", variant="skinny", requires=gemm_mma.refuses)
def build_skinny(kernel: Gemm) -> Device:
    """For few rows; more of them are refused."""

    def plan(*operands: Any) -> Launches:
        if operands[0].shape[-2] > gemm_skinny.MOST_ROWS:
            raise ShapeMismatch(f"skinny gemm of {operands[0].shape[-2]} rows; up to {gemm_skinny.MOST_ROWS} work")
        return gemm_skinny.plan(kernel, operands, finish_of(kernel))

    return Device(plan)


@register("gemm", backend="cuda", variant="simt")
def build_simt(kernel: Gemm) -> Device:
    def plan(*operands: Any) -> Launches:
        return gemm_simt.plan(kernel, operands, finish_of(kernel))

    return Device(plan)
