"""map: a user's scalar function, called once for each element."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray


def map_elements(fn: Callable[..., Any], operands: Sequence[ArrayLike], dtype: DTypeLike) -> NDArray:
    """Call a function on every element: out[i] = converted(fn(operands[0][i], operands[1][i], ..)).

    A function's result depends on nothing but its arguments, so it is called once for those that repeat to the bit.

    fn        over numbers, in float32 and int32 arithmetic: `Captured.interpreted` of a user's function
    operands  arrays, broadcast against each other
    dtype     of the result: float32, bool or an integer type (see `converted`)
    """
    arrays = np.broadcast_arrays(*operands)
    shape = arrays[0].shape if arrays else ()
    out = np.empty(shape, dtype)
    flat = out.reshape(-1)
    columns = [np.ascontiguousarray(x).reshape(-1) for x in arrays]
    known: dict[bytes, Any] = {}
    with np.errstate(all="ignore"):
        for n, arguments in enumerate(zip(*columns, strict=True)):
            key = b"".join(x.tobytes() for x in arguments)
            if key not in known:
                known[key] = converted(fn(*arguments), out.dtype)
            flat[n] = known[key]
    return out


def converted(x: Any, dtype: np.dtype[Any]) -> Any:
    """A function's result as an element of the output.

    To float32: rounded once. To bool: whether it is not 0. To an integer: a float loses its fraction (the function
    does the rounding), then both saturate to the type's range; NaN gives 0.
    """
    if dtype.kind == "f":
        return np.float32(x)
    if dtype.kind == "b":
        return bool(x != 0)
    if x != x:
        return 0
    low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    if np.isinf(x):
        return high if x > 0 else low
    return min(max(int(x), low), high)
