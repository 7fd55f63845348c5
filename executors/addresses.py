"""The address of an array's first element, quickly.

`array.ctypes.data` costs a microsecond and `__array_interface__` half of one. CPython keeps an array's data pointer at
a fixed place in the object; the place is checked against NumPy's own answer before it is used, once per process.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Any

import numpy as np

from ..primitives.memory import address_of

Array = np.ndarray[Any, Any]


@lru_cache(maxsize=1)
def data_offset() -> int:
    """Bytes from an array object to its data pointer; 0 where it is not where CPython and NumPy usually have it."""
    offset = object.__basicsize__
    for sample in (np.zeros(3, np.uint8), np.zeros((4, 5), np.float32)[1:, ::-1], np.zeros(0, np.int64)):
        if id(sample) % 8 or ctypes.c_void_p.from_address(id(sample) + offset).value != address_of(sample):
            return 0
    return offset
