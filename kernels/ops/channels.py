"""Normalization of data (N, C, ..) by its channels."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...primitives import sizes
from ...primitives.errors import ArgumentError, DTypeMismatch, ShapeMismatch
from ...primitives.pipeline import Value
from ..reduce.groups import GroupNormalize
from ..reduce.response import LocalResponse
from ..reduce.rows import REAL
from .given import Operand, dtype_of, one, only, pipeline_of, reals, value_of
from .moving import cast


def group_norm(x: Operand, groups: int, scale: Operand = None, bias: Operand = None, epsilon: Operand = 1e-5) -> Value:
    """(x - mean) / sqrt(variance + epsilon) * scale + bias; mean and variance over each group of channels of an image.

    x            f32, f16 or bf16, (N, C, ..) with a known C
    groups       how many groups the channels are cut into, which divides C
    scale, bias  (C,), constants or values; left out: 1 and 0
    """
    x = _image("group_norm", x, 2)
    channels = x.shape[1]
    if not isinstance(channels, int):
        raise ShapeMismatch(f"group_norm: x has {channels} channels, known only at run time; a known number works")
    if isinstance(groups, bool) or not isinstance(groups, int) or groups < 1 or channels % groups:
        raise ArgumentError(f"group_norm: {groups!r} groups of {channels} channels; a divisor of {channels} works")
    return _grouped("group_norm", x, max(channels // groups, 1), scale, bias, epsilon)


def instance_norm(x: Operand, scale: Operand = None, bias: Operand = None, epsilon: Operand = 1e-5) -> Value:
    """Normalize each channel of each image: over all axes from 2 on, then * scale + bias of the channel.

    x            f32, f16 or bf16, (N, C, ..) of rank 3 at least
    scale, bias  (C,), constants or values; left out: 1 and 0
    """
    return _grouped("instance_norm", _image("instance_norm", x, 3), 1, scale, bias, epsilon)


def local_response_norm(
    x: Operand, size: int, alpha: Operand = 1e-4, beta: Operand = 0.75, bias: Operand = 1.0
) -> Value:
    """x / (bias + alpha / size * s) ** beta, where s is the sum of x**2 over `size` channels around each (ONNX LRN).

    x                  f32, f16 or bf16, (N, C, ..)
    size               channels that are summed: (size - 1) // 2 before, size // 2 behind
    alpha, beta, bias  numbers
    """
    x = _image("local_response_norm", x, 2)
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise ArgumentError(f"local_response_norm: size is {size!r}; 1 channel at least works")
    numbers: dict[str, Any] = {
        name: one(reals(given, f"local_response_norm: {name}"), f"local_response_norm: {name}")
        for name, given in (("alpha", alpha), ("beta", beta), ("bias", bias))
    }
    numbers["alpha"] = numbers["alpha"] / np.float32(size)
    return only(x.pipeline.add(LocalResponse(dtype_of(x), len(x.shape), size), x=x, **numbers))


def _image(op: str, x: Operand, least: int) -> Value:
    x = value_of(pipeline_of(op, x), x, op, "x")
    if dtype_of(x) not in REAL:
        raise DTypeMismatch(f"{op}: x is {dtype_of(x)}; {', '.join(REAL)} work")
    if len(x.shape) < least:
        raise ShapeMismatch(f"{op}: x has shape {sizes.show(x.shape)}; (N, C, ..) of rank {least} at least works")
    return x


def _grouped(op: str, x: Value, each: int, scale: Operand, bias: Operand, epsilon: Operand) -> Value:
    operands: dict[str, Any] = {}
    for slot, given, usual in (("scale", scale, 1.0), ("bias", bias, 0.0)):
        if given is None:
            if not isinstance(x.shape[1], int):
                raise ShapeMismatch(f"{op}: x has {x.shape[1]} channels, known only at run time; give scale and bias")
            given = np.full(x.shape[1], usual, np.float32)
        if not isinstance(given, Value):
            given = reals(given, f"{op}: {slot}")
        elif dtype_of(given) != "f32":
            given = cast(given, "f32")
        if len(given.shape) != 1:
            raise ShapeMismatch(f"{op}: {slot} has shape {sizes.show(given.shape)}; one for each channel, (C,), works")
        operands[slot] = given
    operands["epsilon"] = (
        epsilon if isinstance(epsilon, Value) else one(reals(epsilon, f"{op}: epsilon"), f"{op}: epsilon")
    )
    return only(x.pipeline.add(GroupNormalize(dtype_of(x), len(x.shape), each), x=x, **operands))
