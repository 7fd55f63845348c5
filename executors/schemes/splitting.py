"""Blocks of bytes as a product takes them: integers in a stream of bits, with a scale (and an offset) for each group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...kernels.linear import CodeFormat
from ...kernels.schemes.steps import SchemeSplit
from . import running
from .running import Array

if TYPE_CHECKING:
    from .tensor import QuantizedTensor


def weights_of_groups(q: QuantizedTensor) -> tuple[CodeFormat, dict[str, Array]]:
    """The slots of the step `linear`. The bytes are split when a plan is made; the tensor keeps its own."""
    scheme = q.scheme
    grouped = scheme.grouped
    assert grouped is not None
    columns = q.shape[-1]
    names = ["q", "scale", *(["offset"] if grouped.offset else [])]
    plan = running._plan(
        scheme, ("split", columns), lambda: running._pipeline(SchemeSplit(scheme, columns), {}, names), q.executor
    )
    found = plan.run({"codes": np.ascontiguousarray(q.codes)})
    slots: dict[str, Any] = {"codes": found["q"], "scale": found["scale"]}
    if grouped.offset:
        slots["offset"] = found["offset"]
    if grouped.zero:
        slots["zero_point"] = np.full(found["scale"].shape, grouped.zero, np.int32)
    if grouped.table is not None:
        slots["table"] = np.asarray(grouped.table, np.float32)
    fmt = CodeFormat(
        bits=grouped.bits,
        signed=grouped.signed,
        block=(1, grouped.group),
        kind=grouped.kind,
        zero_point=bool(grouped.zero),
    )
    return fmt, slots
