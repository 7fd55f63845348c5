"""Measuring: `bench.sweep(...)` times tiles, `bench.load` reads what it wrote, `bench.compare` holds two results together."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_HOME = {
    "Result": ("tiles.result", "Result"),
    "compare": ("tiles.compare", "compare"),
    "problem_maker": ("tiles.problem", "maker"),
    "sweep": ("tiles.api", "sweep"),
}
__all__ = ["Result", "compare", "problem_maker", "sweep"]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        module, found = _HOME[name]
        return getattr(importlib.import_module(f".{module}", __name__), found)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")


if TYPE_CHECKING:
    from .tiles.api import sweep as sweep
    from .tiles.compare import compare as compare
    from .tiles.problem import maker as problem_maker
    from .tiles.result import Result as Result
