"""ONNX models as pipelines: `tilework.onnx.load("model.onnx")`."""

from .load import load as load

__all__ = ["load"]
