"""From the pipeline that a user wrote to the one that a backend runs: fusion, expansion, constant folding.

The result is an ordinary pipeline. Nothing here knows what a kernel computes: which steps may be fused, and what a
kernel is made of on a backend, is asked of the factory.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..kernels import factory
from ..kernels.chain import Chain, is_elementwise
from ..kernels.relayout import drop_turned, pushed
from ..primitives.errors import KernelNotFound
from ..primitives.memory import aligned_bytes
from ..primitives.pipeline import Pipeline, Step, Value
from .single_thread import SingleThreadExecutor
from .tuned import Tiles

Array = np.ndarray[Any, Any]


@dataclass
class Note:
    """What became of one step of the user's pipeline, for `explain()`."""

    steps: tuple[str, ...]
    title: str
    became: tuple[str, ...] = ()
    folded: tuple[str, ...] = ()
    implementation: str = ""
    not_fused: str = ""


@dataclass
class Lowered:
    """The pipeline as it runs, and how it came about. `values` maps the user's value names to what holds them now."""

    pipe: Pipeline
    notes: list[Note] = field(default_factory=list)
    values: dict[str, Value] = field(default_factory=dict)
    constant_bytes: int = 0


def lower(
    pipe: Pipeline,
    backend: str,
    fuse: bool = True,
    tap: Mapping[str, str] | None = None,
    tiles: Tiles | None = None,
    fold_on: str | None = None,
    **facts: Any,
) -> Lowered:
    """Fuse, expand and fold.

    tap     {output: name of a value} to add; nothing is fused across such a value
    tiles   the tile of each step, which a builder may ask for as `tile`
    fold_on backend that runs steps whose operands are all constants; None: the same one
    facts   more that a builder may ask for (isa=..., tile=...)
    """
    return _Lowering(pipe, backend, fuse, dict(tap or {}), facts, tiles or Tiles(), fold_on or backend).run()


class _Lowering:
    def __init__(
        self,
        pipe: Pipeline,
        backend: str,
        fuse: bool,
        tap: Mapping[str, str],
        facts: dict[str, Any],
        tiles: Tiles,
        fold_on: str,
    ) -> None:
        self.source = pipe
        self.fold_on = fold_on
        self.backend = backend
        self.fuse = fuse
        self.tap = tap
        self.facts = facts
        self.tiles = tiles
        self.target = Pipeline(pipe.name)
        self.result = Lowered(self.target)
        self.new: dict[int, Value] = {}
        self.order = pipe.order()
        self.used: set[int] = set()  # ids of steps that are in a chain, or looked at
        self.readers: dict[int, list[tuple[Step, str]]] = {}
        for step in self.order:
            for slot, value in step.inputs.items():
                self.readers.setdefault(id(value), []).append((step, slot))
        kept = [*pipe.outputs.values(), *pipe.updates.values(), *(v for v in self._all() if v.name in tap.values())]
        self.kept = {id(v) for v in kept}

    def _all(self) -> list[Value]:
        return [*self.source.values.values(), *(v for s in self.order for v in s.outputs.values())]

    def run(self) -> Lowered:
        for value in self.source.values.values():
            if value.kind in ("input", "constant", "argument", "state"):
                copy = self.target._declare(value.name, value.dtype, value.shape, value.kind, value.axes, value.quant)
                copy.data = value.data
                self.new[id(value)] = copy
        chains = {id(chain[-1][0]): chain for chain in self._chains()}
        inside = {id(step) for chain in chains.values() for step, _ in chain[:-1]}
        for step in self.order:
            if id(step) in inside:
                continue
            chain = chains.get(id(step))
            if chain is not None and len(chain) > 1:
                self._add_chain([s for s, _ in chain], [slot for _, slot in chain[1:]])
            else:
                self._add_step(step)
        for name, value in self.source.outputs.items():
            self.target.output(name, self.new[id(value)])
        for name, value in self.source.updates.items():
            self.target.update(self.target.values[name], self.new[id(value)])
        self.target.constraints = list(self.source.constraints)
        self.result.values = {v.name: self.new[id(v)] for v in self._all() if id(v) in self.new}
        for name, value_name in self.tap.items():
            if name not in self.target.outputs:
                self.target.output(name, self.result.values[value_name])
        self._drop_unread()
        return self.result

    # Fusion ------------------------------------------------------------------------------------------------------

    def _chains(self) -> list[list[tuple[Step, str]]]:
        """The longest runs of steps that the backend takes as one kernel: [(step, slot of the value so far), ...]."""
        found: list[list[tuple[Step, str]]] = []
        used = self.used
        for step in self.order:
            if id(step) in used:
                continue
            chain = [(step, "")]
            if self.fuse and len(step.outputs) == 1 and self._can_start(step):
                chain, reason = self._grow(chain)
                self.result.notes.append(Note(tuple(s.name for s, _ in chain), step.kernel.name, not_fused=reason))
            used |= {id(s) for s, _ in chain}
            if len(chain) > 1:
                found.append(chain)
        return found

    def _can_start(self, step: Step) -> bool:
        return bool(factory.variants(f"expand.fused_{step.kernel.name}", self.backend))

    def _grow(self, chain: list[tuple[Step, str]]) -> tuple[list[tuple[Step, str]], str]:
        """Take in one reader after another while it may be and the backend has it; and why it went no further."""
        while True:
            last = chain[-1][0]
            value = next(iter(last.outputs.values()))
            readers = self.readers.get(id(value), [])
            if id(value) in self.kept:
                return chain, f"{value.name} is an output"
            if len(readers) != 1:
                return chain, f"{value.name} is read {len(readers)} times"
            reader, slot = readers[0]
            if id(reader) in self.used:
                return chain, f"{reader.name} is fused with another step"
            if not is_elementwise(reader.kernel) or len(reader.outputs) != 1:
                return chain, f"{reader.name} is not element-wise"
            written = next(iter(reader.outputs.values()))
            if written.shape != value.shape or written.kind != "result":
                return chain, f"{reader.name} changes the shape"
            trial = [*chain, (reader, slot)]
            try:
                self._find_chain(trial)
            except KernelNotFound as error:
                return chain, f"{reader.name}: {error}"
            chain = trial

    def _find_chain(self, chain: list[tuple[Step, str]]) -> tuple[Chain, dict[str, Value], factory.Variant]:
        base = chain[0][0]
        kernel = Chain(base.kernel, tuple((step.kernel, slot) for step, slot in chain[1:]))
        operands = dict(base.inputs)
        for n, (step, slot) in enumerate(chain[1:]):
            operands |= {f"s{n}_{name}": value for name, value in step.inputs.items() if name != slot}
        variant = factory.find(f"expand.{kernel.name}", self.backend, **self._about(base.name, kernel, operands))
        return kernel, operands, variant

    def _about(self, step: str, kernel: Any, operands: dict[str, Value]) -> dict[str, Any]:
        return {
            **self.facts,
            "tile": dict(self.tiles.given.get(step, {})),
            "kernel": kernel,
            "operands": operands,
            "dtypes": tuple(v.dtype.name if v.dtype is not None else "function" for v in operands.values()),
            "ranks": tuple(v.ndim for v in operands.values()),
        }

    # Building the new pipeline -----------------------------------------------------------------------------------

    def _add_chain(self, steps: list[Step], slots: list[str]) -> None:
        kernel, operands, variant = self._find_chain(list(zip(steps, ["", *slots], strict=False)))
        self._expand(kernel, operands, variant, steps, list(steps[-1].outputs.values()))

    def _add_step(self, step: Step) -> None:
        about = self._about(step.name, step.kernel, step.inputs)
        variant = factory.find_if_any(f"expand.{step.kernel.name}", self.backend, **about)
        if variant is None:
            self._copy(step)
        else:
            self._expand(step.kernel, step.inputs, variant, [step], list(step.outputs.values()))

    def _expand(
        self, kernel: Any, operands: dict[str, Value], variant: factory.Variant, steps: list[Step], written: list[Value]
    ) -> None:
        about = self._about(steps[0].name, kernel, operands)
        names = [step.name for step in steps]
        about["tile"] = dict(self.tiles.of(names, variant, kernel, about["dtypes"], steps[0].sizes))
        made = variant.make({**about, "name": kernel.name})
        assert isinstance(made, factory.Expand)
        before = len(self.target.steps)
        mapped = {slot: self.new[id(value)] for slot, value in operands.items()}
        results = made.fn(_Folding(self.target, self.fold_on, self.result), kernel, mapped)
        for value, new in zip(written, results if isinstance(results, tuple) else (results,), strict=False):
            if value.quant is not None:
                new.quant = value.quant
            self.new[id(value)] = new
        self._note(steps, before, f"{variant.name.removeprefix('expand.')}/{variant.variant}")

    def _copy(self, step: Step) -> None:
        """Take a step over as it is; where all of its operands are constants, run it now."""
        before = len(self.target.steps)
        operands = {slot: self.new[id(value)] for slot, value in step.inputs.items()}
        for slot, value in step.outputs.items():
            if id(value) in self.new:
                operands[slot] = self.new[id(value)]
        folding = _Folding(self.target, self.fold_on, self.result)
        results = pushed(folding, step.kernel, operands, step.name)
        if results is None:
            results = folding.add(step.kernel, step_name=step.name, **operands)
        for value, new in zip(
            step.outputs.values(), results if isinstance(results, tuple) else (results,), strict=False
        ):
            if value.quant is not None:
                new.quant = value.quant
            self.new[id(value)] = new
        self._note([step], before, "")

    def _note(self, steps: list[Step], before: int, implementation: str) -> None:
        names = tuple(step.name for step in steps)
        note = next((n for n in self.result.notes if n.steps == names), None)
        if note is None:
            note = Note(names, " + ".join(step.kernel.name for step in steps))
            self.result.notes.append(note)
        note.title = " + ".join(step.kernel.name for step in steps)
        note.became = tuple(step.name for step in self.target.steps[before:])
        note.implementation = implementation

    def _drop_unread(self) -> None:
        """Forget what nothing reads any more: images that were turned for nobody, and the originals of packed weights."""
        wanted = {id(v) for v in [*self.target.outputs.values(), *self.target.updates.values()]}
        wanted |= {id(self.new[id(v)]) for v in self._all() if v.name in self.tap.values() and id(v) in self.new}
        dropped = drop_turned(self.target, wanted)
        for note in self.result.notes:
            note.became = tuple(name for name in note.became if name not in dropped)
        for name, value in list(self.result.values.items()):
            if value.producer is not None and value.producer[0].name in dropped:
                del self.result.values[name]
        read = {id(v) for step in self.target.steps for v in step.inputs.values()}
        read |= {id(v) for v in [*self.target.outputs.values(), *self.target.updates.values()]}
        for name, value in list(self.target.values.items()):
            if value.kind == "constant" and id(value) not in read:
                del self.target.values[name]
        held = {
            id(v.data): v.data.nbytes
            for v in self.target.of_kind("constant").values()
            if isinstance(v.data, np.ndarray)
        }
        self.result.constant_bytes = sum(held.values())


MOVES = ("moving.views", "moving.joins", "kernels.cast", "reduce.steps")  # where steps are that NumPy does in one call
MOVED, COMPUTED = 1 << 20, 1 << 12  # elements of constants that such steps, and others, take before code is made


class _Folding:
    """A pipeline to which steps are added; one whose operands are all constants runs at once and becomes constants."""

    def __init__(self, pipe: Pipeline, backend: str, result: Lowered) -> None:
        self.pipe = pipe
        self.backend = backend
        self.result = result

    def __getattr__(self, name: str) -> Any:
        return getattr(self.pipe, name)

    def add(self, kernel: Any, /, *, step_name: str | None = None, **operands: Any) -> Any:
        """As `Pipeline.add`."""
        written = self.pipe.add(kernel, step_name=step_name, **operands)
        step = self.pipe.steps[-1]
        inputs = list(step.inputs.values())
        if not inputs or any(v.kind != "constant" or v.dtype is None for v in inputs) or not _pure(step):
            return written
        arrays = self._run_now(step)
        self.pipe.steps.pop()
        folded = []
        for value in step.outputs.values():
            value.kind, value.producer, value.data = "constant", None, arrays[value.name]
            folded.append(value)
        return folded[0] if len(folded) == 1 else tuple(folded)

    def _run_now(self, step: Step) -> dict[str, Array]:
        single = Pipeline(step.name)
        operands = {}
        for slot, value in step.inputs.items():
            copy = single._declare(f"in.{slot}", value.dtype, value.shape, "constant", value.axes, value.quant)
            copy.data = value.data
            operands[slot] = copy
        single.add(step.kernel, step_name=step.name, **operands)
        for slot, value in single.steps[0].outputs.items():
            single.output(slot, value)
        results = SingleThreadExecutor(self._backend_of(step)).run(single)
        return {step.outputs[slot].name: aligned(array) for slot, array in results.items()}

    def _backend_of(self, step: Step) -> str:
        """What runs a step once: the reference, where compiling takes longer than that; the bits are the same."""
        values = [*step.inputs.values(), *step.outputs.values()]
        elements = max(math.prod(n for n in v.shape if isinstance(n, int)) for v in values)
        moves = type(step.kernel).__module__.endswith(MOVES)
        few = self.backend == "cpu" and elements <= (MOVED if moves else COMPUTED)
        known = moves or factory.find_if_any(step.kernel.name, "reference") is not None
        return "reference" if few and known else self.backend


def _pure(step: Step) -> bool:
    """Whether the step's result depends on its operands only, and has a size that is known now."""
    return (
        not getattr(step.kernel, "impure", False)
        and all(isinstance(x, int) for v in step.outputs.values() for x in v.shape)
        and all(v.kind == "result" for v in step.outputs.values())
    )


def aligned(array: Array, align: int = 64, slack: int = 64) -> Array:
    """A read-only contiguous copy whose first byte is aligned, with `slack` readable bytes behind it."""
    block = aligned_bytes(array.nbytes + slack, align)
    block[array.nbytes :] = 0
    copy = block[: array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    copy.flags.writeable = False
    return copy
