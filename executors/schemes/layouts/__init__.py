"""Quantized weights as other libraries lay them out: tensors of a checkpoint in, a QuantizedTensor out, and back.

Codes are moved, never changed: what comes back is the same bytes.
"""

from .awq import from_awq, to_awq
from .bitsandbytes import from_bitsandbytes, to_bitsandbytes
from .compressed_tensors import from_compressed_tensors, to_compressed_tensors
from .gptq import from_gptq, to_gptq

__all__ = [
    "from_awq",
    "from_bitsandbytes",
    "from_compressed_tensors",
    "from_gptq",
    "to_awq",
    "to_bitsandbytes",
    "to_compressed_tensors",
    "to_gptq",
]
