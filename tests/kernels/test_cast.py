"""cast: every pair of types against its meaning, at ties, overflow, subnormals, infinities and NaN."""

import ml_dtypes
import numpy as np
import pytest

import tilework as tw
from tilework.kernels import ops
from tilework.kernels.cast import CODES, NATIVE, SMALL
from tilework.primitives import dtypes

SPECIAL = np.array(
    [
        0,
        -0.0,
        0.4,
        0.5,
        1.5,
        2.5,
        -2.5,
        7.5,
        8.5,
        127.5,
        255.5,
        448,
        464,
        480,
        57344,
        61440,
        65504,
        65519,
        65520,
        1e6,
        2.0**-9,
        2.0**-10,
        3 * 2.0**-10,
        2.0**-16,
        2.0**-17,
        2.0**-24,
        2.0**-25,
        3 * 2.0**-25,
        1e-40,
        2.0**-127,
        2**31 - 1,
        2**31,
        -(2**31),
        2**40,
        2**62,
        2**63,
        1e30,
        np.inf,
        -np.inf,
        np.nan,
        6.0,
        6.5,
        5.0,
        7.0,
        28.0,
        30.0,
    ],
    np.float64,
)


def numbers(source):
    kind = dtypes.get(source)
    with np.errstate(all="ignore"):
        if kind.numpy.itemsize == 1 and source != "bool":
            return np.arange(1 << kind.bits).astype(np.uint8).view(kind.numpy)
        if kind.kind in ("int", "uint"):
            edges = np.array([kind.min, kind.max, kind.max // 2, 0, 1, kind.max - 1], object).astype(kind.numpy)
            return np.concatenate([edges, np.arange(300).astype(kind.numpy)])
        if source == "bool":
            return np.array([False, True])
        values = np.concatenate([SPECIAL, -SPECIAL, np.random.default_rng(0).standard_normal(200) * 100])
        ties = np.arange(2000).astype(np.float64) / 64 + 2.0**-40 * (np.arange(2000) % 3 - 1)
        return np.concatenate([values, ties]).astype(kind.numpy)


@pytest.mark.parametrize("source", ["u8", "s64", "f32", "f64", "f16", "f8e4m3fn", "f4e2m1fn", "s4b"])
def test_every_target(source):
    x = numbers(source)
    pipe = tw.Pipeline("casts")
    value = pipe.input("x", source, x.shape)
    targets = (
        (*NATIVE, *SMALL, *CODES, "s4b", "u2b") if source == "f32" else ("bool", "u8", "s32", "f16", "f8e4m3fn", "s4")
    )
    for target in targets:
        for saturate in (True, False) if target.startswith("f8") and source == "f32" else (True,):
            if target == source:
                continue
            pipe.output(f"{target}_{saturate}", ops.cast(value, target, saturate))
    wanted = tw.SingleThreadExecutor("reference").run(pipe, {"x": x})
    found = tw.SingleThreadExecutor().run(pipe, {"x": x})
    for name, y in wanted.items():
        same = found[name].view(np.uint8).reshape(x.size, -1) == y.view(np.uint8).reshape(x.size, -1)
        at = np.flatnonzero(~same.all(1) & ~(is_nan(found[name]) & is_nan(y)))
        assert not at.size, (name, x[at[:4]], found[name][at[:4]], y[at[:4]])


def is_nan(x):
    return np.isnan(x.astype(np.float64)) if x.dtype.kind in "fV" else np.zeros(x.shape, bool)


@pytest.mark.parametrize("source", ["f32", "f64", "bf16"])
def test_the_upper_half_of_u64_is_exact(source):
    powers = [
        2.0**63,
        1.5 * 2.0**63,
        2.0**63 + 2.0**56,
        2.0**64 - 2.0**56,
        2.0**63 - 2.0**55,
        5.0,
        -1.0,
        2.0**64,
        np.nan,
    ]
    with np.errstate(invalid="ignore"):
        x = np.array(powers).astype(dtypes.get(source).numpy)
    wide = x.astype(np.float64)
    wanted = [int(v) if 0 <= v < 2.0**64 else 2**64 - 1 if v == -1 else 2**63 for v in wide]
    pipe = tw.Pipeline("casts")
    pipe.output("y", ops.cast(pipe.input("x", source, x.shape), "u64"))
    for executor in (tw.SingleThreadExecutor("reference"), tw.TilingExecutor(2)):
        assert executor.run(pipe, {"x": x})["y"].tolist() == wanted


def test_real_numbers_are_rounded_once():
    x = np.array([1 + 2.0**-11 + 2.0**-40, 1 + 2.0**-11 - 2.0**-40, 1 + 2.0**-11], np.float64)
    np.testing.assert_array_equal(tw.eager.cast(x, "f16"), np.array([1 + 2.0**-10, 1, 1], np.float16))


def test_small_integers_wrap_as_ml_dtypes():
    x = np.arange(-20, 20).astype(np.float32) + np.float32(0.75)
    np.testing.assert_array_equal(tw.eager.cast(x, "s4"), x.astype(ml_dtypes.int4).astype(np.int8))
