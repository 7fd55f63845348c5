"""Sixteen threads that share plans, for as long as one likes: python -m tilework.bench.checks.soak_threads --minutes 60

Every thread takes one of the jobs at random and compares the bytes that it gives with those of the reference, which
were made beforehand: plans of random pipelines at sizes that change from run to run, on one to three threads, into
fresh arrays and into arrays of the thread's own; plans that are compiled meanwhile; products of quantized tensors;
eager steps. Exits with 1 where a byte differs or something raises.
"""

from __future__ import annotations

import argparse
import functools
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("NUMBA_NUM_THREADS", "3")  # before Numba is imported: three workers, whatever the machine has

import numpy as np

import tilework as tw

from .soak_pipelines import generator

MOST_FAULTS = 20  # then the run ends


@dataclass(frozen=True)
class Job:
    """What a thread may do: a name for it, a call that gives bytes, and the right ones."""

    name: str
    run: Callable[[], bytes]
    right: bytes


def joined(found: dict[str, Any]) -> bytes:
    """The bytes of all outputs, in the order of their names."""
    return b"".join(np.ascontiguousarray(found[name]).tobytes() for name in sorted(found))


def pipeline_jobs(first: int, count: int) -> list[Job]:
    """Runs of plans that all threads share; a pipeline with states starts from its first ones in every run."""
    pipelines, jobs = generator(), []
    for seed in range(first, first + count):
        case = pipelines.make(seed, pool=0)
        reference = tw.SingleThreadExecutor("reference").compile(case.pipe)
        rights = [joined(reference.run(inputs, state={})) for inputs in case.runs]
        for threads in (1, 2, 3):
            plan = tw.TilingExecutor(threads).compile(case.pipe)
            for inputs, right in zip(case.runs, rights, strict=True):
                jobs.append(Job(f"pipeline {seed} x{threads}", functools.partial(_run, plan, inputs), right))
                if not case.pipe.of_kind("state"):
                    jobs.append(Job(f"pipeline {seed} x{threads} out", functools.partial(_into, plan, inputs), right))
        compiling = functools.partial(_compiled, case.pipe, case.runs[0])
        jobs.append(Job(f"pipeline {seed} compiled", compiling, rights[0]))
    return jobs


def _run(plan: Any, inputs: dict[str, Any]) -> bytes:
    return joined(plan.run(inputs, state={}) if plan.pipe.of_kind("state") else plan.run(inputs))


def _into(plan: Any, inputs: dict[str, Any]) -> bytes:
    out = {name: np.full_like(y, 0x5A) for name, y in plan.run(inputs).items()}
    return joined(plan.run(inputs, out=out))


def _compiled(pipe: tw.Pipeline, inputs: dict[str, Any]) -> bytes:
    return joined(tw.TilingExecutor(2).compile(pipe).run(inputs, state={}))


def other_jobs() -> list[Job]:
    """Quantized tensors and eager steps, which keep plans of their own behind their doors."""
    rng = np.random.default_rng(0)
    jobs = []
    x = rng.standard_normal((5, 96), np.float32)
    w = rng.standard_normal((33, 96), np.float32)
    reference = tw.SingleThreadExecutor("reference")
    for name in ("int4_g32", "int8_channel", "nf4", "mxfp4"):
        scheme = tw.schemes.get(name)
        tensor, exact = scheme.quantize(w), scheme.quantize(w, executor=reference)
        jobs.append(Job(f"product {name}", functools.partial(_product, tensor, x), _product(exact, x)))
        jobs.append(Job(f"codes {name}", functools.partial(_codes, scheme, w), exact.codes.tobytes()))
    for rows in (1, 40):
        a, b = rng.integers(0, 256, (rows, 70), np.uint8), rng.integers(-128, 128, (70, 33), np.int8)
        right = ((a.astype(np.int64) - 9) @ b.astype(np.int64)).astype(np.int32).tobytes()
        jobs.append(Job(f"eager gemm {rows}", functools.partial(_eager, a, b), right))
    return jobs


def _product(tensor: Any, x: Any) -> bytes:
    return tensor.matmul(x, "f32").tobytes()


def _codes(scheme: Any, w: Any) -> bytes:
    return scheme.quantize(w).codes.tobytes()


def _eager(a: Any, b: Any) -> bytes:
    return np.asarray(tw.eager.gemm(a, b, a_zero_point=np.uint8(9))).tobytes()


def soak(
    seconds: float, threads: int = 16, pipelines: int = 12, first: int = 0, said: Callable[[str], None] | None = None
) -> tuple[Counter[str], list[str]]:
    """Runs of each kind of job, and what went wrong, a text each."""
    jobs = [*pipeline_jobs(first, pipelines), *other_jobs()]
    runs: list[Counter[str]] = [Counter() for _ in range(threads)]
    faults: list[str] = []
    end = time.monotonic() + seconds

    def work(number: int) -> None:
        draw = np.random.default_rng([first, number])
        while time.monotonic() < end and len(faults) < MOST_FAULTS:
            job = jobs[int(draw.integers(len(jobs)))]
            try:
                found = job.run()
                if found != job.right:
                    faults.append(f"thread {number}, {job.name}: other bytes than the reference")
            except Exception as error:
                faults.append(f"thread {number}, {job.name}: {type(error).__name__}: {error}")
            runs[number][job.name.split()[0]] += 1

    crew = [threading.Thread(target=work, args=(n,), daemon=True) for n in range(threads)]
    for each in crew:
        each.start()
    for each in crew:
        while each.is_alive():
            each.join(60)
            if said is not None:
                said(f"{sum(sum(r.values()) for r in runs)} runs, {len(faults)} faults")
            if time.monotonic() > end + 300:
                return sum(runs, Counter()), [*faults, f"a thread hangs; {[sum(r.values()) for r in runs]} runs each"]
    silent = [f"thread {n} ran nothing" for n, found in enumerate(runs) if not found]
    return sum(runs, Counter()), faults + silent


def main(given: list[str] | None = None) -> int:
    """Soak; 1 where something was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tilework.bench.checks.soak_threads", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--threads", type=int, default=16)
    parser.add_argument("--pipelines", type=int, default=12, help="random pipelines that are shared")
    parser.add_argument("--first", type=int, default=0, help="seed of the first pipeline")
    options = parser.parse_args(given)
    start = time.monotonic()
    runs, faults = soak(
        options.minutes * 60, options.threads, options.pipelines, options.first, lambda text: print(text, flush=True)
    )
    for text in faults:
        print(text)
    kinds = ", ".join(f"{kind} {n}" for kind, n in runs.items())
    took = (time.monotonic() - start) / 60
    print(f"{options.threads} threads, {took:.1f} minutes: {sum(runs.values())} runs, {len(faults)} faults: {kinds}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
