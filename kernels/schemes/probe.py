"""What a scheme's decode does to each of its codes: found out by asking it for all of them, never by reading it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .definition import Definition

PROBES = (1.0, 0.37109375, 3.1415927, -0.0123456, 517.25, 1.1754944e-30)  # values of a float parameter
ZEROS = (0, 1, 7, -3, 8, 15)  # values of an integer parameter


@dataclass(frozen=True)
class Decoding:
    """How codes become weights.

    kind        "affine": (q - zero) * scale;  "offset": q * scale + offset, each operation rounded;
                "table": table[q] * scale;  "other"; "scaled": table[q] times what an integer parameter stands for, where
                that is exact (`factors`)
    scale       which parameter the scale is; None: there is none, and it is 1
    zero        which parameter the zero point is; None: `constant`
    offset      which parameter the offset is
    constant    the zero point that all blocks have
    table       "table", "scaled": float32, one entry for each code, the lowest first
    why         one line for people
    """

    kind: str
    scale: int | None = None
    zero: int | None = None
    offset: int | None = None
    constant: int = 0
    table: NDArray[np.float32] | None = None
    why: str = ""


def codes_of(scheme: Definition) -> range:
    low, high = scheme.code_range
    return range(low, high + 1)


def decoded(scheme: Definition, params: Sequence[Any]) -> NDArray[np.float32]:
    """The weight of every code with these parameters, the lowest code first."""
    run = scheme.captured_decode.main
    with np.errstate(all="ignore"):
        return np.array([run(q, *params) for q in codes_of(scheme)], np.float32)


def _same(a: NDArray[np.float32], b: NDArray[np.float32]) -> bool:
    """The same bits; NaN is NaN."""
    return bool(((a.view(np.int32) == b.view(np.int32)) | ((a != a) & (b != b))).all())


@lru_cache(maxsize=256)
def probe(scheme: Definition) -> Decoding:
    """Find out what `decode` computes, with parameters of every magnitude."""
    if scheme.decode is None:
        return Decoding("other", why="decode_block: codes are decoded a block at a time")
    if scheme.decode_takes_index:
        return Decoding("other", why="decode uses the position of the weight")
    if scheme.bits > 8:
        return Decoding("other", why=f"codes have {scheme.bits} bits")
    if any(p.table for p in scheme.stored):
        return Decoding("other", why="a learned table for each block")
    kinds = [p.kind for p in scheme.stored]
    q = np.arange(codes_of(scheme).start, codes_of(scheme).stop, dtype=np.float32)
    samples = [np.float32(p) for p in PROBES]
    if not kinds:
        return Decoding("table", table=decoded(scheme, ()), why="one value for each code")
    used = _used(scheme, kinds)

    def ask(*values: Any) -> NDArray[np.float32]:
        """The weight of every code, given the parameters that matter."""
        given = [samples[0] if kind == "f" else 1 for kind in kinds]
        for n, value in zip(used, values, strict=True):
            given[n] = value
        return decoded(scheme, given)

    if not used:
        return Decoding("table", table=ask(), why="one value for each code")
    if len(used) == 1 and kinds[used[0]] == "f":
        return _of_scale(ask, used[0], q, samples)
    if len(used) == 1 and kinds[used[0]] == "i":
        table = ask(0)
        if _factors(table, [ask(z) for z in ZEROS]) is not None:
            why = "a value for each code, times what the parameter stands for"
            return Decoding("scaled", scale=used[0], table=table, why=why)
    if len(used) == 2:
        found = _of_two(ask, used, q, samples, kinds)
        if found is not None:
            return found
    return Decoding("other", why="neither affine nor a table times a scale")


def factors(scheme: Definition, found: Decoding, values: Sequence[int]) -> NDArray[np.float32] | None:
    """What each value of the parameter of a "scaled" decoding stands for; None where one is not exact."""
    assert found.table is not None
    given: list[Any] = [np.float32(PROBES[0]) if p.kind == "f" else 1 for p in scheme.stored]
    tables = []
    for value in values:
        given[found.scale or 0] = value
        tables.append(decoded(scheme, given))
    return _factors(found.table, tables)


def _factors(table: NDArray[np.float32], tables: Sequence[NDArray[np.float32]]) -> NDArray[np.float32] | None:
    """The number that each of several tables is a table's multiple by, to the bit; None where there is none."""
    if not np.isfinite(table).all() or not table.any():
        return None
    at = int(np.argmax(np.abs(table)))
    with np.errstate(all="ignore"):
        made = np.array([t[at] / table[at] for t in tables], np.float32)
        exact = all(_same(t, table * factor) for t, factor in zip(tables, made, strict=True))
    return made if exact and np.isfinite(made).all() else None


def _used(scheme: Definition, kinds: Sequence[str]) -> list[int]:
    """Which parameters decode depends on: some are only for encode, a threshold for example."""
    found = []
    for n, kind in enumerate(kinds):
        values: Sequence[Any] = [np.float32(p) for p in PROBES] if kind == "f" else ZEROS
        made = []
        for value in values:
            given: list[Any] = [np.float32(0.5) if k == "f" else 1 for k in kinds]
            given[n] = value
            made.append(decoded(scheme, given))
        if not all(_same(made[0], other) for other in made[1:]):
            found.append(n)
    return found


def _of_scale(
    ask: Callable[..., NDArray[np.float32]], scale: int, q: NDArray[np.float32], samples: Sequence[Any]
) -> Decoding:
    ones = ask(np.float32(1))
    with np.errstate(all="ignore"):
        times = all(_same(ask(s), ones * s) for s in samples)
    if not times:
        return Decoding("other", why="not proportional to the parameter")
    zero = q[0] - ones[0]
    if np.isfinite(zero) and zero == np.rint(zero) and abs(zero) <= 1 << 16 and _same(ones, q - zero):
        return Decoding(
            "affine", scale=scale, constant=int(zero), why=f"(q - {int(zero)}) * scale" if zero else "q * scale"
        )
    return Decoding("table", scale=scale, table=ones, why="a value for each code, times the scale")


def _of_two(
    ask: Callable[..., NDArray[np.float32]],
    used: Sequence[int],
    q: NDArray[np.float32],
    samples: Sequence[Any],
    kinds: Sequence[str],
) -> Decoding | None:
    for swap in (False, True):
        scale, other = (used[1], used[0]) if swap else (used[0], used[1])
        if kinds[scale] != "f":
            continue
        zeros = [z if kinds[other] == "i" else np.float32(z) for z in ZEROS]

        def of(s: Any, o: Any, swap: bool = swap) -> NDArray[np.float32]:
            return ask(o, s) if swap else ask(s, o)

        with np.errstate(all="ignore"):
            if all(_same(of(s, z), (q - np.float32(z)) * s) for s, z in itertools.product(samples, zeros)):
                return Decoding("affine", scale=scale, zero=other, why="(q - zero point) * scale")
            pairs = itertools.product(samples, samples)
            if kinds[other] == "f" and all(_same(of(s, o), q * s + o) for s, o in pairs):
                return Decoding("offset", scale=scale, offset=other, why="q * scale + offset")
    return None
