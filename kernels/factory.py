"""Which implementation of a kernel runs, on which backend.

A backend is only a name. What is registered here under (kernel name, backend) may come from this package or from
anybody else, and several variants of one kernel may compete: the one with the highest priority whose requirements
hold is taken. A miss says what exists where, and why each candidate refused.
"""

from __future__ import annotations

import importlib
import importlib.util
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from ..primitives.errors import KernelNotFound
from ..primitives.plugins import BACKENDS, announced, load, load_steps
from .facts import wanted
from .tileparams import Work, values_of

OWN = ("cpu", "cuda", "reference")  # backends of this package

Requirement = Callable[..., "str | bool | None"]


@dataclass(frozen=True)
class Whole:
    """An implementation that is no tile function: `fn(*operands)` takes whole arrays and writes the outputs in place."""

    fn: Callable[..., None]


@dataclass(frozen=True)
class WithParams:
    """A tile function whose trailing integers depend on its operands: `params(*operands)` returns them.

    operands   what the sweep was given: shapes, strides and types, no data
    trailing   how many of the last operands follow these integers in the block of a native entry
    """

    tile: Any
    params: Callable[..., Sequence[int]]
    trailing: int = 0


@dataclass(frozen=True)
class Expand:
    """An implementation made of other steps, registered under "expand." and the kernel's name.

    When a plan is made, `fn(pipe, kernel, operands)` adds steps to `pipe` and returns the value that stands for what
    the kernel writes (a tuple for several slots). operands: {slot: Value}. Steps whose operands are all constants run
    right then, so packing weights is an ordinary kernel.
    """

    fn: Callable[..., Any]


@dataclass(frozen=True)
class Variant:
    """One registered way to run a kernel on a backend."""

    name: str
    backend: str
    variant: str
    build: Callable[..., Any]
    requires: tuple[Requirement, ...] = ()
    priority: int = 0
    tile_params: Mapping[str, Any] = field(default_factory=dict)
    tile_model: Callable[..., Work] | None = None

    def refuses(self, facts: Mapping[str, Any]) -> str | None:
        """Why this variant cannot serve, or None. A requirement returns False or a reason to refuse."""
        for requirement in self.requires:
            answer = requirement(**wanted(requirement, facts))
            if answer is False:
                return f"{getattr(requirement, '__name__', requirement)} does not hold"
            if isinstance(answer, str):
                return answer
        return None

    def make(self, facts: Mapping[str, Any]) -> Any:
        """What `build` returns: a tile function, a Native description, or a Whole."""
        return self.build(**wanted(self.build, facts))

    def params(self, tile: Mapping[str, int]) -> tuple[int, ...]:
        """The integers that follow the operands of the tile function, where it says them by `tile_params` alone."""
        return values_of(self.tile_params, tile, self.name)

    def work(self, facts: Mapping[str, Any]) -> Work | None:
        """What the tile in `facts` makes it do; None where it has no model. Raises ArgumentError for one that cannot be."""
        return None if self.tile_model is None else self.tile_model(**wanted(self.tile_model, facts))


_variants: dict[tuple[str, str], list[Variant]] = {}
_loaded: set[tuple[str, str | None]] = set()  # backends and kernels whose own implementations have been imported
_asked: set[str] = set()  # backends for which installed packages have been asked
_asking = threading.local()  # those for which this thread is asking
_changed: set[str] = set()  # backends to which somebody else has added variants, or from which some were taken


def register(
    name: str,
    *,
    backend: str,
    variant: str = "generic",
    requires: Requirement | Sequence[Requirement] = (),
    priority: int = 0,
    tile_params: Mapping[str, Any] | None = None,
    tile_model: Callable[..., Work] | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator for a builder.

    name         the kernel's name, or the part before a "_" that a whole family shares ("gemm" serves "gemm_u8s8s32")
    requires     callables that take any of the facts `kernel`, `dtypes`, `ranks`, `isa`; False or a text refuses
    tile_params  what may be tuned: {name: TileParam, or its default}. Of a tile function, the integers that follow its
                 operands, in this order; of an expansion, what its builder reads from the fact `tile`
    tile_model   a function of any of the facts `kernel`, `sizes`, `tile`, `isa`, `dtypes`: the Work of a tile;
                 ArgumentError where such a tile cannot run

    The builder takes any of the same facts by name. Registering a variant again replaces it.
    """
    needs = (requires,) if callable(requires) else tuple(requires)

    def add(build: Callable[..., Any]) -> Callable[..., Any]:
        if not str(getattr(build, "__module__", "")).startswith(f"{__package__}."):
            _changed.add(backend)
            _load(backend, name)  # what replaces one of ours comes after it, whoever is asked for first
        found = Variant(name, backend, variant, build, needs, priority, dict(tile_params or {}), tile_model)
        known = _variants.setdefault((name, backend), [])
        replaced = [v for v in known if v.variant == variant]
        known.append(found)  # another thread may be adding to the same family: nothing of it gets lost
        for each in replaced:
            known.remove(each)
        return build

    return add


def unregister(name: str, backend: str, variant: str | None = None) -> None:
    """Take variants back; without `variant`, all of the kernel's on that backend."""
    _changed.add(backend)
    known = _variants.get((name, backend), [])
    known[:] = [v for v in known if variant is not None and v.variant != variant]
    if not known:
        _variants.pop((name, backend), None)


def is_own(backend: str) -> bool:
    """Whether a backend has this package's implementations and nothing else."""
    return backend in OWN and backend not in _changed


def find(name: str, backend: str, variant: str | None = None, **facts: Any) -> Variant:
    """The variant that serves; raises KernelNotFound with every candidate's reason."""
    refused: list[str] = []
    found = find_if_any(name, backend, variant, refused, **facts)
    if found is None:
        raise KernelNotFound(_miss(name, backend, refused))
    return found


def find_if_any(
    name: str, backend: str, variant: str | None = None, refused: list[str] | None = None, **facts: Any
) -> Variant | None:
    """The variant that serves, or None; why each candidate does not is added to `refused`."""
    _load(backend, name)
    if backend not in _asked and not any((key, backend) in _variants for key in _family(name)):
        _load_plugins(backend)
    reasons = [] if refused is None else refused
    for key in _family(name):
        for candidate in sorted(_variants.get((key, backend), ()), key=lambda v: -v.priority):
            if variant is not None and candidate.variant != variant:
                reasons.append(f"{key}/{candidate.variant}: not the variant {variant!r} that was asked for")
                continue
            reason = candidate.refuses({**facts, "name": name})
            if reason is None:
                return candidate
            reasons.append(f"{key}/{candidate.variant}: {reason}")
    return None


def get(name: str, backend: str, variant: str | None = None, **facts: Any) -> Any:
    """Build and return the implementation: a tile function, a Native description, or a Whole."""
    return find(name, backend, variant, **facts).make({**facts, "name": name})


def variants(name: str, backend: str) -> list[Variant]:
    """Everything that could serve, best first, whether or not its requirements hold."""
    _load(backend, name)
    return [v for key in _family(name) for v in sorted(_variants.get((key, backend), ()), key=lambda v: -v.priority)]


def backends(name: str | None = None) -> list[str]:
    """The backends that have anything, or that have this kernel."""
    for own in OWN:
        _load(own, name)
    keys = _family(name) if name is not None else None
    return sorted({backend for (key, backend), found in _variants.items() if found and (keys is None or key in keys)})


def names(backend: str) -> set[str]:
    """Every name that is registered on a backend, of a kernel or of a family of them."""
    _load(backend)
    return {name for (name, on), found in _variants.items() if on == backend and found}


def _family(name: str) -> list[str]:
    parts = name.split("_")
    return ["_".join(parts[:n]) for n in range(len(parts), 0, -1)]


def _load(backend: str, name: str | None = None) -> None:
    """Import this package's own implementations for a backend: of one kernel, or all of them.

    The package of a backend may say in HOMES which of its modules register which names; then only those of the kernel's
    family are imported.
    """
    if (backend, name) in _loaded:
        return
    homes = _homes(backend) or {}
    family = () if name is None else _family(name)
    for module, theirs in homes.items():
        if name is None or any(key in theirs for key in family):
            importlib.import_module(f"{__package__}.{backend}.{module}")
    _loaded.add((backend, name))  # only now: another thread would look for what is not there yet


@lru_cache
def _homes(backend: str) -> Mapping[str, Sequence[str]] | None:
    """HOMES of this package's module for a backend; empty without one, None where there is no such module."""
    home = f"{__package__}.{backend}"
    if not backend.isidentifier() or importlib.util.find_spec(home) is None:
        return None
    return getattr(importlib.import_module(home), "HOMES", {})


def _load_plugins(backend: str) -> None:
    """Import what installed packages announce: this backend, and kernels whose implementations may be for it."""
    asking = _asking.__dict__.setdefault("backends", set())
    if backend in asking:  # by what it is importing
        return
    asking.add(backend)
    try:
        point = announced(BACKENDS).get(backend)
        if point is not None:
            load(point)
        load_steps()
    finally:
        asking.discard(backend)
        _asked.add(backend)


def _miss(name: str, backend: str, refused: list[str]) -> str:
    message = f"no kernel {name!r} on backend {backend!r}: "
    if refused:
        return message + "; ".join(refused)
    on_backend = sorted(names(backend))
    shown = ", ".join(on_backend[:12]) + (f" and {len(on_backend) - 12} more" if len(on_backend) > 12 else "")
    return f"{message}{backend} has {shown or 'none'}; {name!r} exists on {', '.join(backends(name)) or 'no backend'}"
