"""gemm on CUDA: tensor cores where the types allow, else threads with sums of their own.

kernels/reference/gemm.py says what it computes; this file only chooses.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..factory import register
from ..gemm import Gemm
from . import gemm_mma, gemm_simt
from .finish import Finish
from .launch import Device, Launches


def finish_of(kernel: Gemm, steps: Any = ()) -> Finish:
    """The finish of a gemm: its operands come after a, b and the zero points."""
    slots = [s for s in ("a_zero_point", "b_zero_point") if getattr(kernel, s) is not None]
    return Finish((*(f"g{d}" for d in range(kernel.batch)), "m", "n"), 2 + len(slots), steps)


@register(
    "gemm",
    backend="cuda",
    variant="mma",
    requires=gemm_mma.refuses,
    priority=10,
    tile_params=gemm_mma.TILES,
    tile_model=gemm_mma.work,
)
def build_mma(kernel: Gemm, tile: Mapping[str, int] | None = None) -> Device:
    def plan(*operands: Any) -> Launches:
        return gemm_mma.plan(kernel, operands, finish_of(kernel), tile)

    return Device(plan)


@register("gemm", backend="cuda", variant="simt")
def build_simt(kernel: Gemm) -> Device:
    def plan(*operands: Any) -> Launches:
        return gemm_simt.plan(kernel, operands, finish_of(kernel))

    return Device(plan)
