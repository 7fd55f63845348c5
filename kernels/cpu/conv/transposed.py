"""Which transposed convolutions are made of phases (phases.py), and the steps that they become."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import Any

from ....primitives.pipeline import Value
from ...chain import Chain
from ...conv import Conv
from ...factory import Expand, register
from ...relayout import channels_last, turned
from ...window import SPATIAL
from .. import isa as levels
from ..gemm.expand import _constant
from ..gemm.steps import compiled
from . import expand as plain
from . import phases


def takes(kernel: Any, operands: Mapping[str, Any]) -> str | None:
    """A requirement: it is made of phases, and what follows is the same for all places of an output channel."""
    base = kernel.base if isinstance(kernel, Chain) else kernel
    reason = phases.serves(base, operands)
    if reason is not None:
        return reason
    _, epilogue, reason = plain.gather(kernel, operands)
    if reason is not None:
        return reason
    if epilogue.generated or getattr(epilogue, "residual", None) is not None:
        return "a residual or a user's function follows"
    if any(value is not None and _constant(value) is None for value in _columns(base, epilogue).values()):
        return "its bias is known only at run time"
    return None


def _columns(base: Conv, epilogue: Any) -> dict[str, Any]:
    """What an epilogue has for each output channel."""
    names = ("bias", "scale") if base.real else ("bias", "multiplier", "shift")
    return {name: getattr(epilogue, name) for name in names}


@register("expand.conv", backend="cpu", variant="phases", requires=(compiled, takes), priority=5)
@register("expand.fused_conv", backend="cpu", variant="phases", requires=(compiled, takes), priority=5)
def build(isa: str | None = None) -> Expand:
    return Expand(lambda pipe, kernel, operands: expand(pipe, kernel, operands, isa))


def expand(pipe: Any, kernel: Any, operands: dict[str, Value], level_name: str | None) -> Value:
    """Add the steps of a transposed convolution and its epilogue to `pipe`; returns what they write."""
    base, epilogue, _ = plain.gather(kernel, operands)
    first = base.y_layout[1] == "C"
    x = turned(pipe, operands["x"], last=True) if base.x_layout[1] == "C" else operands["x"]
    inner, last = SPATIAL[base.spatial], channels_last(base.x_layout)
    steps, taps = base.window.spreads, base.kernel
    whole = [-(-(a + 1) // s) - 1 if s > 1 else a for a, s in zip(base.after, steps, strict=True)]
    cut = [k - 1 - b if s > 1 else 0 for k, b, s in zip(taps, base.before, steps, strict=True)]  # off the front
    before = [k // s - 1 - c // s if s > 1 else b for k, s, c, b in zip(taps, steps, cut, base.before, strict=True)]
    conv = replace(
        base,
        kernel=tuple(k // s for k, s in zip(taps, steps, strict=True)),
        strides=(1,) * base.spatial,
        before=tuple(before),
        after=tuple(whole),
        spread=(),
        x_layout=last,
        y_layout=last,
        w_layout=f"O{inner}I",
        transposed=False,
    )
    count, groups = prod(steps), base.groups
    for name, value in _columns(base, epilogue).items():
        if value is not None and value.data.size > 1:
            setattr(epilogue, name, pipe.constant(phases.repeated(value.data, groups, count)))
    given = {**operands, "x": x, "w": pipe.constant(phases.arranged(base, operands["w"].data))}
    zero = operands.get("b_zero_point")
    if zero is not None and zero.data.size > 1:
        given["b_zero_point"] = pipe.constant(phases.repeated(zero.data, groups, count))
    out = plain.panels(pipe, conv, epilogue, given, levels.select(level_name), {}, first)
    out = phases.side_by_side(pipe, out, base, [c % s for c, s in zip(cut, steps, strict=True)])
    out.axes = last
    return turned(pipe, out, last=False) if first else out
