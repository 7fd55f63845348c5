"""Weights of a decoder, from the tensors of a GGUF file: as codes where the file has codes, else as numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np

from ...executors.schemes import QuantizedTensor, Scheme
from ...kernels import ops
from ...primitives.errors import FileFormatError, Unsupported
from ...primitives.pipeline import Pipeline, Value
from ..gguf.blocks import dequantize
from ..gguf.reader import RawTensor

Array = np.ndarray[Any, Any]
Matrix = QuantizedTensor | Array
COMPUTES = ("int8", "f32")
FLOATS = (np.dtype(np.float32), np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))


class Weights:
    """The tensors of a model, checked for their shapes when they are asked for.

    tensors   by their names in the file
    scheme    matrices are quantized with it, whatever the file has; None: as they are in the file
    """

    def __init__(
        self,
        tensors: Mapping[str, RawTensor],
        scheme: Scheme | None = None,
        name: str = "the file",
        executor: Any = None,
    ) -> None:
        self.tensors, self.scheme, self.name, self.executor = tensors, scheme, name, executor

    def __contains__(self, name: str) -> bool:
        return name in self.tensors

    def _get(self, name: str, shape: tuple[int | None, ...]) -> RawTensor:
        if name not in self.tensors:
            raise FileFormatError(f"{self.name} has no tensor {name!r}, which the decoder needs")
        found = self.tensors[name]
        if len(found.shape) != len(shape) or any(w not in (None, n) for w, n in zip(shape, found.shape, strict=True)):
            wanted = ", ".join("any" if n is None else str(n) for n in shape)
            raise FileFormatError(f"{self.name}: tensor {name!r} has shape {found.shape}; ({wanted}) is needed")
        return found

    def vector(self, name: str, n: int) -> Array:
        """A tensor (n,) in float32."""
        found = self._get(name, (n,))
        return dequantize(found.numpy() if found.type.plain is not None else found.data, found.type.name)

    def matrix(self, name: str, shape: tuple[int | None, int]) -> Matrix:
        """A tensor (N, K): codes, or numbers in float32."""
        raw = self._get(name, shape)
        if raw.type.plain is None:
            q = raw.quantized(self.executor)
            return q if self.scheme is None else self.scheme.quantize(q.dequantize(), executor=self.executor)
        numbers = raw.numpy()
        if numbers.dtype not in FLOATS:
            raise Unsupported(f"{self.name}: {raw.name!r} is {raw.type.name}; F32, F16, BF16 and block types work")
        wide = numbers.astype(np.float32)
        return wide if self.scheme is None else self.scheme.quantize(wide, executor=self.executor)


def linear(x: Value, w: Matrix, compute: str) -> Value:
    """x @ w.T, in integers where that is asked for and the codes stand for integers times scales."""
    if not isinstance(w, QuantizedTensor):
        return ops.gemm(x, np.ascontiguousarray(w.T))
    try:
        return ops.linear(x, w, compute=compute)
    except Unsupported:
        if compute == "f32":
            raise
        return ops.linear(x, w, compute="f32")


def rows(pipe: Pipeline, table: Matrix, indices: Value) -> Value:
    """Rows of a matrix, f32 (T, K): of codes only those rows are decoded."""
    if not isinstance(table, QuantizedTensor):
        return ops.gather(pipe.constant(table), indices)
    scheme = table.scheme
    if scheme.edges[0] != 1 or scheme.nested or any(p.table for p in scheme.stored):
        return ops.gather(pipe.constant(table.dequantize()), indices)
    codes = ops.gather(pipe.constant(table.codes), indices)
    params = [ops.gather(pipe.constant(table.params[p.name]), indices) for p in scheme.stored]
    return ops.decode(codes, params, scheme, table.shape[1])
