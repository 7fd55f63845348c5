"""Quantization schemes as users see them: `Scheme`, `QuantizedTensor`, and the shipped schemes by name."""

from ...kernels.schemes.grouped import Grouped
from ...kernels.schemes.storage import Table
from . import layouts
from .scheme import Scheme, get, names
from .tensor import QuantizedTensor, concatenate, from_parts

__all__ = ["Grouped", "QuantizedTensor", "Scheme", "Table", "concatenate", "from_parts", "get", "layouts", "names"]
