"""A written sequence: one Python function that is definition, NumPy oracle and source of compiled code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .floatops import traced


class Sequence:
    """A written sequence: call it on numbers or arrays, or let a backend trace `fn`.

    name        as users write it
    signatures  (kinds of the arguments, kind of the result), such as ("ff", "f"); most have one
    """

    def __init__(self, fn: Callable[..., Any], *signatures: str) -> None:
        self.fn, self.name = fn, fn.__name__
        self.signatures = [tuple(s.split("->")) for s in signatures]
        self.__doc__, self.__name__, self.__module__, self.__wrapped__ = fn.__doc__, fn.__name__, fn.__module__, fn

    def __call__(self, *args: Any) -> Any:
        if traced(*args):
            return self.fn(*args)
        kinds = self._kinds(args)
        with np.errstate(all="ignore"):
            return self.fn(*map(_as_kind, args, kinds))

    def _kinds(self, args: tuple[Any, ...]) -> str:
        if len(args) != len(self.signatures[0][0]):
            raise TypeError(f"{self.name} takes {len(self.signatures[0][0])} arguments; {len(args)} were given")
        if len(self.signatures) == 1:
            return self.signatures[0][0]
        given = [_kind_of(a) for a in args]
        for kinds, _ in self.signatures:
            if all(_ORDER[g] <= _ORDER[k] for g, k in zip(given, kinds, strict=True)):
                return kinds
        raise TypeError(f"{self.name} takes kinds {self.signatures}; {given} were given")

    def __repr__(self) -> str:
        return f"<tilework sequence {self.name}>"


_ORDER = {"b": 0, "i": 1, "f": 2}
_DTYPE = {"f": np.float32, "i": np.int32, "b": np.bool_}


def _kind_of(x: Any) -> str:
    return {"b": "b", "i": "i", "u": "i", "f": "f"}[np.asarray(x).dtype.kind]


def _as_kind(x: Any, kind: str) -> Any:
    if isinstance(x, np.ndarray):
        return x.astype(_DTYPE[kind], copy=False)
    return np.asarray(x).astype(_DTYPE[kind])[()] if kind == "i" else _DTYPE[kind](x)


SEQUENCES: dict[str, Sequence] = {}


def sequence(*signatures: str) -> Callable[[Callable[..., Any]], Sequence]:
    """Register a function as a written sequence, with the narrowest signature first."""

    return lambda fn: register(fn, *signatures)


def register(fn: Callable[..., Any], *signatures: str) -> Sequence:
    """Make `fn` callable by its name in compiled user functions."""
    SEQUENCES[fn.__name__] = made = Sequence(fn, *signatures)
    return made
