"""What every executor does alike: runs, states, failures, memory; and the debugging baseline's own checks."""

import ctypes
import itertools
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import MappingProxyType

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from tilework.executors import SingleThreadExecutor, TilingExecutor
from tilework.kernels import factory, ops
from tilework.primitives.buffer import Buffer
from tilework.primitives.errors import (
    ArgumentError,
    DTypeMismatch,
    GuardViolation,
    KernelFailed,
    KernelNotFound,
    PipelineError,
    ShapeMismatch,
    TileworkError,
    UnwrittenRead,
)
from tilework.primitives.kernel import ArgSpec, Axis, IndexSpace
from tilework.primitives.pipeline import Pipeline


def mlp(rng, widths=(12, 9, 5)):
    """Two int8 layers; every step of it is compiled."""
    pipe = Pipeline("mlp")
    x = pipe.input("x", "u8", ("M", widths[0]))
    for n, (k, width) in enumerate(itertools.pairwise(widths)):
        acc = ops.gemm(x, rng.integers(-128, 128, (k, width), np.int8), a_zero_point=7)
        acc = ops.add(acc, rng.integers(-900, 900, width, np.int32))
        x = ops.requantize(acc, multiplier=np.float32(0.004), zero_point=7, dtype="u8")
        pipe.output(f"acc{n}", acc)
    pipe.output("y", x)
    return pipe


@pytest.fixture
def rng():
    return np.random.default_rng(0)


# Runs -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("m", [0, 1, 2, 7, 33])
def test_every_executor_gives_the_bytes_of_the_reference(executor, rng, m):
    pipe = mlp(rng)
    x = rng.integers(0, 256, (m, 12), np.uint8)
    right = SingleThreadExecutor("reference").run(pipe, {"x": x})
    found = executor.run(pipe, {"x": x})
    assert list(found) == ["acc0", "acc1", "y"]
    for name in right:
        assert_array_equal(found[name], right[name], strict=True)
        assert found[name].flags.owndata or found[name].base is not None


def test_a_plan_runs_at_any_size_and_its_outputs_are_fresh(executor, rng):
    pipe = mlp(rng)
    plan = executor.compile(pipe, {"x": (3, 12)})
    reference = SingleThreadExecutor("reference")
    kept = []
    for m in (3, 1, 3, 0, 5, 3):
        x = rng.integers(0, 256, (m, 12), np.uint8)
        kept.append((plan.run({"x": x})["y"], reference.run(pipe, {"x": x})["y"]))
    for found, right in kept:  # only now: no later run may have written into an earlier result
        assert_array_equal(found, right, strict=True)
    for n, (a, _) in enumerate(kept):
        for b, _ in kept[n + 1 :]:
            assert not np.shares_memory(a, b)


def test_results_go_into_the_caller_s_arrays(executor, rng):
    pipe, x = mlp(rng), rng.integers(0, 256, (4, 12), np.uint8)
    right = SingleThreadExecutor("reference").run(pipe, {"x": x})
    plan = executor.compile(pipe)
    y, block = np.zeros((4, 5), np.uint8), np.full((9, 20), 99, np.int32)
    strided = block[1:9:2, 2:20:2]
    found = plan.run({"x": x}, out={"y": y, "acc0": strided})
    assert found["y"] is y
    assert found["acc0"] is strided
    for name in right:
        assert_array_equal(found[name], right[name])
    block[1:9:2, 2:20:2] = 99
    assert (block == 99).all()  # and nothing beside it was written
    buffer = Buffer.empty((4, 5), "u8")
    plan.run({"x": x}, out={"y": buffer})
    assert_array_equal(buffer.numpy(), right["y"])
    wide = Buffer.empty((4, 10), "u8")
    plan.run({"x": x}, out={"y": wide.slice(slice(None), slice(0, 10, 2))})
    assert_array_equal(wide.numpy()[:, ::2], right["y"])


@pytest.mark.parametrize("view", ["reversed", "transposed", "every other", "broadcast", "read-only", "buffer"])
def test_inputs_may_have_any_strides(executor, rng, view):
    pipe, x = mlp(rng), rng.integers(0, 256, (4, 12), np.uint8)
    given = {
        "reversed": lambda: np.ascontiguousarray(x[::-1, ::-1])[::-1, ::-1],
        "transposed": lambda: np.ascontiguousarray(x.T).T,
        "every other": lambda: np.repeat(np.repeat(x, 2, 0), 3, 1)[::2, ::3],
        "broadcast": lambda: np.broadcast_to(x[:1], (4, 12)),
        "read-only": lambda: np.frombuffer(x.tobytes(), np.uint8).reshape(4, 12),
        "buffer": lambda: Buffer.from_array(x),
    }[view]()
    right = SingleThreadExecutor("reference").run(pipe, {"x": np.array(given)})["y"]
    assert_array_equal(executor.run(pipe, {"x": given})["y"], right, strict=True)


def test_a_bound_call_reads_what_its_arrays_hold_then(executor, rng):
    pipe = mlp(rng)
    x, y = rng.integers(0, 256, (4, 12), np.uint8), np.zeros((4, 5), np.uint8)
    call = executor.compile(pipe).bind({"x": x}, out={"y": y})
    reference = SingleThreadExecutor("reference")
    for _ in range(3):
        found = call()
        assert found["y"] is y
        right = reference.run(pipe, {"x": x})
        for name in right:
            assert_array_equal(found[name], right[name])
        x[...] = rng.integers(0, 256, x.shape)


def test_an_output_may_be_an_input_a_constant_or_named_twice(executor, unary, ramp):
    pipe = Pipeline("p")
    x, c = pipe.input("x", "f32", ("N",)), pipe.constant("c", np.ones((2, 2), np.int8))
    y = pipe.add(unary("double", lambda v: v * 2), x=x)
    for name, value in (("same", x), ("c", c), ("y", y), ("again", y), ("x", y)):
        pipe.output(name, value)
    for _ in range(2):
        found = executor.run(pipe, {"x": ramp})
        assert_array_equal(found["same"], ramp)
        assert_array_equal(found["c"], np.ones((2, 2), np.int8), strict=True)
        for name in ("y", "again", "x"):
            assert_array_equal(found[name], ramp * 2)
        arrays = [*found.values(), ramp, c.data]
        assert not any(np.shares_memory(a, b) for n, a in enumerate(arrays) for b in arrays[:n])


def test_arguments_are_numbers_shapes_arrays_and_functions(executor, python_kernel):
    def run(ctx):
        y = ctx.write("y")
        y[...] = ctx.arg("f", callable)(ctx.arg("s", float)) + ctx.arg("n", int) * sum(ctx.arg("shape", tuple))

    kernel = python_kernel("args", run, shape=(), s="f32", n="s32", y="write f32")
    kernel = replace(kernel, specs=(*kernel.specs, ArgSpec("f", "function"), ArgSpec("shape", "shape", shape=("R",))))
    pipe = Pipeline("p")
    given = {name: pipe.argument(name, dtype) for name, dtype in
             (("s", "f32"), ("n", "s32"), ("f", "function"), ("shape", "shape"))}  # fmt: skip
    pipe.output("y", pipe.add(kernel, **given))
    plan = executor.compile(pipe)
    feed = {"s": 0.5, "n": 2, "f": lambda v: v + 1, "shape": (3, 4)}
    assert plan.run(feed)["y"] == 15.5
    assert plan.run({**feed, "s": np.float64(1.5), "n": np.int8(-1), "shape": np.array([1, 2, 3])})["y"] == -3.5
    for wrong, error in (
        ({"s": "half"}, TileworkError),
        ({"n": 0.5}, DTypeMismatch),
        ({"n": 2**40}, DTypeMismatch),
        ({"n": float("nan")}, DTypeMismatch),
        ({"s": 1e300}, DTypeMismatch),
        ({"f": 3}, DTypeMismatch),
        ({"shape": (1.5,)}, DTypeMismatch),
        ({"shape": [[1], [2, 3]]}, ArgumentError),
        ({"s": 1j}, TileworkError),
    ):
        with pytest.raises(error):
            plan.run({**feed, **wrong})


# Kernels ----------------------------------------------------------------------------------------------------------


def test_python_kernels_stand_between_compiled_ones(executor, rng, python_kernel):
    def negate(ctx):
        ctx.write("y")[...] = -ctx.read("x")

    pipe = Pipeline("p")
    x = pipe.input("x", "s8", ("M", 6))
    w = rng.integers(-9, 9, (6, 4), np.int8)
    acc = ops.gemm(x, w)
    acc = pipe.add(python_kernel("negate", negate, shape=("M", "N"), x="s32", y="write s32"), x=acc)
    acc = ops.add(acc, np.arange(4, dtype=np.int32))
    acc = pipe.add(python_kernel("negate", negate, shape=("M", "N"), x="s32", y="write s32"), x=acc)
    pipe.output("y", ops.dequantize(acc, scale=0.5))
    a = rng.integers(-128, 128, (5, 6), np.int8)
    right = np.float32(0.5) * (a.astype(np.int32) @ w.astype(np.int32) - np.arange(4)).astype(np.float32)
    plan = executor.compile(pipe)
    for _ in range(2):
        assert_array_equal(plan.run({"x": a})["y"], right, strict=True)
    if isinstance(executor, TilingExecutor):
        assert plan.explain().count("a Python kernel") >= 2
    else:
        assert "Python kernel" in plan.explain()


def test_one_kernel_and_one_plan_serve_many_threads(executor, rng):
    pipe = mlp(rng)
    plan = executor.compile(pipe)
    reference = SingleThreadExecutor("reference")
    inputs = [rng.integers(0, 256, (m, 12), np.uint8) for m in (1, 2, 3, 4, 5, 6, 7, 8)]
    right = [reference.run(pipe, {"x": x})["y"] for x in inputs]
    barrier = threading.Barrier(8)

    def work(n):
        barrier.wait()
        return [plan.run({"x": inputs[(n + i) % 8]})["y"] for i in range(16)]

    with ThreadPoolExecutor(8) as pool:
        for n, found in enumerate(pool.map(work, range(8))):
            for i, y in enumerate(found):
                assert_array_equal(y, right[(n + i) % 8], strict=True)


def test_a_kernel_that_raises_is_named_and_the_plan_stays_usable(executor, unary, ramp):
    broken = [True]

    def maybe(v):
        if broken[0]:
            raise OSError("the disk is on fire")
        return v + 1

    pipe = Pipeline("p")
    x = pipe.input("x", "f32", ("N",))
    s = pipe.state("s", "f32", (), 5)
    pipe.update(s, ops.add(s, np.float32(1)))
    y = pipe.add(unary("risky", maybe), x=pipe.add(unary("safe", lambda v: v * 2), x=x), step_name="the risky one")
    pipe.output("y", y)
    plan = executor.compile(pipe)
    for _ in range(3):
        with pytest.raises(KernelFailed, match=r"step 'the risky one' \(risky\) failed: OSError: the disk is on fire"):
            plan.run({"x": ramp})
    assert plan.state.get("s", 5) == 5  # a failed run leaves states as they were
    broken[0] = False
    assert_array_equal(plan.run({"x": ramp})["y"], ramp * 2 + 1)
    assert plan.state["s"] == 6


def test_an_error_of_the_library_keeps_its_type_and_names_the_step(executor, python_kernel, ramp):
    def refuse(ctx):
        raise ShapeMismatch("the add of addresses does not fit")

    pipe = Pipeline("p")
    pipe.output("y", pipe.add(python_kernel("add", refuse, x="f32", y="write f32"), x=pipe.input("x", "f32", ("N",))))
    with pytest.raises(ShapeMismatch, match="step 'add': the add of addresses does not fit"):
        executor.run(pipe, {"x": ramp})


class Checked:
    """A compiled kernel that returns a status where an element is negative."""

    name = "checked"
    statuses = MappingProxyType({3: (ArgumentError, "an element is negative")})

    def signature(self):
        return ArgSpec("x", "s32", shape=("N",)), ArgSpec("y", "s32", "write", shape=("N",))

    def index_space(self):
        return IndexSpace((Axis("n", "N"),))

    def execute(self, ctx):
        ctx.sweep(self, ctx.read("x"), ctx.write("y"))


CHECKED = """from numba import njit
import numpy as np

@njit(nogil=True, error_model="numpy")
def tile(n0, n1, x, y):
    for n in range(n0, n1):
        if x[n] < 0:
            return np.int32({code})
        y[n] = x[n]
    return np.int32(0)
"""


@pytest.fixture
def checked():
    """Register Checked on cpu and reference; checked(code) sets the status that it returns."""

    def build(code):
        from tilework.kernels import forge

        def reference(x, y):
            if (x < 0).any():
                raise AssertionError("the reference has no statuses")
            y[...] = x

        factory.register("checked", backend="cpu")(lambda: forge.Native(CHECKED.format(code=code)))
        factory.register("checked", backend="reference")(lambda: factory.Whole(reference))

    build(3)
    yield build
    for backend in ("cpu", "reference"):
        factory.unregister("checked", backend)


@pytest.mark.parametrize("make", [SingleThreadExecutor, lambda: TilingExecutor(threads=2)], ids=["single", "tiled"])
def test_a_status_becomes_the_error_that_the_kernel_names(checked, make):
    pipe = Pipeline("p")
    pipe.output("y", pipe.add(Checked(), x=pipe.input("x", "s32", ("N",)), step_name="first"))
    x = np.arange(100_000, dtype=np.int32)
    plan = make().compile(pipe)
    assert_array_equal(plan.run({"x": x})["y"], x)
    for at in (0, 70_000, 99_999):
        bad = x.copy()
        bad[at] = -1
        with pytest.raises(ArgumentError, match="step 'first': an element is negative"):
            plan.run({"x": bad})
        assert_array_equal(plan.run({"x": x})["y"], x)
    call = plan.bind({"x": bad})
    with pytest.raises(ArgumentError, match="step 'first'"):
        call()
    checked(9)  # a code without a name
    with pytest.raises(KernelFailed, match=r"step 'first' \(checked\) returned status 9"):
        make().run(pipe, {"x": bad})


@pytest.mark.parametrize("make", [SingleThreadExecutor, lambda: TilingExecutor(threads=2)], ids=["single", "tiled"])
def test_a_tile_that_does_not_compile_names_its_step(checked, make):
    checked("no_such_name")
    pipe = Pipeline("p")
    pipe.output("y", pipe.add(Checked(), x=pipe.input("x", "s32", ("N",)), step_name="first"))
    with pytest.raises(KernelFailed, match=r"step 'first' \(checked\) failed: TypingError: (.|\n)*no_such_name"):
        make().run(pipe, {"x": np.arange(3, dtype=np.int32)})


def test_a_result_that_no_kernel_wrote_is_no_result(executor, python_kernel, ramp):
    pipe = Pipeline("p")
    lazy = python_kernel("lazy", lambda ctx: None, x="f32", y="write f32")
    pipe.output("y", pipe.add(lazy, x=pipe.input("x", "f32", ("N",))))
    with pytest.raises(UnwrittenRead, match="step 'lazy' never wrote its slot 'y'"):
        executor.run(pipe, {"x": ramp})


def test_what_no_kernel_wrote_is_not_read(executor, python_kernel, unary, ramp):
    pipe = Pipeline("p")
    lazy = python_kernel("lazy", lambda ctx: None, x="f32", y="write f32")
    y = pipe.add(lazy, x=pipe.input("x", "f32", ("N",)))
    pipe.output("y", pipe.add(unary("copy", lambda v: v), x=y))
    with pytest.raises(UnwrittenRead):
        executor.run(pipe, {"x": ramp})


def test_scratch_is_taken_as_often_as_a_kernel_likes(executor, python_kernel, ramp):
    def run(ctx):
        x = ctx.read("x")
        a, b = (ctx.scratch(x.nbytes).view(np.float32) for _ in range(2))
        a[...] = x
        b[...] = 100
        ctx.write("y")[...] = a + b

    pipe = Pipeline("p")
    pipe.output("y", pipe.add(python_kernel("uses", run, x="f32", y="write f32"), x=pipe.input("x", "f32", ("N",))))
    assert_array_equal(executor.run(pipe, {"x": ramp})["y"], ramp + 100)


# Memory -----------------------------------------------------------------------------------------------------------


def branches(python_kernel, order):
    """k1 -> (y, unused aux), k2: z = 2y, k3: w = z + x, with more branches beside them; steps added in an order."""

    def k1(ctx):
        x = ctx.read("x")
        ctx.write("y")[...] = x + 1
        ctx.write("aux")[...] = x * 100

    def k2(ctx):
        ctx.write("z")[...] = ctx.read("y") * 2

    def k3(ctx):
        ctx.write("w")[...] = ctx.read("z") + ctx.read("x")

    pipe = Pipeline("branches")
    x = pipe.input("x", "s64", ("N",))
    values = {name: pipe.buffer(name, "s64", ("N",)) for name in ("y", "aux", "z", "w", "y2", "aux2", "z2", "w2")}
    adds = {
        "k1": lambda: pipe.add(
            python_kernel("k1", k1, x="s64", y="write s64", aux="write s64"), x=x, y=values["y"], aux=values["aux"]
        ),
        "k2": lambda: pipe.add(python_kernel("k2", k2, y="s64", z="write s64"), y=values["y"], z=values["z"]),
        "k3": lambda: pipe.add(
            python_kernel("k3", k3, z="s64", x="s64", w="write s64"), z=values["z"], x=x, w=values["w"]
        ),
        "k1b": lambda: pipe.add(
            python_kernel("k1", k1, x="s64", y="write s64", aux="write s64"),
            x=values["y"],
            y=values["y2"],
            aux=values["aux2"],
        ),
        "k2b": lambda: pipe.add(python_kernel("k2", k2, y="s64", z="write s64"), y=values["aux2"], z=values["z2"]),
    }
    for name in order:
        adds[name]()
    pipe.output("w", values["w"])
    pipe.output("z2", values["z2"])
    return pipe


@pytest.mark.parametrize(
    "order", ["k1 k2 k3 k1b k2b", "k2b k1b k3 k2 k1", "k1 k1b k2b k2 k3", "k3 k1 k2b k2 k1b"], ids=lambda o: o
)
def test_no_memory_is_given_away_while_it_is_needed(executor, python_kernel, order):
    """The fault of microsoft/onnxruntime 21019: an output that nobody reads was freed into a live value."""
    x = np.arange(8)
    pipe = branches(python_kernel, order.split())
    plan = executor.compile(pipe)
    for _ in range(2):
        found = plan.run({"x": x})
        assert_array_equal(found["w"], 3 * x + 2)
        assert_array_equal(found["z2"], 200 * (x + 1))
        assert_array_equal(x, np.arange(8))


class Spills:
    """A kernel that writes `by` elements beyond the end of its output (before its start, where negative)."""

    def __init__(self, by, name="spills"):
        self.by, self.name = by, name

    def signature(self):
        return ArgSpec("x", "f32", shape=("N",)), ArgSpec("y", "f32", "write", shape=("N",))

    def execute(self, ctx):
        x, y = ctx.read("x"), ctx.write("y")
        y[...] = x
        start = y.__array_interface__["data"][0]
        for n in range(abs(self.by)):
            at = start + y.nbytes + 4 * n if self.by > 0 else start - 4 * (n + 1)
            ctypes.c_float.from_address(at).value = 123.0


@pytest.mark.parametrize("by", [1, -1, 5])
@pytest.mark.parametrize("where", ["intermediate", "output"])
def test_a_kernel_that_writes_outside_its_buffer_is_named(unary, ramp, by, where):
    pipe = Pipeline("p")
    x = pipe.input("x", "f32", ("N",))
    y = pipe.add(Spills(by), x=pipe.add(unary("before", lambda v: v + 1), x=x), step_name="guilty")
    if where == "intermediate":
        y = pipe.add(unary("after", lambda v: v + 1), x=y)
    pipe.output("y", y)
    side = "after" if by > 0 else "before"
    with pytest.raises(
        GuardViolation, match=rf"after 'guilty': .*'guilty\.y' \(32 bytes\) has .* guard bytes {side} it"
    ):
        SingleThreadExecutor(debug=True).run(pipe, {"x": ramp})


def test_a_state_is_guarded_too(ramp):
    class SpillsState(Spills):
        def signature(self):
            return (ArgSpec("y", "f32", "update", shape=("N",)),)

        def execute(self, ctx):
            y = ctx.write("y")
            ctypes.c_float.from_address(y.__array_interface__["data"][0] + y.nbytes).value = 1.0

    pipe = Pipeline("p")
    s = pipe.state("s", "f32", (8,), 1)
    pipe.add(SpillsState(1), y=s, step_name="guilty")
    with pytest.raises(GuardViolation, match=r"after 'guilty': .*'s'"):
        SingleThreadExecutor(debug=True).run(pipe, {})


def test_an_element_that_a_kernel_leaves_out_is_poison_in_debug_mode(python_kernel, ramp):
    def half(ctx):
        ctx.write("y")[::2] = ctx.read("x")[::2]

    pipe = Pipeline("p")
    pipe.output("y", pipe.add(python_kernel("half", half, x="f32", y="write f32"), x=pipe.input("x", "f32", ("N",))))
    found = SingleThreadExecutor(debug=True).run(pipe, {"x": ramp})["y"]
    assert_array_equal(found[::2], ramp[::2])
    assert found[1::2].tobytes() == b"\xa5" * 16


class Wants:
    """A kernel with needs of its operands' memory."""

    name = "wants"

    def __init__(self, align=1, strides="any"):
        self.align, self.strides = align, strides

    def signature(self):
        more = {"align": self.align, "strides": self.strides}
        return (
            ArgSpec("x", "f32", shape=("M", "N"), **more),
            ArgSpec("c", "f32", shape=("M", "N"), **more),
            ArgSpec("y", "f32", "write", shape=("M", "N"), **more),
        )

    def execute(self, ctx):
        x, c, y = ctx.read("x"), ctx.read("c"), ctx.write("y")
        for array in (x, c, y):
            assert array.__array_interface__["data"][0] % self.align == 0
            assert array.flags.c_contiguous or self.strides != "contiguous"
        y[...] = x + c


@pytest.mark.parametrize("align", [64, 4096])
def test_memory_is_as_aligned_as_a_kernel_asks_or_refused(executor, align):
    pipe = Pipeline("p")
    x, c = pipe.input("x", "f32", (4, 6)), np.ones((4, 6), np.float32)
    y = pipe.add(Wants(align), x=x, c=c)
    y = pipe.add(Wants(align), x=y, c=c)
    pipe.output("y", y)
    plan = executor.compile(pipe)
    block = Buffer.empty((5, 6), "f32", align=4096).view_mut()
    block[...] = 1
    for _ in range(2):
        assert_array_equal(plan.run({"x": block[:4]})["y"], np.full((4, 6), 3))
    with pytest.raises(ValueError, match=rf"input 'x' is aligned to \d+ bytes; step 'wants', slot 'x', needs {align}"):
        plan.run({"x": block[1:]})
    with pytest.raises(ValueError, match=rf"is aligned to \d+ bytes; step 'wants.2', slot 'y', needs {align}"):
        plan.run({"x": block[:4]}, out={"y": np.empty((5, 6), np.float32)[1:]})
    with pytest.raises(ValueError, match="needs"):
        plan.bind({"x": block[1:]})


@pytest.mark.parametrize("strides", ["rows", "contiguous"])
def test_strides_that_a_kernel_does_not_take_are_refused(executor, strides):
    pipe = Pipeline("p")
    pipe.output("y", pipe.add(Wants(1, strides), x=pipe.input("x", "f32", ("M", "N")), c=np.ones((6, 4), "f4").T))
    plan = executor.compile(pipe)
    block = np.ones((8, 12), np.float32)
    assert_array_equal(plan.run({"x": np.ones((4, 6), np.float32)})["y"], np.full((4, 6), 2))
    bad = [block[:4, ::2], block[:4, 5::-1]] + ([block[:4, :6], block[3::-1, :6]] if strides == "contiguous" else [])
    for x in bad:
        with pytest.raises(ValueError, match=r"step 'wants', slot 'x'.* strides|strides"):
            plan.run({"x": x})
    if strides == "rows":
        assert_array_equal(plan.run({"x": block[:4, :6]})["y"], np.full((4, 6), 2))


def test_an_elementwise_step_may_write_over_its_input(executor):
    pipe = Pipeline("p")
    pipe.output("y", ops.relu(pipe.input("x", "f32", ("N",))))
    plan = executor.compile(pipe)
    x = np.linspace(-1, 1, 9, dtype=np.float32)
    right = np.maximum(x, 0)
    given = x.copy()
    found = plan.run({"x": given}, out={"y": given})["y"]
    assert found is given
    assert_array_equal(given, right)
    given = x.copy()
    plan.run({"x": given})
    for out in (given[:], np.lib.stride_tricks.as_strided(given, (9,), (4,))):
        given[...] = x
        plan.run({"x": given}, out={"y": out})
        assert_array_equal(given, right)
    block = np.zeros(10, np.float32)
    for _ in range(2):
        with pytest.raises(ValueError, match=r"out\['y'\] overlaps input 'x'"):
            plan.run({"x": block[:-1]}, out={"y": block[1:]})
    with pytest.raises(ValueError, match="overlaps"):
        plan.run({"x": x[::-1]}, out={"y": x})


@pytest.mark.parametrize("kind", ["gemm", "quantize", "read twice", "an output too"])
def test_only_an_elementwise_step_that_reads_its_input_alone_may_write_over_it(executor, kind):
    pipe = Pipeline("p")
    if kind == "gemm":
        x = pipe.input("x", "f32", (4, 4))
        pipe.output("y", ops.gemm(x, np.eye(4, dtype=np.float32)))
    elif kind == "quantize":
        x = pipe.input("x", "f32", (4, 4))
        pipe.output("y", ops.quantize(x, scale=0.5, dtype="s8"))
    else:
        x = pipe.input("x", "f32", (4, 4))
        pipe.output("y", ops.relu(x))
        pipe.output("z", ops.clip(x, lo=-1, hi=1) if kind == "read twice" else x)
    given = np.ones((4, 4), np.float32)
    out = given.view(np.int8)[:, :4] if kind == "quantize" else given
    with pytest.raises(ValueError, match=r"out\['y'\] overlaps input 'x'"):
        executor.run(pipe, {"x": given}, out={"y": out})


# States -----------------------------------------------------------------------------------------------------------


def counter():
    pipe = Pipeline("counter")
    x, s = pipe.input("x", "s32", (3,)), pipe.state("s", "s32", (3,), 10)
    t = pipe.state("t", "s32", (3,), np.arange(3, dtype=np.int32))
    total = ops.add(s, x)
    pipe.update(s, total)
    pipe.update(t, s)  # what s was before this run
    pipe.output("y", total)
    pipe.output("t", t)
    return pipe


def test_states_go_from_run_to_run(executor):
    plan, x = executor.compile(counter()), np.array([1, 2, 3], np.int32)
    before = [np.arange(3), np.full(3, 10), 10 + x, 10 + 2 * x]
    for n in range(4):
        found = plan.run({"x": x})
        assert_array_equal(found["y"], 10 + (n + 1) * x)
        assert_array_equal(found["t"], before[n])
        found["y"][...] = 99  # a result is not the state
        found["t"][...] = 99
    assert_array_equal(plan.state["s"], 10 + 4 * x)
    assert_array_equal(executor.run(counter(), {"x": x})["y"], 10 + x)  # another plan starts anew


def test_a_run_may_have_states_of_its_own(executor):
    plan, x = executor.compile(counter()), np.ones(3, np.int32)
    mine = {}
    for n in range(3):
        assert_array_equal(plan.run({"x": x}, state=mine)["y"], 11 + n + np.zeros(3))
    assert_array_equal(mine["s"], [13, 13, 13])
    assert plan.state == {}
    given = {"s": np.array([5, 6, 7], np.int32)}
    plan.run({"x": x}, state=given)
    assert_array_equal(given["s"], [6, 7, 8])
    assert set(given) == {"s", "t"}
    for wrong, error in (
        (np.zeros(3), DTypeMismatch),
        (np.zeros(4, np.int32), ArgumentError),
        ([1, 2, 3], DTypeMismatch),
    ):
        with pytest.raises(error, match="state 's'"):
            plan.run({"x": x}, state={"s": wrong})


def test_a_profile_leaves_states_alone(executor):
    plan, x = executor.compile(counter()), np.ones(3, np.int32)
    plan.profile({"x": x}, repeat=2)
    assert_array_equal(plan.run({"x": x})["y"], [11, 11, 11])
    plan.profile({"x": x}, repeat=2)
    assert_array_equal(plan.run({"x": x})["y"], [12, 12, 12])


def test_a_kernel_updates_a_state_in_place_and_readers_keep_their_order(executor, python_kernel):
    def append(ctx):
        cache, x = ctx.write("cache"), ctx.read("x")
        cache[1:] = cache[:-1].copy()
        cache[0] = x[0]

    def total(ctx):
        ctx.write("y")[...] = ctx.read("cache").sum()

    append = python_kernel("append", append, x="f32", cache="update f32")
    total = python_kernel("total", total, cache="f32", y="write f32")
    pipe = Pipeline("p")
    x, cache = pipe.input("x", "f32", (4,)), pipe.state("cache", "f32", (4,))
    pipe.output("before", pipe.add(total, cache=cache))
    pipe.add(append, x=x, cache=cache)
    pipe.output("after", pipe.add(total, cache=cache))
    plan = executor.compile(pipe)
    seen = []
    for n in range(1, 7):
        found = plan.run({"x": np.full(4, n, np.float32)})
        seen.append((found["before"][0], found["after"][0]))
    assert seen == [(0, 1), (1, 3), (3, 6), (6, 10), (10, 14), (14, 18)]


def test_threads_that_share_a_plan_with_states_take_turns(executor):
    plan, x = executor.compile(counter()), np.ones(3, np.int32)
    with ThreadPoolExecutor(4) as pool:
        found = sorted(int(y["y"][0]) for y in pool.map(lambda _: plan.run({"x": x}), range(40)))
    assert found == list(range(11, 51))


# Backends ---------------------------------------------------------------------------------------------------------


class ThirdExecutor(SingleThreadExecutor):
    """Somebody else's executor, of somebody else's backend."""

    backend = "third"


@pytest.fixture
def third():
    """The backend "third": the reference's arithmetic, with a note of every kernel that it ran."""
    ran = []

    def build(kernel, name, dtypes, ranks):
        whole = factory.get(name, "reference", kernel=kernel, dtypes=dtypes, ranks=ranks)

        def run(*operands):
            ran.append(name)
            whole.fn(*operands)

        return factory.Whole(run)

    families = factory.names("reference")
    for family in families:
        factory.register(family, backend="third", variant="borrowed")(build)
    yield ran
    for family in families:
        factory.unregister(family, "third")


def test_a_third_backend_with_its_own_executor_runs_the_demo_unedited(third):
    from tilework.bench import demo

    digits = demo.Digits.load()
    images = digits.images[digits.test][:20]
    for build in demo.SCHEMES.values():
        pipe, _ = build(digits)
        right = SingleThreadExecutor().run(pipe, {"x": images})["logits"]
        third.clear()
        plan = ThirdExecutor().compile(pipe)
        assert_array_equal(plan.run({"x": images})["logits"], right, strict=True)
        assert third == [step.kernel.name for step in pipe.order()]
        assert "borrowed on third" in plan.explain()


def test_a_backend_that_lacks_a_kernel_says_what_it_has(rng):
    with pytest.raises(KernelNotFound, match=r"step 'gemm_u8s8s32': no kernel 'gemm_u8s8s32' on backend 'nothing'"):
        SingleThreadExecutor("nothing").run(mlp(rng), {"x": np.zeros((1, 12), np.uint8)})


def test_everything_runs_without_the_compiler(tmp_path):
    text = """
import numpy as np
import tilework as tw
from tilework.kernels import forge
rng = np.random.default_rng(0)
def soft(v, slope):
    return np.float32(v) * slope if v < 0 else np.float32(v)
pipe = tw.Pipeline("p")
x = pipe.input("x", "f32", ("M", 6))
q = tw.ops.quantize(x, scale=0.05, zero_point=128)
acc = tw.ops.gemm(q, rng.integers(-128, 128, (6, 5), np.int8), a_zero_point=128)
y = tw.ops.requantize(acc, multiplier=np.float32(0.01), dtype="s8")
pipe.output("y", tw.ops.relu(y))
pipe.output("soft", tw.ops.map(soft, acc, slope=0.5))
pipe.output("best", tw.ops.argmax(acc))
feed = {"x": rng.normal(size=(3, 6)).astype(np.float32)}
runs = [e.run(pipe, feed) for e in (tw.SingleThreadExecutor("reference"), tw.SingleThreadExecutor(),
        tw.SingleThreadExecutor(debug=True), tw.TilingExecutor(threads=2))]
for run in runs[1:]:
    for name in run:
        np.testing.assert_array_equal(run[name], runs[0][name], strict=True)
assert forge.jit_disabled() and forge.Counts.compiled == forge.Counts.loaded == 0
print("same")
"""
    program = tmp_path / "program.py"
    program.write_text(text)
    done = subprocess.run(
        [sys.executable, program],
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "same"


# What a plan says -------------------------------------------------------------------------------------------------


def test_a_profile_has_every_step_its_bytes_and_the_share_outside(executor, rng):
    pipe = mlp(rng)
    plan = executor.compile(pipe)
    found = plan.profile({"x": rng.integers(0, 256, (4, 12), np.uint8)}, repeat=3)
    assert found.runs == 3
    assert found.time_s > 0
    assert 0 <= found.share_outside <= 1
    assert all(step.time_s >= 0 and step.bytes_moved >= 0 for step in found.steps)
    if not isinstance(executor, TilingExecutor):
        assert [step.step for step in found.steps] == [step.name for step in pipe.order()]
        gemm = found.steps[0]
        assert gemm.bytes_moved == 4 * 12 + 12 * 9 + 4 * 9 * 4 + 1
    assert "outside kernels" in str(found)
    assert found.to_dict()["steps"][0]["step"] == found.steps[0].step


def test_explain_names_every_step_before_and_after_a_run(executor, rng):
    pipe = mlp(rng)
    plan = executor.compile(pipe)
    for _ in range(2):
        text = plan.explain()
        assert "plan of 'mlp'" in text
        for step in pipe.order():
            assert (step.kernel.name if isinstance(executor, TilingExecutor) else step.name) in text
        plan.run({"x": np.zeros((2, 12), np.uint8)})
    assert "M = 2" in plan.explain()
    if executor.backend == "reference":
        assert plan.explain().count("(reference)") == len(pipe.steps)


def test_a_pipeline_that_is_not_finished_is_not_compiled(executor):
    pipe = Pipeline("p")
    pipe.input("x", "f32", (3,))
    with pytest.raises(PipelineError, match="has no output"):
        executor.compile(pipe)
    pipe.output("y", pipe.values["x"])
    with pytest.raises(ArgumentError, match="there is no input 'z'; there is x"):
        executor.compile(pipe, {"z": (3,)})
