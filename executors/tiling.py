"""The executor that sees the whole pipeline: it fuses, folds, lays everything out once, and runs tiles on threads."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..primitives.errors import ArgumentError
from ..primitives.pipeline import Pipeline
from . import inputs as doors
from .kept.plan import find
from .plan import TilingPlan

Array = np.ndarray[Any, Any]


def default_threads() -> int:
    """TILEWORK_NUM_THREADS, or the processors this process may use."""
    given = os.environ.get("TILEWORK_NUM_THREADS")
    if given is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if not given.isdigit() or int(given) < 1:
        raise ArgumentError(f"TILEWORK_NUM_THREADS={given!r}: a positive integer is needed")
    return int(given)


class TilingExecutor:
    """Runs a pipeline as native code: fused, laid out once, tile by tile on several threads.

    threads   how many workers; None: TILEWORK_NUM_THREADS, or all processors
    backend   whose implementations to take
    fuse      whether element-wise steps may be compiled into the kernel before them
    chain     whether neighbouring steps may run tile by tile, so that what passes between them is a tile
    isa       an instruction set level instead of the best one present
    tile      {step: {axis: size}}: tiles of a fixed size, to see what they do. Axes of the step's index space say what
              one thread takes at a time; a GEMM also takes mr and nr (registers), mc and kc (cache blocks), and
              every step `stage`: how many rows a stage of several steps takes at a time, 0 for none
    numerics  "exact"; or "folded": two scales may become one, which changes some codes by one (`plan.difference` counts)
    tuned     whether steps without a tile= take the one that `tilework bench sweep --save` found here, if there is one.
              Which fits is known when the plan is made: run-time sizes count where `compile` is given shapes

    Results are the same to the bit for every choice of these but numerics.
    """

    def __init__(
        self,
        threads: int | None = None,
        *,
        backend: str = "cpu",
        fuse: bool = True,
        chain: bool = True,
        isa: str | None = None,
        tile: Mapping[str, Mapping[str, int]] | None = None,
        numerics: str = "exact",
        tuned: bool = True,
    ) -> None:
        if numerics not in ("exact", "folded"):
            raise ArgumentError(f"numerics={numerics!r}; 'exact' or 'folded'")
        if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int) or threads < 1):
            raise ArgumentError(f"threads={threads!r}; a positive integer is needed")
        self.threads = threads if threads is not None else default_threads()
        self.backend = backend
        self.fuse = fuse
        self.chain = chain
        self.isa = isa
        self.numerics = numerics
        self.tuned = tuned
        self.tile = _checked_tile(tile)

    def __repr__(self) -> str:
        more = "".join(
            f", {k}={v!r}" for k, v in (("backend", self.backend), ("isa", self.isa)) if v not in ("cpu", None)
        )
        return f"TilingExecutor(threads={self.threads}{more}{'' if self.fuse else ', fuse=False'})"

    def compile(self, pipe: Pipeline, shapes: Mapping[str, tuple[int, ...]] | None = None) -> TilingPlan:
        """A plan. Constants are folded and packed now; `shapes` also lays it out for these sizes now."""
        kept = find(self, pipe, None if shapes is None else {name: tuple(shape) for name, shape in shapes.items()})
        if kept is not None:
            return kept
        plan = TilingPlan(pipe, self, sizes=doors.sizes_so_far(pipe, shapes or {}))
        if shapes is not None:
            known = doors.wanted(pipe)
            for name in shapes:
                if name not in known:
                    raise ArgumentError(f"there is no input {name!r}; there is {', '.join(known) or 'none'}")
            plan.prepare({name: tuple(shape) for name, shape in shapes.items()})
        return plan

    def run(
        self, pipe: Pipeline, inputs: Mapping[str, Any] | None = None, out: Mapping[str, Any] | None = None
    ) -> dict[str, Array]:
        """Compile and run once: {output: array}. States start anew; keep a plan to keep them."""
        given = doors.as_mapping({} if inputs is None else inputs, "inputs")
        shapes = {name: x.shape for name, x in given.items() if isinstance(x, np.ndarray)}
        kept = find(self, pipe, shapes)
        if kept is not None:
            return kept.run(inputs, out=out)
        pipe = pipe.for_inputs(given)
        return TilingPlan(pipe, self, sizes=doors.sizes_so_far(pipe, shapes)).run(inputs, out=out)


def _checked_tile(tile: Any) -> dict[str, dict[str, int]]:
    """tile= as a dictionary of its own; ArgumentError for anything but {step: {axis: size}}."""
    if tile is None:
        return {}
    if not isinstance(tile, Mapping):
        raise ArgumentError(f"tile={tile!r}; {{step: {{axis: size}}}} is needed, like {{'gemm_u8s8s32': {{'m': 64}}}}")
    found: dict[str, dict[str, int]] = {}
    for step, sizes in tile.items():
        if not isinstance(step, str) or not isinstance(sizes, Mapping):
            raise ArgumentError(f"tile= has {step!r}: {sizes!r}; a step's name and {{axis: size}} are needed")
        for axis, n in sizes.items():
            if not isinstance(axis, str) or isinstance(n, bool) or not isinstance(n, (int, np.integer)):
                raise ArgumentError(f"tile= of {step!r} has {axis!r}: {n!r}; an axis and a whole number are needed")
        found[step] = {axis: int(n) for axis, n in sizes.items()}
    return found


__all__ = ["TilingExecutor", "TilingPlan", "default_threads"]
