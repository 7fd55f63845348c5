"""`bench.sweep`: all shapes, all numbers of threads, all steps that were asked for; one result."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ...executors.tuned import STAGE
from ...primitives.errors import ArgumentError
from ...primitives.pipeline import Pipeline
from ..machine import ceilings, doctor
from . import plans, problem
from .problem import Problem
from .result import Result, Sweep
from .sweep import Options, Sweeper, Watch

Shape = str | Sequence[int] | Mapping[str, int]
EVERY = "all"


def sweep(
    kernel: Any = "",
    shapes: Iterable[Shape] | Shape = (),
    *,
    pipeline: Pipeline | None = None,
    sizes: Mapping[str, int] | None = None,
    step: str = "",
    threads: int | Sequence[int] = 1,
    device: str = "cpu",
    isa: str | None = None,
    watch: Watch | None = None,
    done: Callable[[Result], None] | None = None,
    maker: Mapping[str, Any] | None = None,
    **options: Any,
) -> Result:
    """Time the tiles of a kernel, or of a pipeline's steps, and choose one.

    kernel    a name ("gemm_u8s8s32"), a kernel, or a class of kernels that takes no arguments
    shapes    one or several: "256x768x3072", its numbers, or {size name: value}
    pipeline  instead of a kernel: a pipeline, timed whole
    sizes     of the pipeline's run-time sizes
    step      which step of the pipeline; "": its stages, or where it has none every step with tile parameters; "all":
              both, one after another, each with the tiles chosen before it
    threads   one number, or several, one after another
    device    cpu, cuda:N, or interpreter
    isa       an instruction set level instead of the best one present
    maker     more for the kernel's maker, such as {"output": "u8"} for a GEMM
    options   tiles, search, budget, cache, cold, peers, resume, save, rounds, seed: see Options
    watch     is told what happens
    done      is called with the result so far after each sweep

    Every result is compared with the right one before it is timed. Times are kept in the tuning store as they are
    found: an interrupted sweep goes on where it stopped. Raises ArgumentError for what does not exist.
    """
    chosen = Options(**options)
    counts = (threads,) if isinstance(threads, int) else tuple(threads)
    if not counts or any(n < 1 for n in counts):
        raise ArgumentError(f"threads={threads}: positive integers are needed")
    result = Result(machine_facts(isa), settings={**asdict(chosen), "isa": isa, "device": device})
    for given in _problems(kernel, shapes, pipeline, sizes, step, chosen.seed, maker or {}):
        for n in counts:
            where = plans.device(device, n, isa)
            for site, stages in _sites(given, where, step, chosen):
                own = Options(**{**vars(chosen), "tiles": {STAGE: stages} if stages else chosen.tiles})
                found = Sweeper(given, site, where, own, watch or Watch()).run()
                where.fixed[site] = {**where.fixed.get(site, {}), **found.best}
                result.sweeps.append(found)
                if done is not None:
                    done(result)
                if found.interrupted:
                    return _finished(result, counts, isa)
    return _finished(result, counts, isa)


def _finished(result: Result, threads: Sequence[int], isa: str | None) -> Result:
    result.machine["load_after"] = doctor.load()
    for n in threads:
        known = ceilings.read(n, isa)
        if known is not None and any(s.threads == n and s.unit for s in result.sweeps):
            result.ceilings[str(n)] = asdict(known)
    return result


def machine_facts(isa: str | None = None) -> dict[str, Any]:
    """What a result says of where it was measured."""
    from ... import __version__
    from ...kernels import tuning

    cpu = doctor.cpu()
    facts = {k: cpu[k] for k in ("model", "llvm_name", "usable_cores")}
    return {
        **facts,
        "isa": isa or cpu["isa"],
        "tilework": __version__,
        "compiler": tuning.compiler(),
        "load_before": doctor.load(),
    }


def _problems(
    kernel: Any, shapes: Any, pipeline: Any, sizes: Any, step: str, seed: int, maker: Mapping[str, Any]
) -> list[Problem]:
    if (pipeline is None) == (not kernel):
        raise ArgumentError("give a kernel or a pipeline, one of the two")
    if pipeline is not None:
        return [problem.of_pipeline(pipeline, sizes, seed, "" if step == EVERY else step)]
    if isinstance(shapes, (str, Mapping)) or (shapes and all(isinstance(n, int) for n in shapes)):
        shapes = [shapes]
    made = [problem.make(kernel, shape, seed, **maker) for shape in shapes]
    if not made:
        raise ArgumentError(f"which shapes of {kernel}? give some, such as 256x768x3072")
    return made


def _sites(given: Problem, where: plans.Device, step: str, options: Options) -> list[tuple[str, tuple[int, ...]]]:
    """[(step, rows of its stage to try)] of a problem, in the order in which they are swept; no rows: its own parameters."""
    if given.step:
        return [(given.step, ())]
    plan = where.plan(given)
    stages = [(s.step, s.values()) for s in plans.stages(plan, given)]
    steps: list[tuple[str, tuple[int, ...]]] = [(name, ()) for name in plans.tunables(plan)]
    if options.tiles is not None and STAGE in options.tiles:
        stages = [(name, tuple(options.tiles[STAGE])) for name, _ in stages]
    found = steps + stages if step == EVERY else stages or steps
    if not found:
        raise ArgumentError(
            f"pipeline {given.pipe.name!r} has no step with tile parameters, and no stage of several steps"
        )
    return found


__all__ = ["Options", "Result", "Sweep", "Sweeper", "Watch", "machine_facts", "sweep"]
