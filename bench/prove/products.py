"""Products: GEMM and what follows it, convolution, pooling, attention, packed weights."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from ...executors.schemes import get
from ...kernels import ops
from ...kernels.window import SPATIAL
from .draw import SIZES, Cell, Draw, Family, cells
from .elements import bent

BYTES = ("u8 s8", "s8 s8", "u8 u8", "s8 u8")
# bf16 by bf16 is left out: where the machine multiplies pairs, sums are within a bound and not equal (docs/numerics.md)
REAL = ("f32 f32", "f16 f32", "f32 bf16", "f16 f16", "bf16 f32", "f32 f16", "f16 bf16", "bf16 f16")
ZEROS = ("no zero points", "of the tensor", "of rows and columns")
AFTER_REAL = ("with a bias", "through a function")
AFTER_CODES = ("requantized", "requantized fixed", "with a residual", "by a table", "dequantized", *AFTER_REAL)
SCHEMES = (
    "int8_channel",
    "int8_channel_asym",
    "int4_g32",
    "int4_g64_asym",
    "int3_g32",
    "int2_g32",
    "ternary_g64",
    "nf4",
    "mxfp4",
)


def _followed(draw: Draw, acc: Any, columns: int, how: str) -> Any:
    """What an epilogue may do with sums whose last axis has so many columns."""
    many = (columns,) if draw.maybe() else ()
    if how in ("requantized", "requantized fixed", "with a residual", "by a table"):
        arithmetic = "fixed" if how.endswith("fixed") or (how != "requantized" and draw.maybe(0.3)) else "float"
        dtype = draw.pick("u8", "s8") if how == "by a table" else draw.pick("u8", "s8", "u8", "s8", "u16", "s16")
        lowest = -14.0 if draw.numbers.random() < 0.5 else -16.0
        ratio = (2.0 ** draw.numbers.uniform(lowest, -4, many)).astype(np.float32)
        zero = draw.code(dtype)
        codes = ops.requantize(acc, ratio, int(zero), dtype, arithmetic=arithmetic)
        if how == "by a table":
            return ops.lookup(codes, draw.values(draw.pick("u8", "s8"), (256,)))
        if how == "with a residual":
            beside = draw.values(dtype, (columns,)) if draw.maybe() else draw.input(dtype, (1, columns))
            scales = {"a_scale": draw.scale(), "b_scale": draw.scale(), "scale": draw.scale()}
            zeros = {"a_zero_point": zero, "b_zero_point": draw.code(dtype), "zero_point": draw.code(dtype)}
            return ops.add(codes, beside, **scales, **zeros, dtype=dtype)
        return ops.relu(codes, np.asarray(draw.code(dtype))) if draw.maybe(0.3) else codes
    if how == "through a function":
        return ops.map(bent, acc, draw.scale((columns,)))
    if how == "dequantized":
        return ops.dequantize(acc, draw.scale(many), axis=-1 if many else None)
    if how == "with a bias":
        return ops.add(acc, draw.values(str(acc.dtype), (columns,), tame=True))
    return acc


def _gemm(draw: Draw, cell: Cell) -> Any:
    of_a, of_b = cell.dtype.split()
    m, k, n = draw.size(), draw.size(), draw.size()
    if draw.limit == SIZES[-1] and draw.numbers.random() < 0.1:  # enough for several threads
        m, n = m + 150, n + 130
    batch = draw.shape(int(draw.pick(0, 0, 1, 2)), elements=4)
    real = cell.dtype in REAL
    a = draw.input(of_a, (*batch, m, k), tame=real)
    b = _weights_of(draw, of_b, (k, n)) if draw.maybe(0.6) else draw.input(of_b, (*batch, k, n), tame=real)
    if of_b == "s16":  # sums of any longer weights would have to be refused: they may pass int32
        b = draw.numbers.integers(-100, 101, (k, n)).astype(np.int16)
    zeros: dict[str, Any] = {}
    if cell.granularity != ZEROS[0]:
        whole = cell.granularity == ZEROS[1]
        zeros = {
            "a_zero_point": draw.code(of_a, () if whole else (m,)),
            "b_zero_point": draw.code(of_b, () if whole else (n,)),
        }
    if "x0" in draw.inputs and not isinstance(a.shape[0], int) and not batch and zeros and cell.granularity == ZEROS[2]:
        del zeros["a_zero_point"]  # so many rows are known at run time only
    return _followed(draw, ops.gemm(a, b, **zeros), n, cell.step.removeprefix("gemm").strip())


def _weights_of(draw: Draw, dtype: str, shape: tuple[int, ...]) -> Any:
    """Constant weights: elements from all over the type, small ones, or ones of one sign."""
    w = draw.values(dtype, shape, tame=True)
    if dtype == "s8":
        return draw.pick(w, w, w // 4, w // 2, np.minimum(w, 0))
    return w


def _image(draw: Draw, spatial: int, channels: int, least: int) -> tuple[str, tuple[int, ...]]:
    inner = SPATIAL[spatial]
    most = {1: 40, 2: 12, 3: 6}[spatial]
    sizes = dict(zip(inner, (max(least, draw.size(1, most)) for _ in inner), strict=True))
    sizes |= {"N": int(draw.pick(1, 1, 2, 0)), "C": channels}
    layout = draw.pick(f"NC{inner}", f"N{inner}C")
    return layout, tuple(sizes[a] for a in layout)


def _conv(draw: Draw, cell: Cell) -> Any:
    of_x, of_w = cell.dtype.split()
    spatial = int(draw.pick(1, 2, 2, 3))
    if cell.step == "depthwise conv":
        groups, inside, each = draw.size(1, 70), 1, int(draw.pick(1, 1, 2))
    else:
        groups = int(draw.pick(1, 1, 1, 2, 3))
        inside, each = draw.size(1, 17), draw.size(1, 65)
    if cell.dtype in REAL:
        groups, inside, each = min(groups, 20), min(inside, 5), min(each, 17)
    kernel = tuple(int(draw.pick(1, 2, 3, 3)) for _ in range(spatial))
    dilations = tuple(int(draw.pick(1, 1, 2)) for _ in kernel)
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    layout, shape = _image(draw, spatial, groups * inside, max(reach))
    pads = [int(draw.numbers.integers(0, r)) for r in (*reach, *reach)]
    more: dict[str, Any] = {}
    if cell.granularity != ZEROS[0]:
        more = {
            "a_zero_point": draw.code(of_x),
            "b_zero_point": draw.code(of_w, (groups * each,) if cell.granularity == ZEROS[2] else ()),
        }
    transposed = cell.step == "conv_transpose"
    w = _weights_of(draw, of_w, (groups * inside, each, *kernel) if transposed else (groups * each, inside, *kernel))
    op = ops.conv_transpose if transposed else ops.conv
    if transposed:
        pads = [0] * len(pads)
    strides = [int(draw.pick(1, 1, 2, 3)) for _ in kernel]
    y = op(
        draw.input(of_x, shape, tame=True), w, strides=strides, pads=pads, dilations=dilations, groups=groups,
        layout=layout, **more,
    )  # fmt: skip
    if cell.dtype not in REAL and draw.maybe():
        axis = layout.index("C")
        ratio = (2.0 ** draw.numbers.uniform(-14, -4, (groups * each,))).astype(np.float32)
        return ops.requantize(y, ratio, int(draw.code("u8")), "u8", axis=axis)
    return y


def _pool(draw: Draw, cell: Cell) -> Any:
    spatial = int(draw.pick(1, 2, 2, 3))
    kernel = tuple(int(draw.pick(1, 2, 3)) for _ in range(spatial))
    layout, shape = _image(draw, spatial, draw.size(1, 40), 3)
    x = draw.input(cell.dtype, shape, tame=draw.numbers.random() < 0.5)
    if cell.step.startswith("global"):
        return getattr(ops, cell.step)(x, layout=layout)
    more: dict[str, Any] = {"pads": [int(draw.numbers.integers(0, k)) for k in (*kernel, *kernel)]}
    more |= {"strides": [int(draw.pick(1, 2, 3)) for _ in kernel], "ceil_mode": draw.maybe(0.3)}
    if cell.step == "average_pool":
        more["count_include_pad"] = draw.maybe()
        if cell.dtype != "f32":
            more |= {
                "x_zero_point": draw.code(cell.dtype),
                "zero_point": draw.code(cell.dtype),
                "multiplier": draw.scale(),
            }
    return getattr(ops, cell.step)(x, kernel, layout=layout, **more)


def _attention(draw: Draw, cell: Cell) -> Any:
    batch, shared, group = int(draw.pick(1, 2)), int(draw.pick(1, 2)), int(draw.pick(1, 1, 3))
    m, n, d, e = draw.size(1, 70), draw.size(1, 70), draw.size(1, 33), draw.size(1, 33)
    q = draw.input(cell.dtype, (batch, shared * group, m, d), tame=True)
    k, v = (draw.input(cell.dtype, (batch, shared, n, width), tame=True) for width in (d, e))
    added = draw.numbers.standard_normal((batch, 1, 1, n)).astype(np.float32)
    mask = draw.pick(None, draw.numbers.integers(0, 2, (m, n)).astype(bool), added)
    lengths = draw.input("s64", (batch,), array=draw.numbers.integers(0, n + 1, batch)) if draw.maybe(0.3) else None
    more: dict[str, Any] = {"lengths": lengths}
    if draw.maybe(0.3):
        more |= {"causal": True, "offset": int(draw.pick(0, 3))}
    return ops.attention(q, k, v, mask, compute=cell.granularity, scale=0.3, **more)


GATES = {"rnn": 1, "gru": 3, "lstm": 4}


def _recurrent(draw: Draw, cell: Cell) -> Any:
    """A layer in one direction, with and without what ONNX lets a layer leave out."""
    gates, hidden, width = GATES[cell.step], int(draw.pick(1, 5, 16, 33)), draw.size(1, 40)
    steps, batch = draw.size(1, 9), draw.size(1, 5)
    x = draw.input(cell.dtype, (steps, batch, width), tame=True)
    shapes = (gates * hidden, width), (gates * hidden, hidden)
    more: dict[str, Any] = {"reverse": draw.maybe(0.3), "clip": float(draw.pick(0.0, 0.0, 0.5))}
    w: Any
    r: Any
    if cell.granularity == "int8":
        w, r = (draw.numbers.integers(-127, 128, shape).astype(np.int8) for shape in shapes)
        more["scales"] = (0.01, draw.pick(0.02, np.full(gates * hidden, 0.015, np.float32)))
    else:
        w, r = (draw.numbers.uniform(-1, 1, shape).astype(np.float32) for shape in shapes)
    if draw.maybe(0.4):
        more["lengths"] = draw.input("s32", (batch,), array=draw.numbers.integers(0, steps + 1, batch).astype(np.int32))
    if cell.step == "gru":
        more["linear_before_reset"] = draw.maybe()
    bias = draw.pick(None, draw.numbers.uniform(-1, 1, 2 * gates * hidden).astype(np.float32))
    states = [draw.input(cell.dtype, (batch, hidden), tame=True) for _ in range(1 + (cell.step == "lstm"))]
    if cell.step == "lstm":
        peepholes = draw.pick(None, draw.numbers.uniform(-1, 1, 3 * hidden).astype(np.float32))
        h, c = states
        return ops.lstm(x, w, r, bias, h, c, peepholes, input_forget=draw.maybe(0.2), **more)
    return getattr(ops, cell.step)(x, w, r, bias, *states, **more)


@cache
def _weights(name: str, rows: int, k: int) -> Any:
    """Quantized weights (rows, k), kept: fitting them again and again is not what is tried."""
    return get(name).quantize(np.random.default_rng([rows, k]).standard_normal((rows, k), np.float32))


def _linear(draw: Draw, cell: Cell) -> Any:
    k = int(draw.pick(32, 48, 64, 100, 130))
    weights = _weights(cell.step.removeprefix("linear "), int(draw.pick(1, 5, 16, 33)), k)
    return ops.linear(draw.input(cell.dtype, (draw.size(0, 33), k), tame=True), weights, cell.granularity)


def _network(draw: Draw, cell: Cell) -> Any:
    """Several layers with a value that is read again late, a branch, and a second output."""
    rows, k, n = draw.size(1), draw.size(1, 64), draw.size(1, 64)
    x = draw.input("u8", (rows, k))

    def layer(value: Any, inner: int, columns: int) -> Any:
        acc = ops.gemm(value, draw.values("s8", (inner, columns)), a_zero_point=draw.code("u8"))
        return ops.requantize(acc, (2.0 ** draw.numbers.uniform(-14, -6, (columns,))).astype(np.float32), 128, "u8")

    first = layer(x, k, n)
    second = layer(ops.lookup(first, draw.values("u8", (256,))), n, n)
    third = layer(second, n, n)
    scales = {"a_scale": draw.scale(), "b_scale": draw.scale(), "scale": draw.scale(), "zero_point": 128}
    joined = ops.add(first, third, a_zero_point=128, b_zero_point=128, **scales)
    if cell.granularity == "one output":
        return layer(joined, n, draw.size(1, 40))
    return joined, ops.softmax(ops.dequantize(second, 0.05, 7)), layer(joined, n, k)


FAMILIES = (
    Family(cells(("network",), ("u8 s8",), ("one output", "branches")), _network),
    Family(
        (
            *cells(["gemm", *(f"gemm {how}" for how in AFTER_CODES)], BYTES, ZEROS),
            *cells(("gemm",), ("s16 s16",), ZEROS[:1]),
            *cells(("gemm",), REAL, ZEROS[:1]),
            *cells([f"gemm {how}" for how in AFTER_REAL], REAL[:3], ZEROS[:1]),
        ),
        _gemm,
    ),
    Family(
        (
            *cells(("conv", "depthwise conv", "conv_transpose"), BYTES, ZEROS),
            *cells(("conv", "depthwise conv", "conv_transpose"), ("f32 f32", "f16 f32", "f32 bf16"), ZEROS[:1]),
        ),
        _conv,
    ),
    Family(cells(("max_pool", "average_pool", "global_max_pool", "global_average_pool"), ("u8", "s8", "f32")), _pool),
    Family(cells(("attention",), ("f32",), ("f32", "int8")), _attention),
    Family(cells(("rnn", "gru", "lstm"), ("f32",), ("f32", "int8")), _recurrent),
    Family(cells([f"linear {name}" for name in SCHEMES], ("f32",), ("f32", "int8")), _linear),
)
