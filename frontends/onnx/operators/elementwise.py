"""Operators that act element by element. Over 8-bit codes that are dequantized they become tables (tables.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ....kernels import ops
from ....kernels.ops.arrays import apply_array
from ....kernels.ops.tabled import tabled as numbers
from ....primitives.pipeline import Value
from ..node import Node
from ..scope import operator, stored
from ..tensors import element_type
from . import rare, tables

Translator = Callable[[Node], Any]


def tabled(*names: str, domain: str = "") -> Callable[[Translator], Translator]:
    """Enter a translator whose operator maps elements to elements, so that it may become a table."""

    def enter(translate: Translator) -> Translator:
        operator(*names, domain=domain)(lambda node: tables.apply(node, translate))
        return translate

    return enter


UNARY: dict[str, Callable[[Any], Any]] = {
    "Abs": ops.abs,
    "Neg": ops.neg,
    "Sign": ops.sign,
    "Sqrt": ops.sqrt,
    "Reciprocal": ops.reciprocal,
    "Floor": ops.floor,
    "Ceil": ops.ceil,
    "Round": ops.round,
    "Exp": ops.exp,
    "Log": ops.log,
    "Erf": ops.erf,
    "Sigmoid": ops.sigmoid,
    "Tanh": ops.tanh,
    "Sin": ops.sin,
    "Cos": ops.cos,
    "Tan": ops.tan,
    "Asin": ops.arcsin,
    "Acos": ops.arccos,
    "Atan": ops.arctan,
    "Sinh": ops.sinh,
    "Cosh": ops.cosh,
    "Asinh": ops.asinh,
    "Acosh": ops.acosh,
    "Atanh": ops.atanh,
    "Softplus": ops.softplus,
    "Softsign": ops.softsign,
    "Mish": ops.mish,
    "HardSwish": ops.hard_swish,
    "Relu": ops.relu,
    "Not": ops.bitwise_not,
    "BitwiseNot": ops.bitwise_not,
    "IsNaN": ops.isnan,
}


def _unary(name: str, op: Callable[[Any], Any]) -> None:
    @tabled(name)
    def translate(node: Node) -> Any:
        return op(node.value(0))


for _name, _op in UNARY.items():
    _unary(_name, _op)


@tabled("IsInf")
def isinf(node: Node) -> Any:
    x = node.value(0)
    positive, negative = node.attr("detect_positive", 1), node.attr("detect_negative", 1)
    found = ops.isinf(x)
    zero = np.zeros((), x.dtype.numpy)  # type: ignore[union-attr]
    if not positive:
        found = ops.bitwise_and(found, ops.less(x, zero))
    if not negative:
        found = ops.bitwise_and(found, ops.greater(x, zero))
    return found


# Operators with numbers of their own: attribute name -> keyword of the op, and its value where the file has none.
NUMBERED: dict[str, tuple[Callable[..., Any], dict[str, tuple[str, float]]]] = {
    "LeakyRelu": (ops.leaky_relu, {"alpha": ("slope", 0.01)}),
    "Elu": (ops.elu, {"alpha": ("alpha", 1.0)}),
    "Celu": (ops.celu, {"alpha": ("alpha", 1.0)}),
    "Selu": (ops.selu, {"alpha": ("alpha", 1.67326319217681884765625), "gamma": ("gamma", 1.05070102214813232421875)}),
    "HardSigmoid": (ops.hard_sigmoid, {"alpha": ("alpha", 0.2), "beta": ("beta", 0.5)}),
    "Swish": (ops.swish, {"alpha": ("alpha", 1.0)}),
}


def _numbered(name: str, op: Callable[..., Any], attributes: dict[str, tuple[str, float]]) -> None:
    @tabled(name)
    def translate(node: Node) -> Any:
        x = node.value(0)
        given = {to: np.float32(node.attr(named, usual)) for named, (to, usual) in attributes.items()}
        if op is ops.leaky_relu:
            return ops.leaky_relu(x, given["slope"].astype(x.dtype.numpy))  # type: ignore[union-attr]
        return op(x, **given)


for _name, (_op, _attributes) in NUMBERED.items():
    _numbered(_name, _op, _attributes)


@tabled("PRelu")
def prelu(node: Node) -> Any:
    x, slope = node.value(0), node.value(1)
    if slope.ndim == 1 and x.ndim > 2 and slope.shape[0] not in (1, x.shape[-1]) and slope.shape[0] == x.shape[1]:
        slope = ops.reshape(slope, [*slope.shape, *(1,) * (x.ndim - 2)])  # one for each channel, as older files have it
    return ops.leaky_relu(x, slope)


@tabled("Gelu")
def gelu(node: Node) -> Any:
    return (ops.gelu_tanh if node.attr("approximate", "none") == "tanh" else ops.gelu)(node.value(0))


def add(a: Value, b: Value) -> Value:
    """The sum, modulo 2**bits for integers of every size."""
    return ops.add(a, b) if str(a.dtype) in ("f32", "s32", "s64") else numbers("add", a, b)


BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "Add": add,
    "Sub": ops.sub,
    "Mul": ops.mul,
    "Div": ops.div,
    "Equal": ops.equal,
    "Less": ops.less,
    "LessOrEqual": ops.less_equal,
    "Greater": ops.greater,
    "GreaterOrEqual": ops.greater_equal,
    "And": ops.bitwise_and,
    "Or": ops.bitwise_or,
    "Xor": ops.bitwise_xor,
    "BitwiseAnd": ops.bitwise_and,
    "BitwiseOr": ops.bitwise_or,
    "BitwiseXor": ops.bitwise_xor,
}


def placed(node: Node, b: Value, a: Value) -> Value:
    """Operand b of an operator set before 7, where `axis` says at which axis of a its shape begins."""
    axis = node.attr("axis", None)
    if node.version >= 7 or axis is None or not node.attr("broadcast", 0):
        return b
    return ops.reshape(b, [*b.shape, *(1,) * (a.ndim - axis % a.ndim - b.ndim)])


def _binary(name: str, op: Callable[[Any, Any], Any]) -> None:
    @tabled(name)
    def translate(node: Node) -> Any:
        a, b = node.value(0), node.value(1)
        return op(a, placed(node, b, a))


for _name, _of_two in BINARY.items():
    _binary(_name, _of_two)


@tabled("Pow")
def power(node: Node) -> Any:
    x, y = node.value(0), node.value(1)
    if x.dtype != y.dtype:  # the result has the type of the base
        wide = x.dtype if x.dtype.is_float else y.dtype  # type: ignore[union-attr]
        return ops.cast(ops.pow(ops.cast(x, wide), ops.cast(y, wide)), x.dtype)  # type: ignore[arg-type]
    return ops.pow(x, y)


@tabled("Mod")
def modulo(node: Node) -> Any:
    """What remains, with the sign of b; with fmod set, with that of a."""
    a, b = node.value(0), node.value(1)
    if a.dtype.is_float and not node.attr("fmod", 0):  # type: ignore[union-attr]
        return apply_array("elementwise_doubles", a, b, kind="mod")
    return ops.fmod(a, b) if node.attr("fmod", 0) else ops.mod(a, b)


@tabled("BitShift")
def bit_shift(node: Node) -> Any:
    shift = ops.shift_left if node.attr("direction") == "LEFT" else ops.shift_right
    return shift(node.value(0), node.value(1))


@tabled("Where")
def where(node: Node) -> Any:
    return ops.where(*(node.value(n) for n in range(3)))


def _many(name: str, op: Callable[[Any, Any], Any]) -> None:
    @tabled(name)
    def translate(node: Node) -> Any:
        found = node.value(0)
        for n in range(1, len(node)):
            found = op(found, node.value(n))
        return found


for _name, _of_two in {"Max": ops.maximum, "Min": ops.minimum, "Sum": add}.items():
    _many(_name, _of_two)


@tabled("Mean")
def mean(node: Node) -> Any:
    total = node.value(0)
    for n in range(1, len(node)):
        total = add(total, node.value(n))
    return ops.div(total, np.array(len(node), total.dtype.numpy))  # type: ignore[union-attr]


@tabled("Clip")
def clip(node: Node) -> Any:
    x = node.value(0)
    kind = x.dtype.numpy  # type: ignore[union-attr]
    if node.version < 11:
        lo, hi = (
            np.array(node.attr(name), kind) if node.attr(name, None) is not None else None for name in ("min", "max")
        )
    else:
        lo, hi = node.operand(1), node.operand(2)
    if x.dtype == "f32" or kind.kind in "iu":
        known = all(bound is None or isinstance(bound, np.ndarray) for bound in (lo, hi))
        ordered = not known or lo is None or hi is None or bool((lo <= hi).all())
        if ordered:
            return ops.clip(x, *(None if b is None else b if isinstance(b, Value) else b.reshape(()) for b in (lo, hi)))
    found = x
    for bound, op in ((lo, ops.maximum), (hi, ops.minimum)):
        if bound is not None:
            found = op(found, node.scope.value(bound))
    return found


@tabled("Cast")
def cast(node: Node) -> Any:
    return converted(node, stored(element_type(node.attr("to"), node.label)))


@tabled("CastLike")
def cast_like(node: Node) -> Any:
    like = node.operand(1)
    dtype = like.dtype if not hasattr(like, "codes") else np.dtype(np.float32)
    return converted(node, str(dtype) if isinstance(like, Value) else stored(np.dtype(dtype)))


def converted(node: Node, dtype: str) -> Any:
    rounding = {"up": "up", "down": "down", "nearest": "half_up"}[node.attr("round_mode", "up")]
    return ops.cast(node.value(0), dtype, saturate=bool(node.attr("saturate", 1)), scale_rounding=rounding)


@operator("Identity")
def identity(node: Node) -> Any:
    return (node.operand(0),)


@operator("Dropout")
def dropout(node: Node) -> Any:
    """At inference nothing is dropped: the mask is true everywhere. In training elements are drawn at random."""
    training = node.operand(2)
    if training is not None and bool(np.asarray(node.known(2)).reshape(-1)[0]):
        ratio = float(np.asarray(node.known(1, np.float32(0.5))).reshape(-1)[0])
        if ratio != 0.0:
            x, seed = node.value(0), rare.seed_of(node)
            return apply_array("drop", x, results=[str(x.dtype), "bool"], seed=seed, ratio=ratio)
    if not node.wants(1):
        return node.operand(0)
    x = node.value(0)
    return x, ops.bitwise_or(ops.isnan(x), ops.equal(x, x))
