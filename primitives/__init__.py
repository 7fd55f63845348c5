"""Bytes, shapes, strides and slots, and what a scale and a zero point mean. No Numba, no CUDA."""

from . import dtypes, errors, sizes
from .arena import Arena, BufferId, plan_offsets
from .buffer import Buffer
from .context import ExecContext
from .dtypes import DType
from .kernel import Affine, ArgSpec, Axis, IndexSpace, Kernel
from .layout import LayoutSpec
from .pipeline import Edge, Pipeline, Step, Value
from .quantization import QuantParams
from .sizes import Size, size

__all__ = [
    "Affine",
    "Arena",
    "ArgSpec",
    "Axis",
    "Buffer",
    "BufferId",
    "DType",
    "Edge",
    "ExecContext",
    "IndexSpace",
    "Kernel",
    "LayoutSpec",
    "Pipeline",
    "QuantParams",
    "Size",
    "Step",
    "Value",
    "dtypes",
    "errors",
    "plan_offsets",
    "size",
    "sizes",
]
