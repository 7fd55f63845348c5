"""The ops: functions that take pipeline values, add a kernel and its edges, and return values.

Every argument may be a constant (a number, an array, a Buffer), a run-time argument or another value. What is known
when the op is called is checked then; errors say what was asked, what was found and what would work.
"""

from ..rounding import quantize_multiplier as quantize_multiplier
from .elementwise import add, clip, lookup, map, relu
from .gemm import gemm
from .quantize import dequantize, quantize, requantize
from .reduce import argmax

__all__ = ["add", "argmax", "clip", "dequantize", "gemm", "lookup", "map", "quantize", "relu", "requantize"]
