"""Measuring a plan: the whole run, the native program, what walking it costs, and each kernel in a hot loop."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ..primitives import dtypes
from ..primitives.memory import address_of
from . import inputs as doors
from .launcher import DONE, Launcher, usable
from .profile import Event, Profile, StepProfile
from .program import Program, RunMemory, Stage, clock, nothing_address, worker_address
from .states import RunStates

if TYPE_CHECKING:
    from .binding import Laid
    from .bound import Bound
    from .plan import TilingPlan

log = logging.getLogger("tilework")

LOOP_S = 2e-3  # how long one sample of a hot loop takes about
MOST_LOOPS = 1000
ROWS = 128  # entries of a native loop
SIZES = (256 << 10, 8 << 20, 64 << 20)  # bytes of the arrays that the read bandwidth is probed with: L2, L3, memory


def profile(plan: TilingPlan, inputs: Mapping[str, Any], repeat: int) -> Profile:
    """Medians over `repeat` runs; steps that run as one stage are timed apart, each over all of its tiles."""
    repeat = max(1, repeat)
    state = {k: v.copy() for k, v in plan.state.items()}

    def once(out: Any = None) -> dict[str, Any]:
        return plan.run(inputs, out, state=dict(state) if plan._has_state else None)

    results = once()
    once(results)
    total = _median(lambda: once(results), repeat)
    bound = next(reversed(plan._bindings.values()))
    arrays = {name: doors.as_array(value, inputs[name]) for name, value in plan._wanted.items()}
    direct = {value: results[name] for value, name in bound._direct.items()}
    external = {**arrays, **RunStates(bound, state, arrays).arrays, **direct}
    memory = bound.take()
    try:
        bound._point(memory, external)
        parallel = bound.wants_threads()
        native = _median(_native(bound, memory, external, parallel), repeat)
        each = _dispatch(bound, memory)
        steps = [_step(plan, bound, memory, external, item, each, repeat) for item in bound.binding.laid]
        events = _events(bound, memory, external)
    finally:
        bound.give_back(memory)
    calls = sum(step.calls for step in steps if not step.python)
    found = Profile(
        plan.pipe.name,
        total,
        tuple(steps),
        repeat,
        native_s=min(native, total),
        dispatch_s=each * calls,
        threads=memory.workers if parallel else 1,
        peaks=peaks(),
        events=events,
    )
    if found.warning:
        log.warning("%s", found.warning)
    return found


def _median(call: Callable[[], Any], repeat: int) -> float:
    """Seconds of a call: the median of samples that are long enough for the clock."""
    start = time.perf_counter()
    call()
    loops = int(min(MOST_LOOPS, max(1, LOOP_S / max(time.perf_counter() - start, 1e-7))))
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        for _ in range(loops):
            call()
        times.append((time.perf_counter() - start) / loops)
    return float(np.median(times))


def _native(bound: Bound, memory: RunMemory, external: Mapping[str, Any], parallel: bool) -> Callable[[], Any]:
    """A call that runs the parts of a plan with nothing around them, as far as that can be had."""
    parts = bound.binding.parts
    if len(parts) == 1 and isinstance(parts[0], Program) and usable():
        launch = Launcher(parts[0], memory, (), bound.cost, parallel).call
        return _started(launch, lambda: _parts(bound, memory, external, parallel))
    return lambda: _parts(bound, memory, external, parallel)


def _parts(bound: Bound, memory: RunMemory, external: Mapping[str, Any], parallel: bool) -> None:
    for part in bound.binding.parts:
        if isinstance(part, Program):
            memory.run(part, parallel)
        else:
            bound._run_python(part, memory, external)


def _dispatch(bound: Bound, memory: RunMemory) -> float:
    """Seconds that the native loop spends for one entry: the program is walked with entries that do nothing."""
    stages = [s for part in bound.binding.parts if isinstance(part, Program) for s in part.stages]
    idle = [replace(s, rows=tuple(replace(r, address=nothing_address()) for r in s.rows)) for s in stages]
    calls = sum(_calls(stage) for stage in idle)
    return _hot(idle, memory, 3) / calls if calls else 0.0


def _calls(stage: Stage) -> int:
    return stage.tiles * (1 if stage.spread else len(stage.rows))


def _hot(stages: list[Stage], memory: RunMemory, repeat: int) -> float:
    """Seconds of one turn of these stages on one thread, in a loop long enough for the clock.

    The loop is native as far as its tables stay in the first cache, as those of the program itself do.
    """
    times = max(1, ROWS // sum(_calls(stage) for stage in stages))
    program = Program(stages * times)
    run: Callable[[], Any] = lambda: memory.run(program, False)  # noqa: E731
    if usable():
        run = _started(Launcher(program, memory, (), 0.0, False).call, run)
    return _median(run, repeat) / times


def _started(launch: Callable[[], int], otherwise: Callable[[], Any]) -> Callable[[], None]:
    def call() -> None:
        if launch() != DONE:  # it paused for Python's signals
            otherwise()

    return call


def _step(
    plan: TilingPlan,
    bound: Bound,
    memory: RunMemory,
    external: Mapping[str, Any],
    item: Laid,
    each: float,
    repeat: int,
) -> StepProfile:
    step, name = item.step, item.step.name
    moved = 0
    for value in [*step.inputs.values(), *step.outputs.values()]:
        if value.dtype is not None:
            where = bound.binding.placed.get(value.name)
            shape = where.shape if where is not None else value.data.shape
            moved += int(np.prod(shape, dtype=np.int64)) * value.dtype.numpy.itemsize
    if item.python:
        seconds = _median(lambda: bound._run_python(step, memory, external), repeat)
        return StepProfile(name, step.kernel.name, seconds, moved, python=True)
    stages = [alone for stage in bound._program_stages() if (alone := _only(stage, name)) is not None]
    calls = sum(_calls(stage) for stage in stages)
    seconds = max(0.0, _hot(stages, memory, repeat) - each * calls) if stages else 0.0
    return StepProfile(name, step.kernel.name, seconds, moved, item.operations, item.kind, calls)


def _only(stage: Stage, name: str) -> Stage | None:
    """The rows of one step out of a stage; None if it has none there."""
    rows = tuple(row for row in stage.rows if row.step == name)
    if not rows:
        return None
    return Stage(len(rows), rows, (), True) if stage.spread else Stage(stage.tiles, rows, stage.fixes)


def _events(bound: Bound, memory: RunMemory, external: Mapping[str, Any]) -> tuple[Event, ...]:
    """Every call of one run; empty where the processor's counter cannot be read."""
    rate = _tick_s()
    if not rate:
        return ()
    worker_address(traced=True)  # compiled before the clock starts
    found: list[Event] = []
    begin = time.perf_counter()
    for part in bound.binding.parts:
        now = time.perf_counter() - begin
        if not isinstance(part, Program):
            bound._run_python(part, memory, external)
            found.append(Event(part.name, 0, 0, now, time.perf_counter() - begin - now))
            continue
        first = _ticks()
        for row, tile, worker, start, end in memory.trace(part).tolist():
            lane = (worker - memory.bases_address) // memory.bases.strides[0]
            name = part.rows[row].step
            found.append(Event(name, tile, lane, now + (start - first) * rate, (end - start) * rate))
    return tuple(sorted(found, key=lambda event: event.start_s))


def _ticks() -> int:
    word = np.zeros(1, np.int64)
    clock()(address_of(word), 0, 0)
    return int(word[0])


@lru_cache(maxsize=1)
def _tick_s() -> float:
    """Seconds of one tick of the processor's counter; 0 where it has none."""
    first, start = _ticks(), time.perf_counter()
    time.sleep(0.02)
    ticks = _ticks() - first
    return (time.perf_counter() - start) / ticks if ticks > 0 else 0.0


@lru_cache(maxsize=1)
def peaks() -> dict[str, float]:
    """What one thread of this machine does at most, probed once a process: operations and bytes a second."""
    from ..kernels.cpu import isa, peak

    level = isa.select().name
    probes = {"int8": peak.dot(level), "float32": peak.fma(level)}
    probes |= {f"bytes up to {n}": peak.read(n) for n in SIZES}
    found = {}
    for name, probe in probes.items():
        if probe is not None:
            probe.call()
            times = []
            for _ in range(3):
                start = time.perf_counter()
                probe.call()
                times.append(time.perf_counter() - start)
            found[name] = probe.work / min(times)
    return found


def operations(kernel: Any, extents: Mapping[str, int], operands: Any) -> tuple[float, str]:
    """What a kernel says it multiplies and adds (`operations(extents, *operands)`), and whose peak that counts against."""
    own = getattr(kernel, "operations", None)
    if own is None:
        return 0.0, ""
    real = dtypes.get(operands[0].dtype).kind == "float"
    return float(own(extents, *operands)), "float32" if real else "int8"


__all__ = ["operations", "peaks", "profile"]
