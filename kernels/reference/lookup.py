"""lookup: codes replaced by the entries of a table."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def lookup(x: ArrayLike, table: ArrayLike) -> NDArray:
    """Replace every code by a table entry: out = table[x & 255].

    x      uint8 or int8, any shape
    table  uint8 or int8 (256,); where x is int8, entries 128 to 255 are those of -128 to -1
    """
    return np.asarray(table)[np.asarray(x).astype(np.uint8)]
