"""One kernel after another on one thread, with no cleverness: the baseline to debug with and to compare against."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..primitives.arena import Arena, BufferId, plan_offsets
from ..primitives.context import ExecContext
from ..primitives.errors import ArgumentError, UnwrittenRead
from ..primitives.memory import aligned_bytes
from ..primitives.pipeline import Pipeline, Step, Value
from ..primitives.sizes import show
from . import inputs as doors
from .locks import Lock
from .profile import Profile, StepProfile
from .tiles import choose, extents, facts_of, named, raise_status, run_whole

Array = np.ndarray[Any, Any]
POOL = 16  # run contexts and bindings that a plan keeps for later runs


class SingleThreadExecutor:
    """Runs a pipeline in topological order on the calling thread.

    backend   whose implementations to take from the factory: "cpu", "reference", or a third party's name
    variant   one named variant of each kernel instead of the best
    debug     guard bytes around everything that is written, and poison in what is not written yet or freed: a kernel
              that writes outside its buffer is named (GuardViolation)
    """

    backend = "cpu"

    def __init__(self, backend: str | None = None, *, variant: str | None = None, debug: bool = False) -> None:
        if backend is not None:
            self.backend = backend
        self.variant = variant
        self.debug = debug

    def __repr__(self) -> str:
        return f"{type(self).__name__}(backend={self.backend!r})"

    def compile(self, pipe: Pipeline, shapes: Mapping[str, tuple[int, ...]] | None = None) -> SingleThreadPlan:
        """A plan, which runs many times. `shapes` ({input: shape}) checks the sizes now instead of at the first run."""
        plan = SingleThreadPlan(pipe, self)
        if shapes is not None:
            for name in shapes:
                if name not in doors.wanted(pipe):
                    raise ArgumentError(
                        f"there is no input {name!r}; there is {', '.join(doors.wanted(pipe)) or 'none'}"
                    )
            plan.prepare({name: tuple(shape) for name, shape in shapes.items()})
        return plan

    def run(
        self, pipe: Pipeline, inputs: Mapping[str, Any] | None = None, out: Mapping[str, Array] | None = None
    ) -> dict[str, Array]:
        """Compile and run once: {output: array}. States start anew; keep a plan to keep them."""
        given = doors.as_mapping({} if inputs is None else inputs, "inputs")
        return self.compile(pipe.for_inputs(given)).run(inputs, out=out)


@dataclass(frozen=True)
class _Binding:
    """A plan at given sizes: shapes in numbers, and where each intermediate lies in the arena."""

    env: dict[str, int]
    shapes: dict[str, tuple[int, ...]]
    requests: dict[str, tuple[int, int, int]]  # value name: bytes, first step, last step
    offsets: dict[str, int]
    peak: int


class SingleThreadPlan:
    """A pipeline made ready to run. It may be shared by threads; each run has memory of its own."""

    def __init__(self, pipe: Pipeline, executor: SingleThreadExecutor) -> None:
        pipe.validate()
        self.pipe = pipe
        self.executor = executor
        self.order = pipe.order()
        self.values = {v.name: v for v in [*pipe.values.values(), *(v for s in self.order for v in s.outputs.values())]}
        self.handles = {name: BufferId(n) for n, name in enumerate(self.values)}
        self.state: dict[str, Array] = {}
        self._state_lock = Lock()
        self._implementations: dict[tuple[Any, ...], tuple[Any, Any]] = {}
        self._bindings: OrderedDict[tuple[Any, ...], _Binding] = OrderedDict()
        self._arenas: list[Array] = []
        self._lock = Lock()
        self._proven: set[tuple[str, Any]] = set()
        self._in_place = doors.in_place_inputs(pipe)
        self._aligns = doors.alignments(self.order)
        self._asked = doors.asked_slots(self.order)
        self._constants = {
            name: doors.suited(value, self.order, self._aligns.get(name, 1))
            for name, value in self.values.items()
            if value.kind == "constant"
        }

    def __repr__(self) -> str:
        return f"<plan of {self.pipe.name!r} on {self.executor!r}: {len(self.order)} steps>"

    # Running -----------------------------------------------------------------------------------------------------

    def run(
        self,
        inputs: Mapping[str, Any] | None = None,
        out: Mapping[str, Any] | None = None,
        state: dict[str, Array] | None = None,
    ) -> dict[str, Array]:
        """Run once and return {output: array}: fresh arrays, or the caller's where `out` has them.

        state   {state: array} to start from and to leave the new states in; without it, the plan's own

        Raises what the doors find (wrong names, types, shapes, overlap), or KernelFailed naming the step. Nothing is
        written to a state unless every step went well.
        """
        return self._run(doors.as_mapping({} if inputs is None else inputs, "inputs"), out or {}, state, None)

    def bind(
        self, inputs: Mapping[str, Any] | None = None, out: Mapping[str, Any] | None = None
    ) -> Callable[[], dict[str, Array]]:
        """Check inputs and outputs once; the callable runs on them again and again, reading what they hold then."""
        arrays = self._accept(doors.as_mapping({} if inputs is None else inputs, "inputs"))
        binding = self.prepare({n: doors.logical_shape(doors.wanted(self.pipe)[n], a) for n, a in arrays.items()})
        given = self._outputs(binding, out or {}, arrays)
        self._check_slots(arrays, given)
        return lambda: self._run(arrays, given, None, None)

    def profile(self, inputs: Mapping[str, Any] | None = None, repeat: int = 5) -> Profile:
        """Time per kernel, bytes moved, and the share of the run spent outside kernels (medians over `repeat` runs)."""
        given = doors.as_mapping({} if inputs is None else inputs, "inputs")
        self._run(given, {}, {k: v.copy() for k, v in self.state.items()}, None)
        runs: list[tuple[float, dict[str, float]]] = []
        for _ in range(max(1, repeat)):
            times: dict[str, float] = {}
            start = time.perf_counter()
            self._run(given, {}, {k: v.copy() for k, v in self.state.items()}, times)
            runs.append((time.perf_counter() - start, times))
        shapes = {n: doors.logical_shape(doors.wanted(self.pipe)[n], a) for n, a in self._accept(given).items()}
        binding = self.prepare(shapes)
        steps = []
        for step in self.order:
            moved = sum(self._nbytes(v, binding.shapes) for v in [*step.inputs.values(), *step.outputs.values()])
            median = float(np.median([times[step.name] for _, times in runs]))
            steps.append(StepProfile(step.name, step.kernel.name, median, moved))
        return Profile(self.pipe.name, float(np.median([total for total, _ in runs])), tuple(steps), len(runs))

    def explain(self) -> str:
        """Which implementation runs each step, in order; steps that a reference or a Python kernel runs are marked."""
        lines = [f"{self!r}", f"  {'step':28} {'implementation':32} writes"]
        chosen = {key[0]: found for key, found in self._implementations.items()}
        for step in self.order:
            found = chosen.get(step.name)
            if found is not None:
                variant, _built = found
                how = f"{variant.name}/{variant.variant} on {variant.backend}"
                if variant.backend == "reference":
                    how += " (reference)"
            elif getattr(step.kernel, "index_space", None) is None:
                how = "Python kernel"
            else:
                how = f"chosen at the first run, on {self.executor.backend}"
            written = ", ".join(f"{v.name}: {v.dtype} {show(v.shape)}" for v in step.outputs.values())
            lines.append(f"  {step.name:28} {how:32} {written}")
        for binding in self._bindings.values():
            largest = sum(nbytes for nbytes, _, _ in binding.requests.values())
            sizes = ", ".join(f"{k} = {v}" for k, v in binding.env.items()) or "fixed sizes"
            lines.append(f"  at {sizes}: arena of {binding.peak} bytes for {largest} bytes of intermediates")
        return "\n".join(lines)

    # Sizes and memory --------------------------------------------------------------------------------------------

    def prepare(self, shapes: Mapping[str, tuple[int, ...]]) -> _Binding:
        """The binding for these input shapes, made once and kept."""
        key = tuple(sorted(shapes.items()))
        with self._lock:
            if key in self._bindings:
                self._bindings.move_to_end(key)
                return self._bindings[key]
        env = doors.learn_sizes(self.pipe, shapes)
        binding = self._place(env)
        with self._lock:
            binding = self._bindings.setdefault(key, binding)  # another thread may have made it meanwhile
            while len(self._bindings) > POOL:
                self._bindings.popitem(last=False)
        return binding

    def _place(self, env: dict[str, int]) -> _Binding:
        shapes = doors.value_shapes(self.pipe, env)
        doors.prove_sums(self.order, shapes, self._proven)
        results = {id(v) for v in self.pipe.outputs.values()}
        last: dict[str, int] = {}
        for n, step in enumerate(self.order):
            for value in [*step.inputs.values(), *step.outputs.values()]:
                last[value.name] = n
        for value in self.pipe.updates.values():
            last[value.name] = len(self.order)
        requests = {}
        for n, step in enumerate(self.order):
            for value in step.outputs.values():
                if value.kind != "state" and id(value) not in results:
                    requests[value.name] = (self._nbytes(value, shapes), n, last[value.name])
        offsets, peak = plan_offsets([(*request, self._align_of(name)) for name, request in requests.items()])
        return _Binding(env, shapes, requests, dict(zip(requests, offsets, strict=False)), peak)

    def _align_of(self, name: str) -> int:
        return max(64, self._aligns.get(name, 1))

    @staticmethod
    def _nbytes(value: Value, shapes: Mapping[str, tuple[int, ...]]) -> int:
        if value.dtype is None:
            return 0
        count = 1
        for n in doors.stored_shape(value.dtype, shapes[value.name]):
            count *= n
        return count * value.dtype.numpy.itemsize

    def _accept(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        values = doors.wanted(self.pipe)
        doors.check_names(inputs.keys(), values, "input")
        return {name: doors.as_array(values[name], given) for name, given in inputs.items()}

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
        own_state = state is None
        with self._state_lock if own_state and self.pipe.of_kind("state") else _NOTHING:
            states = self._states(binding, self.state if state is None else state)
            memory = _Memory(self, binding, arrays, results, states)
            try:
                ctx = ExecContext(lambda kernel, operands: self._sweep(kernel, operands, memory))
                memory.bind_all(ctx)
                for n, step in enumerate(self.order):
                    start = time.perf_counter()
                    self._execute(n, step, ctx, memory)
                    if times is not None:
                        times[step.name] = time.perf_counter() - start
                self._check_written(ctx)
                for name, value in self.pipe.outputs.items():
                    found = ctx.array(self.handles[value.name])
                    if results[name] is not found:
                        np.copyto(results[name], found)
                target = self.state if state is None else state
                updated = {name: ctx.array(self.handles[v.name]).copy() for name, v in self.pipe.updates.items()}
                target.update(
                    {**{name: array.copy() if memory.guarded else array for name, array in states.items()}, **updated}
                )
            finally:
                memory.release()
        return results

    def _outputs(self, binding: _Binding, out: Mapping[str, Any], arrays: Mapping[str, Any]) -> dict[str, Array]:
        doors.check_outputs(out, self.pipe.outputs)
        out = doors.arrays_of(out) or {}
        results: dict[str, Array] = {}
        for name, value in self.pipe.outputs.items():
            assert value.dtype is not None
            shape = binding.shapes[value.name]
            if name in out:
                results[name] = doors.check_output(name, value, out[name], shape, arrays, results, self._in_place[name])
            else:
                results[name] = self._fresh(value, shape)
        return results

    def _fresh(self, value: Value, shape: tuple[int, ...]) -> Array:
        """Memory of its own for a value, as aligned as its steps need it."""
        assert value.dtype is not None
        return doors.fresh(doors.stored_shape(value.dtype, shape), value.dtype, self._aligns.get(value.name, 1))

    def _check_slots(self, arrays: Mapping[str, Any], results: Mapping[str, Array]) -> None:
        written = {self.pipe.outputs[name].name: results[name] for name in reversed(list(results))}
        doors.check_slots(self._asked, {**arrays, **written})

    def _check_written(self, ctx: ExecContext) -> None:
        """Raise UnwrittenRead where a result was never asked for by the step that writes it."""
        for what, values in (("output", self.pipe.outputs), ("the update of state", self.pipe.updates)):
            for name, value in values.items():
                if value.producer is not None and not ctx.is_written(self.handles[value.name]):
                    step, slot = value.producer
                    raise UnwrittenRead(f"{what} {name!r}: step {step.name!r} never wrote its slot {slot!r}")

    def _states(self, binding: _Binding, kept: Mapping[str, Array]) -> dict[str, Array]:
        """A working copy of every state, so that a run that fails changes none."""
        states = {}
        for name, value in self.pipe.of_kind("state").items():
            states[name] = self._fresh(value, binding.shapes[name])
            states[name][...] = doors.state_content(name, value, kept, states[name].shape)
        return states

    # Steps -------------------------------------------------------------------------------------------------------

    def _execute(self, n: int, step: Step, ctx: ExecContext, memory: _Memory) -> None:
        slots = {slot: self.handles[v.name] for slot, v in {**step.inputs, **step.outputs}.items()}
        memory.step = step
        memory.before(step)
        with named(step), ctx.entered(step.name, step.kernel, step.specs, slots):
            step.kernel.execute(ctx)
        memory.after(step, n)

    def _sweep(self, kernel: Any, operands: tuple[Any, ...], memory: _Memory) -> None:
        step = memory.step
        present = tuple(o for o in operands if o is not None)
        facts = facts_of(kernel, present)
        key = (step.name, kernel.name, _same(kernel), facts["dtypes"], facts["ranks"])
        if key not in self._implementations:
            self._implementations[key] = choose(kernel, self.executor.backend, facts, self.executor.variant)
        variant, implementation = self._implementations[key]
        ranges = extents(kernel, step.sizes, memory.binding.env)
        status = run_whole(implementation, present, ranges, variant.params({}))
        raise_status(step.name, kernel, status)


class _Memory:
    """The memory of one run: where every value's array is, and in debug mode the guards around it."""

    def __init__(
        self,
        plan: SingleThreadPlan,
        binding: _Binding,
        inputs: Mapping[str, Any],
        outputs: Mapping[str, Array],
        states: dict[str, Array],
    ) -> None:
        self.plan = plan
        self.binding = binding
        self.inputs = inputs
        self.outputs = outputs
        self.states = states
        self.step: Step = plan.order[0] if plan.order else None  # type: ignore[assignment]
        self.guarded: Arena | None = None
        self.handles: dict[str, BufferId] = {}
        self.last: dict[str, int] = {}
        self.block = self._take()

    def _take(self) -> Array:
        with self.plan._lock:
            for n, block in enumerate(self.plan._arenas):
                if block.size >= self.binding.peak:
                    return self.plan._arenas.pop(n)
        return aligned_bytes(self.binding.peak, max(map(self.plan._align_of, self.binding.requests), default=64))

    def release(self) -> None:
        """Give the arena back to the plan's pool."""
        with self.plan._lock:
            if len(self.plan._arenas) < POOL:
                self.plan._arenas.append(self.block)

    def bind_all(self, ctx: ExecContext) -> None:
        plan = self.plan
        placed = {id(v): self.outputs[n] for n, v in reversed(plan.pipe.outputs.items())}
        if plan.executor.debug:
            self._guard()
        for name, value in plan.values.items():
            handle = plan.handles[name]
            if name in self.inputs:
                ctx.bind(handle, self.inputs[name], written=True)
            elif value.kind == "constant":
                ctx.bind(handle, plan._constants[name], written=True)
            elif name in self.handles:
                ctx.bind(handle, self._guarded_array(value), written=value.kind == "state")
            elif value.kind == "state":
                ctx.bind(handle, self.states[name], written=True)
            elif id(value) in placed:
                ctx.bind(handle, placed[id(value)])
            elif name in self.binding.offsets:
                assert value.dtype is not None
                start, nbytes = self.binding.offsets[name], self.binding.requests[name][0]
                shape = doors.stored_shape(value.dtype, self.binding.shapes[name])
                ctx.bind(handle, self.block[start : start + nbytes].view(value.dtype.numpy).reshape(shape))

    def _guard(self) -> None:
        """Put everything that a step writes, outputs and states too, between guard bytes."""
        plan, end = self.plan, len(self.plan.order)
        requests = dict(self.binding.requests)
        for name, value in plan.values.items():
            if value.kind == "state":
                requests[name] = (self.states[name].nbytes, -1, end)
            elif any(value is v for v in plan.pipe.outputs.values()) and value.producer is not None:
                requests[name] = (plan._nbytes(value, self.binding.shapes), plan.order.index(value.producer[0]), end)
        self.last = {name: last for name, (_, _, last) in requests.items()}
        self.guarded = Arena([(*request, plan._align_of(name), name) for name, request in requests.items()], debug=True)
        self.handles = {name: BufferId(n) for n, name in enumerate(requests)}

    def _guarded_array(self, value: Value) -> Array:
        assert self.guarded is not None
        assert value.dtype is not None
        handle = self.handles[value.name]
        shape = doors.stored_shape(value.dtype, self.binding.shapes[value.name])
        array = self.guarded.view(handle).view(value.dtype.numpy).reshape(shape)
        if value.kind == "state":
            self.guarded.begin(handle)
            array[...] = self.states[value.name]
            self.states[value.name] = array
        return array

    def before(self, step: Step) -> None:
        """In debug mode, poison what the step will write, so that an element it leaves out shows."""
        if self.guarded is not None:
            for value in step.outputs.values():
                if value.kind != "state":
                    self.guarded.begin(self.handles[value.name])

    def after(self, step: Step, n: int) -> None:
        """In debug mode, check the guards (whoever damaged one has just run), and poison what is no longer needed."""
        if self.guarded is not None:
            self.guarded.check_guards(step.name)
            for name, last in self.last.items():
                if last == n:
                    self.guarded.end(self.handles[name], step.name)


class _Nothing:
    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


_NOTHING = _Nothing()


def _same(kernel: Any) -> Any:
    """What tells kernels of one name apart: their fields where they can be compared, else the object."""
    try:
        hash(kernel)
    except TypeError:
        return id(kernel)
    return kernel
