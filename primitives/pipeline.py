"""A Pipeline is kernels and the edges between them: a static graph, checked while it is made."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from . import dtypes
from .buffer import Buffer
from .dtypes import DType
from .errors import DTypeMismatch, LayoutError, PipelineError, QuantizationError, ShapeMismatch
from .kernel import ArgSpec, Kernel, signature
from .quantization import QuantParams
from .sizes import Shape, Size, SizeLike, evaluate, floordiv, linear, names, show, size, substitute

OPAQUE = ("function",)  # arguments that are no bytes


@dataclass(eq=False)
class Value:
    """What travels along the edges: a handle with a type, not an array.

    dtype     a DType, or None for a run-time argument that is a Python function
    shape     sizes, ints or expressions of run-time names
    kind      "input", "constant", "argument", "state", "buffer" (declared, to be written) or "result"
    producer  (step, slot) that writes it, once there is one
    data      the array of a constant; the start value of a state
    """

    pipeline: Pipeline
    name: str
    dtype: DType | None
    shape: Shape
    kind: str
    axes: str | None = None
    quant: QuantParams | None = None
    producer: tuple[Step, str] | None = None
    data: Any = None

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __repr__(self) -> str:
        axes = f" {self.axes}" if self.axes else ""
        return f"<{self.kind} {self.name}: {self.dtype or 'function'} {show(self.shape)}{axes}>"

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise PipelineError(
            f"{self.name!r} is a pipeline value, which has no data yet; run the pipeline to get an array"
        )


@dataclass(eq=False)
class Step:
    """One kernel in a pipeline, with the value at each of its slots."""

    name: str
    kernel: Kernel
    specs: tuple[ArgSpec, ...]
    inputs: dict[str, Value] = field(default_factory=dict)
    outputs: dict[str, Value] = field(default_factory=dict)
    sizes: dict[str, int | Size] = field(default_factory=dict)

    def __repr__(self) -> str:
        reads = ", ".join(f"{slot}={value.name}" for slot, value in self.inputs.items())
        return f"{', '.join(v.name for v in self.outputs.values())} = {self.name}({reads})"


@dataclass(frozen=True)
class Edge:
    """One value on its way from the slot that writes it to a slot that reads it.

    source, target   step names; "" stands for the pipeline itself (its inputs, constants, arguments and outputs)
    """

    source: str
    source_slot: str
    target: str
    target_slot: str

    def __str__(self) -> str:
        return f"{self.source or 'pipeline'}.{self.source_slot} -> {self.target or 'pipeline'}.{self.target_slot}"


class Pipeline:
    """A static graph of kernels. Nothing in it knows order, tiles, threads or memory: that is the executor's.

    Build it by values (`tilework.ops`) or by `add`; every edge is checked as it is made.
    """

    def __init__(self, name: str = "pipeline") -> None:
        self.name = name
        self.steps: list[Step] = []
        self.values: dict[str, Value] = {}
        self.outputs: dict[str, Value] = {}
        self.updates: dict[str, Value] = {}
        self.constraints: list[tuple[int | Size, int | Size, str]] = []

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
            data = np.asarray(array)
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
        sizes = tuple(size(x) for x in shape)
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
        sizes = tuple(size(x) for x in shape)
        for x in sizes:
            if isinstance(x, int) and x < 0:
                raise ShapeMismatch(f"{kind} {name!r} has shape {show(sizes)}; sizes are 0 or more")
        if axes is not None and (len(axes) != len(sizes) or len(set(axes)) != len(axes)):
            raise LayoutError(
                f"{kind} {name!r} has axes {axes!r} for shape {show(sizes)}; "
                f"one distinct letter per dimension is needed"
            )
        if quant is not None:
            _check_quant(quant, dtype, f"{kind} {name!r}")
        if quant is not None and all(isinstance(x, int) for x in sizes):
            quant.validate_for(tuple(int(x) for x in sizes))
        value = Value(self, name, dtype, sizes, kind, axes, quant)
        self.values[name] = value
        return value

    def _fresh(self, stem: str) -> str:
        n = 0
        while (name := f"{stem}_{n}") in self.values or any(step.name == name for step in self.steps):
            n += 1
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
        constraints: list[tuple[int | Size, int | Size, str]] = []
        self._check_operands(step, constraints)
        self._infer_outputs(step, constraints)
        self._check_acyclic(step)
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

    def _check_operands(self, step: Step, constraints: list[tuple[int | Size, int | Size, str]]) -> None:
        for spec in step.specs:
            value = step.inputs.get(spec.slot)
            if value is None:
                continue
            where = f"slot {spec.slot!r} of {step.name!r}"
            self._check_dtype(spec, value, step, where)
            if value.axes and spec.axes and value.axes != spec.axes:
                raise LayoutError(
                    f"{where} takes axes {spec.axes}, but {value.name!r} is {value.axes}; transpose it to {spec.axes}"
                )
        learned: list[tuple[int | Size, int | Size, str]] = []
        for found in (learned, constraints):  # the first round learns names, the second also checks expressions of them
            for spec in step.specs:
                value = step.inputs.get(spec.slot)
                if value is not None and spec.shape is not None:
                    where = f"slot {spec.slot!r} of {step.name!r}, {value.name!r}"
                    _match(spec.shape, value.shape, step.sizes, where, found)

    def _check_dtype(self, spec: ArgSpec, value: Value, step: Step, where: str) -> None:
        found = value.dtype.name if value.dtype is not None else "function"
        asked = spec.dtype
        if isinstance(asked, str) and asked.startswith("="):
            other = step.inputs.get(asked[1:])
            asked = other.dtype.name if other is not None and other.dtype is not None else None
        if asked is None and found != "function":
            return
        allowed = (asked,) if isinstance(asked, str) else asked or ()
        if found not in allowed and not (allowed == ("shape",) and found == "s64"):
            raise DTypeMismatch(
                f"{where} takes {' or '.join(allowed) or 'data'}, but {value.name!r} is {found}; "
                f"cast it or choose the kernel for {found}"
            )

    def _infer_outputs(self, step: Step, constraints: list[tuple[int | Size, int | Size, str]]) -> None:
        infer: Callable[..., Mapping[str, Iterable[SizeLike]]] | None = getattr(step.kernel, "infer", None)
        inferred: Mapping[str, Iterable[SizeLike]] = {}
        if infer is not None:
            inferred = infer({slot: value.shape for slot, value in step.inputs.items()}, step.inputs)
        for spec in step.specs:
            if spec.access != "write" or (spec.optional and spec.slot not in step.outputs):
                continue
            shape = self._output_shape(step, spec, inferred)
            if spec.slot in inferred and spec.shape is not None:
                _match(spec.shape, shape, step.sizes, f"slot {spec.slot!r} of {step.name!r}", constraints)
            given = step.outputs.get(spec.slot)
            where = f"slot {spec.slot!r} of {step.name!r}"
            if given is not None:
                _match(shape, given.shape, {}, f"{where}, {given.name!r}", constraints)
                wanted = self._output_dtype(step, spec)
                if given.dtype != wanted:
                    raise DTypeMismatch(f"{where} writes {wanted}, but {given.name!r} is {given.dtype}")
                continue
            name = self._fresh(f"{step.name}.{spec.slot}") if f"{step.name}.{spec.slot}" in self.values else None
            step.outputs[spec.slot] = Value(
                self, name or f"{step.name}.{spec.slot}", self._output_dtype(step, spec), shape, "result", spec.axes
            )

    def _output_shape(self, step: Step, spec: ArgSpec, inferred: Mapping[str, Iterable[SizeLike]]) -> Shape:
        if spec.slot in inferred:
            return tuple(size(x) for x in inferred[spec.slot])
        if spec.shape is not None:
            shape: list[int | Size] = []
            for x in spec.shape:
                if x == "...":
                    shape += step.sizes.get("...", ())  # type: ignore[arg-type]
                    continue
                assert isinstance(x, (int, Size))
                unknown = names(x) - step.sizes.keys()
                if unknown:
                    raise PipelineError(
                        f"slot {spec.slot!r} of {step.name!r} has size {x}, but no operand says what "
                        f"{', '.join(sorted(unknown))} is; name it in a read slot's shape or define infer()"
                    )
                shape.append(substitute(x, step.sizes))
            return tuple(shape)
        shapes = {value.shape for value in step.inputs.values() if value.dtype is not None}
        arrays = {s for s in shapes if s} or shapes
        if len(arrays) != 1:
            raise PipelineError(
                f"slot {spec.slot!r} of {step.name!r} says no shape, and its operands have "
                f"{' and '.join(sorted(map(show, arrays))) or 'none'}; give shape= in its ArgSpec, or define infer()"
            )
        return next(iter(arrays))

    def _output_dtype(self, step: Step, spec: ArgSpec) -> DType:
        if isinstance(spec.dtype, str) and spec.dtype.startswith("="):
            source = step.inputs.get(spec.dtype[1:])
            if source is None or source.dtype is None:
                raise PipelineError(
                    f"slot {spec.slot!r} of {step.name!r} has the type of {spec.dtype[1:]!r}, which is empty"
                )
            return source.dtype
        if not isinstance(spec.dtype, str):
            raise PipelineError(
                f"slot {spec.slot!r} of {step.name!r} is written with dtype {spec.dtype!r}; "
                f"a written slot has one dtype"
            )
        return dtypes.get(spec.dtype)

    def _check_acyclic(self, step: Step) -> None:
        targets = {id(value) for value in step.outputs.values() if value.kind == "buffer"}  # a new value has no readers
        if not targets:
            return
        seen: set[int] = set()
        stack = [(value, [value.name]) for value in step.inputs.values()]
        while stack:
            value, path = stack.pop()
            if id(value) in targets:
                raise PipelineError(
                    f"step {step.name!r} closes a cycle: {' <- '.join([*path, step.name, path[0]])}; "
                    f"carry what must go round in a pipe.state(...)"
                )
            if id(value) in seen or value.producer is None:
                continue
            seen.add(id(value))
            stack += [(v, [*path, v.name]) for v in value.producer[0].inputs.values()]

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
        constraints: list[tuple[int | Size, int | Size, str]] = []
        _match(state.shape, value.shape, None, f"the update of state {state.name!r}", constraints)
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
                source, source_slot = _origin(value)
                found.append(Edge(source, source_slot, step.name, slot))
        for name, value in self.outputs.items():
            found.append(Edge(*_origin(value), "", name))
        return found

    def of_kind(self, kind: str) -> dict[str, Value]:
        """The values of one kind, by name, in the order of their making."""
        return {name: value for name, value in self.values.items() if value.kind == kind}

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
            return self._copy_in(other, prefix, {name: bindings[name] for name in wanted}, wanted)
        except BaseException:
            self.values, self.steps, self.updates, self.constraints = kept
            raise

    def _prefix(self, stem: str) -> str:
        taken = [*self.values, *(step.name for step in self.steps)]
        n = 0
        while any(name.startswith(f"{stem}_{n}.") for name in taken):
            n += 1
        return f"{stem}_{n}"

    def _copy_in(self, other: Pipeline, prefix: str, bindings: dict[str, Any], wanted: dict[str, Value]) -> Any:
        env: dict[str, Any] = {}
        new: dict[int, Value] = {}
        constraints: list[tuple[int | Size, int | Size, str]] = []
        for name, value in wanted.items():
            where = f"input {name!r} of {other.name!r}"
            given = bindings[name]
            if isinstance(given, Value):
                if given.pipeline is not self:
                    raise PipelineError(f"{where} is {given!r} of another pipeline; a value of {self.name!r} is needed")
            elif value.dtype is None:
                given = self._declare(f"{prefix}.{name}", None, (), "constant")
                given.data = bindings[name]
            else:
                plain = isinstance(given, (bool, int, float))
                given = self.constant(f"{prefix}.{name}", number(given, value.dtype, where) if plain else given)
            no_function = given.dtype is None and given.kind == "constant" and not callable(given.data)
            if given.dtype != value.dtype or no_function:
                raise DTypeMismatch(f"{where} is {value.dtype or 'a function'}, but {given.name!r} is {given.dtype}")
            new[id(value)] = given
        for found in ([], constraints):  # as in _check_operands: the first round learns names, the second checks them
            for name, value in wanted.items():
                _match(value.shape, new[id(value)].shape, env, f"input {name!r} of {other.name!r}", found)
        unknown = {n for value in other.values.values() for x in value.shape for n in names(x)} - env.keys()
        if unknown:
            raise PipelineError(
                f"sizes {', '.join(sorted(unknown))} of {other.name!r} cannot be told from its inputs' shapes here"
            )
        for value in other.values.values():
            if value.kind in ("constant", "state", "buffer"):
                copy = self._declare(
                    f"{prefix}.{value.name}",
                    value.dtype,
                    [substitute(x, env) for x in value.shape],
                    value.kind,
                    value.axes,
                    value.quant,
                )
                copy.data = value.data
                new[id(value)] = copy
        for step in other.order():
            operands = {slot: new[id(v)] for slot, v in step.inputs.items()}
            operands |= {slot: new[id(v)] for slot, v in step.outputs.items() if id(v) in new}
            written = self.add(step.kernel, step_name=f"{prefix}.{step.name}", **operands)
            for value, copy in zip(
                step.outputs.values(), written if isinstance(written, tuple) else (written,), strict=False
            ):
                copy.quant = value.quant
                new[id(value)] = copy
        for name, value in other.updates.items():
            self.update(new[id(other.values[name])], new[id(value)])
        self.constraints += constraints
        for left, right, where in other.constraints:
            self.constraints.append((substitute(left, env), substitute(right, env), f"{prefix}: {where}"))
        results = {name: new[id(value)] for name, value in other.outputs.items()}
        return next(iter(results.values())) if len(results) == 1 else results

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


def _check_quant(quant: Any, dtype: DType | None, where: str) -> None:
    """Raise unless quantization parameters speak of codes that this type holds."""
    if not isinstance(quant, QuantParams):
        raise QuantizationError(f"{where} has quant={quant!r}; a QuantParams is needed")
    codes = dtypes.get(quant.dtype)
    if dtype is not None and dtype not in (codes,) and dtype.numpy not in (codes.numpy, codes.code):
        raise QuantizationError(
            f"{where} is {dtype}, but its quantization is of {codes} codes; give QuantParams of {dtype}"
        )


def _origin(value: Value) -> tuple[str, str]:
    return (value.producer[0].name, value.producer[1]) if value.producer else ("", value.name)


def _asked(spec: ArgSpec) -> str:
    dtype = spec.dtype if isinstance(spec.dtype, str) else " or ".join(spec.dtype) if spec.dtype else "any type"
    return f"{dtype} {show(spec.shape)}" if spec.shape is not None else dtype  # type: ignore[arg-type]


def number(given: bool | int | float, dtype: DType, where: str) -> np.ndarray[Any, Any]:
    """A Python number as the type that `where` takes: exactly, but that a float is rounded to the type.

    Raises DTypeMismatch for an integer out of range, a fraction or NaN for an integer type, and a float too large.
    """
    if dtype.kind in ("uint", "int", "bool"):
        if given != given or given in (float("inf"), float("-inf")) or int(given) != given:
            raise DTypeMismatch(f"{where} takes {dtype} ({dtype.min} to {dtype.max}), not {given!r}")
        if not dtype.min <= given <= dtype.max:
            raise DTypeMismatch(f"{where} takes {dtype} ({dtype.min} to {dtype.max}), not {given!r}")
        return np.asarray(int(given), dtype.numpy)
    try:
        exact = np.float64(given)
    except OverflowError:
        raise DTypeMismatch(f"{where} takes {dtype}; {given!r} is too large for it") from None
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        found = np.asarray(exact).astype(dtype.numpy)
        if np.isfinite(exact) and not np.isfinite(found.astype(np.float64)):
            raise DTypeMismatch(f"{where} takes {dtype} ({dtype.min} to {dtype.max}); {given!r} is too large for it")
    return found


def initial_of(given: Any, dtype: DType, shape: Shape, where: str) -> np.ndarray[Any, Any]:
    """A read-only copy of what a state starts as: a number, or an array of its type that broadcasts to its shape."""
    if isinstance(given, Buffer):
        given = given.numpy()
    data = number(given, dtype, where) if isinstance(given, (bool, int, float)) else np.array(given)
    if data.dtype != dtype.numpy:
        raise DTypeMismatch(f"{where} is {data.dtype}, but the state is {dtype}; cast it with .astype()")
    stored = shape
    if shape and isinstance(shape[-1], int):
        stored = (*shape[:-1], -(-shape[-1] // dtype.per_byte))
    fits = len(data.shape) <= len(shape) and all(
        n == 1 or n == x or not isinstance(x, int) for n, x in zip(reversed(data.shape), reversed(stored), strict=False)
    )
    if not fits:
        raise ShapeMismatch(f"{where} has shape {data.shape}, which does not broadcast to {show(stored)}")
    data.setflags(write=False)
    return data


def _size_name(name: str) -> str:
    """The name of a size that belongs to an argument, whatever letters that has."""
    return "rank_of_" + "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in name)


def _match(
    asked: Iterable[Any],
    found: Shape,
    env: dict[str, Any] | None,
    where: str,
    constraints: list[tuple[int | Size, int | Size, str]],
) -> None:
    """Unify the sizes that a slot asks for with those of the value there; `env` gathers the slot's names.

    With env None the names on both sides are the pipeline's own, and sizes are only compared.
    """
    wanted = tuple(asked)
    if wanted and wanted[0] == "...":
        wanted = wanted[1:]
        if len(found) < len(wanted):
            raise ShapeMismatch(f"{where} has shape {show(found)}; at least {len(wanted)} dimensions are needed")
        lead, found = found[: len(found) - len(wanted)], found[len(found) - len(wanted) :]
        if env is not None and env.setdefault("...", lead) != lead:
            raise ShapeMismatch(f"{where} has leading sizes {show(lead)}; the others have {show(env['...'])}")
    if len(wanted) != len(found):
        raise ShapeMismatch(f"{where} has rank {len(found)}, shape {show(found)}; {show(wanted)} is asked for")
    for axis, (want, have) in enumerate(zip(wanted, found, strict=False)):
        if env is not None and isinstance(want, Size):
            unknown = names(want) - env.keys()
            if len(unknown) == 1:
                _learn(want, have, unknown.pop(), env, where, axis)
            if names(want) - env.keys():
                continue
            want = substitute(want, env)
        if want == have:
            continue
        if isinstance(want, int) and isinstance(have, int):
            raise ShapeMismatch(f"{where} has shape {show(found)}: axis {axis} is {have}, but {want} is asked for")
        constraints.append((want, have, f"{where}, axis {axis}"))


def _learn(want: Size, have: int | Size, name: str, env: dict[str, Any], where: str, axis: int) -> None:
    """Enter into `env` what `name` is, where `want` is a line in it. Whether it divides is checked by the caller."""
    line = linear(want, name, env)
    if line is None or not isinstance(line[0], int) or line[0] < 1:
        return
    value = floordiv(have + line[1] * -1, line[0])
    if isinstance(value, int) and value < 0:
        raise ShapeMismatch(f"{where}: axis {axis} is {have}, but {want} is asked for, and no size {name!r} gives that")
    env[name] = value


__all__ = ["Edge", "Pipeline", "Step", "Value"]
