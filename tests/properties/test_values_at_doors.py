"""Properties of what runs: plans, states, streams, schemes, eager steps and statistics, for drawn data."""

import functools

import hypothesis.extra.numpy as nps
import hypothesis.strategies as st
import numpy as np
from hypothesis import given, settings

import tilework as tw

REALS = st.floats(-100, 100, width=32)


# Steps by their meaning ------------------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1))
def test_every_step_keeps_its_meaning_under_drawn_operands(seed):
    """Elementwise steps of drawn types, as integers and floats of Python's kind give them.

    Every step, type, granularity and layout on every executor is drawn by `tilework.bench.prove`.
    """
    rng = np.random.default_rng(seed)
    name = ("relu", "clip", "dequantize", "quantize", "add")[seed % 5]
    dtype = ("u8", "s8")[seed // 5 % 2]
    x = rng.integers(*{"u8": (0, 256), "s8": (-128, 128)}[dtype], (rng.integers(0, 4), rng.integers(1, 9)))
    x = x.astype(tw.dtypes.get(dtype).numpy)
    zero = int(rng.integers(int(x.min(initial=0)), int(x.max(initial=0)) + 1))
    point, scale = x.dtype.type(zero), np.float32(rng.uniform(1e-3, 2))

    def build(v):
        return {
            "relu": lambda: tw.ops.relu(v, zero_point=point),
            "clip": lambda: tw.ops.clip(v, lo=point),
            "dequantize": lambda: tw.ops.dequantize(v, scale, point),
            "quantize": lambda: tw.ops.quantize(tw.ops.dequantize(v, scale, point), scale, point, dtype=dtype),
            "add": lambda: tw.ops.add(tw.ops.cast(v, "s32"), 7),
        }[name]()

    pipe = tw.Pipeline("drawn")
    pipe.output("y", build(pipe.input("x", dtype, x.shape)))
    whole = tw.SingleThreadExecutor("reference").run(pipe, {"x": x})["y"]
    wide = x.astype(np.int64)
    right = {
        "relu": np.maximum(wide, zero),
        "clip": np.maximum(wide, zero),
        "dequantize": (x.astype(np.float32) - np.float32(zero)) * scale,
        "quantize": wide,  # what was decoded encodes to itself
        "add": wide + 7,
    }[name]
    assert whole.tolist() == right.tolist()


@settings(max_examples=40)
@given(st.data())
def test_eager_steps_are_numpy_s_sums(data):
    rows, columns = data.draw(st.integers(0, 9)), data.draw(st.integers(1, 20))
    a = data.draw(nps.arrays(np.int32, (rows, columns), elements=st.integers(-(2**30), 2**30)))
    b = data.draw(nps.arrays(np.int32, st.sampled_from([(rows, columns), (columns,)]), elements=st.integers(-9, 9)))
    assert np.array_equal(tw.eager.add(a, b), a + b)
    assert np.array_equal(tw.eager.transpose(a, [1, 0]), a.T)


# Plans -----------------------------------------------------------------------------------------------------------------


@functools.cache
def product():
    w = np.random.default_rng(0).integers(-128, 128, (12, 5), np.int8)
    pipe = tw.Pipeline("product")
    acc = tw.ops.gemm(pipe.input("x", "u8", ("M", 12)), w, a_zero_point=np.uint8(9))
    pipe.output("acc", acc)
    pipe.output("y", tw.ops.requantize(acc, multiplier=0.01, zero_point=100, dtype="u8"))
    executors = [
        tw.executor("reference"),
        tw.SingleThreadExecutor(),
        tw.TilingExecutor(1),
        tw.TilingExecutor(3, fuse=False, chain=False),
        tw.TilingExecutor(2, tile={"gemm_u8s8s32": {"m": 16}}),
    ]
    return w, [executor.compile(pipe) for executor in executors]


@settings(max_examples=50)
@given(st.data())
def test_a_plan_takes_any_view_on_any_executor(data):
    """Rows and columns that are apart, backwards or shared, arrays of the caller's or fresh ones: the same numbers."""
    w, plans = product()
    rows = data.draw(st.integers(0, 40), label="rows")
    row_step, column_step = data.draw(st.sampled_from([-3, -1, 1, 2])), data.draw(st.sampled_from([-2, -1, 1, 3]))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    base = rng.integers(0, 256, (max(rows, 1) * abs(row_step), 12 * abs(column_step)), np.uint8)
    x = base[::row_step, ::column_step][:rows]
    if rows and data.draw(st.booleans(), label="one row for all"):
        x = np.broadcast_to(x[0], x.shape)
    if data.draw(st.booleans(), label="read-only"):
        x = x.view()
        x.flags.writeable = False
    kept = x.copy()
    acc = (x.astype(np.int64) - 9) @ w.astype(np.int64)
    codes = np.clip(np.rint(acc.astype(np.float32) * np.float32(0.01)) + 100, 0, 255)
    plan = plans[data.draw(st.integers(0, len(plans) - 1), label="executor")]
    step = data.draw(st.sampled_from([-2, -1, 1, 2]), label="step of the output")
    given_out = data.draw(st.booleans(), label="out")
    out = {"y": np.full((max(rows, 1) * 2, 5), 0x5A, np.uint8)[::step][:rows]} if given_out else None
    found = plan.run({"x": x}, out=out)
    assert found["acc"].tolist() == acc.tolist()
    assert found["y"].tolist() == codes.tolist()
    assert not given_out or out["y"].tolist() == codes.tolist()
    assert x.tolist() == kept.tolist()


@functools.cache
def counting():
    pipe = tw.Pipeline("sums")
    x = pipe.input("x", "s32", (4,))
    kept = pipe.state("kept", "s32", (4,), 3)
    total = tw.ops.add(x, kept)
    pipe.update(kept, total)
    pipe.output("y", total)
    return [e.compile(pipe) for e in (tw.SingleThreadExecutor("reference"), tw.TilingExecutor(2))]


@settings(max_examples=40)
@given(
    st.lists(st.lists(st.integers(-1000, 1000), min_size=4, max_size=4), max_size=6), st.integers(0, 6), st.booleans()
)
def test_states_go_on_however_runs_are_divided(rows, cut, owned):
    """One text after another in one state, or in a state that is copied in the middle: the same sums."""
    for plan in counting():
        state = tw.OwnedState() if owned else {}
        total = np.full(4, 3, np.int32)
        for n, row in enumerate(rows):
            if n == cut:
                state = type(state)({name: array.copy() for name, array in state.items()})
            x = np.array(row, np.int32)
            total = total + x
            assert plan.run({"x": x}, state=state)["y"].tolist() == total.tolist()


@functools.cache
def doubled():
    pipe = tw.Pipeline("doubled")
    pipe.output("y", tw.ops.mul(pipe.input("x", "s32", ("N", 3)), 2))
    return pipe


@settings(max_examples=25)
@given(st.lists(st.integers(0, 9), max_size=5), st.integers(1, 7), st.integers(1, 3))
def test_a_stream_does_not_depend_on_its_batches(sizes, rows, ahead):
    batches = [{"x": np.arange(n * 3, dtype=np.int32).reshape(n, 3) + n} for n in sizes]
    stream = tw.Stream(tw.SingleThreadExecutor("reference"), doubled(), rows=rows, ahead=ahead)
    found = [{name: np.copy(array) for name, array in result.items()} for result in stream.run(batches)]
    joined = np.concatenate([r["y"] for r in found]) if found else np.zeros((0, 3), np.int32)
    right = np.concatenate([b["x"] * 2 for b in batches]) if batches else np.zeros((0, 3), np.int32)
    assert joined.tolist() == right.tolist()


# Schemes ---------------------------------------------------------------------------------------------------------------


@settings(max_examples=15)
@given(st.data())
def test_quantized_tensors_are_cut_joined_and_multiplied_alike(data):
    """Parts are those of the whole, joined parts are the whole, on two executors bit for bit."""
    scheme = tw.schemes.get(data.draw(st.sampled_from(["int4_g32", "nf4", "int8_channel"]), label="scheme"))
    rows, columns = data.draw(st.integers(1, 6)), data.draw(st.sampled_from([32, 64, 96, 128]))
    w = data.draw(nps.arrays(np.float32, (rows, columns), elements=REALS))
    q, exact = scheme.quantize(w), scheme.quantize(w, executor=tw.SingleThreadExecutor("reference"))
    real = q.dequantize()
    assert q.codes.tobytes() == exact.codes.tobytes()
    assert real.tobytes() == exact.dequantize().tobytes()
    assert np.isfinite(real).all()
    cut = data.draw(st.integers(0, rows), label="cut")
    parts = [q[:cut], q[cut:]]
    assert np.concatenate([p.dequantize() for p in parts]).tobytes() == real.tobytes()
    assert tw.schemes.concatenate(parts).dequantize().tobytes() == real.tobytes()
    x = np.eye(columns, dtype=np.float32)[:3]
    assert q.matmul(x, "f32").tolist() == real.T[:3].tolist()


# Statistics ------------------------------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(nps.arrays(np.float32, st.integers(1, 60), elements=REALS), st.integers(0, 60), st.integers(0, 60))
def test_statistics_do_not_depend_on_how_data_is_cut(x, first, second):
    first, second = sorted((min(first, x.size), min(second, x.size)))
    whole, pieces = tw.fitting.MinMax(), tw.fitting.MinMax()
    whole.update(x)
    for part in (x[:first], x[first:second], x[second:]):
        if part.size:
            pieces.update(part)
    assert (whole.low, whole.high, whole.count) == (pieces.low, pieces.high, pieces.count)
    rotation = tw.fitting.hadamard(4)
    y = x[: x.size // 4 * 4].reshape(-1, 4)
    back = tw.fitting.rotate(tw.fitting.rotate(y, rotation), rotation.T)
    assert np.allclose(back, y, atol=1e-3)
