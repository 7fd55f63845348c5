"""A pipeline made ready to run: constants folded and packed, kernels chosen, steps fused, and a layout for each set of sizes."""

from __future__ import annotations

import os
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..kernels.folding import folded
from ..primitives.errors import ArgumentError
from ..primitives.pipeline import Pipeline, Value
from . import inputs as doors
from . import threads
from .binding import Binder, Binding
from .bound import Bound
from .kept.keeping import keep
from .launcher import OTHERWISE
from .locks import Lock
from .lowering import Lowered, lower
from .profile import Profile
from .profiling import profile
from .report import explain
from .states import RunStates, appended
from .tuned import Tiles

if TYPE_CHECKING:
    from .export import Export
    from .tiling import TilingExecutor

Array = np.ndarray[Any, Any]

BINDINGS = 16  # sets of sizes that a plan keeps laid out


def _tapped(pipe: Pipeline, tap: Iterable[str]) -> dict[str, str]:
    """{name as asked: value's name}. A value is named in full, or by its slot alone where no other value has that."""
    known = [*pipe.values, *(v.name for step in pipe.steps for v in step.outputs.values())]
    found = {}
    for name in tap:
        if name in known or name in pipe.outputs:
            found[name] = pipe.outputs[name].name if name in pipe.outputs else name
            continue
        ends = [other for other in dict.fromkeys(known) if other.endswith(f".{name}")]
        if len(ends) != 1:
            results = [v.name for step in pipe.order() for v in step.outputs.values()]
            several = f"; {name!r} may be {' or '.join(ends)}" if ends else ""
            raise ArgumentError(f"there is no value {name!r} to tap; the steps write {', '.join(results)}{several}")
        found[name] = ends[0]
    return found


class TilingPlan:
    """A pipeline made ready. Immutable but for its states; threads may share it, and each run has its own memory."""

    def __init__(
        self,
        pipe: Pipeline,
        executor: TilingExecutor,
        tap: Iterable[str] = (),
        sizes: Mapping[str, int] | None = None,
    ) -> None:
        pipe.validate()
        self.pipe = pipe
        self.executor = executor
        self.tap = _tapped(pipe, tap)
        source, self.folded = folded(pipe) if executor.numerics == "folded" and not self.tap else (pipe, ())
        self.tiles = Tiles(
            executor.tile,
            backend=executor.backend,
            isa=executor.isa,
            threads=executor.threads,
            sizes=sizes,
            look=executor.tuned,
        )
        self.lowered: Lowered = lower(source, executor.backend, executor.fuse, self.tap, self.tiles, isa=executor.isa)
        self.binder = Binder(
            self.lowered.pipe,
            executor.backend,
            executor.threads,
            {"isa": executor.isa},
            self._tiles(),
            executor.chain,
            self.tiles,
        )
        self.state: dict[str, Array] = {}
        self._wanted = doors.wanted(pipe)
        self._outputs = self.lowered.pipe.outputs
        self._in_place = doors.in_place_inputs(self.lowered.pipe)
        self._bindings: OrderedDict[Any, Bound] = OrderedDict()
        self._tapped: dict[tuple[str, ...], TilingPlan] = {}
        self._lock = Lock()
        self._order = pipe.order()
        self._proven: set[tuple[str, Any]] = set()
        self.states = self.lowered.pipe.of_kind("state")
        self._has_state = bool(pipe.of_kind("state"))
        self.grows = appended(self.lowered.pipe)
        self._fast: Bound | None = None
        self.kept = 0

    def __repr__(self) -> str:
        return f"<plan of {self.pipe.name!r} on {self.executor!r}: {len(self.pipe.steps)} steps>"

    def _tiles(self) -> dict[str, dict[str, int]]:
        """tile= by the name of the step that runs: what was asked of a step holds for the last one that it became."""
        runs = {step.name: step.name for step in self.lowered.pipe.steps}
        runs |= {name: note.became[-1] for note in self.lowered.notes for name in note.steps if note.became}
        for name in self.executor.tile:
            if name not in runs:
                raise ArgumentError(f"tile= names step {name!r}; the plan has {', '.join(sorted(runs))}")
        return {runs[name]: tile for name, tile in {**self.tiles.found, **self.tiles.given}.items()}

    # Running -----------------------------------------------------------------------------------------------------

    def run(
        self,
        inputs: Mapping[str, Any] | None = None,
        out: Mapping[str, Any] | None = None,
        state: dict[str, Array] | None = None,
        tap: Iterable[str] = (),
    ) -> dict[str, Array]:
        """Run once and return {output: array}: fresh arrays, or the caller's where `out` has them.

        state   {state: array} to start from and to leave the new states in; without it, the plan's own. Its arrays stay
                as they are, unless it is an OwnedState
        tap     names of intermediate values to return as well; only what these cut is run unfused
        """
        tap = (tap,) if isinstance(tap, (str, Value)) else tuple(tap)
        if tap:
            names = tuple(t.name if isinstance(t, Value) else t for t in tap)
            with self._lock:
                if names not in self._tapped:
                    self._tapped[names] = TilingPlan(self.pipe, self.executor, names, self.tiles.sizes)
            return self._tapped[names].run(inputs, out, self.state if state is None else state)
        given = {} if inputs is None else inputs
        if type(given) is not dict:
            given = doors.as_mapping(given, "inputs")
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
            states = RunStates(bound, kept, arrays)
            try:
                results = bound.run(arrays, bound.outputs(out, arrays), states.arrays)
            except BaseException:
                states.undo()
                raise
            kept.update(states.arrays)
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
        parallel = bound.wants_threads()
        launcher = bound.launcher(parallel)
        start = time.perf_counter() if bound.pace is not None else 0.0
        status = launcher.call(*arrays, *results.values())
        if status:
            if status == OTHERWISE:
                bound.put_back(launcher)
                return None
            bound._finish(launcher)
        bound.put_back(launcher)
        if bound.pace is not None and bound.pace.undecided:
            bound.pace.took(parallel, time.perf_counter() - start)
        return results

    def bind(
        self, inputs: Mapping[str, Any] | None = None, out: Mapping[str, Any] | None = None
    ) -> Callable[[], dict[str, Array]]:
        """Check inputs and outputs once; the callable then runs on them, reading what they hold at that time.

        The callable has memory of its own and is not to be called from two threads at once.
        """
        given = {} if inputs is None else inputs
        if type(given) is not dict:
            given = doors.as_mapping(given, "inputs")
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
                if any(n < 0 for n in shape):
                    raise ArgumentError(f"shapes= has {name!r} as {shapes[name]}; sizes are 0 or more")
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
        found = self._kept(key)
        if found is not None:
            return found
        for name, array in arrays.items():
            if isinstance(array, np.ndarray) and not array.flags.c_contiguous:
                strides[name] = array.strides
        return self._bound(key, arrays, strides)

    def _kept(self, key: Any) -> Bound | None:
        """The binding of these sizes, which is now the last to be forgotten."""
        try:
            self._bindings.move_to_end(key)
            return self._bindings[key]
        except KeyError:  # never made, or another thread has just forgotten it
            return None

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
            found = self._kept(key)
            if found is None:
                shapes = {name: doors.logical_shape(self._wanted[name], array) for name, array in arrays.items()}
                env = doors.learn_sizes(self.pipe, shapes)
                doors.prove_sums(self._order, doors.value_shapes(self.pipe, env), self._proven)
                found = self._bindings[key] = Bound(self, self.binder.bind(env, strides))
                if self.pipe.identity is not None and not strides:
                    keep(self, found, shapes)
                while len(self._bindings) > BINDINGS:
                    self._bindings.popitem(last=False)
            return found

    def difference(self, inputs: Mapping[str, Any] | None = None) -> dict[str, tuple[int, int, float]]:
        """What `numerics="folded"` changes: {output: (elements that differ, elements, largest difference)}."""
        mine = self.executor
        exact = type(mine)(mine.threads, backend=mine.backend, isa=mine.isa)
        state = {name: array.copy() for name, array in self.state.items()}
        here = self.run(inputs, state=dict(state) if self._has_state else None)
        theirs = exact.compile(self.pipe).run(inputs, state=dict(state) if self._has_state else None)
        found = {}
        for name, array in here.items():
            apart = np.abs(array.astype(np.float64) - theirs[name].astype(np.float64))
            found[name] = (int((array != theirs[name]).sum()), array.size, float(apart.max(initial=0.0)))
        return found

    def export(
        self,
        folder: str | os.PathLike[str],
        shapes: Mapping[str, tuple[int, ...]] | None = None,
        *,
        name: str | None = None,
        levels: Sequence[str] | None = None,
        link: bool = True,
    ) -> Export:
        """Write the plan as machine code for C programs, without Python or Numba; see export.export."""
        from .export import export

        return export(self, folder, shapes, name=name, levels=levels, link=link)

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
        """What a run costs: in all, in native code, between kernels, and each kernel's hot loop against measured peaks."""
        return profile(self, inputs or {}, repeat)
