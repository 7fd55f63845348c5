"""Which scale belongs to which element: one rule for every granularity."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def spread(param: ArrayLike, shape: tuple[int, ...], blocks: tuple[int, ...]) -> NDArray:
    """One parameter for each element: out[i, j, ..] = param[i // blocks[0], j // blocks[1], ..].

    param    scales or zero points: one dimension for each block that is not 0, of size ceil(shape / block)
    shape    of the data
    blocks   per dimension of the data: 0, it has no say (the parameter lacks that dimension); 1, a parameter for
             each index; b > 1, a parameter for each b neighbours. The last group may be shorter.

    So (0, 0) is per tensor, (0, 1) per channel of axis 1, (1, 32) per group of 32 along axis 1, (16, 16) per 2-D block.
    Raises ValueError if the shape of `param` is another.
    """
    param = np.asarray(param)
    if len(blocks) != len(shape):
        raise ValueError(f"{len(blocks)} blocks for data of rank {len(shape)}")
    wanted = tuple(-(-n // b) for n, b in zip(shape, blocks) if b)
    if param.shape != wanted:
        raise ValueError(f"parameters have shape {param.shape}; blocks {blocks} of data {shape} ask for {wanted}")
    index = np.ogrid[tuple(slice(n) for n in shape)]
    taken = tuple(i // b for i, b in zip(index, blocks) if b)
    return np.broadcast_to(param[taken] if taken else param, shape)
