"""gemm on CUDA without tensor cores: any types, strides, zero points and leading dimensions.

A block of 256 threads computes 64 x 64 sums, a thread 4 x 4 of them, over steps of 16 along K that pass through shared
memory with their zero points taken off. Real sums are one chain of fused multiply-adds over ascending k.
"""

from __future__ import annotations

from typing import Any

from ..gemm import BATCH, Gemm
from .finish import Finish
from .launch import At, Launches, ceildiv, element_strides, pointee
from .text import Parameters, coordinates, indented, made

EDGE, DEPTH, THREADS = 64, 16, 256

_SOURCE = """\
import numpy as np
from {package} import ptx
from {package}.scalar import *
from {package}.seam import cuda, device
{prelude}

def gemm_simt({parameters}):
    rows = cuda.shared.array(1088, np.{type})  # 64 rows of 16, each padded by one
    columns = cuda.shared.array(1024, np.{type})  # 16 rows of 64
    sums = cuda.local.array(16, np.{type})
    thread = cuda.threadIdx.x
    tx = thread & 15
    ty = thread >> 4
    m0 = cuda.blockIdx.y * 64
    n0 = cuda.blockIdx.x * 64
    batch = cuda.blockIdx.z
{batch}    for i in range(16):
        sums[i] = {zero}
    for k0 in range(0, k_size, 16):
        for j in range(4):
            element = thread + 256 * j
            r = element >> 4
            c = element & 15
            left = {zero}
            if m0 + r < m_size and k0 + c < k_size:
                left = {left}
            rows[r * 17 + c] = left
            r = element >> 6
            c = element & 63
            right = {zero}
            if k0 + r < k_size and n0 + c < n_size:
                right = {right}
            columns[r * 64 + c] = right
        cuda.syncthreads()
        for p in range(16):
            {guard}
                for i in range(4):
                    for j in range(4):
                        sums[i * 4 + j] = {step}
        cuda.syncthreads()
    for i in range(4):
        m = m0 + ty + 16 * i
        if m < m_size:
            for j in range(4):
                n = n0 + tx + 16 * j
                if n < n_size:
                    value = sums[i * 4 + j]
{finish}
"""

_WIDEN = {"bf16": "bf16_to_f32({})", "f16": "f16_to_f32({})"}
_PRODUCT = "rows[(ty + 16 * i) * 17 + p]", "columns[p * 64 + tx + 16 * j]", "sums[i * 4 + j]"


def plan(kernel: Gemm, operands: tuple[Any, ...], finish: Finish) -> Launches:
    a, b = operands[:2]
    slots = [s for s in ("a_zero_point", "b_zero_point") if getattr(kernel, s) is not None]
    m, k, n = a.shape[-2], a.shape[-1], b.shape[-1]
    sizes = batch_sizes(kernel, operands)
    count = 1
    for size in sizes:
        count *= size
    if 0 in (m, n, count):
        return Launches(())
    given = Parameters()
    given.pointer("a", pointee(a.dtype), At(0))
    given.pointer("b", pointee(b.dtype), At(1))
    a_strides, b_strides = element_strides(a), element_strides(b)
    for name, value in (("m_size", m), ("n_size", n), ("k_size", k)):
        given.number(name, value)
    for name, value in zip(("a_m", "a_k", "b_k", "b_n"), (*a_strides[-2:], *b_strides[-2:]), strict=True):
        given.number(name, value)
    names = [f"g{d}" for d in range(kernel.batch)]
    places = {"a": [], "b": []}  # type: dict[str, list[str]]
    for d, size in enumerate(sizes):
        given.number(f"size_g{d}", size)
    for slot, follow, strides in (("a", kernel.a_batch, a_strides), ("b", kernel.b_batch, b_strides)):
        for position, axis in enumerate(follow):
            if axis is not None:
                given.number(f"{slot}_g{position}", strides[position])
                places[slot].append(f"g{axis} * {slot}_g{position}")
    taken = {}
    for position, slot in enumerate(slots, 2):
        array = operands[position]
        given.pointer(slot, pointee(array.dtype), At(position))
        terms = []
        for d, (at, stride) in enumerate(zip(getattr(kernel, slot), element_strides(array), strict=True)):
            if at is not None:
                given.number(f"{slot}_s{d}", stride)
                where = [*names, "m0 + r", "n0 + c"][at[0]]
                terms.append(f"({where}) * {slot}_s{d}")
        taken[slot] = f" - {slot}[{' + '.join(terms) or '0'}]"
    written = finish.parameters(given, operands)
    lines = coordinates("batch", [f"size_g{d}" for d in range(len(sizes))], names)
    lines += [f"{slot}0 = {' + '.join(terms) or '0'}" for slot, terms in places.items()]
    left, right = "a[a0 + (m0 + r) * a_m + (k0 + c) * a_k]", "b[b0 + (k0 + r) * b_k + (n0 + c) * b_n]"
    if kernel.real:
        left, right = _WIDEN.get(kernel.a_dtype, "{}").format(left), _WIDEN.get(kernel.b_dtype, "{}").format(right)
        step = f"ptx.fma({', '.join(_PRODUCT)})"
    else:
        left += taken.get("a_zero_point", "")
        right += taken.get("b_zero_point", "")
        step = "np.int32({2} + {0} * {1})".format(*_PRODUCT)
    text = _SOURCE.format(
        package=__package__,
        prelude=finish.prelude,
        parameters=", ".join(given.names),
        type="float32" if kernel.real else "int32",
        zero="np.float32(0)" if kernel.real else "np.int32(0)",
        batch=indented(lines, 1),
        left=left if kernel.real else f"np.int32({left})",
        right=right if kernel.real else f"np.int32({right})",
        guard="if k0 + p < k_size:  # a product of padding would turn -0.0 into 0.0" if kernel.real else "if True:",
        step=step,
        finish=indented(written, 5).rstrip("\n"),
    )
    grid = (ceildiv(n, EDGE), ceildiv(m, EDGE), count)
    return Launches((given.launch(made(text, "gemm_simt"), grid, (THREADS,)),))


def batch_sizes(kernel: Gemm, operands: tuple[Any, ...]) -> tuple[int, ...]:
    """Sizes of the leading axes of the result: those of whichever operand has them."""
    sizes = [1] * kernel.batch
    for array, follow in zip(operands[:2], (kernel.a_batch, kernel.b_batch), strict=True):
        for size, d in zip(array.shape, follow, strict=False):
            if d is not None:
                sizes[d] = size
    return tuple(sizes)


__all__ = ["BATCH", "batch_sizes", "plan"]
