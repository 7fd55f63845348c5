"""`tilework scheme certify`: every one of the 2**32 float32 inputs through a scheme without parameters.

Two references. `exact`: the scheme's own values, in rational arithmetic: an input has the code of the nearest value,
and of two as near the even code; beyond the largest value it saturates, or overflows as soon as rounding passes it;
what is not a number has a code whose value is none. Thresholds are found once, as float32 bit patterns, so expected
codes are runs. `ml_dtypes`: the casts of that library, where it has the format.

A certificate is for the compiled encode on the machine that it ran on; `tilework scheme check` ties that to plain
Python and to other instruction sets.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np

import tilework as tw
from tilework.kernels.schemes.packing import pack, unpack
from tilework.primitives.errors import ArgumentError, Unsupported

from ..progress import track

INFINITY = 0x7F800000
CHUNK = 1 << 22
NEAR = 48  # bit patterns on both sides of a threshold that a quick certificate looks at
NOTHING = -1  # expected: a code whose value is not a number
ANY = -2  # expected: anything, where the format has no such code

ML_DTYPES = {
    "fp8_e4m3_nonsat": "float8_e4m3fn",
    "fp8_e5m2_nonsat": "float8_e5m2",
    "fp8_e4m3fnuz_nonsat": "float8_e4m3fnuz",
    "fp8_e5m2fnuz_nonsat": "float8_e5m2fnuz",
    "fp8_e4m3b11fnuz_nonsat": "float8_e4m3b11fnuz",
    "fp8_e4m3_ieee_nonsat": "float8_e4m3",
    "fp8_e3m4_nonsat": "float8_e3m4",
    "fp6_e2m3": "float6_e2m3fn",
    "fp6_e3m2": "float6_e3m2fn",
    "fp4_e2m1": "float4_e2m1fn",
    "bf16": "bfloat16",
}


@dataclass(frozen=True)
class Certificate:
    """What came out. Holds where nothing differs.

    inputs     how many were tried; 2**32 for a whole certificate
    different  inputs with another code than the reference's
    first      the first of them: input, bits, code, expected code
    """

    scheme: str
    reference: str
    inputs: int
    different: int
    first: str
    seconds: float
    digest: str

    def __bool__(self) -> bool:
        return self.different == 0 and self.inputs > 0

    @property
    def whole(self) -> bool:
        return self.inputs == 1 << 32

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "holds": bool(self), "whole": self.whole}

    def __str__(self) -> str:
        tried = "all 2**32 float32 inputs" if self.whole else f"{self.inputs} float32 inputs"
        verdict = "0 differ" if self else f"{self.different} differ; first: {self.first}"
        return f"{self.scheme} against {self.reference}: {tried}, {verdict} ({self.seconds:.0f} s, {self.digest})"


@dataclass(frozen=True)
class Runs:
    """Expected codes as runs over magnitudes: codes[i] from bit pattern starts[i] on; positive inputs and negative ones."""

    starts: tuple[np.ndarray, np.ndarray]
    codes: tuple[np.ndarray, np.ndarray]
    nothing: int

    def expected(self, first: int, count: int) -> np.ndarray:
        """Codes of the inputs with bit patterns first .. first + count, which have one sign."""
        sign, low = first >> 31, first & 0x7FFFFFFF
        starts, codes = self.starts[sign], self.codes[sign]
        edges = np.clip(np.append(starts, INFINITY + 1) - low, 0, count)
        made = np.repeat(codes, np.diff(edges))
        return np.concatenate([made, np.full(count - len(made), self.nothing, np.int64)])


def values_of(scheme: Any) -> np.ndarray:
    """The value of every code, by compiled decode."""
    low, high = scheme.code_range
    codes = np.arange(low, high + 1)
    packed = pack(codes[None], scheme.bits)
    return tw.schemes.from_parts(scheme, packed, {}, (1, len(codes))).dequantize()[0]


def _least_at(number: Fraction, inclusive: bool) -> int:
    """The bit pattern of the least float32 that is at least `number` (or above it), which is positive."""
    with np.errstate(over="ignore"):
        guess = int(np.float32(float(number)).view(np.uint32))
    guess = min(guess, INFINITY)

    def reaches(pattern: int) -> bool:
        if pattern >= INFINITY:
            return True
        value = Fraction(float(np.uint32(pattern).view(np.float32)))
        return value >= number if inclusive else value > number

    while not reaches(guess):
        guess += 1
    while guess > 0 and reaches(guess - 1):
        guess -= 1
    return guess


def exact(scheme: Any, saturates: bool | None = None) -> Runs:
    """Runs of the codes that a scheme should give, from the values that its codes have.

    saturates   what happens beyond the largest value; None: found out with an infinity
    """
    values = values_of(scheme)
    low, _ = scheme.code_range
    code_of: dict[tuple[float, bool], int] = {}
    for n, v in enumerate(values):
        if np.isfinite(v):
            code_of.setdefault((float(v), bool(np.signbit(v))), n + low)
    if saturates is None:
        with np.errstate(all="ignore"):
            made = int(scheme.quantize(np.array([[np.inf]], np.float32)).integer_codes()[0, 0])
        saturates = bool(np.isfinite(values[made - low]))
    has_nothing = bool(np.isnan(values).any())
    beyond = {s: next((n + low for n, v in enumerate(values) if np.isinf(v) and (v < 0) == s), NOTHING) for s in (0, 1)}
    starts, codes = [], []
    for sign in (False, True):
        sized = {abs(v): c for (v, s), c in code_of.items() if s == sign and v != 0}
        zero = code_of.get((0.0, sign), code_of.get((0.0, not sign)))
        ladder = [(Fraction(0), zero)] if zero is not None else []
        ladder += [(Fraction(v), sized[v]) for v in sorted(sized)]
        if not ladder:
            raise Unsupported(f"{scheme.name} has no values of one sign; a certificate compares both")
        at, made_codes = [0], [ladder[0][1]]
        for (a, _), (b, d) in pairwise(ladder):
            at.append(_least_at((a + b) / 2, inclusive=d % 2 == 0))
            made_codes.append(d)
        if not saturates and len(ladder) > 1:
            (a, _), (b, c) = ladder[-2:]
            at.append(_least_at(b + (b - a) / 2, inclusive=c % 2 == 1))
            made_codes.append(beyond[sign])
        starts.append(np.array(at, np.int64))
        codes.append(np.array(made_codes, np.int64))
    return Runs((starts[0], starts[1]), (codes[0], codes[1]), NOTHING if has_nothing else ANY)


def _chunks(runs: Runs, values: np.ndarray, quick: bool) -> list[tuple[int, int]]:
    """(first bit pattern, count) of the inputs to try, each with one sign."""
    if not quick:
        return [(first, CHUNK) for first in range(0, 1 << 32, CHUNK)]
    found = []
    for sign in (0, 1):
        own = np.unique(np.abs(values[np.isfinite(values)])).view(np.uint32)
        places = [*runs.starts[sign].tolist(), *own.tolist(), 0, 1, 0x800000, INFINITY, 0x7FFFFFFF]
        for place in sorted(set(places)):
            first = max(0, place - NEAR)
            found.append(((sign << 31) + first, min(2 * NEAR, (1 << 31) - first)))
    rng = np.random.default_rng(0)
    return found + [(int(n) << 12, 1 << 12) for n in rng.integers(0, 1 << 20, 16)]


def certify(scheme: Any, against: str = "exact", *, quick: bool = False) -> Certificate:
    """Compare the codes of float32 inputs with a reference; a progress bar on a terminal.

    against   "exact" or "ml_dtypes"
    quick     a few thousand inputs instead of all: those near thresholds, and some more

    Raises ArgumentError for a scheme with parameters, Unsupported where ml_dtypes has no such format.
    """
    if scheme.params or scheme.block_bytes is not None or scheme.encode is None or scheme.encode_takes_index:
        raise ArgumentError(
            f"{scheme.name} has parameters, blocks or positions; a certificate is for formats of single numbers, "
            f"such as {', '.join(n for n in tw.schemes.names() if n.startswith('fp8'))}"
        )
    if against not in ("exact", "ml_dtypes"):
        raise ArgumentError(f"there is no reference {against!r}; exact and ml_dtypes are")
    values = values_of(scheme)
    runs = exact(scheme)
    kind = _ml_dtype(scheme) if against == "ml_dtypes" else None
    start = time.perf_counter()
    inputs = different = 0
    first = ""
    chunks = _chunks(runs, values, quick)
    for at, count in _tracked(chunks, scheme.name):
        x = np.arange(at, at + count, dtype=np.uint32).view(np.float32)
        found = codes_of(scheme, x)
        wrong = _wrong(found, runs.expected(at, count), values) if kind is None else _unlike(found, x, kind)
        inputs += count
        if wrong.any():
            different += int(wrong.sum())
            n = int(np.flatnonzero(wrong)[0])
            if not first:
                wanted = runs.expected(at, count)[n] if kind is None else int(_cast(x[n : n + 1], kind)[0])
                shown = {NOTHING: "one that is not a number", ANY: "any"}.get(int(wanted), int(wanted))
                first = f"{x[n]!r} (0x{at + n:08x}) has code {int(found[n])}, expected {shown}"
    return Certificate(
        scheme.name, against, inputs, different, first, time.perf_counter() - start, f"digest {scheme.digest}"
    )


def _tracked(chunks: Sequence[tuple[int, int]], name: str) -> Iterator[tuple[int, int]]:
    yield from track(chunks, f"certifying {name}", lambda c: f"0x{c[0]:08x}")


def codes_of(scheme: Any, x: np.ndarray) -> np.ndarray:
    """Codes of numbers, by compiled encode."""
    rows = 2 if len(x) % 2 == 0 else 1  # so that two threads have something to do
    q = scheme.quantize(x.reshape(rows, -1))
    if scheme.bits == 8 and not scheme.signed:
        return q.codes.reshape(-1)
    if scheme.bits == 16:
        return q.codes.view(np.uint16).reshape(-1)
    if scheme.bits == 4 and not scheme.signed and x.size % 4 == 0:
        return np.stack([q.codes & 15, q.codes >> 4], axis=-1).reshape(-1)
    return unpack(q.codes, scheme.bits, x.size // rows, scheme.signed).reshape(-1)


def _wrong(found: np.ndarray, expected: np.ndarray, values: np.ndarray) -> np.ndarray:
    wrong = found != expected
    special = expected < 0 if (expected < 0).any() else None
    if special is not None and not (expected[special] >= 0).any():
        nothing = expected == NOTHING
        wrong[nothing] = ~np.isnan(values[found[nothing]])
        wrong[expected == ANY] = False
    return wrong


def _ml_dtype(scheme: Any) -> Any:
    import ml_dtypes

    if scheme.name not in ML_DTYPES:
        raise Unsupported(f"ml_dtypes has no format {scheme.name}; it has {', '.join(ML_DTYPES)}")
    return np.dtype(getattr(ml_dtypes, ML_DTYPES[scheme.name]))


def _cast(x: np.ndarray, kind: Any) -> np.ndarray:
    with np.errstate(all="ignore"):
        return x.astype(kind).view(f"u{kind.itemsize}")


def _unlike(found: np.ndarray, x: np.ndarray, kind: Any) -> np.ndarray:
    wanted = _cast(x, kind)
    wrong = found != wanted
    if wrong.any():  # NaN is NaN
        at = np.flatnonzero(wrong)
        a = found[at].astype(wanted.dtype).view(kind).astype(np.float32)
        b = wanted[at].view(kind).astype(np.float32)
        wrong[at[np.isnan(a) & np.isnan(b)]] = False
    return wrong
