"""What a pipeline is made of: the values that travel, the steps, and the edges between them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .dtypes import DType
from .errors import PipelineError
from .kernel import ArgSpec, Kernel
from .quantization import QuantParams
from .sizes import Shape, Size, show

if TYPE_CHECKING:
    from .pipeline import Pipeline


@dataclass(eq=False)
class Value:
    """What travels along the edges: a handle with a type, not an array.

    dtype     a DType, or None for a run-time argument that is a Python function
    shape     sizes, ints or expressions of run-time names
    kind      "input", "constant", "argument", "state", "buffer" (declared, to be written) or "result"
    producer  (step, slot) that writes it, once there is one
    data      the array of a constant; the start value of a state
    """

    pipeline: Pipeline
    name: str
    dtype: DType | None
    shape: Shape
    kind: str
    axes: str | None = None
    quant: QuantParams | None = None
    producer: tuple[Step, str] | None = None
    data: Any = None

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __repr__(self) -> str:
        axes = f" {self.axes}" if self.axes else ""
        return f"<{self.kind} {self.name}: {self.dtype or 'function'} {show(self.shape)}{axes}>"

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise PipelineError(
            f"{self.name!r} is a pipeline value, which has no data yet; run the pipeline to get an array"
        )


@dataclass(eq=False)
class Step:
    """One kernel in a pipeline, with the value at each of its slots."""

    name: str
    kernel: Kernel
    specs: tuple[ArgSpec, ...]
    inputs: dict[str, Value] = field(default_factory=dict)
    outputs: dict[str, Value] = field(default_factory=dict)
    sizes: dict[str, int | Size] = field(default_factory=dict)

    def __repr__(self) -> str:
        reads = ", ".join(f"{slot}={value.name}" for slot, value in self.inputs.items())
        return f"{', '.join(v.name for v in self.outputs.values())} = {self.name}({reads})"


@dataclass(frozen=True)
class Edge:
    """One value on its way from the slot that writes it to a slot that reads it.

    source, target   step names; "" stands for the pipeline itself (its inputs, constants, arguments and outputs)
    """

    source: str
    source_slot: str
    target: str
    target_slot: str

    def __str__(self) -> str:
        return f"{self.source or 'pipeline'}.{self.source_slot} -> {self.target or 'pipeline'}.{self.target_slot}"


def origin(value: Value) -> tuple[str, str]:
    """(step, slot) that a value comes from; the pipeline itself is ""."""
    return (value.producer[0].name, value.producer[1]) if value.producer else ("", value.name)
