"""Compares executors with the reference on random configurations, and shrinks what fails."""

from __future__ import annotations

import itertools
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ...executors import SingleThreadExecutor, TilingExecutor
from ...kernels.cpu import isa
from ...primitives import dtypes
from ...primitives.kernel import index_space
from ...primitives.pipeline import Pipeline
from . import codes, elements, moves, products
from .draw import LAYOUTS, SIZES, Cell, Draw, Family

FAMILIES: tuple[Family, ...] = (*elements.FAMILIES, *codes.FAMILIES, *moves.FAMILIES, *products.FAMILIES)
OTHER_LEVEL = 0.04
VARIANTS = 6  # how often sizes and elements are drawn for what was compiled once
OF: dict[Cell, Family] = {cell: family for family in FAMILIES for cell in family.cells}


def small_tiles(pipe: Pipeline) -> dict[str, dict[str, int]]:
    """The smallest tile along every axis that may be cut, of what the pipeline is lowered to."""
    found = {}
    for step in TilingExecutor(2, fuse=False, chain=False).compile(pipe).lowered.pipe.steps:
        space = index_space(step.kernel)
        written = [s for s in step.specs if s.writes]
        sizes = {
            a.name: a.multiple
            for a in (space.axes if space is not None else ())
            if a.split and all(a.name in (s.follows or ()) for s in written)
        }
        if sizes:
            found[step.name] = sizes
    return found


def executors() -> dict[str, Callable[[Pipeline], Any]]:
    """What is compared with the reference: {name: pipeline -> executor}."""
    return {
        "single thread": lambda pipe: SingleThreadExecutor(debug=True),  # guard bytes around every buffer
        "tiled on 1": lambda pipe: TilingExecutor(1),
        "tiled on 3, not fused": lambda pipe: TilingExecutor(3, fuse=False, chain=False),
        "tiled on 2, least tiles": lambda pipe: TilingExecutor(2, fuse=False, chain=False, tile=small_tiles(pipe)),
    }


def levels() -> dict[str, Callable[[Pipeline], Any]]:
    """Executors on the instruction set levels below the best, each of which compiles everything once more."""
    below = isa.available()[:-1]

    def made(name: str) -> Callable[[Pipeline], Any]:
        return lambda pipe: TilingExecutor(1, isa=name)

    return {f"tiled, {level.name}": made(level.name) for level in below}


@dataclass
class Failure:
    """A configuration whose result differs from the reference, or that could not be run."""

    cell: Cell
    layout: str
    executor: str
    seed: tuple[int, ...]
    variant: tuple[int, ...]
    limit: int
    text: str

    def script(self) -> str:
        """A script that makes it again."""
        c = self.cell
        return (
            f"from tilework.bench.prove import again\n"
            f"print(again({c.step!r}, {c.dtype!r}, {c.granularity!r}, {self.layout!r}, {self.executor!r}, "
            f"seed={self.seed}, variant={self.variant}, limit={self.limit}))"
        )


@dataclass
class Proof:
    """Configurations that were tried, and those that failed.

    covered       counts (step, dtype, granularity, layout, executor)
    other_level   how many draws also run on a lower instruction set level, which compiles them once more
    """

    covered: Counter[tuple[str, ...]] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)
    seconds: float = 0.0
    other_level: float = OTHER_LEVEL

    @property
    def count(self) -> int:
        """How many configurations were compared: one executor with the reference is one."""
        return sum(self.covered.values())

    def run(
        self,
        count: int,
        seed: int = 0,
        seconds: float = float("inf"),
        steps: str | None = None,
        stop: bool = False,
        each: Callable[[Proof], None] = lambda proof: None,
    ) -> Proof:
        """Try until there are `count`, or the time is over; `steps` keeps to cells in whose name is this text.

        stop   at the first that fails
        """
        began = time.monotonic()
        before = self.seconds
        for cell, layout, drawn in schedule(seed, steps):
            for _ in self.one(cell, layout, drawn):
                self.seconds = before + time.monotonic() - began
                each(self)
                if self.count >= count or self.seconds - before > seconds or (stop and self.failures):
                    return self
        return self

    def one(self, cell: Cell, layout: str, seed: tuple[int, ...], variants: int = VARIANTS) -> Iterator[Proof]:
        """Draw one configuration and variants of it, and run each on every executor; now and then on another
        instruction set level, too. Yields after each variant."""
        ways = executors()
        below = list(levels().items())
        place = LAYOUTS.index(layout)
        chance = np.random.default_rng([*seed, place, 1])
        if below and chance.random() < self.other_level:
            ways |= [below[int(chance.integers(len(below)))]]
        for variant in range(variants):
            drawn = (place, variant)
            wrong = compared(cell, layout, seed, SIZES[-1], ways, drawn)
            for name in ways:
                if name not in wrong:
                    self.covered[cell.step, cell.dtype, cell.granularity, layout, name] += 1
            for name, text in wrong.items():
                self.failures.append(shrunk(Failure(cell, layout, name, seed, drawn, SIZES[-1], text), ways))
            yield self
            if wrong:
                break  # the others would say the same

    def add(self, other: Proof) -> None:
        """What another one tried, too."""
        self.covered += other.covered
        self.failures += other.failures
        self.seconds += other.seconds


def chosen(steps: str | None = None) -> list[tuple[int, Cell]]:
    """Cells in whose name is this text, and their numbers."""
    found = [(n, c) for n, c in enumerate(OF) if steps is None or steps in f"{c.step}, {c.dtype}, {c.granularity}"]
    if not found:
        raise ValueError(f"no step has {steps!r} in its name; there is {', '.join(sorted({c.step for c in OF}))}")
    return found


def schedule(seed: int, steps: str | None = None) -> Iterator[tuple[Cell, str, tuple[int, ...]]]:
    """All cells in all layouts in random order, again and again, each time with another seed.

    In one round the layouts of a cell share a seed, and so their compiled code.
    """
    rng = np.random.default_rng(seed)
    places = [(number, cell, layout) for number, cell in chosen(steps) for layout in LAYOUTS]
    for turn in itertools.count():
        for n in rng.permutation(len(places)):
            number, cell, layout = places[int(n)]
            yield cell, layout, (seed, turn, number)


def compared(
    cell: Cell,
    layout: str,
    seed: tuple[int, ...],
    limit: int,
    ways: dict[str, Callable[[Pipeline], Any]],
    variant: tuple[int, ...] = (0,),
) -> dict[str, str]:
    """{executor: what is wrong} of one configuration."""
    draw = Draw(seed, layout, limit, variant)
    try:
        found = OF[cell].draw(draw, cell)
        values = found if isinstance(found, tuple) else (found,)
        for n, value in enumerate(values):
            draw.pipe.output(f"y{n}", value)
        if draw.maybe(0.1):  # outputs that no step writes by itself
            draw.pipe.output("again", values[0])
            draw.pipe.output("given", draw.pipe.values["x0"])
        right = SingleThreadExecutor("reference").run(draw.pipe, draw.inputs)
    except Exception:
        return dict.fromkeys(ways, f"the reference: {traceback.format_exc(limit=-3)}")
    for n, y in enumerate(draw.numpy):
        if not same(y, right[f"y{n}"]):
            return dict.fromkeys(ways, f"the reference, by NumPy: {difference(y, right[f'y{n}'])}")
    wrong = {}
    for name, make in ways.items():
        try:
            plan = make(draw.pipe).compile(draw.pipe)
            out = {key: np.full_like(y, y.dtype.type(0)) for key, y in right.items()}
            for y in out.values():
                y.reshape(-1).view(np.uint8)[:] = 0x5A
            result = plan.run(draw.inputs, out=out)
        except Exception:
            wrong[name] = traceback.format_exc(limit=-3)
            continue
        differing = [f"{key}: {difference(y, result[key])}" for key, y in right.items() if not same(y, result[key])]
        if differing:
            wrong[name] = "; ".join(differing)
    return wrong


def _bits(y: Any) -> Any:
    """The bytes of every element, all NaNs alike."""
    if dtypes.get(y.dtype).is_float:
        y = y.copy()
        y[np.isnan(y)] = np.nan
    return np.ascontiguousarray(y).view(np.uint8).reshape(*y.shape, y.itemsize) if y.ndim else y.tobytes()


def same(right: Any, found: Any) -> bool:
    """Whether two arrays are equal to the bit, whatever bits a NaN has."""
    if right.dtype != found.dtype or right.shape != found.shape:
        return False
    return bool(np.array_equal(_bits(right), _bits(found)))


def difference(right: Any, found: Any) -> str:
    """Where two arrays differ first, in words."""
    if right.dtype != found.dtype or right.shape != found.shape:
        return f"{found.dtype} {found.shape} instead of {right.dtype} {right.shape}"
    if not right.ndim:
        return f"{found} instead of {right}"
    at = np.argwhere((_bits(right) != _bits(found)).any(-1))
    first = tuple(int(i) for i in at[0])
    return f"{len(at)} of {right.size} elements of {right.shape} differ, first {first}: {found[first]!r}, not {right[first]!r}"


def shrunk(failure: Failure, ways: dict[str, Callable[[Pipeline], Any]]) -> Failure:
    """The same with the smallest sizes that still fail."""
    way = {failure.executor: ways[failure.executor]}
    for limit in SIZES[1:-1]:
        wrong = compared(failure.cell, failure.layout, failure.seed, limit, way, failure.variant)
        if wrong:
            return replace(failure, limit=limit, text=wrong[failure.executor])
    return failure


def again(
    step: str,
    dtype: str,
    granularity: str,
    layout: str,
    executor: str,
    *,
    seed: tuple[int, ...],
    limit: int,
    variant: tuple[int, ...] = (0,),
) -> str:
    """What is wrong with one configuration, after its pipeline; "nothing" where it is right."""
    cell = Cell(step, dtype, granularity)
    draw = Draw(seed, layout, limit, variant)
    OF[cell].draw(draw, cell)
    wrong = compared(cell, layout, seed, limit, {executor: (executors() | levels())[executor]}, variant)
    shapes = ", ".join(f"{name} {a.dtype} {a.shape}" for name, a in draw.inputs.items())
    return f"{draw.pipe!r}\n{shapes}\n{wrong.get(executor, 'nothing')}"
