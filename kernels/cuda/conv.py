"""conv on CUDA as a product that is never laid out: rows are places of the result, columns are outputs of a group.

kernels/reference/conv.py says what it computes. K runs over taps, outermost axis first, and within a tap over channels,
so a real sum is the one chain of fused multiply-adds that is defined. A block of 256 threads computes 64 x 64 sums.
"""

from __future__ import annotations

from typing import Any

from ...primitives.errors import LayoutError
from ..conv import Conv
from ..factory import register
from .finish import Finish
from .launch import At, Device, Launches, ceildiv, element_strides, pointee
from .text import WIDE, Parameters, coordinates, indented, made

EDGE, THREADS = 64, 256
AXES = ("image", "z_out", "y_out", "x_out", "channel")

_SOURCE = """\
import numpy as np
from {package} import ptx
from {package}.scalar import *
from {package}.seam import cuda, device


def conv({parameters}):
    rows = cuda.shared.array(1088, np.{type})  # 64 places, 16 steps of K, each row padded by one
    columns = cuda.shared.array(1088, np.{type})  # 64 outputs likewise
    sums = cuda.local.array(16, np.{type})
    thread = cuda.threadIdx.x
    tx = thread & 15
    ty = thread >> 4
    m0 = cuda.blockIdx.x * 64
    n0 = cuda.blockIdx.y * 64
    group = cuda.blockIdx.z
    for i in range(16):
        sums[i] = {zero}
    for k0 in range(0, k_size, 16):
        for j in range(4):
            r = (thread + 256 * j) >> 4
            k = k0 + (thread & 15)
            left = {zero}
            right = {zero}
            if k < k_size:
{tap}                if m0 + r < m_size:
{place}                    z = z_out * stride0 - before0 + tap0 * step0
                    y = y_out * stride1 - before1 + tap1 * step1
                    q = x_out * stride2 - before2 + tap2 * step2
                    if z >= 0 and y >= 0 and q >= 0{apart}:
{together}                        if z < extent0 and y < extent1 and q < extent2:
                            at = image * x_s0 + z * x_s1 + y * x_s2 + q * x_s3 + (group * depth + inside) * x_s4
                            left = {left}
                if n0 + r < n_size:
                    at = group * w_s0 + (n0 + r) * w_s1 + tap0 * w_s2 + tap1 * w_s3 + tap2 * w_s4 + inside * w_s5
                    right = {right}
            rows[r * 17 + (thread & 15)] = left
            columns[r * 17 + (thread & 15)] = right
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
{place_of_m}            for j in range(4):
                n = n0 + tx + 16 * j
                if n < n_size:
                    channel = group * n_size + n
                    value = sums[i * 4 + j]
{finish}
"""

_WIDEN = {"bf16": "bf16_to_f32({})", "f16": "f16_to_f32({})"}
_PRODUCT = "rows[(ty + 16 * i) * 17 + p]", "columns[(tx + 16 * j) * 17 + p]", "sums[i * 4 + j]"


def plan(kernel: Conv, operands: tuple[Any, ...]) -> Launches:
    x, w, acc = operands[0], operands[1], operands[-1]
    groups, outputs, *taps, depth = w.shape
    m = 1
    for size in acc.shape[:4]:
        m *= size
    if m == 0 or outputs == 0 or groups == 0:
        return Launches(())
    given = Parameters()
    given.pointer("x", pointee(x.dtype), At(0))
    given.pointer("w", pointee(w.dtype), At(1))
    position, za, zb = 2, "", ""
    if kernel.a_zero_point:
        given.pointer("a_zero", pointee(operands[position].dtype), At(position))
        position, za = position + 1, " - a_zero[0]"
    if kernel.b_zero_point:
        given.pointer("b_zero", pointee(operands[position].dtype), At(position))
        given.number("b_zero_s", element_strides(operands[position])[0])
        position, zb = position + 1, " - b_zero[(group * n_size + n0 + r) * b_zero_s]"
    numbers = {"m_size": m, "n_size": outputs, "k_size": taps[0] * taps[1] * taps[2] * depth, "depth": depth}
    # three of each, for the three spatial axes; those that are not there have one tap and one place
    words = dict(zip(("taps", "stride", "before", "step", "spread"), _threes(kernel.window.words()), strict=True))
    for name, values in words.items():
        numbers |= {f"{name}{d}": value for d, value in enumerate(values)}
    numbers |= {f"extent{d}": size for d, size in enumerate(x.shape[1:4])}
    numbers |= {f"out{d}": size for d, size in enumerate(acc.shape[:4])}
    numbers |= {f"x_s{d}": s for d, s in enumerate(element_strides(x))}
    numbers |= {f"w_s{d}": s for d, s in enumerate(element_strides(w))}
    for name, value in numbers.items():
        given.number(name, value)
    if max(m, numbers["k_size"]) >= WIDE:
        raise LayoutError(f"conv with {m} places and {numbers['k_size']} products each; fewer than 2**31 work on CUDA")
    spread = [("zyq"[d], f"np.int32({'zyq'[d]}), np.int32(spread{d})") for d, n in enumerate(words["spread"]) if n > 1]
    written = Finish(AXES, position).parameters(given, operands)
    real = kernel.real
    left, right = "x[at]", "w[at]"
    if real:
        left, right = _WIDEN.get(kernel.x_dtype, "{}").format(left), _WIDEN.get(kernel.w_dtype, "{}").format(right)
        step = f"ptx.fma({', '.join(_PRODUCT)})"
    else:
        left, right = f"np.int32({left}{za})", f"np.int32({right}{zb})"
        step = "np.int32({2} + {0} * {1})".format(*_PRODUCT)
    sizes, names = [f"out{d}" for d in range(4)], list(AXES[:4])
    text = _SOURCE.format(
        package=__package__,
        parameters=", ".join(given.names),
        type="float32" if real else "int32",
        zero="np.float32(0)" if real else "np.int32(0)",
        tap=indented(coordinates("k", ["taps0", "taps1", "taps2", "depth"], ["tap0", "tap1", "tap2", "inside"]), 4),
        place=indented(["m = m0 + r", *coordinates("m", sizes, names)], 5),
        place_of_m=indented(coordinates("m", sizes, names), 3),
        apart="".join(f" and ptx.rem_u32({both}) == 0" for _, both in spread),
        together=indented([f"{name} = ptx.div_u32({both})" for name, both in spread], 6),
        left=left,
        right=right,
        guard="if k0 + p < k_size:  # a product beyond the last would turn -0.0 into 0.0" if real else "if True:",
        step=step,
        finish=indented(written, 5).rstrip("\n"),
    )
    grid = (ceildiv(m, EDGE), ceildiv(outputs, EDGE), groups)
    return Launches((given.launch(made(text, "conv"), grid, (THREADS,)),))


def _threes(words: list[int]) -> list[list[int]]:
    return [words[n : n + 3] for n in range(0, len(words), 3)]


@register("conv", backend="cuda")
def build(kernel: Conv) -> Device:
    return Device(lambda *operands: plan(kernel, operands))
