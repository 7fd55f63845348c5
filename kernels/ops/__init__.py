"""The ops: functions that take pipeline values, add a kernel and its edges, and return values.

Every argument may be a constant (a number, an array, a Buffer), a run-time argument or another value. What is known
when the op is called is checked then; errors say what was asked, what was found and what would work.
"""

from ..rounding import quantize_multiplier as quantize_multiplier
from .conv import conv, conv_transpose
from .elementwise import add, clip, lookup, map, relu
from .gemm import gemm
from .moving import (
    arange,
    concat,
    cumsum,
    depth_to_space,
    expand,
    flatten,
    gather,
    gather_elements,
    gather_nd,
    one_hot,
    pad,
    reshape,
    resize,
    scatter_elements,
    scatter_nd,
    slice,
    space_to_depth,
    split,
    squeeze,
    tile,
    topk,
    transpose,
    trilu,
    unsqueeze,
)
from .quantize import dequantize, quantize, requantize
from .reduce import argmax

__all__ = [
    "add",
    "arange",
    "argmax",
    "clip",
    "concat",
    "conv",
    "conv_transpose",
    "cumsum",
    "depth_to_space",
    "dequantize",
    "expand",
    "flatten",
    "gather",
    "gather_elements",
    "gather_nd",
    "gemm",
    "lookup",
    "map",
    "one_hot",
    "pad",
    "quantize",
    "relu",
    "requantize",
    "reshape",
    "resize",
    "scatter_elements",
    "scatter_nd",
    "slice",
    "space_to_depth",
    "split",
    "squeeze",
    "tile",
    "topk",
    "transpose",
    "trilu",
    "unsqueeze",
]
