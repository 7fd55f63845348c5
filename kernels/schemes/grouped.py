"""Blocks of bytes whose weights are integers in groups: what lets a product take them without decoding them first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...primitives.errors import ArgumentError


@dataclass(frozen=True, eq=False)
class Grouped:
    """How the bytes of a block fall apart into integers and, for each group of neighbours, numbers.

    split   split(codes, q, scale) or split(codes, q, scale, offset) fills q, an integer for each weight, and the scale
            (and the offset) of each group
    bits    that hold the integers, 1 to 8
    group   neighbours that share a scale; it divides the block
    signed  whether the integers are two's complement
    zero    w = (q - zero) * scale, one rounding
    offset  whether w = q * scale + offset, two roundings
    table   w = table[q] * scale: the values of all codes
    """

    split: Callable[..., Any]
    bits: int
    group: int
    signed: bool = False
    zero: int = 0
    offset: bool = False
    table: NDArray[np.float32] | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.bits <= 8:
            raise ArgumentError(f"groups of integers of {self.bits!r} bits; 1 to 8 work")
        if (self.table is not None) + self.offset + bool(self.zero) > 1:
            raise ArgumentError("groups have a zero point, an offset or a table: one of them")
        if self.table is not None and (len(self.table) != 1 << self.bits or self.signed):
            raise ArgumentError(f"the table of unsigned codes of {self.bits} bits has {1 << self.bits} values")

    @property
    def kind(self) -> str:
        """As kernels/linear.py names it."""
        return "table" if self.table is not None else "offset" if self.offset else "affine"

    @property
    def facts(self) -> tuple[Any, ...]:
        """Everything but the function: what compiled code depends on."""
        table = None if self.table is None else tuple(map(float, self.table))
        return self.bits, self.group, self.signed, self.zero, self.offset, table
