"""Does the self-test find faults? One mistake at a time, in kernels, packer and planner, and whether it is seen.

    python -m tilework.bench.prove.planted                all of them, up to a minute of a processor each
    python -m tilework.bench.prove.planted --only pack    those whose file holds this text

Each mistake (faults.py) is put into a copy of the package. There a process draws as the self-test does, among the
steps and on the executors that may show it, until something differs or its time is over; what differs is tried once
more in a copy without the mistake, where it must be right. What is missed is named.

An entry is compiled anew where a file changes that its text imports, over however many others; the package itself
compiles everything anew when any file of it changes.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from .faults import FAULTS, Fault

PACKAGE = Path(__file__).resolve().parents[2]
ROOMS = ("primitives", "kernels", "executors", "frontends", "bench")
SEED = 5


def copied(target: Path) -> Path:
    """The package, without its tests, in a folder of its own; the folder to put on the path."""
    place = target / "tilework"
    place.mkdir(parents=True)
    for file in PACKAGE.glob("*.py"):
        shutil.copy(file, place)
    for room in ROOMS:
        shutil.copytree(PACKAGE / room, place / room, ignore=shutil.ignore_patterns("__pycache__"))
    return target


def misplaced() -> list[str]:
    """Faults whose text is not in its file exactly once, and so cannot be put there."""
    found = []
    for fault in FAULTS:
        times = (PACKAGE / fault.file).read_text(encoding="utf-8").count(fault.old)
        if times != 1:
            found.append(f"{fault.file}: {fault.old!r} is there {times} times")
    return found


# In the copy ---------------------------------------------------------------------------------------------------------


@cache
def imported(file: Path) -> frozenset[Path]:
    """Files of this package that a file of it imports."""
    return frozenset(_named(ast.parse(file.read_text(encoding="utf-8")), file))


def _named(tree: ast.AST, file: Path) -> Iterator[Path]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom):
            continue
        where = PACKAGE if not node.level else file.parents[node.level - 1]
        names = (node.module or "").split(".") if node.module else []
        if not node.level:
            if not names or names.pop(0) != "tilework":
                continue
        where = where.joinpath(*names)
        for inner in (where, *(where / each.name for each in node.names)):
            for path in (inner.with_suffix(".py"), inner / "__init__.py"):
                if path.exists() and path != file:
                    yield path


def sources(text: str) -> list[Path]:
    """Files of this package that the text of an entry imports, and those that these import, and so on."""
    found, left = set(), set(_named(ast.parse(text), PACKAGE / "nowhere.py"))
    while left:
        path = left.pop()
        found.add(path)
        left |= imported(path) - found
    return sorted(found)


def stamp_of(text: str) -> str:
    """A hash over the files that an entry's code comes from."""
    digest = hashlib.sha256()
    for path in sources(text):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def by_imports() -> None:
    """Let this process keep entries by the files that they come from, and not by all files of the package."""
    from ...kernels import cache as kept

    whole = kept.key

    def key(text: str) -> str:
        return hashlib.sha256((whole(text) + stamp_of(text)).encode()).hexdigest()[:40]

    kept.package_stamp = lambda: ""  # type: ignore[assignment]
    kept.key = key


def repeat(names: list[str], cell: list[str], layout: str, **more: Any) -> None:
    """Print what is wrong with one configuration on these executors, a line for each."""
    from .run import again

    by_imports()
    for name in names:
        print(again(cell[0], cell[1], cell[2], layout, name, **more).splitlines()[-1])


def look(steps: str, names: list[str], seconds: float, count: int, report: Path) -> None:
    """Draw until a configuration differs, and write into `report` what is being tried, and in the end what differed."""
    from .draw import SIZES
    from .run import VARIANTS, compared, executors, levels, schedule

    by_imports()
    known = executors() | levels()
    ways = {name: known[name] for name in names if name in known}
    end, tried = time.process_time() + seconds, 0
    for cell, layout, seed in schedule(SEED, steps):
        if tried >= count or time.process_time() > end or not ways:
            break
        for n in range(VARIANTS):
            variant = (n,)
            at = {"cell": [cell.step, cell.dtype, cell.granularity], "layout": layout, "seed": seed, "variant": variant}
            report.write_text(json.dumps(at), encoding="utf-8")
            wrong = compared(cell, layout, seed, SIZES[-1], ways, variant)
            tried += len(ways)
            if wrong:
                name, text = next(iter(wrong.items()))
                report.write_text(json.dumps({**at, "executor": name, "text": text}), encoding="utf-8")
                return
    report.write_text(json.dumps({"tried": tried}), encoding="utf-8")


# Around it -----------------------------------------------------------------------------------------------------------


def _python(folder: Path, text: str, seconds: float) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(folder), "TILEWORK_CACHE_DIR": str(folder.parent / "cache")}
    return subprocess.run(
        [sys.executable, "-c", text],
        env=environment, cwd=folder, capture_output=True, text=True, timeout=seconds, check=False,
    )  # fmt: skip


def seen(fault: Fault, folder: Path, right: Path, seconds: float, count: int) -> tuple[str | None, int]:
    """What the draws say of the package in `folder` with this fault, None where nothing; and how many there were."""
    file = folder / "tilework" / fault.file
    report = folder / "found.json"
    report.unlink(missing_ok=True)
    before = file.read_text(encoding="utf-8")
    file.write_text(before.replace(fault.old, fault.new), encoding="utf-8")
    given = f"{fault.steps!r}, {list(fault.executors)!r}, {seconds}, {count}, Path({str(report)!r})"
    text = f"from pathlib import Path\nfrom tilework.bench.prove.planted import look\nlook({given})"
    end = ""
    try:
        run = _python(folder, text, 20 * seconds + 600)
        if run.returncode:
            last = run.stderr.strip().splitlines()
            end = f"the process ends with {run.returncode}: {last[-1] if last else ''}"
    except subprocess.TimeoutExpired:
        end = "it hangs"
    finally:
        file.write_text(before, encoding="utf-8")
    if not report.exists():
        return end or "nothing is said", 0  # it cannot be imported
    found = json.loads(report.read_text(encoding="utf-8"))
    if "tried" in found:
        return None, found["tried"]
    names = [found["executor"]] if "executor" in found else list(fault.executors)
    given = f"{names!r}, {found['cell']!r}, {found['layout']!r}, seed={found['seed']!r}, variant={found['variant']!r}"
    check = _python(right, f"from tilework.bench.prove.planted import repeat\nrepeat({given}, limit=100)", 600)
    if check.returncode or check.stdout.split() != ["nothing"] * len(names):
        raise RuntimeError(f"it differs without the fault, too: {found}\n{check.stdout}{check.stderr}")
    return end or found["text"].strip().splitlines()[-1], 0


def main(given: list[str] | None = None, say: Callable[[str], Any] = print) -> int:
    """Plant all faults, print which are found; 1 where one is missed."""
    parser = argparse.ArgumentParser(prog="python -m tilework.bench.prove.planted", description=__doc__)
    parser.add_argument("--only", default="", help="faults whose file or text has this regular expression")
    parser.add_argument("--first", type=int, default=1, help="begin with this one")
    parser.add_argument("--count", type=int, default=20_000, help="configurations that may be tried for each")
    parser.add_argument("--seconds", type=float, default=60, help="processor time in which each may be looked for")
    options = parser.parse_args(given)
    wrong = misplaced()
    if wrong:
        parser.error("; ".join(wrong))
    chosen = [f for f in FAULTS if re.search(options.only, f"{f.file} {f.old}")][options.first - 1 :]
    missed = []
    with tempfile.TemporaryDirectory() as temporary:
        folder, right = copied(Path(temporary) / "planted"), copied(Path(temporary) / "right")
        for n, fault in enumerate(chosen, 1):
            start = time.monotonic()
            text, tried = seen(fault, folder, right, options.seconds, options.count)
            what = f"{fault.file}: {fault.old.splitlines()[0][:60]!r}"
            took = f"{time.monotonic() - start:.0f} s"
            say(f"{n}/{len(chosen)} {what}: {text or f'MISSED in {tried} configurations'} ({took})")
            sys.stdout.flush()
            if text is None:
                missed.append(fault)
    say(f"{len(chosen) - len(missed)} of {len(chosen)} planted faults found")
    for fault in missed:
        say(f"missed: {fault.file}: {fault.old!r} became {fault.new!r} (tried on {fault.steps})")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
