"""What the text of a captured function calls, in a CUDA kernel: the written sequences, and float32 + - * / by name.

kernels/vectormath.py defines the sequences. The interpreter runs them as NumPy; kernels/cuda/lowering.py traces them
into the compiler's IR.
"""

from __future__ import annotations

import numpy as np

from .. import activations, minifloat, polar, powers, scalarops, trigonometry, vectormath  # noqa: F401  (their sequences)
from ..sequence import SEQUENCES
from .ptx import add, div, mul, sub

f32, i32 = np.float32, np.int32
globals().update(SEQUENCES)
__all__ = ["add", "div", "f32", "i32", "mul", "sub", *SEQUENCES]
