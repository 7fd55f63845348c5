"""Vector loops over a block give what Python's loops give: extremes, NaN, zeros of either sign, and small tables."""

import numpy as np
import pytest
from numba import njit

from tilework.kernels.cpu import isa
from tilework.kernels.cpu.extremes import (
    any_nan,
    extent,
    first_zero,
    largest,
    largest_magnitude,
    smallest,
    smallest_magnitude,
)
from tilework.kernels.cpu.permute import most_entries, picker

SIZES = (0, 1, 15, 16, 17, 63, 64, 65, 100, 256, 257)


@njit
def found(x):
    return largest(x), smallest(x), largest_magnitude(x), smallest_magnitude(x), any_nan(x), first_zero(x), extent(x)


@pytest.mark.parametrize("n", SIZES)
def test_extremes_pass_nan_over_and_see_every_element(n):
    rng = np.random.default_rng(n)
    for _ in range(20):
        x = rng.standard_normal(n + 2).astype(np.float32)
        x[rng.integers(0, n + 2, n // 3)] = rng.choice(
            np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-42], np.float32)
        )
        x = x[1 : n + 1]  # not aligned
        numbers = x[~np.isnan(x)]
        hi, lo, far, near, nan, zero, ends = found(x)
        assert ends == (lo, hi)
        assert hi == max(numbers, default=-np.inf)
        assert lo == min(numbers, default=np.inf)
        assert far == max(np.abs(numbers), default=-np.inf)
        assert near == min(np.abs(numbers), default=np.inf)
        assert nan == bool(np.isnan(x).any())
        zeros = x[x == 0]
        assert np.signbit(zero) == (np.signbit(zeros[0]) if zeros.size else False)


@pytest.mark.parametrize("level", [lv.name for lv in isa.available() if most_entries(lv)])
@pytest.mark.parametrize("entries", [16, 32])
def test_tables_in_registers_give_their_entries_times_a_scale(level, entries):
    if entries > most_entries(isa.LEVELS[level]):
        pytest.skip(f"{level} looks {most_entries(isa.LEVELS[level])} entries up in registers")
    pick = picker(level, entries)

    @njit
    def run(table, codes, scale, out):
        pick(table, codes, scale, out)

    rng = np.random.default_rng(0)
    table = rng.standard_normal(entries).astype(np.float32)
    for n in (0, 1, 7, 8, 16, 31, 32, 100):
        for dtype in (np.uint8, np.int32):
            codes = rng.integers(0, entries, n).astype(dtype)
            out = np.full(n + 1, 7, np.float32)
            run(table, codes, np.float32(-0.37), out[:n])
            np.testing.assert_array_equal(out[:n], table[codes] * np.float32(-0.37), strict=True)
            assert out[n] == 7
