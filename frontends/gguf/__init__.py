"""GGUF files: `load` maps one, `save` writes one."""

from .reader import Contents as Contents
from .reader import RawTensor as RawTensor
from .reader import read as load
from .writer import write as save

__all__ = ["Contents", "RawTensor", "load", "save"]
