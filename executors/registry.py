"""Executors by name: our own, and those that installed packages announce."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..primitives.errors import ArgumentError
from ..primitives.plugins import EXECUTORS, announced, load


def _reference() -> Any:
    from .single_thread import SingleThreadExecutor

    return SingleThreadExecutor(backend="reference")


def _single() -> Any:
    from .single_thread import SingleThreadExecutor

    return SingleThreadExecutor()


def _tiled() -> Any:
    from .tiling import TilingExecutor

    return TilingExecutor()


OWN: dict[str, Callable[[], Any]] = {"reference": _reference, "single": _single, "tiled": _tiled}


def announced_names() -> tuple[str, ...]:
    """The names of the executors that installed packages announce, without those that are our own."""
    return tuple(name for name in announced(EXECUTORS) if name not in OWN)


def find(name: str) -> Callable[[], Any]:
    """What makes an executor of that name. Raises ArgumentError for a name that nobody has."""
    if name in OWN:
        return OWN[name]
    points = announced(EXECUTORS)
    if name not in points:
        raise ArgumentError(f"there is no executor {name!r}; there is {', '.join(dict.fromkeys([*OWN, *points]))}")
    made: Callable[[], Any] = load(points[name])
    return made


def executor(name: str) -> Any:
    """An executor by name: "reference", "single", "tiled", or what an installed package announces."""
    return find(name)()
