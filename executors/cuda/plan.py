"""A pipeline made ready for CUDA: lowered, its graph made for each set of sizes, and run on a device or without one."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...primitives.context import ExecContext
from ...primitives.errors import AliasError, ArgumentError, UnwrittenRead
from ...primitives.pipeline import Pipeline, Value
from ...primitives.sizes import evaluate_shape, names
from .. import inputs as doors
from ..lowering import lower
from ..single_thread import _Binding
from ..tiles import choose, extents, facts_of, named, raise_status, run_whole
from ..tuned import Tiles
from .arrays import LEGACY, DeviceArray, Lent, check_output, handle_of, is_on_device, lend, overlap
from .assembling import AssemblingPlan
from .drawing import mermaid, svg
from .graph import OWN, Graph, Node
from .memory import Part, steps_of

if TYPE_CHECKING:
    from .executor import CudaExecutor

Array = np.ndarray[Any, Any]
DEVICE = "device"


class CudaPlan(AssemblingPlan):
    """A pipeline as CUDA graphs, one for each set of sizes.

    It may be shared by threads: each run has memory and CUDA graphs of its own, which are kept for later runs.
    `close()`, the end of a `with` block or the last reference gives them back.
    """

    def __init__(self, pipe: Pipeline, executor: CudaExecutor) -> None:
        pipe.validate()
        self.tiles = Tiles(executor.tile, machine=executor.machine if executor.tuned else "")
        self.lowered = lower(pipe, "cuda", executor.fuse, tiles=self.tiles, fold_on="cpu")
        super().__init__(self.lowered.pipe, executor)
        self.source = pipe
        self.device = executor.runner
        self._graphs: dict[int, tuple[_Binding, Graph, Any]] = {}
        self._weights: dict[str, Any] = {}
        self._closed = False

    def __repr__(self) -> str:
        return f"<plan of {self.pipe.name!r} on {self.executor!r}: {len(self.order)} steps>"

    def __enter__(self) -> CudaPlan:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give back its memory and CUDA graphs; arrays that runs have returned stay."""
        with self._lock:
            self._closed = True
            loaded = [kept for _, _, kept in self._graphs.values() if kept is not None]
            self._graphs.clear()
            self._weights = {}
        for one in loaded:
            one.close()

    # The graph ---------------------------------------------------------------------------------------------------

    def graph(self, shapes: Mapping[str, tuple[int, ...]]) -> Graph:
        """The graph for these input shapes, as data; no device is asked."""
        return self._made(self.prepare(shapes))

    def _made(self, binding: _Binding) -> Graph:
        with self._lock:
            found = self._graphs.get(id(binding))
            if found is None:
                found = self._graphs[id(binding)] = (binding, self._assemble(binding), None)
                alive = {id(b) for b in self._bindings.values()} | {id(binding)}
                self._graphs = {key: kept for key, kept in self._graphs.items() if key in alive}
        return found[1]

    def _loaded(self, binding: _Binding) -> Any:
        """The graph on the device; constants are sent, and what follows from them computed, once."""
        with self._lock:
            if self._closed:
                raise ArgumentError("this plan was closed; compile the pipeline again")
            graph = self._made(binding)
            loaded = self._graphs[id(binding)][2]
            if loaded is None:

                def complain(memory: Any) -> None:
                    for node in graph:
                        if node.status >= 0:
                            raise_status(node.step.name, node.kernel, memory.status(node.status))

                loaded = self.device.load(graph, self._weights, complain)
                self._graphs[id(binding)] = (binding, graph, loaded)
        return loaded

    def launches(self, shapes: Mapping[str, tuple[int, ...]]) -> Callable[[], None]:
        """A call that launches the graph for these sizes on what the device's memory holds, and waits for nothing.

        For whoever times kernels: a run before it has sent the inputs. Only where the device has a stream.
        """
        loaded, driver = self._loaded(self.prepare(shapes)), self.device
        with driver.entered():
            memory = loaded.take({}, driver.stream)  # for good: what it holds must stay
        parts = [part for part in memory.parts if isinstance(part, Part)]

        def launch() -> None:
            for part in parts:
                driver.launch(part, memory.stream)

        return launch

    # Running -----------------------------------------------------------------------------------------------------

    def run(
        self,
        inputs: Mapping[str, Any] | None = None,
        out: Mapping[str, Any] | str | None = None,
        state: dict[str, Array] | None = None,
        *,
        stream: Any = None,
    ) -> dict[str, Any]:
        """Run once and return {output: array}: fresh arrays, or the caller's where `out` has them.

        inputs  arrays of the host, or of the device (DLPack, `__cuda_array_interface__`): contiguous, and used where
                they are
        out     {output: array of the host or the device}; "device" instead of an array, or of all of `out`, returns a
                `DeviceArray`, which other libraries take without a copy
        state   {state: array} to start from and to leave the new states in; without it, the plan's own
        stream  a CUDA stream (a handle, torch's, CuPy's, or what has `__cuda_stream__`) on which everything happens. Then,
                where every output is on the device and there are no states, the call does not wait: what a step
                complains of is raised by `synchronize()` or a later run. Without it the run has a stream of its own, and
                the call returns when all is done

        Raises what the doors find (wrong names, types, shapes, overlap, another device), KernelFailed naming the step,
        OutOfDeviceMemory, or DeviceLost, after which nothing runs on the device any more. Nothing is written to a state
        unless every step went well.
        """
        given = doors.as_mapping({} if inputs is None else inputs, "inputs")
        return self._run(given, out or {}, state, None, stream)

    def bind(
        self,
        inputs: Mapping[str, Any] | None = None,
        out: Mapping[str, Any] | None = None,
        *,
        stream: Any = None,
    ) -> Callable[[], dict[str, Any]]:
        """Check inputs and outputs once; the callable runs on them again and again, reading what they hold then."""
        given = dict(doors.as_mapping({} if inputs is None else inputs, "inputs"))
        arrays = self._taken(given, LEGACY if stream is None else handle_of(stream))
        results, _ = self._targets(self._bound(arrays), out or {}, arrays, LEGACY)
        self._check_slots(arrays, {n: a for n, a in results.items() if isinstance(a, np.ndarray)})
        kept = {name: given[name] if isinstance(array, Lent) else array for name, array in arrays.items()}
        return lambda: self._run(kept, results, None, None, stream)

    def synchronize(self) -> None:
        """Wait for every run that did not wait itself; raises what the first of them complains of."""
        with self.device.entered():
            for _, _, loaded in list(self._graphs.values()):
                if loaded is not None:
                    loaded.synchronize()

    def _run(
        self,
        inputs: Mapping[str, Any],
        out: Mapping[str, Any] | str,
        state: dict[str, Array] | None,
        times: dict[str, float] | None,
        stream: Any = None,
    ) -> dict[str, Any]:
        self.device.check()
        handle = None if stream is None else self._handle(stream)
        meeting = self._meeting(handle)
        arrays = self._taken(inputs, meeting)
        binding = self._bound(arrays)
        results, targets = self._targets(binding, out, arrays, meeting)
        self._check_slots(arrays, {n: a for n, a in results.items() if isinstance(a, np.ndarray)})
        stateful = bool(self.pipe.of_kind("state") or self.pipe.updates)
        on_host = [name for name in self.pipe.outputs if name not in targets]
        with self._state_lock if state is None and stateful else nullcontext():
            kept = self.state if state is None else state
            loaded = self._loaded(binding)
            graph = loaded.graph
            bound = self._borrowed(graph, targets)
            lent = {graph.position(name): a for name, a in arrays.items() if isinstance(a, Lent) and a.nbytes}
            lent |= {position: targets[name] for position, name in bound.items()}
            contents = {**arrays, **self._states(binding, kept)}
            written = self._written(graph)
            with self.device.entered():
                memory = loaded.take({n: a.address for n, a in lent.items()}, handle)
                try:
                    for n, buffer in enumerate(graph.buffers):
                        if buffer.kind in ("input", "argument", "state") and n not in lent:
                            content = contents[buffer.name]
                            if not isinstance(content, Lent):
                                memory.fill(n, content)
                    for one in (*lent.values(), *targets.values()):
                        if one.stream is not None:
                            memory.after(one.stream)
                    self.device.run(
                        graph, memory, lambda node, m: self._on_host(node, m, binding, graph, arrays, written), times
                    )
                    self._all_written(written)
                    for name, target in targets.items():
                        if name not in bound.values():
                            memory.copy(graph.position(self.pipe.outputs[name].name), target.address, target.nbytes)
                    wanted = {graph.position(self.pipe.outputs[name].name) for name in on_host}
                    wanted |= {graph.position(name) for name in self.pipe.of_kind("state")}
                    wanted |= {graph.position(value.name) for value in self.pipe.updates.values()}
                    if graph.may_complain:
                        wanted.add(OWN - 1)
                    memory.download(wanted)
                    if handle is not None and not on_host and not stateful:
                        memory.leave([*lent.values(), *targets.values()])
                        for target in targets.values():
                            if isinstance(target.given, DeviceArray):
                                target.given.stream = handle
                        return results
                    memory.finish(steps_of(graph.nodes) if graph.nodes else "a plan without steps")
                    loaded.complain(memory)
                    for name in on_host:
                        np.copyto(results[name], self._held(self.pipe.outputs[name], binding, graph, memory))
                    news = {n: v for n, v in (*self.pipe.of_kind("state").items(), *self.pipe.updates.items())}
                    kept.update({n: self._held(v, binding, graph, memory).copy() for n, v in news.items()})
                except BaseException:
                    memory.abandon()
                    raise
                finally:
                    loaded.give(memory)
        return results

    # Its doors -------------------------------------------------------------------------------------------------------

    def _handle(self, stream: Any) -> int:
        if self._context is None:
            raise ArgumentError(f"stream={stream!r} with {self.executor!r}: only a device has streams")
        return handle_of(stream)

    @property
    def _context(self) -> Any:
        """The device's context; None for the interpreter."""
        return getattr(self.device, "context", None)

    def _meeting(self, handle: int | None) -> int:
        """The stream on which other libraries' work must be there: the run's, or one that the run then waits for."""
        if handle is not None:
            return handle
        return LEGACY if self._context is None else int(self.device.stream)

    def _accept(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        return self._taken(inputs, self._meeting(None))

    def _taken(self, inputs: Mapping[str, Any], stream: int) -> dict[str, Any]:
        """What was given, checked: arrays of the host, and memory of the device as it is lent."""
        values = doors.wanted(self.pipe)
        doors.check_names(inputs.keys(), values, "input")
        found: dict[str, Any] = {}
        for name, given in inputs.items():
            value = values[name]
            if value.dtype is not None and self._context is not None and is_on_device(given):
                with self.device.entered():
                    found[name] = lend(given, value, f"{value.kind} {name!r}", self._context, stream)
            else:
                found[name] = doors.as_array(value, given)
        return found

    def _bound(self, arrays: Mapping[str, Any]) -> _Binding:
        values = doors.wanted(self.pipe)
        return self.prepare({name: doors.logical_shape(values[name], array) for name, array in arrays.items()})

    def _targets(
        self, binding: _Binding, out: Mapping[str, Any] | str, arrays: Mapping[str, Any], stream: int
    ) -> tuple[dict[str, Any], dict[str, Lent]]:
        """What a run returns for every output, and where those on the device go."""
        outputs = self.pipe.outputs
        if isinstance(out, str):
            out = dict.fromkeys(outputs, out)
        doors.check_outputs(doors.as_mapping(out, "out"), outputs)
        results: dict[str, Any] = {}
        targets: dict[str, Lent] = {}
        for name, value in outputs.items():
            assert value.dtype is not None
            shape, where, asked = binding.shapes[value.name], f"out[{name!r}]", out.get(name)
            if isinstance(asked, str) and asked != DEVICE:
                raise ArgumentError(f"{where} is {asked!r}; an array is needed, or {DEVICE!r}")
            if isinstance(asked, str) or (asked is not None and is_on_device(asked)):
                if self._context is None:
                    raise ArgumentError(f"{where} is on a device, but {self.executor!r} runs on the host")
                given = DeviceArray(self._context, name, value.dtype, shape) if isinstance(asked, str) else asked
                with self.device.entered():
                    target = lend(given, value, where, self._context, stream)
                check_output(target, value, where, shape)
                self._check_apart(name, target, arrays, targets)
                results[name], targets[name] = given, target
            elif name in out:
                given = (doors.arrays_of({name: asked}) or {})[name]
                results[name] = doors.check_output(name, value, given, shape, arrays, results, self._in_place[name])
            else:
                results[name] = self._fresh(value, shape)
        return results, targets

    def _check_apart(self, name: str, target: Lent, arrays: Mapping[str, Any], others: Mapping[str, Lent]) -> None:
        """Raise AliasError where an output on the device lies on an input, but for one that it may take over."""
        for kind, lent in (("input", arrays), ("output", others)):
            for other, given in lent.items():
                if not isinstance(given, Lent) or not overlap(target, given):
                    continue
                same = (given.address, given.shape, given.dtype) == (target.address, target.shape, target.dtype)
                if not (kind == "input" and other in self._in_place[name] and same):
                    raise AliasError(f"out[{name!r}] overlaps {kind} {other!r}; give the output memory of its own")

    def _borrowed(self, graph: Graph, targets: Mapping[str, Lent]) -> dict[int, str]:
        """{buffer: output} where the buffer of an output is the caller's memory; other outputs on the device are copied."""
        found: dict[int, str] = {}
        for name, target in targets.items():
            position = graph.position(self.pipe.outputs[name].name)
            if graph.buffers[position].kind == "output" and position not in found and target.nbytes:
                found[position] = name
        return found

    # What a run holds ------------------------------------------------------------------------------------------------

    def _written(self, graph: Graph) -> set[str]:
        """The values that are there whatever steps of the host do."""
        hosted = {node.step.name for node in graph if node.on_host}
        found = {b.name for b in graph.buffers if b.kind not in ("own", "output")}
        return found | {v.name for step in self.order if step.name not in hosted for v in step.outputs.values()}

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

    # Seeing it ---------------------------------------------------------------------------------------------------

    def explain(self) -> str:
        """The graph for every set of sizes that was asked for: nodes, grids, arguments, what each waits for."""
        lines = [repr(self)]
        for note in self.lowered.notes:
            became = ", ".join(note.became) or "a constant, computed when the plan was made"
            lines.append(f"  {' + '.join(note.steps)}: {became}" + (f" ({note.title})" if len(note.steps) > 1 else ""))
        for binding in list(self._bindings.values()):
            graph = self._made(binding)
            sizes = ", ".join(f"{k} = {v}" for k, v in binding.env.items()) or "fixed sizes"
            host = [node.name for node in graph if node.on_host]
            lines.append(
                f"at {sizes}: {len(graph.nodes)} nodes, up to {graph.branches()} at once; arena of {binding.peak} bytes"
                + (f"; on the host, for want of a CUDA kernel: {', '.join(host)}" if host else "")
            )
            lines += graph.table()
        return "\n".join(lines)

    def mermaid(self, shapes: Mapping[str, tuple[int, ...]] | None = None) -> str:
        """The CUDA graph as Mermaid text: nodes with their grids, what waits for what, steps of the host apart.

        shapes  {input: shape} whose graph to draw; without it, the sizes that were asked for last
        """
        return mermaid(self._drawn(shapes))

    def svg(self, shapes: Mapping[str, tuple[int, ...]] | None = None) -> str:
        """The same as an SVG picture."""
        return svg(self._drawn(shapes), self.source.name)

    def _drawn(self, shapes: Mapping[str, tuple[int, ...]] | None) -> Graph:
        if shapes is not None:
            return self.graph({name: tuple(shape) for name, shape in shapes.items()})
        if self._bindings:
            return self._made(next(reversed(self._bindings.values())))
        values = doors.wanted(self.pipe)
        unknown = {n for v in values.values() for size in v.shape for n in names(size)}
        if unknown:
            raise ArgumentError(
                f"a CUDA graph has sizes, and {', '.join(sorted(unknown))} are known only at run time; "
                f"give shapes={{input: shape}}, or compile(pipe, shapes)"
            )
        fixed = {n: evaluate_shape(v.shape, {}, n) if v.dtype is not None else () for n, v in values.items()}
        return self.graph(fixed)


__all__ = ["CudaPlan"]
