"""A progress bar on a terminal, gone when it is done."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any


def track(items: Sequence[Any], what: str, name: Callable[[Any], str]) -> Iterable[Any]:
    """Yield the items; on a terminal, a bar on stderr says which one is worked on."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(what, total=len(items))
        for item in items:
            progress.update(task, description=f"{what} {name(item)}")
            yield item
            progress.advance(task)
