"""A plan at given sizes: where everything lies, how each step is cut into tiles, and the program that runs it."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..kernels import factory, forge
from ..kernels.entry import OperandType
from ..primitives import dtypes
from ..primitives.arena import BufferId, Request, lower_bound, plan_offsets
from ..primitives.errors import ArgumentError, PipelineError
from ..primitives.kernel import index_space
from ..primitives.memory import address_of
from ..primitives.pipeline import Pipeline, Step, Value
from ..primitives.sizes import evaluate
from . import inputs as doors
from .chaining import Chain, find_chains, lives
from .cutting import SMALL, Cut, cut, in_turn
from .profiling import operations
from .program import ARENA, FIRST_EXTERNAL, LOCAL, Fix, Program, Row, Stage
from .recording import NeedsData, Operand, RecordingContext, contiguous
from .tiles import choose, extents, named
from .tuned import STAGE, Tiles
from .verify import verify

Array = np.ndarray[Any, Any]

BRIEF = 2**20  # of a step that costs less (about bytes moved) a barrier is a good part


@dataclass(frozen=True)
class Placed:
    """Where a value lies at run time: a base and an offset in bytes, its stored shape and strides.

    passing   only a tile of it exists at a time, in a worker's own memory
    """

    base: int
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    passing: bool = False


@dataclass
class Laid:
    """A step as it was laid out: the sweeps that became stages, or none if it runs as a Python kernel."""

    step: Step
    stages: list[Stage] = field(default_factory=list)
    cuts: list[Cut] = field(default_factory=list)
    swept: list[Any] = field(default_factory=list)
    chosen: list[tuple[str, str]] = field(default_factory=list)
    details: list[str] = field(default_factory=list)
    python: str = ""
    cost: float = 0.0
    operations: float = 0.0
    kind: str = ""
    beside: tuple[str, ...] = ()


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
    chains: tuple[Chain, ...] = ()


class Binder:
    """Makes bindings of one lowered pipeline."""

    def __init__(
        self,
        pipe: Pipeline,
        backend: str,
        threads: int,
        facts: Mapping[str, Any],
        tile: Mapping[str, Any] | None = None,
        chain: bool = True,
        tiles: Tiles | None = None,
    ) -> None:
        self.chain = chain
        self.pipe = pipe
        self.backend = backend
        self.threads = threads
        self.facts = dict(facts)
        self.tile = dict(tile or {})
        self.tiles = tiles or Tiles()
        self.order = pipe.order()
        self.values = {v.name: v for v in [*pipe.values.values(), *(v for s in self.order for v in s.outputs.values())]}
        self.handles = {name: BufferId(n) for n, name in enumerate(self.values)}
        self.outputs = {id(v) for v in pipe.outputs.values()}
        self.aligns = doors.alignments(self.order)
        self.align = max([64, *self.aligns.values()])
        self.asked = doors.asked_slots(self.order)
        self.constants = {
            name: doors.suited(value, self.order, self.aligns.get(name, 1))
            for name, value in self.values.items()
            if value.kind == "constant"
        }

    def bind(
        self,
        env: dict[str, int],
        strides: Mapping[str, tuple[int, ...] | None],
        separate: frozenset[int] = frozenset(),
        groups: tuple[range, ...] = (),
    ) -> Binding:
        """Lay everything out for these sizes.

        strides   of every external array that is not contiguous, in bytes
        separate  positions of steps at which no chain is to begin
        groups    runs of steps that are to run at once
        """
        shapes = doors.value_shapes(self.pipe, env)
        externals = [n for n, v in self.values.items() if self._is_external(v)]
        placed: dict[str, Placed] = {}
        for n, name in enumerate(externals):
            value = self.values[name]
            if value.dtype is not None:
                shape = doors.stored_shape(value.dtype, shapes[name])
                placed[name] = Placed(FIRST_EXTERNAL + n, 0, shape, strides.get(name))
        chains = self._chains(shapes, self._lifetimes(shapes, groups), separate)
        spans = tuple(range(n, n + len(chain.steps)) for n, chain in chains.items())
        requests = self._lifetimes(shapes, (*groups, *spans))
        held = [name for chain in chains.values() for name in chain.held]
        bases = FIRST_EXTERNAL + len(externals)
        for n, name in enumerate(held):
            dtype = self.values[name].dtype
            assert dtype is not None
            placed[name] = Placed(bases + n, 0, doors.stored_shape(dtype, shapes[name]), None, passing=True)
            del requests[name]
        offsets, peak = plan_offsets([(*r, max(64, self.aligns.get(name, 1))) for name, r in requests.items()])
        for name, offset in zip(requests, offsets, strict=True):
            dtype = self.values[name].dtype
            assert dtype is not None
            placed[name] = Placed(ARENA, offset, doors.stored_shape(dtype, shapes[name]), None)
        local = _Local()
        laid: list[Laid] = []
        while len(laid) < len(self.order):
            n = len(laid)
            if n not in chains:
                local.begin(0)
                laid.append(self._lay(self.order[n], env, placed, local))
                continue
            made = self._lay_chain(chains[n], env, placed, local)
            if made is None:
                return self.bind(env, strides, separate | {n}, groups)
            laid += made
        if not groups and (found := self._independent(laid)):
            return self.bind(env, strides, separate, found)
        for group in groups:
            self._merge([laid[n] for n in group])
        verify(laid, placed, shapes, chains.values(), self.pipe.updates.values())
        parts = self._parts(laid)
        programs = [p for p in parts if isinstance(p, Program)]
        return Binding(
            env=env,
            shapes=shapes,
            placed=placed,
            externals=tuple(externals),
            laid=laid,
            parts=parts,
            bases=bases + len(held),
            arena_bytes=peak,
            arena_bound=lower_bound(requests.values()),
            requests=requests,
            local_bytes=local.peak,
            parallel=self.threads > 1 and any(stage.tiles > 1 for item in laid for stage in item.stages),
            progress_words=max((p.progress_words for p in programs), default=1),
            chains=tuple(chains.values()),
        )

    def _chains(
        self,
        shapes: Mapping[str, tuple[int, ...]],
        requests: Mapping[str, tuple[int, int, int]],
        separate: frozenset[int],
    ) -> dict[int, Chain]:
        """Runs of steps that are worth running tile by tile, by the position of their first step."""
        if not self.chain:
            return {}
        kept = self.outputs | {id(v) for v in self.pipe.updates.values()}
        nbytes = {name: request[0] for name, request in requests.items()}
        found = find_chains(self.order, kept, shapes, nbytes, self.threads, self.tile)
        staged = {step.name for chain in found.values() for step in chain.steps}
        for name, tile in self.tile.items():
            if tile.get(STAGE) and name not in staged and any(tile is given for given in self.tiles.given.values()):
                raise ArgumentError(
                    f"tile= asks for {STAGE}={tile[STAGE]} at step {name!r}, which is in no stage: its neighbours do not "
                    f"follow one axis with it, or what passes between them is needed in full"
                )
        return {n: chain for n, chain in found.items() if n not in separate}

    def _lay_chain(
        self, chain: Chain, env: dict[str, int], placed: Mapping[str, Placed], local: _Local
    ) -> list[Laid] | None:
        """The chain's steps as the rows of one stage, or None where one of them is not a single sweep.

        The stage belongs to the first step; the others have none of their own.
        """
        links = list(zip(chain.steps, chain.axes, strict=True))
        cuts = dict(zip((step.name for step in chain.steps), chain.cuts, strict=True))
        tiles = len(chain.cuts[0])
        asked = []
        for name, (first, last) in lives(links, chain.held).items():
            where, cut = placed[name], cuts[chain.steps[first].name]
            row = contiguous(where.shape, self._item(name))[chain.held[name]]
            most = int((cut[:, 1] - cut[:, 0]).max())
            asked.append((name, Request(most * row, first, last, max(64, self.aligns.get(name, 1))), cut[:, 0] * row))
        offsets, beyond = plan_offsets([request for _, request, _ in asked])
        fixes = [
            Fix(placed[name].base, offset, np.ascontiguousarray(displacement))
            for (name, _, displacement), offset in zip(asked, offsets, strict=True)
        ]
        laid, rows = [], []
        for step, axis in links:
            local.begin(beyond)
            item = self._lay(step, env, placed, local)
            if item.python or len(item.stages) != 1 or len(item.stages[0].rows) != 1:
                return None
            space = index_space(step.kernel)
            assert space is not None
            at = [a.name for a in space.axes].index(axis)
            whole = item.cuts[0].ranges
            ranges = np.empty((tiles, whole.shape[1]), np.int64)
            ranges[:, 0::2], ranges[:, 1::2] = whole[:, 0::2].min(axis=0), whole[:, 1::2].max(axis=0)
            ranges[:, 2 * at : 2 * at + 2] = cuts[step.name]
            row_of = item.stages[0].rows[0]
            rows.append(dataclasses.replace(row_of, ranges=ranges, cost=item.cost / tiles))
            item.cuts[0] = Cut(ranges, (tiles,), item.cuts[0].cost)
            item.stages = []
            laid.append(item)
        local.begin(beyond)
        local.take(0)
        laid[0].stages = [Stage(tiles, tuple(rows), tuple(fixes))]
        return laid

    def _item(self, name: str) -> int:
        dtype = self.values[name].dtype
        assert dtype is not None
        return dtype.numpy.itemsize

    def _is_external(self, value: Value) -> bool:
        return value.kind in ("input", "argument", "state") or (id(value) in self.outputs and value.kind == "result")

    def _independent(self, laid: list[Laid]) -> tuple[range, ...]:
        """Runs of neighbouring steps, none of which reads another, that are worth running at once.

        A step that cannot be cut would be left to a single thread, which is worth it where it has some work. After short
        ones that are cut, threads would wait for each other longer than they save.
        """
        found: list[range] = []
        start = 0
        while self.threads > 1 and start < len(laid):
            end = start
            while (
                end < len(laid)
                and _joins(laid[end])
                and not _depends(laid[end].step, [x.step for x in laid[start:end]])
            ):
                end += 1
            if end - start > 1:
                found.append(range(start, end))
            start = max(end, start + 1)
        return tuple(found)

    @staticmethod
    def _merge(items: list[Laid]) -> None:
        """One stage of steps that run at once; it belongs to the first of them."""
        rows = tuple(
            dataclasses.replace(row, ranges=row.ranges[n : n + 1])
            for item in items
            for stage in item.stages
            for row in stage.rows
            for n in range(stage.tiles)
        )
        for item in items:
            item.stages = []
            item.beside = tuple(other.step.name for other in items if other is not item)
        items[0].stages = [Stage(len(rows), rows, spread=True)]

    def _lifetimes(
        self, shapes: Mapping[str, tuple[int, ...]], groups: tuple[range, ...] = ()
    ) -> dict[str, tuple[int, int, int]]:
        """Bytes, first and last position of every intermediate; steps that run at once have one position."""
        position = list(range(len(self.order)))
        for group in groups:
            for n in group:
                position[n] = group[0]
        last: dict[str, int] = {}
        for n, step in zip(position, self.order, strict=True):
            for value in [*step.inputs.values(), *step.outputs.values()]:
                last[value.name] = n
        for value in self.pipe.updates.values():
            last[value.name] = len(self.order)
        requests = {}
        for n, step in zip(position, self.order, strict=True):
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
        operands = {slot: self._operand(value, placed) for slot, value in {**step.inputs, **step.outputs}.items()}
        for spec in step.specs:
            if spec.slot in operands and isinstance(operands[spec.slot], Operand):
                doors.check_strides(step.name, spec, operands[spec.slot])
        ctx = RecordingContext(step.name, step.specs, operands, local.take)
        with named(step):
            try:
                step.kernel.execute(ctx)
            except NeedsData as reason:
                laid.python = f"asks for {reason}"
                return laid
        if not ctx.sweeps:
            laid.python = "does not sweep"
            return laid
        with named(step):
            for kernel, swept in ctx.sweeps:
                self._lay_sweep(laid, kernel, swept, env)
                if laid.python:
                    laid.stages.clear()
                    break
        return laid

    def _operand(self, value: Value, placed: Mapping[str, Placed]) -> Any:
        if value.kind == "constant":
            data = self.constants[value.name]
            return Operand.of(data) if isinstance(data, np.ndarray) else data
        if value.dtype is None:
            return None
        where = placed[value.name]
        return Operand.make(where.base, where.offset, value.dtype.numpy, where.shape, where.strides, where.passing)

    def _lay_sweep(self, laid: Laid, kernel: Any, swept: Sequence[Operand], env: Mapping[str, int]) -> None:
        step = laid.step
        facts = {
            **self.facts,
            "kernel": kernel,
            "dtypes": tuple(dtypes.get(o.dtype).name for o in swept),
            "ranks": tuple(o.ndim for o in swept),
        }
        variant, implementation = choose(kernel, self.backend, facts)
        tile = self._tile_of(step, variant, kernel, facts["dtypes"], env)
        params: tuple[int, ...] = ()
        leading = len(swept)
        if isinstance(implementation, factory.WithParams):
            params, leading = tuple(implementation.params(*swept)), leading - implementation.trailing
            implementation = implementation.tile
        else:
            params = variant.params(tile)
        if isinstance(implementation, factory.Whole) or forge.jit_disabled() or not _compilable(implementation):
            laid.python = f"runs {variant.name}/{variant.variant} of {variant.backend} in Python"
            return
        laid.chosen.append((variant.name, variant.variant))
        laid.details.append(kernel.detail(*swept) if hasattr(kernel, "detail") else "")
        sizes = extents(kernel, step.sizes, env)
        types = tuple(OperandType(dtypes.get(o.dtype).name, o.ndim) for o in swept)
        compiled = forge.entry(implementation, len(sizes), types, len(params))
        words = [[o.base, o.offset, *o.shape, *o.strides] for o in swept]
        block = np.array([*itertools.chain(*words[:leading], params, *words[leading:])], np.int64)
        axes = {name: n for name, n in tile.items() if name not in variant.tile_params and name != STAGE}
        how = cut(kernel, sizes, swept, self.threads, axes)
        laid.cuts.append(how)
        laid.swept.append(kernel)
        laid.cost += how.cost
        space = index_space(kernel)
        assert space is not None
        more, laid.kind = operations(kernel, {a.name: n for a, n in zip(space.axes, sizes, strict=True)}, swept)
        laid.operations += more
        if how.ranges.shape[0]:
            tiles = len(how.ranges)
            lengths = [0, *itertools.accumulate([*map(len, words[:leading]), len(params), *map(len, words[leading:])])]
            begins = [*lengths[:leading], *lengths[leading + 1 : -1]]
            places = tuple((n, o.ndim) for n, o in zip(begins, swept, strict=True))
            given = tuple(o.constant for o in swept)
            stages = in_turn(space.axes, sizes, how)
            cost = how.cost / (tiles * len(stages))
            for ranges in stages:
                row = Row(compiled.address, block, ranges, step.name, cost, compiled, places, given)
                laid.stages.append(Stage(tiles, (row,)))

    def _tile_of(
        self, step: Step, variant: factory.Variant, kernel: Any, types: tuple[str, ...], env: Mapping[str, int]
    ) -> Mapping[str, int]:
        if step.name in self.tile:
            return self.tile[step.name]
        sizes = {name: evaluate(x, env) for name, x in step.sizes.items() if name != "..."}
        return self.tiles.of([step.name], variant, kernel, types, sizes)

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


def _joins(item: Laid) -> bool:
    """Whether a step is one tile with work enough for a thread, or a short one of several."""
    if len(item.stages) != 1 or len(item.stages[0].rows) != 1 or item.stages[0].fixes:
        return False
    return item.cost >= SMALL / 4 if item.stages[0].tiles == 1 else item.cost < BRIEF


def _depends(step: Step, earlier: list[Step]) -> bool:
    """Whether a step reads what one of the others writes, or shares a state with one."""
    written = {id(v) for other in earlier for v in other.outputs.values()}
    touched = {
        id(v) for other in earlier for v in [*other.inputs.values(), *other.outputs.values()] if v.kind == "state"
    }
    mine = [*step.inputs.values(), *step.outputs.values()]
    return any(id(v) in written or id(v) in touched for v in mine)


class _Local:
    """Offsets in each worker's own memory. A step's scratch begins anew: steps do not run at once in one worker."""

    def __init__(self) -> None:
        self.next = 0
        self.peak = 0

    def begin(self, start: int) -> None:
        self.next = start

    def take(self, nbytes: int) -> Operand:
        start = -(-self.next // 64) * 64
        self.next = start + nbytes
        self.peak = max(self.peak, self.next)
        return Operand.make(LOCAL, start, np.uint8, (nbytes,))


def _compilable(implementation: Any) -> bool:
    return isinstance(implementation, forge.Native) or hasattr(implementation, "py_func")


__all__ = ["Binder", "Binding", "Laid", "PipelineError", "Placed", "address_of"]
