"""linear on CUDA: packed codes decoded as they are read, inside the product.

kernels/reference/linear.py says what it computes. A block of 256 threads computes 64 x 64 sums over steps of 16 along K.
With compute="int8" x is quantized first, by a kernel of its own; each block of K is then summed exactly in int32 and
joins the float32 result by one fused multiply-add, in ascending order.
"""

from __future__ import annotations

from typing import Any

from ...primitives.errors import LayoutError
from ..factory import register
from ..linear import CodeFormat, Linear
from .finish import Finish
from .launch import At, Device, Launch, Launches, Temp, ceildiv, element_strides, pointee
from .map import prelude as captured_prelude
from .text import WIDE, Parameters, coordinates, indented, made

EDGE, THREADS, PACK_THREADS = 64, 256, 128

_SOURCE = """\
import numpy as np
from {package} import ptx
from {package}.scalar import *
from {package}.seam import cuda, device
from {package}.vectormath import bf16_bits, bf16_value
{prelude}

def linear({parameters}):
    rows = cuda.shared.array(1088, np.{type})  # 64 rows of x, 16 steps of K, each padded by one
    columns = cuda.shared.array(1088, np.{type})  # 64 rows of w likewise
    sums = cuda.local.array(16, np.{type})
    totals = cuda.local.array(16, np.float32)
    thread = cuda.threadIdx.x
    tx = thread & 15
    ty = thread >> 4
    line0 = cuda.blockIdx.x * 64
    n0 = cuda.blockIdx.y * 64
    for i in range(16):
        totals[i] = np.float32(0)
        sums[i] = {zero}
    for block in range(blocks):
        k_end = min((block + 1) * depth, k_size)
        for k0 in range(block * depth, k_end, 16):
            for j in range(4):
                r = (thread + 256 * j) >> 4
                k = k0 + (thread & 15)
                left = {zero}
                right = {zero}
                if k < k_end:
                    if line0 + r < lines:
{left}                    if n0 + r < n_size:
                        n = n0 + r
{right}                rows[r * 17 + (thread & 15)] = left
                columns[r * 17 + (thread & 15)] = right
            cuda.syncthreads()
            for p in range(16):
                {guard}
                    for i in range(4):
                        for j in range(4):
                            sums[i * 4 + j] = {step}
            cuda.syncthreads()
{flush}    for i in range(4):
        line = line0 + ty + 16 * i
        if line < lines:
{place}            for j in range(4):
                n = n0 + tx + 16 * j
                if n < n_size:
                    value = {value}
{finish}
"""

_FLUSH = """\
        for i in range(4):
            line = line0 + ty + 16 * i
            for j in range(4):
                n = n0 + tx + 16 * j
                if line < lines and n < n_size:
                    factor = ptx.mul({scale}, x_scales[line * blocks + block])
                    total = ptx.fma(np.float32(sums[i * 4 + j]), factor, totals[i * 4 + j])
{offset}                    totals[i * 4 + j] = total
                sums[i * 4 + j] = 0
"""

_QUANTIZE = """\
import numpy as np
from {package} import ptx
from {package}.scalar import *
from {package}.seam import cuda
from {package}.vectormath import fabs, isfinite, maximum


def quantize_rows({parameters}):
    number = cuda.grid(1)
    if number < lines * blocks:
        line = ptx.div_u32(np.int32(number), np.int32(blocks))
        block = ptx.rem_u32(np.int32(number), np.int32(blocks))
{place}        amax = np.float32(0)
        for k in range({first}, {end}):
            amax = maximum(amax, fabs({x}))
        scale = np.float32(np.nan)
        inverse = np.float32(0)
        if isfinite(amax):
            scale = np.float32(0)
            if amax >= np.float32({tiny!r}):
                scale = ptx.mul(amax, np.float32({step!r}))
                inverse = ptx.div(np.float32(127), amax)
        total = 0
        for k in range(block * depth, min((block + 1) * depth, k_size)):
            code = np.int64(0)
            if inverse > np.float32(0):
                code = np.int64(ptx.to_int(ptx.rint(ptx.mul({x}, inverse))))
            codes[line * k_size + k] = code
            total += code
        x_scales[number] = scale
        x_sums[number] = ptx.mul(np.float32(total), scale)
"""

_WIDEN = {"f32": "{}", "bf16": "bf16_to_f32({})", "f16": "f16_to_f32({})"}
_PRODUCT = "rows[(ty + 16 * i) * 17 + p]", "columns[(tx + 16 * j) * 17 + p]", "sums[i * 4 + j]"


def refuses(kernel: Linear) -> str | None:
    """Why CUDA has no such product, or None."""
    if kernel.compute == "int8" and kernel.format.kind == "table":
        return "a table's levels as integers are found on the host"
    return None


def plan(kernel: Linear, operands: tuple[Any, ...]) -> Launches:
    x, y = operands[0], operands[-1]
    whole, fmt = kernel.compute == "int8", kernel.format
    n_size, k_size = y.shape[-1], kernel.K
    lines = 1
    for size in x.shape[:-1]:
        lines *= size
    if 0 in (lines, n_size):
        return Launches(())
    depth = fmt.depth(k_size) if whole else max(k_size, 1)
    blocks = ceildiv(k_size, depth)
    if max(lines * max(blocks, 1), n_size) >= WIDE:
        raise LayoutError(f"linear of {lines} rows and {n_size} columns; fewer than 2**31 work on CUDA")
    launches, temporaries = [], []
    given = Parameters()
    names = [*(f"g{d}" for d in range(kernel.batch)), "m"]
    sizes = [f"size_{name}" for name in names]
    x_place = " + ".join([f"{name} * x_s{d}" for d, name in enumerate(names)])
    element = f"x[{x_place} + k * x_s{x.ndim - 1}]"
    if whole:
        temporaries = [lines * k_size, 4 * lines * blocks, 4 * lines * blocks]
        launches.append(_quantize(kernel, x, lines, blocks, depth, element, names))
        given.pointer("x", "s8", Temp(0, "s8"))
        given.pointer("x_scales", "f32", Temp(1, "f32"))
        given.pointer("x_sums", "f32", Temp(2, "f32"))
        left = ["left = np.int32(x[(line0 + r) * k_size + k])"]
    else:
        given.pointer("x", pointee(x.dtype), At(0))
        for d, stride in enumerate(element_strides(x)):
            given.number(f"x_s{d}", stride)
        widened = _WIDEN[kernel.x_dtype].format(element)
        if kernel.compute == "bf16":
            widened = f"bf16_value(bf16_bits({widened}))"
        left = ["line = line0 + r", *coordinates("line", sizes, names), f"left = {widened}"]
    for name, value in (("lines", lines), ("n_size", n_size), ("k_size", k_size), ("depth", depth), ("blocks", blocks)):
        given.number(name, value)
    for name, value in zip(sizes, x.shape[:-1], strict=True):
        given.number(name, value)
    right, parameters = _weight(fmt, operands, given, k_size, whole)
    if kernel.compute == "bf16":
        right.append("right = bf16_value(bf16_bits(right))")
    written = Finish((*names, "n"), len(operands) - 1).parameters(given, operands)
    offset = indented([f"total = ptx.fma({parameters.get('offset', '')}, x_sums[line * blocks + block], total)"], 5)
    text = _SOURCE.format(
        package=__package__,
        prelude=captured_prelude(fmt.captured, "decode") if fmt.kind == "decode" else "",
        parameters=", ".join(given.names),
        type="int32" if whole else "float32",
        zero="np.int32(0)" if whole else "np.float32(0)",
        left=indented(left, 6),
        right=indented(right, 6),
        guard="if True:" if whole else "if k0 + p < k_end:  # a product of padding would turn -0.0 into 0.0",
        step="np.int32({2} + {0} * {1})".format(*_PRODUCT) if whole else f"ptx.fma({', '.join(_PRODUCT)})",
        flush=_FLUSH.format(scale=parameters["scale"], offset=offset if fmt.kind == "offset" else "") if whole else "",
        place=indented(coordinates("line", sizes, names), 3),
        value="totals[i * 4 + j]" if whole else "sums[i * 4 + j]",
        finish=indented(written, 5).rstrip("\n"),
    )
    launches.append(given.launch(made(text, "linear"), (ceildiv(lines, EDGE), ceildiv(n_size, EDGE)), (THREADS,)))
    return Launches(tuple(launches), tuple(temporaries))


def _weight(
    fmt: CodeFormat, operands: tuple[Any, ...], given: Parameters, k_size: int, whole: bool
) -> tuple[list[str], dict[str, str]]:
    """Lines that set `right` to the weight at (n, k), or to its integer; and each parameter at (n, block)."""
    codes = operands[1]
    given.pointer("codes", pointee(codes.dtype), At(1))
    row, column = element_strides(codes)
    given.number("codes_n", row)
    given.number("codes_k", column)
    mask, half = (1 << fmt.bits) - 1, 1 << (fmt.bits - 1)
    if fmt.packing == "bytes":
        lines = [f"code = np.int64(codes[n * codes_n + k * codes_k]) & {mask}"]
    else:
        lines = [
            f"bit = k * {fmt.bits}",
            "code = np.int64(codes[n * codes_n + (bit >> 3) * codes_k])",
            *([] if 8 % fmt.bits == 0 else [f"if (bit & 7) > {8 - fmt.bits}:"]),
            *(
                []
                if 8 % fmt.bits == 0
                else ["    code |= np.int64(codes[n * codes_n + ((bit >> 3) + 1) * codes_k]) << 8"]
            ),
            f"code = (code >> (bit & 7)) & {mask}",
        ]
    if fmt.signed and fmt.kind != "table":
        lines.append(f"code -= (code & {half}) << 1")
    count = len(fmt.parameters)
    found, at_block = {}, {}
    if fmt.block[1] is not None:
        given.number("columns_of_block", fmt.depth(k_size))
    for position, slot in enumerate(fmt.parameters, 2):
        array = operands[position]
        given.pointer(slot, pointee(array.dtype), At(position))
        n_stride, g_stride = element_strides(array)
        given.number(f"{slot}_n", n_stride)
        given.number(f"{slot}_g", g_stride)
        rows = fmt.block[0]
        which = "0" if rows is None else "n" if rows == 1 else f"(n // {rows})"
        along = "0" if fmt.block[1] is None else "(k // columns_of_block)"
        found[slot] = f"{slot}[{which} * {slot}_n + {along} * {slot}_g]"
        at_block[slot] = f"{slot}[{which} * {slot}_n + block * {slot}_g]"
    if fmt.kind == "table":
        given.pointer("table", "f32", At(2 + count))
    if whole:
        shifted = f"code - np.int64({found['zero_point']})" if fmt.zero_point else "code"
        return [*lines, f"right = np.int32({shifted})"], at_block
    result = {
        "affine": "ptx.mul(np.float32(code{zero}), {scale})",
        "offset": "ptx.add(ptx.mul(np.float32(code), {scale}), {offset})",
        "table": "ptx.mul(table[code], {scale})",
        "decode": "decode(np.int32(code){rest})",
    }[fmt.kind]
    zero = f" - np.int64({found['zero_point']})" if fmt.zero_point else ""
    rest = "".join(f", {found[slot]}" for slot in fmt.parameters)
    rest += ", np.int32(n * k_size + k)" * fmt.position
    names = {**found, "zero": zero, "rest": rest}
    return [*lines, f"right = {result.format(**names)}"], at_block


def _quantize(kernel: Linear, x: Any, lines: int, blocks: int, depth: int, element: str, names: list[str]) -> Launch:
    """x to codes of 8 bits, with a scale for each row and block, or for each row, and the scaled sum of the codes."""
    from ..reference.linear import STEP, TINY

    given = Parameters()
    given.pointer("x", pointee(x.dtype), At(0))
    for d, stride in enumerate(element_strides(x)):
        given.number(f"x_s{d}", stride)
    given.pointer("codes", "s8", Temp(0, "s8"), written=True)
    given.pointer("x_scales", "f32", Temp(1, "f32"), written=True)
    given.pointer("x_sums", "f32", Temp(2, "f32"), written=True)
    for name, value in (("lines", lines), ("blocks", blocks), ("depth", depth), ("k_size", kernel.K)):
        given.number(name, value)
    sizes = [f"size_{name}" for name in names]
    for name, value in zip(sizes, x.shape[:-1], strict=True):
        given.number(name, value)
    by_row = kernel.activation == "row"
    text = _QUANTIZE.format(
        package=__package__,
        parameters=", ".join(given.names),
        place=indented(coordinates("line", sizes, names), 2),
        first="0" if by_row else "block * depth",
        end="k_size" if by_row else "min((block + 1) * depth, k_size)",
        x=_WIDEN[kernel.x_dtype].format(element),
        tiny=float(TINY),
        step=float(STEP),
    )
    return given.launch(made(text, "quantize_rows"), (ceildiv(max(lines * blocks, 1), PACK_THREADS),), (PACK_THREADS,))


@register("linear", backend="cuda", requires=refuses)
def build(kernel: Linear) -> Device:
    return Device(lambda *operands: plan(kernel, operands))
