"""The tuning store: what was measured on this machine, one JSON line for each tile, only ever appended to.

`tune/<cpu>-<isa>.jsonl` in the cache folder holds two kinds of line: "point", a tile that was measured, and "tuned", one
that a plan may take. A line counts only for the sources, the compiler and the machine that it was measured with; one
that does not is passed over, and what was expected and found is said once. Nothing here can change a result: a tile
decides how long a step takes, and never what it gives.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from . import cache

log = logging.getLogger("tilework")

SCHEMA = 1
POINT, TUNED = "point", "tuned"
LARGEST = 256 << 20  # bytes of a store; a larger one is not read
# No link that somebody put there is followed, and a line ends with one byte; where a system knows these.
_PLAIN = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
SWITCH = "TILEWORK_TUNED"  # 0: plans do not look into the store
_said: set[str] = set()


@dataclass(frozen=True)
class Key:
    """What a tile is tuned for.

    kernel   what the step computes, with the steps that are fused into it
    form     hash of how it is configured (`form_of`)
    source   hash of everything that its machine code comes from (`source_of`)
    dtypes   of its operands
    sizes    its run-time sizes, {name: value}; None where one is not known yet
    threads  how many run it
    """

    kernel: str
    form: str
    source: str
    dtypes: tuple[str, ...]
    sizes: Mapping[str, int | None]
    threads: int

    def facts(self) -> dict[str, Any]:
        """As a line has it."""
        return {
            "kernel": self.kernel,
            "form": self.form,
            "source": self.source,
            "compiler": compiler(),
            "dtypes": list(self.dtypes),
            "sizes": dict(self.sizes),
            "bucket": bucket(self.sizes),
            "threads": self.threads,
        }

    def matches(self, line: Mapping[str, Any]) -> bool:
        """Whether a line is about the same thing at sizes of the same bucket."""
        if any(line.get(what) != getattr(self, what) for what in ("kernel", "form", "threads")):
            return False
        if tuple(line.get("dtypes", ())) != self.dtypes or line.get("sizes", {}).keys() != self.sizes.keys():
            return False
        return all(n is None or _step(n) == _step(line["sizes"][name]) for name, n in self.sizes.items())

    def stale(self, line: Mapping[str, Any]) -> str:
        """Why a line that matches is not to be used; empty if it is."""
        for what, expected in (("schema", SCHEMA), ("source", self.source), ("compiler", compiler())):
            if line.get(what) != expected:
                return f"{what}: expected {expected}, the line has {line.get(what)}"
        return ""


def _step(n: int) -> int:
    """Number of the bucket of a size: small ones have their own, then there are two for each doubling."""
    if n <= 8:
        return n
    half = n.bit_length() - 1
    return 2 * half + (n >= 3 << (half - 1)) + 100


def bucket(sizes: Mapping[str, int | None]) -> str:
    """The bucket's name: each size as the largest 2**i or 3 * 2**i that is not above it."""
    parts = []
    for name, n in sizes.items():
        if n is not None and n > 8:
            half = n.bit_length() - 1
            n = 3 << (half - 1) if n >= 3 << (half - 1) else 1 << half
        parts.append(f"{name}{'?' if n is None else n}")
    return " ".join(parts)


@lru_cache(maxsize=1)
def compiler() -> str:
    """Versions of what turns a tile function into machine code."""
    import llvmlite.binding as llvm
    import numba

    return f"numba {numba.__version__}, llvm {'.'.join(map(str, llvm.llvm_version_info))}"


@lru_cache(maxsize=256)
def source_of(build: Any) -> str:
    """Hash of what a builder's machine code comes from: this package's sources, and the builder's own where it is not one."""
    digest = hashlib.sha256(cache.package_stamp().encode())
    if not getattr(build, "__module__", "").startswith(__package__):
        try:
            digest.update(inspect.getsource(build).encode())
        except (OSError, TypeError):
            digest.update(getattr(build, "__qualname__", "").encode())
    return digest.hexdigest()[:16]


def form_of(kernel: Any) -> str:
    """Hash of how a kernel is configured, as its repr says; where an object lies in memory is no part of it."""
    return hashlib.sha256(re.sub(r" at 0x[0-9a-fA-F]+", "", repr(kernel)).encode()).hexdigest()[:8]


def path(machine: str) -> Path:
    """Where the lines for a machine are. Raises OSError for a user without a home."""
    name = "".join(c if c.isalnum() or c in "-_.+" else "-" for c in machine)
    try:
        return cache.folder() / "tune" / f"{name}.jsonl"
    except RuntimeError as error:
        raise OSError(str(error)) from None


def cpu_machine(isa: str | None = None) -> str:
    """The name under which the CPU's lines are kept."""
    from .cpu import isa as levels

    return f"{levels.target()[1]}-{levels.select(isa).name}"


def append(machine: str, line: Mapping[str, Any]) -> bool:
    """Add a line, whole or not at all; False where nothing can be written, which is said once."""
    text = json.dumps({"schema": SCHEMA, **line}, separators=(",", ":"), allow_nan=False) + "\n"
    try:
        file = path(machine)
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(file, os.O_RDWR | os.O_APPEND | os.O_CREAT | _PLAIN, 0o600)
        try:
            end = os.lseek(handle, 0, os.SEEK_END)
            if end:
                os.lseek(handle, end - 1, os.SEEK_SET)
            torn = end > 0 and os.read(handle, 1) != b"\n"  # a process died as it wrote
            os.write(handle, (b"\n" if torn else b"") + text.encode())
        finally:
            os.close(handle)
    except OSError as error:
        _say("unwritable", f"the tuning store cannot be written ({error}); set TILEWORK_CACHE_DIR")
        return False
    return True


def lines(machine: str, kind: str | None = None) -> Iterator[dict[str, Any]]:
    """The store's lines, oldest first; those that are no line of a store are passed over, and counted once."""
    try:
        if path(machine).stat().st_size > LARGEST:
            _say(f"{machine} large", f"tuning store {path(machine)} has more than {LARGEST} bytes and is not read")
            return
        text = path(machine).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    marker = f'"kind":"{kind}"' if kind else ""
    for number, each in enumerate(text.splitlines(), 1):
        if marker not in each or not each.strip():
            continue
        try:
            line = json.loads(each)
            good = isinstance(line, dict) and line.get("kind") in (POINT, TUNED) and _is_line(line)
        except (ValueError, RecursionError):
            good = False
        if good:
            yield line
        else:
            _say(f"{machine} {number}", f"tuning store {path(machine)}: line {number} is no line of a store; ignored")


def _is_line(line: Mapping[str, Any]) -> bool:
    return isinstance(line.get("dtypes"), list) and all(
        isinstance(found, dict)
        and all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in found.values())
        for found in (line.get("tile"), line.get("sizes"))
    )


def tuned(machine: str) -> Sequence[Mapping[str, Any]]:
    """The lines that plans may take, read again when the file changes."""
    if os.environ.get(SWITCH) == "0":
        return ()
    try:
        found = path(machine).stat()
    except OSError:
        return ()
    return _tuned(machine, str(path(machine)), found.st_mtime_ns, found.st_size)


@lru_cache(maxsize=8)
def _tuned(machine: str, file: str, changed: int, size: int) -> tuple[Mapping[str, Any], ...]:
    return tuple(lines(machine, TUNED))


def find(machine: str, key: Key) -> Mapping[str, Any] | None:
    """The line to use for this: the one at the same sizes, else the latest of the bucket; None where there is none.

    Where a size is not known, all lines that could fit must name the same tile.
    """
    fitting = []
    for line in tuned(machine):
        if not key.matches(line):
            continue
        reason = key.stale(line)
        if reason:
            _say(
                f"{machine} {key.kernel} {reason}",
                f"a tuned tile of {key.kernel} at {line.get('bucket')} is not used, because it was measured with another "
                f"{reason}; `tilework bench sweep` measures it anew",
            )
        else:
            fitting.append(line)
    if not fitting:
        return None
    if None in key.sizes.values():
        latest = {json.dumps(line["sizes"], sort_keys=True): line for line in fitting}
        tiles = {json.dumps(line["tile"], sort_keys=True) for line in latest.values()}
        return fitting[-1] if len(tiles) == 1 else None
    exact = [line for line in fitting if line["sizes"] == dict(key.sizes)]
    return (exact or fitting)[-1]


def _say(what: str, message: str) -> None:
    if what not in _said:
        _said.add(what)
        log.warning(message)
