"""Which scale belongs to which element: one rule for every granularity."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Index = tuple["tuple[int, int] | None", ...]


def spread(param: ArrayLike, shape: tuple[int, ...], index: Index | None = None) -> NDArray:
    """One parameter for each element of the data, as a view or a copy of shape `shape`.

    param  scales or zero points
    shape  of the data
    index  per dimension of `param`: (axis, block), it is read at the data's index along that axis // block; or None,
           it has size 1. Left out: `param` is broadcast by NumPy's rule.

    So () is per tensor, ((1, 1),) per channel of axis 1, ((0, 1), (1, 32)) per group of 32 along axis 1 (the last
    group may be shorter), ((0, 16), (1, 16)) per 2-D block.
    Raises ValueError if the shape of `param` is another.
    """
    param = np.asarray(param)
    if index is None:
        return np.broadcast_to(param, shape)
    wanted = tuple(1 if at is None else -(-shape[at[0]] // at[1]) for at in index)
    if param.shape != wanted:
        raise ValueError(f"parameters have shape {param.shape}; index {index} of data {shape} asks for {wanted}")
    grid = np.indices(shape, sparse=True)
    taken = tuple(0 if at is None else grid[at[0]] // at[1] for at in index)
    return np.broadcast_to(param[taken] if taken else param, shape)
