"""The operations of the table (kernels/elementwise/table.py) on arrays: real numbers, integers, and codes.

On float32 an operation is one written sequence of IEEE operations, called here on whole arrays. float16 and bfloat16
are widened exactly, and the result is rounded once, ties to even. float64 has what IEEE 754 defines to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ....primitives import dtypes
from ....primitives.errors import QuantizationError
from ... import activations, polar, powers, trigonometry, vectormath  # noqa: F401  (they register their sequences)
from ...elementwise import Elementwise, QuantizedElementwise
from ...factory import Whole, register
from ...sequence import SEQUENCES
from ..arithmetic import to_f32
from ..granularity import spread
from ..quantize import saturate
from .whole import WHOLE

_REAL: dict[str, Callable[..., Any]] = {
    "sub": np.subtract,
    "add": np.add,
    "mul": np.multiply,
    "div": np.divide,
    "mod": np.fmod,
    "fmod": np.fmod,
    "equal": np.equal,
    "not_equal": np.not_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "neg": np.negative,
    "abs": np.absolute,
    "pow": powers.power,
    "round": np.rint,
    "isnan": np.isnan,
    "where": np.where,
    "rotate": lambda a, b, cos, sin: a * cos - b * sin,
    "rotate_back": lambda a, b, cos, sin: a * cos + b * sin,
}


_DOUBLE: dict[str, Callable[..., Any]] = {
    **{op: _REAL[op] for op in ("sub", "add", "mul", "div", "neg", "abs", "isnan", "where", "round")},
    **{op: _REAL[op] for op in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")},
    "minimum": lambda a, b: np.where((a <= b) | np.isnan(a), a, b),
    "maximum": lambda a, b: np.where((a >= b) | np.isnan(a), a, b),
    "sqrt": np.sqrt,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
}


def meaning(op: str, real: bool) -> Callable[..., Any]:
    """The function of arrays (float32, or of one integer type) that an operation is."""
    if not real:
        return WHOLE[op]
    return _REAL.get(op) or SEQUENCES[op]


def elementwise(op: str, values: Sequence[ArrayLike], numbers: Sequence[ArrayLike] = ()) -> NDArray:
    """One operation on arrays, broadcast against each other: out = op(*values, *numbers).

    values   of one type (but a condition, which is bool)
    numbers  float32 parameters

    mod and fmod of real numbers are both C's fmod: the exact remainder with the sign of the first operand.
    """
    arrays = [np.asarray(v) for v in values]
    source = arrays[-1].dtype
    real = source.kind not in "biu"
    with np.errstate(all="ignore"):
        if not real or op == "where":
            found = meaning(op, False)(*arrays)
            return np.asarray(found, np.bool_ if found.dtype == bool else source)
        if source == np.float64:
            return np.asarray(_DOUBLE[op](*arrays))
        wide = [to_f32(a) for a in arrays]
        found = np.asarray(meaning(op, True)(*wide, *(to_f32(n)[()] for n in numbers)))
        return found if found.dtype == bool else found.astype(source)


def elementwise_quantized(
    op: str,
    values: Sequence[ArrayLike],
    params: Sequence[tuple[ArrayLike, ArrayLike]],
    numbers: Sequence[ArrayLike] = (),
    *,
    lo: int,
    hi: int,
    dtype: Any,
) -> NDArray:
    """One operation on quantized arrays, quantized again.

        real = op((v - zero_point) * scale for each value)
        out  = clip(rint(real / scale) + zero_point, lo, hi)

    params   (scale, zero_point) of each value and of the result last, spread over the result's shape
    Every operation rounds once to float32; rint goes to even; NaN gives the zero point.
    """
    *given, (scale, zero_point) = params
    with np.errstate(all="ignore"):
        real = [
            (np.asarray(v).astype(np.int64) - np.asarray(z).astype(np.int64)).astype(np.float32) * to_f32(s)
            for v, (s, z) in zip(values, given, strict=True)
        ]
        found = elementwise(op, real, numbers)
        r = np.rint(found / to_f32(scale))
    return saturate(r, np.asarray(zero_point).astype(np.int64), lo, hi, dtype)


@register("elementwise", backend="reference")
def elementwise_step(kernel: Elementwise) -> Whole:
    count = len(kernel.row.values)

    def fn(*operands: Any) -> None:
        *read, out = operands
        out[...] = elementwise(kernel.op, read[:count], [n[()] for n in read[count:]])

    return Whole(fn)


@register("elementwise_quantized", backend="reference")
def quantized_step(kernel: QuantizedElementwise) -> Whole:
    codes, count = dtypes.get(kernel.dtype), len(kernel.row.values)

    def fn(*operands: Any) -> None:
        *read, out = operands
        values, rest = read[:count], read[count:]
        flat, numbers = rest[: 2 * count + 2], [n[()] for n in rest[2 * count + 2 :]]
        for scale in flat[::2]:
            if not ((scale > 0) & np.isfinite(scale)).all():
                raise QuantizationError(f"{kernel.op}: a scale is zero, negative, NaN or infinite")
        spreads = [spread(p, out.shape, kernel.params[n // 2]) for n, p in enumerate(flat)]
        pairs = list(zip(spreads[::2], spreads[1::2], strict=True))
        out[...] = elementwise_quantized(
            kernel.op, values, pairs, numbers, lo=int(codes.min), hi=int(codes.max), dtype=codes.numpy
        )

    return Whole(fn)
