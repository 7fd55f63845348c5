"""gemm of 8-bit codes on CUDA for few rows: a warp for each column of B, which is read once, with dp4a.

What limits such a product is reading B, so nothing is staged: a lane takes 16 codes of a column at a time and multiplies
them with those of every row of A, which the caches hold. The lanes' sums are added at the end; integers take any order.
Packed B and the corrections for zero points are those of gemm_mma.py.
"""

from __future__ import annotations

from typing import Any

from ..gemm import Gemm
from .finish import Finish
from .gemm_mma import STEP, corrections, pack_a, pack_b, reads_a_in_place
from .launch import At, Launches, Temp, ceildiv, element_strides, pointee
from .text import Parameters, indented, made

MOST_ROWS = 16
WARPS = 4

_SOURCE = """\
import numpy as np
from {package} import ptx
from {package}.scalar import *
from {package}.seam import cuda, device
{prelude}

def gemm_skinny({parameters}):
    lane = cuda.threadIdx.x & 31
    n = cuda.blockIdx.x * {warps} + (cuda.threadIdx.x >> 5)
{zeros}    if n < n_size:
        for k in range(lane * 16, k_size, 512):
            right = ptx.load_x4(packed_b, n * k_packed + k)
{products}    for step in range(5):
{exchanges}    value = sum0
{choice}    m = lane
    if m < m_size and n < n_size:
{row}{finish}
"""


def plan(kernel: Gemm, operands: tuple[Any, ...], finish: Finish) -> Launches:
    a, b = operands[:2]
    slots = [s for s in ("a_zero_point", "b_zero_point") if getattr(kernel, s) is not None]
    m, k, n = a.shape[-2], a.shape[-1], b.shape[-1]
    if 0 in (m, n):
        return Launches(())
    k_packed = ceildiv(max(k, 1), STEP) * STEP
    temporaries = [n * k_packed, 4 * n]
    launches = [pack_b(b, n, k, k_packed)]
    copied = "b_zero_point" in slots or not reads_a_in_place(a) or k % 16 != 0
    if copied:
        temporaries += [m * k_packed, 4 * m]
        launches.append(pack_a(a, m, k, k_packed))
    rows = 1
    while rows < m:
        rows *= 2
    given = Parameters()
    a_type, b_type = pointee(a.dtype), pointee(b.dtype)
    given.pointer("a", a_type, Temp(2, a_type) if copied else At(0))
    given.pointer("packed_b", b_type, Temp(0, b_type))
    for name, value in (("m_size", m), ("n_size", n), ("k_size", k_packed if copied else k), ("k_packed", k_packed)):
        given.number(name, value)
    given.number("a_m", k_packed if copied else element_strides(a)[-2])
    row, correction = corrections(kernel, operands, slots, given, k)
    written = [*correction, *finish.parameters(given, operands)]
    types = f"{kernel.a_dtype}{kernel.b_dtype}"
    text = _SOURCE.format(
        package=__package__,
        prelude=finish.prelude,
        parameters=", ".join(given.names),
        warps=WARPS,
        zeros=indented([f"sum{i} = np.int32(0)" for i in range(rows)], 1),
        products=indented([line for i in range(rows) for line in _product(i, types)], 3),
        exchanges=indented(
            [f"sum{i} = np.int32(sum{i} + ptx.shfl_xor(sum{i}, np.int32(16 >> step)))" for i in range(rows)], 2
        ),
        choice=indented([line for i in range(1, rows) for line in (f"if lane == {i}:", f"    value = sum{i}")], 1),
        row=indented(row, 2),
        finish=indented(written, 2).rstrip("\n"),
    )
    launches.append(given.launch(made(text, "gemm_skinny"), (ceildiv(n, WARPS),), (32 * WARPS,)))
    return Launches(tuple(launches), tuple(temporaries))


def _product(i: int, types: str) -> list[str]:
    """Lines that add 16 products to the sum of row i. Each sum is a name of its own, and so in a register."""
    return [
        f"if {i} < m_size:",
        f"    left = ptx.load_x4(a, {i} * a_m + k)",
        *(f"    sum{i} = ptx.dp4a_{types}(left[{w}], right[{w}], sum{i})" for w in range(4)),
    ]
