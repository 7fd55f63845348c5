"""How models of each operator of com.microsoft are drawn (onnx_operators.py)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
F32 = np.float32
Rng = np.random.Generator


@dataclass
class Draw:
    """A node: operands by position (None: left out), which of them are constants, attributes, outputs.

    free     {operand: {axis: name}}: sizes that the model leaves open
    within   how far real numbers may be off, relative to the largest
    """

    operands: list[Any]
    constants: tuple[int, ...] = ()
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1
    free: dict[int, dict[int, str]] = field(default_factory=dict)
    within: float = 1e-4


Maker = Callable[[np.random.Generator], Draw]
OPERATORS: dict[str, Maker] = {}


def draws(name: str) -> Callable[[Maker], Maker]:
    def enter(make: Maker) -> Maker:
        OPERATORS[name] = make
        return make

    return enter


def codes(rng: Rng, shape: Any, kind: Any = np.uint8) -> Array:
    limits = np.iinfo(kind)
    return rng.integers(limits.min, limits.max + 1, shape).astype(kind)


def real(rng: Rng, *shape: int, scale: float = 1.0) -> Array:
    return (rng.standard_normal(shape) * scale).astype(F32)


def step(rng: Rng, low: float = 0.01, high: float = 0.2) -> Array:
    """A scale without axes."""
    return np.asarray(rng.uniform(low, high), F32)


def kind_of(rng: Rng) -> Any:
    return (np.uint8, np.int8)[int(rng.integers(0, 2))]


def sizes(rng: Rng, rank: int, most: int = 9) -> list[int]:
    return [int(n) for n in rng.integers(1, most + 1, rank)]


def params(rng: Rng, kind: Any) -> list[Array]:
    """A scale and a zero point."""
    return [step(rng), codes(rng, (), kind)]


def binary(rng: Rng) -> Draw:
    kind, shape = kind_of(rng), sizes(rng, int(rng.integers(1, 4)))
    other = [n if rng.random() < 0.7 else 1 for n in shape][int(rng.integers(0, 2)) :]
    return Draw(
        [codes(rng, shape, kind), *params(rng, kind), codes(rng, other, kind), *params(rng, kind), *params(rng, kind)],
        (1, 2, 4, 5, 6, 7),
    )


draws("QLinearAdd")(binary)
draws("QLinearMul")(binary)


def unary(**attributes: Any) -> Any:
    def make(rng: Rng) -> Draw:
        kind = kind_of(rng)
        shape = sizes(rng, int(rng.integers(1, 4)))
        given = {name: made(rng) for name, made in attributes.items()}
        return Draw([codes(rng, shape, kind), *params(rng, kind), *params(rng, kind)], (1, 2, 3, 4), given)

    return make


draws("QLinearSigmoid")(unary())
draws("QLinearLeakyRelu")(unary(alpha=lambda rng: float(rng.uniform(0.01, 0.5))))


@draws("QLinearWhere")
def where(rng: Rng) -> Draw:
    kind, shape = kind_of(rng), sizes(rng, int(rng.integers(1, 4)))
    other = [n if rng.random() < 0.7 else 1 for n in shape]
    x, y = (codes(rng, shape, kind), codes(rng, other, kind))
    return Draw(
        [rng.random(shape) < 0.5, x, *params(rng, kind), y, *params(rng, kind), *params(rng, kind)], (2, 3, 5, 6, 7, 8)
    )


def wide_kind_of(rng: Rng) -> Any:
    return (np.uint8, np.int8, np.uint16, np.int16)[int(rng.integers(0, 4))]


def along(rng: Rng, shape: list[int], kind: Any) -> tuple[list[Array], dict[str, Any]]:
    """A scale and a zero point, or one for each place along an axis."""
    if rng.random() < 0.5:
        return params(rng, kind), {}
    axis = int(rng.integers(0, len(shape)))
    return [rng.uniform(0.01, 0.2, shape[axis]).astype(F32), codes(rng, shape[axis], kind)], {"axis": axis}


@draws("QuantizeLinear")
def quantize(rng: Rng) -> Draw:
    kind, shape = wide_kind_of(rng), sizes(rng, int(rng.integers(1, 4)))
    given, attributes = along(rng, shape, kind)
    return Draw([real(rng, *shape, scale=10.0), *given], (1, 2), attributes)


@draws("DequantizeLinear")
def dequantize(rng: Rng) -> Draw:
    kind, shape = wide_kind_of(rng), sizes(rng, int(rng.integers(1, 4)))
    given, attributes = along(rng, shape, kind)
    return Draw([codes(rng, shape, kind), *given], (1, 2), attributes)


@draws("FusedGemm")
def fused_gemm(rng: Rng) -> Draw:
    m, k, n = sizes(rng, 3)
    name = ("Relu", "Sigmoid", "Tanh", "LeakyRelu")[int(rng.integers(0, 4))]
    turned = int(rng.integers(0, 2))
    b = real(rng, n, k) if turned else real(rng, k, n)
    attributes = {"activation": name, "activation_alpha": 0.25, "transB": turned, "alpha": float(rng.uniform(0.5, 2))}
    return Draw([real(rng, m, k), b, real(rng, n)], (1, 2), attributes)


@draws("QLinearSoftmax")
def softmax(rng: Rng) -> Draw:
    kind, rank = kind_of(rng), int(rng.integers(1, 4))
    axis = int(rng.integers(-rank, rank))
    opset = int(rng.choice([12, 13]))
    scale, zero = np.asarray(1 / 256, F32), np.asarray(0 if kind == np.uint8 else -128, kind)
    return Draw(
        [codes(rng, sizes(rng, rank, 12), kind), step(rng), codes(rng, (), kind), scale, zero],
        (1, 2, 3, 4),
        {"axis": axis, "opset": opset},
    )


@draws("QLinearConcat")
def concat(rng: Rng) -> Draw:
    kind, shape = kind_of(rng), sizes(rng, 3)
    axis = int(rng.integers(-3, 3))
    operands, constants = params(rng, kind), [0, 1]
    for _ in range(int(rng.integers(1, 4))):
        own = list(shape)
        own[axis] = int(rng.integers(1, 6))
        constants += [len(operands) + 1, len(operands) + 2]
        operands += [codes(rng, own, kind), *params(rng, kind)]
    return Draw(operands, tuple(constants), {"axis": axis})


@draws("QLinearAveragePool")
def average(rng: Rng) -> Draw:
    kind = kind_of(rng)
    window = [int(n) for n in rng.integers(1, 4, 2)]
    attributes = {
        "kernel_shape": window,
        "strides": [int(n) for n in rng.integers(1, 3, 2)],
        "pads": [int(rng.integers(0, n)) for n in (*window, *window)],
        "count_include_pad": int(rng.integers(0, 2)),
        "ceil_mode": int(rng.integers(0, 2)),
        "channels_last": int(rng.integers(0, 2)),
    }
    spatial = rng.integers(4, 10, 2)
    x = codes(rng, (2, *spatial, 3) if attributes["channels_last"] else (2, 3, *spatial), kind)
    return Draw([x, *params(rng, kind), *params(rng, kind)], (1, 2, 3, 4), attributes)


@draws("QLinearGlobalAveragePool")
def global_average(rng: Rng) -> Draw:
    kind = kind_of(rng)
    attributes = {"channels_last": int(rng.integers(0, 2))}
    x = codes(rng, (2, 5, *rng.integers(1, 9, 2)), kind)
    return Draw([x, *params(rng, kind), *params(rng, kind)], (1, 2, 3, 4), attributes)


@draws("QGemm")
def qgemm(rng: Rng) -> Draw:
    (m, k, n), kind, weight = sizes(rng, 3, 20), kind_of(rng), kind_of(rng)
    trans = {"transA": int(rng.integers(0, 2)), "transB": int(rng.integers(0, 2))}
    a = codes(rng, (k, m) if trans["transA"] else (m, k), kind)
    b = codes(rng, (n, k) if trans["transB"] else (k, n), weight)
    columns = rng.random() < 0.5
    scale = rng.uniform(0.01, 0.1, n).astype(F32) if columns else step(rng)
    operands: list[Any] = [a, *params(rng, kind), b, scale, codes(rng, (n,) if columns else (), weight)]
    operands.append(rng.integers(-99, 99, (n,)).astype(np.int32) if rng.random() < 0.7 else None)
    if rng.random() < 0.6:
        operands += [step(rng, 0.5, 5), codes(rng, (), kind)]
    return Draw(operands, tuple(range(1, 9)), {**trans, "alpha": float(rng.choice([1.0, 0.5]))})


@draws("MatMulIntegerToFloat")
def to_float(rng: Rng) -> Draw:
    (m, k, n), kind, weight = sizes(rng, 3, 20), np.uint8, kind_of(rng)
    columns = rng.random() < 0.5
    scale = rng.uniform(0.01, 0.1, n).astype(F32) if columns else step(rng)
    zero = codes(rng, (n,) if columns else (), weight)
    operands: list[Any] = [codes(rng, (2, m, k), kind), codes(rng, (k, n), weight), step(rng), scale]
    operands += [codes(rng, (), kind), zero if rng.random() < 0.7 else None]
    operands.append(real(rng, n) if rng.random() < 0.5 else None)
    return Draw(operands, (1, 2, 3, 4, 5, 6))


@draws("DynamicQuantizeMatMul")
def dynamic(rng: Rng) -> Draw:
    (m, k, n), weight = sizes(rng, 3, 20), kind_of(rng)
    columns = rng.random() < 0.5
    scale = rng.uniform(0.01, 0.1, n).astype(F32) if columns else step(rng)
    zero = codes(rng, (n,) if columns else (), weight) if rng.random() < 0.7 else None
    operands = [real(rng, m, k), codes(rng, (k, n), weight), scale, zero, real(rng, n) if rng.random() < 0.5 else None]
    return Draw(operands, (1, 2, 3, 4), free={0: {0: "M"}})


@draws("MatMulNBits")
def nbits(rng: Rng) -> Draw:
    bits, block = int(rng.choice([4, 4, 8])), int(rng.choice([16, 32, 64]))
    m, n, k = int(rng.integers(1, 5)), int(rng.integers(1, 20)), int(rng.integers(1, 150))
    blocks = -(-k // block)
    operands: list[Any] = [real(rng, m, k), codes(rng, (n, blocks, block * bits // 8)), real(rng, n, blocks)]
    if rng.random() < 0.5:
        operands.append(codes(rng, (n, -(-blocks * bits // 8))))
    else:
        operands.append(None)
    operands += [None, real(rng, n) if rng.random() < 0.5 else None]
    return Draw(operands, (1, 2, 3, 5), {"K": k, "N": n, "bits": bits, "block_size": block}, within=1e-3)


@draws("GatherBlockQuantized")
def gather_blocks(rng: Rng) -> Draw:
    block, rows, blocks = int(rng.choice([16, 32])), int(rng.integers(2, 20)), int(rng.integers(1, 4))
    indices = rng.integers(0, rows, sizes(rng, 2, 5)).astype(np.int32 if rng.random() < 0.5 else np.int64)
    operands: list[Any] = [codes(rng, (rows, block * blocks // 2)), indices, real(rng, rows, blocks)]
    if rng.random() < 0.5:
        operands.append(codes(rng, (rows, -(-blocks // 2))))
    attributes = {"gather_axis": 0, "quantize_axis": 1, "block_size": block, "bits": 4}
    return Draw(operands, (0, 2, 3), attributes)


@draws("FusedMatMul")
def fused_matmul(rng: Rng) -> Draw:
    m, k, n = sizes(rng, 3)
    batch = [int(x) for x in rng.integers(1, 4, 2)]
    names = ("transA", "transB", "transBatchA", "transBatchB")
    turns = {name: int(rng.integers(0, 2)) for name in names}
    if not any(turns.values()) or rng.random() < 0.5:
        turns["transBatchA"] = turns["transBatchB"] = 0

    def shape(rows: int, columns: int, turned: int, moved: int) -> list[int]:
        last = [columns, rows] if turned else [rows, columns]
        return [*batch, *last] if not moved else [last[0], *batch, last[1]]

    a = real(rng, *shape(m, k, turns["transA"], turns["transBatchA"]))
    b = real(rng, *shape(k, n, turns["transB"], turns["transBatchB"]))
    return Draw([a, b], (), {**turns, "alpha": float(rng.uniform(0.3, 2))})


@draws("FusedConv")
def fused_conv(rng: Rng) -> Draw:
    groups, per, out = int(rng.choice([1, 2])), int(rng.integers(1, 4)), int(rng.integers(1, 4))
    name = str(rng.choice(["Relu", "Sigmoid", "Tanh", "LeakyRelu", "Clip", "HardSigmoid"]))
    numbers = {"LeakyRelu": [0.1], "Clip": [-0.5, 1.5], "HardSigmoid": [0.3, 0.4]}.get(name)
    attributes: dict[str, Any] = {"group": groups, "activation": name, "kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    if numbers is not None:
        attributes["activation_params"] = numbers
    x, w = real(rng, 1, groups * per, 7, 6), real(rng, groups * out, per, 3, 3)
    operands: list[Any] = [x, w, real(rng, groups * out) if rng.random() < 0.6 else None]
    if rng.random() < 0.4:
        operands.append(real(rng, 1, groups * out, 7, 6))
    return Draw(operands, (1, 2), attributes)


for _name, _second in (("Gelu", False), ("BiasGelu", True), ("FastGelu", True), ("QuickGelu", False)):

    @draws(_name)
    def gelu(rng: Rng, name: str = _name, second: bool = _second) -> Draw:
        shape = sizes(rng, 3)
        bias = [real(rng, shape[-1])] if second and (name == "BiasGelu" or rng.random() < 0.5) else []
        attributes = {"alpha": float(rng.uniform(0.5, 2))} if name == "QuickGelu" else {}
        return Draw([real(rng, *shape, scale=3), *bias], (1,), attributes)


@draws("SkipLayerNormalization")
def skip_norm(rng: Rng) -> Draw:
    shape = sizes(rng, 3)
    width = shape[-1]
    operands: list[Any] = [real(rng, *shape), real(rng, *shape), real(rng, width)]
    operands += [real(rng, width) if rng.random() < 0.7 else None, real(rng, width) if rng.random() < 0.5 else None]
    return Draw(operands, (2, 3, 4), {"epsilon": float(rng.choice([1e-12, 1e-5]))}, within=1e-3)


# Attention -----------------------------------------------------------------------------------------------------------


def mask_of(rng: Rng, batch: int, rows: int, keys: int, forms: tuple[str, ...]) -> Array | None:
    form = str(rng.choice(forms))
    if form == "none":
        return None
    if form == "lengths":
        return rng.integers(0, keys + 1, batch).astype(np.int32)
    if form == "spans":
        return np.concatenate([rng.integers(0, keys + 1, batch), rng.integers(0, keys, batch)]).astype(np.int32)
    shape = (batch, keys) if form == "raw" else (batch, rows, keys)
    return (rng.random(shape) < 0.7).astype(np.int32)


def attributes_of(rng: Rng, heads: int) -> dict[str, Any]:
    found: dict[str, Any] = {"num_heads": heads, "unidirectional": int(rng.integers(0, 2))}
    if rng.random() < 0.3:
        found |= {"scale": float(rng.uniform(0.1, 1)), "mask_filter_value": float(rng.choice([-5.0, -1e4]))}
    return found


FORMS = ("none", "raw", "lengths", "spans", "3d")


@draws("Attention")
def attention(rng: Rng) -> Draw:
    batch, rows, heads, depth, past = (int(n) for n in rng.integers(1, 6, 5))
    inputs, attributes = int(rng.integers(1, 9)), attributes_of(rng, heads)
    widths, held = [heads * depth] * 3, int(rng.random() < 0.4) * past
    if not held and rng.random() < 0.4:
        widths[2] = heads * int(rng.integers(1, 6))
        attributes["qkv_hidden_sizes"] = widths
    operands: list[Any] = [real(rng, batch, rows, inputs), real(rng, inputs, sum(widths)), real(rng, sum(widths))]
    operands.append(mask_of(rng, batch, rows, rows + held, FORMS))
    operands.append(real(rng, 2, batch, heads, held, depth) if held else None)
    free = {0: {0: "B", 1: "S"}, 3: {0: "B", 1: "T"}, 4: {1: "B", 3: "P"}} if rng.random() < 0.3 else {}
    if operands[3] is not None and operands[3].ndim != 2:
        free = {}
    if rng.random() < 0.3:
        operands.append(real(rng, 1, heads, rows, rows + held))
    return Draw(operands, (1, 2), attributes, 2 if held else 1, free, within=1e-3)  # behind -10000 few digits are left


@draws("MultiHeadAttention")
def multi_head(rng: Rng) -> Draw:
    batch, rows, heads, depth, width, past = (int(n) for n in rng.integers(1, 6, 6))
    attributes = attributes_of(rng, heads)
    held = past if rng.random() < 0.4 else 0
    width = depth if held else width
    keys = rows if held or attributes["unidirectional"] else int(rng.integers(1, 7))
    q, k, v = (
        real(rng, batch, rows, heads * depth),
        real(rng, batch, keys, heads * depth),
        real(rng, batch, keys, heads * width),
    )
    bias = real(rng, heads * (2 * depth + width)) if rng.random() < 0.6 else None
    mask = mask_of(rng, batch, rows, keys + held, ("none", "raw", "lengths", "3d"))
    operands: list[Any] = [q, k, v, bias, mask, None]
    if rng.random() < 0.3:
        operands[5] = real(rng, 1, heads, rows, keys + held)
    if held:
        operands += [real(rng, batch, heads, held, depth), real(rng, batch, heads, held, depth)]
    return Draw(operands, (3,), attributes, 3 if held else 1, within=1e-3)


@draws("QAttention")
def qattention(rng: Rng) -> Draw:
    batch, rows, heads, depth, past = (int(n) for n in rng.integers(1, 6, 5))
    inputs, weight, held = int(rng.integers(1, 9)), kind_of(rng), int(rng.random() < 0.4) * past
    whole, columns = 3 * heads * depth, rng.random() < 0.5
    scale = rng.uniform(0.001, 0.01, whole).astype(F32) if columns else step(rng, 0.001, 0.01)
    operands: list[Any] = [codes(rng, (batch, rows, inputs)), codes(rng, (inputs, whole), weight), real(rng, whole)]
    operands += [step(rng, 0.01, 0.05), scale, mask_of(rng, batch, rows, rows + held, ("none", "raw", "lengths"))]
    operands += [codes(rng, ()), np.full(whole if columns else (), 3, weight)]
    operands.append(real(rng, 2, batch, heads, held, depth) if held else None)
    attributes = attributes_of(rng, heads)
    attributes.pop("scale", None)
    return Draw(operands, (1, 2, 3, 4, 6, 7), attributes, 2 if held else 1)


@draws("EmbedLayerNormalization")
def embed(rng: Rng) -> Draw:
    batch, length, width = sizes(rng, 3)
    ids, parts = rng.integers(0, 11, (batch, length)).astype(np.int32), rng.random() < 0.6
    operands: list[Any] = [ids, ids % 2 if parts else None, real(rng, 11, width), real(rng, 9, width)]
    operands += [real(rng, 2, width) if parts else None, real(rng, width), real(rng, width)]
    operands.append((rng.random((batch, length)) < 0.5).astype(np.int32) if rng.random() < 0.6 else None)
    if rng.random() < 0.4:
        operands.append(rng.integers(0, 9, (batch, length)).astype(np.int32))
    return Draw(operands, (2, 3, 4, 5, 6), {"epsilon": 1e-5}, 3, within=1e-3)


@draws("QEmbedLayerNormalization")
def embed_codes(rng: Rng) -> Draw:
    batch, length, width = sizes(rng, 3)
    ids, parts = rng.integers(0, 11, (batch, length)).astype(np.int32), rng.random() < 0.6
    operands: list[Any] = [ids, ids % 2 if parts else None, codes(rng, (11, width)), codes(rng, (9, width))]
    operands += [codes(rng, (2, width)) if parts else None, codes(rng, (width,)), codes(rng, (width,))]
    operands.append((rng.random((batch, length)) < 0.5).astype(np.int32))
    operands += [step(rng) if parts or n != 2 else None for n in range(5)]
    operands += [codes(rng, ()) if parts or n != 2 else None for n in range(5)]
    return Draw(operands, (*range(2, 7), *range(8, 18)), {"epsilon": 1e-3}, 2, within=1e-3)


@draws("DynamicQuantizeLSTM")
def lstm(rng: Rng) -> Draw:
    steps, batch, inputs, hidden = (int(n) for n in rng.integers(1, 7, 4))
    way = str(rng.choice(["forward", "reverse", "bidirectional"]))
    n, kind, columns = 1 + (way == "bidirectional"), kind_of(rng), rng.random() < 0.5
    shape = (n, 4 * hidden) if columns else (n,)

    def maybe(array: Array) -> Array | None:
        return array if rng.random() < 0.6 else None

    lengths = rng.integers(1, steps + 1, batch).astype(np.int32)
    lengths[0] = steps
    operands: list[Any] = [real(rng, steps, batch, inputs), codes(rng, (n, inputs, 4 * hidden), kind)]
    operands += [codes(rng, (n, hidden, 4 * hidden), kind), maybe(real(rng, n, 8 * hidden)), maybe(lengths)]
    operands += [
        maybe(real(rng, n, batch, hidden)),
        maybe(real(rng, n, batch, hidden)),
        maybe(real(rng, n, 3 * hidden)),
    ]
    for _ in range(2):
        operands += [rng.uniform(0.002, 0.01, shape).astype(F32), np.full(shape, 0 if kind == np.int8 else 128, kind)]
    attributes = {"hidden_size": hidden, "direction": way, "input_forget": int(rng.integers(0, 2))}
    return Draw(operands, tuple(range(1, 12)), attributes, 3, within=2e-2)
