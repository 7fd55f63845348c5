"""Neighbours of the known kinds of faults: other types, sizes, axes and steps than those the reports were about."""

import numpy as np
import pytest

import tilework as tw

EXECUTORS = [
    tw.SingleThreadExecutor(backend="reference"),
    tw.SingleThreadExecutor(),
    tw.TilingExecutor(threads=2),
    tw.TilingExecutor(threads=2, fuse=False, chain=False),
]
TYPES = {"u8": np.uint8, "s8": np.int8}


def ends(dtype):
    return np.iinfo(dtype).min, np.iinfo(dtype).max


@pytest.mark.parametrize("a_type", TYPES)
@pytest.mark.parametrize("b_type", TYPES)
@pytest.mark.parametrize("k", [1, 2, 63, 66])
def test_products_of_both_ends_are_exact_in_all_types(everywhere, exact, a_type, b_type, k):
    """Sums of two and four products of bytes: both ends of each type, alone and by turns."""
    turns = np.arange(k) % 2 == 0
    (a_low, a_high), (b_low, b_high) = ends(TYPES[a_type]), ends(TYPES[b_type])
    a = np.stack([np.full(k, a_low), np.full(k, a_high), np.where(turns, a_low, a_high)]).astype(TYPES[a_type])
    b = np.stack([np.full(k, b_low), np.full(k, b_high), np.where(turns, b_low, b_high)], 1).astype(TYPES[b_type])
    for zeros in ((0, 0), (a_high, b_low), (a_low, b_high)):
        found = everywhere(
            lambda x, z=zeros: tw.ops.gemm(
                x, b, a_zero_point=TYPES[a_type](z[0]) if z[0] else None, b_zero_point=z[1] or None
            ),
            a,
        )
        assert found.tolist() == exact.gemm(a, b, *zeros).tolist(), zeros


EMPTY = {
    "sum over nothing": (lambda v: tw.ops.reduce("sum", v, axes=[1]), (3, 0), (3,)),
    "sum of no rows": (lambda v: tw.ops.reduce("sum", v, axes=[1]), (0, 3), (0,)),
    "softmax": (tw.ops.softmax, (0, 5), (0, 5)),
    "quantize": (lambda v: tw.ops.quantize(v, 0.5, 3, "u8"), (0,), (0,)),
    "concat": (lambda v: tw.ops.concat([v, v], axis=1), (2, 0), (2, 0)),
    "gather": (lambda v: tw.ops.gather(v, np.zeros(0, np.int64)), (4, 3), (0, 3)),
    "transpose": (lambda v: tw.ops.transpose(v, [1, 0]), (0, 7), (7, 0)),
    "layer norm": (lambda v: tw.ops.layer_norm(v), (0, 8), (0, 8)),
    "conv": (lambda v: tw.ops.conv(v, np.ones((2, 3, 1, 1), np.float32)), (0, 3, 4, 4), (0, 2, 4, 4)),
    "product": (lambda v: tw.ops.gemm(v, np.ones((0, 4), np.float32)), (3, 0), (3, 4)),
}


@pytest.mark.parametrize("step", EMPTY)
def test_sizes_of_zero_in_other_steps(everywhere, step):
    build, shape, right = EMPTY[step]
    found = everywhere(build, np.ones(shape, np.float32))
    assert found.shape == right
    assert not found.any()


@pytest.mark.parametrize(("dtype", "zero"), [("u8", 0), ("u8", 255), ("s8", -128), ("s8", 127)])
@pytest.mark.parametrize("channels", [1, 5, 17])
def test_padding_is_real_zero_for_every_zero_point(everywhere, dtype, zero, channels):
    rng = np.random.default_rng(channels)
    low, high = ends(TYPES[dtype])
    x = rng.integers(low, high + 1, (1, channels, 4, 5)).astype(TYPES[dtype])
    w = rng.integers(-128, 128, (3, channels, 3, 3), np.int8)
    wide = np.pad(x.astype(np.int64) - zero, ((0, 0), (0, 0), (2, 1), (1, 2)))
    right = np.zeros((1, 3, 5, 6), np.int64)
    for i in range(5):
        for j in range(6):
            right[0, :, i, j] = (wide[0, :, i : i + 3, j : j + 3] * w.astype(np.int64)).sum((1, 2, 3))
    found = everywhere(lambda v: tw.ops.conv(v, w, pads=(2, 1, 1, 2), a_zero_point=TYPES[dtype](zero)), x)
    assert found.tolist() == right.tolist()


def test_an_image_does_not_depend_on_its_neighbours(everywhere):
    rng = np.random.default_rng(2)
    x, w = rng.standard_normal((5, 3, 6, 6), np.float32), rng.standard_normal((4, 3, 3, 3), np.float32)
    whole = everywhere(lambda v: tw.ops.conv(v, w, pads=1), x)
    rows = everywhere(lambda v: tw.ops.softmax(v), x[:, 0, 0])
    for n in (1, 2, 3):
        assert everywhere(lambda v: tw.ops.conv(v, w, pads=1), x[:n]).tobytes() == whole[:n].tobytes()
        assert everywhere(lambda v: tw.ops.softmax(v), x[:n, 0, 0]).tobytes() == rows[:n].tobytes()


OVER_ITSELF = {
    "float32 to bytes": (lambda v: tw.ops.quantize(v, 1.0, 0, "s8"), np.float32, lambda m: m.view(np.int8)[:40]),
    "bytes to float32": (lambda v: tw.ops.dequantize(v, 1.0), np.int8, lambda m: m.view(np.float32)[:10]),
    "turned round": (lambda v: tw.ops.slice(v, [39], [-41], steps=[-1]), np.int32, lambda m: m),
    "sums so far": (lambda v: tw.ops.cumsum(v, 0), np.int32, lambda m: m),
    "largest first": (lambda v: tw.ops.topk(v, 40)[0], np.int32, lambda m: m),
    "element by element": (lambda v: tw.ops.mul(v, 2), np.int32, lambda m: m),
}


@pytest.mark.parametrize("executor", EXECUTORS, ids=repr)
@pytest.mark.parametrize("step", OVER_ITSELF)
def test_an_output_in_the_memory_of_its_input_is_refused_or_right(executor, step):
    build, dtype, over = OVER_ITSELF[step]
    x = (np.arange(40) * 7 % 40 - 9).astype(dtype)
    if step == "bytes to float32":
        x = x[:10]
    pipe = tw.Pipeline("over itself")
    pipe.output("y", build(pipe.input("x", tw.Buffer.from_array(x).dtype, x.shape)))
    right = executor.run(pipe, {"x": x.copy()})["y"]
    memory = np.zeros(40, np.int32)
    given = memory.view(dtype)[: x.size]
    given[...] = x
    out = over(memory)
    try:
        executor.run(pipe, {"x": given}, out={"y": out})
    except tw.errors.AliasError:
        assert given.tolist() == x.tolist(), "an error leaves the arrays as they were"
        assert step != "element by element"
    else:
        assert out.tobytes() == right.tobytes()


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_scales_of_channels_move_with_their_axis(everywhere, exact, axis, dtype):
    """Sizes that are equal hide an axis that was not moved."""
    codes = (np.arange(27).reshape(3, 3, 3) - (0 if dtype == np.uint8 else 13)).astype(dtype)
    scales = np.array([1, 10, 100], np.float32)
    at = [1, 1, 1]
    at[axis] = 3
    right = (codes.astype(np.float32) * scales.reshape(at)).transpose(2, 0, 1)
    found = everywhere(lambda v: tw.ops.transpose(tw.ops.dequantize(v, scales, axis=axis), [2, 0, 1]), codes)
    assert found.tolist() == right.tolist()


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_parts_are_joined_along_any_axis_at_one_scale(everywhere, axis):
    one, two = (np.full((2, 3), n, np.uint8) for n in (10, 21))
    first, second = tw.QuantParams(0.1, 0, "u8"), tw.QuantParams(0.2, 1, "u8")
    pipe = tw.Pipeline("joined")
    values = [pipe.input(n, "u8", (2, 3), quant=q) for n, q in (("a", first), ("b", second))]
    pipe.output("y", tw.ops.concat(values, axis=axis, to=tw.QuantParams(0.2, 0, "u8")))
    right = np.concatenate([np.full((2, 3), 5), np.full((2, 3), 20)], axis)
    for executor in EXECUTORS:
        assert executor.run(pipe, {"a": one, "b": two})["y"].tolist() == right.tolist()


def distance(a, b):
    return abs(a - b)


def test_differences_of_bytes_in_a_function_are_signed(everywhere):
    a, b = np.array([3, 250, 0, 255], np.uint8), np.array([250, 3, 255, 0], np.uint8)
    assert everywhere(lambda x, y: tw.ops.map(distance, x, y, dtype="s32"), a, b).tolist() == [247, 247, 255, 255]
