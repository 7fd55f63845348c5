"""Order, tiles, threads and memory. An executor runs pipelines; it never looks inside a kernel."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_HOME = {
    "CudaExecutor": "cuda",
    "DaskExecutor": "dask",
    "OwnedState": "states",
    "SingleThreadExecutor": "single_thread",
    "Stream": "streaming",
    "TilingExecutor": "tiling",
    "executor": "registry",
}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


if TYPE_CHECKING:
    from .cuda import CudaExecutor as CudaExecutor
    from .dask import DaskExecutor as DaskExecutor
    from .registry import executor as executor
    from .single_thread import SingleThreadExecutor as SingleThreadExecutor
    from .states import OwnedState as OwnedState
    from .streaming import Stream as Stream
    from .tiling import TilingExecutor as TilingExecutor
