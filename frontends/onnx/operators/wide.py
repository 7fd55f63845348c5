"""What an operator does for types that its own steps have not: float64, and integers in products.

Arithmetic is compiled; functions of float64 that no step has are NumPy's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ....kernels import ops
from ....kernels.elementwise import TABLE
from ....kernels.ops.arrays import apply_array
from ....kernels.ops.tabled import tabled
from ....primitives.pipeline import Value
from ..node import Node, axes_of
from ..scope import WIDE, operator
from . import reduce

ELEMENTWISE: dict[str, Callable[[str], str]] = {
    "exp log sqrt reciprocal sin cos tan sinh cosh tanh sigmoid softplus softsign abs neg sign floor ceil round relu "
    "erf add sub mul div pow": lambda name: name.title(),
    "arcsin arccos arctan": lambda name: name.replace("arc", "A"),
    "arcsinh arccosh arctanh": lambda name: name.replace("arc", "A"),
    "maximum minimum": lambda name: name[:3].title(),
}


def _entered(names: str) -> Callable[[Callable[[Node], Any]], Callable[[Node], Any]]:
    def enter(translate: Callable[[Node], Any]) -> Callable[[Node], Any]:
        for name in names.split():
            WIDE[name] = translate
        return translate

    return enter


def _elementwise(op: str, kind: str) -> None:
    @_entered(op)
    def translate(node: Node) -> Any:
        found = node.values()
        return _folded(kind, found)


def _folded(kind: str, values: list[Value]) -> Any:
    if len(values) == 1:
        return values[0] if kind in ("maximum", "minimum", "add") else _of(kind, values[0])
    total: Any = values[0]
    for value in values[1:]:
        total = _of(kind, total, value)
    return total


for _names, _titled in ELEMENTWISE.items():
    for _name in _names.split():
        _elementwise(_titled(_name), _name)
_elementwise("Sum", "add")


@_entered("Mod")
def mod(node: Node) -> Any:
    return apply_array("elementwise_doubles", *node.values(), kind="fmod" if node.attr("fmod", 0) else "mod")


@_entered("MatMul")
def matmul(node: Node) -> Any:
    return apply_array("matmul", node.value(0), node.value(1))


@_entered("Gemm")
def gemm(node: Node) -> Any:
    a, b = node.value(0), node.value(1)
    a = ops.transpose(a, [1, 0]) if node.attr("transA", 0) else a
    b = ops.transpose(b, [1, 0]) if node.attr("transB", 0) else b
    kind = a.dtype.numpy  # type: ignore[union-attr]
    found = _times(apply_array("matmul", a, b)[0], np.array(node.attr("alpha", 1.0), kind))
    if not node.has(2):
        return found
    return _of("add", found, _times(node.value(2), np.array(node.attr("beta", 1.0), kind)))


def _times(x: Value, factor: Any) -> Value:
    return x if factor == 1 else _of("mul", x, factor)


@_entered("Einsum")
def einsum(node: Node) -> Any:
    values = node.values()
    equation = node.attr("equation").replace(" ", "")
    extent = {}
    given, _, result = equation.partition("->")
    dots: tuple[Any, ...] = ()
    for term, value in zip(given.split(","), values, strict=True):
        front, _, back = term.partition("...")
        more = value.ndim - len(front) - len(back)
        shape = value.shape
        if "..." in term and more >= len(dots):
            dots = tuple(shape[len(front) : len(front) + more])
        letters = zip((*front, *back), (*shape[: len(front)], *shape[len(shape) - len(back) :]), strict=True)
        extent.update(dict(letters))
    if "->" not in equation:
        plain = given.replace(",", "").replace("...", "")
        result = "..." * ("..." in given) + "".join(sorted(c for c in set(plain) if plain.count(c) == 1))
    front, spread, back = result.partition("...")
    out = [*(extent[c] for c in front), *(dots if spread else ()), *(extent[c] for c in back)]
    if not all(isinstance(n, int) for n in out):
        raise node.unsupported("sizes known only at run time; load with shapes= that fix them")
    return apply_array("einsum", *values, equation=f"{given}->{result}", shape=out)


def _reduction(name: str, kind: str) -> None:
    @_entered(name)
    def translate(node: Node) -> Any:
        x = node.value(0)
        axes = node.ints("axes", 1)
        if not axes and node.attr("noop_with_empty_axes", 0):
            if kind in ("sum", "mean", "max", "min", "prod"):
                return x
            return apply_array("reduce_doubles", ops.unsqueeze(x, [0]), kind=kind, axes=[0], keepdims=0)
        found = axes_of(axes, x.ndim, node) if axes else list(range(x.ndim))
        return apply_array("reduce_doubles", x, kind=kind, axes=found, keepdims=int(node.attr("keepdims", 1)))


for _name, _kind in reduce.REDUCTIONS.items():
    _reduction(_name, _kind)


# Activations, of the functions above --------------------------------------------------------------------------------------


def _of(kind: str, *operands: Any) -> Value:
    """A function of each element, compiled where there is such a step; numbers take the type of the first operand."""
    dtype = operands[0].dtype
    given = [_number(x, dtype.numpy) for x in operands]
    if kind == "reciprocal":
        kind, given = "div", [np.ones((), dtype.numpy), *given]
    elif kind == "relu":
        kind, given = "maximum", [*given, np.zeros((), dtype.numpy)]
    if kind in TABLE and str(dtype) in TABLE[kind].types:
        return tabled(kind, *given)
    return apply_array("elementwise_doubles", *given, kind=kind)[0]


def _number(x: Any, dtype: Any) -> Any:
    return np.array(x, dtype) if isinstance(x, (int, float)) else x


def _exponential(node: Node, x: Value, scale: float, inner: float, outer: float) -> Value:
    """outer * (max(x, 0) + scale * (exp(min(x, 0) / inner) - 1))."""
    below = _of("sub", _of("exp", _of("div", _of("minimum", x, 0.0), inner)), 1.0)
    return _of("mul", _of("add", _of("maximum", x, 0.0), _of("mul", below, scale)), outer)


@_entered("Elu Celu Selu")
def elu(node: Node) -> Any:
    x = node.value(0)
    alpha = float(node.attr("alpha", 1.67326319217681884765625 if node.op == "Selu" else 1.0))
    gamma = float(node.attr("gamma", 1.05070102214813232421875)) if node.op == "Selu" else 1.0
    return _exponential(node, x, alpha, alpha if node.op == "Celu" else 1.0, gamma)


@_entered("LeakyRelu PRelu")
def leaky(node: Node) -> Any:
    x = node.value(0)
    slope = node.value(1) if node.op == "PRelu" else float(node.attr("alpha", 0.01))
    return ops.where(ops.less(x, _number(0, x.dtype.numpy)), _of("mul", x, slope), x)  # type: ignore[union-attr]


@operator("ThresholdedRelu")
def thresholded(node: Node) -> Any:
    """x above alpha, 0 for all others, NaN among them."""
    x = node.value(0)
    zero, alpha = (np.array(n, x.dtype.numpy) for n in (0, node.attr("alpha", 1.0)))  # type: ignore[union-attr]
    return ops.where(ops.greater(x, alpha), x, zero)


@operator("Shrink")
def shrink(node: Node) -> Any:
    """x + bias below -lambd, x - bias above lambd, 0 for all others, NaN among them; by way of float64."""
    x, bound, bias = node.value(0), float(node.attr("lambd", 0.5)), float(node.attr("bias", 0.0))
    kind, x = str(x.dtype), ops.cast(x, "f64")
    zero = np.zeros(())
    small = ops.where(ops.less(x, np.array(-bound)), _of("add", x, bias), zero)
    return ops.cast(ops.where(ops.greater(x, np.array(bound)), _of("sub", x, bias), small), kind)


@_entered("HardSigmoid HardSwish")
def hard(node: Node) -> Any:
    x, swish = node.value(0), node.op == "HardSwish"
    alpha, beta = (1 / 6, 0.5) if swish else (float(node.attr(n, d)) for n, d in (("alpha", 0.2), ("beta", 0.5)))
    found = _of("maximum", _of("minimum", _of("add", _of("mul", x, alpha), beta), 1.0), 0.0)
    return _of("mul", x, found) if swish else found


@_entered("Swish")
def swish(node: Node) -> Any:
    x = node.value(0)
    return _of("mul", x, _of("sigmoid", _of("mul", x, float(node.attr("alpha", 1.0)))))


@_entered("Mish")
def mish(node: Node) -> Any:
    x = node.value(0)
    return _of("mul", x, _of("tanh", _of("softplus", x)))


@_entered("Gelu")
def gelu(node: Node) -> Any:
    x = node.value(0)
    if node.attr("approximate", "none") == "tanh":
        cube = _of("mul", x, _of("mul", x, x))
        bell = _of("tanh", _of("mul", _of("add", x, _of("mul", cube, 0.044715)), float(np.sqrt(2 / np.pi))))
    else:
        bell = _of("erf", _of("mul", x, float(np.sqrt(0.5))))
    return _of("mul", _of("mul", x, 0.5), _of("add", bell, 1.0))


@_entered("IsInf")
def isinf(node: Node) -> Any:
    x = node.value(0)
    high, low = (ops.equal(x, np.array(n, x.dtype.numpy)) for n in (np.inf, -np.inf))  # type: ignore[union-attr]
    if not node.attr("detect_negative", 1):
        return high if node.attr("detect_positive", 1) else ops.bitwise_and(high, low)
    return ops.bitwise_or(high, low) if node.attr("detect_positive", 1) else low


@_entered("IsNaN")
def isnan(node: Node) -> Any:
    x = node.value(0)
    return ops.bitwise_not(ops.equal(x, x))


@_entered("Softmax LogSoftmax")
def softmax(node: Node) -> Any:
    x = node.value(0)
    rules: dict[str, Any] = {"axes": _softmax_axes(node, x), "keepdims": 1}
    centred = _of("sub", x, apply_array("reduce_doubles", x, kind="max", **rules)[0])
    if node.op == "LogSoftmax":
        return _of("sub", centred, apply_array("reduce_doubles", centred, kind="log_sum_exp", **rules)[0])
    powers = _of("exp", centred)
    return _of("div", powers, apply_array("reduce_doubles", powers, kind="sum", **rules)[0])


def _softmax_axes(node: Node, x: Value) -> list[int]:
    """One axis; before operator set 13 all from it on."""
    axis = axes_of([node.attr("axis", 1 if node.version < 13 else -1)], x.ndim, node)
    return axis if node.version >= 13 else list(range(axis[0], x.ndim))


@_entered("ArgMax ArgMin Hardmax")
def arg(node: Node) -> Any:
    """Small floats in float32, which holds them."""
    x = node.value(0)
    kind = str(x.dtype)
    if x.dtype.bits < 16:  # type: ignore[union-attr]
        node = node.on(node.scope, [ops.cast(x, "f32")])
    return ops.cast(reduce.softmax(node), kind) if node.op == "Hardmax" else reduce.arg(node)


@_entered("LayerNormalization RMSNormalization")
def row_norm(node: Node) -> Any:
    """(x - mean) / sqrt(variance + epsilon) * scale + bias in float64, without mean and bias for RMSNormalization."""
    x, scale, bias = node.value(0), node.optional(1), node.optional(2)
    first = axes_of([node.attr("axis", -1)], x.ndim, node)[0]
    rules: dict[str, Any] = {"kind": "mean", "axes": list(range(first, x.ndim)), "keepdims": 1}
    average = None if node.op == "RMSNormalization" else apply_array("reduce_doubles", x, **rules)[0]
    centred = x if average is None else _of("sub", x, average)
    variance = apply_array("reduce_doubles", _of("mul", centred, centred), **rules)[0]
    inverse = _of("reciprocal", _of("sqrt", _of("add", variance, float(node.attr("epsilon", 1e-5)))))
    found = _of("mul", centred, inverse)
    found = found if scale is None else _of("mul", found, scale)
    found = found if bias is None else _of("add", found, bias)
    return found if average is None else (found, ops.cast(average, "f32"), ops.cast(inverse, "f32"))
