"""Operators that act element by element, and reductions."""

from __future__ import annotations

from typing import Any

import numpy as np

from .drawing import F32, KINDS, Array, Draw, Rng, broadcast, data, draws, kind, maybe, pick, plain, shape, words

_PLAIN = (
    "Abs", "Neg", "Sign", "Floor", "Ceil", "Round", "Erf", "Sigmoid", "Tanh", "Sin", "Cos", "Tan", "Atan", "Sinh", "Cosh",
    "Asinh", "Softplus", "Softsign", "Mish", "HardSwish", "Relu", "Not", "BitwiseNot", "IsNaN", "Exp", "Identity",
)  # fmt: skip
_WITHIN: dict[str, tuple[float, float]] = {
    "Sqrt": (0, np.inf), "Log": (0, np.inf), "Reciprocal": (0, np.inf), "Asin": (-1, 1), "Acos": (-1, 1), "Acosh": (1, 9),
    "Atanh": (-0.99, 0.99),
}  # fmt: skip
_REAL: dict[str, dict[str, tuple[float, float]]] = {
    "LeakyRelu": {"alpha": (-0.5, 1)},
    "Elu": {"alpha": (0.1, 2)},
    "Celu": {"alpha": (0.1, 2)},
    "Selu": {"alpha": (0.1, 2), "gamma": (0.1, 2)},
    "HardSigmoid": {"alpha": (0.1, 0.5), "beta": (0.1, 0.9)},
    "ThresholdedRelu": {"alpha": (-1, 2)},
    "Shrink": {"bias": (-1, 1), "lambd": (0, 2)},
    "Swish": {"alpha": (0.1, 2)},
}


@draws(*_PLAIN)
def unary(rng: Rng, opset: int, op: str) -> Draw:
    return Draw([data(rng, shape(rng), kind(rng, op, opset))])


@draws(*_WITHIN)
def within(rng: Rng, opset: int, op: str) -> Draw:
    x = data(rng, shape(rng), kind(rng, op, opset))
    return Draw([np.clip(np.abs(x) if _WITHIN[op][0] == 0 else x, *_WITHIN[op]).astype(x.dtype)])


@draws(*_REAL)
def with_numbers(rng: Rng, opset: int, op: str) -> Draw:
    attributes = {name: float(rng.uniform(*ends)) for name, ends in _REAL[op].items() if rng.random() < 0.7}
    return Draw([data(rng, shape(rng), kind(rng, op, opset))], attributes)


@draws("Gelu")
def gelu(rng: Rng, opset: int) -> Draw:
    attributes = {"approximate": pick(rng, "none", "tanh")}
    of = kind(rng, "Gelu", opset)
    if np.dtype(of).kind == "V":
        of = F32  # ONNX Runtime has no bfloat16 here, and ONNX rounds to it after every operation
    return Draw([data(rng, shape(rng), of)], attributes)


@draws("IsInf")
def is_inf(rng: Rng, opset: int) -> Draw:
    attributes = {f"detect_{sign}": int(rng.integers(2)) for sign in ("positive", "negative")}
    return Draw([data(rng, shape(rng), kind(rng, "IsInf", opset))], attributes)


@draws(
    "Add", "Sub", "Mul", "Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "And", "Or", "Xor", "BitwiseAnd",
    "BitwiseOr", "BitwiseXor",
)  # fmt: skip
def binary(rng: Rng, opset: int, op: str) -> Draw:
    of, sizes = kind(rng, op, opset), shape(rng)
    pair = [data(rng, sizes, of), data(rng, broadcast(rng, sizes), of)]
    return Draw(pair if rng.random() < 0.7 else pair[::-1])


@draws("Div", "Mod")
def quotient(rng: Rng, opset: int, op: str) -> Draw:
    of, sizes = kind(rng, op, opset), shape(rng)
    y = data(rng, broadcast(rng, sizes), of)
    if np.dtype(of).kind in "iu" or op == "Mod":
        y = np.where(y == 0, 3, y).astype(of)
    fmod = {} if op == "Div" else {"fmod": int(rng.integers(2)) if np.dtype(of).kind in "iu" else 1}
    return Draw([data(rng, sizes, of), y], fmod)


@draws("Pow")
def power(rng: Rng, opset: int) -> Draw:
    of, sizes = kind(rng, "Pow", opset), shape(rng)
    other = of if opset < 12 or rng.random() < 0.5 else kind(rng, "Pow", opset, 1)
    real = np.dtype(of).kind not in "iu"
    x: Array = np.abs(plain(rng, sizes, of, 1.5)) if real else rng.integers(0, 4, sizes).astype(of)
    return Draw([x, rng.integers(0, 4, broadcast(rng, sizes)).astype(other)])


@draws("BitShift")
def shift(rng: Rng, opset: int) -> Draw:
    of, sizes = kind(rng, "BitShift", opset), shape(rng)
    by = rng.integers(0, 8, broadcast(rng, sizes)).astype(of)
    return Draw([data(rng, sizes, of), by], {"direction": pick(rng, "LEFT", "RIGHT")})


@draws("Sum", "Max", "Min", "Mean")
def several(rng: Rng, opset: int, op: str) -> Draw:
    of, sizes = kind(rng, op, opset), shape(rng)
    return Draw([data(rng, broadcast(rng, sizes) if n else sizes, of) for n in range(int(rng.integers(1, 4)))])


@draws("Where")
def where(rng: Rng, opset: int) -> Draw:
    of, sizes = kind(rng, "Where", opset, 1), shape(rng)
    chosen = data(rng, broadcast(rng, sizes), np.bool_)
    return Draw([chosen, data(rng, sizes, of), data(rng, broadcast(rng, sizes), of)])


@draws("PRelu")
def prelu(rng: Rng, opset: int) -> Draw:
    of, sizes = kind(rng, "PRelu", opset), shape(rng)
    return Draw([data(rng, sizes, of), plain(rng, [n if rng.random() < 0.7 else 1 for n in sizes], of, 3.0)])


@draws("Clip")
def clip(rng: Rng, opset: int) -> Draw:
    of = kind(rng, "Clip", opset)
    if opset < 11:
        return Draw([data(rng, shape(rng), of)], {"min": -1.0, "max": float(rng.uniform(-2, 2))})
    low, high = sorted(plain(rng, [2], of, 3.0))
    return Draw([plain(rng, shape(rng), of, 3.0), maybe(rng, np.asarray(low)), maybe(rng, np.asarray(high))])


@draws("Cast")
def cast(rng: Rng, opset: int) -> Draw:
    from onnx import defs, helper

    of = kind(rng, "Cast", opset)
    results = next(c for c in defs.get_schema("Cast", opset).type_constraints if c.type_param_str == "T2")
    to = pick(rng, *(KINDS[name] for name in results.allowed_type_strs if name in KINDS))
    unsigned = "u" in (np.dtype(to).kind, np.dtype(of).kind)
    x = rng.integers(0 if unsigned else -100, 100, shape(rng)) / (1 if np.dtype(of).kind in "iub" else 4)
    return Draw([np.asarray(x).astype(of)], {"to": helper.np_dtype_to_tensor_dtype(np.dtype(to))})


@draws("Dropout")
def dropout(rng: Rng, opset: int) -> Draw:
    return Draw([data(rng, shape(rng), kind(rng, "Dropout", opset))], outputs=2)


@draws(*(f"Reduce{op}" for op in "Sum Mean Max Min Prod L1 L2 LogSum LogSumExp SumSquare".split()))
def reduction(rng: Rng, opset: int, op: str) -> Draw:
    from onnx import defs

    sizes = shape(rng, 0, 4, 4)
    x = plain(rng, sizes, kind(rng, op, opset), 1.5)
    if op == "ReduceLogSum":
        x = np.abs(x) + x.dtype.type(1)
    attributes: dict[str, Any] = {} if rng.random() < 0.3 else {"keepdims": int(rng.integers(2))}
    axes = None
    if sizes and rng.random() < 0.7:
        chosen = rng.choice(len(sizes), int(rng.integers(1, len(sizes) + 1)), replace=False)
        axes = [int(a) - len(sizes) * (opset >= 11 and rng.random() < 0.5) for a in chosen]
    if len(defs.get_schema(op, opset).inputs) == 1:
        return Draw([x], attributes | ({} if axes is None else {"axes": axes}))
    if rng.random() < 0.3:
        attributes["noop_with_empty_axes"] = int(rng.integers(2))
    return Draw([x, None if axes is None else words(*axes)], attributes, constants=(1,))


@draws("ArgMax", "ArgMin")
def extreme(rng: Rng, opset: int, op: str) -> Draw:
    sizes = shape(rng, 1, 4, 5, 0)
    attributes = {"axis": int(rng.integers(-len(sizes) if opset >= 11 else 0, len(sizes)))}
    if rng.random() < 0.6:
        attributes["keepdims"] = int(rng.integers(2))
    if opset >= 12 and rng.random() < 0.4:
        attributes["select_last_index"] = 1
    return Draw([rng.integers(0, 5, sizes).astype(kind(rng, op, opset))], attributes)


@draws("CumSum", "CumProd")
def cumulative(rng: Rng, opset: int, op: str) -> Draw:
    sizes = shape(rng, 1, 4)
    axis = np.array(int(rng.integers(-len(sizes), len(sizes))), pick(rng, np.int32, np.int64))
    attributes = {name: int(rng.integers(2)) for name in ("exclusive", "reverse")}
    return Draw([plain(rng, sizes, kind(rng, op, opset)), axis], attributes, constants=(1,))


@draws("Softmax", "LogSoftmax", "Hardmax")
def softmax(rng: Rng, opset: int, op: str) -> Draw:
    sizes = shape(rng, 1, 4, 6, 0)
    axis = int(rng.integers(-len(sizes) if opset >= 11 else 0, len(sizes)))
    attributes = {"axis": axis} if rng.random() < 0.8 or len(sizes) < 2 else {}
    # Before operator set 13 Hardmax is over all axes from one on, which ONNX's reference does not know.
    of = F32 if op == "Hardmax" and opset < 13 else kind(rng, op, opset)
    return Draw([plain(rng, sizes, of, 3.0)], attributes)


@draws("LayerNormalization", "RMSNormalization")
def row_norm(rng: Rng, opset: int, op: str) -> Draw:
    sizes, of = shape(rng, 1, 4, 6, 0), kind(rng, op, opset)
    axis = int(rng.integers(-len(sizes), len(sizes)))
    rest = sizes[axis % len(sizes) :]
    if op == "LayerNormalization" and np.dtype(of).kind == "V":
        of = F32  # ONNX Runtime has no bfloat16 here, and ONNX rounds to it after every operation
    operands = [plain(rng, sizes, of, 3.0), plain(rng, rest, of, 3.0)]
    if op == "LayerNormalization":
        operands.append(maybe(rng, plain(rng, rest, of, 3.0)))
    return Draw(operands, {"axis": axis, "epsilon": 1e-3})


@draws("BatchNormalization")
def batch_norm(rng: Rng, opset: int) -> Draw:
    sizes = shape(rng, 2, 4, 5, 0)
    scale, bias, mean, var = (plain(rng, [sizes[1]], F32, 3.0) for _ in range(4))
    return Draw([plain(rng, sizes, F32, 3.0), scale, bias, mean, np.abs(var) + F32(0.1)], {"epsilon": 1e-3})


@draws("InstanceNormalization")
def instance_norm(rng: Rng, opset: int) -> Draw:
    sizes = shape(rng, 3, 5, 5, 0)
    return Draw([plain(rng, n, F32, 3.0) for n in (sizes, sizes[1:2], sizes[1:2])], {"epsilon": 1e-2})


@draws("GroupNormalization")
def group_norm(rng: Rng, opset: int) -> Draw:
    sizes, groups = shape(rng, 3, 5, 4, 0), int(rng.integers(1, 4))
    sizes[1] = groups * int(rng.integers(1, 4))
    of_each = [sizes[1] if opset >= 21 else groups]
    return Draw([plain(rng, n, F32, 3.0) for n in (sizes, of_each, of_each)], {"num_groups": groups, "epsilon": 1e-2})


@draws("LpNormalization")
def lp_norm(rng: Rng, opset: int) -> Draw:
    sizes = shape(rng, 1, 4, 5, 0)
    attributes = {"axis": int(rng.integers(-len(sizes), len(sizes))), "p": int(rng.integers(1, 3))}
    return Draw([plain(rng, sizes, F32, 3.0)], attributes)


@draws("MeanVarianceNormalization")
def mean_variance(rng: Rng, opset: int) -> Draw:
    axes = sorted(int(a) for a in rng.choice(4, 2, False))
    return Draw([plain(rng, shape(rng, 4, 4, 5, 0), F32, 3.0)], {"axes": axes} if rng.random() < 0.6 else {})


@draws("LRN")
def local_response(rng: Rng, opset: int) -> Draw:
    attributes = {"size": int(rng.integers(1, 6)), "alpha": 0.1, "beta": 0.6, "bias": 1.5}
    sizes = shape(rng, 3, 4, 6, 0)
    if attributes["size"] % 2 == 0:  # ONNX Runtime has odd sizes alone, and ONNX as many channels as images
        sizes[1] = min(sizes[:2])
    return Draw([plain(rng, sizes, F32, 3.0)], attributes)
