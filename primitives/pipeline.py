"""A Pipeline is kernels and the edges between them: a static graph, checked while it is made."""

from __future__ import annotations

import heapq
import operator
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from . import dtypes
from .buffer import Buffer
from .connecting import check_acyclic, check_operands, infer_outputs
from .dtypes import DType
from .errors import DTypeMismatch, LayoutError, PipelineError, ShapeMismatch
from .given import array_of, check_quant, initial_of, number, sizes_of
from .joining import copy_in
from .kernel import ArgSpec, Kernel, signature
from .matching import Constraint, match
from .quantization import QuantParams
from .sizes import SizeLike, evaluate, show
from .values import Edge, Step, Value, origin


class Pipeline:
    """A static graph of kernels. Nothing in it knows order, tiles, threads or memory: that is the executor's.

    Build it by values (`tilework.ops`) or by `add`; every edge is checked as it is made.

    identity   what it was made from, where that says everything about it: pipelines with the same one are the same. None
               as soon as a part of it is another one
    """

    _identity: str | None = None
    _made_of: tuple[Any, ...] = ()

    def __init__(self, name: str = "pipeline") -> None:
        self.name = name
        self.steps: list[Step] = []
        self.values: dict[str, Value] = {}
        self.outputs: dict[str, Value] = {}
        self.updates: dict[str, Value] = {}
        self.constraints: list[Constraint] = []
        self._numbers: dict[str, int] = {}  # of each stem of a made-up name, the first that may be free

    @property
    def identity(self) -> str | None:
        if self._identity is not None and not _same(self._made_of, self._parts()):
            self.identity = None
        return self._identity

    @identity.setter
    def identity(self, identity: str | None) -> None:
        self._identity = identity
        self._made_of = () if identity is None else self._parts()

    def _parts(self) -> tuple[Any, ...]:
        """What it consists of: an assignment to any of it makes another pipeline."""
        found: list[Any] = [*self.outputs, *self.outputs.values(), *self.updates, *self.updates.values()]
        for step in self.steps:
            found += (step, step.kernel, *step.inputs.values(), *step.outputs.values())
        for name, value in self.values.items():
            found += (name, value, value.dtype, value.shape, value.quant, value.data)
        return tuple(found)

    # What comes in -----------------------------------------------------------------------------------------------

    def input(
        self,
        name: str,
        dtype: str | DType,
        shape: Iterable[SizeLike],
        axes: str | None = None,
        quant: QuantParams | None = None,
    ) -> Value:
        """An array given at every run. `shape` may hold names known only then: ("M", 768)."""
        return self._declare(name, dtypes.get(dtype), shape, "input", axes, quant)

    def constant(
        self, name: str | Any, array: Any = None, axes: str | None = None, quant: QuantParams | None = None
    ) -> Value:
        """An array that never changes. The pipeline keeps a read-only copy of it.

        Sub-byte codes come in a Buffer of that type; `constant(array)` alone makes a name.
        """
        if array is None:
            name, array = self._fresh("constant"), name
        if isinstance(array, Buffer):
            dtype, data, shape = array.dtype, array.view(), tuple(array.shape)
            axes, quant = axes or array.layout.axes, quant or array.quant
        else:
            data = array_of(array, "a constant")
            dtype, shape = dtypes.get(data.dtype), data.shape
        data = np.array(data, order="K", copy=True)
        data.setflags(write=False)
        value = self._declare(name, dtype, shape, "constant", axes, quant)
        value.data = data
        return value

    def argument(self, name: str, dtype: str | DType, shape: Iterable[SizeLike] = (), axes: str | None = None) -> Value:
        """A run-time argument: a scalar ("f32", "s32"), an array, a "shape" (ints), or a Python "function"."""
        if dtype == "function":
            return self._declare(name, None, (), "argument")
        if dtype == "shape":
            return self._declare(name, dtypes.get("s64"), tuple(shape) or (_size_name(name),), "argument")
        return self._declare(name, dtypes.get(dtype), shape, "argument", axes)

    def state(
        self, name: str, dtype: str | DType, shape: Iterable[SizeLike], initial: Any = 0, axes: str | None = None
    ) -> Value:
        """What lives from run to run. It starts as `initial` and changes by `update` or by a kernel's update slot."""
        sizes = sizes_of(shape, f"state {name!r}")
        data = initial_of(initial, dtypes.get(dtype), sizes, f"the initial value of state {name!r}")
        value = self._declare(name, dtypes.get(dtype), sizes, "state", axes)
        value.data = data
        return value

    def buffer(self, name: str, dtype: str | DType, shape: Iterable[SizeLike], axes: str | None = None) -> Value:
        """A value declared before the step that writes it: pass it to `add` at a written slot."""
        return self._declare(name, dtypes.get(dtype), shape, "buffer", axes)

    def _declare(
        self,
        name: str,
        dtype: DType | None,
        shape: Iterable[SizeLike],
        kind: str,
        axes: str | None = None,
        quant: QuantParams | None = None,
    ) -> Value:
        if not isinstance(name, str) or not name:
            raise PipelineError(f"a {kind} needs a name, not {name!r}")
        if name in self.values:
            raise PipelineError(f"the name {name!r} is taken: {self.values[name]!r}")
        sizes = sizes_of(shape, f"{kind} {name!r}")
        if axes is not None and (len(axes) != len(sizes) or len(set(axes)) != len(axes)):
            raise LayoutError(
                f"{kind} {name!r} has axes {axes!r} for shape {show(sizes)}; "
                f"one distinct letter per dimension is needed"
            )
        if quant is not None:
            check_quant(quant, dtype, f"{kind} {name!r}")
        if quant is not None and all(isinstance(x, int) for x in sizes):
            quant.validate_for(tuple(int(x) for x in sizes))
        value = Value(self, name, dtype, sizes, kind, axes, quant)
        self.identity = None
        self.values[name] = value
        return value

    def _fresh(self, stem: str) -> str:
        n = self._numbers.get(stem, 0)
        while (name := f"{stem}_{n}") in self.values or any(step.name == name for step in self.steps):
            n += 1
        self._numbers[stem] = n
        return name

    # Steps -------------------------------------------------------------------------------------------------------

    def add(self, kernel: Kernel, /, *, step_name: str | None = None, **operands: Any) -> Any:
        """Add a step. Keywords are the kernel's slots; arrays and numbers become constants.

        A written slot that is left out makes a new value; one that is given writes that value, which must be a
        `buffer` without a writer, or a state at an update slot. Returns the written value, or a tuple of them in the
        order of the signature.
        """
        before = set(self.values)
        try:
            return self._add(kernel, step_name, operands)
        except BaseException:
            for name in self.values.keys() - before:  # constants of a step that was refused
                del self.values[name]
            raise

    def _add(self, kernel: Kernel, step_name: str | None, operands: Mapping[str, Any]) -> Any:
        specs = signature(kernel)
        slots = {spec.slot: spec for spec in specs}
        name = step_name or self._step_name(kernel.name)
        if any(step.name == name for step in self.steps):
            raise PipelineError(f"the name {name!r} is taken by another step of {self.name!r}")
        for slot in operands:
            if slot not in slots:
                raise PipelineError(f"kernel {kernel.name!r} has no slot {slot!r}; it has {', '.join(slots)}")
        step = Step(name, kernel, specs)
        for spec in specs:
            given = operands.get(spec.slot)
            if given is None:
                if spec.reads and not spec.optional:
                    raise PipelineError(f"step {name!r} lacks its input {spec.slot!r} ({_asked(spec)})")
                continue
            value = self._as_value(given, spec, name)
            if spec.reads:
                step.inputs[spec.slot] = value
            if spec.writes:
                self._check_writable(value, spec, step)
                step.outputs[spec.slot] = value
        constraints: list[Constraint] = []
        check_operands(step, constraints)
        infer_outputs(self, step, constraints)
        check_acyclic(step)
        self.identity = None
        self.constraints += constraints
        self.steps.append(step)
        written = []
        for spec in specs:
            if spec.writes and spec.slot in step.outputs:
                value = step.outputs[spec.slot]
                if value.kind != "state":
                    value.producer = (step, spec.slot)
                if value.kind == "result":
                    self.values[value.name] = value
                written.append(value)
        return written[0] if len(written) == 1 else tuple(written)

    def _step_name(self, kernel_name: str) -> str:
        taken = {step.name for step in self.steps}
        if kernel_name not in taken:
            return kernel_name
        n = 2
        while f"{kernel_name}.{n}" in taken:
            n += 1
        return f"{kernel_name}.{n}"

    def _as_value(self, given: Any, spec: ArgSpec, step: str) -> Value:
        if isinstance(given, Value):
            if given.pipeline is not self:
                raise PipelineError(
                    f"{given.name!r} at slot {spec.slot!r} of {step!r} belongs to pipeline {given.pipeline.name!r}; "
                    f"join the two with {self.name!r}.call(other, ...)"
                )
            return given
        if isinstance(given, Buffer):
            return self.constant(self._fresh(f"{step}.{spec.slot}"), given)
        if callable(given) and spec.dtype == "function":
            value = self._declare(self._fresh(f"{step}.{spec.slot}"), None, (), "constant")
            value.data = given
            return value
        array = given if isinstance(given, (bool, int, float)) else np.asarray(given)
        if isinstance(given, (bool, int, float)) and isinstance(spec.dtype, str) and not spec.dtype.startswith("="):
            array = number(given, dtypes.get(spec.dtype), f"slot {spec.slot!r} of {step!r}")
        return self.constant(self._fresh(f"{step}.{spec.slot}"), array)

    def _check_writable(self, value: Value, spec: ArgSpec, step: Step) -> None:
        where = f"step {step.name!r} writes {value.name!r} at slot {spec.slot!r}"
        if value.kind == "state" and spec.access == "update":
            if value.name in self.updates:
                raise PipelineError(f"{where}, but update(...) gives it a new value already; a state has one writer")
            return
        if value.kind in ("constant", "input", "argument", "state"):
            raise PipelineError(
                f"{where}, but that is {'an' if value.kind[0] in 'aeiou' else 'a'} {value.kind}, which is read-only; "
                f"write a new value or a pipe.buffer(...)"
            )
        if value.producer is not None:
            writer, slot = value.producer
            raise PipelineError(f"{where}, but {writer.name!r} writes it already at {slot!r}; a value has one writer")

    # What goes out -----------------------------------------------------------------------------------------------

    def output(self, name: str, value: Value) -> None:
        """Name a value as a result of the pipeline."""
        if not isinstance(value, Value) or value.pipeline is not self:
            raise PipelineError(f"output {name!r} is {value!r}; it must be a value of pipeline {self.name!r}")
        if not isinstance(name, str) or not name:
            raise PipelineError(f"an output needs a name, not {name!r}")
        if name in self.outputs:
            raise PipelineError(f"the name {name!r} is taken: it is the output {self.outputs[name]!r}")
        if value.dtype is None:
            raise PipelineError(f"output {name!r} is a function; only data can be an output")
        self.identity = None
        self.outputs[name] = value

    def update(self, state: Value, value: Value) -> None:
        """After a run, the state becomes `value` (same type and sizes)."""
        if not isinstance(state, Value) or state.kind != "state" or state.pipeline is not self:
            raise PipelineError(f"{state!r} is not a state of {self.name!r}; declare it with pipe.state(...)")
        if not isinstance(value, Value) or value.pipeline is not self:
            raise PipelineError(f"state {state.name!r} is updated by {value!r}; a value of {self.name!r} is needed")
        writer = next((s.name for s in self.steps if state in s.outputs.values()), None)
        if writer is not None:
            raise PipelineError(f"state {state.name!r} is written already, by {writer!r}; a value has one writer")
        if state.name in self.updates:
            raise PipelineError(f"state {state.name!r} is updated already, by {self.updates[state.name].name!r}")
        if value.dtype != state.dtype:
            raise DTypeMismatch(f"state {state.name!r} is {state.dtype}, but {value.name!r} is {value.dtype}")
        constraints: list[Constraint] = []
        match(state.shape, value.shape, None, f"the update of state {state.name!r}", constraints)
        self.identity = None
        self.constraints += constraints
        self.updates[state.name] = value

    # Reading it --------------------------------------------------------------------------------------------------

    @property
    def kernels(self) -> list[Kernel]:
        """The kernels, in the order in which they run."""
        return [step.kernel for step in self.order()]

    @property
    def edges(self) -> list[Edge]:
        """Every way from a written slot, an input or a constant to a slot or an output, in running order."""
        found = []
        for step in self.order():
            for slot, value in step.inputs.items():
                source, source_slot = origin(value)
                found.append(Edge(source, source_slot, step.name, slot))
        for name, value in self.outputs.items():
            found.append(Edge(*origin(value), "", name))
        return found

    def of_kind(self, kind: str) -> dict[str, Value]:
        """The values of one kind, by name, in the order of their making."""
        return {name: value for name, value in self.values.items() if value.kind == kind}

    def fixed_shapes(self) -> dict[str, tuple[int, ...]] | None:
        """The shapes of inputs and arguments; None where a run decides some of them."""
        found = {name: v.shape for name, v in self.values.items() if v.kind in ("input", "argument")}
        if any(not isinstance(n, int) for shape in found.values() for n in shape):
            return None
        return {name: tuple(int(n) for n in shape) for name, shape in found.items()}

    def order(self) -> list[Step]:
        """The steps in topological order; among those that are ready, the one added first comes first.

        Raises PipelineError for steps that wait for each other, by way of a buffer or a state.
        """
        states = any(v.kind == "state" for s in self.steps for v in s.outputs.values())
        index = {id(step): n for n, step in enumerate(self.steps)}
        waiting: dict[int, int] = {}
        readers: dict[int, list[int]] = {n: [] for n in range(len(self.steps))}
        for n, step in enumerate(self.steps):
            before = {index[id(v.producer[0])] for v in step.inputs.values() if v.producer is not None}
            before.discard(n)
            if states:
                before |= {m for m, other in enumerate(self.steps[:n]) if self._touch_same_state(other, step)}
            waiting[n] = len(before)
            for m in before:
                readers[m].append(n)
        ready = [n for n, count in waiting.items() if count == 0]
        heapq.heapify(ready)
        done = []
        while ready:
            n = heapq.heappop(ready)
            done.append(self.steps[n])
            for m in readers[n]:
                waiting[m] -= 1
                if waiting[m] == 0:
                    heapq.heappush(ready, m)
        if len(done) < len(self.steps):
            stuck = [step.name for n, step in enumerate(self.steps) if waiting[n]]
            raise PipelineError(
                f"steps {', '.join(stuck)} wait for each other: a state's readers and writers run in the order in "
                f"which they were added; add the step that writes a buffer before those that read it"
            )
        return done

    @staticmethod
    def _touch_same_state(a: Step, b: Step) -> bool:
        """Steps around an update of one state keep the order in which they were added."""
        written = [v for s in (a, b) for v in s.outputs.values() if v.kind == "state"]
        return any(
            v in [*s.inputs.values(), *s.outputs.values()]
            for v in written
            for s in (b if v in a.outputs.values() else a,)
        )

    def for_inputs(self, inputs: Mapping[str, Any]) -> Pipeline:
        """The pipeline that runs on these inputs: this one. One whose shape depends on values gives another."""
        return self

    def validate(self) -> None:
        """Raise PipelineError for what can only be seen when it is finished: no output, or a value never written."""
        if (
            not self.outputs
            and not self.updates
            and not any(v.kind == "state" for s in self.steps for v in s.outputs.values())
        ):
            raise PipelineError(f"pipeline {self.name!r} has no output; name one with pipe.output('y', value)")
        read = [(f"slot {slot!r} of {step.name!r}", v) for step in self.steps for slot, v in step.inputs.items()]
        read += [(f"output {name!r}", v) for name, v in self.outputs.items()]
        for where, value in read:
            if value.kind == "buffer" and value.producer is None:
                raise PipelineError(f"{where} reads {value.name!r}, which no step writes")

    def check_sizes(self, env: Mapping[str, int]) -> None:
        """Raise ShapeMismatch where sizes that could not be compared when an edge was made now differ."""
        for left, right, where in self.constraints:
            if evaluate(left, env) != evaluate(right, env):
                raise ShapeMismatch(
                    f"{where}: {left} is {evaluate(left, env)} and {right} is {evaluate(right, env)}; "
                    f"they must be equal"
                )

    # Putting it into another -------------------------------------------------------------------------------------

    def call(self, other: Pipeline, /, *, prefix: str | None = None, **bindings: Any) -> Any:
        """Use another pipeline as a part of this one.

        Its inputs and arguments are the keywords; its constants, states and steps are copied under `prefix`.
        Returns its output, or {name: value} where it has several.
        """
        if other is self:
            raise PipelineError(f"pipeline {self.name!r} cannot be a part of itself")
        other.validate()
        wanted = {**other.of_kind("input"), **other.of_kind("argument")}
        for name in bindings:
            if name not in wanted:
                raise PipelineError(
                    f"pipeline {other.name!r} has no input {name!r}; it has {', '.join(wanted) or 'none'}"
                )
        for name in wanted:
            if name not in bindings:
                raise PipelineError(f"pipeline {other.name!r} lacks its input {name!r} ({wanted[name]!r})")
        prefix = self._prefix(other.name) if prefix is None else prefix
        kept = dict(self.values), list(self.steps), dict(self.updates), list(self.constraints)
        try:
            return copy_in(self, other, prefix, {name: bindings[name] for name in wanted}, wanted)
        except BaseException:
            self.values, self.steps, self.updates, self.constraints = kept
            raise

    def _prefix(self, stem: str) -> str:
        taken = [*self.values, *(step.name for step in self.steps)]
        n = 0
        while any(name.startswith(f"{stem}_{n}.") for name in taken):
            n += 1
        return f"{stem}_{n}"

    # Showing and keeping it --------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        from .drawing import text

        return text(self)

    def _repr_html_(self) -> str:
        from .drawing import html

        return html(self)

    def mermaid(self) -> str:
        """The graph as Mermaid text."""
        from .drawing import mermaid

        return mermaid(self)

    def svg(self) -> str:
        """The graph as an SVG picture."""
        from .svg import svg

        return svg(self)

    def save(self, path: Any, functions: str = "refuse") -> None:
        """Write the pipeline to one file; see `tilework.primitives.storage.save`."""
        from .storage import save

        save(self, path, functions)

    @staticmethod
    def load(path: Any, functions: str = "refuse") -> Pipeline:
        """Read a pipeline that `save` wrote; see `tilework.primitives.storage.load`."""
        from .storage import load

        return load(path, functions)


def _asked(spec: ArgSpec) -> str:
    dtype = spec.dtype if isinstance(spec.dtype, str) else " or ".join(spec.dtype) if spec.dtype else "any type"
    return f"{dtype} {show(spec.shape)}" if spec.shape is not None else dtype  # type: ignore[arg-type]


def _size_name(name: str) -> str:
    """The name of a size that belongs to an argument, whatever letters that has."""
    return "rank_of_" + "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in name)


def _same(a: tuple[Any, ...], b: tuple[Any, ...]) -> bool:
    return len(a) == len(b) and all(map(operator.is_, a, b))


__all__ = ["Edge", "Pipeline", "Step", "Value", "initial_of", "number"]
