"""tilework: quantized execution primitives compiled with Numba.

A Buffer is bytes plus a contract, a Kernel maps buffers to buffers, a Pipeline is kernels and edges, and an Executor
alone decides order, tiles, threads, fusion and memory. Names are loaded on first use, so importing the package, or
asking the command line for help, does not import Numba.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {
    "Arena": "primitives",
    "ArgSpec": "primitives",
    "Axis": "primitives",
    "Affine": "primitives",
    "Buffer": "primitives",
    "CudaExecutor": "executors",
    "DType": "primitives",
    "DaskExecutor": "executors",
    "Edge": "primitives",
    "IndexSpace": "primitives",
    "LayoutSpec": "primitives",
    "OwnedState": "executors",
    "Pipeline": "primitives",
    "QuantParams": "primitives",
    "QuantizedTensor": "executors.schemes",
    "Scheme": "executors.schemes",
    "SingleThreadExecutor": "executors",
    "Stream": "executors",
    "TilingExecutor": "executors",
    "executor": "executors",
}
_MODULES = {
    "arrow": "frontends.arrow",
    "bench": "bench",
    "debug": "executors.debug",
    "dtypes": "primitives.dtypes",
    "eager": "executors.eager",
    "errors": "primitives.errors",
    "factory": "kernels.factory",
    "fitting": "executors.fitting",
    "gguf": "frontends.gguf",
    "llm": "frontends.llm",
    "onnx": "frontends.onnx",
    "ops": "kernels.ops",
    "safetensors": "frontends.safetensors",
    "schemes": "executors.schemes",
    "torch": "frontends.torch",
}

__all__ = ["__version__", *sorted(_HOME), *sorted(_MODULES)]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f".{_MODULES[name]}", __name__)
    if name in _HOME:
        return getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
    raise AttributeError(f"module 'tilework' has no attribute {name!r}; it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    return list(__all__)


if TYPE_CHECKING:
    from .executors import CudaExecutor as CudaExecutor
    from .executors import DaskExecutor as DaskExecutor
    from .executors import OwnedState as OwnedState
    from .executors import SingleThreadExecutor as SingleThreadExecutor
    from .executors import Stream as Stream
    from .executors import TilingExecutor as TilingExecutor
    from .executors import debug as debug
    from .executors import eager as eager
    from .executors import executor as executor
    from .executors import fitting as fitting
    from .executors import schemes as schemes
    from .executors.schemes import QuantizedTensor as QuantizedTensor
    from .executors.schemes import Scheme as Scheme
    from .frontends import arrow as arrow
    from .frontends import gguf as gguf
    from .frontends import llm as llm
    from .frontends import onnx as onnx
    from .frontends import safetensors as safetensors
    from .frontends import torch as torch
    from .kernels import factory as factory
    from .kernels import ops as ops
    from .primitives import (
        Affine as Affine,
    )
    from .primitives import (
        Arena as Arena,
    )
    from .primitives import (
        ArgSpec as ArgSpec,
    )
    from .primitives import (
        Axis as Axis,
    )
    from .primitives import (
        Buffer as Buffer,
    )
    from .primitives import (
        DType as DType,
    )
    from .primitives import (
        Edge as Edge,
    )
    from .primitives import (
        IndexSpace as IndexSpace,
    )
    from .primitives import (
        LayoutSpec as LayoutSpec,
    )
    from .primitives import (
        Pipeline as Pipeline,
    )
    from .primitives import (
        QuantParams as QuantParams,
    )
    from .primitives import dtypes as dtypes
    from .primitives import errors as errors
