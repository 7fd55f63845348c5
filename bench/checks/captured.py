"""Plain Python against compiled code, over all shipped and test functions: `python -m tilework.bench.checks.captured`.

What is compared with what, to the bit (NaN is NaN):

- compiled code: the function as a step of its own and behind a product, at every instruction set level of this machine,
  each lesser one in a process that compiles for such a processor; rows of every length from 1 to 72 elements and random
  longer ones, tiles of one and three multiples of each axis and whole ones, one and two threads, odd strides;
- plain Python on arrays: the captured source, each operation on all elements at once (on_arrays.py says how);
- plain Python proper, `Captured.interpreted` called on one element at a time, which is slow: it is compared with plain
  Python on arrays over a part of the elements (`--scalar`, every hundredth).

A value that is counted is one compiled result at one level. Exits with 1 where anything differs.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

import numpy as np
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

import tilework as tw

from ...executors.schemes.replay import PROCESSORS
from ...executors.schemes.replay import levels as replay_levels
from ...kernels.cpu import isa
from ...primitives.kernel import index_space
from .captured_cases import Case, cases
from .on_arrays import evaluate

Array = np.ndarray[Any, Any]

VALUES = 10**8
SCALAR = 0.01  # part of the elements that plain Python computes one at a time as well
TAILS = 72  # rows of each length up to this, more than two of the widest vectors and a group of them
BULK = 24_000  # elements of a longer array
ALONE, BEHIND = "alone", "behind a product"


@dataclass(frozen=True)
class Way:
    """How a function is compiled and run: alone or behind a product, multiples of an axis in a tile (0: whole), threads."""

    path: str
    times: int
    threads: int


class Runner:
    """The functions as this process compiles them."""

    def __init__(self) -> None:
        self.cases = cases()
        self._plans: dict[tuple[int, Way], Any] = {}

    def run(self, index: int, way: Way, given: list[Array], strided: bool) -> Array:
        """The function of arrays (M, N); `strided`: of views with gaps, from the last column to the first."""
        given = [np.repeat(x[:, ::-1], 2, axis=1)[:, ::-2] if strided else x for x in given]
        inputs = {f"x{n}": x for n, x in enumerate(given)}
        if way.path == BEHIND:
            inputs["x0"] = given[0][:1].astype(np.int16) if given[0].dtype == np.int32 else given[0][:1]
            inputs["ones"] = np.ones((len(given[0]), 1), inputs["x0"].dtype)
        return self._plan(index, way).run(inputs)["y"]  # type: ignore[no-any-return]

    def _plan(self, index: int, way: Way) -> Any:
        if (index, way) not in self._plans:
            self._plans = {k: v for k, v in self._plans.items() if k[0] == index}  # the others have had their turn
            self._plans[index, way] = _plan(self.cases[index], way)
        return self._plans[index, way]


def _plan(case: Case, way: Way) -> Any:
    pipe = tw.Pipeline("captured")
    operands = [
        pipe.input(f"x{n}", dtype, ("M", "N")) for n, dtype in enumerate(case.sources) if n or way.path != BEHIND
    ]
    if way.path == BEHIND:
        dtype = "f32" if case.sources[0] == "f32" else "s16"
        ones, row = pipe.input("ones", dtype, ("M", 1)), pipe.input("x0", dtype, (1, "N"))
        operands.insert(0, tw.ops.gemm(ones, row))
    pipe.output("y", tw.ops.map(case.fn, *operands, dtype=case.result))
    plan = tw.TilingExecutor(way.threads).compile(pipe)
    if not way.times:
        return plan
    last = plan.lowered.pipe.order()[-1]
    space = index_space(last.kernel)
    assert space is not None
    tile = {last.name: {axis.name: axis.multiple * way.times for axis in space.axes if axis.split}}
    return tw.TilingExecutor(way.threads, tile=tile).compile(pipe)


def serve(connection: Any) -> None:
    """Run what comes in until nothing does: a process of a lesser level."""
    runner = Runner()
    while (job := connection.recv()) is not None:
        connection.send(runner.run(*job))


class Level:
    """An instruction set level: a process that compiles for such a processor, or this one for the best."""

    def __init__(self, name: str, runner: Runner | None = None) -> None:
        self.name, self.runner = name, runner
        if runner is not None:
            return
        context = get_context("spawn")
        self.connection, theirs = context.Pipe()
        before = {k: os.environ.pop(k, None) for k in ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES", "TILEWORK_ISA")}
        os.environ["NUMBA_CPU_NAME"] = PROCESSORS[name]
        self.process = context.Process(target=serve, args=(theirs,), daemon=True)
        self.process.start()
        del os.environ["NUMBA_CPU_NAME"]
        os.environ.update({k: v for k, v in before.items() if v is not None})

    def run(self, *job: Any) -> Array:
        if self.runner is not None:
            return self.runner.run(*job)
        self.connection.send(job)
        return self.connection.recv()  # type: ignore[no-any-return]

    def close(self) -> None:
        if self.runner is None:
            self.connection.send(None)
            self.process.join(10)


@dataclass
class Tally:
    """What was compared so far. results: at all levels; scalar: by plain Python proper."""

    results: int = 0
    different: int = 0
    elements: int = 0
    scalar: int = 0
    scalar_different: int = 0


def shapes(rng: np.random.Generator, elements: int) -> Iterator[tuple[int, int, bool]]:
    """(rows, columns, strided) of arrays: every tail, then longer ones until there are so many elements."""
    total = 0
    for columns in range(1, TAILS + 1):
        rows = int(rng.integers(1, 10))
        total += rows * columns
        yield rows, columns, columns % 5 == 0
    while total < elements:
        columns = int(rng.integers(100, 4000))
        rows = max(1, BULK // columns)
        total += rows * columns
        yield rows, columns, bool(rng.random() < 0.2)


def check(index: int, case: Case, levels: list[Level], elements: int, scalar: float, seed: int, tally: Tally) -> None:
    """Compare one function on about so many elements."""
    rng = np.random.default_rng([seed, index])
    paths = (ALONE, BEHIND) if case.captured.arg_kinds[0] != "b" else (ALONE,)
    for rows, columns, strided in shapes(rng, elements):
        way = Way(str(rng.choice(paths)), int(rng.choice((0, 1, 3))), int(rng.choice((1, 2))))
        given = [x.reshape(rows, columns) for x in case.inputs(rng, rows * columns)]
        if way.path == BEHIND:
            given[0] = np.repeat(_product(given[0][:1]), rows, axis=0)
        flat = [x.reshape(-1) for x in given]
        expected = evaluate(case.captured, flat).reshape(rows, columns)
        tally.elements += expected.size
        _one_at_a_time(case, flat, expected.reshape(-1), rng, scalar, tally)
        for level in levels:
            wrong = apart(expected, level.run(index, way, given, strided))
            tally.results += wrong.size
            if wrong.any():
                tally.different += int(wrong.sum())
                at = tuple(int(n) for n in np.argwhere(wrong)[0])
                values = ", ".join(repr(x[at]) for x in given)
                print(f"{case.name}({values}) at {at} of {wrong.shape}, {level.name}, {way}: not {expected[at]!r}")


def _product(row: Array) -> Array:
    """What comes out of a product with one: -0 is 0 then, and integers are held in 16 bits before it."""
    with np.errstate(invalid="ignore"):  # a NaN that signals becomes one that does not
        return row + np.float32(0) if row.dtype == np.float32 else row.astype(np.int16).astype(np.int32)


def _one_at_a_time(
    case: Case, given: list[Array], expected: Array, rng: np.random.Generator, scalar: float, tally: Tally
) -> None:
    chosen = np.flatnonzero(rng.random(expected.size) < scalar)
    if not chosen.size:
        return
    called = [case.captured.interpreted(*(x[n] for x in given)) for n in chosen]
    wrong = apart(np.array(called, expected.dtype), expected[chosen])
    tally.scalar += wrong.size
    if wrong.any():
        tally.scalar_different += int(wrong.sum())
        n = int(chosen[np.argmax(wrong)])
        print(f"{case.name}({', '.join(repr(x[n]) for x in given)}): plain Python on arrays has {expected[n]!r}")


def apart(a: Array, b: Array) -> Array:
    """Where two arrays differ in bits; NaN is NaN."""
    if a.dtype != b.dtype or a.shape != b.shape:
        raise SystemExit(f"{a.dtype} {a.shape} was expected, and {b.dtype} {b.shape} came")
    if a.dtype != np.float32:
        return np.asarray(a != b)
    bits = np.ascontiguousarray(a).view(np.int32) != np.ascontiguousarray(b).view(np.int32)
    return bits & ~(np.isnan(a) & np.isnan(b))


def main(arguments: list[str] | None = None) -> int:
    """Compare as many values as the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("functions", nargs="*", help="names; all by default")
    parser.add_argument("--values", type=float, default=VALUES, help="compiled results to compare, over all levels")
    parser.add_argument("--scalar", type=float, default=SCALAR, help="part of the elements for plain Python proper")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args(arguments)
    runner = Runner()
    chosen = [(n, c) for n, c in enumerate(runner.cases) if not asked.functions or c.name in asked.functions]
    if not chosen:
        parser.error(f"no function is called {', '.join(asked.functions)}")
    best = isa.available()[-1].name
    levels = [*(Level(name) for name in replay_levels()), Level(best, runner)]
    elements = int(asked.values / len(levels) / len(chosen)) + 1
    tally, start = Tally(), time.monotonic()
    columns = (MofNCompleteColumn(), BarColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    with Progress(*columns, transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task("", total=len(chosen))
        for n, (index, case) in enumerate(chosen):
            progress.update(task, completed=n, description=f"{case.name}: {tally.different} differ")
            check(index, case, levels, elements, asked.scalar, asked.seed, tally)
            if not sys.stderr.isatty() and n % 10 == 9:
                print(f"{n + 1} of {len(chosen)} functions, {tally}, {time.monotonic() - start:.0f} s", file=sys.stderr)
    for level in levels:
        level.close()
    print(
        f"{tally.different} of {tally.results:,} compiled results of {len(chosen)} functions differ from plain Python on "
        f"arrays, at {', '.join(level.name for level in levels)} ({tally.elements:,} elements);\n"
        f"{tally.scalar_different} of {tally.scalar:,} of these differ between plain Python on arrays and one element at a "
        f"time; {time.monotonic() - start:.0f} s"
    )
    return int(tally.different + tally.scalar_different > 0)


if __name__ == "__main__":
    sys.exit(main())
