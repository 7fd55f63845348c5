"""What other installed packages add to this one: they announce it as entry points, and nobody has to import them.

    [project.entry-points."tilework.steps"]      modules whose import registers kernel classes and implementations
    [project.entry-points."tilework.schemes"]    name = a scheme of that name
    [project.entry-points."tilework.backends"]   name = a module whose import registers implementations of that backend
    [project.entry-points."tilework.executors"]  name = what makes an executor, called without arguments

A package is asked only where a name is not one of our own: looking through what is installed takes a tenth of a second.
"""

from __future__ import annotations

import importlib
from importlib import metadata
from typing import Any

from .errors import PluginError

OWN = "..kernels.registered"
STEPS, SCHEMES, BACKENDS, EXECUTORS = (f"tilework.{kind}" for kind in ("steps", "schemes", "backends", "executors"))


def announced(group: str) -> dict[str, metadata.EntryPoint]:
    """{name: entry point} of a group, by name. Raises PluginError where two packages announce different things by one."""
    found: dict[str, metadata.EntryPoint] = {}
    for point in sorted(metadata.entry_points(group=group), key=lambda p: p.name):
        other = found.get(point.name)
        if other is not None and other.value != point.value:
            raise PluginError(
                f"two packages announce {point.name!r} under {group}: {_owner(other)} ({other.value}) and "
                f"{_owner(point)} ({point.value}); uninstall one of them"
            )
        found[point.name] = point
    return found


def load(point: metadata.EntryPoint) -> Any:
    """What an entry point stands for. Raises PluginError, naming the package, where it cannot be imported."""
    try:
        return point.load()
    except Exception as error:  # whatever somebody else's module does when it is imported
        raise PluginError(
            f"{point.value!r}, which {_owner(point)} announces as {point.name!r} under {point.group}, cannot be loaded: "
            f"{type(error).__name__}: {error}"
        ) from error


def load_own_steps() -> None:
    """Import every module of this package that registers kernels, installed or not."""
    importlib.import_module(OWN, __package__)


def load_steps() -> None:
    """Import every module that announces kernels."""
    for point in announced(STEPS).values():
        load(point)


def _owner(point: metadata.EntryPoint) -> str:
    return point.dist.name if point.dist is not None else "a package without a name"
