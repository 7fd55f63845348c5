"""Reductions, softmax, normalization and dynamic quantization."""

import ml_dtypes
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from tilework.executors import TilingExecutor, eager
from tilework.kernels import ops
from tilework.kernels.reference.reduce.dynamic import dynamic_quantize
from tilework.kernels.reference.reduce.lanes import fold
from tilework.kernels.reference.reduce.steps import reduce, softmax
from tilework.primitives.errors import ArgumentError, DTypeMismatch, ShapeMismatch
from tilework.primitives.pipeline import Pipeline

F32 = np.float32


def test_the_order_of_a_sum_is_sixteen_lanes_and_a_tree():
    x = F32(np.arange(1, 36) * 1e-3) * F32([1, -1e4, 3, 1e5, 7] * 7)
    lanes = [F32(0)] * 16
    for i, v in enumerate(x):
        lanes[i % 16] = F32(lanes[i % 16] + v)
    for step in (8, 4, 2, 1):
        lanes = [F32(lanes[i] + lanes[i + step]) for i in range(step)]
    assert fold(x) == lanes[0]


@pytest.mark.parametrize("n", [0, 1, 15, 16, 17, 33, 100])
def test_sums_have_the_same_bits_everywhere_around_a_vector(everywhere, rng, n):
    x = (rng.standard_normal((7, n)) * 10.0 ** rng.integers(-3, 4, (7, n))).astype(F32)
    assert_allclose(everywhere(lambda v: ops.reduce("sum", v, -1), x), x.sum(-1), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("columns", [3, 4, 15, 16, 17, 255, 256, 257])
def test_columns_side_by_side_are_folded_as_rows_are(everywhere, rng, columns):
    for n in (0, 1, 16, 33):
        x = (rng.standard_normal((n, columns)) * 10.0 ** rng.integers(-3, 4, (n, columns))).astype(F32)
        x[n // 2 : n // 2 + 1, ::2] = [-0.0]
        for view in (x, np.ascontiguousarray(x[::-1])[::-1], np.repeat(x, 2, axis=1)[:, ::2]):
            assert_array_equal(everywhere(lambda v: ops.reduce("sum", v, 0), view), fold(x.T))
    y = np.stack([x, -x, x * 3])  # reduced axes that are no run together
    wanted = fold(np.moveaxis(y, 2, 0).reshape(columns, -1))
    assert_array_equal(everywhere(lambda v: ops.reduce("sum", v, (0, 1)), y), wanted)


@pytest.mark.parametrize("axes", [(1,), (0, 2), None])
def test_means_over_any_axes(everywhere, rng, axes):
    x = rng.standard_normal((5, 6, 19)).astype(F32)
    found = everywhere(lambda v: ops.reduce("mean", v, axes, keepdims=True), x)
    assert_allclose(found, x.mean(axes, keepdims=True), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("op", ["max", "min", "prod", "l1", "l2", "sum_square", "log_sum", "log_sum_exp"])
def test_other_reductions_of_reals(everywhere, rng, op):
    x = np.abs(rng.standard_normal((3, 21))).astype(F32)
    found = everywhere(lambda v: ops.reduce(op, v, 1), x)
    wide = x.astype(np.float64)
    right = {
        "max": lambda: wide.max(1), "min": lambda: wide.min(1), "prod": lambda: wide.prod(1), "l1": lambda: wide.sum(1),
        "l2": lambda: np.sqrt((wide**2).sum(1)), "sum_square": lambda: (wide**2).sum(1),
        "log_sum": lambda: np.log(wide.sum(1)), "log_sum_exp": lambda: np.log(np.exp(wide).sum(1)),
    }[op]()  # fmt: skip
    assert_allclose(found, right, rtol=1e-5)


def test_a_nan_and_infinities_pass_through_reductions():
    x = F32([[1, np.nan, 3], [np.inf, 2, 1], [-np.inf, -np.inf, -np.inf]])
    assert_array_equal(reduce("max", x), F32([np.nan, np.inf, -np.inf]))
    assert_array_equal(reduce("log_sum_exp", x), F32([np.nan, np.inf, -np.inf]))
    large = F32([[3e38, np.inf, 1], [np.inf, 3e38, np.nan], [90, np.inf, -np.inf], [3e38, 3e38, -3e38]])
    assert_array_equal(reduce("log_sum_exp", large), F32([np.inf, np.nan, np.inf, 3e38]))
    assert_array_equal(eager.reduce("max", x, 1), F32([np.nan, np.inf, -np.inf]))
    assert_array_equal(eager.reduce("sum", F32([[-0.0, -0.0]]), 1), F32([0.0]))
    assert_array_equal(reduce("max", np.zeros((2, 0), F32)), F32([-np.inf] * 2))


@pytest.mark.parametrize(
    ("dtype", "op"), [("s8", "sum"), ("u8", "mean"), ("s64", "max"), ("u32", "prod"), ("s16", "l1")]
)
def test_reductions_of_integers_are_exact_and_wrap(everywhere, rng, dtype, op):
    numpy = {"s8": np.int8, "u8": np.uint8, "s64": np.int64, "u32": np.uint32, "s16": np.int16}[dtype]
    info = np.iinfo(numpy)
    x = rng.integers(info.min, info.max, (4, 23), dtype=numpy, endpoint=True)
    found = everywhere(lambda v: ops.reduce(op, v, 1), x)
    wide = x.astype(object)
    right = {
        "sum": wide.sum(1),
        "mean": wide.sum(1) // 23,
        "max": wide.max(1),
        "prod": wide.prod(1),
        "l1": abs(wide).sum(1),
    }
    assert found.tolist() == [
        int(v) % 2**info.bits - (2**info.bits if info.min and int(v) % 2**info.bits > info.max else 0)
        for v in right[op]
    ]


def test_means_of_negative_integers_go_toward_zero():
    assert eager.reduce("mean", np.int32([[-7, 0], [7, 0]]), 1).tolist() == [-3, 3]


@pytest.mark.parametrize(
    ("x", "right"), [([-(2**63)] * 3, -(2**63) // 3 + 1), ([2**63 - 1, 1], -(2**62)), ([-7, 0], -3)]
)
def test_a_sum_of_s64_at_its_ends_is_divided_toward_zero_too(everywhere, x, right):
    assert everywhere(lambda v: ops.reduce("mean", v, 0, keepdims=True), np.array(x, np.int64)).tolist() == [right]


@pytest.mark.parametrize("axis", [-1, 1])
def test_softmax_over_rows_and_over_channels(everywhere, rng, axis):
    x = (rng.standard_normal((2, 5, 35)) * 5).astype(F32)
    found = everywhere(ops.softmax, x, axis=axis)
    wide = np.exp(x.astype(np.float64) - x.max(axis, keepdims=True))
    assert_allclose(found, wide / wide.sum(axis, keepdims=True), rtol=1e-5, atol=1e-9)


def test_softmax_rounds_half_types_once(everywhere, rng):
    x = rng.standard_normal((4, 40)).astype(ml_dtypes.bfloat16)
    found = everywhere(ops.softmax, x)
    assert_array_equal(found.astype(F32), softmax(x.astype(F32)).astype(ml_dtypes.bfloat16).astype(F32))


def test_log_softmax_and_masked_rows(everywhere, rng):
    x = rng.standard_normal((3, 18)).astype(F32)
    x[0, 3:] = -np.inf
    found = everywhere(ops.log_softmax, x)
    wide = x.astype(np.float64) - x.max(1, keepdims=True)
    with np.errstate(divide="ignore"):
        assert_allclose(found, wide - np.log(np.exp(wide).sum(1, keepdims=True)), rtol=1e-5, atol=1e-6)


def test_layer_norm_with_scale_bias_and_statistics(everywhere, rng):
    x = (rng.standard_normal((6, 3, 11)) * 3 + 5).astype(F32)
    scale, bias = rng.standard_normal((3, 11)).astype(F32), rng.standard_normal((3, 11)).astype(F32)
    y, mean, inverse = everywhere(lambda v: ops.layer_norm(v, scale, bias, axis=1, statistics=True), x)
    wide = x.astype(np.float64)
    m = wide.mean((1, 2), keepdims=True)
    i = 1 / np.sqrt(((wide - m) ** 2).mean((1, 2), keepdims=True) + 1e-5)
    assert_allclose(y, (wide - m) * i * scale + bias, rtol=1e-4, atol=1e-5)
    assert_allclose(mean, m, rtol=1e-5)
    assert_allclose(inverse, i, rtol=1e-5)


def test_rms_and_instance_and_batch_norm(everywhere, rng):
    x = rng.standard_normal((2, 4, 5, 6)).astype(F32)
    g = rng.standard_normal(6).astype(F32)
    wide = x.astype(np.float64)
    right = wide / np.sqrt((wide**2).mean(-1, keepdims=True) + 1e-6) * g
    assert_allclose(everywhere(lambda v: ops.rms_norm(v, g, epsilon=1e-6), x), right, rtol=1e-5, atol=1e-6)
    s, b = rng.standard_normal(4).astype(F32), rng.standard_normal(4).astype(F32)
    m, v = wide.mean((2, 3), keepdims=True), wide.var((2, 3), keepdims=True)
    right = (wide - m) / np.sqrt(v + 1e-5) * s[:, None, None] + b[:, None, None]
    assert_allclose(everywhere(lambda v: ops.instance_norm(v, s, b), x), right, rtol=1e-4, atol=1e-5)
    mean, variance = rng.standard_normal(4).astype(F32), np.abs(rng.standard_normal(4)).astype(F32)
    right = (wide - mean[:, None, None]) / np.sqrt(variance + 1e-5)[:, None, None] * s[:, None, None] + b[:, None, None]
    assert_allclose(everywhere(lambda v: ops.batch_norm(v, s, b, mean, variance), x), right, rtol=1e-4, atol=1e-5)


def test_the_last_of_equal_elements_is_found_where_asked(everywhere):
    x = F32([[1, 3, 3, np.nan, np.nan], [5, 1, 5, 1, 1]])
    assert everywhere(ops.argmax, x, axis=1).tolist() == [3, 0]
    assert everywhere(ops.argmax, x, axis=1, last=True).tolist() == [4, 2]
    assert everywhere(ops.argmin, x, axis=1, last=True).tolist() == [4, 4]


@pytest.mark.parametrize(("dtype", "symmetric"), [("u8", False), ("s8", True)])
@pytest.mark.parametrize("options", [{}, {"granularity": "row"}, {"granularity": "group", "group": 16}])
def test_dynamic_quantization_covers_the_data(everywhere, rng, dtype, symmetric, options):
    x = (rng.standard_normal((5, 40)) * rng.uniform(0.1, 30, (5, 1))).astype(F32)
    x[2] = 0
    codes, scale, zero_point = everywhere(ops.dynamic_quantize, x, dtype=dtype, symmetric=symmetric, **options)
    block = {"axis": -1, "block": 16} if options.get("group") else {}
    real = eager.dequantize(codes, scale, zero_point, **block)
    each = np.repeat(scale, 16, -1)[:, :40] if block else scale
    assert (np.abs(real - x) <= each * 0.5001).all()
    assert (real[2] == 0).all()
    assert ((scale > 0) & np.isfinite(scale)).all()


def test_dynamic_quantization_of_a_tensor_is_onnxs():
    x = F32([0, 2, -3, -2.5, 1.34, 0.5])  # the operator's own example
    codes, scale, zero_point = eager.dynamic_quantize(x)
    assert codes.tolist() == [153, 255, 0, 26, 221, 179]
    assert (scale, zero_point) == (F32(0.019607844), 153)


def test_rows_do_not_depend_on_their_neighbours(rng):
    x = rng.standard_normal((2, 30)).astype(F32) * F32([[1], [100]])
    alone = [eager.dynamic_quantize(row[None], granularity="row")[0][0] for row in x]
    assert_array_equal(eager.dynamic_quantize(x, granularity="row")[0], np.stack(alone))


@pytest.mark.parametrize("rows", [15, 16, 17])
def test_dynamic_quantization_around_sixteen_rows_of_four_vectors(rng, rows):
    """Laid out in one run, and with other elements between those of a row."""
    for n in (63, 64, 65):
        base = (rng.standard_normal((rows, 2 * n)) * rng.uniform(0.1, 30, (rows, 1))).astype(F32)
        base[-1] = np.rint(base[-1]) + F32(0.5)
        for x in (base[:, :n].copy(), base[:, ::2]):
            codes, scale, zero_point = eager.dynamic_quantize(x, granularity="row")
            right = dynamic_quantize(x)
            assert_array_equal(codes, right[0])
            assert_array_equal(scale[:, 0], right[1], strict=True)
            assert_array_equal(zero_point[:, 0], right[2], strict=True)


@pytest.mark.parametrize("x", [F32([[np.nan, 1]]), F32([[np.inf, 1]]), F32([[3e38, -3e38]]), F32([[1e-45, 0]])])
@pytest.mark.parametrize("granularity", ["row", "tensor"])
def test_a_scale_is_finite_and_positive_whatever_the_data(everywhere, x, granularity):
    _, scale, _ = everywhere(ops.dynamic_quantize, x, granularity=granularity)
    assert ((scale > 0) & np.isfinite(scale)).all()


def test_an_odd_layout_of_rows_gives_the_same_bits(rng):
    base = rng.standard_normal((40, 70)).astype(F32)
    x = base.T[::2, ::-1]
    pipe = Pipeline()
    pipe.output("y", ops.softmax(pipe.input("x", "f32", ("M", "K"))))
    plan = TilingExecutor(2).compile(pipe)
    assert_array_equal(plan.run({"x": x})["y"], plan.run({"x": np.ascontiguousarray(x)})["y"])


@pytest.mark.parametrize(
    ("error", "text", "call"),
    [
        (ArgumentError, "there is no 'median'", lambda p: ops.reduce("median", p.input("x", "f32", (3,)))),
        (ArgumentError, "out of range", lambda p: ops.softmax(p.input("x", "f32", (3,)), axis=1)),
        (ArgumentError, "one axis twice", lambda p: ops.reduce("sum", p.input("x", "f32", (3, 3)), (0, -2))),
        (DTypeMismatch, "f32, f16, bf16 work", lambda p: ops.softmax(p.input("x", "u8", (3,)))),
        (ShapeMismatch, "normalized axes", lambda p: ops.layer_norm(p.input("x", "f32", (3, 4)), np.ones((3, 4), F32))),
        (
            ArgumentError,
            "granularity",
            lambda p: ops.dynamic_quantize(p.input("x", "f32", (3, 4)), granularity="group"),
        ),
    ],
)
def test_what_does_not_fit_is_named(error, text, call):
    with pytest.raises(error, match=text):
        call(Pipeline())


@pytest.mark.parametrize(
    ("shape", "axes"), [((5, 33), (1,)), ((2, 3, 5, 17), (2, 3)), ((2, 3, 5, 19), (1, 2)), ((3, 0), (1,))]
)
@pytest.mark.parametrize("op", ["mean", "max"])
def test_codes_are_reduced_to_codes_of_another_scale(everywhere, rng, op, shape, axes):
    x = rng.integers(0, 256, shape, dtype=np.uint8)
    options = {"x_scale": F32(0.02), "x_zero_point": np.uint8(255), "scale": F32(0.03), "zero_point": 7, "dtype": "s8"}
    found = everywhere(lambda v: ops.reduce(op, v, axes, **options), x)
    if x.size:
        real = {"mean": np.mean, "max": np.max}[op]((x - 255.0) * 0.02, axis=axes)
        assert_allclose(found, np.clip(np.rint(real / 0.03) + 7, -128, 127), atol=1)


def test_sums_of_codes_are_exact_beyond_what_int32_holds(everywhere):
    x = np.full((2, 70_000), 65535, np.uint16)
    for v, axis in ((x, 1), (np.ascontiguousarray(x.T), 0)):
        found = everywhere(lambda w, a=axis: ops.reduce("sum", w, a, x_scale=1e-6, scale=1.0, dtype="u16"), v)
        assert_array_equal(found, np.uint16([4587, 4587]))  # 70000 * 65535 is 4587450000


def test_a_mean_of_codes_ties_to_even_and_saturates():
    x = np.uint8([[1, 2], [3, 4], [255, 255]])
    found = eager.reduce("mean", x, 1, x_scale=1.0, scale=1.0, zero_point=-100, dtype="s8")
    assert found.tolist() == [-98, -96, 127]


def test_codes_that_cannot_be_reduced_are_refused():
    pipe = Pipeline("p")
    x = pipe.input("x", "u8", (2, 3))
    with pytest.raises(ArgumentError, match="x_scale is missing"):
        ops.reduce("mean", x, scale=1.0)
    with pytest.raises(ArgumentError, match=r"prod.*sum, mean, max, min work"):
        ops.reduce("prod", x, x_scale=1.0, scale=1.0)
    with pytest.raises(ShapeMismatch, match="one for the whole tensor"):
        ops.reduce("mean", x, x_scale=F32([1, 2]), scale=1.0)
    with pytest.raises(ArgumentError, match="scale="):
        ops.reduce("mean", x, x_scale=1.0)
