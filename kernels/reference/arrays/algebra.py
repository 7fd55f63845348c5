"""Linear algebra and running products, and arithmetic on float64 and wide integers."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arrays import array_function

Array = np.ndarray[Any, Any]


@array_function(lambda x: [x[:-2]])
def determinant(x: Array) -> Array:
    """Of square matrices (.., n, n), in float64 (ONNX Det)."""
    found: Array = np.linalg.det(x.astype(np.float64)).astype(x.dtype)
    return found


def _product_shape(a: tuple[Any, ...], b: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    from ...indexing import broadcast

    rows, columns = (a[-2:-1] if len(a) > 1 else ()), (b[-1:] if len(b) > 1 else ())
    if a[-1] != (b[-2] if len(b) > 1 else b[0]):
        raise ValueError(f"{a[-1]} columns of a meet {b[-2] if len(b) > 1 else b[0]} rows of b")
    return [(*broadcast([a[:-2], b[:-2]], "matmul")[0], *rows, *columns)]


@array_function(_product_shape)
def matmul(a: Array, b: Array) -> Array:
    """numpy.matmul: float64, and integers modulo 2**bits."""
    found: Array = np.matmul(a, b)
    return found


@array_function(lambda *shapes, equation, shape: [shape])
def einsum(*operands: Array, equation: str, shape: tuple[int, ...]) -> Array:
    """numpy.einsum; small floats are summed in float32. `shape` is that of the result."""
    wide = [x if x.dtype.kind in "iu" or x.dtype.itemsize >= 4 else x.astype(np.float32) for x in operands]
    found: Array = np.einsum(equation, *wide)
    return found.astype(operands[0].dtype)


@array_function(lambda x, **_: [x])
def running_product(x: Array, axis: int, exclusive: int = 0, reverse: int = 0) -> Array:
    """Products of the first 1, 2, .. elements along an axis, or of the first 0, 1, .. (ONNX CumProd)."""
    given = np.flip(x, axis) if reverse else x
    if exclusive:
        ones = np.ones_like(np.take(given, [0] if given.shape[axis] else [], axis))
        given = np.concatenate([ones, np.delete(given, -1, axis)], axis) if given.shape[axis] else given
    found: Array = np.cumprod(given, axis, dtype=x.dtype)
    return np.flip(found, axis) if reverse else found


def _reduced(x: tuple[Any, ...], kind: str, axes: tuple[int, ...], keepdims: int) -> list[tuple[Any, ...]]:
    kept = [1 if d in axes else n for d, n in enumerate(x) if keepdims or d not in axes]
    return [tuple(kept)]


@array_function(_reduced)
def reduce_doubles(x: Array, kind: str, axes: tuple[int, ...], keepdims: int) -> Array:
    """ONNX Reduce..: sums in x's own type, over axes counted from the front."""
    rules: dict[str, Any] = {"axis": tuple(axes), "keepdims": bool(keepdims)}
    if kind == "log_sum_exp":
        real = x if x.dtype.kind == "f" else x.astype(np.float64)
        top = np.max(real, **{**rules, "keepdims": True}, initial=-np.inf)
        top = np.where(np.isfinite(top), top, 0)
        found = np.log(np.sum(np.exp(real - top), **rules)) + top.reshape(np.sum(real, **rules).shape)
        return np.asarray(found).astype(x.dtype)
    reduced: dict[str, Any] = {
        "sum": lambda: np.sum(x, **rules),
        "mean": lambda: np.mean(x, **rules),
        "prod": lambda: np.prod(x, **rules),
        "max": lambda: np.max(x, **{**rules, **({} if x.size else {"initial": -np.inf})}),
        "min": lambda: np.min(x, **{**rules, **({} if x.size else {"initial": np.inf})}),
        "l1": lambda: np.sum(np.abs(x), **rules),
        "l2": lambda: np.sqrt(np.sum(np.square(x), **rules)),
        "log_sum": lambda: np.log(np.sum(x, **rules)),
        "sum_square": lambda: np.sum(np.square(x), **rules),
    }
    return np.asarray(reduced[kind](), x.dtype)


DOUBLES: dict[str, Any] = {
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "reciprocal": lambda x: 1 / x,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "arcsin": np.arcsin,
    "arccos": np.arccos,
    "arctan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "arcsinh": np.arcsinh,
    "arccosh": np.arccosh,
    "arctanh": np.arctanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "softplus": lambda x: np.logaddexp(x, 0),
    "softsign": lambda x: x / (1 + np.abs(x)),
    "abs": np.abs,
    "neg": np.negative,
    "sign": np.sign,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
    "relu": lambda x: np.maximum(x, 0),
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "pow": np.power,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "mod": np.mod,
    "fmod": np.fmod,
    "erf": lambda x: _erf(x),
}


def _erf(x: Array) -> Array:
    import math

    return np.vectorize(math.erf, otypes=[np.float64])(x)


def _common(*shapes: tuple[Any, ...], kind: str) -> list[tuple[Any, ...]]:
    from ...indexing import broadcast

    return [tuple(broadcast(shapes, kind)[0])]


@array_function(_common)
def elementwise_doubles(*operands: Array, kind: str) -> Array:
    """A function of each element, as NumPy has it for float64."""
    with np.errstate(all="ignore"):
        return np.asarray(DOUBLES[kind](*operands), operands[0].dtype)
