"""Files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def placed(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A path beside `path` to write to; what is there at the end takes the place of `path`.

    Where writing fails, for want of space say, an earlier file is still what it was, and nothing is left beside it. A
    link stays a link, and what is no regular file (a pipe, a device) is written to directly.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        yield target
        return
    part = target.with_name(f"{target.name}.{os.getpid()}.part")
    try:
        yield part
        if target.exists():
            shutil.copymode(target, part)
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)
