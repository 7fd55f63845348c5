"""Random convolutions and pools against the reference: python -m tilework.bench.checks.soak_convolutions --count 20000

They are made by tests/executors/random_convolutions.py. Each instruction set level that this machine has is a process
of its own, in which everything is compiled for a processor of that level. What the reference gives is computed once,
in the first process; the others compare with its digests. Prints what was drawn, and how many configurations are
distinct: those whose operator, sizes, types, layouts and what follows are another's differ in their numbers alone. Says
on stderr how far it is. Exits with 1 where a byte differs, and prints the seed there, from which the case can be made
again: --first SEED --count 1.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from ...executors.schemes import replay
from .sources import ROOT, module_at


def generator() -> Any:
    """The module that makes the cases; it is not installed with the package."""
    return module_at("tests", "executors", "random_convolutions.py")


def digest(result: Any) -> str:
    """Of shape, type and bytes; all NaN are one."""
    if result.dtype.kind == "f":
        result = np.where(np.isnan(result), np.float32(np.nan), result)
    return hashlib.sha1(f"{result.shape}{result.dtype}".encode() + result.tobytes()).hexdigest()


def one(made: Any, case: Any, known: dict[str, Any]) -> str:
    """What is wrong with a case; empty if nothing is."""
    seed, expected = case.seed, None
    if str(seed) not in known:
        expected = made.reference(case)
        known[str(seed)] = [list(expected.shape), expected.dtype.name, digest(expected)]
    shape, dtype, wanted = known[str(seed)]
    out = made.run(case, np.empty(shape, dtype), {"threads": 1 + seed % 2})
    if digest(out) == wanted:
        return ""
    expected = made.reference(case) if expected is None else expected
    return "" if made.same(case, out, expected) else f"{int((out != expected).sum())} of {out.size}; {case.text}"


def here(first: int, count: int, seconds: float, known: dict[str, Any], wanted: list[str]) -> dict[str, Any]:
    """Compare in this process, at its best level.

    known   {seed: shape, type and digest of the reference}; is filled
    wanted  only cases of one of these kinds; all, if there are none
    """
    from ...kernels.cpu import isa

    made, start = generator(), time.monotonic()
    level, done, wrong = isa.available()[-1].name, 0, 0
    distinct, kinds = set(), Counter[str]()
    for seed in range(first, first + count):
        try:
            case = made.make(seed)
            if wanted and not set(wanted) & set(case.kinds):
                continue
            distinct.add(case.text)
            kinds.update(case.kinds)
            text = one(made, case, known)
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
        if text:
            wrong += 1
            print(f"{level}, seed {seed}: {text}", file=sys.stderr)
        done += 1
        if done % 500 == 0:
            print(f"{level}: {done} of {count}, {wrong} wrong, {time.monotonic() - start:.0f} s", file=sys.stderr)
        if time.monotonic() - start > seconds:
            break
    return {
        "level": level, "done": done, "wrong": wrong, "seconds": time.monotonic() - start,
        "distinct": len(distinct), "kinds": dict(kinds),
    }  # fmt: skip


def elsewhere(
    level: str | None, first: int, count: int, seconds: float, file: Path, wanted: list[str]
) -> dict[str, Any]:
    """The same in a process that compiles for `level`; None is the best. file: of what is known."""
    environment = dict(os.environ)
    environment.pop("TILEWORK_ISA", None)
    if level is not None:
        environment |= {"NUMBA_CPU_NAME": replay.PROCESSORS[level]}
        environment.pop("NUMBA_CPU_FEATURES", None)
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT.parent), environment.get("PYTHONPATH", "")]))
    command = [
        sys.executable,
        "-m",
        __spec__.name if __spec__ else __name__,
        "--known",
        str(file),
        "--first",
        str(first),
    ]
    done = subprocess.run(
        [*command, "--count", str(count), "--seconds", str(seconds), *(f"--kind={kind}" for kind in wanted)],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    if done.returncode or not done.stdout.startswith("{"):
        return {"level": level or "best", "done": 0, "wrong": 1, "seconds": 0.0}
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main(given: list[str] | None = None) -> int:
    """Compare as many random cases as the command line asks for; 1 if any differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20_000, help="cases to compare on each level")
    parser.add_argument("--first", type=int, default=0, help="seed of the first")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop each level after its share of them")
    parser.add_argument("--level", action="append", help="only this level; may be repeated")
    parser.add_argument("--kind", action="append", default=[], help="only cases of this kind; may be repeated")
    parser.add_argument("--known", help=argparse.SUPPRESS)
    options = parser.parse_args(given)
    if options.known:
        file = Path(options.known)
        known = json.loads(file.read_text()) if file.exists() else {}
        found = here(options.first, options.count, options.seconds, known, options.kind)
        file.write_text(json.dumps(known))
        print(json.dumps(found))
        return 0
    from ...kernels.cpu import isa

    best = isa.available()[-1].name
    levels = [None, *replay.levels()]
    if options.level:
        unknown = sorted(set(options.level) - {best, *replay.levels()})
        if unknown:
            parser.error(f"--level {unknown[0]}: {', '.join([best, *replay.levels()])} are here")
        levels = [None if name == best else name for name in options.level]
    failed, shown = False, False
    with tempfile.TemporaryDirectory() as folder:
        for level in levels:
            file = Path(folder, "known.json")
            found = elsewhere(level, options.first, options.count, options.seconds / len(levels), file, options.kind)
            failed |= bool(found["wrong"]) or not found["done"]
            rate = 60 * found["done"] / max(found["seconds"], 1e-9)
            print(
                f"{found['level']}: {found['done']} cases, {found['wrong']} wrong, {found['seconds']:.0f} s, "
                f"{rate:.0f} a minute",
                flush=True,
            )
            if found["done"] and not shown:
                shown = True
                print(f"{found['distinct']} distinct configurations; of {found['done']} are", flush=True)
                for kind, n in sorted(found["kinds"].items()):
                    print(f"    {kind:48} {n:6}  {n / found['done']:6.1%}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
