"""Products of f32, f16, bf16 and s16 as plans run them: the bits of the reference at any level, tile and thread count."""

import ml_dtypes
import numpy as np
import pytest
from numpy.testing import assert_array_equal

import tilework as tw
from tilework.kernels.cpu import isa
from tilework.kernels.reference.gemm import bf16_bound, gemm_f32, gemm_int
from tilework.primitives.errors import AccumulatorOverflow, DTypeMismatch

BF16 = ml_dtypes.bfloat16
LEVELS = [level.name for level in isa.available()]
EXTREMES = list(dict.fromkeys([LEVELS[0], LEVELS[-1]]))
NATIVE_BF16 = isa.multiplies_bf16(isa.select())


def pipeline(a, b, then=lambda y: y, constant=True):
    pipe = tw.Pipeline()
    x = pipe.input("a", a.dtype, (*a.shape[:-2], "M", a.shape[-1]))
    w = pipe.constant("b", b) if constant else pipe.input("b", b.dtype, b.shape)
    pipe.output("y", then(tw.ops.gemm(x, w)))
    return pipe, {"a": a} if constant else {"a": a, "b": b}


def product(a, b, then=lambda y: y, constant=True, threads=1, **options):
    """What a plan gives, written over a poisoned output."""
    pipe, inputs = pipeline(a, b, then, constant)
    plan = tw.TilingExecutor(threads, **options).compile(pipe, {k: v.shape for k, v in inputs.items()})
    fresh = plan.run(inputs)["y"]
    out = np.frombuffer(bytearray(b"\x5a" * fresh.nbytes), fresh.dtype).reshape(fresh.shape)
    plan.run(inputs, out={"y": out})
    assert out.tobytes() == fresh.tobytes()
    return out


def reals(rng, shape, dtype=np.float32):
    return rng.standard_normal(shape).astype(np.float32).astype(dtype)


def same_bits(found, right):
    """Equal to the bit, but for the payloads of NaN."""
    nan = np.isnan(right)
    assert_array_equal(np.isnan(found), nan)
    assert np.where(nan, 0, found).tobytes() == np.where(nan, 0, right).tobytes()


@pytest.mark.parametrize("level", LEVELS)
def test_f32_has_the_bits_of_the_reference_around_tile_edges(level):
    rng = np.random.default_rng(0)
    lanes = isa.LEVELS[level].lanes
    for N in (lanes - 1, 4 * lanes + 1):
        for M, K in ((1, 1), (1, 130), (6, 5), (7, 0), (13, 64)):
            a, b = reals(rng, (M, K)), reals(rng, (K, N))
            same_bits(product(a, b, isa=level), gemm_f32(a, b))


@pytest.mark.parametrize("level", LEVELS)
def test_any_float32_at_all_gives_the_bits_of_the_reference(level):
    rng = np.random.default_rng(1)
    bits = rng.integers(0, 2**32, (40, 33), np.uint32)
    bits[:, ::3] = 0x3F800000 + (bits[:, ::3] & 0x7FFFFF)  # as many near 1, so that sums cancel and round
    a, b = bits[:13].view(np.float32), np.ascontiguousarray(bits.T[:, :17]).view(np.float32)
    a[0], b[:, 0] = np.float32(1e-30), np.float32(1e-12)  # subnormal products
    a[1, :2], b[:2, 1] = [np.inf, -np.inf], 1
    a[2], b[:, 2] = -0.0, 1
    same_bits(product(a, b, isa=level), gemm_f32(a, b))


@pytest.mark.parametrize("tile", [{"kc": 7}, {"kc": 1, "mc": 12}, {"mr": 2, "nr": 16}, {"mr": 5, "nr": 16, "kc": 16}])
def test_no_tile_and_no_thread_count_changes_a_bit(tile):
    rng = np.random.default_rng(2)
    a, b = reals(rng, (50, 71)), reals(rng, (71, 200))
    right = gemm_f32(a, b)
    for threads in (1, 2):
        same_bits(product(a, b, threads=threads, tile={"gemm_f32": tile}), right)


def views(x):
    return [x, np.asfortranarray(x), np.ascontiguousarray(x[::-1, ::-1])[::-1, ::-1], np.repeat(x, 2, axis=1)[:, ::2]]


@pytest.mark.parametrize("dtype", [np.float32, BF16, np.float16, np.int16], ids=["f32", "bf16", "f16", "s16"])
@pytest.mark.parametrize("constant", [True, False], ids=["constant", "run time"])
def test_operands_of_any_stride(dtype, constant):
    rng = np.random.default_rng(3)
    a, b = (rng.integers(-9, 10, shape).astype(dtype) for shape in ((19, 35), (35, 70)))  # exact in every type
    right = a.astype(np.int64) @ b.astype(np.int64)
    if dtype == np.int16 and not constant:
        a, b, right = a[:, :1], b[:1], a[:, :1].astype(np.int64) * b[:1]  # deeper sums may overflow, and are refused
    for x, w in zip(views(a), [*views(b)[1:], b], strict=True):
        assert_array_equal(product(x, w, constant=constant, isa=EXTREMES[0]), right)
        assert_array_equal(product(x, w, constant=constant), right)


def test_the_callers_output_may_have_any_strides():
    rng = np.random.default_rng(4)
    a, b = reals(rng, (9, 20)), reals(rng, (20, 33))
    pipe, inputs = pipeline(a, b)
    memory = np.full((20, 70), np.float32(7))
    out = memory[1:19:2, 2:68:2]
    tw.TilingExecutor(1).run(pipe, inputs, out={"y": out})
    same_bits(np.ascontiguousarray(out), gemm_f32(a, b))
    out[...] = 7
    assert (memory == 7).all()


@pytest.mark.parametrize("constant", [True, False], ids=["constant", "run time"])
def test_leading_dimensions_broadcast(constant):
    rng = np.random.default_rng(5)
    a, b = reals(rng, (2, 1, 5, 7)), reals(rng, (3, 7, 18))
    same_bits(product(a, b, constant=constant), gemm_f32(a, b))


@pytest.mark.parametrize("types", [(np.float16, np.float16), (BF16, np.float32), (np.float32, np.float16)])
def test_narrow_storage_is_widened_exactly(types):
    rng = np.random.default_rng(6)
    every = rng.integers(0, 2**16, (13, 40), np.uint16)
    a = every.view(types[0]) if types[0] != np.float32 else reals(rng, every.shape)
    b = reals(rng, (40, 35), types[1])
    for level in EXTREMES:
        for constant in (True, False):
            same_bits(product(a, b, constant=constant, isa=level), gemm_f32(a, b))


@pytest.mark.parametrize("level", LEVELS)
def test_bf16_is_the_chain_or_within_its_bound(level):
    rng = np.random.default_rng(7)
    for M, K, N in ((1, 1, 3), (3, 2, 17), (7, 301, 65)):
        a, b = reals(rng, (M, K), BF16), reals(rng, (K, N), BF16)
        found = product(a, b, isa=level)
        if not isa.multiplies_bf16(isa.LEVELS[level]):
            same_bits(found, gemm_f32(a, b))
        assert (np.abs(found - a.astype(np.float64) @ b.astype(np.float64)) <= bf16_bound(a, b)).all()


@pytest.mark.skipif(not NATIVE_BF16, reason="no bf16 instruction")
def test_native_bf16_takes_subnormals_as_zeros_within_the_bound():
    a = np.array([[1e-39, 1.0, 2.0**-100, 3.0]], BF16)
    b = np.array([[1.0], [1e-39], [2.0**-100], [2.0**-30]], BF16)
    found = product(a, b)
    assert (np.abs(found - a.astype(np.float64) @ b.astype(np.float64)) <= bf16_bound(a, b)).all()


@pytest.mark.skipif(not NATIVE_BF16, reason="no bf16 instruction")
def test_native_bf16_does_not_depend_on_tiles_or_threads():
    rng = np.random.default_rng(8)
    a, b = reals(rng, (50, 71), BF16), reals(rng, (71, 200), BF16)
    right = product(a, b)
    for tile in ({"kc": 8}, {"mr": 2, "nr": 16}):
        same_bits(product(a, b, threads=2, tile={"gemm_bf16bf16f32": tile}), right)


@pytest.mark.parametrize("level", LEVELS)
def test_s16_is_exact_at_the_extremes(level):
    rng = np.random.default_rng(9)
    for M, K, N in ((1, 1, 3), (3, 2, 3), (7, 33, 65)):
        a = rng.integers(-32768, 32768, (M, K)).astype(np.int16)
        b = rng.integers(-900, 901, (K, N)).astype(np.int16)
        a[0] = -32768
        assert_array_equal(product(a, b, isa=level), gemm_int(a, b), strict=True)
    lowest = np.full((3, 1), -32768, np.int16)
    assert (product(lowest, lowest[:1], isa=level) == 2**30).all()
    pair = np.array([[-32768], [32767]], np.int16)
    found = product(np.array([[-32768, 32767]], np.int16), pair[:, [0, 0]][:, :1] // 2, isa=level)
    assert found.tolist() == [[-32768 * -16384 + 32767 * 16383]]


def test_s16_sums_that_may_pass_int32_are_refused():
    a, b = np.zeros((1, 3), np.int16), np.full((3, 2), -32768, np.int16)
    with pytest.raises(AccumulatorOverflow, match="would fit"):
        product(a, b)
    with pytest.raises(AccumulatorOverflow, match="weights known only at run time K up to 1 fits"):
        product(a, b, constant=False)


def test_types_that_do_not_go_together_are_refused():
    with pytest.raises(DTypeMismatch, match="s16 times s16"):
        pipeline(np.zeros((2, 2), np.int16), np.zeros((2, 2), np.int8))
    pipe = tw.Pipeline()
    with pytest.raises(DTypeMismatch, match="gemm of s16 has no zero points"):
        tw.ops.gemm(pipe.input("a", "s16", (2, 2)), np.ones((2, 2), np.int16), a_zero_point=np.int16(3))


RNG = np.random.default_rng(10)
BIAS = RNG.standard_normal(70).astype(np.float32)
RESIDUAL = RNG.standard_normal((13, 70)).astype(np.float32)
SCALES = RNG.uniform(0.01, 0.2, 70).astype(np.float32)


def gated(x, r):
    return x / (np.float32(1) + np.exp(-x)) + r if x > r else r * x


CHAINS = {
    "user": lambda y: tw.ops.map(gated, tw.ops.add(y, BIAS), RESIDUAL),
    "user u8": lambda y: tw.ops.quantize(tw.ops.map(gated, y, BIAS), scale=0.05, zero_point=9, dtype="u8"),
    "rows": lambda y: tw.ops.add(y, RESIDUAL[:, :1]),
    "bias": lambda y: tw.ops.add(y, BIAS),
    "bias relu clip": lambda y: tw.ops.clip(tw.ops.relu(tw.ops.add(BIAS, y)), -1.0, 2.5),
    "u8": lambda y: tw.ops.quantize(y, scale=0.07, zero_point=128, dtype="u8"),
    "s8 relu": lambda y: tw.ops.relu(tw.ops.quantize(tw.ops.add(y, BIAS), scale=SCALES, dtype="s8", axis=1)),
    "s16": lambda y: tw.ops.quantize(tw.ops.clip(y, -3.0, 9.0), scale=0.001, zero_point=5, dtype="s16"),
}


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("level", EXTREMES)
def test_what_follows_is_fused_with_the_bits_of_the_separate_steps(chain, level):
    rng = np.random.default_rng(11)
    a, b = reals(rng, (13, 21)), reals(rng, (21, 70))
    a[0, 0], a[1], a[2] = np.nan, np.inf, 1e30
    b[0, :3] = [np.inf, -np.inf, 0.0]
    pipe, inputs = pipeline(a, b, CHAINS[chain])
    right = tw.SingleThreadExecutor("reference").run(pipe, inputs)["y"]
    plan = tw.TilingExecutor(1, isa=level).compile(pipe, {"a": a.shape})
    assert len(plan.lowered.pipe.steps) == 1, plan.explain()
    found = plan.run(inputs)["y"]
    assert found.dtype == right.dtype
    if found.dtype == np.float32:
        same_bits(found, right)
    assert_array_equal(found, right)
    for options in ({"constant": False}, {"tile": {"gemm_f32": {"kc": 5}}}):
        assert_array_equal(product(a, b, CHAINS[chain], isa=level, **options), right)


def test_what_cannot_be_fused_still_runs():
    rng = np.random.default_rng(12)
    a, b = reals(rng, (5, 9)), reals(rng, (9, 70))
    then = lambda y: tw.ops.quantize(y, scale=0.1, dtype="s8", rounding="half_away")  # noqa: E731
    pipe, inputs = pipeline(a, b, then)
    plan = tw.TilingExecutor(1).compile(pipe, {"a": a.shape})
    assert "half_even is fused" in str(plan.explain())
    right = tw.SingleThreadExecutor("reference").run(pipe, inputs)["y"]
    assert_array_equal(plan.run(inputs)["y"], right, strict=True)
