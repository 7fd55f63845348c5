"""Do the tests see mistakes? Mutants of primitives and of the plan, and whether a test that runs their code fails.

    python -m tilework.bench.checks.mutations --count 400 --seed 0

Mistakes are made by rule at places drawn from a seed: another comparison, operator or constant, a condition turned
round, a statement left out, nothing returned. Tests are collected and run once, to learn which of them call which
function; then a forked child for each mutant swaps the code of one function and runs what calls it, quickest first.
Mistakes in what only runs while modules are imported (defaults, tables, fields) run in a process of their own. Text in
messages is not mutated. equivalent_mutants.py says which of those that survive may, and why.
Needs a checkout with tests, and a system that forks.
"""

from __future__ import annotations

import argparse
import ast
import functools
import gc
import os
import pickle
import random
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

from . import equivalent_mutants

PACKAGE = Path(__file__).resolve().parents[2]
PLAN = ("plan", "binding", "bound", "lowering", "cutting", "intervals", "program", "recording", "states", "verify")
FILES = (
    *sorted(p.relative_to(PACKAGE).as_posix() for p in (PACKAGE / "primitives").glob("*.py")),
    *(f"executors/{name}.py" for name in PLAN),
)
OF_THE_PLAN = (
    "bad_input", "bound", "cutting", "debug", "even_tiles", "fused_gemm", "intervals", "kept", "layouts", "memory", "pace",
    "program", "recording", "single_thread", "states", "tiling", "tuned", "verify", "windows",
)  # fmt: skip
TESTS = ("tests/primitives", *(f"tests/executors/test_{name}.py" for name in OF_THE_PLAN))
LONG = 2.0  # seconds of a test that is left out of the runs of mutants
PATIENCE = 30.0  # seconds more than usual after which a test hangs
HANGS = 240.0  # seconds, and some for the budget, after which the tests of a mutant do

COMPARED: dict[type, type] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
COMPUTED: dict[type, type] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv,
    ast.Div: ast.Mult, ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """The n-th mistake that can be made in a file.

    function   (name, first line) of the function it is in, the outermost; None outside of any
    """

    file: str
    number: int
    line: int
    rule: str
    function: tuple[str, int] | None

    def __str__(self) -> str:
        text = (PACKAGE / self.file).read_text(encoding="utf-8").splitlines()[self.line - 1].strip()
        return f"{self.file}:{self.line}: {self.rule}: {text}"


# Mistakes ------------------------------------------------------------------------------------------------------------


def _changes(node: ast.AST, put: Callable[[ast.AST], None]) -> Iterator[tuple[str, Callable[[], None]]]:
    """(rule, what makes it) of one node; put() sets another node in its place."""
    if isinstance(node, ast.Compare):
        for n, op in enumerate(node.ops):
            other = COMPARED[type(op)]
            yield f"{type(op).__name__} is {other.__name__}", lambda n=n, o=other: node.ops.__setitem__(n, o())
    elif isinstance(node, (ast.BinOp, ast.AugAssign)) and type(node.op) in COMPUTED:
        other = COMPUTED[type(node.op)]
        yield f"{type(node.op).__name__} is {other.__name__}", lambda: setattr(node, "op", other())
    elif isinstance(node, ast.BoolOp):
        other = ast.Or if isinstance(node.op, ast.And) else ast.And
        yield f"{type(node.op).__name__} is {other.__name__}", lambda: setattr(node, "op", other())
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub)):
        yield f"{type(node.op).__name__} left out", lambda: put(node.operand)
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield f"{node.value} is {not node.value}", lambda: setattr(node, "value", not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        yield f"{node.value} is {node.value + 1}", lambda: setattr(node, "value", node.value + 1)  # type: ignore[operator]
    if isinstance(node, (ast.If, ast.While, ast.IfExp)):
        yield "condition turned round", lambda: setattr(node, "test", ast.UnaryOp(ast.Not(), node.test))
    if isinstance(node, (ast.AugAssign, ast.Raise, ast.Continue, ast.Break)) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    ):
        yield "statement left out", lambda: put(ast.Pass())
    if isinstance(node, ast.Return) and node.value is not None and ast.unparse(node.value) != "None":
        yield "nothing returned", lambda: setattr(node, "value", ast.Constant(None))


def _walk(
    node: ast.AST, function: tuple[str, int] | None, names: tuple[str, ...]
) -> Iterator[tuple[int, str, tuple[str, int] | None, Callable[[], None]]]:
    """(line, rule, function, what makes it), in the order of the text; no annotations, no texts, no messages."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "type_params") or isinstance(node, ast.JoinedStr):
            continue
        if isinstance(node, ast.Raise) and name == "exc":
            continue
        if isinstance(node, ast.keyword) and node.arg == "strict":  # of zip(): lengths that are equal by then
            continue
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        for n, child in enumerate(value if isinstance(value, list) else [value]):
            if not isinstance(child, ast.AST):
                continue

            def put(new: ast.AST, n: int = n, name: str = name, value: Any = value) -> None:
                if isinstance(value, list):
                    value[n] = ast.copy_location(new, value[n])
                else:
                    setattr(node, name, ast.copy_location(new, value))

            line = getattr(child, "lineno", 0)
            inner, path = function, names
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and name == "body" and function is None:
                inner = (".".join(names), min([node.lineno, *(d.lineno for d in node.decorator_list)]))
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                path = (*names, child.name)
            for rule, make in _changes(child, put):
                yield line, rule, inner, make
            yield from _walk(child, inner, path)


def mutants(file: str) -> list[Mutant]:
    """All mistakes that can be made in a file."""
    tree = ast.parse((PACKAGE / file).read_text(encoding="utf-8"))
    return [Mutant(file, n, line, rule, inner) for n, (line, rule, inner, _) in enumerate(_walk(tree, None, ()))]


def mutated(mutant: Mutant) -> CodeType:
    """The compiled file with the mistake in it."""
    path = PACKAGE / mutant.file
    tree = ast.parse(path.read_text(encoding="utf-8"))
    made = list(_walk(tree, None, ()))
    made[mutant.number][3]()
    return compile(ast.fix_missing_locations(tree), str(path), "exec")


# Runs ----------------------------------------------------------------------------------------------------------------


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def swap(mutant: Mutant) -> int:
    """Put the mistake into the functions of this process; returns how many have it now."""
    path = str(PACKAGE / mutant.file)
    right = compile((PACKAGE / mutant.file).read_text(encoding="utf-8"), path, "exec")
    pairs = zip(_codes(right), _codes(mutated(mutant)), strict=True)
    changed = {(old.co_name, old.co_firstlineno): new for old, new in pairs if old != new}
    count = 0
    for found in gc.get_objects():
        if isinstance(found, FunctionType) and found.__code__.co_filename == path:
            new = changed.get((found.__code__.co_name, found.__code__.co_firstlineno))
            if new is not None and len(new.co_freevars) == len(found.__code__.co_freevars):
                found.__code__ = new
                count += 1
        elif isinstance(found, functools._lru_cache_wrapper):
            found.cache_clear()
    return count


class Session:
    """A plugin of pytest: instead of running the tests once, runs what each mutant needs, each in a forked child."""

    def __init__(self, chosen: list[Mutant], budget: float, said: Callable[[Mutant, str | None], None]) -> None:
        self.chosen, self.budget, self.said = chosen, budget, said
        self.failed = ""

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Notice what fails."""
        if report.failed:
            self.failed = report.nodeid

    def pytest_runtestloop(self, session: Any) -> bool:
        """Learn which tests call what; then the mutants."""
        items = session.items
        for item in items:  # modules are imported by now; what they imported late is not
            item.obj  # noqa: B018
        reading, writing = os.pipe()
        child = os.fork()  # what does not pass in a forked child is no use here
        if child == 0:
            os.close(reading)
            with os.fdopen(writing, "wb") as file:
                pickle.dump(self.learnt(items), file)
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as file:
            seconds, calls = pickle.load(file)
        os.waitpid(child, 0)
        quick = [s for s in seconds if s < LONG]
        print(f"{len(quick)} of {len(items)} tests take {sum(quick):.0f} s and call {len(calls)} functions", flush=True)
        for mutant in self.chosen:
            path, function = str(PACKAGE / mutant.file), mutant.function
            assert function is not None
            called = calls.get((path, function[1]), set())
            if not called:  # at most while modules are imported
                self.said(mutant, fresh(mutant))
                continue
            own = f"test_{Path(mutant.file).stem}.py"
            order = sorted(
                (n for n in called if seconds[n] < LONG), key=lambda n: (items[n].path.name != own, seconds[n])
            )
            self.said(mutant, self.found(mutant, [(items[n], seconds[n]) for n in order]))
        return True

    def learnt(self, items: list[Any]) -> tuple[list[float], dict[tuple[str, int], set[int]]]:
        """Seconds of each test, and for each function of the package the tests that call it."""
        seconds, calls = [], defaultdict(set)
        now = [0]
        root = str(PACKAGE)

        def profile(frame: Any, event: str, argument: Any) -> None:
            code = frame.f_code
            if event == "call" and code.co_filename.startswith(root):
                calls[code.co_filename, code.co_firstlineno].add(now[0])

        for n, item in enumerate(items):
            now[0] = n
            began = sum(os.times()[:4])  # not of the wall: others may have the processor
            sys.setprofile(profile)
            threading.setprofile(profile)
            self.run(item)
            sys.setprofile(None)
            threading.setprofile(None)  # type: ignore[arg-type]
            seconds.append(sum(os.times()[:4]) - began)
            if self.failed:
                print(f"{self.failed} fails without a mistake and is left out", flush=True)
                seconds[-1], self.failed = float("inf"), ""
        return seconds, calls

    def run(self, item: Any) -> None:
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)

    def found(self, mutant: Mutant, items: list[tuple[Any, float]]) -> str | None:
        """The test that fails; None where all pass that the budget is enough for."""
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.setsid()
            os.close(reading)
            status = b""
            try:
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, 1)
                os.dup2(null, 2)
                swap(mutant)
                signal.signal(signal.SIGALRM, _late)
                status = b"-"
                for item, usual in items:
                    signal.setitimer(signal.ITIMER_REAL, PATIENCE + 20 * usual)
                    self.run(item)
                    if self.failed:
                        status = self.failed.encode()
                    if self.failed or time.process_time() > self.budget:
                        break
            except BaseException as error:
                status = f"{type(error).__name__} outside of a test".encode()
            os.write(writing, status)
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as file:
            ready, _, _ = select.select([file], [], [], HANGS + 10 * self.budget)
            if not ready:  # what Python cannot interrupt, or what a test runs again and again after its alarm
                os.killpg(child, signal.SIGKILL)
            text = file.read().decode()
        os.waitpid(child, 0)
        return None if text == "-" else text or "the process ends"


def _late(*_: Any) -> None:
    raise TimeoutError("a test hangs")


_FRESH = """\
import importlib.abc, importlib.machinery, sys
from pathlib import Path
from tilework.bench.checks import mutations
mutant = mutations.mutants({file!r})[{number}]
path = mutations.PACKAGE / mutant.file
name = "tilework." + mutant.file.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
for known in [n for n in sys.modules if n == "tilework" or n.startswith("tilework.")]:
    del sys.modules[known]
class Finder(importlib.machinery.SourceFileLoader):
    def get_code(self, fullname):
        return mutations.mutated(mutant)
class Hook(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname, path_=None, target=None):
        if fullname == name:
            return importlib.util.spec_from_file_location(name, path, loader=Finder(name, str(path)))
sys.meta_path.insert(0, Hook())
import pytest
sys.exit(pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-m", "not slow and not soak", *{tests!r}]))
"""


def fresh(mutant: Mutant) -> str | None:
    """The same for a mistake outside of functions: in a new process, on the tests of its room."""
    own = PACKAGE / "tests" / mutant.file.replace("/", "/test_")
    tests = [str(own)] if own.exists() else []
    tests += ["tests/primitives", "tests/executors/test_single_thread.py", "tests/executors/test_tiling.py"]
    text = _FRESH.format(file=mutant.file, number=mutant.number, tests=tests)
    try:
        run = subprocess.run(
            [sys.executable, "-c", text], cwd=PACKAGE, capture_output=True, text=True, timeout=1200, check=False
        )
    except subprocess.TimeoutExpired:
        return "it hangs"
    return None if run.returncode == 0 else f"pytest ends with {run.returncode}"


def main(given: list[str] | None = None) -> int:
    """Make a sample of mutants, run the tests, print the score and who survives."""
    parser = argparse.ArgumentParser(prog="python -m tilework.bench.checks.mutations", description=__doc__)
    parser.add_argument("--count", type=int, default=400, help="mutants")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--budget", type=float, default=20, help="CPU seconds of the tests of one mutant")
    parser.add_argument("--only", default="", help="files whose path holds this text")
    parser.add_argument(
        "--survivors", metavar="FILE", help="only those of the sample that an earlier run's output names"
    )
    options = parser.parse_args(given)
    every = [m for file in FILES if options.only in file for m in mutants(file)]
    sample = random.Random(options.seed).sample(every, min(options.count, len(every)))
    if options.survivors:
        text = Path(options.survivors).read_text(encoding="utf-8", errors="replace")
        sample = [
            m for m in sample if re.search(rf"SURVIVES (\(\w+\) )?{re.escape(f'{m.file}:{m.line}: {m.rule}: ')}", text)
        ]
    print(f"{len(sample)} of {len(every)} mutants of {len({m.file for m in every})} files", flush=True)
    tried: Counter[str] = Counter()
    alive: list[Mutant] = []
    alike: Counter[str] = Counter()

    def said(mutant: Mutant, text: str | None) -> None:
        tried[mutant.file] += 1
        if text is not None:
            return
        reason = equivalent_mutants.why(mutant.file, mutant.line, mutant.rule)
        if reason is not None:
            alike[reason] += 1
        else:
            alive.append(mutant)
        print(f"\n{sum(tried.values())}: SURVIVES {f'({reason}) ' if reason else ''}{mutant}", flush=True)

    import pytest

    os.environ["CI"] = "1"  # hypothesis draws the same examples each time
    os.chdir(PACKAGE)
    inside = [m for m in sample if m.function is not None]
    pytest.main(
        ["-q", "-p", "no:cacheprovider", "-m", "not slow and not soak", "-k", "not torch", "--no-header", *TESTS],
        plugins=[Session(inside, options.budget, said)],
    )
    for mutant in sample:
        if mutant.function is None:
            said(mutant, fresh(mutant))
    count, explained = sum(tried.values()), sum(alike.values())
    print()
    for file in sorted(tried):
        print(f"{file}: {sum(m.file == file for m in alive)} of {tried[file]} survive and are not explained")
    for reason, n in alike.most_common():
        print(f"{n} survive and may: {equivalent_mutants.REASONS[reason]}")
    found = count - explained - len(alive)
    print(f"{found} of {count} mutants found: {found / max(1, count):.1%}")
    print(f"{found} of the {count - explained} that can be: {found / max(1, count - explained):.1%}")
    return 0 if count == len(sample) else 1


if __name__ == "__main__":
    sys.exit(main())
