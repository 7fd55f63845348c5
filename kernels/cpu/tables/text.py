"""Text that the tile functions of tables share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...forge import Native

HEADER = "import numpy as np\nfrom numba import njit\n"


def tile_of(axis: str, arguments: Sequence[str], body: Sequence[str], prelude: str = "") -> Native:
    """A tile function over one axis."""
    lines = "".join(f"    {line}\n" for line in body)
    head = f'{HEADER}{prelude}\n\n@njit(nogil=True, error_model="numpy")\n'
    return Native(f"{head}def tile({axis}0, {axis}1, {', '.join(arguments)}):\n{lines}")


def optional(kernel: Any) -> list[str]:
    """The names of the operands that only some kernels have."""
    return [*(["where"] if getattr(kernel, "where", False) else []), *(["valid"] if kernel.valid else [])]


def length(kernel: Any, of: str) -> str:
    """How many rows are there."""
    return f"min(max(valid[()], 0), {of}.shape[0])" if kernel.valid else f"{of}.shape[0]"
