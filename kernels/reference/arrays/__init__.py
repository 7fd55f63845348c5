"""What array steps mean: functions of whole arrays, in plain NumPy (kernels/arrays.py)."""

from __future__ import annotations

import importlib
from functools import lru_cache

MODULES = ("algebra", "randoms", "regions", "sampling", "sequences", "spectra", "windows", "words")


@lru_cache
def load() -> None:
    """Import every module, so that its functions are entered."""
    for module in MODULES:
        importlib.import_module(f"{__name__}.{module}")
