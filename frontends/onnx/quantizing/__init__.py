"""Post-training quantization of ONNX models with any scheme."""

from .run import Quantized as Quantized
from .run import quantize as quantize

__all__ = ["Quantized", "quantize"]
