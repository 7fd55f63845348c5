"""A plan that runs what was kept of it, and is made only when something else is asked of it."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ...kernels import forge
from ...primitives import dtypes
from ...primitives.errors import TileworkError
from ...primitives.memory import address_of
from ...primitives.pipeline import Pipeline, Step, Value
from .. import inputs as doors
from ..binding import Binding, Placed
from ..bound import Bound
from ..locks import Lock
from ..plan import TilingPlan
from ..profile import Profile
from ..program import Program
from . import files, naming
from .record import Port, Record

if TYPE_CHECKING:
    from ..tiling import TilingExecutor

Array = np.ndarray[Any, Any]
Shapes = Mapping[str, tuple[int, ...]]
# What the reading of a record that is none raises.
DAMAGE = (LookupError, ValueError, TypeError, AttributeError, OverflowError, struct.error, RuntimeError, TileworkError)


def find(executor: TilingExecutor, pipe: Pipeline, shapes: Shapes | None) -> KeptPlan | None:
    """The kept plan of a pipeline at these shapes of its inputs, or None.

    shapes   None: those that the pipeline's inputs have, where they are numbers
    """
    if pipe.identity is None:
        return None
    shapes = pipe.fixed_shapes() if shapes is None else shapes
    if shapes is None:
        return None
    plan = KeptPlan(pipe, executor, shapes)
    return plan if plan.knows(shapes) else None


class KeptBinder:
    """What stands for the binder of a plan that has not been made."""

    def __init__(self, plan: KeptPlan, values: Mapping[str, Value], align: int) -> None:
        self._plan = plan
        self.values = dict(values)
        self.align = align
        self.aligns: dict[str, int] = {}
        self.constants: dict[str, Any] = {}
        self.handles: dict[str, Any] = {}
        self.asked: list[Any] = []

    @property
    def order(self) -> list[Step]:
        """The steps that run, of the plan made anew."""
        return self._plan.binder.order


class KeptPlan(TilingPlan):
    """Runs records where inputs are what they were made for; anything else makes the plan, and is what that does."""

    def __init__(self, pipe: Pipeline, executor: TilingExecutor, shapes: Shapes) -> None:
        self.pipe = pipe
        self.executor = executor
        self.state = {}
        self._shapes = dict(shapes)
        self._lock = Lock()
        self._known: dict[tuple[tuple[int, ...], ...], Bound | None] = {}
        self._fast = None
        self._has_state = False

    def __getattr__(self, name: str) -> Any:
        """What only the plan has that is made of the pipeline."""
        if name.startswith("__") or "lowered" in self.__dict__:
            raise AttributeError(f"a plan has no {name!r}")
        self._make()
        return getattr(self, name)

    def _make(self) -> None:
        with self._lock:
            if "lowered" not in self.__dict__:
                made = TilingPlan(self.pipe, self.executor, (), doors.sizes_so_far(self.pipe, self._shapes))
                made.prepare(self._shapes)
                self.__dict__.update({name: x for name, x in vars(made).items() if name not in ("_lock", "state")})
                self._fast = None

    def knows(self, shapes: Shapes) -> bool:
        """Whether there is a record for these shapes of the inputs."""
        return self._record(shapes) is not None

    def run(
        self,
        inputs: Mapping[str, Any] | None = None,
        out: Mapping[str, Any] | None = None,
        state: dict[str, Array] | None = None,
        tap: Iterable[str] = (),
    ) -> dict[str, Array]:
        """As `TilingPlan.run`."""
        self._check_names(inputs)
        return super().run(inputs, out, state, tap)

    def bind(
        self, inputs: Mapping[str, Any] | None = None, out: Mapping[str, Any] | None = None
    ) -> Callable[[], dict[str, Array]]:
        """As `TilingPlan.bind`."""
        self._check_names(inputs)
        return super().bind(inputs, out)

    def profile(self, inputs: Mapping[str, Any] | None = None, repeat: int = 5) -> Profile:
        """As `TilingPlan.profile`."""
        self._make()
        return super().profile(inputs, repeat)

    def bound(self, arrays: Mapping[str, Any], out: Mapping[str, Any] | None) -> Bound:
        """As `TilingPlan.bound`: of a record, where there is one for these arrays."""
        every = [*arrays.values(), *(out or {}).values()]
        if "lowered" not in self.__dict__ and all(isinstance(x, np.ndarray) and x.flags.c_contiguous for x in every):
            found = self._record({name: x.shape for name, x in arrays.items()})
            if found is not None:
                return found
        self._make()
        return super().bound(arrays, out)

    def _check_names(self, inputs: Mapping[str, Any] | None) -> None:
        """Let the plan itself say what is wrong with names."""
        if "lowered" not in self.__dict__ and not (isinstance(inputs, dict) and inputs.keys() == self._wanted.keys()):
            self._make()

    def _record(self, shapes: Shapes) -> Bound | None:
        key = tuple(tuple(shape) for _, shape in sorted(shapes.items()))
        with self._lock:
            if key not in self._known:
                self._known[key] = self._read(shapes)
            return self._known[key]

    def _read(self, shapes: Shapes) -> Bound | None:
        name = naming.of_run(self.pipe.identity or "", self.executor, shapes)
        content = files.read(name) if name is not None else None
        if name is None or content is None:
            return None
        try:
            return self._bound_of(Record.loads(content))
        except DAMAGE as error:
            files.discard(name, f"{type(error).__name__}: {error}")
            return None

    def _bound_of(self, record: Record) -> Bound:
        entries = [made for group in forge.adopt(record.groups) for made in group]
        tables = [forge.table_of(entries[n], count) for n, count in record.tables]
        constants = [address_of(array) for array in record.constants]
        program = record.image.program([made.address for made in entries], tables, constants)
        bound = self._bound_to(record, program)
        bound.keep = (record, entries, tables)
        return bound

    def _bound_to(self, record: Record, program: Program) -> Bound:
        facts = record.facts
        owner = Pipeline("kept")
        ports = {port.value: port for port in (*facts.inputs, *facts.outputs)}
        values = {name: _value(owner, port) for name, port in ports.items()}
        self._wanted = {port.name: values[port.value] for port in facts.inputs}
        self._outputs = {port.name: values[port.value] for port in facts.outputs}
        self._in_place = {port.name: frozenset(port.in_place) for port in facts.outputs}
        binding = Binding(
            env={},
            shapes={name: port.shape for name, port in ports.items()},
            placed={name: Placed(port.base, 0, port.shape, None) for name, port in ports.items()},
            externals=facts.externals,
            laid=[],
            parts=[program],
            bases=facts.bases,
            arena_bytes=facts.arena_bytes,
            arena_bound=facts.arena_bytes,
            requests={},
            local_bytes=facts.local_bytes,
            parallel=facts.parallel,
            progress_words=program.progress_words,
        )
        return Bound(self, binding, KeptBinder(self, values, facts.align), facts.cost)


def _value(owner: Pipeline, port: Port) -> Value:
    return Value(owner, port.value, dtypes.get(port.dtype), port.shape, port.kind)
