"""What a GGUF file is made of: value types, tensor types, alignment.

Source: the GGUF specification (ggml, docs/gguf.md) and the constants of the package gguf 0.19.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import ml_dtypes
import numpy as np

MAGIC = b"GGUF"
VERSIONS = (2, 3)
ALIGNMENT = 32  # of tensor data, where general.alignment says nothing else

# Value types of metadata, by their number: the struct format of one, or None for strings and arrays.
UINT32, STRING, ARRAY = 4, 8, 9
VALUES: Mapping[int, np.dtype] = MappingProxyType(
    {
        0: np.dtype(np.uint8),
        1: np.dtype(np.int8),
        2: np.dtype(np.uint16),
        3: np.dtype(np.int16),
        4: np.dtype(np.uint32),
        5: np.dtype(np.int32),
        6: np.dtype(np.float32),
        7: np.dtype(np.bool_),
        10: np.dtype(np.uint64),
        11: np.dtype(np.int64),
        12: np.dtype(np.float64),
    }
)


@dataclass(frozen=True)
class TensorType:
    """A type that tensors of a file may have.

    code    its number in the file
    block   elements of one block, along the innermost axis
    nbytes  bytes of one block
    plain   NumPy's type for types that are no blocks; None for quantized ones
    """

    name: str
    code: int
    block: int
    nbytes: int
    plain: np.dtype | None = None


def _table() -> dict[str, TensorType]:
    plain = {
        "F32": (0, np.float32),
        "F16": (1, np.float16),
        "I8": (24, np.int8),
        "I16": (25, np.int16),
        "I32": (26, np.int32),
        "I64": (27, np.int64),
        "F64": (28, np.float64),
        "BF16": (30, ml_dtypes.bfloat16),
    }
    blocks = {
        "Q4_0": (2, 32, 18),
        "Q4_1": (3, 32, 20),
        "Q5_0": (6, 32, 22),
        "Q5_1": (7, 32, 24),
        "Q8_0": (8, 32, 34),
        "Q8_1": (9, 32, 40),
        "Q2_K": (10, 256, 84),
        "Q3_K": (11, 256, 110),
        "Q4_K": (12, 256, 144),
        "Q5_K": (13, 256, 176),
        "Q6_K": (14, 256, 210),
        "Q8_K": (15, 256, 292),
        "IQ2_XXS": (16, 256, 66),
        "IQ2_XS": (17, 256, 74),
        "IQ3_XXS": (18, 256, 98),
        "IQ1_S": (19, 256, 50),
        "IQ4_NL": (20, 32, 18),
        "IQ3_S": (21, 256, 110),
        "IQ2_S": (22, 256, 82),
        "IQ4_XS": (23, 256, 136),
        "IQ1_M": (29, 256, 56),
        "TQ1_0": (34, 256, 54),
        "TQ2_0": (35, 256, 66),
        "MXFP4": (39, 32, 17),
        "NVFP4": (40, 64, 36),
        "Q1_0": (41, 128, 18),
    }
    found = {name: TensorType(name, code, 1, np.dtype(t).itemsize, np.dtype(t)) for name, (code, t) in plain.items()}
    found |= {name: TensorType(name, *facts) for name, facts in blocks.items()}
    return found


TYPES: Mapping[str, TensorType] = MappingProxyType(_table())
BY_CODE: Mapping[int, TensorType] = MappingProxyType({t.code: t for t in TYPES.values()})
