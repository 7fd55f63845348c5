"""map: a user's scalar function, called once for each element."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray


def map_elements(
    fn: Callable[..., Any], values: tuple[ArrayLike, ...], keywords: Mapping[str, ArrayLike], dtype: DTypeLike
) -> NDArray:
    """Call a function on every element: out[i] = converted(fn(*values[i], **keywords[i])).

    fn        over numbers: a float32 element comes as np.float32, an integer as int, a truth value as bool
    values    arrays, broadcast against each other
    keywords  arrays too, passed by name
    dtype     of the result: float32, bool or an integer type (see `converted`)
    """
    operands = np.broadcast_arrays(*values, *keywords.values())
    shape = operands[0].shape if operands else ()
    out = np.empty(shape, dtype)
    n = len(values)
    with np.errstate(all="ignore"):
        for at in np.ndindex(shape):
            found = [_element(x[at]) for x in operands]
            out[at] = converted(fn(*found[:n], **dict(zip(keywords, found[n:], strict=True))), out.dtype)
    return out


def _element(x: Any) -> Any:
    return np.float32(x) if x.dtype.kind == "f" else x.item()


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
