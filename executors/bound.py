"""A plan at given sizes: its run contexts, and the three ways into a run."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..primitives.context import ExecContext
from ..primitives.errors import UnwrittenRead
from ..primitives.memory import address_of
from ..primitives.pipeline import Step, Value
from . import inputs as doors
from . import threads
from .binding import Binding
from .launcher import DONE, Launcher, usable
from .pace import SHORT, Pace
from .program import FIRST_EXTERNAL, Program, RunMemory, Stage
from .tiles import choose, extents, facts_of, named, raise_status, run_whole

if TYPE_CHECKING:
    from .binding import Binder
    from .kept.plan import KeptBinder
    from .plan import TilingPlan

Array = np.ndarray[Any, Any]
CONTEXTS = 16  # run contexts that a binding keeps for later runs


class Bound:
    """A plan at given sizes, with a pool of run contexts."""

    def __init__(
        self, plan: TilingPlan, binding: Binding, binder: Binder | KeptBinder | None = None, cost: float | None = None
    ) -> None:
        """binder, cost  where the plan is kept, what stands for its binder, and what the laid out steps cost."""
        self.plan = plan
        self.binding = binding
        self._binder = binder if binder is not None else plan.binder
        self.keep: Any = None  # what has to live as long
        self._pool: list[RunMemory] = []
        self._values = self._binder.values
        self._names = [n for n in binding.externals if self._values[n].dtype is not None]
        typed = [FIRST_EXTERNAL + i for i, n in enumerate(binding.externals) if self._values[n].dtype is not None]
        self._bases = np.array(typed, np.intp)
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
        reached = {*plan._wanted, *self._direct}
        self._asked = [slot for slot in self._binder.asked if slot[2].name in reached]
        self.cost = sum(item.cost for item in binding.laid) if cost is None else cost
        programs = [part for part in binding.parts if isinstance(part, Program)]
        self.fast = (
            len(binding.parts) == len(programs) == 1
            and not self._copies
            and not plan._has_state
            and all(v.dtype is not None for v in plan._wanted.values())
            and all(binding.placed[n].strides is None for n in self._names)
            and not any(n in self._binder.aligns for n in self._names)
            and usable()
        )
        self.program = programs[0] if programs else Program(())
        self._launchers: dict[bool, list[Launcher]] = {False: [], True: []}
        self.pace = Pace() if binding.parallel and self.cost < SHORT else None

    def _program_stages(self) -> list[Stage]:
        """The stages of all native parts, in running order."""
        return [stage for part in self.binding.parts if isinstance(part, Program) for stage in part.stages]

    # Memory ------------------------------------------------------------------------------------------------------

    def outputs(self, out: Mapping[str, Any] | None, arrays: Mapping[str, Any]) -> dict[str, Array]:
        """The caller's arrays, checked, and fresh ones for the rest."""
        results: dict[str, Array] = {}
        values = self.plan._outputs
        if out:
            doors.check_outputs(out, values)
        for name, value in values.items():
            if out and name in out:
                shape = self.binding.shapes[value.name]
                in_place = self.plan._in_place[name]
                results[name] = doors.check_output(name, value, out[name], shape, arrays, results, in_place)
            else:
                assert value.dtype is not None
                align = self._binder.aligns.get(value.name, 1)
                results[name] = doors.fresh(self._shapes[name], value.dtype, align)
        if self._asked:
            slots = {**arrays, **{value: results[name] for value, name in self._direct.items()}}
            doors.check_slots(self._asked, slots)
        return results

    def take(self) -> RunMemory:
        """A run context from the pool, or a new one."""
        try:
            return self._pool.pop()
        except IndexError:
            return self._new_memory()

    def _new_memory(self) -> RunMemory:
        b = self.binding
        workers = self.plan.executor.threads if b.parallel else 1
        align, wake = self._binder.align, self.cost >= SHORT
        return RunMemory(workers, b.bases, b.arena_bytes, b.local_bytes, b.progress_words, align, wake)

    def give_back(self, memory: RunMemory) -> None:
        if len(self._pool) < CONTEXTS:
            self._pool.append(memory)

    def _point(self, memory: RunMemory, arrays: Mapping[str, Any]) -> None:
        """Enter the addresses of this run's arrays."""
        memory.bases[:, self._bases] = [address_of(arrays[name]) for name in self._names]

    # Running -----------------------------------------------------------------------------------------------------

    def wants_threads(self) -> bool:
        """Whether the next run is to use several threads."""
        return self._parallel() and (self.pace is None or self.pace.parallel())

    def launcher(self, parallel: bool) -> Launcher:
        """A launcher that takes this binding's inputs and outputs, in order; only where `fast` holds."""
        try:
            return self._launchers[parallel].pop()
        except IndexError:
            pass
        bases = dict(zip(self._names, self._bases.tolist(), strict=True))
        arrays = []
        for name in [*self.plan._wanted, *(v.name for v in self.plan._outputs.values())]:
            value, where = self._values[name], self.binding.placed[name]
            assert value.dtype is not None
            arrays.append((bases[name], value.dtype.numpy, where.shape, value.kind == "result"))
        return Launcher(self.program, self._new_memory(), arrays, self.cost, parallel)

    def put_back(self, launcher: Launcher) -> None:
        pool = self._launchers[launcher.parallel]
        if len(pool) < CONTEXTS:
            pool.append(launcher)

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
            if self.plan._has_state:
                updates = self.plan.lowered.pipe.updates
                states.update({name: self._array(value, memory, external).copy() for name, value in updates.items()})
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
            return self._launched(programs[0], memory, results, external, parallel)

        def call(keep: Any = (external, memory)) -> dict[str, Array]:
            for program in programs:
                self._run_program(program, memory)
            for target, source in copies:
                np.copyto(target, source)
            return results

        return call

    def _launched(
        self, program: Program, memory: RunMemory, results: dict[str, Array], keep: Any, parallel: bool
    ) -> Callable[[], dict[str, Array]]:
        alone = Launcher(program, memory, (), self.cost, False)
        launch = alone.call

        def call() -> dict[str, Array]:
            if launch():
                self._finish(alone)
            return results

        call.__dict__["keep"] = keep
        if not parallel:
            return call
        team = Launcher(program, memory, (), self.cost, True)

        def call_team() -> dict[str, Array]:
            if not self.wants_threads():  # also where this was bound before a fork and is called in the child
                return self._timed(call, False)
            return self._timed(together, True)

        def together() -> dict[str, Array]:
            if team.call():
                self._finish(team)
            return results

        return call_team

    def _timed(self, run: Callable[[], dict[str, Array]], parallel: bool) -> dict[str, Array]:
        """Run, and note the time while it is open whether threads pay."""
        if self.pace is None or not self.pace.undecided:
            return run()
        start = time.perf_counter()
        results = run()
        self.pace.took(parallel, time.perf_counter() - start)
        return results

    def _finish(self, launcher: Launcher) -> None:
        """Go on with a program that paused for Python's signals, or raise what a tile's status stands for."""
        while launcher.memory.progress[1] == 0:
            if launcher.call_again() == DONE:
                return
        self._raise(launcher.program, launcher.memory)

    def _parallel(self) -> bool:
        return self.binding.parallel and threads.allowed()

    def _run_program(self, program: Program, memory: RunMemory) -> None:
        start = time.perf_counter()
        with threads.region(self.wants_threads()) as parallel:
            failed = memory.run(program, parallel)
        if self.pace is not None and self.pace.undecided and len(self.binding.parts) == 1:
            self.pace.took(parallel, time.perf_counter() - start)
        if failed:
            self._raise(program, memory)

    def _raise(self, program: Program, memory: RunMemory) -> None:
        name = memory.failed(program)
        step = next(s for s in self._binder.order if s.name == name)
        raise_status(name, step.kernel, int(memory.progress[1]))

    def _array(self, value: Value, memory: RunMemory, external: Mapping[str, Any]) -> Any:
        """The array behind a value during a run."""
        if value.kind == "constant":
            return self._binder.constants[value.name]
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
            raise_status(step.name, kernel, run_whole(implementation, present, ranges, variant.params({})))

        ctx = ExecContext(sweep)
        slots: dict[str, Any] = {}
        for slot, value in {**step.inputs, **step.outputs}.items():
            slots[slot] = self._binder.handles[value.name]
            ctx.bind(slots[slot], self._array(value, memory, external), written=slot in step.inputs)
        with named(step):
            with ctx.entered(step.name, step.kernel, step.specs, slots):
                step.kernel.execute(ctx)
            for slot, value in step.outputs.items():
                if not ctx.is_written(slots[slot]):
                    raise UnwrittenRead(f"step {step.name!r} never wrote its slot {slot!r} ({value.name!r})")
