"""Schemes inside PyTorch: `quantize_` swaps the linears of a module, `fake_quantize` lets gradients through.

Needs the package torch (extra `torch`), which is imported when something here is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ...primitives.errors import ArgumentError

__all__ = ["FakeQuantizedLinear", "QuantizedLinear", "fake_quantize", "quantize_"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"tilework.torch has no {name!r}; it has {', '.join(__all__)}")
    try:
        importlib.import_module("torch")
    except ImportError as error:
        raise ArgumentError(
            f"tilework.torch needs the package torch: pip install 'tilework[torch]' ({error})"
        ) from None
    return getattr(importlib.import_module(".modules", __name__), name)


def __dir__() -> list[str]:
    return list(__all__)


if TYPE_CHECKING:
    from .modules import FakeQuantizedLinear as FakeQuantizedLinear
    from .modules import QuantizedLinear as QuantizedLinear
    from .modules import fake_quantize as fake_quantize
    from .modules import quantize_ as quantize_
