"""A plan at given sizes: where everything lies, how each step is cut into tiles, and the program that runs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..kernels import factory, forge
from ..kernels.entry import OperandType
from ..primitives import dtypes
from ..primitives.arena import BufferId, plan_offsets
from ..primitives.errors import KernelFailed, PipelineError, TileworkError
from ..primitives.kernel import index_space
from ..primitives.memory import address_of
from ..primitives.pipeline import Pipeline, Step, Value
from . import inputs as doors
from .cutting import Cut, cut
from .program import ARENA, FIRST_EXTERNAL, LOCAL, Program, Row, Stage
from .recording import NeedsData, Operand, RecordingContext
from .tiles import choose, extents

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Placed:
    """Where a value lies at run time: a base and an offset in bytes, its stored shape and strides."""

    base: int
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None


@dataclass
class Laid:
    """A step as it was laid out: the sweeps that became stages, or none if it runs as a Python kernel."""

    step: Step
    stages: list[Stage] = field(default_factory=list)
    cuts: list[Cut] = field(default_factory=list)
    chosen: list[tuple[str, str]] = field(default_factory=list)
    details: list[str] = field(default_factory=list)
    python: str = ""
    cost: float = 0.0


@dataclass
class Binding:
    """Immutable once made. `parts` alternates native programs and Python steps, in running order."""

    env: dict[str, int]
    shapes: dict[str, tuple[int, ...]]
    placed: dict[str, Placed]
    externals: tuple[str, ...]
    laid: list[Laid]
    parts: list[Program | Step]
    bases: int
    arena_bytes: int
    arena_bound: int
    requests: dict[str, tuple[int, int, int]]
    local_bytes: int
    parallel: bool
    progress_words: int


class Binder:
    """Makes bindings of one lowered pipeline."""

    def __init__(
        self,
        pipe: Pipeline,
        backend: str,
        threads: int,
        facts: Mapping[str, Any],
        tile: Mapping[str, Any] | None = None,
    ) -> None:
        self.pipe = pipe
        self.backend = backend
        self.threads = threads
        self.facts = dict(facts)
        self.tile = dict(tile or {})
        self.order = pipe.order()
        self.values = {v.name: v for v in [*pipe.values.values(), *(v for s in self.order for v in s.outputs.values())]}
        self.handles = {name: BufferId(n) for n, name in enumerate(self.values)}
        self.outputs = {id(v) for v in pipe.outputs.values()}

    def bind(self, env: dict[str, int], strides: Mapping[str, tuple[int, ...] | None]) -> Binding:
        """strides: of every external array that is not contiguous, in bytes."""
        shapes = doors.value_shapes(self.pipe, env)
        externals = [n for n, v in self.values.items() if self._is_external(v)]
        placed: dict[str, Placed] = {}
        for n, name in enumerate(externals):
            value = self.values[name]
            if value.dtype is not None:
                shape = doors.stored_shape(value.dtype, shapes[name])
                placed[name] = Placed(FIRST_EXTERNAL + n, 0, shape, strides.get(name))
        requests = self._lifetimes(shapes)
        offsets, peak = plan_offsets([(nbytes, first, last, 64) for nbytes, first, last in requests.values()])
        for name, offset in zip(requests, offsets, strict=False):
            value = self.values[name]
            assert value.dtype is not None
            placed[name] = Placed(ARENA, offset, doors.stored_shape(value.dtype, shapes[name]), None)
        local = _Local()
        laid = [self._lay(step, env, placed, local) for step in self.order]
        parts = self._parts(laid)
        programs = [p for p in parts if isinstance(p, Program)]
        return Binding(
            env=env,
            shapes=shapes,
            placed=placed,
            externals=tuple(externals),
            laid=laid,
            parts=parts,
            bases=FIRST_EXTERNAL + len(externals),
            arena_bytes=peak,
            arena_bound=_largest_live(requests.values()),
            requests=requests,
            local_bytes=local.peak,
            parallel=self.threads > 1 and any(stage.tiles > 1 for item in laid for stage in item.stages),
            progress_words=max((p.progress_words for p in programs), default=1),
        )

    def _is_external(self, value: Value) -> bool:
        return value.kind in ("input", "argument", "state") or (id(value) in self.outputs and value.kind == "result")

    def _lifetimes(self, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, int, int]]:
        last: dict[str, int] = {}
        for n, step in enumerate(self.order):
            for value in [*step.inputs.values(), *step.outputs.values()]:
                last[value.name] = n
        for value in self.pipe.updates.values():
            last[value.name] = len(self.order)
        requests = {}
        for n, step in enumerate(self.order):
            for value in step.outputs.values():
                if value.kind in ("result", "buffer") and not self._is_external(value):
                    assert value.dtype is not None
                    count = int(np.prod(doors.stored_shape(value.dtype, shapes[value.name]), dtype=object))
                    requests[value.name] = (count * value.dtype.numpy.itemsize, n, last[value.name])
        return requests

    # One step ----------------------------------------------------------------------------------------------------

    def _lay(self, step: Step, env: dict[str, int], placed: Mapping[str, Placed], local: _Local) -> Laid:
        laid = Laid(step)
        if index_space(step.kernel) is None:
            laid.python = "a Python kernel"
            return laid
        local.begin()
        operands = {slot: self._operand(value, placed) for slot, value in {**step.inputs, **step.outputs}.items()}
        for spec in step.specs:
            if spec.slot in operands and isinstance(operands[spec.slot], Operand):
                doors.check_strides(step.name, spec, operands[spec.slot])
        ctx = RecordingContext(step.name, step.specs, operands, local.take)
        try:
            step.kernel.execute(ctx)
        except NeedsData as reason:
            laid.python = f"asks for {reason}"
            return laid
        except TileworkError as error:
            if step.name in str(error):
                raise
            raise type(error)(f"step {step.name!r}: {error}") from error
        except Exception as error:
            raise KernelFailed(
                f"step {step.name!r} ({step.kernel.name}) failed: {type(error).__name__}: {error}"
            ) from error
        if not ctx.sweeps:
            laid.python = "does not sweep"
            return laid
        for kernel, swept in ctx.sweeps:
            self._lay_sweep(laid, kernel, swept, env)
            if laid.python:
                laid.stages.clear()
                break
        return laid

    def _operand(self, value: Value, placed: Mapping[str, Placed]) -> Any:
        if value.kind == "constant":
            return Operand.of(value.data) if isinstance(value.data, np.ndarray) else value.data
        if value.dtype is None:
            return None
        where = placed[value.name]
        return Operand.make(where.base, where.offset, value.dtype.numpy, where.shape, where.strides)

    def _lay_sweep(self, laid: Laid, kernel: Any, swept: Sequence[Operand], env: Mapping[str, int]) -> None:
        step = laid.step
        facts = {
            **self.facts,
            "kernel": kernel,
            "dtypes": tuple(dtypes.get(o.dtype).name for o in swept),
            "ranks": tuple(o.ndim for o in swept),
        }
        variant, implementation = choose(kernel, self.backend, facts)
        params = tuple(variant.tile_params.values())
        if isinstance(implementation, factory.WithParams):
            params = tuple(implementation.params(*swept))
            implementation = implementation.tile
        if isinstance(implementation, factory.Whole) or forge.jit_disabled() or not _compilable(implementation):
            laid.python = f"runs {variant.name}/{variant.variant} of {variant.backend} in Python"
            return
        laid.chosen.append((variant.name, variant.variant))
        laid.details.append(kernel.detail(*swept) if hasattr(kernel, "detail") else "")
        sizes = extents(kernel, step.sizes, env)
        types = tuple(OperandType(dtypes.get(o.dtype).name, o.ndim) for o in swept)
        compiled = forge.entry(implementation, len(sizes), types, len(params))
        words = [w for o in swept for w in (o.base, o.offset, *o.shape, *o.strides)]
        block = np.array([*words, *params], np.int64)
        how = cut(kernel, sizes, swept, self.threads, self.tile.get(step.name))
        laid.cuts.append(how)
        laid.cost += how.cost
        if how.ranges.shape[0]:
            laid.stages.append(Stage(len(how.ranges), (Row(compiled.address, block, how.ranges, step.name, compiled),)))

    def _parts(self, laid: list[Laid]) -> list[Program | Step]:
        parts: list[Program | Step] = []
        stages: list[Stage] = []
        for item in laid:
            if item.python:
                if stages:
                    parts.append(Program(stages))
                    stages = []
                parts.append(item.step)
            else:
                stages += item.stages
        if stages:
            parts.append(Program(stages))
        return parts


class _Local:
    """Offsets in each worker's own memory. A step's scratch begins anew: steps do not run at once in one worker."""

    def __init__(self) -> None:
        self.next = 0
        self.peak = 0

    def begin(self) -> None:
        self.next = 0

    def take(self, nbytes: int) -> Operand:
        start = -(-self.next // 64) * 64
        self.next = start + nbytes
        self.peak = max(self.peak, self.next)
        return Operand.make(LOCAL, start, np.uint8, (nbytes,))


def _compilable(implementation: Any) -> bool:
    return isinstance(implementation, forge.Native) or hasattr(implementation, "py_func")


def _largest_live(requests: Any) -> int:
    change: dict[int, int] = {}
    for nbytes, first, last in requests:
        change[first] = change.get(first, 0) + nbytes
        change[last + 1] = change.get(last + 1, 0) - nbytes
    live = most = 0
    for at in sorted(change):
        live += change[at]
        most = max(most, live)
    return most


__all__ = ["Binder", "Binding", "Laid", "PipelineError", "Placed", "address_of"]
