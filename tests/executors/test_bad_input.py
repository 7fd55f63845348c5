"""Bad input: an error of the library's own type that says what was asked, found and would work, before a kernel runs."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import tilework as tw
from tilework.kernels import ops
from tilework.primitives.buffer import Buffer
from tilework.primitives.errors import (
    AliasError,
    ArgumentError,
    BufferAccessError,
    DTypeMismatch,
    PipelineError,
    QuantizationError,
    ShapeMismatch,
    SizeError,
    TileworkError,
)
from tilework.primitives.pipeline import Pipeline
from tilework.primitives.quantization import QuantParams

X = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.fixture
def ran():
    """The steps that ran."""
    return []


@pytest.fixture
def pipe(ran, python_kernel):
    """A step that notes that it ran, and a product with sizes known only at run time."""

    def note(ctx):
        ran.append("note")
        ctx.write("y")[...] = ctx.read("x")

    pipe = Pipeline("p")
    x = pipe.input("x", "f32", ("M", "K"))
    x = pipe.add(python_kernel("note", note, shape=("M", "N"), x="f32", y="write f32"), x=x)
    pipe.output("y", ops.gemm(x, pipe.input("w", "f32", ("K", "N"))))
    return pipe


def unaligned(x):
    block = np.zeros(x.nbytes + 1, np.uint8)
    view = block[1:].view(x.dtype).reshape(x.shape)
    view[...] = x
    return view


def frozen(x):
    x = x.copy()
    x.flags.writeable = False
    return x


W = np.ones((4, 5), np.float32)
INPUTS = {
    "another type": ({"x": X.astype(np.float64)}, DTypeMismatch, "input 'x' is f32, but f64 was given; cast it"),
    "an integer type": ({"x": X.astype(np.uint8)}, DTypeMismatch, "input 'x' is f32, but u8 was given"),
    "the other byte order": ({"x": X.astype(">f4")}, DTypeMismatch, "byte order"),
    "objects": ({"x": X.astype(object)}, DTypeMismatch, "object"),
    "complex numbers": ({"x": X.astype(np.complex64)}, DTypeMismatch, "complex"),
    "text": ({"x": "hello"}, TileworkError, "'x'|text|type"),
    "nothing": ({"x": None}, TileworkError, "'x'|object"),
    "a list of floats": ({"x": X.tolist()}, DTypeMismatch, "f64 was given"),
    "a ragged list": ({"x": [[1.0], [2.0, 3.0]]}, ArgumentError, "input 'x': list .* is no array"),
    "a buffer of another type": ({"x": Buffer.from_array(X.astype(np.int32))}, DTypeMismatch, "a buffer of s32"),
    "a pipeline's value": ({"x": Pipeline("q").input("x", "f32", (3, 4))}, PipelineError, "a value of a pipeline"),
    "another rank": ({"x": X[0]}, ShapeMismatch, r"input 'x' has rank 1, shape \(4,\); 2 sizes \(\(M, K\)\)"),
    "a number": ({"x": np.float32(1)}, TileworkError, "rank 0"),
    "inner sizes that differ": (
        {"x": X[:, :3].copy()},
        ShapeMismatch,
        r"input 'w' has shape \(4, 5\): axis 0 is 4, but K",
    ),
    "unaligned elements": ({"x": unaligned(X)}, BufferAccessError, "elements of 4 bytes lie at multiples of that"),
    "a missing input": ({"w": ...}, ArgumentError, r"missing input: w \(f32 \(K, N\)\)"),
    "an unknown input": ({"z": X}, ArgumentError, "there is no input 'z'; there is x, w"),
}


@pytest.mark.parametrize(("change", "error", "says"), INPUTS.values(), ids=INPUTS)
def test_bad_inputs_are_refused_before_a_kernel_runs(executor, pipe, ran, change, error, says):
    feed = {name: given for name, given in {"x": X, "w": W, **change}.items() if given is not ...}
    plan = executor.compile(pipe)
    plan.run({"x": X, "w": W})  # the second run may go another way than the first
    ran.clear()
    for call in (lambda: plan.run(feed), lambda: executor.run(pipe, feed), lambda: plan.bind(feed)):
        with pytest.raises(error, match=says):
            call()
    assert ran == []
    assert_array_equal(plan.run({"x": X, "w": W})["y"], X @ W)


BLOCK = np.zeros((9, 10), np.float32)
OUTPUTS = {
    "another type": (np.zeros((3, 5)), DTypeMismatch, r"out\['y'\] is float64, but the output is f32"),
    "another shape": (np.zeros((5, 3), np.float32), ShapeMismatch, r"has shape \(5, 3\), but the output has \(3, 5\)"),
    "another rank": (np.zeros(15, np.float32), ShapeMismatch, r"has shape \(15,\)"),
    "read-only": (frozen(np.zeros((3, 5), np.float32)), BufferAccessError, "is read-only; give a writable array"),
    "a read-only buffer": (Buffer.from_array(np.zeros((3, 5), np.float32), readonly=True), TileworkError, "read-only"),
    "no array": ([[0.0] * 5] * 3, ArgumentError, "is list; a NumPy array or a Buffer is needed"),
    "overlapping itself": (np.lib.stride_tricks.as_strided(BLOCK, (3, 5), (4, 4)), AliasError, "overlaps itself"),
    "broadcast": (np.lib.stride_tricks.as_strided(BLOCK, (3, 5), (0, 4)), AliasError, "overlaps itself"),
    "unaligned": (unaligned(np.zeros((3, 5), np.float32)), BufferAccessError, "lie at multiples"),
    "the other byte order": (np.zeros((3, 5), ">f4"), DTypeMismatch, "is >f4"),
}


@pytest.mark.parametrize(("out", "error", "says"), OUTPUTS.values(), ids=OUTPUTS)
def test_bad_outputs_are_refused_before_a_kernel_runs(executor, pipe, ran, out, error, says):
    plan, feed = executor.compile(pipe), {"x": X, "w": W}
    plan.run(feed)
    ran.clear()
    for call in (lambda: plan.run(feed, out={"y": out}), lambda: plan.bind(feed, out={"y": out})):
        with pytest.raises(error, match=says):
            call()
    with pytest.raises(ArgumentError, match="there is no output 'z'"):
        plan.run(feed, out={"z": np.zeros((3, 5), np.float32)})
    assert ran == []


@pytest.mark.parametrize("fast", [False, True])
def test_overlap_of_inputs_and_outputs_is_refused(executor, fast, unary):
    pipe = Pipeline("p")
    x, z = pipe.input("x", "f32", (4, 4)), pipe.input("y", "f32", (4, 4))
    x = x if fast else pipe.add(unary_of_rank_2(unary), x=x)
    acc = ops.gemm(x, z)
    pipe.output("y", acc)
    pipe.output("z", ops.relu(acc))
    plan = executor.compile(pipe)
    block = np.arange(64, dtype=np.float32).reshape(8, 8)
    a, b = block[:4, :4], block[4:, 4:]
    before = block.copy()
    clean = {"x": a.copy(), "y": b.copy()}
    plan.run(clean)
    for feed, out, says in (
        ({"x": a, "y": b}, {"y": block[2:6, 2:6]}, "overlaps input"),
        ({"x": a, "y": b}, {"y": block[:4, :4]}, "overlaps input 'x'"),
        ({"x": a, "y": b}, {"z": block[4:, 4:]}, "overlaps input 'y'"),
        (clean, {"y": block[:4, :4], "z": block[3:7, 3:7]}, r"out\['z'\] overlaps output 'y'"),
        (clean, {"y": clean["x"]}, "overlaps input 'x'"),
        (clean, {"z": clean["y"]}, "overlaps input 'y'"),
        (clean, {"y": clean["y"][::-1]}, "overlaps input 'y'"),
    ):
        with pytest.raises(AliasError, match=says):
            plan.run(feed, out=out)
    assert_array_equal(block, before)
    found = plan.run({"x": a, "y": b}, out={"y": block[:4, 4:], "z": block[4:, :4]})  # beside each other is no overlap
    assert_array_equal(found["y"], a @ b)


def unary_of_rank_2(unary):
    from dataclasses import replace

    kernel = unary("copy", lambda v: v)
    return replace(kernel, specs=tuple(replace(spec, shape=("M", "N")) for spec in kernel.specs))


def with_inputs(*shapes, dtype="f32"):
    pipe = Pipeline("p")
    return pipe, *(pipe.input(f"x{n}", dtype, shape) for n, shape in enumerate(shapes))


def test_contradicting_sizes_are_named(executor):
    pipe, a, b = with_inputs(("M", "2*M"), ("M + 1",))
    pipe.output("a", ops.relu(a))
    pipe.output("b", ops.relu(b))
    plan = executor.compile(pipe)
    z = np.zeros
    plan.run({"x0": z((3, 6), "f4"), "x1": z(4, "f4")})
    for x0, x1, says in (
        ((3, 7), 4, r"input 'x0' has shape \(3, 7\): axis 1 is 7, but 2\*M is asked for, which is 6 with M = 3"),
        ((3, 6), 5, r"input 'x1' has shape \(5,\): axis 0 is 5, but M \+ 1 is asked for, which is 4 with M = 3"),
    ):
        with pytest.raises(ShapeMismatch, match=says):
            plan.run({"x0": z(x0, "f4"), "x1": z(x1, "f4")})


def test_sizes_are_learnt_whatever_the_order_of_the_inputs(executor):
    pipe, a, b, c, d = with_inputs(("A + B",), ("B + C",), ("C + D",), ("D",))
    for n, x in enumerate((a, b, c, d)):
        pipe.output(f"y{n}", ops.relu(x))
    given = {f"x{n}": np.zeros(size, np.float32) for n, size in enumerate((7, 6, 5, 3))}
    assert executor.run(pipe, given)["y0"].shape == (7,)
    plan = executor.compile(pipe)
    with pytest.raises(ShapeMismatch, match="no size 'C' gives that"):
        plan.run({**given, "x2": np.zeros(2, np.float32)})


def test_sizes_that_no_input_tells_are_named(executor):
    pipe, a = with_inputs(("M*N",))
    pipe.output("y", ops.relu(a))
    with pytest.raises(SizeError, match="sizes M, N cannot be told from the inputs' shapes"):
        executor.run(pipe, {"x0": np.zeros(6, np.float32)})


SCALES = {
    "zero": 0.0, "negative": -1.0, "NaN": np.nan, "infinite": np.inf, "too small for float32": 1e-60,
    "one of several": np.array([1, 0, 1, 1], np.float32),
}  # fmt: skip


@pytest.mark.parametrize("scale", SCALES.values(), ids=SCALES)
@pytest.mark.parametrize("op", ["quantize", "dequantize", "params"])
def test_a_scale_is_finite_and_positive(scale, op):
    _, x = with_inputs((3, 4), dtype="u8" if op == "dequantize" else "f32")
    make = {
        "quantize": lambda: ops.quantize(x, scale=scale),
        "dequantize": lambda: ops.dequantize(x, scale=scale),
        "params": lambda: QuantParams(scale, axis=1 if np.ndim(scale) else None),
    }[op]
    with pytest.raises(QuantizationError, match="a scale is finite and greater than 0"):
        make()


@pytest.mark.parametrize("scale", [0.0, -1.0, np.nan, np.inf])
def test_a_scale_that_comes_at_run_time_is_checked_too(executor, scale):
    pipe, x = with_inputs(("M", 4))
    s = pipe.argument("s", "f32")
    pipe.output("y", ops.quantize(x, scale=s))
    plan = executor.compile(pipe)
    right = plan.run({"x0": X, "s": 0.5})["y"]
    with pytest.raises(QuantizationError, match=r"zero, negative, NaN or infinite|is not finite and positive"):
        plan.run({"x0": X, "s": scale})
    assert_array_equal(plan.run({"x0": X, "s": 0.5})["y"], right)


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda x: ops.quantize(x, scale=np.ones(3, np.float32)), ShapeMismatch),
        (lambda x: ops.quantize(x, scale=np.ones(5, np.float32), axis=1), TileworkError),
        (lambda x: ops.quantize(x, scale=np.ones(4, np.float32), axis=2), TileworkError),
        (lambda x: ops.quantize(x, scale=np.ones(4, np.float32), axis=-3), TileworkError),
        (lambda x: ops.quantize(x, scale=0.5, zero_point=256), TileworkError),
        (lambda x: ops.quantize(x, scale=0.5, zero_point=-1), TileworkError),
        (lambda x: ops.quantize(x, scale=0.5, zero_point=128, dtype="s8"), TileworkError),
        (lambda x: ops.quantize(x, scale=0.5, zero_point=1.5), TileworkError),
        (lambda x: ops.argmax(x, axis=2), ArgumentError),
        (lambda x: ops.argmax(x, axis=-3), ArgumentError),
        (lambda x: ops.clip(x, lo=2, hi=1), ArgumentError),
        (lambda x: ops.gemm(x, np.ones((3, 4), np.float32)), ShapeMismatch),
        (lambda x: ops.gemm(x, np.ones((4, 4), np.int8)), DTypeMismatch),
        (lambda x: ops.gemm(x, np.ones(4, np.float32)), ShapeMismatch),
        (lambda x: ops.add(x, np.ones(3, np.float32)), ShapeMismatch),
        (lambda x: ops.requantize(x, multiplier=0.5), DTypeMismatch),
        (lambda x: ops.dequantize(x, scale=0.5), TileworkError),
        (lambda x: ops.relu(x, zero_point=np.ones(7, np.float32)), TileworkError),
        (lambda x: ops.quantize(x, scale=1j), TileworkError),
        (lambda x: ops.quantize(x, scale=[0.5, None]), TileworkError),
        (lambda x: ops.quantize(x, scale="half"), TileworkError),
        (lambda x: ops.gemm(x, np.ones((4, 4), ">f4")), TileworkError),
        (lambda x: ops.gemm(x, np.ones((4, 4), object)), TileworkError),
        (lambda x: ops.gemm(x, np.ones((4, 4), complex)), TileworkError),
        (lambda x: ops.relu(3), TileworkError),
        (lambda x: ops.gemm(x, Pipeline("q").input("w", "f32", (4, 4))), PipelineError),
    ],
)
def test_an_op_refuses_what_does_not_fit_and_leaves_the_pipeline_as_it_was(make, error):
    pipe, x = with_inputs((3, 4))
    steps = len(pipe.steps)
    with pytest.raises(error):
        make(x)
    assert len(pipe.steps) == steps


@pytest.mark.parametrize(("m", "k", "n"), [(0, 4, 5), (3, 0, 5), (3, 4, 0), (0, 0, 0), (1, 1, 1)])
def test_sizes_of_zero_work(executor, m, k, n):
    pipe = Pipeline("p")
    x, w = pipe.input("x", "u8", ("M", "K")), pipe.input("w", "s8", ("K", "N"))
    acc = ops.gemm(x, w, a_zero_point=3)
    pipe.output("acc", acc)
    pipe.output("y", ops.requantize(acc, multiplier=0.5, zero_point=9, dtype="u8"))
    pipe.output("f", ops.relu(ops.dequantize(acc, scale=0.5)))
    a, b = np.full((m, k), 5, np.uint8), np.full((k, n), 2, np.int8)
    found = executor.run(pipe, {"x": a, "w": b})
    assert_array_equal(found["acc"], np.full((m, n), 4 * k, np.int32), strict=True)
    assert_array_equal(found["y"], np.full((m, n), 9 + 2 * k, np.uint8), strict=True)
    assert_array_equal(found["f"], np.full((m, n), 2 * k, np.float32), strict=True)


def test_every_error_is_the_library_s_and_a_built_in_one():
    from tilework.primitives import errors

    for name, error in vars(errors).items():
        if isinstance(error, type) and error is not TileworkError:
            assert issubclass(error, TileworkError), name
            assert len(error.__mro__) > 4, name  # itself, TileworkError, a built-in error, Exception, ...


@pytest.mark.parametrize("threads", [0, -1, 1.5, "2", True])
def test_a_number_of_threads_is_a_positive_integer(threads):
    from tilework.executors import TilingExecutor

    with pytest.raises(ArgumentError, match="a positive integer is needed"):
        TilingExecutor(threads=threads)


def test_quantization_of_other_codes_than_the_value_holds_is_refused():
    pipe = tw.Pipeline("quant")
    with pytest.raises(tw.errors.QuantizationError, match="'x' is u8, but its quantization is of s8 codes"):
        pipe.input("x", "u8", ("M", 4), quant=tw.QuantParams(0.1, 5, "s8"))
    with pytest.raises(tw.errors.QuantizationError, match="a QuantParams is needed"):
        pipe.input("x", "u8", ("M", 4), quant=5)
    pipe.input("codes", "u8", ("M", 4), quant=tw.QuantParams(0.1, 5, "u4"))


@pytest.mark.parametrize("executor", [tw.SingleThreadExecutor(), tw.TilingExecutor(1)], ids=["single", "tiled"])
def test_an_unknown_output_is_named_with_those_that_there_are(executor):
    pipe = tw.Pipeline("out")
    pipe.output("y", tw.ops.relu(pipe.input("x", "f32", ("M", 4))))
    plan = executor.compile(pipe)
    x = np.zeros((2, 4), np.float32)
    with pytest.raises(tw.errors.ArgumentError, match="no output 'z'; there is y"):
        plan.run({"x": x}, out={"z": x.copy()})
    with pytest.raises(tw.errors.ArgumentError, match="inputs is ndarray; a dictionary"):
        plan.run(x)


def layer():
    """A product and its requantization, which are fused: u8 (M, 16) to u8 (M, 8)."""
    pipe = Pipeline("layer")
    w = pipe.constant("w", np.arange(-64, 64, dtype=np.int8).reshape(16, 8))
    acc = ops.gemm(pipe.input("x", "u8", ("M", 16)), w)
    pipe.output("y", ops.requantize(acc, multiplier=np.float32(0.01), dtype="u8"))
    return pipe


FEED = {"x": np.arange(48, dtype=np.uint8).reshape(3, 16)}


def test_a_tap_names_a_value_by_its_slot_and_may_be_a_constant_or_an_input():
    plan = tw.TilingExecutor(threads=1).compile(layer())
    found = plan.run(FEED, tap=["acc", "w", "x"])
    w = np.arange(-64, 64, dtype=np.int8).reshape(16, 8)
    assert_array_equal(found["acc"], FEED["x"].astype(np.int32) @ w.astype(np.int32), strict=True)
    assert_array_equal(found["w"], w, strict=True)
    assert_array_equal(found["x"], FEED["x"], strict=True)
    with pytest.raises(ArgumentError, match=r"no value 'accu' to tap; the steps write gemm_u8s8s32.acc, requantize"):
        plan.run(FEED, tap=["accu"])


@pytest.mark.parametrize(
    "tile", [5, {"gemm_u8s8s32": 1}, {3: {"m": 4}}, {"gemm_u8s8s32": {"m": "x"}}, {"gemm_u8s8s32": {"m": 2.5}}]
)
def test_tile_is_a_dictionary_of_steps_and_axes(tile):
    with pytest.raises(ArgumentError, match="tile="):
        tw.TilingExecutor(tile=tile)


def test_a_class_is_no_kernel():
    with pytest.raises(PipelineError, match=r"Gemm is a class, not a kernel; give an instance"):
        layer().add(type(layer().steps[0].kernel))


@pytest.mark.parametrize("shape", [None, 5, "M", (1,) * 65])
def test_a_shape_is_a_tuple_of_sizes(shape):
    with pytest.raises(ShapeMismatch, match="input 'x' has"):
        Pipeline().input("x", "u8", shape)


def test_more_dimensions_than_a_step_takes_are_refused():
    with pytest.raises(TileworkError, match="rank 33; at most 12 dimensions work"):
        tw.eager.relu(np.ones((1,) * 33, np.float32))


@pytest.mark.parametrize("slot", ["a_zero_point", "b_zero_point"])
def test_zero_points_of_the_wrong_number_are_refused_even_where_all_are_zero(slot):
    pipe = Pipeline()
    x, w = pipe.input("x", "u8", (4, 16)), np.ones((16, 8), np.int8)
    with pytest.raises(ShapeMismatch, match=f"{slot} has shape"):
        ops.gemm(x, w, **{slot: np.zeros(5, np.uint8 if slot[0] == "a" else np.int8)})


@pytest.mark.parametrize("executor", [tw.TilingExecutor(threads=1), tw.SingleThreadExecutor()], ids=["tiled", "single"])
def test_an_output_may_be_memory_of_another_library(executor):
    class Tensor:
        """NumPy's memory, seen by DLPack only."""

        def __init__(self, array):
            self.array = array
            self.__dlpack__, self.__dlpack_device__ = array.__dlpack__, array.__dlpack_device__

    y = np.zeros((3, 8), np.uint8)
    executor.run(layer(), FEED, out={"y": Tensor(y)})
    assert_array_equal(y, executor.run(layer(), FEED)["y"], strict=True)
    with pytest.raises(ArgumentError, match=r"out\['y'\] is list; a NumPy array or a Buffer is needed"):
        executor.run(layer(), FEED, out={"y": [1]})
