"""What a plan says of itself: `explain()`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..kernels import factory
from ..kernels.relayout import Relayout
from ..primitives.kernel import index_space
from ..primitives.sizes import show
from . import inputs as doors

if TYPE_CHECKING:
    from .bound import Bound
    from .plan import TilingPlan


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
        lines += [f"    tile {plan.tiles.notes[name]}" for name in note.steps if name in plan.tiles.notes]
        if note.not_fused:
            lines.append(f"    not fused further: {note.not_fused}")
    turned = [step.name for step in lowered.pipe.steps if isinstance(step.kernel, Relayout)]
    if turned:
        lines += ["", f"layout: channels last inside; images are turned by {', '.join(turned)}"]
    lines += _in_python(plan)
    lines += ["", f"constants: {lowered.constant_bytes} bytes, packed where a kernel wants them packed"]
    for bound in plan._bindings.values():
        lines += ["", *_binding(plan, bound)]
    return "\n".join(lines)


def _in_python(plan: TilingPlan) -> list[str]:
    """Steps that run as Python or NumPy whatever the sizes: none is slow without being named."""
    found = []
    for step in plan.lowered.pipe.steps:
        if index_space(step.kernel) is None:
            found.append(f"  {step.name}: a function of whole arrays")
            continue
        facts = {
            **plan.binder.facts,
            "kernel": step.kernel,
            "dtypes": tuple(v.dtype.name if v.dtype is not None else "function" for v in step.inputs.values()),
            "ranks": tuple(v.ndim for v in step.inputs.values()),
        }
        variant = factory.find_if_any(step.kernel.name, plan.binder.backend, **facts)
        if variant is not None and "Whole" in str(variant.build.__annotations__.get("return")):
            found.append(f"  {step.name}: {variant.name}/{variant.variant}, the reference")
    return ["", "in Python, not compiled", *found] if found else []


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
        halo = f"; {chain.again - 1:.1%} of the work is done twice, at the tiles' edges" if chain.again > 1 else ""
        lines.append(
            f"  one stage, {chain.tile} of {chain.size} rows at a time: {', '.join(s.name for s in chain.steps)}; "
            f"{held} exists as a tile in each thread only{halo}"
        )
    for place, saved in (("in registers", _fused_bytes(plan, bound)), ("in a thread's own tile", _held_bytes(bound))):
        if saved:
            names = ", ".join(f"{name} {nbytes}" for name, nbytes in saved.items())
            lines.append(f"  {2 * sum(saved.values())} bytes no longer travel, there and back, {place}: {names}")
    total = sum(nbytes for nbytes, _, _ in binding.requests.values())
    lines.append(
        f"  arena {binding.arena_bytes} bytes (the largest live set is {binding.arena_bound}) for {total} bytes of "
        f"intermediates; {binding.local_bytes} bytes of scratch a thread"
    )
    for name, (nbytes, first, last) in binding.requests.items():
        where = binding.placed[name]
        lines.append(f"    {where.offset:10} + {nbytes:<10} steps {first} to {last}  {name} {show(where.shape)}")
    return lines


def _fused_bytes(plan: TilingPlan, bound: Bound) -> dict[str, int]:
    """Bytes of each value of the user's pipeline that its steps no longer write, because they became one."""
    shapes = doors.value_shapes(plan.pipe, bound.binding.env)
    steps = {step.name: step for step in plan.pipe.steps}
    found = {}
    for note in plan.lowered.notes:
        for name in note.steps[:-1] if note.became else ():
            for value in steps[name].outputs.values() if name in steps else ():
                if value.dtype is not None and value.name in shapes:
                    found[value.name] = doors.stored_bytes(value.dtype, shapes[value.name])
    return found


def _held_bytes(bound: Bound) -> dict[str, int]:
    """Bytes of each value that exists as a tile per thread only."""
    binding, values = bound.binding, bound.plan.binder.values
    names = [name for chain in binding.chains for name in chain.held]
    found = {}
    for name in names:
        dtype = values[name].dtype
        assert dtype is not None
        found[name] = doors.stored_bytes(dtype, binding.shapes[name])
    return found
