"""The files of kept plans: private, whole or not there, checked before a byte of them counts, bounded in number and size."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import mmap
import os
from pathlib import Path
from typing import Any

from ...kernels import cache

log = logging.getLogger("tilework")

MAGIC = b"tilework plan 1\n"
HEAD = 4096  # bytes before the content: the magic number and the hash, and zeros up to a page
SWITCH = "TILEWORK_PLANS"  # 0: plans are neither kept nor looked for
LIMIT = "TILEWORK_PLANS_BYTES"  # of all files together
DEFAULT_LIMIT = 2**30
LARGEST = 4  # a file takes at most this part of the limit
_said: set[str] = set()


def folder() -> Path:
    """Where they lie. Raises OSError for a user without a home folder."""
    try:
        return cache.folder() / "plans"
    except RuntimeError as error:
        raise OSError(str(error)) from None


def limit() -> int:
    """Bytes that all files together may take; 0 keeps nothing."""
    given = os.environ.get(LIMIT, "")
    if os.environ.get(SWITCH) == "0":
        return 0
    return int(given) if given.isdecimal() else DEFAULT_LIMIT


def exists(name: str) -> bool:
    """Whether there is a file of this name."""
    try:
        return (folder() / name).is_file()
    except OSError:
        return False


def read(name: str) -> memoryview | None:
    """The content of a file, mapped into memory; None if there is none, or it is not to be trusted or damaged."""
    try:
        path = folder() / name
        with cache.open_private(path) as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:  # ValueError: an empty file
        _say("unusable", "kept plans in %s cannot be read (%s): plans are made anew", _shown(), error)
        return None
    with contextlib.suppress(OSError):  # the folder may be one that is only read
        os.utime(path)  # it is not the next one to go
    content = memoryview(mapped)[HEAD:]
    if mapped[: len(MAGIC)] == MAGIC and _digest(name, content) == mapped[len(MAGIC) : len(MAGIC) + 32]:
        return content
    content.release()
    mapped.close()  # some systems remove no file that is mapped
    discard(name, "its content does not match its hash")
    return None


def _digest(name: str, content: Any) -> bytes:
    """The hash of a file's content under its name: that of another file is not taken for it."""
    digest = hashlib.sha256(name.encode() + b"\0")
    digest.update(content)
    return digest.digest()


def discard(name: str, why: str) -> None:
    """Remove a damaged file, and say so once."""
    _say("damaged", "kept plan %s is removed and made anew: %s", name, why)
    with contextlib.suppress(OSError):
        (folder() / name).unlink()


def write(name: str, content: bytes) -> bool:
    """Store a file, and remove those that were not used for longest where there are too many bytes of them."""
    most = limit()
    if len(content) + HEAD > most // LARGEST:
        return False
    head = MAGIC + _digest(name, content)
    try:
        cache.make_private(folder())
        cache.replace_file(folder() / name, head + bytes(HEAD - len(head)) + content)
        _prune(most)
    except OSError as error:
        _say("unwritable", "kept plans in %s cannot be written (%s): plans are made in each process", _shown(), error)
        return False
    return True


def entries() -> list[tuple[Path, Any]]:
    """The files and what `stat` says of them; those that were not used for longest come first."""
    found = []
    with contextlib.suppress(OSError):
        for path in folder().iterdir():
            with contextlib.suppress(OSError):
                found.append((path, path.stat()))
    return sorted(found, key=lambda each: each[1].st_mtime_ns)


def clear() -> int:
    """Remove all files; returns how many there were."""
    found = entries()
    for path, _ in found:
        with contextlib.suppress(OSError):
            path.unlink()
    return len(found)


def _prune(most: int) -> None:
    found = entries()
    total = sum(stat.st_size for _, stat in found)
    for path, stat in found:
        if total <= most:
            return
        with contextlib.suppress(OSError):
            path.unlink()
        total -= stat.st_size


def _shown() -> str:
    try:
        return str(folder())
    except OSError:
        return "of a user without a home folder"


def _say(kind: str, message: str, *args: object) -> None:
    if kind not in _said:
        _said.add(kind)
        log.warning(message, *args)
