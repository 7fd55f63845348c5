"""New Python processes, as a user's would be, for figures of what starting costs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path


def python(arguments: Sequence[str], folder: str | Path | None = None, **variables: str) -> str:
    """What a new process of this Python prints, with `variables` added to the environment.

    The byte code of modules is kept, as Python does by itself: without PYTHONDONTWRITEBYTECODE, which would have each
    process compile all sources. Raises CalledProcessError where the process fails; what it said is on stderr by then.
    """
    environment = {**os.environ, **variables}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, *arguments]
    return subprocess.run(command, env=environment, cwd=folder, stdout=subprocess.PIPE, text=True, check=True).stdout
