"""Copies on CUDA. kernels/reference/moving.py says what they compute."""

from __future__ import annotations

from ...factory import register
from ...indexing import whole
from ...moving.copy import Copy, Fill, TransposedCopy
from ..launch import Device
from ..nest import Element, nest


@register("copy", backend="cuda")
def build_copy(kernel: Copy) -> Device:
    rank = len(kernel.extents)
    return nest(Element(rank, [("x", whole(rank))], result="{x}", name="copy"))


@register("transposed", backend="cuda")
def build_transposed(kernel: TransposedCopy) -> Device:
    rank = len(kernel.extents)
    return nest(Element(rank, [("x", whole(rank))], result="{x}", name="transposed"))


@register("fill", backend="cuda")
def build_fill(kernel: Fill) -> Device:
    return nest(Element(len(kernel.extents), [("x", ())], result="{x}", name="fill"))
