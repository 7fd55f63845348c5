"""A gemm and the element-wise steps behind it as one CUDA kernel: each sum passes through them before it is stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..chain import Chain, written
from ..elementwise import Add, AddQuantized, Clip, Elementwise, QuantizedElementwise, Relu
from ..factory import Expand, register
from ..gemm import Gemm
from ..lookup import Lookup
from ..map import Map
from ..quantize import Dequantize, Quantize
from ..requantize import Requantize
from . import elementwise, lookup, quantize, requantize
from .gemm import finish_of, planned
from .launch import Device, Launches
from .map import map_element
from .nest import Element

ELEMENTS: dict[type, Callable[..., Element]] = {
    Add: elementwise.add_element,
    AddQuantized: elementwise.add_quantized_element,
    Clip: elementwise.clip_element,
    Elementwise: elementwise.elementwise_element,
    QuantizedElementwise: elementwise.quantized_element,
    Dequantize: quantize.dequantize_element,
    Lookup: lookup.lookup_element,
    Quantize: quantize.quantize_element,
    Relu: elementwise.relu_element,
    Requantize: requantize.requantize_element,
}


@dataclass(frozen=True)
class FusedGemm(Chain):
    """`base`, then each stage on what came before it: a step that CUDA runs as one kernel."""

    def signature(self) -> tuple[Any, ...]:
        reads = [spec for spec in self.base.signature() if spec.reads]
        stages = [replace(spec, slot=slot, shape=None, follows=None) for slot, spec in self.stage_specs()]
        y = replace(written(self.base), slot="y", dtype=written(self.stages[-1][0]).dtype, in_place=())
        return (*reads, *stages, y)

    @property
    def statuses(self) -> Mapping[int, Any]:
        found: dict[int, Any] = {}
        for kernel, _ in reversed(self.stages):
            found |= getattr(kernel, "statuses", {})
        return found

    def infer(self, shapes: Mapping[str, Any], operands: Mapping[str, Any]) -> dict[str, Any]:
        return self.base.infer(shapes, operands)  # type: ignore[attr-defined, no-any-return]

    def prove(self, step: str, operands: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> None:
        self.base.prove(step, operands, shapes)  # type: ignore[attr-defined]

    def execute(self, ctx: Any) -> None:
        read = [spec.slot for spec in self.signature() if spec.reads]
        ctx.sweep(self, *(ctx.read(slot) for slot in read), ctx.write("y"))


def refuses(kernel: Chain) -> str | None:
    """Why the stages of a chain cannot be fused on CUDA, or None."""
    for stage, _ in kernel.stages:
        if type(stage) not in ELEMENTS and not isinstance(stage, Map):
            return f"{stage.name} has no element of its own"
        if isinstance(stage, (Elementwise, QuantizedElementwise)) and elementwise.refuses(stage):
            return elementwise.refuses(stage)
        if "flat" in _element(stage, 0).result:
            return f"{stage.name} draws by position"
    return None


def _element(stage: Any, number: int) -> Element:
    if isinstance(stage, Map):
        return map_element(stage, f"user{number}")  # two users' functions are two names
    return ELEMENTS[type(stage)](stage)


@register("expand.fused_gemm", backend="cuda", requires=refuses)
def expand() -> Expand:
    return Expand(lambda pipe, kernel, operands: pipe.add(FusedGemm(kernel.base, kernel.stages), **operands))


@register("fused_gemm", backend="cuda")
def build(kernel: FusedGemm) -> Device:
    base = kernel.base
    assert isinstance(base, Gemm)
    finish = finish_of(base, [(_element(stage, n), at) for n, (stage, at) in enumerate(kernel.stages)])

    def plan(*operands: Any) -> Launches:
        return planned(base, operands, finish)

    return Device(plan)
