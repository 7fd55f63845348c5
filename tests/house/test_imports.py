"""Imports run one way: primitives <- kernels <- executors <- frontends <- bench."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ["primitives", "kernels", "executors", "frontends", "bench"]  # each may name only rooms to its left
FACE = "the face"  # `import tilework` inside the package: every room at once


def modules_imported_by(path, root):
    """Return the full names of all modules that a file of the package at `root` imports, wherever in the file."""
    package = ("tilework", *path.relative_to(root).parent.parts)
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*base, *(node.module.split(".") if node.module else [])])
            found.update(f"{module}.{alias.name}" for alias in node.names)  # a submodule, or a name in the module
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            target = node.args[0].value
            if called in ("import_module", "__import__") and isinstance(target, str):
                dots = len(target) - len(target.lstrip("."))
                base = package[: len(package) - dots + 1] if dots else ()
                found.add(".".join([*base, target.lstrip(".")]))
    return found


def rooms_imported_by(path, root=ROOT):
    """Return the rooms that a file names, and FACE if it goes through the package's own lazy names."""
    rooms = set()
    for module in modules_imported_by(path, root):
        parts = module.split(".")
        if parts[0] == "tilework":
            rooms.add(parts[1] if len(parts) > 1 and parts[1] in ROOMS else FACE)
    return rooms


def violations(root=ROOT):
    """Return one sentence for every import that runs the wrong way in the package at `root`."""
    sentences = []
    for room in ROOMS:
        known = set(ROOMS[: ROOMS.index(room) + 1]) | ({FACE} if room == "bench" else set())
        for path in sorted((root / room).rglob("*.py")):
            where = path.relative_to(root).as_posix()
            if wrong := rooms_imported_by(path, root) - known:
                sentences.append(f"{where} names {', '.join(sorted(wrong))}")
            sentences.extend(f"{where} imports {name}" for name in sorted(forbidden(where, path, root)))
    return sentences


def forbidden(where, path, root):
    """Return the modules that a file may not import: other libraries, and a sibling backend."""
    modules = modules_imported_by(path, root)

    def named(*prefixes):
        return {m for m in modules if any(m == p or m.startswith(p + ".") for p in prefixes)}

    wrong = set()
    if not where.startswith(("kernels/cuda/", "executors/cuda")):
        wrong |= named("numba.cuda", "numba_cuda")
    if where.startswith(("primitives/", "kernels/reference/")):
        wrong |= named("numba", "llvmlite")
    for backend, sibling in (("reference", "cpu"), ("reference", "cuda"), ("cpu", "cuda"), ("cuda", "cpu")):
        if where.startswith(f"kernels/{backend}/"):
            wrong |= named(f"tilework.kernels.{sibling}")
    return wrong


def test_imports_run_one_way():
    assert violations() == []


@pytest.mark.parametrize(
    ("file", "line", "found"),
    [
        ("primitives/a.py", "from ..kernels import factory", "primitives/a.py names kernels"),
        ("primitives/a.py", "import tilework.executors.plan", "primitives/a.py names executors"),
        ("primitives/a.py", "def f():\n    from .. import bench", "primitives/a.py names bench"),
        ("primitives/a.py", "from numba import njit", "primitives/a.py imports numba.njit"),
        ("primitives/a.py", "import llvmlite.binding", "primitives/a.py imports llvmlite.binding"),
        ("kernels/a.py", "class C:\n    def f(self):\n        import tilework", "kernels/a.py names the face"),
        ("kernels/a.py", "from tilework import Pipeline", "kernels/a.py names the face"),
        ("kernels/cpu/a.py", "from ...executors import plan", "kernels/cpu/a.py names executors"),
        ("kernels/cpu/a.py", "from ..cuda import ptx", "kernels/cpu/a.py imports tilework.kernels.cuda.ptx"),
        ("kernels/cpu/a.py", "from numba import cuda", "kernels/cpu/a.py imports numba.cuda"),
        ("kernels/reference/a.py", "import numba", "kernels/reference/a.py imports numba"),
        ("executors/a.py", "importlib.import_module('..bench', __package__)", "executors/a.py names bench"),
        ("executors/plan.py", "import numba.cuda", "executors/plan.py imports numba.cuda"),
        ("frontends/a.py", "if TYPE_CHECKING:\n    from ..bench.cases import CASES", "frontends/a.py names bench"),
    ],
)
def test_a_planted_violation_is_found(tmp_path, file, line, found):
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text(line)
    assert violations(tmp_path) == [found]


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("kernels/cpu/a.py", "from ...primitives import Buffer\nfrom ..factory import get\nfrom numba import njit"),
        ("kernels/cuda/a.py", "from numba import cuda"),
        ("executors/cuda.py", "from numba import cuda"),
        ("bench/a.py", "import tilework as tw\nfrom ..frontends import onnx"),
        ("frontends/a.py", "from tilework.executors import plan"),
    ],
)
def test_a_permitted_import_passes(tmp_path, file, line):
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text(line)
    assert violations(tmp_path) == []


def run(code, *options):
    """Run code in a fresh interpreter, away from the checkout; return its output."""
    done = subprocess.run([sys.executable, *options, "-c", code], cwd=os.sep, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


LOADED = "print(sorted({m.split('.')[0] for m in sys.modules} & {'numba', 'llvmlite', 'torch', 'onnx'}))"
HELP = "import tilework.bench.cli as c\ntry:\n    c.main(['--help'])\nexcept SystemExit:\n    pass\n"


@pytest.mark.parametrize(
    "code",
    [
        "import tilework\n",
        "import tilework\ntilework.Buffer, tilework.Pipeline, tilework.QuantParams, tilework.dtypes, tilework.errors\n",
        HELP,
        HELP.replace("'--help'", "'demo', '--help'"),
        HELP.replace("'--help'", "'--version'"),
    ],
    ids=["import", "primitives", "help", "demo-help", "version"],
)
def test_no_numba_is_imported(code):
    assert run(f"import sys\n{code}{LOADED}").splitlines()[-1] == "[]"


def test_every_public_name_loads():
    run("import tilework as tw\nassert dir(tw) == sorted(tw.__all__)\nfor name in tw.__all__:\n    getattr(tw, name)")


def test_an_unknown_public_name_says_what_exists():
    import tilework

    with pytest.raises(AttributeError, match=r"no attribute 'Bufer'.*Buffer"):
        tilework.Bufer  # noqa: B018


def test_import_times_are_reported(report):
    clock = "import time; t = time.perf_counter()\n{}\nprint(time.perf_counter() - t)"

    def best_s(code):
        return min(float(run(clock.format(code)).split()[-1]) for _ in range(3))

    numpy_s = best_s("import numpy")
    for name, code in (("import tilework", "import tilework"), ("tilework --help", HELP)):
        time_s = best_s(code)
        report(name, f"{time_s:.3f} s, {time_s / numpy_s:.2f} x `import numpy` ({numpy_s:.3f} s)")
