"""safetensors files: `load` maps one, or a folder of them, `save` writes one; `quantized` finds the codes of checkpoints."""

from .checkpoints import quantized as quantized
from .reader import Contents as Contents
from .reader import read as load
from .writer import write as save

__all__ = ["Contents", "load", "quantized", "save"]
