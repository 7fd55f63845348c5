"""What is swept: a pipeline with data, the step whose tile is varied, and how its result is checked.

A kernel's own maker knows how to build one from a shape ("MxKxN" for a GEMM); any other kernel is built from its
signature and its sizes; and a pipeline is taken as it is.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from ...executors import inputs as doors
from ...executors.profiling import operations
from ...executors.single_thread import SingleThreadExecutor
from ...executors.tiling import TilingExecutor
from ...primitives import dtypes
from ...primitives.errors import ArgumentError, KernelNotFound
from ...primitives.kernel import Kernel, index_space, signature
from ...primitives.memory import aligned_bytes
from ...primitives.pipeline import Pipeline
from ...primitives.sizes import evaluate, names, size

Array = np.ndarray[Any, Any]
LINE = 64
MOST_FOR_REFERENCE = 4e9  # operations that the NumPy reference is given; it does about 10**9 a second


@dataclass
class Problem:
    """Something to time.

    label       its shape, for people
    step        the step whose tile is varied, or "" for the pipeline's stages
    operations  multiplications and additions of one run; 0 where they are not known
    expected    the right outputs, where the maker knows them; else `reference` finds them. judge: what they come from
    allowed     {output: how far each element may be off}; exact where it has none
    case        a cases.Case where peers can be given the same bytes, with the name of its output
    """

    kernel: str
    label: str
    pipe: Pipeline
    inputs: dict[str, Any]
    step: str
    operations: float = 0.0
    expected: Callable[[], dict[str, Array]] | None = None
    judge: str = "exact arithmetic"
    allowed: dict[str, Array] = field(default_factory=dict)
    case: tuple[Any, str] | None = None

    def __post_init__(self) -> None:
        self.inputs = {n: aligned(x) if isinstance(x, np.ndarray) else x for n, x in self.inputs.items()}
        if self.case is not None:
            self.case = replace(self.case[0], a=self.inputs["a"]), self.case[1]

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Of the inputs, as `compile` takes them."""
        wanted = doors.wanted(self.pipe)
        return {n: doors.logical_shape(wanted[n], np.asarray(x)) for n, x in self.inputs.items() if wanted[n].dtype}

    @cached_property
    def bytes(self) -> float:
        """Of inputs, constants and outputs, each moved once: what no tile can avoid."""
        constants = sum(v.data.nbytes for v in self.pipe.of_kind("constant").values() if isinstance(v.data, np.ndarray))
        given = sum(np.asarray(x).nbytes for x in self.inputs.values() if not callable(x))
        return float(constants + given + sum(y.nbytes for y in self.reference[0].values()))

    @cached_property
    def reference(self) -> tuple[dict[str, Array], str]:
        """The right outputs, and who says so."""
        if self.expected is not None:
            return self.expected(), self.judge
        if self.operations <= MOST_FOR_REFERENCE:
            try:
                return SingleThreadExecutor("reference").run(self.pipe, self.inputs), "the reference in NumPy"
            except KernelNotFound:
                pass
        plain = TilingExecutor(1, fuse=False, chain=False, isa="generic", tuned=False)
        return plain.run(self.pipe, self.inputs), "plain code: no fusion, no stages, no vector instructions"

    def wrong(self, outputs: Mapping[str, Array]) -> str:
        """What is wrong with a result; empty if nothing is."""
        for name, right in self.reference[0].items():
            found = outputs[name]
            if name in self.allowed:
                apart = np.abs(found.astype(np.float64) - right.astype(np.float64))
                off = ~(apart <= self.allowed[name])
            else:
                off = found.view(f"u{found.itemsize}") != right.view(f"u{right.itemsize}")
                if right.dtype.kind == "f":
                    off &= ~(np.isnan(found) & np.isnan(right))
            if off.any():
                return f"{int(off.sum())} of {off.size} elements of {name} differ from {self.reference[1]}"
        return ""


def aligned(array: Array) -> Array:
    """A copy that begins on a cache line. Where an array lies would otherwise decide about a tenth of a small step's time."""
    copy = aligned_bytes(array.nbytes, LINE)[: array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


Maker = Callable[..., Problem]
_makers: dict[str, tuple[Maker, str]] = {}


def maker(prefix: str, shape: str) -> Callable[[Maker], Maker]:
    """Decorator: `make(kernel, shape, seed, **more)` builds a Problem for every kernel whose name begins so."""

    def add(make: Maker) -> Maker:
        _makers[prefix] = make, shape
        return make

    return add


def make(kernel: Any, shape: Any, seed: int = 0, **more: Any) -> Problem:
    """A problem for a kernel.

    kernel  a name like "gemm_u8s8s32"; a kernel object; or a class of kernels that takes no arguments
    shape   "256x768x3072" or its numbers, as the maker reads them; or {size name: value}

    Raises ArgumentError, saying what there is, for a kernel that nobody knows how to build.
    """
    from . import makers  # noqa: F401  (they register themselves)

    if isinstance(kernel, str):
        for prefix in sorted(_makers, key=len, reverse=True):
            if kernel.startswith(prefix):
                return _makers[prefix][0](kernel, shape, seed, **more)
        known = ", ".join(f"{prefix}.. ({text})" for prefix, (_, text) in sorted(_makers.items()))
        raise ArgumentError(
            f"there is no problem for kernel {kernel!r}; there is {known}; or give a kernel or a pipeline"
        )
    return of_kernel(kernel() if isinstance(kernel, type) else kernel, shape, seed)


def dimensions(shape: Any, form: str) -> tuple[int, ...]:
    """The numbers of a shape: "256x768x3072", or a sequence; `form` says how many ("MxKxN")."""
    count = form.count("x") + 1
    found = shape.lower().split("x") if isinstance(shape, str) else [str(n) for n in shape]
    if len(found) != count or not all(re.fullmatch(r"\d+", n) and int(n) for n in found):
        raise ArgumentError(f"shape {shape!r}: {form} is needed, {count} positive integers")
    return tuple(map(int, found))


def size_names(kernel: Kernel) -> list[str]:
    """The names of a kernel's sizes, in the order in which its slots name them."""
    found: dict[str, None] = {}
    for spec in signature(kernel):
        for x in spec.shape or ():
            if x != "...":
                found.update(dict.fromkeys(names(size(x))))
    return list(found)


def of_kernel(kernel: Kernel, shape: Any, seed: int = 0) -> Problem:
    """A problem for a kernel by itself: random inputs of the sizes that its slots ask for.

    shape   {size name: value}, or the values in the order in which the slots name them
    """
    known = size_names(kernel)
    if not isinstance(shape, Mapping):
        shape = dict(zip(known, dimensions(shape, "x".join(known)), strict=True))
    missing = [n for n in known if n not in shape]
    if missing:
        raise ArgumentError(f"kernel {kernel.name!r} has sizes {', '.join(known)}; {', '.join(missing)} are not given")
    rng, pipe = np.random.default_rng(seed), Pipeline(kernel.name)
    inputs: dict[str, Any] = {}
    values: dict[str, Any] = {}
    for spec in signature(kernel):
        if not spec.reads or spec.optional:
            continue
        if spec.shape is None or "..." in spec.shape:
            raise ArgumentError(
                f"kernel {kernel.name!r} says no shape for its slot {spec.slot!r}; put it into a pipeline and sweep that"
            )
        dtype = spec.dtype[0] if isinstance(spec.dtype, tuple) else spec.dtype or "f32"
        if dtype == "function":
            raise ArgumentError(f"kernel {kernel.name!r} takes a function; put it into a pipeline and sweep that")
        if dtype.startswith("="):
            dtype = values[dtype[1:]].dtype.name
        dims = tuple(evaluate(size(x), shape) for x in spec.shape)
        values[spec.slot] = pipe.input(spec.slot, dtype, dims)
        inputs[spec.slot] = random(dtype, dims, rng)
    written = pipe.add(kernel, step_name=kernel.name, **values)
    slots = [spec.slot for spec in signature(kernel) if spec.writes]
    for slot, value in zip(slots, written if isinstance(written, tuple) else (written,), strict=True):
        pipe.output(slot, value)
    label = " ".join(f"{name}={shape[name]}" for name in known)
    space = index_space(kernel)
    extents = {axis.name: evaluate(axis.size(), shape) for axis in space.axes} if space is not None else {}
    return Problem(kernel.name, label, pipe, inputs, kernel.name, operations(kernel, extents, list(inputs.values()))[0])


def of_pipeline(pipe: Pipeline, sizes: Mapping[str, int] | None = None, seed: int = 0, step: str = "") -> Problem:
    """A problem for a pipeline with random inputs. sizes: of its run-time sizes. Raises SizeError where one is missing."""
    from ..targets import learn_sizes, random_array

    env = learn_sizes(pipe, {}, {name: str(n) for name, n in (sizes or {}).items()})
    rng = np.random.default_rng(seed)
    inputs = {name: random_array(value, env, rng) for name, value in doors.wanted(pipe).items()}
    label = " ".join(f"{name}={n}" for name, n in env.items()) or "fixed sizes"
    operations = 0.0
    for each in pipe.order():
        known = {name: evaluate(x, env) for name, x in each.sizes.items() if name != "..."}
        if {"M", "K", "N"} <= known.keys() and each.kernel.name.startswith("gemm"):
            batch = math.prod(n for name, n in known.items() if name in "CDEFGH")
            operations += 2.0 * known["M"] * known["K"] * known["N"] * batch
    return Problem(pipe.name, label, pipe, inputs, step, operations)


def random(dtype: str, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Integers over the type's whole range, floats from a normal distribution: friendlier data would hide saturation."""
    kind = dtypes.get(dtype)
    stored = doors.stored_shape(kind, shape)
    if kind.numpy.kind in "iu":
        limits = np.iinfo(kind.numpy)
        return rng.integers(limits.min, limits.max, stored, kind.numpy, endpoint=True)
    if kind.numpy.kind == "b":
        return rng.integers(0, 2, stored).astype(bool)
    return rng.standard_normal(stored).astype(kind.numpy)
