"""The kernel cache as one file, to carry to another machine or into a container.

A bundle holds compiled code, which is run as it is: load only bundles that you or somebody you trust wrote. Each entry
is still checked against its own hash, and is used only where package, compiler and processor are those it was made for.
"""

from __future__ import annotations

import os
import re
import zipfile
import zlib
from typing import Any

from ..primitives.archives import Clamped
from ..primitives.errors import CacheError
from . import cache

_NAME = re.compile(cache.NAME.pattern + r"\.(twk|py)")
LARGEST = 64 * 2**20  # bytes of one entry
DENSEST = 100  # bytes of all entries for each byte of a bundle: machine code packs to a third or so


def info() -> dict[str, Any]:
    """Where the cache is, how many entries it has and their bytes, and whether it can be written."""
    found = cache.entries()
    where = cache.folder()
    existing = where if where.exists() else next((p for p in where.parents if p.exists()), where)
    return {
        "folder": str(where),
        "entries": len(found),
        "bytes": sum(p.stat().st_size for p in found),
        "writable": os.access(existing, os.W_OK),
        "package": cache.package_stamp()[:16],
    }


def write(path: str | os.PathLike[str]) -> int:
    """Write every entry of the cache to one file; returns how many."""
    found = cache.entries()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as archive:
        for entry in found:
            for each in (entry, entry.with_suffix(".py")):
                if each.exists():
                    archive.write(each, each.name)
    return len(found)


def load(path: str | os.PathLike[str]) -> int:
    """Put a bundle's entries into the cache; returns how many. Raises CacheError for what is not a bundle."""
    loaded = 0
    try:
        with Clamped(path) as opened, zipfile.ZipFile(opened) as archive:
            members = archive.infolist()
            for member in members:
                if not _NAME.fullmatch(member.filename) or member.file_size > LARGEST:
                    raise CacheError(f"{path}: {member.filename!r} is no entry of a kernel cache; nothing was loaded")
            total, most = sum(member.file_size for member in members), DENSEST * os.stat(path).st_size
            if total > most:
                raise CacheError(
                    f"{path}: entries of {total} bytes in a bundle that has at most {most}; nothing was loaded"
                )
            for member in members:
                if member.filename.endswith(".twk"):
                    source = member.filename.removesuffix("twk") + "py"
                    text = archive.read(source) if source in archive.namelist() else b""
                    loaded += cache.restore(member.filename.removesuffix(".twk"), archive.read(member), text)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        if isinstance(error, CacheError):
            raise
        raise CacheError(f"{path}: not a bundle of a kernel cache, or a damaged one ({error})") from error
    return loaded
