"""What the functions of `math`, NumPy and Python become in captured code."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import activations, minifloat, polar, powers, scalarops, trigonometry, vectormath  # noqa: F401  (they register)
from ..sequence import SEQUENCES, Sequence

# object -> helper called with its arguments converted to the helper's kinds
DIRECT: dict[Any, str] = {
    np.copysign: "copysign",
    math.copysign: "copysign",
    np.exp: "exp",
    math.exp: "exp",
    np.exp2: "exp2",
    np.log: "log",
    np.log2: "log2",
    math.log2: "log2",
    np.tanh: "tanh",
    math.tanh: "tanh",
    math.erf: "erf",
    np.sqrt: "sqrt",
    math.sqrt: "sqrt",
    np.rint: "rint",
    np.floor: "floor",
    np.ceil: "ceil",
    np.trunc: "trunc",
    np.fix: "trunc",
    np.fabs: "fabs",
    math.fabs: "fabs",
    np.abs: "absolute",
    builtins.abs: "absolute",
    np.sign: "sign",
    np.minimum: "minimum",
    np.maximum: "maximum",
    np.clip: "clip",
    np.where: "select",
    np.ldexp: "ldexp",
    math.ldexp: "ldexp",
    np.isnan: "isnan",
    math.isnan: "isnan",
    np.isinf: "isinf",
    math.isinf: "isinf",
    np.isfinite: "isfinite",
    math.isfinite: "isfinite",
    np.reciprocal: "reciprocal",
    np.sin: "sin",
    math.sin: "sin",
    np.cos: "cos",
    math.cos: "cos",
    np.tan: "tan",
    math.tan: "tan",
    np.arctan: "arctan",
    math.atan: "arctan",
    np.arctan2: "arctan2",
    math.atan2: "arctan2",
    np.hypot: "hypot",
    math.hypot: "hypot",
    np.arcsin: "arcsin",
    math.asin: "arcsin",
    np.arccos: "arccos",
    math.acos: "arccos",
    np.sinh: "sinh",
    math.sinh: "sinh",
    np.cosh: "cosh",
    math.cosh: "cosh",
    np.arcsinh: "asinh",
    math.asinh: "asinh",
    np.arccosh: "acosh",
    math.acosh: "acosh",
    np.arctanh: "atanh",
    math.atanh: "atanh",
    np.expm1: "expm1",
    math.expm1: "expm1",
    np.log1p: "log1p",
    math.log1p: "log1p",
}
for _name in ("exp2", "fma"):  # Python 3.11 and 3.13
    if hasattr(math, _name):
        DIRECT[getattr(math, _name)] = _name

# object -> how the capture treats it (float32.py has one method for each)
SPECIAL: dict[Any, str] = {
    builtins.min: "min",
    builtins.max: "max",
    builtins.round: "round",
    np.round: "round_float",
    builtins.int: "int",
    builtins.float: "float",
    builtins.bool: "bool",
    builtins.len: "len",
    builtins.pow: "pow",
    math.pow: "pow",
    np.power: "pow",
    math.log: "log",
    math.floor: "floor_int",
    math.ceil: "ceil_int",
    math.trunc: "trunc_int",
    math.frexp: "frexp",
    np.frexp: "frexp",
    np.square: "square",
    np.float32: "float",
    np.float64: "float64",
    np.float16: "float16",
    np.bool_: "bool",
    np.int8: "s8",
    np.int16: "s16",
    np.int32: "int",
    np.int64: "int64",
    np.intp: "int64",
    np.uint8: "u8",
    np.uint16: "u16",
    np.uint32: "u32",
    np.zeros: "zeros",
    np.empty: "zeros",
}


def helper_of(obj: Any) -> str | None:
    """The written sequence that `obj` is or stands for, by object and never by spelling."""
    if isinstance(obj, Sequence):
        return obj.name
    for name, made in SEQUENCES.items():
        if made.fn is obj:
            return name
    if isinstance(obj, np.ufunc) and obj.__name__ in ("expit", "erf"):  # scipy.special
        return {"expit": "sigmoid", "erf": "erf"}[obj.__name__]
    return _find(DIRECT, obj)


def special_of(obj: Any) -> str | None:
    """The name of the treatment of a function that is no plain helper."""
    return _find(SPECIAL, obj)


def _find(table: dict[Any, str], obj: Any) -> str | None:
    try:
        return table.get(obj)
    except TypeError:  # unhashable
        return None


def supported() -> str:
    """All functions that captured code may call, for error messages."""

    def spelled(obj: Callable[..., Any]) -> str:
        home = (getattr(obj, "__module__", None) or "numpy").partition(".")[0]
        prefix = {"math": "math.", "builtins": ""}.get(home, "np.")
        return f"{prefix}{getattr(obj, '__name__', obj)}"

    numbers = sorted({spelled(obj) for obj in (*DIRECT, *SPECIAL)})
    ours = ("sigmoid", "silu", "gelu", "gelu_tanh", "rsqrt", "round_half_away", "fma")
    return f"{', '.join(numbers)}; {', '.join(ours)} of tilework.kernels.vectormath; and other plain functions"
