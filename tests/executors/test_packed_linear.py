"""linear over packed codes: every path gives the reference's bits, at every level, tile, thread count and number of rows."""

import itertools

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from tilework.executors import SingleThreadExecutor, TilingExecutor
from tilework.kernels import ops
from tilework.kernels.cpu import isa
from tilework.kernels.linear import CodeFormat, Linear
from tilework.kernels.reference import linear as meaning
from tilework.kernels.reference.gemm import gemm_f32
from tilework.primitives.errors import TileworkError
from tilework.primitives.pipeline import Pipeline

LEVELS = [level.name for level in isa.available()]
INT8 = {
    "g32": CodeFormat(4, block=(1, 32), zero_point=True),  # the random zero points below become a shift of every block
    "table g16": CodeFormat(4, block=(1, 16), kind="table"),
    "offset g48": CodeFormat(4, signed=True, block=(1, 48), kind="offset"),
    "8 bits g7": CodeFormat(8, block=(1, 7), zero_point=True),
    "3 bits 2-D": CodeFormat(3, block=(8, 100)),
    "2 bits row": CodeFormat(2, signed=True, block=(1, None)),
    "1 bit tensor": CodeFormat(1, block=(None, None), packing="bytes"),
    "6 bits table": CodeFormat(6, block=(1, 20), kind="table"),
}

BEND = 3  # where the user's function below changes


def bent(q, scale, step):
    """A decode that is no integer times anything."""
    v = q * scale
    return v + step if q > BEND else v * v - step


def tilted(q, shift, scale, place):
    """A decode of a whole number, a real one and the place of the weight."""
    return (q - shift + 0.25 * (place % 7)) * scale


REAL = {
    "g32": CodeFormat(4, block=(1, 32)),
    "g32 zero points": CodeFormat(4, signed=True, block=(1, 32), zero_point=True),
    "table g16": CodeFormat(4, block=(1, 16), kind="table"),
    "offset g48": CodeFormat(4, signed=True, block=(1, 48), kind="offset"),
    "8 bits g7": CodeFormat(8, block=(1, 7), zero_point=True),
    "2 bits row": CodeFormat(2, signed=True, block=(1, None)),
    "6 bits table": CodeFormat(6, block=(8, 20), kind="table"),
    "a function": CodeFormat(4, block=(1, 35), kind="decode", decode=bent),
    "a function of places": CodeFormat(
        4, signed=True, block=(2, 35), kind="decode", decode=tilted, integers=(0,), position=True
    ),
}


def at_levels(formats):
    """Every format at the least and the best level, and a few at those between."""
    between = ("g32", "8 bits g7", "2 bits row")
    return [
        pytest.param(name, level, id=f"{name}-{level}")
        for level in LEVELS
        for name in formats
        if level in (LEVELS[0], LEVELS[-1]) or name in between
    ]


def weights(fmt, N, K, seed=0):
    """Random codes and parameters: {slot: array}. The first block's scale is 0, the last's is subnormal."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 256, (N, fmt.row_bytes(K)), dtype=np.uint8)
    if fmt.packing == "bytes":
        codes &= (1 << fmt.bits) - 1
    made = {"codes": codes}
    for slot in fmt.parameters:
        shape = fmt.blocks(N, K)
        if fmt.whole(slot):
            made[slot] = rng.integers(fmt.lowest, fmt.highest + 1, shape).astype(np.int32)
        else:
            made[slot] = rng.standard_normal(shape).astype(np.float32) * np.float32(0.01)
            made[slot].flat[0] = 0
            made[slot].flat[-1] = 1e-40
    if fmt.kind == "table":
        made["table"] = rng.standard_normal(1 << fmt.bits).astype(np.float32)
    return made


def rows_of(M, K, dtype=np.float32, seed=1):
    """Rows with ties, zeros, huge and tiny blocks among them."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((M, K)) * np.exp(rng.uniform(-8, 8, (M, 1)))
    x[0, : K // 2] = 0
    x[-1] = np.arange(K) % 9 - 4
    if M > 2 and dtype != np.float16:
        x[1] *= 1e-34
    return x.astype(dtype)


def pipeline(kernel, made, after=None, batch=()):
    pipe = Pipeline("linear")
    x = pipe.input("x", kernel.x_dtype, (*batch, "M", kernel.K))
    y = pipe.add(kernel, x=x, **made)
    pipe.output("y", after(y) if after else y)
    return pipe


def expected(kernel, made, x):
    return meaning.linear(kernel, x, *made.values())


def run(executor, kernel, made, x):
    plan = executor.compile(pipeline(kernel, made))
    out = np.full((*x.shape[:-1], len(made["codes"])), np.nan, np.float32)
    out.view(np.uint32)[...] = 0x5A5A5A5A
    plan.run({"x": x}, out={"y": out})
    return out


@pytest.mark.parametrize(("name", "level"), at_levels(INT8))
def test_integer_paths_give_the_bits_of_the_reference_at_every_level(name, level):
    fmt = INT8[name]
    N, K = 2 * 32 + 1, 150
    made, kernel = weights(fmt, N, K), Linear(fmt, K)
    for M in (2, 15):  # a packed panel, and an unpacked one with tiles of several heights
        x = rows_of(M, K)
        assert_array_equal(run(TilingExecutor(threads=1, isa=level), kernel, made, x), expected(kernel, made, x))


# bits of a code, the least and the largest zero point, a block: zero points lie in half bytes, in bytes as what codes
# are short of the largest, or, beside codes of 8 bits, in bytes as they are; the sum of a long block fits no int16
ZERO_POINTS = [(4, 0, 15, 32), (4, 0, 16, 32), (4, -9, 40, 8), (3, 0, 15, 300), (2, -1, 90, 300), (8, 0, 15, 16)]


@pytest.mark.parametrize("level", sorted({LEVELS[0], LEVELS[-1]}))
@pytest.mark.parametrize(("bits", "low", "high", "depth"), ZERO_POINTS)
def test_zero_points_of_every_size_give_the_bits_of_the_reference(bits, low, high, depth, level):
    fmt, K = CodeFormat(bits, block=(1, depth), zero_point=True), 2 * depth + 8
    for M, N in ((1, 31), (4, 32), (9, 33)):  # corrected sums, corrected codes, and an unpacked panel
        made, kernel, x = weights(fmt, N, K), Linear(fmt, K), rows_of(M, K)
        made["zero_point"] = np.random.default_rng(M).integers(low, high + 1, fmt.blocks(N, K)).astype(np.int32)
        made["zero_point"].flat[:2] = low, high
        assert_array_equal(run(TilingExecutor(threads=1, isa=level), kernel, made, x), expected(kernel, made, x))


@pytest.mark.parametrize("bits", [1, 3])
@pytest.mark.parametrize("kind", ["table", "affine"])
def test_what_fills_up_the_last_words_of_a_block_counts_for_nothing(bits, kind):
    fmt, N, K = CodeFormat(bits, block=(1, 100), kind=kind, zero_point=kind == "affine"), 33, 700
    made, kernel = weights(fmt, N, K), Linear(fmt, K)
    executor = TilingExecutor(threads=1)
    for M in (9, 1, 4):  # memory that has held other rows
        x = rows_of(M, K)
        assert_array_equal(run(executor, kernel, made, x), expected(kernel, made, x))


@pytest.mark.parametrize(("name", "level"), at_levels(REAL))
def test_float32_has_the_bits_of_decoding_and_multiplying_at_every_level(name, level):
    fmt, N = REAL[name], 65
    for M, K in ((2, 160), (11, 309)):  # decoded in registers, and chunk by chunk with an end in mid of a block
        made, kernel = weights(fmt, N, K), Linear(fmt, K, "f32")
        x = rows_of(M, K)
        right = gemm_f32(x, meaning.decode(made["codes"], fmt, K, *list(made.values())[1:]).T)
        assert_array_equal(run(TilingExecutor(threads=1, isa=level), kernel, made, x), right)
        assert_array_equal(expected(kernel, made, x), right)


@pytest.mark.parametrize("level", [LEVELS[0], LEVELS[-1]])
@pytest.mark.parametrize("name", ["g32", "8 bits g7", "a function"])
def test_bfloat16_is_within_the_bound_of_rounded_operands(name, level):
    fmt, N = REAL[name], 65
    for M, K in ((2, 160), (11, 309)):
        made, kernel = weights(fmt, N, K), Linear(fmt, K, "bf16")
        x = rows_of(M, K)
        w = meaning.decode(made["codes"], fmt, K, *list(made.values())[1:])
        found = run(TilingExecutor(threads=1, isa=level), kernel, made, x)
        exact = meaning.to_bf16(x).astype(np.float64) @ meaning.to_bf16(w).astype(np.float64).T
        assert (np.abs(found - exact) <= meaning.linear_bf16_bound(x, w)).all()
        if level == LEVELS[0]:
            assert_array_equal(found, expected(kernel, made, x))


@pytest.mark.parametrize("name", ["g32 zero points", "table g16"])
def test_rows_in_bfloat16_do_not_depend_on_how_many_there_are(name):
    fmt, N, K = REAL[name], 65, 160
    made, kernel = weights(fmt, N, K), Linear(fmt, K, "bf16")
    x = rows_of(11, K)
    right = run(TilingExecutor(threads=1), kernel, made, x)
    for M in (1, 3, 8):  # decoded in registers, two panels side by side and one by one
        assert_array_equal(run(TilingExecutor(threads=1), kernel, made, x[:M]), right[:M])


@pytest.mark.parametrize("compute", ["f32", "bf16"])
def test_weights_that_are_nan_or_infinite_stay_so(compute):
    fmt, N, K = REAL["offset g48"], 40, 96
    made, kernel = weights(fmt, N, K), Linear(fmt, K, compute)
    made["codes"][2] = 0x11
    made["scale"][0, 0], made["offset"][1, 1], made["scale"][2, 0] = np.nan, np.inf, 3e38
    for M in (2, 11):
        x = np.ones((M, K), np.float32)
        found = run(TilingExecutor(threads=1), kernel, made, x)
        assert np.isnan(found[:, 0]).all()
        assert np.isposinf(found[:, 1]).all()
        assert np.isinf(found[:, 2]).all()
        assert np.isfinite(found[:, 3:]).all()


@pytest.mark.parametrize(("compute", "x_dtype"), [("f32", "f16"), ("f32", "bf16"), ("bf16", "bf16"), ("bf16", "f16")])
def test_halves_meet_real_weights(compute, x_dtype):
    from tilework.primitives import dtypes

    fmt, K = REAL["g32"], 101
    made, kernel = weights(fmt, 33, K), Linear(fmt, K, compute, x_dtype=x_dtype)
    x = rows_of(9, K, np.float16).astype(dtypes.get(x_dtype).numpy)
    found = run(TilingExecutor(threads=1, isa=LEVELS[0]), kernel, made, x)
    assert_array_equal(found, expected(kernel, made, x))


@pytest.mark.parametrize(("M", "N"), [*itertools.product((1, 8, 9), (1, 31, 32, 33))])
def test_integer_path_is_exact_around_tile_edges(M, N):
    fmt, K = INT8["g32"], 64
    made, kernel = weights(fmt, N, K), Linear(fmt, K)
    x = rows_of(M, K)
    assert_array_equal(run(TilingExecutor(threads=1), kernel, made, x), expected(kernel, made, x))


@pytest.mark.parametrize("K", [1, 7, 31, 32, 33, 100])
def test_blocks_need_not_divide_the_depth(K):
    fmt = INT8["g32"]
    made, kernel = weights(fmt, 40, K), Linear(fmt, K)
    for M in (1, 9):
        x = rows_of(M, K)
        assert_array_equal(run(TilingExecutor(threads=1), kernel, made, x), expected(kernel, made, x))


@pytest.mark.parametrize(("M", "N"), [(0, 5), (3, 0)])
def test_empty_results_are_empty(M, N):
    fmt = INT8["g32"]
    made, kernel = weights(fmt, max(N, 1), 64), Linear(fmt, 64)
    if N == 0:
        made = {slot: array[:0] for slot, array in made.items()}
    found = run(TilingExecutor(threads=1), kernel, made, np.zeros((M, 64), np.float32))
    assert found.shape == (M, N)


def test_threads_and_executors_agree_and_rows_may_come_in_any_strides():
    fmt, K, N = INT8["g32"], 96, 200
    made, kernel = weights(fmt, N, K), Linear(fmt, K)
    wide = rows_of(40, 2 * K)
    x = wide[::2, ::2]
    right = expected(kernel, made, x)
    real = Linear(fmt, K, "f32")
    right_real = expected(real, made, x)
    for executor in (TilingExecutor(threads=2), TilingExecutor(threads=3), SingleThreadExecutor(debug=True)):
        assert_array_equal(run(executor, kernel, made, x), right)
        assert_array_equal(run(executor, real, made, x), right_real)
    assert_array_equal(run(SingleThreadExecutor("reference"), kernel, made, x), right)


@pytest.mark.parametrize("x_dtype", ["f16", "bf16"])
def test_halves_are_widened(x_dtype):
    from tilework.primitives import dtypes

    fmt, K = INT8["offset g48"], 100
    made, kernel = weights(fmt, 33, K), Linear(fmt, K, x_dtype=x_dtype, activation="row")
    for M in (1, 20):
        x = rows_of(M, K, np.float16).astype(dtypes.get(x_dtype).numpy)
        assert_array_equal(run(TilingExecutor(threads=1), kernel, made, x), expected(kernel, made, x))


def test_leading_dimensions_share_the_weights():
    fmt, K = INT8["g32"], 64
    made, kernel = weights(fmt, 33, K), Linear(fmt, K, batch=2)
    x = rows_of(2 * 3 * 5, K).reshape(2, 3, 5, K)
    found = TilingExecutor(threads=2).run(pipeline(kernel, made, batch=(2, 3)), {"x": x})["y"]
    assert_array_equal(found, expected(kernel, made, x))


def test_a_row_with_an_infinity_or_nan_is_nan_and_no_other():
    fmt, K = INT8["g32"], 64
    made, kernel = weights(fmt, 40, K), Linear(fmt, K)
    made["scale"][:] = 1
    x = rows_of(4, K)
    x[1, 3], x[2, 40] = np.inf, np.nan
    found = run(TilingExecutor(threads=1), kernel, made, x)
    assert_array_equal(np.isnan(found).all(axis=1), [False, True, True, False])
    assert not np.isnan(found[[0, 3]]).any()
    assert_array_equal(found, expected(kernel, made, x))


@pytest.mark.parametrize(
    "after",
    [
        lambda y: ops.add(y, np.linspace(-1, 1, 70, dtype=np.float32)),
        lambda y: ops.relu(ops.add(y, np.linspace(-1, 1, 70, dtype=np.float32))),
        lambda y: ops.quantize(y, 0.05, 3, "u8"),
        lambda y: ops.map(lambda v: v * 0.5 if v > 0 else v * 0.125, y),
    ],
    ids=["bias", "bias and relu", "quantized", "a function"],
)
def test_what_follows_is_fused_without_changing_a_bit(after):
    fmt, K = INT8["g32"], 64
    made, kernel = weights(fmt, 70, K), Linear(fmt, K)
    pipe = pipeline(kernel, made, after)
    for M in (2, 20):
        x = rows_of(M, K)
        fused = TilingExecutor(threads=2).run(pipe, {"x": x})["y"]
        assert_array_equal(fused, SingleThreadExecutor("reference").run(pipe, {"x": x})["y"])
    steps = TilingExecutor(threads=1).compile(pipe).lowered.pipe.steps
    assert [step.kernel.name for step in steps] == ["linear_rows", "linear_panels"]


def test_constant_zero_points_cost_nothing_and_wide_ones_are_refused():
    fmt, K = CodeFormat(4, block=(1, 32), zero_point=True), 64
    made, kernel = weights(fmt, 33, K), Linear(fmt, K)
    for zero in (8, -3, 200):
        made["zero_point"][:] = zero
        x = rows_of(9, K)
        assert_array_equal(run(TilingExecutor(threads=1), kernel, made, x), expected(kernel, made, x))
    made["zero_point"][0, 0], made["zero_point"][1, 0] = -5, 251
    with pytest.raises(TileworkError, match="zero points from -5 to 251"):
        TilingExecutor(threads=1).compile(pipeline(kernel, made))


def test_weights_known_only_at_run_time_go_through_the_reference():
    fmt, K = INT8["g32"], 64
    made, kernel = weights(fmt, 33, K), Linear(fmt, K)
    pipe = Pipeline("late")
    values = {}
    for slot, array in made.items():
        values[slot] = pipe.input(
            slot, {"uint8": "u8", "int32": "s32", "float32": "f32"}[array.dtype.name], array.shape
        )
    pipe.output("y", pipe.add(kernel, x=pipe.input("x", "f32", ("M", K)), **values))
    x = rows_of(3, K)
    found = TilingExecutor(threads=1).run(pipe, {"x": x, **made})["y"]
    assert_array_equal(found, expected(kernel, made, x))


def test_a_linear_can_be_saved_and_loaded(tmp_path):
    from tilework.primitives import storage

    fmt, K = INT8["table g16"], 40
    made, kernel = weights(fmt, 20, K), Linear(fmt, K)
    storage.save(pipeline(kernel, made), tmp_path / "linear.tw")
    again = storage.load(tmp_path / "linear.tw")
    assert again.steps[0].kernel == kernel
    x = rows_of(3, K)
    assert_array_equal(TilingExecutor(threads=1).run(again, {"x": x})["y"], expected(kernel, made, x))


def test_rows_that_share_decoded_weights_are_not_cut_into_stages():
    fmt, (N, K, M) = REAL["g32"], (64, 1024, 256)
    made, kernel = weights(fmt, N, K), Linear(fmt, K, "f32")
    plan = TilingExecutor(threads=1).compile(pipeline(kernel, made), {"x": (M, K)})
    plan.run({"x": rows_of(M, K)})
    assert "at M = 256" in plan.explain()
    assert "rows at a time" not in plan.explain()
