"""A pipeline made ready for CUDA: lowered, its graph made for each set of sizes, and run on a device or without one."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...kernels import factory
from ...kernels.cuda.launch import Device
from ...primitives.context import ExecContext
from ...primitives.errors import KernelNotFound, UnwrittenRead
from ...primitives.kernel import index_space
from ...primitives.pipeline import Pipeline, Step, Value
from ...primitives.sizes import evaluate
from .. import inputs as doors
from ..lowering import lower
from ..recording import NeedsData, Operand, RecordingContext
from ..single_thread import SingleThreadPlan, _Binding
from ..tiles import choose, extents, facts_of, named, raise_status, run_whole
from ..tuned import Tiles
from .graph import ALIGN, Assembly, Buffer, Graph, Node, own_buffers, span_of

if TYPE_CHECKING:
    from .executor import CudaExecutor

Array = np.ndarray[Any, Any]


NOWHERE = -1


class HostOnly(Exception):
    """Why a step cannot be part of a graph."""


class CudaPlan(SingleThreadPlan):
    """A pipeline as CUDA graphs, one for each set of sizes. It may be shared by threads, which take turns."""

    def __init__(self, pipe: Pipeline, executor: CudaExecutor) -> None:
        pipe.validate()
        self.tiles = Tiles(executor.tile, machine=executor.machine if executor.tuned else "")
        self.lowered = lower(pipe, "cuda", executor.fuse, tiles=self.tiles, fold_on="cpu")
        super().__init__(self.lowered.pipe, executor)
        self.source = pipe
        self.device = executor.runner
        self._graphs: dict[int, tuple[_Binding, Graph, Any]] = {}

    def __repr__(self) -> str:
        return f"<plan of {self.pipe.name!r} on {self.executor!r}: {len(self.order)} steps>"

    # The graph ---------------------------------------------------------------------------------------------------

    def graph(self, shapes: Mapping[str, tuple[int, ...]]) -> Graph:
        """The graph for these input shapes, as data; no device is asked."""
        return self._made(self.prepare(shapes))[1]

    def _made(self, binding: _Binding) -> tuple[_Binding, Graph, Any]:
        with self._lock:
            found = self._graphs.get(id(binding))
            if found is None:
                graph = self._assemble(binding)
                found = self._graphs[id(binding)] = (binding, graph, None)
                alive = {id(b) for b in self._bindings.values()} | {id(binding)}
                self._graphs = {key: kept for key, kept in self._graphs.items() if key in alive}
        return found

    def _memory(self, binding: _Binding) -> tuple[Graph, Any]:
        """The graph and the buffers on the device; constants are sent, and what follows from them computed, once."""
        _, graph, memory = self._made(binding)
        if memory is None:
            memory = self.device.memory(graph)
            self.device.prepare(graph, memory)
            self._graphs[id(binding)] = (binding, graph, memory)
        return graph, memory

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

    def launches(self, shapes: Mapping[str, tuple[int, ...]]) -> Callable[[], None]:
        """A call that launches the graph for these sizes on what the device's memory holds, and waits for nothing.

        For whoever times kernels: a run before it has sent the inputs. Only where the device has a stream.
        """
        memory = self._memory(self.prepare(shapes))[1]
        driver = self.device
        parts = [part for part in memory.parts if part is not None and not isinstance(part, Node)]

        def launch() -> None:
            for part in parts:
                driver.call(driver.api.cuGraphLaunch(part, driver.stream), "launch a graph")

        return launch

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

    # Running -----------------------------------------------------------------------------------------------------

    def _run(
        self,
        inputs: Mapping[str, Any],
        out: Mapping[str, Any],
        state: dict[str, Array] | None,
        times: dict[str, float] | None,
    ) -> dict[str, Array]:
        arrays = self._accept(inputs)
        values = doors.wanted(self.pipe)
        binding = self.prepare({name: doors.logical_shape(values[name], array) for name, array in arrays.items()})
        results = self._outputs(binding, out, arrays)
        self._check_slots(arrays, results)
        with self._state_lock:  # the buffers of a graph serve one run at a time
            kept = self.state if state is None else state
            graph, memory = self._memory(binding)
            given = {**arrays, **self._states(binding, kept)}
            for n, buffer in enumerate(graph.buffers):
                if buffer.kind in ("input", "argument", "state"):
                    memory.view(n, given[buffer.name].shape, given[buffer.name].dtype)[...] = given[buffer.name]
            written = {b.name for b in graph.buffers if b.kind not in ("own", "output")}
            hosted = {node.step.name for node in graph if node.on_host}
            written |= {v.name for step in self.order if step.name not in hosted for v in step.outputs.values()}
            self.device.run(
                graph, memory, lambda node, m: self._on_host(node, m, binding, graph, arrays, written), times
            )
            for node in graph:
                if node.status >= 0:
                    raise_status(node.step.name, node.kernel, memory.status(node.status))
            self._all_written(written)
            for name, value in self.pipe.outputs.items():
                np.copyto(results[name], self._held(value, binding, graph, memory))
            kept.update(
                {n: self._held(v, binding, graph, memory).copy() for n, v in self.pipe.of_kind("state").items()}
            )
            kept.update({n: self._held(v, binding, graph, memory).copy() for n, v in self.pipe.updates.items()})
        return results

    def _held(self, value: Value, binding: _Binding, graph: Graph, memory: Any) -> Array:
        """What a value holds on the device, as the host sees it."""
        assert value.dtype is not None
        shape = doors.stored_shape(value.dtype, binding.shapes[value.name])
        if value.name in binding.offsets and not graph.has(value.name):
            start, nbytes = binding.offsets[value.name], binding.requests[value.name][0]
            return (
                memory.view(0, (binding.peak,), np.uint8)[start : start + nbytes].view(value.dtype.numpy).reshape(shape)
            )
        return memory.view(graph.position(value.name), shape, value.dtype.numpy)

    def _all_written(self, written: set[str]) -> None:
        """Raise UnwrittenRead where a result was never asked for by the step of the host that writes it."""
        for what, values in (("output", self.pipe.outputs), ("the update of state", self.pipe.updates)):
            for name, value in values.items():
                if value.producer is not None and value.name not in written:
                    step, slot = value.producer
                    raise UnwrittenRead(f"{what} {name!r}: step {step.name!r} never wrote its slot {slot!r}")

    def _on_host(
        self,
        node: Node,
        memory: Any,
        binding: _Binding,
        graph: Graph,
        arrays: Mapping[str, Any],
        written: set[str],
    ) -> None:
        """Run a step that CUDA has no kernel for on the CPU, over the same memory; note what it writes."""
        step = node.step

        def sweep(kernel: Any, operands: tuple[Any, ...]) -> None:
            present = tuple(o for o in operands if o is not None)
            _, implementation = choose(kernel, "cpu", facts_of(kernel, present))
            status = run_whole(implementation, present, extents(kernel, step.sizes, binding.env), ())
            raise_status(step.name, kernel, status)

        ctx = ExecContext(sweep)
        slots = {}
        for slot, value in {**step.inputs, **step.outputs}.items():
            handle = slots[slot] = self.handles[value.name]
            held = arrays[value.name] if value.dtype is None else self._held(value, binding, graph, memory)
            ctx.bind(handle, held, written=value.name in written or value.dtype is None)
        with named(step), ctx.entered(step.name, step.kernel, step.specs, slots):
            step.kernel.execute(ctx)
        written |= {v.name for v in step.outputs.values() if ctx.is_written(self.handles[v.name])}

    def export(
        self,
        folder: str | os.PathLike[str],
        shapes: Mapping[str, tuple[int, ...]] | None = None,
        *,
        name: str | None = None,
        cc: tuple[int, int] = (8, 0),
    ) -> Path:
        """Write the plan as PTX, constants, and a list of what to launch; see export.export."""
        from .export import export

        return export(self, folder, shapes, name=name, cc=cc)

    def explain(self) -> str:
        """The graph for every set of sizes that was asked for: nodes, grids, arguments, what each waits for."""
        lines = [repr(self)]
        for note in self.lowered.notes:
            became = ", ".join(note.became) or "a constant, computed when the plan was made"
            lines.append(f"  {' + '.join(note.steps)}: {became}" + (f" ({note.title})" if len(note.steps) > 1 else ""))
        for binding in self._bindings.values():
            graph = self._made(binding)[1]
            sizes = ", ".join(f"{k} = {v}" for k, v in binding.env.items()) or "fixed sizes"
            host = [node.name for node in graph if node.on_host]
            lines.append(
                f"at {sizes}: {len(graph.nodes)} nodes, up to {graph.branches()} at once; arena of {binding.peak} bytes"
                + (f"; on the host, for want of a CUDA kernel: {', '.join(host)}" if host else "")
            )
            lines += graph.table()
        return "\n".join(lines)


__all__ = ["CudaPlan"]
