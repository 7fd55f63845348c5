"""ONNX models as pipelines: `tilework.onnx.load("model.onnx")`, and quantized ones: `tilework.onnx.quantize`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .load import load as load

if TYPE_CHECKING:
    from .quantizing import Quantized as Quantized
    from .quantizing import quantize as quantize

__all__ = ["Quantized", "load", "quantize"]


def __getattr__(name: str) -> Any:
    if name in ("Quantized", "quantize"):
        from . import quantizing

        return getattr(quantizing, name)
    raise AttributeError(f"tilework.onnx has no {name!r}; it has {', '.join(__all__)}")
