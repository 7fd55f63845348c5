"""Written sequences: accuracy, special values, the same bits compiled and in NumPy, fp8 and f16 codes."""

import math
import os
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from numba import njit

from tilework.kernels import floatops
from tilework.kernels import vectormath as vm
from tilework.kernels.cpu import vectormath as compiled
from tilework.kernels.sequence import SEQUENCES

ERF = np.vectorize(math.erf, otypes=[np.float64])
ERFC = np.vectorize(math.erfc, otypes=[np.float64])
A = 2 * math.sqrt(2 / math.pi)


def _gelu_tanh(x):
    return x / (1 + np.exp(-x * (A + A * 0.044715 * x * x)))


# name: (float64 meaning, ulp promised)
MEANING = {
    "exp": (np.exp, 1),
    "exp2": (np.exp2, 1),
    "log": (np.log, 1),
    "log2": (np.log2, 1),
    "tanh": (np.tanh, 2),
    "erf": (ERF, 2),
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), 2),
    "silu": (lambda x: x / (1 + np.exp(-x)), 2),
    "gelu": (lambda x: 0.5 * x * ERFC(-x * math.sqrt(0.5)), 2),
    "gelu_tanh": (_gelu_tanh, 2),
    "rsqrt": (lambda x: 1 / np.sqrt(x), 2),
    "reciprocal": (lambda x: 1 / x, 0),
    "sqrt": (np.sqrt, 0),
}
SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1e-38, 3e38, -3e38, 1.0, -1.0], np.float32)


def every(step, limit=1 << 32):
    """Float32 patterns, `step` apart, and the special ones."""
    return np.concatenate([np.arange(0, limit, step, dtype=np.uint64).astype(np.uint32).view(np.float32), SPECIAL])


def same_bits(a, b):
    nan = np.isnan(a) & np.isnan(b)
    return (np.where(nan, 0, a).view(np.int32) == np.where(nan, 0, b).view(np.int32)).all()


def loop(name, args=1, out=np.float32):
    scope = {"f": getattr(compiled, name)}
    names = [f"a{n}" for n in range(args)]
    text = f"def run({', '.join(names)}, y):\n    for i in range(y.size):\n"
    exec(text + f"        y[i] = f({', '.join(f'{n}[i]' for n in names)})\n", scope)
    return njit(error_model="numpy")(scope["run"])


@pytest.mark.parametrize("name", MEANING)
def test_distance_from_the_correctly_rounded_result(name):
    meaning, ulp = MEANING[name]
    x = every(104729 if name in ("erf", "gelu") else 40009)
    with np.errstate(all="ignore"):
        exact = meaning(x.astype(np.float64))
        wanted = exact.astype(np.float32)
    got = SEQUENCES[name](x)
    if name == "silu":
        wanted[x == -np.inf] = -0.0  # the limit, where the formula says nan
    np.testing.assert_array_equal(np.isnan(got), np.isnan(wanted))
    ordered = [
        np.where(np.signbit(v), -(v.view(np.int32) & 0x7FFFFFFF), v.view(np.int32)).astype(np.int64)
        for v in (got, wanted)
    ]
    distance = np.abs(ordered[0] - ordered[1])[~np.isnan(wanted)]
    assert distance.max() <= ulp


@pytest.mark.parametrize("name", [n for n, s in SEQUENCES.items() if set(s.signatures[-1][0]) == {"f"}])
def test_compiled_numpy_and_scalar_forms_give_the_same_bits(name):
    kinds, result = SEQUENCES[name].signatures[-1]
    x = every(1_000_003)
    columns = [np.roll(x, 13 * n) for n in range(len(kinds))]
    array = SEQUENCES[name](*columns)
    y = np.empty(x.size, {"f": np.float32, "i": np.int32, "b": np.bool_}[result])
    loop(name, len(kinds))(*columns, y)
    some = slice(None, None, 29)
    scalars = np.array([SEQUENCES[name](*row) for row in zip(*(c[some] for c in columns), strict=True)], y.dtype)
    if result == "f":
        assert same_bits(y, array)
        assert same_bits(scalars, array[some])
    else:
        np.testing.assert_array_equal(y, array)
        np.testing.assert_array_equal(scalars, array[some])


LEVEL = """
import hashlib
import numpy as np
from tests_vectormath import every, loop
from tilework.kernels.sequence import SEQUENCES
x = every(500009)
for name in {names!r}:
    kinds = SEQUENCES[name].signatures[-1][0]
    columns = [np.roll(x, 13 * n) for n in range(len(kinds))]
    y = np.empty_like(x)
    loop(name, len(kinds))(*columns, y)
    print(name, hashlib.sha256(np.where(np.isnan(y), 0, y).tobytes()).hexdigest())
"""


@pytest.mark.slow
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the levels named here are x86")
@pytest.mark.parametrize("cpu", ["x86-64", "haswell"])
def test_a_processor_without_the_instructions_gives_the_same_bits(cpu, tmp_path):
    names = ["fma", "exp", "log", "gelu", "tanh", "rint", "floor", "ceil", "trunc", "silu"]
    (tmp_path / "tests_vectormath.py").write_text(Path(__file__).read_text())
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    lines = []
    for extra in ({}, {"NUMBA_CPU_NAME": cpu, "NUMBA_CPU_FEATURES": ""}):
        done = subprocess.run(
            [sys.executable, "-c", LEVEL.format(names=names)], env={**env, **extra}, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        lines.append(done.stdout)
    assert lines[0] == lines[1]


@pytest.mark.parametrize("name", [*MEANING, "round_half_away", "rint", "floor"])
def test_loops_vectorise_without_library_calls(name):
    run = loop(name)
    run(np.ones(64, np.float32), np.empty(64, np.float32))
    text = "\n".join(run.inspect_asm().values())
    if "mulps" not in text and "ps\t" not in text:
        pytest.skip("not an x86 target")
    for library in ("expf", "logf", "fmaf", "rintf", "ldexpf", "floorf", "sqrtf"):
        assert f"${library}," not in text
        assert f"{library}@" not in text


def test_fma_rounds_once_where_two_roundings_differ():
    a, c = np.float32(1 + 2.0**-12), np.float32(2.0**-60)
    assert floatops.fma(a, a, -(a * a)) == np.float32(float(a) * float(a) - float(a * a))
    # the product is a tie in float32; the tiny addend decides it
    x, y = np.float32(1 + 2.0**-23), np.float32(1 + 2.0**-1)
    up = np.float32(np.nextafter(np.float64(x) * np.float64(y), 2))
    assert floatops.fma(x, y, c) == up
    assert np.array_equal(floatops.fma(np.array([x]), y, c), np.array([up]))


def test_special_values():
    inf, nan = np.float32(np.inf), np.float32(np.nan)
    assert vm.exp(inf) == inf
    assert vm.exp(-inf) == 0
    assert vm.log(0.0) == -inf
    assert np.isnan(vm.log(-1.0))
    assert vm.sigmoid(-inf) == 0
    assert np.isnan(vm.gelu(-inf))
    assert np.isnan(vm.gelu_tanh(-inf))
    assert np.signbit(vm.gelu(np.float32(-3e38)))
    assert np.signbit(vm.gelu_tanh(np.float32(-3e38)))
    assert np.signbit(vm.silu(-inf))
    assert vm.gelu(inf) == inf
    assert np.signbit(vm.tanh(-0.0))
    assert all(vm.exp2(float(n)) == np.float32(2.0**n) for n in range(-149, 128))
    assert all(vm.log2(2.0**n) == n for n in range(-149, 128))
    for name in MEANING:
        if name not in ("sqrt", "reciprocal"):
            assert SEQUENCES[name](nan).view(np.uint32) == 0x7FC00000 or name == "rsqrt"


def test_round_half_away_goes_away():
    x = np.array([0.5, -0.5, 1.5, 2.5, -2.5, 0.49999997, -0.0, 8388609.0], np.float32)
    np.testing.assert_array_equal(vm.round_half_away(x), np.float32([1, -1, 2, 3, -3, 0, -0.0, 8388609.0]))


FORMATS = {
    "f16": (np.float16, np.uint16),
    "bf16": (ml_dtypes.bfloat16, np.uint16),
    "e4m3": (ml_dtypes.float8_e4m3fn, np.uint8),
    "e5m2": (ml_dtypes.float8_e5m2, np.uint8),
}


@pytest.mark.parametrize("name", FORMATS)
def test_small_floats_equal_ml_dtypes(name):
    dtype, store = FORMATS[name]
    codes = np.arange(1 << (8 * store().itemsize), dtype=np.int32)
    values = codes.astype(store).view(dtype).astype(np.float32)
    assert same_bits(SEQUENCES[f"{name}_value"](codes), values)
    finite = np.unique(values[np.isfinite(values)])
    ties = ((finite[1:].astype(np.float64) + finite[:-1]) / 2).astype(np.float32)
    beside = [np.nextafter(ties, np.float32(s * np.inf)) for s in (1, -1)]
    x = np.concatenate([every(4999), finite, ties, *beside])
    with np.errstate(all="ignore"):
        wanted = x.astype(dtype).view(store).astype(np.int32)
    got = SEQUENCES[f"{name}_bits"](x)
    keep = ~np.isnan(x)
    np.testing.assert_array_equal(got[keep], wanted[keep])
    y = np.empty(x.size, np.int32)
    loop(f"{name}_bits")(x, y)
    np.testing.assert_array_equal(y, got)
    if store is np.uint8:
        largest = np.float32(ml_dtypes.finfo(dtype).max)
        with np.errstate(all="ignore"):
            held = np.clip(x, -largest, largest).astype(dtype).view(store)
        np.testing.assert_array_equal(SEQUENCES[f"{name}_bits_sat"](x)[keep], held[keep])


def test_integer_division_follows_python():
    rng = np.random.default_rng(0)
    a = rng.integers(-(2**31), 2**31, 4000).astype(np.int32)
    b = np.where(np.arange(4000) % 2, rng.integers(-9, 9, 4000), rng.integers(-(2**31), 2**31, 4000)).astype(np.int32)
    a[:2], b[:2] = -(2**31), (-1, 0)
    whole, rest = SEQUENCES["floor_divide"](a, b), SEQUENCES["remainder"](a, b)
    safe = b != 0
    np.testing.assert_array_equal(whole[safe], (a[safe].astype(np.int64) // b[safe]).astype(np.int32))
    np.testing.assert_array_equal(rest[safe], a[safe].astype(np.int64) % b[safe])
    assert not whole[~safe].any()
    for name, wanted in (("floor_divide", whole), ("remainder", rest)):
        y = np.empty_like(a)
        loop(name, 2)(a, b, y)
        np.testing.assert_array_equal(y, wanted)


def test_frexp_and_ldexp_equal_numpy():
    x = every(70001)
    with np.errstate(all="ignore"):
        m, e = np.frexp(x)
        assert same_bits(SEQUENCES["frexp_mantissa"](x), m)
        usual = np.isfinite(x)
        np.testing.assert_array_equal(SEQUENCES["frexp_exponent"](x)[usual], e[usual])
        for n in (-290, -150, -127, -1, 0, 1, 127, 128, 270):
            n32 = np.full(x.size, n, np.int32)
            assert same_bits(SEQUENCES["ldexp"](x, n32), np.ldexp(x, n32))


def test_wrong_arguments_are_named():
    with pytest.raises(TypeError, match="exp takes 1 arguments"):
        vm.exp(1, 2)
    with pytest.raises(Exception, match=r"exp takes .*float32"):
        loop("exp")(np.ones(2), np.ones(2))
