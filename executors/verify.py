"""The borrow checker's rule, proven on a finished program: between barriers, one writer or many readers of every byte.

Tiles of one stage may run at once and in any order. So of every value that a stage writes, each tile must write a part
of its own, which holds where the value follows every axis that is cut; and nothing that a stage writes may be what
another of its tiles reads. Steps of different stages never run at once, but they share the arena: two values that
overlap there must not be alive together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..primitives.errors import PipelineError
from ..primitives.kernel import index_space
from .chaining import dimensions
from .program import ARENA

if TYPE_CHECKING:
    from ..primitives.pipeline import Step
    from .binding import Laid, Placed


def verify(
    laid: Sequence[Laid],
    placed: Mapping[str, Placed],
    requests: Mapping[str, tuple[int, int, int]],
    held: Mapping[str, int],
) -> None:
    """Raise PipelineError naming the steps if a program breaks the rule. It cannot happen unless the planner is wrong.

    requests  bytes, first and last position of each value in the arena
    held      values that each worker has a tile of
    """
    for item in laid:
        for how in item.cuts:
            _own_parts(item.step, how.counts)
        _no_reader_of_what_is_written(item, placed, requests)
    _apart_in_the_arena(placed, requests)


def _own_parts(step: Step, counts: tuple[int, ...]) -> None:
    space = index_space(step.kernel)
    if space is None or len(counts) != len(space.axes):
        return  # a chain's cut: its one axis was followed from value to value
    cut_axes = {axis.name for axis, n in zip(space.axes, counts, strict=True) if n > 1}
    for spec in step.specs:
        value = step.outputs.get(spec.slot)
        if value is None:
            continue
        followed = {f for _, f in dimensions(spec, value) if isinstance(f, str)}
        if not cut_axes <= followed:
            raise PipelineError(
                f"step {step.name!r} is cut along {', '.join(sorted(cut_axes - followed))}, which {value.name!r} does not "
                f"follow: its tiles would write the same bytes"
            )


def _no_reader_of_what_is_written(
    item: Laid, placed: Mapping[str, Placed], requests: Mapping[str, tuple[int, int, int]]
) -> None:
    step = item.step
    for written in step.outputs.values():
        for slot, read in step.inputs.items():
            if read is written or read.name not in requests or written.name not in requests:
                continue
            if _overlap(placed[read.name], requests[read.name][0], placed[written.name], requests[written.name][0]):
                raise PipelineError(
                    f"step {step.name!r} writes {written.name!r} over {read.name!r}, which it reads at {slot!r}"
                )


def _apart_in_the_arena(placed: Mapping[str, Placed], requests: Mapping[str, tuple[int, int, int]]) -> None:
    """Sweep over positions: what comes to life is compared with what is alive."""
    alive: list[str] = []
    for name in sorted(requests, key=lambda n: requests[n][1]):
        nbytes, first, _ = requests[name]
        alive = [other for other in alive if requests[other][2] >= first]
        for other in alive:
            if _overlap(placed[name], nbytes, placed[other], requests[other][0]):
                raise PipelineError(f"{name!r} and {other!r} are alive together and overlap in the arena")
        alive.append(name)


def _overlap(a: Placed, a_bytes: int, b: Placed, b_bytes: int) -> bool:
    if a.base != ARENA or b.base != ARENA:
        return False
    return a.offset < b.offset + b_bytes and b.offset < a.offset + a_bytes
