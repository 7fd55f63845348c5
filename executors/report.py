"""What a plan says of itself: `explain()` and `profile()`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..primitives.sizes import show
from .profile import Profile, StepProfile
from .program import Program, RunMemory

if TYPE_CHECKING:
    from .bound import Bound
    from .tiling import TilingPlan


def explain(plan: TilingPlan) -> str:
    """The plan as text: what each step became, and for every set of sizes its tiles and memory."""
    lowered = plan.lowered
    lines = [repr(plan), "", "steps"]
    lines += [f"  {names}: folded into one scale (numerics='folded')" for names in plan.folded]
    for note in lowered.notes:
        title = " + ".join(note.steps)
        if not note.became and not note.implementation:
            lines.append(f"  {title}: computed when the plan was made")
            continue
        fused = f" (fused: {note.title})" if len(note.steps) > 1 else ""
        became = ", ".join(note.became) or "a constant"
        lines.append(
            f"  {title}{fused}\n    runs as {became}" + (f" [{note.implementation}]" if note.implementation else "")
        )
        if note.not_fused:
            lines.append(f"    not fused further: {note.not_fused}")
    lines += ["", f"constants: {lowered.constant_bytes} bytes, packed where a kernel wants them packed"]
    for bound in plan._bindings.values():
        lines += ["", *_binding(plan, bound)]
    return "\n".join(lines)


def _binding(plan: TilingPlan, bound: Bound) -> list[str]:
    binding = bound.binding
    sizes = ", ".join(f"{k} = {v}" for k, v in binding.env.items()) or "fixed sizes"
    lines = [f"at {sizes}: {'parallel' if binding.parallel else 'on one thread'}"]
    for item in binding.laid:
        if item.python:
            lines.append(f"  {item.step.name:32} Python: {item.python}")
        for (name, variant), how, detail in zip(item.chosen, item.cuts, item.details, strict=True):
            tiles = " x ".join(map(str, how.counts)) or "1"
            lines.append(f"  {item.step.name:32} {name}/{variant}, tiles {tiles}" + (f"; {detail}" if detail else ""))
        if item.beside:
            lines.append(f"{'':34} at once with {', '.join(item.beside)}")
    for chain in binding.chains:
        held = ", ".join(chain.held)
        lines.append(
            f"  one stage, {chain.tile} of {chain.size} rows at a time: {', '.join(s.name for s in chain.steps)}; "
            f"{held} exists as a tile in each thread only"
        )
    total = sum(nbytes for nbytes, _, _ in binding.requests.values())
    lines.append(
        f"  arena {binding.arena_bytes} bytes (the largest live set is {binding.arena_bound}) for {total} bytes of "
        f"intermediates; {binding.local_bytes} bytes of scratch a thread"
    )
    for name, (nbytes, first, last) in binding.requests.items():
        where = binding.placed[name]
        lines.append(f"    {where.offset:10} + {nbytes:<10} steps {first} to {last}  {name} {show(where.shape)}")
    return lines


def profile(plan: TilingPlan, inputs: Mapping[str, Any], repeat: int) -> Profile:
    """Medians over `repeat` runs: the whole run as a caller sees it, and each kernel alone, on one thread."""
    state = {k: v.copy() for k, v in plan.state.items()}
    results = plan.run(inputs, state=dict(state) if plan._has_state else None)
    totals = []
    for _ in range(max(1, repeat)):
        start = time.perf_counter()
        plan.run(inputs, results, state=dict(state) if plan._has_state else None)
        totals.append(time.perf_counter() - start)
    bound = next(reversed(plan._bindings.values()))
    memory = bound.take()
    try:
        times = _times(plan, bound, memory, inputs, results, repeat)
    finally:
        bound.give_back(memory)
    steps = []
    for item in bound.binding.laid:
        moved = 0
        for value in [*item.step.inputs.values(), *item.step.outputs.values()]:
            if value.dtype is not None:
                where = bound.binding.placed.get(value.name)
                shape = where.shape if where is not None else value.data.shape
                moved += int(np.prod(shape, dtype=np.int64)) * value.dtype.numpy.itemsize
        steps.append(StepProfile(item.step.name, item.step.kernel.name, times.get(item.step.name, 0.0), moved))
    return Profile(plan.pipe.name, float(np.median(totals)), tuple(steps), len(totals))


def _times(
    plan: TilingPlan, bound: Bound, memory: RunMemory, inputs: Mapping[str, Any], results: Any, repeat: int
) -> dict[str, float]:
    from . import inputs as doors

    arrays = {name: doors.as_array(value, inputs[name]) for name, value in plan._wanted.items()}
    states = bound.states(plan.state)
    external = {**arrays, **states, **{value: results[name] for value, name in bound._direct.items()}}
    bound._point(memory, external)
    times: dict[str, list[float]] = {}
    single = [(item, Program(item.stages) if item.stages else None) for item in bound.binding.laid]
    for _ in range(max(1, repeat)):
        for item, program in single:
            start = time.perf_counter()
            if program is not None:
                memory.run(program, False)
            elif item.python:
                bound._run_python(item.step, memory, external)
            times.setdefault(item.step.name, []).append(time.perf_counter() - start)
    return {name: float(np.median(found)) for name, found in times.items()}
