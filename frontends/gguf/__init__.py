"""GGUF files: `load` maps one, `save` writes one; `dequantize` and `quantize` turn blocks to numbers and back."""

from .blocks import dequantize as dequantize
from .blocks import quantize as quantize
from .blocks import quantized as quantized
from .reader import Contents as Contents
from .reader import RawTensor as RawTensor
from .reader import read as load
from .writer import write as save

__all__ = ["Contents", "RawTensor", "dequantize", "load", "quantize", "quantized", "save"]
