"""What a block's parameters are stored as: small floats, integers, a learned table, or another scheme."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...primitives import dtypes
from ...primitives.errors import ArgumentError
from ...primitives.storage import stored_as

# dtype name -> (sequence that makes a code of a float32, sequence that makes the value of a code); none: stored as is
FLOATS: dict[str, tuple[str, str] | None] = {
    "f32": None,
    "f16": ("f16_bits", "f16_value"),
    "bf16": ("bf16_bits", "bf16_value"),
    "f8e4m3fn": ("e4m3_bits_sat", "e4m3_value"),
    "f8e5m2": ("e5m2_bits_sat", "e5m2_value"),
    "e8m0fnu": ("e8m0_bits", "e8m0_value"),
}
INTEGERS = ("u8", "s8", "u16", "s16", "s32")
LARGEST_TABLE = 256


@stored_as("scheme_table")
@dataclass(frozen=True)
class Table:
    """A parameter with several values a block: a learned codebook. `fit` returns an array of that many.

    size    1 to 256
    dtype   what each value is stored as
    """

    size: int
    dtype: str = "f32"

    def __post_init__(self) -> None:
        if isinstance(self.size, bool) or not isinstance(self.size, int) or not 1 <= self.size <= LARGEST_TABLE:
            raise ArgumentError(f"a table of {self.size!r} values; 1 to {LARGEST_TABLE} work")
        object.__setattr__(self, "dtype", dtypes.get(self.dtype).name)
        if self.dtype not in FLOATS:
            raise ArgumentError(f"a table of {self.dtype}; {', '.join(FLOATS)} work")


@dataclass(frozen=True)
class Stored:
    """One parameter as compiled code meets it.

    name    as the scheme names it
    dtype   of one stored value; f32 where another scheme stores it, which decodes it first
    table   how many values a block has; 0: one, a plain number
    """

    name: str
    dtype: str
    table: int = 0

    @property
    def kind(self) -> str:
        """What the scheme's functions see: "f", "i", or "f[]"."""
        if self.table:
            return "f[]"
        return "i" if self.dtype in INTEGERS else "f"

    @property
    def result(self) -> str:
        """What `fit` returns for it: integers come as numbers that are rounded by the function."""
        return "f[]" if self.table else "f"

    @property
    def numpy(self) -> np.dtype[Any]:
        return dtypes.get(self.dtype).numpy


def stored(name: str, given: Any) -> Stored:
    """How a parameter declared as `given` is stored. Raises ArgumentError with what works."""
    if isinstance(given, Table):
        return Stored(name, given.dtype, given.size)
    if hasattr(given, "decode") and hasattr(given, "params"):
        return Stored(name, "f32")
    works = f"{', '.join(FLOATS)}, {', '.join(INTEGERS)}, Table(n) or a Scheme"
    try:
        dtype = dtypes.get(given).name
    except Exception:
        raise ArgumentError(f"parameter {name!r} is stored as {given!r}; {works} work") from None
    if dtype not in FLOATS and dtype not in INTEGERS:
        raise ArgumentError(f"parameter {name!r} is stored as {dtype}; {works} work")
    return Stored(name, dtype)
