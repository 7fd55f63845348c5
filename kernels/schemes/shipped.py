"""The schemes that come with tilework, by name. Each is a file that a user could have written."""

from __future__ import annotations

import dataclasses
import difflib
import importlib
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ...primitives.errors import ArgumentError, PipelineError, PluginError
from ...primitives.plugins import SCHEMES, announced, load
from ...primitives.storage import stored_as
from .definition import Definition
from .probe import decoded

FILES = (
    "integers",
    "ternary",
    "normalfloat",
    "microscaling",
    "minifloats",
    "mx",
    "nvfp4",
    "affine",
    "bitsandbytes",
    "gguf.legacy",
    "gguf.k_quants",
    "gguf.ternary",
    "gguf.tables",
    "gguf.lattices",
)


@lru_cache(maxsize=1)
def _all() -> dict[str, Definition]:
    found: dict[str, Definition] = {}
    for file in FILES:
        for scheme in importlib.import_module(f"{__package__}.{file}").SCHEMES:
            found[scheme.name] = scheme
    return found


def names() -> tuple[str, ...]:
    """Our own, then those that installed packages announce."""
    return tuple(dict.fromkeys([*_all(), *_of_plugins()]))


def is_shipped(name: str) -> bool:
    return name in _all()


def definition(name: str) -> Definition:
    """A scheme by name: one of our own, or one that an installed package announces. Raises ArgumentError with near names."""
    found = _all()
    if name not in found:
        found = {**found, **_of_plugins()}
    if name not in found:
        near = difflib.get_close_matches(str(name), found, n=3, cutoff=0.4)
        hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else "."
        raise ArgumentError(f"no shipped scheme {name!r}{hint} There are {', '.join(found)}")
    point = found[name]
    return point if isinstance(point, Definition) else _loaded(point)


def _of_plugins() -> dict[str, Any]:
    """The entry points of the schemes that installed packages announce, by name."""
    return dict(announced(SCHEMES))


def _loaded(point: Any) -> Definition:
    scheme = load(point)
    if not isinstance(scheme, Definition) or scheme.name != point.name:
        found = f"scheme {scheme.name!r}" if isinstance(scheme, Definition) else type(scheme).__name__
        raise PluginError(f"{point.value!r} is announced as scheme {point.name!r}, but is {found}")
    return scheme


@stored_as("shipped_scheme")
@dataclass(frozen=True)
class Reference:
    """A shipped scheme as a saved pipeline names it."""

    name: str

    def restored(self) -> Definition:
        return definition(self.name)


@stored_as("scheme")
@dataclass(frozen=True)
class Own:
    """A scheme that somebody wrote, as a saved pipeline holds it: its functions are kept as source."""

    name: str
    bits: int
    block: Any
    params: Any
    fit: Any
    encode: Any
    decode: Any
    signed: bool
    vector: int
    encode_block: Any
    decode_block: Any
    block_bytes: Any

    @classmethod
    def of(cls, scheme: Definition) -> Own:
        if scheme.grouped is not None:
            raise PipelineError(f"scheme {scheme.name!r} is grouped, which a file cannot keep; decode_block works")
        fields = {f.name: getattr(scheme, f.name) for f in dataclasses.fields(cls)}
        return cls(**fields)

    def restored(self) -> Definition:
        return Definition(**{f.name: getattr(self, f.name) for f in dataclasses.fields(self)})


def protect(scheme: Definition) -> None:
    """Raise ArgumentError for a scheme that takes the name of a shipped one and means something else by it."""
    ours = _all().get(scheme.name)
    if ours is None or ours is scheme or _same_codes(ours, scheme):
        return
    raise ArgumentError(
        f"{scheme.name!r} is a shipped scheme, and this one gives codes another meaning ({ours!r} is shipped); "
        f"give it another name"
    )


def _same_codes(a: Definition, b: Definition) -> bool:
    """Whether codes and parameters of one can be read by the other."""
    if (a.bits, a.block, a.signed, a.vector, a.stored) != (b.bits, b.block, b.signed, b.vector, b.stored):
        return False
    if {k: v.name for k, v in a.nested.items()} != {k: v.name for k, v in b.nested.items()}:
        return False
    if a.block_bytes != b.block_bytes or a.decode is None or b.decode is None or any(p.table for p in a.stored):
        return a.digest == b.digest
    samples = [tuple(np.float32(scale) if p.kind == "f" else 3 for p in a.stored) for scale in (1.0, 0.37109375, -2.5)]
    return all(decoded(a, s).tobytes() == decoded(b, s).tobytes() for s in samples)
