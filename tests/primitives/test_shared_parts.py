"""What primitives share: nothing of it can be changed by those who hold it, and small rules at their edges."""

import dataclasses
import importlib
import pkgutil

import numpy as np
import pytest

import tilework as tw
from tilework import primitives
from tilework.primitives import dlpack
from tilework.primitives.arena import Arena, BufferId
from tilework.primitives.errors import (
    BufferAccessError,
    DTypeMismatch,
    LayoutError,
    QuantizationError,
    ShapeMismatch,
    TileworkError,
)
from tilework.primitives.kernel import ArgSpec
from tilework.primitives.layout import LayoutSpec

OPEN = {"Value", "Step"}  # a pipeline adds to them while it is built


def test_all_but_values_and_steps_is_frozen():
    seen = set()
    for found in pkgutil.iter_modules(primitives.__path__, f"{primitives.__name__}."):
        module = importlib.import_module(found.name)
        for name, made in vars(module).items():
            if dataclasses.is_dataclass(made) and made.__module__ == module.__name__:
                assert made.__dataclass_params__.frozen == (name not in OPEN), name
                seen.add(name)
    assert seen >= OPEN | {"ArgSpec", "Axis", "Affine", "DType", "Edge", "IndexSpace", "LayoutSpec"}


def test_devices_of_dlpack_are_those_of_the_standard():
    assert {1, 3, 11} == set(dlpack._HOST)  # kDLCPU, kDLCUDAHost, kDLROCMHost
    assert dlpack._CUDA == (2, 13)  # kDLCUDA, kDLCUDAManaged


def test_a_buffer_that_an_arena_has_not_is_nowhere():
    arena = Arena([(8, 0, 1, 64), (8, 0, 1, 64)])
    assert {arena.offset(BufferId(n)) for n in range(2)} == {0, 64}
    for n in (-1, 2):
        with pytest.raises(TileworkError):
            arena.offset(BufferId(n))


def test_a_cut_of_parameters_is_checked_against_the_tensor_s_shape():
    params = tw.QuantParams(np.ones((4, 2), np.float32), 0, "s8", (0, 1), (1, 32))
    assert params.sliced(0, 1, 3, (4, 64)).scale.shape == (2, 2)
    with pytest.raises(QuantizationError):
        params.sliced(0, 1, 3, (4, 200))
    with pytest.raises(QuantizationError):
        tw.QuantParams(np.ones(3, np.float32), 0, "s8", 0).sliced(1, 0, 1, (4, 4))


def test_a_dimension_of_a_block_is_that_of_its_axis():
    layout = LayoutSpec((64, 32), blocks=((0, 16), (1, 4)))
    assert [layout._axis_of(n) for n in range(4)] == [0, 1, 0, 1]


class Applies:
    """A kernel that takes a function."""

    name = "applies"

    def signature(self):
        return ArgSpec("x", "f32", shape=("N",)), ArgSpec("f", "function"), ArgSpec("y", "f32", "write", shape=("N",))

    def execute(self, ctx):
        ctx.write("y")[...] = ctx.read("f")(ctx.read("x"))


def test_a_function_is_given_to_a_pipeline_that_is_called():
    inner = tw.Pipeline("inner")
    inner.output("y", inner.add(Applies(), x=inner.input("x", "f32", ("N",)), f=inner.argument("f", "function")))
    for given, works in ((np.negative, True), (3.0, False)):
        outer = tw.Pipeline("outer")
        x = outer.input("x", "f32", (3,))
        if not works:
            with pytest.raises(DTypeMismatch):
                outer.call(inner, x=x, f=given)
            continue
        found = outer.call(inner, x=x, f=given)
        outer.output("y", found["y"] if isinstance(found, dict) else found)
        y = tw.SingleThreadExecutor("reference").run(outer, {"x": np.arange(3, dtype=np.float32)})["y"]
        assert y.tolist() == [0, -1, -2]


def test_numpy_gets_other_types_and_packed_elements_only_as_copies():
    whole = tw.Buffer.from_array(np.arange(6, dtype=np.int16))
    assert np.shares_memory(np.asarray(whole), whole.view())
    assert whole.__array__(np.float64).tolist() == [0, 1, 2, 3, 4, 5]
    assert whole.__array__(np.int16, copy=False).dtype == np.int16
    assert not np.shares_memory(whole.__array__(copy=True), whole.view())
    with pytest.raises(BufferAccessError, match="is no float64 without a copy"):
        whole.__array__(np.float64, copy=False)
    packed = tw.Buffer.empty((2, 6), "u4")
    assert packed.__array__().shape == (2, 6)
    with pytest.raises(BufferAccessError, match="has no array of elements without a copy"):
        packed.__array__(copy=False)


class Rows:
    """A kernel that says in which order its axes are."""

    name = "rows"

    def signature(self):
        return ArgSpec("x", "f32", shape=("A", "B"), axes="AB"), ArgSpec("y", "f32", "write", shape=("A", "B"))

    def execute(self, ctx):
        ctx.write("y")[...] = ctx.read("x")


def test_axes_in_another_order_are_refused_and_unnamed_ones_are_taken():
    pipe = tw.Pipeline("p")
    for name, axes in (("same", "AB"), ("none", None)):
        pipe.add(Rows(), x=pipe.input(name, "f32", (2, 2), axes=axes))
    with pytest.raises(LayoutError, match="takes axes AB, but 'other' is BA; transpose it to AB"):
        pipe.add(Rows(), x=pipe.input("other", "f32", (2, 2), axes="BA"))


@pytest.mark.parametrize(
    ("axis", "shape", "to"), [(0, (3, 1), (2, 3, 4)), (-1, (1, 3), (5, 2, 3)), (1, (1, 3), (4, 3))]
)
def test_channels_keep_their_scales_where_a_buffer_is_broadcast(axis, shape, to):
    scales = np.array([1, 2, 4], np.float32)
    buffer = tw.Buffer.from_array(np.ones(shape, np.int8), quant=tw.QuantParams(scales, 0, "s8", axis))
    wide = buffer.broadcast_to(to)
    found = wide.quant.axis % len(to)
    assert to[found] == 3
    assert found - len(to) == axis % len(shape) - len(shape)


def test_lists_of_different_lengths_are_no_array():
    with pytest.raises(ShapeMismatch, match="is no array"):
        tw.Pipeline("p").constant("c", [[1, 2], [3]])


class Scratches:
    """Takes memory several times, of sizes that are no multiple of a line."""

    name = "scratches"

    def signature(self):
        return ArgSpec("x", "f32", shape=("N",)), ArgSpec("y", "f32", "write", shape=("N",))

    def execute(self, ctx):
        taken = [ctx.scratch(n) for n in (1, 63, 64, 65, 200, 1)]
        assert [t.size for t in taken] == [1, 63, 64, 65, 200, 1]
        assert not any(t.ctypes.data % 64 for t in taken)
        for n, t in enumerate(taken):
            t[:] = n
        assert [set(t.tolist()) for t in taken] == [{n} for n in range(len(taken))]
        ctx.write("y")[...] = ctx.read("x")


@pytest.mark.parametrize("executor", [tw.SingleThreadExecutor("reference"), tw.TilingExecutor(1)], ids=repr)
def test_scratch_begins_on_lines_and_is_nobody_else_s(executor):
    pipe = tw.Pipeline("p")
    x = pipe.input("x", "f32", (3,))
    pipe.output("y", pipe.add(Scratches(), x=pipe.add(Scratches(), x=x)))
    for _ in range(2):
        assert executor.run(pipe, {"x": np.ones(3, np.float32)})["y"].tolist() == [1, 1, 1]


SPELLED = {
    "f4e2m1fn": "e2m1 fp4 f4e2m1 fp4_e2m1 fp4_e2m1fn f4_e2m1fn float4_e2m1fn fp4e2m1fn",
    "f6e2m3fn": "e2m3 f6e2m3 fp6_e2m3 fp6_e2m3fn float6_e2m3fn",
    "f6e3m2fn": "e3m2 f6e3m2 fp6_e3m2 fp6_e3m2fn float6_e3m2fn",
    "f8e4m3fn": "e4m3 fp8 fp8_e4m3 fp8e4m3 float8_e4m3fn",
    "e8m0fnu": "e8m0 f8e8m0 f8e8m0fnu float8_e8m0fnu",
    "f16": "half float16 f2 fp16",
    "f32": "float32 f4 fp32",
    "f64": "double float64 fp64",
    "bf16": "bfloat16",
}


@pytest.mark.parametrize("name", SPELLED)
def test_types_are_known_by_every_usual_spelling(name):
    for spelled in SPELLED[name].split():
        assert tw.dtypes.get(spelled).name == name, spelled


class Anything:
    """A kernel over any number of leading axes."""

    name = "anything"

    def signature(self):
        return ArgSpec("x", "f32", shape=("...", "N")), ArgSpec("y", "f32", "write", shape=("N", "..."))

    def execute(self, ctx):
        ctx.write("y")[...] = np.moveaxis(ctx.read("x"), -1, 0)


@pytest.mark.parametrize("shape", [(4,), (3, 4), (2, 3, 4)])
def test_leading_axes_of_any_number_are_those_of_the_output(shape):
    pipe = tw.Pipeline("p")
    y = pipe.add(Anything(), x=pipe.input("x", "f32", shape))
    assert y.shape == (shape[-1], *shape[:-1])
    pipe.output("y", y)
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    found = tw.SingleThreadExecutor("reference").run(pipe, {"x": x})["y"]
    assert np.array_equal(found, np.moveaxis(x, -1, 0))
