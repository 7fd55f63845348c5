"""macOS on arm64 and Windows, pretended: nothing that only Linux has is needed to import, run, cache and save.

The machine code is still this machine's. What Python has there is taken away before the package is imported, and
`sys.platform` says what it says there; NumPy and Numba are imported before, they know these systems themselves.
"""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import tilework

PROGRAM = """
import os, platform, signal, sys, builtins, ctypes, multiprocessing, pathlib, pkgutil, subprocess, tempfile, warnings
import importlib
import numpy as np
import ml_dtypes, numba, numba.np.ufunc.parallel
from numba.core.registry import cpu_target
cpu_target.target_context.codegen()

name, folder = sys.argv[1], pathlib.Path(sys.argv[2])
gone = {os: ["sched_getaffinity", "sched_setaffinity", "memfd_create", "posix_fadvise", "getrandom"], signal: []}
blocked = []
if name == "win32":
    gone[os] += ["fork", "register_at_fork", "geteuid", "getuid", "getppid_", "setsid", "killpg", "mkfifo", "sysconf"]
    gone[os] += ["wait4", "nice", "fchmod", "chown"]
    gone[signal] += ["SIGALRM", "SIGKILL", "SIGUSR1", "setitimer", "alarm", "pthread_sigmask", "pthread_kill"]
    blocked += ["fcntl", "pwd", "resource", "termios", "grp"]
for module, names in gone.items():
    for each in names:
        if hasattr(module, each):
            delattr(module, each)
for each in blocked:
    sys.modules[each] = None
right_open = builtins.open


def no_proc(file, *more, **named):
    if str(file).startswith(("/proc", "/sys", "/dev/shm")):
        raise FileNotFoundError(file)
    return right_open(file, *more, **named)


builtins.open = no_proc
sys.platform = name
platform.system = lambda: {"darwin": "Darwin", "win32": "Windows"}[name]
platform.machine = lambda: {"darwin": "arm64", "win32": "AMD64"}[name]
os.environ.pop("TILEWORK_CACHE_DIR", None)
os.environ.pop("XDG_CACHE_HOME", None)
os.environ["HOME"] = str(folder)
os.environ["LOCALAPPDATA"] = str(folder / "Local")

import tilework as tw
from tilework.kernels import cache

place = folder / ("Local/tilework/cache" if name == "win32" else "Library/Caches/tilework")
assert cache.folder() == place, cache.folder()
rng = np.random.default_rng(0)
pipe = tw.Pipeline("away")
x = pipe.input("x", "u8", ("M", 40))
acc = tw.ops.gemm(x, rng.integers(-128, 128, (40, 33), np.int8), a_zero_point=np.uint8(7))
y = tw.ops.requantize(acc, multiplier=0.002, zero_point=100, dtype="u8")
pipe.output("y", y)
pipe.output("p", tw.ops.softmax(tw.ops.dequantize(y, 0.1, 100)))
data = {"x": rng.integers(0, 256, (300, 40), np.uint8)}
right = tw.SingleThreadExecutor("reference").run(pipe, data)
from tilework.executors import cutting
cutting.SMALL = 0  # every step is cut for all threads
for executor in (tw.SingleThreadExecutor(), tw.TilingExecutor(1), tw.TilingExecutor(3)):
    found = executor.run(pipe, data)
    assert all((found[k] == right[k]).all() for k in right), executor
assert list(place.glob("*.twk"))

# A plan that may be kept: nothing is asked of this system for it, and object files are none of Linux's there.
from tilework.executors.kept import files
from tilework.kernels import machine_code

pipe.identity = "away"
for kind in ("objects of Linux", "other objects"):
    if kind == "other objects":
        machine_code._symbols = lambda file: None
        files.clear()
    for threads in (1, 3):
        for _ in range(2):
            kept = tw.TilingExecutor(threads).compile(pipe, {"x": (300, 40)})
            for _ in range(2):
                found = kept.run(data)
                assert all((found[k] == right[k]).all() for k in right), kind
    assert kind == "objects of Linux" or not [p for p, _ in files.entries() if p.suffix == ".run"]
pipe.save(folder / "p.tw")
again = tw.TilingExecutor(2).run(tw.Pipeline.load(folder / "p.tw"), data)
assert all((again[k] == right[k]).all() for k in right)

for room in ("primitives", "kernels", "executors"):
    for found in pkgutil.walk_packages([f"{tw.__path__[0]}/{room}"], f"tilework.{room}."):
        if not any(extra in found.name for extra in ("cuda", "dask")):
            importlib.import_module(found.name)
print("all is well")
"""


@pytest.mark.parametrize("name", ["darwin", "win32"])
def test_nothing_that_only_linux_has_is_needed(tmp_path, name):
    if sys.platform in ("darwin", "win32") and sys.platform != name:
        pytest.skip("what is taken away here differs")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, name, str(tmp_path)],
        env=os.environ, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    assert "all is well" in done.stdout


def test_modules_of_one_system_are_imported_where_they_are_used():
    """At the top of a module they would keep all of it from the other systems."""
    package = Path(tilework.__file__).parent
    only = {"fcntl", "grp", "msvcrt", "pwd", "resource", "termios", "winreg", "_winapi"}
    found = []
    for room in ("primitives", "kernels", "executors", "frontends", "bench"):
        for path in (package / room).rglob("*.py"):
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
                names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                found += [f"{path.relative_to(package)}: {name}" for name in names if name in only]
    assert not found
