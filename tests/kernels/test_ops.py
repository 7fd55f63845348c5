"""The ops: what they build, what they carry along, and what they refuse."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from tilework.executors import SingleThreadExecutor, TilingExecutor
from tilework.kernels import ops
from tilework.kernels.reference.gemm import gemm_int
from tilework.kernels.reference.quantize import dequantize, quantize
from tilework.kernels.reference.requantize import requantize_fixed, requantize_float
from tilework.primitives import Buffer, Pipeline, QuantParams
from tilework.primitives.errors import (
    ArgumentError,
    DTypeMismatch,
    PipelineError,
    QuantizationError,
    ShapeMismatch,
    TileworkError,
    Unsupported,
)

F32 = np.float32


@pytest.fixture(params=["reference", "cpu"])
def executor(request):
    return SingleThreadExecutor(request.param)


@pytest.fixture
def pipe():
    return Pipeline("test")


def ran(executor, pipe, value, **inputs):
    pipe.output("result", value)
    return executor.run(pipe, inputs)["result"]


def integers(seed, shape, dtype):
    info = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(info.min, info.max + 1, shape).astype(dtype)


# Any argument may be a constant, a run-time argument or a value -----------------------------------------------------


def test_parameters_may_be_constants(executor, pipe):
    a, w = integers(0, (3, 8), np.uint8), integers(1, (8, 5), np.int8)
    x = pipe.input("x", "u8", ("M", 8))
    acc = ops.gemm(x, w, a_zero_point=128, b_zero_point=integers(2, 5, np.int8))
    y = ops.requantize(acc, multiplier=[0.01, 0.02, 0.03, 0.04, 0.05], zero_point=3, dtype="u8")
    right = gemm_int(a, w, 128, integers(2, 5, np.int8))
    right = requantize_float(right, F32([0.01, 0.02, 0.03, 0.04, 0.05]), 3, lo=0, hi=255, dtype=np.uint8)
    assert_array_equal(ran(executor, pipe, y, x=a), right, strict=True)


def test_parameters_may_be_run_time_arguments(executor, pipe):
    a, w = integers(0, (3, 8), np.uint8), integers(1, (8, 5), np.uint8)
    x, b = pipe.input("x", "u8", ("M", "K")), pipe.input("w", "u8", ("K", "N"))
    acc = ops.gemm(x, b, a_zero_point=pipe.argument("za", "u8"), b_zero_point=pipe.argument("zb", "u8", ("N",)))
    multiplier, zero = pipe.argument("m", "f32", ("N",)), pipe.argument("z", "s8")
    y = ops.requantize(acc, multiplier, zero, "s8", lo=pipe.argument("lo", "s32"), hi=90)
    zb, m = integers(2, 5, np.uint8), F32([0.01, 0.02, 0.03, 0.04, 0.05])
    found = ran(executor, pipe, y, x=a, w=w, za=7, zb=zb, m=m, z=-4, lo=-4)
    right = requantize_float(gemm_int(a, w, 7, zb), m, -4, lo=-4, hi=90, dtype=np.int8)
    assert_array_equal(found, right, strict=True)


def test_dynamic_quantization_is_just_a_pipeline(executor, pipe):
    """Per-row scales that another step has computed, of shape (M, 1)."""
    x = pipe.input("x", "f32", ("M", 6))
    most = pipe.input("most", "f32", ("M", 1))
    scale = ops.clip(most, 1e-6, None)
    q = ops.quantize(x, scale, 0, "s8")
    back = ops.dequantize(q, scale)
    a = np.random.default_rng(0).standard_normal((4, 6)).astype(F32)
    s = (abs(a).max(1, keepdims=True) / 127).astype(F32)
    right = dequantize(quantize(a, s, lo=-128, hi=127, dtype=np.int8), s)
    assert_array_equal(ran(executor, pipe, back, x=a, most=s), right, strict=True)


@pytest.mark.parametrize("bad", [0, -1, np.nan, np.inf])
def test_a_bad_run_time_scale_is_an_error_that_names_the_step(executor, pipe, bad):
    y = ops.quantize(pipe.input("x", "f32", (4,)), pipe.argument("s", "f32"))
    with pytest.raises(QuantizationError, match="quantize_f32u8"):
        ran(executor, pipe, y, x=np.ones(4, F32), s=bad)


@pytest.mark.parametrize("bad", [-1, np.nan, np.inf])
def test_a_bad_run_time_multiplier_is_an_error_that_names_the_step(executor, pipe, bad):
    y = ops.requantize(pipe.input("x", "s32", (4,)), pipe.argument("m", "f32"))
    with pytest.raises(QuantizationError, match="requantize_s32s8"):
        ran(executor, pipe, y, x=np.ones(4, np.int32), m=bad)


# Quantization that values carry ---------------------------------------------------------------------------------------


def carrying(pipe, **more):
    x = pipe.input("x", "u8", ("M", 8), quant=QuantParams(0.05, 128, "u8"))
    w = pipe.constant(
        "w", integers(1, (8, 5), np.int8), quant=QuantParams(F32([0.01, 0.02, 0.03, 0.04, 0.05]), axis=1, dtype="s8")
    )
    return x, w


def test_gemm_takes_the_zero_points_and_scales_that_its_operands_carry(executor, pipe):
    x, w = carrying(pipe)
    acc = ops.gemm(x, w)
    assert acc.quant == QuantParams(F32(0.05) * F32([0.01, 0.02, 0.03, 0.04, 0.05]), 0, "s32", axis=1)
    a = integers(0, (3, 8), np.uint8)
    assert_array_equal(ran(executor, pipe, acc, x=a), gemm_int(a, w.data, 128), strict=True)


def test_requantize_to_divides_float32_scales(executor, pipe):
    x, w = carrying(pipe)
    to = QuantParams(0.7, 9, "u8")
    y = ops.requantize(ops.gemm(x, w), to=to)
    assert y.quant == to
    a = integers(0, (3, 8), np.uint8)
    multiplier = F32(0.05) * F32([0.01, 0.02, 0.03, 0.04, 0.05]) / F32(0.7)
    right = requantize_float(gemm_int(a, w.data, 128), multiplier, 9, lo=0, hi=255, dtype=np.uint8)
    assert_array_equal(ran(executor, pipe, y, x=a), right, strict=True)


def test_requantize_to_in_fixed_point(executor, pipe):
    x, w = carrying(pipe)
    y = ops.requantize(ops.gemm(x, w), to=QuantParams(0.7, 9, "u8"), arithmetic="fixed")
    a = integers(0, (3, 8), np.uint8)
    ratios = F32(0.05) * F32([0.01, 0.02, 0.03, 0.04, 0.05]) / F32(0.7)
    m, s = np.array([ops.quantize_multiplier(r) for r in ratios]).T
    right = requantize_fixed(gemm_int(a, w.data, 128), m, s, 9, lo=0, hi=255, dtype=np.uint8)
    assert_array_equal(ran(executor, pipe, y, x=a), right, strict=True)


def test_a_value_carries_its_quantization_through_quantize_relu_clip_and_bias(executor, pipe):
    q = QuantParams(0.5, 7, "u8")
    codes = ops.quantize(pipe.input("x", "f32", (5,)), to=q)
    assert ops.clip(ops.relu(codes), None, 200).quant == q
    x, w = (None, None)
    pipe2 = Pipeline("other")
    x, w = carrying(pipe2)
    acc = ops.gemm(x, w)
    assert ops.add(acc, np.arange(5, dtype=np.int32)).quant == acc.quant
    back = ops.dequantize(ops.relu(codes))
    assert_array_equal(ran(executor, pipe, back, x=F32([-1, -0.2, 0, 0.5, 99])), F32([0, 0, 0, 0.5, 99]))


def test_scales_of_groups_of_k_are_not_carried_through_gemm(pipe):
    w = pipe.constant(
        "w", integers(1, (8, 5), np.int8), quant=QuantParams(np.ones((2, 5), F32), 0, "s8", axis=0, block=4)
    )
    x = pipe.input("x", "u8", ("M", 8), quant=QuantParams(0.05, 128, "u8"))
    assert ops.gemm(x, w).quant is None
    w = pipe.constant(
        "v", integers(1, (8, 5), np.int8), quant=QuantParams(np.ones((2, 5), F32), 3, "s8", axis=0, block=4)
    )
    assert ops.gemm(x, w).quant is None  # one zero point for all is no trouble
    zeros = np.arange(10, dtype=np.int8).reshape(2, 5)
    w = pipe.constant(
        "u", integers(1, (8, 5), np.int8), quant=QuantParams(np.ones((2, 5), F32), zeros, "s8", axis=0, block=4)
    )
    with pytest.raises(Unsupported, match="no axis of the result"):
        ops.gemm(x, w)


# Granularity ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "quant",
    [
        QuantParams(0.5, 3, "u8"),
        QuantParams(F32([0.5, 1, 2, 4]), np.arange(4), "u8", axis=0),
        QuantParams(F32([0.5, 1, 2, 4, 8, 16]), 3, "u8", axis=-1),
        QuantParams(np.full((4, 2), 0.5, np.float16), np.arange(8).reshape(4, 2), "u8", axis=1, block=4),
        QuantParams(np.full((4, 1), 0.5, F32), 3, "u8", axis=1, block=-1),
        QuantParams(F32([[0.5, 1], [2, 4]]), 3, "u8", block=(2, 3)),
        QuantParams(F32([[0.5, 1]]), 3, "u4", axis=(0, 1), block=(4, 5)),
    ],
    ids=lambda q: f"{q.granularity} {q.block}",
)
def test_every_granularity_of_quant_params_goes_there_and_back(executor, pipe, quant):
    x = np.random.default_rng(0).standard_normal((4, 6)).astype(F32) * 20
    codes = ops.quantize(pipe.input("x", "f32", ("M", 6) if quant.scale.size == 1 else (4, 6)), to=quant)
    assert codes.quant == quant
    pipe.output("codes", codes)
    pipe.output("back", ops.dequantize(codes))
    found = executor.run(pipe, {"x": x})
    scale, zero = quant.expand(x.shape)
    low, high = int(quant.dtype.min), int(quant.dtype.max)
    right = np.clip(np.rint(x / scale) + zero, low, high)
    assert_array_equal(found["codes"], right)
    assert_array_equal(found["back"], ((right - zero) * scale).astype(F32))


def test_one_dimensional_scales_go_along_the_last_axis_or_the_one_named(executor, pipe):
    x = np.arange(12, dtype=F32).reshape(3, 4)
    value = pipe.input("x", "f32", (3, 4))
    pipe.output("last", ops.quantize(value, [1, 2, 3, 4]))
    pipe.output("first", ops.quantize(value, [1, 2, 4], axis=-2))
    pipe.output("column", ops.quantize(value, np.array([[1], [2], [4]])))
    found = executor.run(pipe, {"x": x})
    assert_array_equal(found["last"], np.rint(x / F32([1, 2, 3, 4])))
    assert_array_equal(found["first"], np.rint(x / F32([[1], [2], [4]])))
    assert_array_equal(found["column"], found["first"])


def test_scales_given_for_a_size_known_only_at_run_time_are_checked_then(executor, pipe):
    y = ops.quantize(pipe.input("x", "f32", ("M", "N")), [1, 2, 3])
    pipe.output("y", y)
    assert executor.run(pipe, {"x": np.ones((2, 3), F32)})["y"].shape == (2, 3)
    with pytest.raises(TileworkError, match="3"):
        executor.run(pipe, {"x": np.ones((2, 4), F32)})


@pytest.mark.parametrize("dtype", ["f16", "bf16", "e8m0fnu", "f8e4m3fn"])
def test_scales_of_fewer_bits_are_widened_exactly(executor, pipe, dtype):
    from tilework.primitives import dtypes

    scale = np.array([0.5, 2, 4]).astype(dtypes.get(dtype).numpy)
    y = ops.dequantize(pipe.input("x", "s8", (2, 3)), scale)
    q = np.int8([[1, 2, 3], [-1, -2, -3]])
    assert_array_equal(ran(executor, pipe, y, x=q), q * F32([0.5, 2, 4]), strict=True)


# add, relu, clip, argmax, gemm in pipelines ---------------------------------------------------------------------------


def test_add_of_codes_uses_their_scales(executor, pipe):
    a = pipe.input("a", "u8", (1,), quant=QuantParams(0.1, 0, "u8"))
    b = pipe.input("b", "u8", (1,), quant=QuantParams(0.2, 0, "u8"))
    y = ops.add(a, b, to=QuantParams(0.2, 0, "u8"))
    assert y.quant == QuantParams(0.2, 0, "u8")
    assert ran(executor, pipe, y, a=np.uint8([10]), b=np.uint8([10])).tolist() == [15]


def test_add_takes_numbers_and_broadcasts(executor, pipe):
    x = pipe.input("x", "s32", ("M", 3))
    y = ops.add(ops.add(1, x), np.int32([10, 20, 30]))
    assert ran(executor, pipe, y, x=np.zeros((2, 3), np.int32)).tolist() == [[11, 21, 31]] * 2


def test_argmax_and_relu_of_negative_axes(executor, pipe):
    y = ops.argmax(ops.relu(pipe.input("x", "f32", (2, "N"))), axis=-2, keepdims=True, dtype="s32")
    assert ran(executor, pipe, y, x=F32([[1, -1, 2], [0, -2, 3]])).tolist() == [[0, 0, 1]]


def test_zero_sizes_go_through_a_whole_pipeline(executor, pipe):
    x = pipe.input("x", "u8", ("M", "K"))
    y = ops.requantize(ops.gemm(x, pipe.input("w", "s8", ("K", "N"))), 0.5, 9, "u8")
    pipe.output("y", y)

    def sized(m, k, n):
        return executor.run(pipe, {"x": np.zeros((m, k), np.uint8), "w": np.zeros((k, n), np.int8)})["y"]

    assert sized(3, 0, 4).tolist() == [[9] * 4] * 3
    assert sized(0, 5, 4).shape == (0, 4)
    assert sized(2, 5, 0).shape == (2, 0)
    with pytest.raises(ShapeMismatch):
        executor.run(pipe, {"x": np.zeros((3, 0), np.uint8), "w": np.zeros((1, 4), np.int8)})


def test_buffers_are_constants(executor, pipe):
    w = Buffer.from_array(integers(1, (8, 5), np.int8))
    a = integers(0, (3, 8), np.uint8)
    assert_array_equal(ran(executor, pipe, ops.gemm(pipe.input("x", "u8", (3, 8)), w), x=a), gemm_int(a, w.numpy()))


def test_a_batch_of_unknown_size_multiplies_one_matrix(executor, pipe):
    x = pipe.input("x", "s8", ("B", 3, 4))
    w = integers(1, (4, 2), np.int8)
    a = integers(0, (5, 3, 4), np.int8)
    assert_array_equal(ran(executor, pipe, ops.gemm(x, w), x=a), gemm_int(a, w))


def test_stochastic_rounding_takes_a_run_time_seed(executor, pipe):
    y = ops.quantize(pipe.input("x", "f32", (64,)), 1.0, rounding="stochastic", seed=pipe.argument("seed", "u64"))
    pipe.output("y", y)
    x = np.full(64, 5.5, F32)
    first, again, other = (executor.run(pipe, {"x": x, "seed": s})["y"] for s in (1, 1, 2))
    assert_array_equal(first, again)
    assert (first != other).any()
    assert set(first) == {5, 6}


# What is refused ------------------------------------------------------------------------------------------------------


def refusals():
    def case(error, match, build):
        return pytest.param(error, match, build, id=match[:40])

    yield case(PipelineError, "none of the operands is a value", lambda p: ops.gemm(np.ones((2, 2)), np.ones((2, 2))))
    yield case(
        ShapeMismatch,
        "a's columns must equal b's rows",
        lambda p: ops.gemm(p.input("x", "u8", (3, 0)), np.ones((1, 4), np.int8)),
    )
    yield case(
        ShapeMismatch, "two dimensions at least", lambda p: ops.gemm(p.input("x", "u8", (3,)), np.ones((3, 4), np.int8))
    )
    yield case(
        DTypeMismatch, "u8 or s8 times u8 or s8", lambda p: ops.gemm(p.input("x", "u8", (3, 3)), np.ones((3, 4), F32))
    )
    yield case(
        DTypeMismatch,
        "gemm: a is s16 and b is s8",
        lambda p: ops.gemm(p.input("x", "s16", (3, 3)), np.ones((3, 4), np.int8)),
    )
    yield case(
        ShapeMismatch, "axis -1 differs", lambda p: ops.gemm(p.input("x", "u8", (2, 3, 3)), np.ones((5, 3, 4), np.int8))
    )
    yield case(
        QuantizationError,
        "300 is outside u8",
        lambda p: ops.gemm(p.input("x", "u8", (3, 3)), np.ones((3, 4), np.int8), 300),
    )
    yield case(
        QuantizationError,
        "-129 is outside s8",
        lambda p: ops.gemm(p.input("x", "u8", (3, 3)), np.ones((3, 4), np.int8), 0, -129),
    )
    yield case(
        ShapeMismatch,
        "b_zero_point",
        lambda p: ops.gemm(p.input("x", "u8", (3, 3)), np.ones((3, 4), np.int8), 0, np.ones(5, np.int8)),
    )
    yield case(
        DTypeMismatch, "no zero points", lambda p: ops.gemm(p.input("x", "f32", (3, 3)), np.ones((3, 4), F32), 1)
    )
    for bad in (0, -1.0, np.nan, np.inf, 1e-60, 1e60):
        yield case(QuantizationError, "scale", lambda p, bad=bad: ops.quantize(p.input("x", "f32", (3,)), bad))
    yield case(QuantizationError, "scale", lambda p: ops.quantize(p.input("x", "f32", (3,)), [1, 0, 1]))
    yield case(ShapeMismatch, "does not fit data", lambda p: ops.quantize(p.input("x", "f32", (2, 3)), [1, 1]))
    yield case(ShapeMismatch, "axis 0", lambda p: ops.quantize(p.input("x", "f32", (2, 3)), [1, 1, 1], axis=0))
    yield case(
        ShapeMismatch, "axis 2 is out of range", lambda p: ops.quantize(p.input("x", "f32", (2, 3)), [1, 1, 1], axis=2)
    )
    yield case(QuantizationError, "256 is outside u8", lambda p: ops.quantize(p.input("x", "f32", (3,)), 1, 256))
    yield case(QuantizationError, "16 is outside u4", lambda p: ops.quantize(p.input("x", "f32", (3,)), 1, 16, "u4"))
    yield case(QuantizationError, "integer", lambda p: ops.quantize(p.input("x", "f32", (3,)), 1, 0.5))
    yield case(DTypeMismatch, "x is s32", lambda p: ops.quantize(p.input("x", "s32", (3,)), 1))
    yield case(
        DTypeMismatch,
        "quantize has no dtype f8e4m3fn",
        lambda p: ops.quantize(p.input("x", "f32", (3,)), 1, 0, "f8e4m3fn"),
    )
    yield case(ArgumentError, "scale is missing", lambda p: ops.quantize(p.input("x", "f32", (3,))))
    yield case(ArgumentError, "not both", lambda p: ops.quantize(p.input("x", "f32", (3,)), 1, to=QuantParams(1.0)))
    yield case(ArgumentError, "no rounding 'up'", lambda p: ops.quantize(p.input("x", "f32", (3,)), 1, rounding="up"))
    yield case(
        ArgumentError, "seed", lambda p: ops.quantize(p.input("x", "f32", (3,)), 1, rounding="stochastic", seed=-1)
    )
    for block in (0, -2, 2**64, True):
        yield case(
            QuantizationError,
            "block",
            lambda p, b=block: ops.quantize(p.input("x", "f32", (3, 8)), np.ones((3, 2)), axis=1, block=b),
        )
    yield case(
        ShapeMismatch,
        "ceildiv|3|2",
        lambda p: ops.quantize(p.input("x", "f32", (3, 48)), np.ones((3, 3)), axis=1, block=32),
    )
    yield case(ArgumentError, "carries no quantization", lambda p: ops.dequantize(p.input("x", "u8", (3,))))
    yield case(Unsupported, "unpack", lambda p: ops.dequantize(p.input("x", "u4", (4,)), 1.0))
    yield case(ArgumentError, "multiplier is missing", lambda p: ops.requantize(p.input("x", "s32", (3,))))
    yield case(DTypeMismatch, "acc is f32", lambda p: ops.requantize(p.input("x", "f32", (3,)), 1.0))
    for bad in (-1.0, np.nan, np.inf, 1e60):
        yield case(QuantizationError, "multiplier", lambda p, bad=bad: ops.requantize(p.input("x", "s32", (3,)), bad))
    yield case(ArgumentError, "shift belongs to", lambda p: ops.requantize(p.input("x", "s32", (3,)), 1.0, shift=1))
    yield case(
        QuantizationError,
        "multiplier",
        lambda p: ops.requantize(p.input("x", "s32", (3,)), 5, shift=1, arithmetic="fixed"),
    )
    yield case(
        QuantizationError,
        "shift",
        lambda p: ops.requantize(p.input("x", "s32", (3,)), 1 << 30, shift=31, arithmetic="fixed"),
    )
    yield case(
        QuantizationError, "too large", lambda p: ops.requantize(p.input("x", "s32", (3,)), 2.0**31, arithmetic="fixed")
    )
    yield case(
        ArgumentError, "lo 5 is above hi 3", lambda p: ops.requantize(p.input("x", "s32", (3,)), 1.0, lo=5, hi=3)
    )
    yield case(
        ArgumentError, "which carries none", lambda p: ops.requantize(p.input("x", "s32", (3,)), to=QuantParams(1.0))
    )
    yield case(DTypeMismatch, "a is u8 and b is s8", lambda p: ops.add(p.input("x", "u8", (3,)), np.ones(3, np.int8)))
    yield case(
        DTypeMismatch, "whose sum may not fit", lambda p: ops.add(p.input("x", "u8", (3,)), np.ones(3, np.uint8))
    )
    yield case(
        ArgumentError,
        "carries no quantization per tensor",
        lambda p: ops.add(p.input("x", "u8", (3,)), np.ones(3, np.uint8), to=QuantParams(1.0)),
    )
    yield case(ShapeMismatch, "axis -1 differs", lambda p: ops.add(p.input("x", "f32", (3,)), np.ones(4, F32)))
    yield case(ArgumentError, "integer", lambda p: ops.add(p.input("x", "s32", (3,)), 0.5))
    yield case(ArgumentError, "above hi", lambda p: ops.clip(p.input("x", "f32", (3,)), 1, 0))
    yield case(ArgumentError, "above hi", lambda p: ops.clip(p.input("x", "f32", (3,)), np.nan, 0))
    yield case(ArgumentError, "axis 1 is out of range", lambda p: ops.argmax(p.input("x", "f32", (3,)), axis=1))
    yield case(ShapeMismatch, "empty axis", lambda p: ops.argmax(p.input("x", "f32", (3, 0))))
    yield case(
        DTypeMismatch,
        "byte order|big-endian|'>",
        lambda p: ops.gemm(p.input("x", "f32", (3, 3)), np.ones((3, 3), ">f4")),
    )
    yield case(DTypeMismatch, "complex|object", lambda p: ops.add(p.input("x", "f32", (3,)), np.ones(3, complex)))
    yield case(DTypeMismatch, "object", lambda p: ops.add(p.input("x", "f32", (3,)), np.array([None, 1, 2])))


@pytest.mark.parametrize(("error", "match", "build"), list(refusals()))
def test_bad_input_is_refused_before_anything_runs(pipe, error, match, build):
    with pytest.raises(error, match=match):
        build(pipe)
    assert not pipe.steps


def test_an_empty_axis_of_run_time_size_is_refused_by_name(executor, pipe):
    pipe.output("y", ops.argmax(pipe.input("x", "f32", (3, "N"))))
    with pytest.raises(ShapeMismatch, match="argmax"):
        executor.run(pipe, {"x": np.zeros((3, 0), F32)})


def test_steps_added_by_hand_refuse_bad_constants_too(pipe):
    from tilework.kernels.quantize import Quantize
    from tilework.kernels.requantize import Requantize

    x = pipe.input("x", "f32", (2, 3))
    with pytest.raises(QuantizationError, match="finite and positive"):
        pipe.add(Quantize(), x=x, scale=0.0, zero_point=0)
    acc = pipe.input("acc", "s32", (2, 3))
    with pytest.raises(QuantizationError, match="multiplier"):
        pipe.add(Requantize(), acc=acc, multiplier=-1.0, zero_point=0, lo=-128, hi=127)
    assert pipe.add(Requantize(), acc=acc, multiplier=0.5, zero_point=0, lo=-128, hi=127).dtype == "s8"


@pytest.mark.parametrize("equation", ["ii->i", "bii->bi", "iij->j", "ii", "iii->i"])
def test_einsum_takes_the_diagonal_of_a_letter_that_an_operand_has_twice(equation):
    x = np.arange(27, dtype=np.float32).reshape(3, 3, 3)
    x = x[0] if len(equation.partition("->")[0]) == 2 else x
    pipe = Pipeline("p")
    pipe.output("y", ops.einsum(equation, pipe.input("x", "f32", x.shape)))
    np.testing.assert_array_equal(TilingExecutor(1).run(pipe, {"x": x})["y"], np.einsum(equation, x))


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_relu_of_other_floats_keeps_nan(dtype):
    x = np.array([-1, 2, np.nan, -np.inf, np.inf], dtype)
    pipe = Pipeline("p")
    pipe.output("y", ops.relu(pipe.input("x", x.dtype, x.shape)))
    found = TilingExecutor(1).run(pipe, {"x": x})["y"]
    np.testing.assert_array_equal(found, np.array([0, 2, np.nan, 0, np.inf], dtype), strict=True)
