"""A kernel and the element-wise steps after it as one kernel: what an executor asks a backend for when it fuses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..primitives.errors import PipelineError
from ..primitives.kernel import ArgSpec, IndexSpace, Kernel, index_space
from ..primitives.sizes import Shape


@dataclass(frozen=True)
class Chain:
    """`base`, then each stage on what came before it.

    stages   (kernel, slot): an element-wise kernel, and the slot at which it takes the value so far

    The slots are the base's read slots, then `s{i}_{slot}` for the other slots of stage i, and "y", which the last
    stage writes. Operands were checked when the separate steps were made, so the slots ask for no shapes.
    """

    base: Kernel
    stages: tuple[tuple[Kernel, str], ...]

    @property
    def name(self) -> str:
        return f"fused_{self.base.name}"

    @property
    def title(self) -> str:
        """What it does, for people."""
        return " + ".join([self.base.name, *(kernel.name for kernel, _ in self.stages)])

    def signature(self) -> tuple[ArgSpec, ...]:
        specs = [replace(spec, shape=None) for spec in self.base.signature() if spec.reads]
        specs += [replace(spec, slot=slot, shape=None) for slot, spec in self.stage_specs()]
        last = written(self.stages[-1][0] if self.stages else self.base)
        out = written(self.base)
        return (*specs, ArgSpec("y", last.dtype, "write", follows=out.follows))

    def stage_specs(self) -> Iterator[tuple[str, ArgSpec]]:
        """(slot of the chain, spec of the stage) for every operand that a stage brings with it."""
        for n, (kernel, at) in enumerate(self.stages):
            for spec in kernel.signature():
                if spec.reads and spec.slot != at:
                    yield f"s{n}_{spec.slot}", spec

    def index_space(self) -> IndexSpace | None:
        return index_space(self.base)

    def infer(self, shapes: Mapping[str, Shape], operands: Mapping[str, Any]) -> dict[str, Shape]:
        raise PipelineError(f"{self.title} is a request to a backend, not a step of its own; a backend expands it")

    def execute(self, ctx: Any) -> None:
        raise PipelineError(f"{self.title} is a request to a backend, not a step of its own; a backend expands it")


def written(kernel: Kernel) -> ArgSpec:
    """The one slot that the kernel writes."""
    found = [spec for spec in kernel.signature() if spec.writes]
    if len(found) != 1:
        raise PipelineError(f"{kernel.name!r} writes {len(found)} slots; only a kernel that writes one can be chained")
    return found[0]


def is_elementwise(kernel: Kernel) -> bool:
    """Whether each element that it writes depends, of its array operands, only on the elements at the same place."""
    return bool(getattr(kernel, "elementwise", False))
