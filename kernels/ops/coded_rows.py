"""Rows of a cache in a scheme's codes, as attention takes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...primitives.pipeline import Value
from ...primitives.sizes import Shape
from ..attention_coded import fuses
from ..schemes.definition import Definition


@dataclass(frozen=True)
class CodedRows:
    """Keys or values (B, G, N, D) in codes: `attention` decodes them block by block, as it reads them.

    codes, params  u8 (B, G, N, row bytes), and each parameter (B, G, N, blocks), as they are stored
    decoded        makes f32 (B, G, N, D) of them, for other steps
    """

    scheme: Definition
    shape: Shape
    codes: Value
    params: tuple[Value, ...]
    decoded: Callable[[], Value]

    @property
    def fused(self) -> bool:
        """Whether attention takes the codes; it decodes other schemes first."""
        return fuses(self.scheme)

    def slots(self, which: str) -> dict[str, Value]:
        names = (which, *(f"{which}_{p.name}" for p in self.scheme.stored))
        return dict(zip(names, (self.codes, *self.params), strict=True))
