"""Element-wise operations, reductions and copies on CUDA in the interpreter: the bytes of the reference."""

import ml_dtypes
import numpy as np
import pytest

import tilework as tw
from tilework.kernels import factory
from tilework.kernels.cuda.elementwise.steps import called, refuses
from tilework.kernels.cuda.interpreter import launching
from tilework.kernels.elementwise import TABLE, Elementwise
from tilework.kernels.linear import CodeFormat, Linear
from tilework.primitives.errors import KernelNotFound

SPECIAL = [0.0, -0.0, 1.0, -1.5, 2.5, np.inf, -np.inf, np.nan, 1e-40, 3e38, -7.25]
KINDS = {
    "f32": np.float32, "bf16": ml_dtypes.bfloat16, "f16": np.float16, "s32": np.int32, "u8": np.uint8, "s64": np.int64,
    "bool": np.bool_,
}  # fmt: skip


def values(kind, n, seed):
    rng = np.random.default_rng(seed)
    if kind in ("f32", "f16", "bf16"):
        found = np.concatenate([SPECIAL, rng.standard_normal(n - len(SPECIAL)) * 3])
        with np.errstate(all="ignore"):
            return rng.permutation(found).astype(KINDS[kind])
    if kind == "bool":
        return rng.random(n) < 0.5
    info = np.iinfo(KINDS[kind])
    found = rng.integers(max(info.min, -9), min(info.max, 9) + 1, n)
    found[:3] = [info.min, info.max, 0]
    return rng.permutation(found).astype(KINDS[kind])


def same_bytes(found, right):
    assert found.dtype == right.dtype
    np.testing.assert_array_equal(found.astype(np.float64), right.astype(np.float64))
    if right.dtype.kind in "biu" or not np.isnan(right.astype(np.float64)).any():
        assert found.tobytes() == right.tobytes()


@pytest.mark.parametrize("kind", KINDS)
def test_every_operation_of_the_table(run_on, kind):
    for op, row in TABLE.items():
        if kind not in row.types:
            continue
        kernel = Elementwise(op, kind, 1, (((0, 1),),) * len(row.values))
        operands = [values(dtype, 64, n) for n, dtype in enumerate(kernel.sources)]
        numbers = [np.float32(usual) for _, usual in row.numbers]
        if refuses(kernel):
            continue
        found = run_on("cuda", kernel, *operands, *numbers)
        right = run_on("reference", kernel, *operands, *numbers)
        assert found.dtype == right.dtype
        wide = [x.astype(np.float32) if kind in ("f16", "bf16") else x for x in (found, right)]
        np.testing.assert_array_equal(*wide, err_msg=op)


def test_float_arithmetic_becomes_calls():
    assert called("{a} * {b} + {c}", ("a", "b", "c")) == "ptx.add(ptx.mul({a}, {b}), {c})"


def on(executor, build, *arrays):
    pipe = tw.Pipeline()
    found = build(*(pipe.input(f"x{n}", x.dtype, x.shape) for n, x in enumerate(arrays)))
    for n, value in enumerate(found if isinstance(found, tuple) else (found,)):
        pipe.output(f"y{n}", value)
    plan = executor.compile(pipe)
    given = {f"x{n}": x for n, x in enumerate(arrays)}
    return plan.run(given), plan.explain()


def check(build, *arrays, hosted=False):
    """The interpreter gives the reference's bytes, in step and warp by warp, with no step left to the host."""
    right, _ = on(tw.SingleThreadExecutor("reference"), build, *arrays)
    for seed in (None, 1):
        found, text = on(tw.CudaExecutor("interpreter", seed=seed), build, *arrays)
        assert ("on the host" in text) == hosted, text
        for name, array in right.items():
            same_bytes(found[name], array)


X = np.random.default_rng(0).standard_normal((3, 5, 37)).astype(np.float32)


@pytest.mark.parametrize("op", ["sum", "mean", "max", "min", "prod", "l1", "l2", "sum_square", "log_sum_exp"])
def test_reductions_of_reals_keep_their_order(op):
    check(lambda x: tw.ops.reduce(op, x, axes=(0, 2)), X)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_reductions_of_short_floats_round_once(dtype):
    check(lambda x: tw.ops.reduce("mean", x, axes=(1,)), X.astype(dtype))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64])
@pytest.mark.parametrize("op", ["sum", "mean", "max", "min", "prod", "l1"])
def test_reductions_of_integers_wrap(op, dtype):
    x = (X * 50).astype(np.int32).astype(dtype)
    check(lambda v: tw.ops.reduce(op, v, axes=(2,), keepdims=True), x)


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
@pytest.mark.parametrize("axis", [-1, 0])
def test_softmax_is_the_written_sequence(name, axis):
    x = X.copy()
    x[0, 0, 0], x[1, 1, 1] = np.inf, np.nan
    x[2, 2] = -np.inf
    check(lambda v: getattr(tw.ops, name)(v, axis=axis), x)


def test_layer_and_rms_normalization():
    scale, bias = X[0, 0] + 1, X[0, 1]
    check(lambda x, s, b: tw.ops.layer_norm(x, s, b), X, scale, bias)
    check(lambda x, s: tw.ops.rms_norm(x, s), X, scale)


@pytest.mark.parametrize("dtype", ["u8", "s8"])
def test_dynamic_quantization_by_row_and_by_tensor(dtype):
    check(lambda x: tw.ops.dynamic_quantize(x, dtype=dtype, granularity="row"), X)
    check(lambda x: tw.ops.dynamic_quantize(x, dtype=dtype), X)


@pytest.mark.parametrize("last", [False, True])
def test_argmax_and_argmin_take_the_first_or_the_last_of_equals(last):
    x = np.random.default_rng(0).integers(0, 3, (4, 9)).astype(np.float32)
    x[1, 3] = x[1, 5] = np.nan
    for kind in ("f32", "bf16", "f16")[: 1 + 2 * last]:
        check(lambda v: (tw.ops.argmax(v, last=last), tw.ops.argmin(v, axis=0, last=last)), x.astype(KINDS[kind]))


def test_moving_data():
    codes = np.arange(60, dtype=np.uint8).reshape(3, 4, 5)
    check(lambda x: tw.ops.transpose(x, (2, 0, 1)), codes)
    check(lambda x: tw.ops.reshape(x, (12, 5)), codes)
    check(lambda x, y: tw.ops.concat([x, y], axis=1), codes, codes)
    check(lambda x, i: tw.ops.gather(x, i, axis=1), codes, np.array([[3, -1], [0, 2]], np.int64))


@pytest.mark.parametrize(
    ("dtype", "reduction"), [("f4", "add"), ("f4", "min"), ("i1", "mul"), ("u8", "max"), ("f8", "none"), ("?", "mul")]
)
def test_scatters_that_meet_are_applied_in_order(dtype, reduction):
    rng = np.random.default_rng(0)
    x, new = rng.integers(0, 100, (4, 5)).astype(dtype), rng.integers(-9, 9, (9, 5)).astype(dtype)
    check(lambda x, i, u: tw.ops.scatter_nd(x, i, u, reduction), x, rng.integers(-4, 4, (9, 1)), new)
    check(lambda x, i, u: tw.ops.scatter_nd(x, i, u, reduction), x, rng.integers(-4, 4, (9, 5, 2)), new)
    for axis in (0, 1):
        few = new[: 4 if axis else 9, :3]
        where = rng.integers(-4, 4, few.shape)
        check(lambda x, i, u, axis=axis: tw.ops.scatter_elements(x, i, u, axis, reduction), x, where, few)


def test_an_index_outside_names_the_step():
    codes, places = np.arange(12, dtype=np.float32).reshape(3, 4), np.array([5], np.int64)
    with pytest.raises(Exception, match=r"gather.*an index is outside"):
        on(tw.CudaExecutor("interpreter"), lambda x, i: tw.ops.gather(x, i, axis=0), codes, places)
    with pytest.raises(Exception, match=r"scatter_nd.*an index is outside"):
        on(tw.CudaExecutor("interpreter"), tw.ops.scatter_nd, codes, places[:, None], codes[:1])


def test_what_cuda_lacks_is_refused_by_name():
    kernel = Elementwise("mod", "f32", 1, (((0, 1),),) * 2)
    with pytest.raises(KernelNotFound, match="the remainder of floats has no CUDA kernel"):
        factory.get(kernel.name, "cuda", kernel=kernel, dtypes=(), ranks=())


def image(dtype, *shape):
    rng = np.random.default_rng(2)
    return (
        (rng.standard_normal(shape) * 60).astype(np.int32).astype(dtype)
        if dtype != np.float32
        else (rng.standard_normal(shape).astype(np.float32))
    )


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_convolutions_with_strides_padding_dilation_and_groups(dtype):
    w_type = np.int8 if dtype == np.uint8 else np.float32
    x = image(dtype, 2, 6, 9, 7)
    zero = {} if dtype == np.float32 else {"a_zero_point": np.uint8(130)}
    check(lambda x, w: tw.ops.conv(x, w, pads=1, **zero), x, image(w_type, 5, 6, 3, 3))
    check(lambda x, w: tw.ops.conv(x, w, strides=2, dilations=(1, 2), groups=3, **zero), x, image(w_type, 6, 2, 3, 2))
    check(
        lambda x, w: tw.ops.conv(x, w, groups=6, layout="NHWC", **zero),
        x.transpose(0, 2, 3, 1).copy(),
        image(w_type, 6, 1, 3, 3),
    )
    check(lambda x, w: tw.ops.conv_transpose(x, w, strides=2, pads=1, **zero), x, image(w_type, 6, 4, 3, 3))


def test_a_convolution_along_one_axis_with_a_zero_point_each():
    x, w = image(np.int8, 1, 3, 70), image(np.int8, 4, 3, 5)
    zeros = np.array([1, -2, 3, 127], np.int8)
    check(lambda x, w: tw.ops.conv(x, w, b_zero_point=zeros, a_zero_point=np.int8(-5), pads=2), x, w)


def decoded(q, scale, offset):
    return (q * q) * scale - offset


def of_place(q, scale, shift, place):
    return (q - shift + 0.25 * (place & 3)) * scale


FORMATS = {
    "affine with zero points": CodeFormat(4, False, "bits", (1, 16), "affine", True),
    "signed, across bytes": CodeFormat(3, True, "bits", (2, None), "affine"),
    "bytes with offsets": CodeFormat(8, True, "bytes", (1, 8), "offset"),
    "a table": CodeFormat(4, False, "bits", (1, 32), "table"),
    "a function": CodeFormat(5, False, "bits", (None, 10), "decode", decode=decoded),
    "a function of places": CodeFormat(
        3, True, "bits", (2, 10), "decode", decode=of_place, integers=(1,), position=True
    ),
}


def linear_case(fmt, compute, x_dtype="f32", m=5, k=37, n=9, activation="block", lead=()):
    """(kernel, operands) of random codes and parameters."""
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 256, (n, fmt.row_bytes(k))).astype(np.uint8)
    operands = [rng.standard_normal((*lead, m, k)).astype({"f32": np.float32, "f16": np.float16}[x_dtype])]
    operands.append(codes.view(np.int8) if fmt.packing == "bytes" and fmt.signed else codes)
    for slot in fmt.parameters:
        shape = fmt.blocks(n, k)
        whole = rng.integers(0, 9, shape).astype(np.int32)
        operands.append(whole if fmt.whole(slot) else (rng.random(shape) * 0.1 + 0.01).astype(np.float32))
    if fmt.kind == "table":
        operands.append(rng.standard_normal(1 << fmt.bits).astype(np.float32))
    return Linear(fmt, k, compute, x_dtype, len(lead), activation), operands


def linear_on(backend, kernel, operands):
    out = np.full((*operands[0].shape[:-1], len(operands[1])), 7, np.float32)
    built = factory.get(kernel.name, backend, kernel=kernel, dtypes=(), ranks=())
    if backend == "reference":
        built.fn(*operands, out)
    else:
        assert launching.execute(built, *operands, out) == 0
    return out


@pytest.mark.parametrize("compute", ["f32", "bf16", "int8"])
@pytest.mark.parametrize("name", FORMATS)
def test_products_with_packed_codes_have_the_references_bytes(name, compute):
    fmt = FORMATS[name]
    if compute == "int8" and fmt.kind in ("table", "decode"):
        pytest.skip("such codes are no integers times a scale, or their integers are found on the host")
    for more in ({}, {"x_dtype": "f16", "m": 70, "n": 66}, {"lead": (2, 3)}):
        kernel, operands = linear_case(fmt, compute, **more)
        assert linear_on("cuda", kernel, operands).tobytes() == linear_on("reference", kernel, operands).tobytes()


def test_one_scale_a_row_of_x():
    kernel, operands = linear_case(FORMATS["bytes with offsets"], "int8", activation="row")
    assert linear_on("cuda", kernel, operands).tobytes() == linear_on("reference", kernel, operands).tobytes()


def test_rows_of_x_without_a_size_or_a_number_count_as_in_the_reference():
    kernel, operands = linear_case(FORMATS["affine with zero points"], "int8")
    operands[0][0], operands[0][1, 3], operands[0][2, 5] = 0, np.nan, np.inf
    found, right = linear_on("cuda", kernel, operands), linear_on("reference", kernel, operands)
    np.testing.assert_array_equal(found, right, strict=True)


ORDERED = ["u8", "s32", "u64", "f32"]


def ties(dtype):
    """(3, 7) numbers with ties, the ends of the type, zeros of both signs, NaN."""
    rng = np.random.default_rng(0)
    if dtype == "f32":
        found = rng.integers(-2, 3, (3, 7)).astype(np.float32)
        found[0, :4], found[1, :3] = (np.nan, -0.0, 0.0, np.inf), (-np.inf, np.nan, np.nan)
        return found
    info = np.iinfo(KINDS.get(dtype, np.uint64))
    found = rng.integers(1, 4, (3, 7)).astype(info.dtype)
    found[0, 1], found[1, 5] = info.max, info.min
    return found


@pytest.mark.parametrize("dtype", ORDERED)
@pytest.mark.parametrize("axis", [0, 1])
def test_order_along_an_axis(dtype, axis):
    x = ties(dtype)
    check(lambda v: (*tw.ops.topk(v, 3, axis), *tw.ops.topk(v, 2, axis, largest=False)), x)
    sums = np.where(np.isfinite(x), x, 1).astype(x.dtype)
    check(lambda v: (tw.ops.cumsum(v, axis), tw.ops.cumsum(v, axis, exclusive=True, reverse=True)), sums)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, ml_dtypes.bfloat16])
def test_triangles_and_one_hot_rows(dtype):
    x = np.arange(1, 43).reshape(2, 3, 7).astype(dtype)
    check(lambda v: (tw.ops.trilu(v, 1), tw.ops.trilu(v, -1, upper=False)), x)
    classes = np.array([[0, 3, -1], [-4, 2, 9]], np.int64)
    check(lambda i: (tw.ops.one_hot(i, 4), tw.ops.one_hot(i, 4, axis=0)), classes)


FITTING = [np.bool_, np.uint8, np.int16, np.int32, np.uint64, np.int64, np.float32, np.float16, ml_dtypes.bfloat16]


@pytest.mark.parametrize("source", FITTING)
def test_casts_give_the_references_bytes(source):
    real = np.array(
        [0.0, -0.0, 0.4, -1.6, 255.5, -129, 65504, 1e9, -3e9, 1e19, -1e30, np.inf, -np.inf, np.nan], np.float32
    )
    with np.errstate(all="ignore"):
        x = (
            real.astype(source)
            if np.dtype(source).kind in "fV"
            else np.nan_to_num(real, posinf=9).astype(np.int64).astype(source)
        )
    wide = source in (np.uint64, np.int64)
    kinds = ["bool", "u8", "s16", "s32", "u64", "s64", *([] if wide else ["f32"])]
    kinds += ["f16", "bf16"] if np.dtype(source).kind in "fV" else []
    check(lambda v: tuple(tw.ops.cast(v, kind) for kind in kinds if kind != tw.dtypes.get(source).name), x)


def test_a_cast_that_cuda_has_no_kernel_for_runs_on_the_host():
    check(lambda v: tw.ops.cast(v, "f8e4m3fn"), np.linspace(-2, 2, 9, dtype=np.float32), hosted=True)
