"""Writing a safetensors file."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...primitives.errors import ArgumentError, DTypeMismatch
from ...primitives.placing import placed
from .reader import TYPES

ALIGNMENT = 8  # of the tensors, by spaces behind the header
_NAMES = {kind: name for name, kind in TYPES.items()}


def write(path: str | os.PathLike[str], tensors: Mapping[str, Any], metadata: Mapping[str, str] | None = None) -> None:
    """Write arrays by name, widest elements first so that all are aligned. A file is put in place whole or not at all.

    metadata   text by name
    """
    metadata = {} if metadata is None else dict(metadata)
    if not all(isinstance(k, str) and isinstance(v, str) for k, v in metadata.items()):
        raise ArgumentError("metadata of a safetensors file is text by name; other values can be written as JSON text")
    arrays = {name: np.asarray(tensor) for name, tensor in tensors.items()}
    for name, array in arrays.items():
        if name == "__metadata__" or not isinstance(name, str):
            raise ArgumentError(f"a tensor cannot be called {name!r}")
        if array.dtype not in _NAMES:
            raise DTypeMismatch(f"tensor {name!r} is {array.dtype}; {', '.join(TYPES)} can be written")
    ordered = sorted(arrays.items(), key=lambda item: (-item[1].dtype.itemsize, item[0]))
    header: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    at = 0
    for name, array in ordered:
        shape, end = list(array.shape), at + array.nbytes
        header[name] = {"dtype": _NAMES[array.dtype], "shape": shape, "data_offsets": [at, end]}
        at = end
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode("utf-8")
    text += b" " * (-len(text) % ALIGNMENT)
    with placed(path) as part, part.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _, array in ordered:
            file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
