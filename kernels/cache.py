"""The kernel cache: one file per compiled entry, in a private folder of the user.

A file is named by the hash of everything that it depends on and begins with the hash of that name and of its own
content, which is checked before a byte of it is used: what was changed, or is another entry's file, is no entry. A
damaged file is compiled anew, with one warning; where nothing can be written, kernels are compiled in memory, with one
warning. Files appear whole or not at all, so processes may share the folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import platform
import re
import stat
import sys
import tempfile
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

from ..primitives.errors import CacheError

log = logging.getLogger("tilework")

MAGIC = b"tilework kernel 2\n"
NAME = re.compile(r"[0-9a-f]{40}")
_DIGEST = 32
# What Numba's environment variables change in the code that it makes, beyond the target's name and features.
OPTIONS = ("OPT", "LOOP_VECTORIZE", "SLP_VECTORIZE", "BOUNDSCHECK", "DEBUGINFO_DEFAULT")
_warned: set[str] = set()


def folder() -> Path:
    """TILEWORK_CACHE_DIR, or `tilework` in the user's cache folder."""
    given = os.environ.get("TILEWORK_CACHE_DIR")
    if given:
        return Path(given).expanduser()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or "~/AppData/Local").expanduser() / "tilework" / "cache"
    if sys.platform == "darwin":
        return Path("~/Library/Caches/tilework").expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "tilework"


def _file(name: str) -> Path:
    """Where an entry is kept. Raises OSError where there is no folder to keep it in."""
    try:
        return folder() / f"{name}.twk"
    except RuntimeError as error:  # a user without a home
        raise OSError(str(error)) from None


@lru_cache(maxsize=1)
def package_stamp() -> str:
    """A hash over the sources that compiled code comes from: whatever is edited or upgraded is compiled anew."""
    return stamp(Path(__file__).parents[1])


def stamp(root: Path, rooms: Iterable[str] = ("kernels", "primitives")) -> str:
    """A hash over the names and contents of some rooms in a package's folder."""
    digest = hashlib.sha256()
    for path in sorted(path for room in rooms for path in (root / room).rglob("*.py")):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(root).as_posix()}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


def key(text: str) -> str:
    """The name of the entry whose generated source is `text`, for this package, compiler and target machine."""
    import llvmlite
    import llvmlite.binding as llvm
    import numba
    from numba.core import config
    from numba.core.registry import cpu_target

    target = cpu_target.target_context.codegen().magic_tuple()
    facts = (
        text,
        package_stamp(),
        numba.__version__,
        llvmlite.__version__,
        ".".join(map(str, llvm.llvm_version_info)),
        platform.python_version(),
        platform.machine(),
        *map(str, target),
        *(f"{option}={getattr(config, option, None)}" for option in OPTIONS),
    )
    return hashlib.sha256("\0".join(facts).encode()).hexdigest()[:40]


def read(name: str) -> bytes | None:
    """The content of an entry, or None if there is none or it is damaged (then it is removed, with a warning)."""
    try:
        with open_private(_file(name)) as file:
            raw = file.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        _warn("unusable", "kernel cache %s cannot be read (%s): kernels are compiled in each process", _shown(), error)
        return None
    content = _content(name, raw)
    if content is not None:
        return content
    discard(name, "its content does not match its hash")
    return None


def discard(name: str, why: str) -> None:
    """Remove a damaged entry, and say so once."""
    path = _file(name)
    _warn("damaged", "kernel cache file %s is ignored and compiled anew: %s", path, why)
    with contextlib.suppress(OSError):
        path.unlink()


def write(name: str, content: bytes, source: str) -> bool:
    """Store an entry and, beside it for people to read, its generated source. False where nothing can be written."""
    head = MAGIC + _digest(name, content)
    try:
        path = _file(name)
        make_private(path.parent)
        replace_file(path, head + content)
        replace_file(path.with_suffix(".py"), source.encode())
    except OSError as error:
        _warn(
            "unusable",
            "kernel cache %s cannot be written (%s): kernels are compiled in each process; set TILEWORK_CACHE_DIR",
            _shown(),
            error,
        )
        return False
    return True


def restore(name: str, raw: bytes, source: bytes) -> bool:
    """Put back an entry as its file had it; False if it is damaged. Raises CacheError where it cannot be written."""
    if not NAME.fullmatch(name):
        raise CacheError(f"{name!r} is no name of an entry of the kernel cache; it is 40 hexadecimal digits")
    if _content(name, raw) is None:
        _warn("bundle", "entry %s of the bundle is damaged and was left out", name)
        return False
    try:
        make_private(folder())
        replace_file(folder() / f"{name}.twk", raw)
        replace_file(folder() / f"{name}.py", source)
    except OSError as error:
        raise CacheError(f"the kernel cache {folder()} cannot be written: {error}; set TILEWORK_CACHE_DIR") from error
    return True


def _digest(name: str, content: bytes) -> bytes:
    return hashlib.sha256(name.encode() + b"\0" + content).digest()


def _content(name: str, raw: bytes) -> bytes | None:
    """What an entry's file holds; None unless it is whole and was written as the entry of this name."""
    head = len(MAGIC) + _DIGEST
    content = raw[head:]
    whole = raw[: len(MAGIC)] == MAGIC and _digest(name, content) == raw[len(MAGIC) : head]
    return content if whole else None


def entries() -> list[Path]:
    """The files of the cache, oldest first."""
    found = []
    with contextlib.suppress(OSError):
        for path in _file("*").parent.glob("*.twk"):
            with contextlib.suppress(OSError):  # another process has removed it
                found.append((path.stat().st_mtime_ns, path))
    return [path for _, path in sorted(found)]


def clear() -> int:
    """Remove every entry; returns how many there were."""
    found = entries()
    for path in found:
        for each in (path, path.with_suffix(".py")):
            with contextlib.suppress(OSError):
                each.unlink()
    return len(found)


def make_private(path: Path) -> None:
    """Make a folder, and those around it, that only this user can read."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)


def open_private(path: Path) -> BinaryIO:
    """Open a file for reading. Raises PermissionError where `check_private` does, OSError for what is no plain file."""
    wait_not = getattr(os, "O_NONBLOCK", 0)  # for whoever writes to a pipe of that name
    file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | wait_not))
    try:
        check_private(file.fileno())
    except OSError:
        file.close()
        raise
    return file


def check_private(handle: int) -> None:
    """Raise PermissionError for a file that somebody else could have written: what it holds would be run."""
    found = os.fstat(handle)
    if not stat.S_ISREG(found.st_mode):
        raise PermissionError("something in it is no file")
    if hasattr(os, "geteuid") and (found.st_uid not in (os.geteuid(), 0) or found.st_mode & 0o022):
        raise PermissionError("a file in it belongs to another user, or others may write it")


def _shown() -> str:
    try:
        return str(folder())
    except RuntimeError:
        return "of a user without a home folder"


def replace_file(path: Path, content: bytes) -> None:
    """Write a file that is there whole or not at all."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}.", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _warn(kind: str, message: str, *args: object) -> None:
    if kind not in _warned:
        _warned.add(kind)
        log.warning(message, *args)
