"""GGUF files: `load` maps one, `save` writes one; `dequantize` and `quantize` turn blocks to numbers and back."""

from .blocks import dequantize as dequantize
from .blocks import encoded as encoded
from .blocks import quantize as quantize
from .blocks import quantized as quantized
from .blocks import scheme_of as scheme_of
from .layout import TYPES as TYPES
from .reader import Contents as Contents
from .reader import RawTensor as RawTensor
from .reader import read as load
from .writer import write as save

__all__ = [
    "TYPES",
    "Contents",
    "RawTensor",
    "dequantize",
    "encoded",
    "load",
    "quantize",
    "quantized",
    "save",
    "scheme_of",
]
