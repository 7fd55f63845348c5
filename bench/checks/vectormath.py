"""Largest error of each vector function over float32 inputs: all 2**32 of them, or every n-th pattern.

    python -m tilework.bench.checks.vectormath                  # everything; minutes a function
    python -m tilework.bench.checks.vectormath --step 257 exp   # a sample of one function in a second

The reference is the float64 function of the C library, whose own error is far below the float32 steps measured here. A
distance counts float32 values between the result and the correctly rounded one. Where the exact value lies so near a
tie that float64 cannot tell, the distance may come out one too large or too small; the real error, in units in the last
place, is measured against the float64 value itself and does not jump there. Exit status 1 if a promise is broken.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from ...kernels.cpu import vectormath

SQRT_HALF = math.sqrt(0.5)
A = 2 * math.sqrt(2 / math.pi)
B = A * 0.044715


@njit(error_model="numpy")
def _exp(x):
    return math.exp(x)


@njit(error_model="numpy")
def _exp2(x):
    return 2.0**x


@njit(error_model="numpy")
def _log(x):
    return math.log(x) if x > 0 else (-np.inf if x == 0 else np.nan)


@njit(error_model="numpy")
def _log2(x):
    return np.log2(x) if x > 0 else (-np.inf if x == 0 else np.nan)


@njit(error_model="numpy")
def _tanh(x):
    return math.tanh(x)


@njit(error_model="numpy")
def _erf(x):
    return math.erf(x)


@njit(error_model="numpy")
def _sigmoid(x):
    return 1 / (1 + math.exp(-x))


@njit(error_model="numpy")
def _silu(x):
    return x / (1 + math.exp(-x)) if not x < -700 else -0.0


@njit(error_model="numpy")
def _gelu(x):
    return x * 0.5 * math.erfc(-x * SQRT_HALF) if not -math.inf < x < -30 else -0.0


@njit(error_model="numpy")
def _gelu_tanh(x):
    return x / (1 + math.exp(-x * (A + B * x * x))) if not -math.inf < x < -30 else -0.0


@njit(error_model="numpy")
def _rsqrt(x):
    return 1 / math.sqrt(x) if x >= 0 else np.nan


@njit(error_model="numpy")
def _reciprocal(x):
    return 1 / x


@njit(error_model="numpy")
def _sqrt(x):
    return math.sqrt(x) if x >= 0 else np.nan


@njit(error_model="numpy")
def _round_half_away(x):
    return math.copysign(np.floor(abs(x) + 0.5), x)


REFERENCE: dict[str, tuple[Callable[..., Any], int]] = {  # float64 meaning, and the ulp promised
    "exp": (_exp, 1),
    "exp2": (_exp2, 1),
    "log": (_log, 1),
    "log2": (_log2, 1),
    "tanh": (_tanh, 2),
    "erf": (_erf, 2),
    "sigmoid": (_sigmoid, 2),
    "silu": (_silu, 2),
    "gelu": (_gelu, 2),
    "gelu_tanh": (_gelu_tanh, 2),
    "rsqrt": (_rsqrt, 2),
    "reciprocal": (_reciprocal, 0),
    "sqrt": (_sqrt, 0),
    "round_half_away": (_round_half_away, 0),
}
CHUNK = 1 << 22
EDGES = (0x00000000, 0x80000000, 0x7F800000, 0xFF800000, 0x00800000, 0x80800000, 0x3F800000, 0xBF800000)
WORST, WORST_X, DISTANCE, DISTANCE_X, WRONG, WRONG_X = range(6)


def checker(name: str) -> tuple[Callable[..., None], Callable[..., None]]:
    """(fill, measure): compute the function over an array, and add up its errors."""
    function, (reference, _) = getattr(vectormath, name), REFERENCE[name]

    @njit(error_model="numpy")
    def fill(x, y):
        for i in range(x.size):
            y[i] = function(x[i])

    @njit(error_model="numpy")
    def measure(x, y, found):
        for i in range(x.size):
            exact, got = reference(np.float64(x[i])), np.float64(y[i])
            nearest = np.float32(exact)
            if nearest != nearest or got != got:
                if nearest == nearest or got == got:
                    found[WRONG] += 1
                    found[WRONG_X] = x[i]
                continue
            if np.isinf(nearest) or np.isinf(got) or (nearest == 0 and got == 0):
                if nearest != got or math.copysign(1.0, nearest) != math.copysign(1.0, got):
                    found[WRONG] += 1
                    found[WRONG_X] = x[i]
                continue
            step = math.ldexp(1.0, max(math.frexp(np.float64(nearest))[1] - 24, -149))
            error, distance = abs(got - exact) / step, abs(got - np.float64(nearest)) / step
            if error > found[WORST]:
                found[WORST], found[WORST_X] = error, x[i]
            if distance > found[DISTANCE]:
                found[DISTANCE], found[DISTANCE_X] = distance, x[i]

    return fill, measure


def check(name: str, step: int, advance: Callable[[int], None]) -> np.ndarray:
    """Errors of one function over every `step`-th pattern, and around the special ones."""
    fill, measure = checker(name)
    found = np.zeros(6)
    near = np.array([(e + d) % (1 << 32) for e in EDGES for d in range(-64, 65)], np.uint32).view(np.float32)
    y = np.empty(CHUNK, np.float32)
    fill(near, y[: near.size])
    measure(near, y[: near.size], found)
    total = -(-(1 << 32) // step)
    for first in range(0, total, CHUNK):
        last = min(first + CHUNK, total)
        x = (np.arange(first, last, dtype=np.uint64) * np.uint64(step)).astype(np.uint32).view(np.float32)
        fill(x, y[: x.size])
        measure(x, y[: x.size], found)
        advance(x.size)
    return found


def main(arguments: list[str] | None = None) -> int:
    """Check the functions that the command line names, over all float32 values."""
    parser = argparse.ArgumentParser(
        prog="check_vectormath", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("functions", nargs="*", metavar="function", help=f"of {', '.join(REFERENCE)}; all by default")
    parser.add_argument("--step", type=int, default=1, help="take every n-th bit pattern (1: all)")
    asked = parser.parse_args(arguments)
    if unknown := set(asked.functions) - set(REFERENCE):
        parser.error(f"unknown function {', '.join(sorted(unknown))}: {', '.join(REFERENCE)} are known")
    broken = False
    print(f"{'function':16}{'distance':>9}{'promised':>9}{'real ulp':>9}  {'at':16}{'wrong specials':>15}{'time s':>8}")
    for name in asked.functions or REFERENCE:
        start = time.perf_counter()
        columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
        with Progress(*columns, transient=True, disable=not sys.stderr.isatty()) as progress:
            task = progress.add_task(name, total=-(-(1 << 32) // asked.step))
            found = check(name, asked.step, lambda n, task=task, progress=progress: progress.advance(task, n))
        promised = REFERENCE[name][1]
        broken |= found[DISTANCE] > promised or found[WRONG] > 0
        wrong = f"{found[WRONG]:.0f}" + (f" ({found[WRONG_X]:.9g})" if found[WRONG] else "")
        print(
            f"{name:16}{found[DISTANCE]:9.0f}{promised:9}{found[WORST]:9.3f}  {found[WORST_X]:<16.9g}{wrong:>15}"
            f"{time.perf_counter() - start:8.1f}",
            flush=True,
        )
    return int(broken)


if __name__ == "__main__":
    sys.exit(main())
