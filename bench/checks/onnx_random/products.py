"""Products, recurrences, transforms, and the operators that quantize."""

from __future__ import annotations

from typing import Any

import numpy as np

from .drawing import F32, Array, Draw, Rng, codes, data, draws, kind, maybe, pick, plain, shape, small, whole

BYTES = (np.uint8, np.int8)
_EQUATIONS = (
    ("ij,jk->ik", "ab", "bc"), ("bij,bjk->bik", "eab", "ebc"), ("ij->ji", "ab"), ("ij->i", "ab"), ("i,i->", "a", "a"),
    ("...ij,...jk->...ik", "eab", "ebc"), ("bhqd,bhkd->bhqk", "e2ab", "e2cb"), ("ii->i", "aa"), ("ij,jk", "ab", "bc"),
    ("i,j->ij", "a", "b"), ("ij,ij->ij", "ab", "ab"),
)  # fmt: skip


def step(rng: Rng, low: float, high: float, sizes: Any = ()) -> Array:
    """A scale."""
    return np.asarray(rng.uniform(low, high, sizes), F32)


@draws("MatMul")
def matmul(rng: Rng, opset: int) -> Draw:
    of, (m, k, n) = kind(rng, "MatMul", opset), whole(rng, 1, 7, 3)
    lead: tuple[list[int], list[int]] = pick(rng, ([], []), ([2], [2]), ([2, 3], [3]), ([1, 3], [2, 1]))
    left, right = [*lead[0], m, k], [*lead[1], k, n]
    if rng.random() < 0.15:
        left = [k]
    elif rng.random() < 0.15:
        right = [k]
    return Draw([plain(rng, left, of), plain(rng, right, of)])


@draws("Gemm")
def gemm(rng: Rng, opset: int) -> Draw:
    of, (m, k, n) = kind(rng, "Gemm", opset), whole(rng, 1, 7, 3)
    attributes: dict[str, Any] = {name: int(rng.integers(2)) for name in ("transA", "transB")}
    if np.dtype(of).kind == "f":
        attributes |= {"alpha": pick(rng, 1.0, 0.5), "beta": pick(rng, 1.0, 2.0)}
    third = pick(rng, None, [n], [m, n], [1, n], [m, 1], [], [1]) if opset >= 11 else [n]
    shapes = [(k, m) if attributes["transA"] else (m, k), (n, k) if attributes["transB"] else (k, n), third]
    # Of integers small ones: where a product overflows, ONNX's reference has gone by way of float64.
    draw = (lambda sizes: small(rng, sizes, of)) if np.dtype(of).kind in "iu" else (lambda sizes: plain(rng, sizes, of))
    return Draw([None if sizes is None else draw(sizes) for sizes in shapes], attributes)


@draws("MatMulInteger")
def matmul_integer(rng: Rng, opset: int) -> Draw:
    (m, k, n), of, lead = whole(rng, 1, 9, 3), pick(rng, *BYTES), pick(rng, [], [2], [2, 3])
    zero = maybe(rng, codes(rng, [] if lead or rng.random() < 0.5 else [n], of))
    b = codes(rng, [*pick(rng, lead, []), k, n], of)
    return Draw([codes(rng, [*lead, m, k], np.uint8), b, maybe(rng, codes(rng, [], np.uint8)), zero])


@draws("QLinearMatMul")
def matmul_of_codes(rng: Rng, opset: int) -> Draw:
    (m, k, n), right, lead = whole(rng, 1, 9, 3), pick(rng, *BYTES), pick(rng, [], [2])
    left = pick(rng, np.uint8, right)
    operands = [
        *(codes(rng, [*lead, m, k], left), step(rng, 0.01, 0.1), codes(rng, [], left)),
        *(codes(rng, [*lead, k, n], right), step(rng, 0.01, 0.1), codes(rng, [], right)),
        *(step(rng, 0.1, 2), codes(rng, [], left)),
    ]
    return Draw(operands, constants=(1, 2, 3, 4, 5, 6, 7))


@draws("Einsum")
def einsum(rng: Rng, opset: int) -> Draw:
    equation, *named = pick(rng, *_EQUATIONS)
    sizes = dict(zip("abce", whole(rng, 1, 5, 4), strict=True)) | {"2": 2}
    of = kind(rng, "Einsum", opset, among="f")
    return Draw([plain(rng, [sizes[n] for n in names], of) for names in named], {"equation": equation})


@draws("Det")
def determinant(rng: Rng, opset: int) -> Draw:
    n = int(rng.integers(1, 5))
    return Draw([plain(rng, [*shape(rng, 0, 2, 3, 0), n, n])])


@draws("LSTM", "GRU", "RNN")
def recurrent(rng: Rng, opset: int, op: str) -> Draw:
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
    steps, batch, width, units = whole(rng, 1, 5, 4)
    way = pick(rng, "forward", "reverse", "bidirectional")
    ways = 1 + (way == "bidirectional")

    def some(*sizes: int) -> Array:
        return plain(rng, sizes, F32, 0.5)

    operands = [plain(rng, [steps, batch, width]), some(ways, gates * units, width), some(ways, gates * units, units)]
    operands.append(maybe(rng, some(ways, 2 * gates * units)))
    operands.append(maybe(rng, rng.integers(1, steps + 1, batch).astype(np.int32)))
    operands.append(maybe(rng, some(ways, batch, units)))
    if op == "LSTM":
        operands += [maybe(rng, some(ways, batch, units)), maybe(rng, some(ways, 3 * units))]
    attributes: dict[str, Any] = {"hidden_size": units, "direction": way}
    if op == "GRU" and rng.random() < 0.5:
        attributes["linear_before_reset"] = 1
    if rng.random() < 0.2:
        attributes["clip"] = 0.5
    return Draw(operands, attributes, 3 if op == "LSTM" else 2)


@draws("DFT")
def dft(rng: Rng, opset: int) -> Draw:
    sizes = [2, *whole(rng, 2, 7, 2), int(rng.integers(1, 3))]
    inverse = int(rng.integers(2))
    attributes = {"inverse": inverse, "onesided": int(rng.integers(2)) if sizes[-1] == 1 and not inverse else 0}
    axis, length = pick(rng, 1, 2, -2, -3), maybe(rng, np.array(int(rng.integers(2, 8)), np.int64), 0.4)
    if opset < 20:
        return Draw([plain(rng, sizes), length], {**attributes, "axis": axis}, constants=(1,))
    return Draw([plain(rng, sizes), length, np.array(axis, np.int64)], attributes, constants=(1, 2))


@draws("STFT")
def stft(rng: Rng, opset: int) -> Draw:
    length = int(rng.integers(3, 8))
    numbers = [np.array(n, np.int64) for n in (int(rng.integers(1, 5)), length)]
    operands = [plain(rng, [2, 20, 1]), numbers[0], rng.random(length).astype(F32), numbers[1]]
    return Draw(operands, {"onesided": int(rng.integers(2))}, constants=(1, 3))


def _scales(rng: Rng, opset: int, sizes: list[int]) -> tuple[dict[str, Any], list[int]]:
    """Attributes and the shape of scales: one for all, along an axis, or in blocks along it."""
    if opset < 13 or not sizes or rng.random() < 0.5:
        return {}, []
    axis = int(rng.integers(-len(sizes), len(sizes)))
    if opset < 21 or 0 in sizes or rng.random() < 0.5:
        return {"axis": axis}, [sizes[axis]]
    block, found = int(rng.integers(1, 4)), list(sizes)
    found[axis] = -(-sizes[axis] // block)
    return {"axis": axis, "block_size": block}, found


def _types(opset: int) -> tuple[Any, ...]:
    return (*BYTES, np.uint16, np.int16) if opset >= 21 else BYTES


@draws("QuantizeLinear")
def quantize(rng: Rng, opset: int) -> Draw:
    of, sizes = pick(rng, *_types(opset)), shape(rng, 0, 4, 6)
    attributes, scales = _scales(rng, opset, sizes)
    zero = codes(rng, scales, of) if "block_size" in attributes or rng.random() < 0.85 else None
    x = data(rng, sizes, F32, 30)
    x = np.where(np.isnan(x), F32(0), x)  # what NaN becomes is nowhere said: ONNX Runtime gives what the machine does
    return Draw([x, step(rng, 0.01, 2, scales), zero], attributes, constants=(1, 2))


@draws("DequantizeLinear")
def dequantize(rng: Rng, opset: int) -> Draw:
    of, sizes = pick(rng, *_types(opset), np.int32), shape(rng, 0, 4, 6)
    attributes, scales = _scales(rng, opset, sizes)
    zero = None if of is np.int32 else maybe(rng, codes(rng, scales, of), 0.85)
    return Draw([data(rng, sizes, of), step(rng, 0.01, 2, scales), zero], attributes, constants=(1, 2))


@draws("DynamicQuantizeLinear")
def dynamic(rng: Rng, opset: int) -> Draw:
    return Draw([plain(rng, shape(rng, 0, 4, 6, 0), F32, 5.0)], outputs=3)
