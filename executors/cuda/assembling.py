"""The graph of a plan at given sizes: which buffers there are, and the launches of every step over them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...kernels import factory
from ...kernels.cuda.launch import Device
from ...primitives.errors import KernelNotFound
from ...primitives.kernel import index_space
from ...primitives.pipeline import Step, Value
from ...primitives.sizes import evaluate
from .. import inputs as doors
from ..lowering import Lowered
from ..recording import NeedsData, Operand, RecordingContext
from ..single_thread import SingleThreadPlan, _Binding
from ..tiles import facts_of, named
from ..tuned import Tiles
from .graph import ALIGN, Assembly, Buffer, Graph, own_buffers, span_of

NOWHERE = -1


class HostOnly(Exception):
    """Why a step cannot be part of a graph."""


class AssemblingPlan(SingleThreadPlan):
    """A plan that can say what to launch.

    tiles    which tile a step takes
    lowered  what the pipeline was made into
    """

    tiles: Tiles
    lowered: Lowered

    def _assemble(self, binding: _Binding) -> Graph:
        buffers, places = own_buffers(binding.peak), {}
        updates = {v.name for v in self.pipe.updates.values()}  # kept beyond the run, so not in the arena
        for name, value in self.values.items():
            if value.dtype is None:
                continue
            if name in binding.offsets and name not in updates:
                places[name] = (0, binding.offsets[name])
                continue
            places[name] = (len(buffers), 0)
            kind = "output" if value.kind == "result" else value.kind
            data = self._constants.get(name) if value.kind == "constant" else None
            buffers.append(Buffer(name, kind, self._nbytes(value, binding.shapes), data))
        assembly = Assembly(buffers)
        for step in self.order:
            with named(step):
                self._add(assembly, step, binding, places)
        return assembly.graph(max([ALIGN, *self._aligns.values()]))

    def _add(self, assembly: Assembly, step: Step, binding: _Binding, places: Mapping[str, tuple[int, int]]) -> None:
        operands = {s: self._operand(v, binding, places) for s, v in {**step.inputs, **step.outputs}.items()}
        try:
            sweeps = self._recorded(step, operands)
            made = []
            for kernel, swept in sweeps:
                implementation = self._implementation(step, kernel, swept, binding)
                if not isinstance(implementation, Device):
                    raise HostOnly("its implementation is no CUDA kernel")
                made.append((kernel, swept, implementation.plan(*swept)))
        except (KernelNotFound, NeedsData, HostOnly) as reason:
            text = str(reason) if isinstance(reason, (KernelNotFound, HostOnly)) else f"it asks for {reason}"
            reads = [span_of(operands[s]) for s, v in step.inputs.items() if v.dtype is not None]
            writes = [span_of(operands[s]) for s, v in step.outputs.items()]
            assembly.add_host(step, reads, writes, text)
            return
        for kernel, swept, launches in made:
            assembly.add(step, kernel, launches.launches, launches.temporaries, swept)

    def _implementation(self, step: Step, kernel: Any, swept: tuple[Operand, ...], binding: _Binding) -> Any:
        """What runs a sweep, with the tile that was asked for or tuned."""
        facts = facts_of(kernel, swept)
        variant = factory.find(kernel.name, "cuda", **facts)
        sizes = {name: evaluate(x, binding.env) for name, x in step.sizes.items() if name != "..."}
        names = next((note.steps for note in self.lowered.notes if step.name in note.became), (step.name,))
        tile = self.tiles.of(names, variant, kernel, facts["dtypes"], sizes)
        return variant.make({**facts, "name": kernel.name, "tile": tile})

    @staticmethod
    def _recorded(step: Step, operands: Mapping[str, Any]) -> list[tuple[Any, tuple[Operand, ...]]]:
        if index_space(step.kernel) is None:
            raise HostOnly("a Python kernel, without an index space")

        def scratch(nbytes: int) -> Operand:
            return Operand.make(NOWHERE, 0, np.uint8, (nbytes,))  # a CPU's; no CUDA kernel looks at it

        ctx = RecordingContext(step.name, step.specs, operands, scratch)
        step.kernel.execute(ctx)
        if not ctx.sweeps:
            raise HostOnly("a Python kernel, which does not sweep")
        return ctx.sweeps

    def _operand(self, value: Value, binding: _Binding, places: Mapping[str, tuple[int, int]]) -> Any:
        if value.dtype is None:
            return None
        base, offset = places[value.name]
        if value.kind == "constant":
            data = np.ascontiguousarray(self._constants[value.name])
            return Operand(base, offset, data.reshape(self._constants[value.name].shape), data)
        return Operand.make(
            base, offset, value.dtype.numpy, doors.stored_shape(value.dtype, binding.shapes[value.name])
        )
