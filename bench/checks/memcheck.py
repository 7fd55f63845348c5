"""Native code under valgrind: does what is compiled read or write memory that is not its own, or decide by garbage?

    python -m tilework.bench.checks.memcheck                 the corpus of hashes.py on two executors, some minutes
    python -m tilework.bench.checks.memcheck --only softmax  members whose name holds this text

Valgrind knows no AVX-512, so the corpus is compiled for a Haswell, outside of it, and loaded inside. Python's own
allocator is replaced by malloc, so that every array has memory of its own. Errors count where a frame of compiled code
(without a symbol or a file) is the innermost; what Python, NumPy and LLVM do among themselves is counted apart. That
a read behind an array is found is tried first.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from . import hashes

PACKAGE = Path(__file__).resolve().parents[2]
TARGET = {"NUMBA_CPU_NAME": "haswell", "NUMBA_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
LEAKS = "Leak_"
STACK = 40  # frames that are kept of an error


@dataclass(frozen=True)
class Found:
    """An error as valgrind tells it: its kind, what it is in words, and the frames, the innermost first."""

    kind: str
    text: str
    frames: tuple[str, ...]
    compiled: bool


def read(log: str) -> Iterator[Found]:
    """The errors in valgrind's XML, leaks left out. A log that was cut off is read as far as it goes."""
    if not log.rstrip().endswith("</valgrindoutput>"):
        whole = log.rfind("</error>")
        log = log[: whole + len("</error>")] + "</valgrindoutput>" if whole >= 0 else "<valgrindoutput/>"
    for error in ElementTree.fromstring(log).iter("error"):
        kind = error.findtext("kind", "")
        if kind.startswith(LEAKS):
            continue
        stack = error.find("stack")
        frames = list(stack.iter("frame"))[:STACK] if stack is not None else []
        names = tuple(f.findtext("fn") or f.findtext("obj") or "???" for f in frames)
        inner = bool(frames) and frames[0].find("fn") is None and frames[0].find("obj") is None
        yield Found(kind, error.findtext("what") or error.findtext("xwhat/text") or kind, names, inner)


def run_members(names: list[str]) -> dict[str, list[str]]:
    """{member: hashes on two executors}; in this process."""
    from ...executors import SingleThreadExecutor, TilingExecutor

    return {name: [hashes.found(name, made) for made in (SingleThreadExecutor(), TilingExecutor(1))] for name in names}


def past_the_end() -> None:
    """Compiled code that reads what is behind an array, and decides by it: what must be found."""
    import numpy as np
    from numba import njit

    @njit
    def reads(x):  # type: ignore[no-untyped-def]
        return 1 if x[len(x)] > 3 else 2

    reads(np.zeros(1000, np.int64))


def _python(code: str, cache: Path, *before: str, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **TARGET, "TILEWORK_CACHE_DIR": str(cache), **more}
    environment["PYTHONPATH"] = os.pathsep.join([str(PACKAGE.parent), environment.get("PYTHONPATH", "")]).rstrip(
        os.pathsep
    )
    return subprocess.run(
        [*before, sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )


def checked(call: str, folder: Path) -> tuple[list[Found], str]:
    """Errors in a call of this module, and what is wrong with the run itself, "" if nothing.

    The first process compiles, the second, under valgrind, loads what the first has kept, and must give the same bits.
    """
    code = f"from tilework.bench.checks import memcheck\nprint(memcheck.{call})"
    cache, log = folder / "cache", folder / "valgrind.xml"
    plain = _python(code, cache)
    if plain.returncode:
        return [], f"outside of valgrind: {plain.stderr.strip().splitlines()[-1:]}"
    options = ["valgrind", "--xml=yes", f"--xml-file={log}", f"--num-callers={STACK}", "--error-limit=no"]
    inside = _python(code, cache, *options, PYTHONMALLOC="malloc")
    found = list(read(log.read_text(encoding="utf-8", errors="replace"))) if log.exists() else []
    if inside.returncode:
        return found, f"under valgrind: {inside.returncode}, {inside.stderr.strip().splitlines()[-1:]}"
    return found, "" if inside.stdout == plain.stdout else "under valgrind the hashes are others"


def main(given: list[str] | None = None) -> int:
    """Run the corpus under valgrind; 1 where compiled code does what it must not."""
    parser = argparse.ArgumentParser(prog="python -m tilework.bench.checks.memcheck", description=__doc__)
    parser.add_argument("--only", default="", help="members of the corpus whose name holds this text")
    options = parser.parse_args(given)
    names = [name for name in hashes.MEMBERS if options.only in name]
    if not names:
        parser.error(f"no member has {options.only!r} in its name; there is {', '.join(hashes.MEMBERS)}")
    if shutil.which("valgrind") is None:
        parser.error("valgrind is not installed here")
    with tempfile.TemporaryDirectory() as folder:
        found, text = checked("past_the_end()", Path(folder))
        if text or not any(f.compiled for f in found):
            print(f"a read behind an array is not found here {text}")
            return 1
        found, text = checked(f"run_members({names!r})", Path(folder))
    ours = [f for f in found if f.compiled]
    others = Counter(f.frames[0] if f.frames else "?" for f in found if not f.compiled)
    print(
        f"{', '.join(names)}: {len(ours)} errors of compiled code, {sum(others.values())} of others {dict(others)} {text}"
    )
    for each in ours[:20]:
        print(f"    {each.kind}: {each.text}; {' < '.join(each.frames[:4])}")
    return 1 if ours or text else 0


if __name__ == "__main__":
    sys.exit(main())
