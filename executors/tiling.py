"""The executor that sees the whole pipeline: it fuses, folds, lays everything out once, and runs tiles on threads."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from ..kernels.folding import folded
from ..primitives.context import ExecContext
from ..primitives.errors import ArgumentError, KernelFailed, PipelineError, TileworkError, UnwrittenRead
from ..primitives.pipeline import Pipeline, Step, Value
from . import inputs as doors
from . import threads
from .binding import Binder, Binding
from .launcher import DONE, OTHERWISE, Launcher, usable
from .lowering import Lowered, lower
from .profile import Profile
from .program import FIRST_EXTERNAL, Program, RunMemory
from .report import explain, profile
from .tiles import choose, extents, facts_of, raise_status, run_whole

Array = np.ndarray[Any, Any]

BINDINGS = 16  # sets of sizes that a plan keeps laid out
CONTEXTS = 16  # run contexts that a binding keeps for later runs


def default_threads() -> int:
    """TILEWORK_NUM_THREADS, or the processors this process may use."""
    given = os.environ.get("TILEWORK_NUM_THREADS")
    if given is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if not given.isdigit() or int(given) < 1:
        raise ArgumentError(f"TILEWORK_NUM_THREADS={given!r}: a positive integer is needed")
    return int(given)


class TilingExecutor:
    """Runs a pipeline as native code: fused, laid out once, tile by tile on several threads.

    threads   how many workers; None: TILEWORK_NUM_THREADS, or all processors
    backend   whose implementations to take
    fuse      whether element-wise steps may be compiled into the kernel before them
    chain     whether neighbouring steps may run tile by tile, so that what passes between them is a tile
    isa       an instruction set level instead of the best one present
    tile      {step: {axis: size}}: tiles of a fixed size, to see what they do. Axes of the step's index space say what
              one thread takes at a time; a GEMM also takes mr and nr (registers), mc and kc (cache blocks)

    numerics  "exact"; or "folded": two scales may become one, which changes some codes by one (`plan.difference` counts)

    Results are the same to the bit for every choice of these but numerics.
    """

    def __init__(
        self,
        threads: int | None = None,
        *,
        backend: str = "cpu",
        fuse: bool = True,
        chain: bool = True,
        isa: str | None = None,
        tile: Mapping[str, Mapping[str, int]] | None = None,
        numerics: str = "exact",
    ) -> None:
        if numerics not in ("exact", "folded"):
            raise ArgumentError(f"numerics={numerics!r}; 'exact' or 'folded'")
        if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int) or threads < 1):
            raise ArgumentError(f"threads={threads!r}; a positive integer is needed")
        self.threads = threads if threads is not None else default_threads()
        self.backend = backend
        self.fuse = fuse
        self.chain = chain
        self.isa = isa
        self.numerics = numerics
        self.tile = {step: dict(t) for step, t in (tile or {}).items()}

    def __repr__(self) -> str:
        more = "".join(
            f", {k}={v!r}" for k, v in (("backend", self.backend), ("isa", self.isa)) if v not in ("cpu", None)
        )
        return f"TilingExecutor(threads={self.threads}{more}{'' if self.fuse else ', fuse=False'})"

    def compile(self, pipe: Pipeline, shapes: Mapping[str, tuple[int, ...]] | None = None) -> TilingPlan:
        """A plan. Constants are folded and packed now; `shapes` also lays it out for these sizes now."""
        plan = TilingPlan(pipe, self)
        if shapes is not None:
            known = doors.wanted(pipe)
            for name in shapes:
                if name not in known:
                    raise ArgumentError(f"there is no input {name!r}; there is {', '.join(known) or 'none'}")
            plan.prepare({name: tuple(shape) for name, shape in shapes.items()})
        return plan

    def run(
        self, pipe: Pipeline, inputs: Mapping[str, Any] | None = None, out: Mapping[str, Any] | None = None
    ) -> dict[str, Array]:
        """Compile and run once: {output: array}. States start anew; keep a plan to keep them."""
        return self.compile(pipe).run(inputs or {}, out=out)


class TilingPlan:
    """A pipeline made ready. Immutable but for its states; threads may share it, and each run has its own memory."""

    def __init__(self, pipe: Pipeline, executor: TilingExecutor, tap: Iterable[str] = ()) -> None:
        pipe.validate()
        self.pipe = pipe
        self.executor = executor
        self.tap = tuple(tap)
        source, self.folded = folded(pipe) if executor.numerics == "folded" and not self.tap else (pipe, ())
        self.lowered: Lowered = lower(source, executor.backend, executor.fuse, tap, executor.tile, isa=executor.isa)
        for name in self.tap:
            if name in pipe.outputs:
                continue
            if name not in self.lowered.values:
                raise ArgumentError(f"there is no value {name!r} to tap; there is {', '.join(self.lowered.values)}")
            self.lowered.pipe.output(name, self.lowered.values[name])
        self.binder = Binder(
            self.lowered.pipe,
            executor.backend,
            executor.threads,
            {"isa": executor.isa},
            self._tiles(),
            executor.chain,
        )
        self.state: dict[str, Array] = {}
        self._wanted = doors.wanted(pipe)
        self._outputs = self.lowered.pipe.outputs
        self._in_place = doors.in_place_inputs(self.lowered.pipe)
        self._bindings: OrderedDict[Any, Bound] = OrderedDict()
        self._tapped: dict[tuple[str, ...], TilingPlan] = {}
        self._lock = threading.RLock()
        self._order = pipe.order()
        self._proven: set[tuple[str, Any]] = set()
        self._has_state = bool(pipe.of_kind("state"))
        self._fast: Bound | None = None

    def __repr__(self) -> str:
        return f"<plan of {self.pipe.name!r} on {self.executor!r}: {len(self.pipe.steps)} steps>"

    def _tiles(self) -> dict[str, dict[str, int]]:
        """tile= by the name of the step that runs: what was asked of a step holds for the last one that it became."""
        runs = {step.name: step.name for step in self.lowered.pipe.steps}
        runs |= {name: note.became[-1] for note in self.lowered.notes for name in note.steps if note.became}
        for name in self.executor.tile:
            if name not in runs:
                raise ArgumentError(f"tile= names step {name!r}; the plan has {', '.join(sorted(runs))}")
        return {runs[name]: tile for name, tile in self.executor.tile.items()}

    # Running -----------------------------------------------------------------------------------------------------

    def run(
        self,
        inputs: Mapping[str, Any] | None = None,
        out: Mapping[str, Any] | None = None,
        state: dict[str, Array] | None = None,
        tap: Iterable[str] = (),
    ) -> dict[str, Array]:
        """Run once and return {output: array}: fresh arrays, or the caller's where `out` has them.

        state   {state: array} to start from and to leave the new states in; without it, the plan's own
        tap     names of intermediate values to return as well; only what these cut is run unfused
        """
        tap = tuple(tap)
        if tap:
            with self._lock:
                if tap not in self._tapped:
                    self._tapped[tap] = TilingPlan(self.pipe, self.executor, tap)
            return self._tapped[tap].run(inputs, out, self.state if state is None else state)
        given = inputs or {}
        if self._fast is not None and state is None and not (self._fast.binding.parallel and threads.exclusive()):
            results = self._run_fast(given, out)
            if results is not None:
                return results
        doors.check_names(given, self._wanted, "input") if given.keys() != self._wanted.keys() else None
        out = doors.arrays_of(out)
        arrays = {name: doors.as_array(value, given[name]) for name, value in self._wanted.items()}
        if not self._has_state:
            bound = self.bound(arrays, out)
            self._fast = bound if bound.fast else None
            return bound.run(arrays, bound.outputs(out, arrays), {})
        with self._lock:
            kept = self.state if state is None else state
            bound = self.bound(arrays, out)
            states = bound.states(kept)
            results = bound.run(arrays, bound.outputs(out, arrays), states)
            kept.update(states)
            return results

    def _run_fast(self, given: Mapping[str, Any], out: Mapping[str, Any] | None) -> dict[str, Array] | None:
        """Run as the last time, if the arrays are as then; None where anything differs, and nothing has run."""
        bound = self._fast
        assert bound is not None
        wanted, outputs = self._wanted, self._outputs
        if len(given) != len(wanted) or (out is not None and not out.keys() <= outputs.keys()):
            return None
        try:
            arrays = [given[name] for name in wanted]
        except KeyError:
            return None
        results = {
            name: out[name] if out is not None and name in out else np.empty(bound._shapes[name], bound._types[name])
            for name in outputs
        }
        launcher = bound.launcher()
        status = launcher.call(*arrays, *results.values())
        if status:
            if status == OTHERWISE:
                bound.put_back(launcher)
                return None
            bound._finish(launcher)
        bound.put_back(launcher)
        return results

    def bind(
        self, inputs: Mapping[str, Any] | None = None, out: Mapping[str, Any] | None = None
    ) -> Callable[[], dict[str, Array]]:
        """Check inputs and outputs once; the callable then runs on them, reading what they hold at that time.

        The callable has memory of its own and is not to be called from two threads at once.
        """
        given = inputs or {}
        doors.check_names(given, self._wanted, "input")
        out = doors.arrays_of(out)
        arrays = {name: doors.as_array(value, given[name]) for name, value in self._wanted.items()}
        bound = self.bound(arrays, out)
        outputs = bound.outputs(out, arrays)
        if self._has_state or not bound.is_native:
            return lambda: self.run(arrays, outputs)
        return bound.call(arrays, outputs)

    def prepare(self, shapes: Mapping[str, tuple[int, ...]]) -> Binding:
        """Lay the plan out for these input shapes (contiguous arrays)."""
        arrays = {}
        for name, value in self._wanted.items():
            if value.dtype is None:
                continue
            if name not in shapes:
                if any(not isinstance(x, int) for x in value.shape):
                    raise ArgumentError(f"shapes= lacks {name!r}, whose size is not fixed: {value!r}")
                shape = tuple(int(x) for x in value.shape)
            else:
                shape = doors.stored_shape(value.dtype, shapes[name])
            arrays[name] = np.broadcast_to(np.empty((), value.dtype.numpy), shape)
        key = self._key(arrays, contiguous=True)
        return self._bound(key, arrays, {}).binding

    # Bindings ----------------------------------------------------------------------------------------------------

    def bound(self, arrays: Mapping[str, Any], out: Mapping[str, Any] | None) -> Bound:
        """The binding for these arrays' shapes and strides, made once and kept."""
        strides = {}
        if out:
            for name, array in out.items():
                if isinstance(array, np.ndarray) and not array.flags.c_contiguous and name in self._outputs:
                    strides[self._outputs[name].name] = array.strides
        key = self._key(arrays)
        if strides:
            key = (key, tuple(sorted(strides.items())))
        found = self._bindings.get(key)
        if found is not None:
            return found
        for name, array in arrays.items():
            if isinstance(array, np.ndarray) and not array.flags.c_contiguous:
                strides[name] = array.strides
        return self._bound(key, arrays, strides)

    def _key(self, arrays: Mapping[str, Any], contiguous: bool = False) -> Any:
        return tuple(
            [
                a.shape if contiguous or a.flags.c_contiguous else (a.shape, a.strides)
                for a in arrays.values()
                if isinstance(a, np.ndarray)
            ]
        )

    def _bound(self, key: Any, arrays: Mapping[str, Any], strides: Mapping[str, tuple[int, ...]]) -> Bound:
        with self._lock:
            found = self._bindings.get(key)
            if found is None:
                shapes = {name: doors.logical_shape(self._wanted[name], array) for name, array in arrays.items()}
                env = doors.learn_sizes(self.pipe, shapes)
                doors.prove_sums(self._order, doors.value_shapes(self.pipe, env), self._proven)
                found = self._bindings[key] = Bound(self, self.binder.bind(env, strides))
                while len(self._bindings) > BINDINGS:
                    self._bindings.popitem(last=False)
            return found

    def difference(self, inputs: Mapping[str, Any] | None = None) -> dict[str, tuple[int, int, float]]:
        """What `numerics="folded"` changes: {output: (elements that differ, elements, largest difference)}."""
        exact = TilingExecutor(self.executor.threads, backend=self.executor.backend, isa=self.executor.isa)
        state = {name: array.copy() for name, array in self.state.items()}
        mine = self.run(inputs, state=dict(state) if self._has_state else None)
        theirs = exact.compile(self.pipe).run(inputs, state=dict(state) if self._has_state else None)
        found = {}
        for name, array in mine.items():
            apart = np.abs(array.astype(np.float64) - theirs[name].astype(np.float64))
            found[name] = (int((array != theirs[name]).sum()), array.size, float(apart.max(initial=0.0)))
        return found

    # Seeing it ---------------------------------------------------------------------------------------------------

    def explain(self) -> str:
        """Stages, fusions and why not, tiles, memory, and every step that Python runs."""
        return explain(self)

    def mermaid(self) -> str:
        """The steps that run, after fusion and folding, as Mermaid text."""
        return self.lowered.pipe.mermaid()

    def svg(self) -> str:
        """The same as an SVG picture."""
        return self.lowered.pipe.svg()

    def profile(self, inputs: Mapping[str, Any] | None = None, repeat: int = 5) -> Profile:
        """Time per kernel and of the whole run, bytes moved, and the share outside kernels."""
        return profile(self, inputs or {}, repeat)


class Bound:
    """A plan at given sizes, with a pool of run contexts."""

    def __init__(self, plan: TilingPlan, binding: Binding) -> None:
        self.plan = plan
        self.binding = binding
        self._pool: list[RunMemory] = []
        self._values = plan.binder.values
        self._names = [n for n in binding.externals if self._values[n].dtype is not None]
        self._bases = [FIRST_EXTERNAL + i for i, n in enumerate(binding.externals) if self._values[n].dtype is not None]
        self.is_native = all(isinstance(p, Program) for p in binding.parts)
        outputs = plan._outputs
        self._shapes = {
            n: doors.stored_shape(v.dtype, binding.shapes[v.name]) for n, v in outputs.items() if v.dtype is not None
        }
        self._types = {n: v.dtype.numpy for n, v in outputs.items() if v.dtype is not None}
        # Outputs that no kernel writes directly: they stand for an input or a constant, or are named twice.
        seen: dict[int, str] = {}
        self._copies: list[tuple[str, Value]] = []
        self._direct: dict[str, str] = {}
        for name, value in outputs.items():
            if value.kind != "result" or id(value) in seen:
                self._copies.append((name, value))
            else:
                seen[id(value)] = name
                self._direct[value.name] = name
        self.cost = sum(item.cost for item in binding.laid)
        programs = [part for part in binding.parts if isinstance(part, Program)]
        self.fast = (
            len(binding.parts) == len(programs) == 1
            and not self._copies
            and not plan._has_state
            and all(v.dtype is not None for v in plan._wanted.values())
            and all(binding.placed[n].strides is None for n in self._names)
            and not any(n in plan.binder.aligns for n in self._names)
            and usable()
        )
        self._program = programs[0] if programs else Program(())
        self._launchers: list[Launcher] = []

    # Memory ------------------------------------------------------------------------------------------------------

    def outputs(self, out: Mapping[str, Any] | None, arrays: Mapping[str, Any]) -> dict[str, Array]:
        """The caller's arrays, checked, and fresh ones for the rest."""
        results: dict[str, Array] = {}
        values = self.plan._outputs
        if out:
            if not out.keys() <= values.keys():
                doors.check_names(out, {n: v for n, v in values.items() if n in out}, "output")
        for name, value in values.items():
            if out and name in out:
                shape = self.binding.shapes[value.name]
                in_place = self.plan._in_place[name]
                results[name] = doors.check_output(name, value, out[name], shape, arrays, results, in_place)
            else:
                assert value.dtype is not None
                align = self.plan.binder.aligns.get(value.name, 1)
                results[name] = doors.fresh(self._shapes[name], value.dtype, align)
        if self.plan.binder.asking:
            slots = {**arrays, **{value: results[name] for value, name in self._direct.items()}}
            doors.check_slots(self.plan.binder.order, slots)
        return results

    def states(self, kept: Mapping[str, Array]) -> dict[str, Array]:
        """A working copy of every state, so that a run that fails changes none."""
        states = {}
        for name, value in self.plan.lowered.pipe.of_kind("state").items():
            assert value.dtype is not None
            shape = doors.stored_shape(value.dtype, self.binding.shapes[name])
            states[name] = doors.fresh(shape, value.dtype, self.plan.binder.aligns.get(name, 1))
            states[name][...] = doors.state_content(name, value, kept, shape)
        return states

    def take(self) -> RunMemory:
        """A run context from the pool, or a new one."""
        try:
            return self._pool.pop()
        except IndexError:
            return self._new_memory()

    def _new_memory(self) -> RunMemory:
        b = self.binding
        workers = self.plan.executor.threads if b.parallel else 1
        return RunMemory(workers, b.bases, b.arena_bytes, b.local_bytes, b.progress_words, self.plan.binder.align)

    def give_back(self, memory: RunMemory) -> None:
        if len(self._pool) < CONTEXTS:
            self._pool.append(memory)

    def _point(self, memory: RunMemory, arrays: Mapping[str, Any]) -> None:
        """Enter the addresses of this run's arrays."""
        for base, name in zip(self._bases, self._names, strict=False):
            memory.bases[:, base] = arrays[name].__array_interface__["data"][0]

    # Running -----------------------------------------------------------------------------------------------------

    def launcher(self) -> Launcher:
        """A launcher that takes this binding's inputs and outputs, in order; only where `fast` holds."""
        try:
            return self._launchers.pop()
        except IndexError:
            pass
        bases = dict(zip(self._names, self._bases, strict=True))
        arrays = []
        for name in [*self.plan._wanted, *(v.name for v in self.plan._outputs.values())]:
            value, where = self._values[name], self.binding.placed[name]
            assert value.dtype is not None
            arrays.append((bases[name], value.dtype.numpy, where.shape, value.kind == "result"))
        return Launcher(self._program, self._new_memory(), arrays, self.cost)

    def put_back(self, launcher: Launcher) -> None:
        if len(self._launchers) < CONTEXTS:
            self._launchers.append(launcher)

    def run(self, arrays: Mapping[str, Any], results: dict[str, Array], states: dict[str, Array]) -> dict[str, Array]:
        """Run on checked arrays; fills `results`, and leaves in `states` what they become."""
        external = {**arrays, **states, **{value: results[name] for value, name in self._direct.items()}}
        memory = self.take()
        try:
            self._point(memory, external)
            for part in self.binding.parts:
                if isinstance(part, Program):
                    self._run_program(part, memory)
                else:
                    self._run_python(part, memory, external)
            for name, value in self._copies:
                np.copyto(results[name], self._array(value, memory, external))
            updates = self.plan.lowered.pipe.updates
            new = {name: self._array(value, memory, external).copy() for name, value in updates.items()}
            states.update(new)
        finally:
            self.give_back(memory)
        return results

    def call(self, arrays: Mapping[str, Any], results: dict[str, Array]) -> Callable[[], dict[str, Array]]:
        """A callable that runs on these arrays with nothing left to check."""
        external = {**arrays, **{value: results[name] for value, name in self._direct.items()}}
        memory = self.take()
        self._point(memory, external)
        programs = [part for part in self.binding.parts if isinstance(part, Program)]
        copies = [(results[name], self._array(value, memory, external)) for name, value in self._copies]
        parallel = self._parallel()
        if len(programs) == 1 and not copies and not (parallel and threads.exclusive()) and usable():
            return self._launched(Launcher(programs[0], memory, (), self.cost), results, external)

        def call(keep: Any = (external, memory)) -> dict[str, Array]:
            for program in programs:
                self._run_program(program, memory)
            for target, source in copies:
                np.copyto(target, source)
            return results

        return call

    def _launched(self, launcher: Launcher, results: dict[str, Array], keep: Any) -> Callable[[], dict[str, Array]]:
        launch = launcher.call

        def call() -> dict[str, Array]:
            if launch():
                self._finish(launcher)
            return results

        call.__dict__["keep"] = keep
        return call

    def _finish(self, launcher: Launcher) -> None:
        """Go on with a program that paused for Python's signals, or raise what a tile's status stands for."""
        while launcher.memory.progress[1] == 0:
            if launcher.call_again() == DONE:
                return
        self._raise(launcher.program, launcher.memory)

    def _parallel(self) -> bool:
        return self.binding.parallel and threads.allowed()

    def _run_program(self, program: Program, memory: RunMemory) -> None:
        with threads.region(self._parallel()) as parallel:
            failed = memory.run(program, parallel)
        if failed:
            self._raise(program, memory)

    def _raise(self, program: Program, memory: RunMemory) -> None:
        name = memory.failed(program)
        step = next(s for s in self.plan.binder.order if s.name == name)
        raise_status(name, step.kernel, int(memory.progress[1]))

    def _array(self, value: Value, memory: RunMemory, external: Mapping[str, Any]) -> Any:
        """The array behind a value during a run."""
        if value.kind == "constant":
            return self.plan.binder.constants[value.name]
        if value.name in external:
            return external[value.name]
        assert value.dtype is not None
        where = self.binding.placed[value.name]
        nbytes = self.binding.requests[value.name][0]
        return memory.arena[where.offset : where.offset + nbytes].view(value.dtype.numpy).reshape(where.shape)

    def _run_python(self, step: Step, memory: RunMemory, external: Mapping[str, Any]) -> None:
        """Run one step through its own `execute`, on arrays."""
        env, backend = self.binding.env, self.plan.executor.backend

        def sweep(kernel: Any, operands: tuple[Any, ...]) -> None:
            present = tuple(o for o in operands if o is not None)
            variant, implementation = choose(
                kernel, backend, {**facts_of(kernel, present), "isa": self.plan.executor.isa}
            )
            ranges = extents(kernel, step.sizes, env)
            raise_status(
                step.name, kernel, run_whole(implementation, present, ranges, tuple(variant.tile_params.values()))
            )

        ctx = ExecContext(sweep)
        slots: dict[str, Any] = {}
        for slot, value in {**step.inputs, **step.outputs}.items():
            slots[slot] = self.plan.binder.handles[value.name]
            ctx.bind(slots[slot], self._array(value, memory, external), written=slot in step.inputs)
        try:
            with ctx.entered(step.name, step.kernel, step.specs, slots):
                step.kernel.execute(ctx)
            for slot, value in step.outputs.items():
                if not ctx.is_written(slots[slot]):
                    raise UnwrittenRead(f"step {step.name!r} never wrote its slot {slot!r} ({value.name!r})")
        except TileworkError as error:
            if repr(step.name) in str(error):
                raise
            raise type(error)(f"step {step.name!r}: {error}") from error
        except Exception as error:
            raise KernelFailed(
                f"step {step.name!r} ({step.kernel.name}) failed: {type(error).__name__}: {error}"
            ) from error


__all__ = ["PipelineError", "TilingExecutor", "TilingPlan", "default_threads"]
