"""The GEMM engine against int64, bit for bit: every level, type, tail, stride, zero point and epilogue."""

import ctypes
import mmap
import sys

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from tilework.kernels.cpu import isa
from tilework.kernels.cpu.epilogues.epilogue import range_constants
from tilework.kernels.cpu.gemm import packing

TYPES = {"u8": (np.uint8, 0, 255), "s8": (np.int8, -128, 127)}


def operand(rng, kind, shape, how="random"):
    dtype, lo, hi = TYPES[kind]
    if how == "random":
        return rng.integers(lo, hi + 1, shape).astype(dtype)
    return np.full(shape, hi if how == "high" else lo, dtype)


def views(a):
    """The same values, laid out in every way."""
    return [
        a,
        np.asfortranarray(a),
        np.ascontiguousarray(a[::-1, ::-1])[::-1, ::-1],
        np.repeat(np.repeat(a, 2, axis=1), 3, axis=0)[::3, ::2],
    ]


@pytest.mark.parametrize("types", ["u8s8", "s8s8", "u8u8", "s8u8"])
def test_every_type_is_exact_around_tile_edges(engine, level, types):
    rng = np.random.default_rng(2)
    lanes = isa.LEVELS[level].lanes
    for K in (1, 3, 4, 5, 65):
        for N in (lanes - 1, 4 * lanes + 1):
            b = operand(rng, types[2:], (K, N), ["random", "low"][K % 2])
            for M in (1, 6, 7, 13):
                a = operand(rng, types[:2], (M, K), ["random", "high"][M % 2])
                out, untouched = engine.canaries(M, N, np.int32)
                engine.run(a, b, out, level=level, a_zero_point=3)
                assert_array_equal(out, engine.exact(a, b, a_zero_point=3))
                assert untouched()


@pytest.mark.parametrize("depth", [0, 2, 63, 64, 100_000])
def test_every_depth_is_exact_at_the_extremes(engine, extreme, depth):
    for M in (1, 5):
        a, b = np.full((M, depth), 255, np.uint8), np.full((depth, 3), -128, np.int8)
        out, untouched = engine.canaries(M, 3, np.int32)
        engine.run(a, b, out, level=extreme)
        assert_array_equal(out, engine.exact(a, b))
        assert untouched()


def test_pairs_that_saturate_16_bits_do_not(engine, level):
    a, b = np.array([[211, 171]], np.uint8), np.array([[71], [107]], np.int8)
    out = np.zeros((1, 1), np.int32)
    engine.run(a, b, out, level=level, pairs_fit=packing.pairs_fit(b))
    assert out.tolist() == [[33278]]
    a, b = np.full((3, 64), 255, np.uint8), np.full((64, 5), 64, np.int8)
    out = np.zeros((3, 5), np.int32)
    engine.run(a, b, out, level=level, pairs_fit=packing.pairs_fit(b))
    assert (out == 64 * 255 * 64).all()


@pytest.mark.parametrize("types", ["u8s8", "s8u8"])
def test_zero_points_of_every_shape_and_side(engine, extreme, types):
    rng = np.random.default_rng(3)
    M, K, N = 9, 30, 70
    a, b = operand(rng, types[:2], (M, K)), operand(rng, types[2:], (K, N))
    dtype, lo, hi = TYPES[types[:2]]
    bias = rng.integers(-(2**20), 2**20, N).astype(np.int32)
    for zeros in (
        {"a_zero_point": hi},
        {"a_zero_point": lo, "b_zero_point": 200},
        {"a_zero_point": 7, "b_zero_point": rng.integers(-128, 256, N)},
        {"rows": rng.integers(lo, hi + 1, M).astype(dtype)},
        {"rows": rng.integers(lo, hi + 1, M).astype(dtype), "b_zero_point": rng.integers(-128, 256, N)},
    ):
        out = np.zeros((M, N), np.int32)
        engine.run(a, b, out, level=extreme, bias=bias, **zeros)
        assert_array_equal(out, engine.exact(a, b, bias=bias, **zeros))


def test_a_zero_point_that_leaves_8_bits_when_subtracted(engine, extreme):
    a = np.array([[238, 115, 94], [245, 111, 102], [158, 225, 48]], np.uint8)
    b = np.array([[25, 36, 125], [42, -123, 76], [-81, -86, 35]], np.int8)
    out = np.zeros((3, 3), np.int32)
    engine.run(a, b, out, level=extreme, a_zero_point=42, b_zero_point=-26)
    assert out.tolist() == [[12100, 1951, 40214], [11745, 2293, 41351], [18030, -10919, 36548]]


def test_operands_of_any_stride(engine, extreme):
    rng = np.random.default_rng(4)
    for M, K, N in ((1, 5, 9), (35, 50, 66)):
        a, b = operand(rng, "s8", (M, K)), operand(rng, "s8", (K, N))
        want = engine.exact(a, b, b_zero_point=2)
        for view in [*views(a), a]:
            for step in (1, 2):
                out, untouched = engine.canaries(M, N, np.int32, step)
                engine.run(view, views(b)[step], out, level=extreme, b_zero_point=2)
                assert_array_equal(out, want)
                assert untouched()
    row = operand(rng, "u8", (1, 20))
    out = np.zeros((12, 5), np.int32)
    b = operand(rng, "s8", (20, 5))
    engine.run(np.broadcast_to(row, (12, 20)), b, out, level=extreme)
    assert_array_equal(out, engine.exact(np.broadcast_to(row, (12, 20)), b))


def test_rectangles_cover_the_whole_in_any_order(engine, extreme):
    rng = np.random.default_rng(5)
    a, b = operand(rng, "u8", (50, 33)), operand(rng, "s8", (33, 200))
    out, untouched = engine.canaries(50, 200, np.int32)
    cuts = [(m, min(m + 17, 50), n, min(n + 64, 200)) for m in (34, 0, 17) for n in (128, 192, 0, 64)]
    engine.run(a, b, out, level=extreme, rectangles=cuts)
    assert_array_equal(out, engine.exact(a, b))
    assert untouched()


def test_depth_in_several_passes(engine, extreme):
    rng = np.random.default_rng(6)
    a, b = operand(rng, "u8", (13, 33_001)), operand(rng, "s8", (33_001, 66))
    out, untouched = engine.canaries(13, 66, np.int32)
    plan = engine.run(a, b, out, level=extreme, tile=(6, 4), a_zero_point=9, b_zero_point=1)
    assert plan.kc < plan.layout.steps
    assert_array_equal(out, engine.exact(a, b, a_zero_point=9, b_zero_point=1))
    assert untouched()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="protects a page")
@pytest.mark.parametrize("shape", [(13, 27, 32), (3, 5, 7), (1, 1, 1), (41, 30, 64), (2, 6, 5)])
def test_nothing_past_the_end_of_a_is_read(engine, extreme, shape):
    M, K, N = shape
    page = mmap.PAGESIZE
    pages = -(-M * K // page) + 1
    memory = mmap.mmap(-1, pages * page)
    raw = np.frombuffer(memory, np.uint8)
    last = ctypes.c_void_p(raw.ctypes.data + (pages - 1) * page)
    assert ctypes.CDLL(None).mprotect(last, page, 0) == 0
    rng = np.random.default_rng(7)
    a = raw[(pages - 1) * page - M * K : (pages - 1) * page].reshape(M, K)
    a[:] = rng.integers(0, 256, (M, K))
    b = operand(rng, "s8", (K, N))
    out = np.zeros((M, N), np.int32)
    engine.run(a, b, out, level=extreme)
    assert_array_equal(out, engine.exact(a, b))


LIMITS = {"u8": (0, 255), "s8": (-128, 127), "s16": (-32768, 32767), "s32": (-(2**31), 2**31 - 1)}
NUMPY = {"u8": np.uint8, "s8": np.int8, "s16": np.int16, "s32": np.int32, "f32": np.float32}


def coded(real, zero_point, lo, hi):
    return np.clip(np.rint(real).astype(np.float64) + zero_point, lo, hi).astype(np.int64)


def problem(rng, M, K, N, engine):
    a, b = operand(rng, "u8", (M, K)), operand(rng, "s8", (K, N))
    bias = rng.integers(-9999, 9999, N).astype(np.int32)
    return a, b, bias, engine.exact(a, b, a_zero_point=5, bias=bias)


@pytest.mark.parametrize("out", ["u8", "s8", "s16", "s32", "f32"])
@pytest.mark.parametrize("step", [1, 2], ids=["contiguous", "strided"])
def test_float_multipliers_round_to_even_and_saturate(engine, level, out, step):
    rng = np.random.default_rng(8)
    M, K, N = 7, 65, 100
    a, b, bias, acc = problem(rng, M, K, N, engine)
    multiplier = (rng.random(N) * (1e5 if out == "s32" else 0.02)).astype(np.float32)
    multiplier[::5], multiplier[1::7], multiplier[2::9] = 1e38, 0, 0.5  # beyond int32 and float32, nothing, ties
    lo, hi = LIMITS.get(out, (0, 0))
    zero_point = 0 if out in ("s32", "f32") else hi // 3
    with np.errstate(over="ignore"):
        real = acc.astype(np.float32) * multiplier
    want = real if out == "f32" else coded(real, zero_point, max(lo, zero_point), hi)
    constants = {} if out == "f32" else range_constants(zero_point, max(lo, zero_point), hi)
    given, untouched = engine.canaries(M, N, NUMPY[out], step)
    engine.run(
        a, b, given, level=level, a_zero_point=5, bias=bias, multiplier=multiplier, constants=constants,
        finish=out in ("s16", "s32"),
    )  # fmt: skip
    assert_array_equal(given, want.astype(NUMPY[out]))
    assert untouched()


@pytest.mark.parametrize("out", ["u8", "s8", "s16", "s32"])
def test_fixed_point_rounds_once(engine, extreme, out):
    rng = np.random.default_rng(9)
    M, K, N = 5, 9, 37
    a, b, bias, acc = problem(rng, M, K, N, engine)
    multiplier = rng.integers(1 << 30, 2**31 - 1, N).astype(np.int32)
    right = rng.integers(20, 63, N).astype(np.int32)
    right[::4] = 1  # far beyond every code
    lo, hi = LIMITS[out]
    zero_point = -3 if out != "u8" else 3
    want = [
        [min(max(((int(x) * int(m) + (1 << (int(t) - 1))) >> int(t)) + zero_point, lo), hi) for x, m, t in row]
        for row in (zip(r, multiplier, right, strict=True) for r in acc)
    ]
    given, untouched = engine.canaries(M, N, NUMPY[out])
    engine.run(
        a, b, given, level=extreme, a_zero_point=5, bias=bias, multiplier=multiplier, shift=right,
        constants=range_constants(zero_point, lo, hi), finish=True,
    )  # fmt: skip
    assert_array_equal(given, np.array(want).astype(NUMPY[out]))
    assert untouched()


@pytest.mark.parametrize(("out", "other"), [("u8", "s8"), ("s8", "u8"), ("s16", "s16")])
def test_a_residual_is_added_as_the_step_adds_codes(engine, extreme, out, other):
    rng = np.random.default_rng(10)
    M, K, N = 13, 30, 64
    a, b, bias, acc = problem(rng, M, K, N, engine)
    lo, hi = LIMITS[out]
    residual = rng.integers(*LIMITS[other], (M, N)).astype(NUMPY[other])
    multiplier, (sc, sr, s) = np.float32(0.01), np.float32([0.3, 0.7, 0.9])
    code = coded(acc.astype(np.float32) * multiplier, 4, lo, hi)
    real = ((code - 4).astype(np.float32) * sc + (residual.astype(np.int64) - 9).astype(np.float32) * sr) / s
    table = rng.integers(0, 256, 256).astype(np.uint8) if out != "s16" else None
    want = coded(real, 11, lo, hi).astype(NUMPY[out])
    if table is not None:
        want = table[want.view(np.uint8)].view(NUMPY[out])
    constants = {"code_scale_f32": sc, "residual_scale_f32": sr, "residual_zero_point": 9, "sum_scale_f32": s}
    for layout in (residual, np.asfortranarray(residual)):
        given, untouched = engine.canaries(M, N, NUMPY[out])
        engine.run(
            a, b, given, level=extreme, a_zero_point=5, bias=bias, multiplier=multiplier, residual=layout, table=table,
            constants={**range_constants(4, lo, hi), **constants, **range_constants(11, lo, hi, "sum_")},
        )  # fmt: skip
        assert_array_equal(given, want)
        assert untouched()
