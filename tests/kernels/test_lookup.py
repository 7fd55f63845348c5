"""lookup: 256 entries in place of codes, by itself and at the end of a GEMM's epilogue."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from tilework.executors import SingleThreadExecutor, TilingExecutor, eager
from tilework.kernels import forge, ops
from tilework.kernels.lookup import Lookup
from tilework.primitives import Pipeline
from tilework.primitives.errors import DTypeMismatch, ShapeMismatch

NUMPY = {"u8": np.uint8, "s8": np.int8}
EVERY = np.arange(256).astype(np.uint8)


def table(kind, seed=0):
    return np.random.default_rng(seed).permutation(256).astype(np.uint8).view(NUMPY[kind])


def test_worked_by_hand():
    squares = (np.arange(256) ** 2 % 256).astype(np.uint8)
    assert eager.lookup(np.uint8([0, 3, 16, 255]), squares).tolist() == [0, 9, 0, 1]
    negated = np.array([0, *range(-1, -128, -1), -128, *range(127, 0, -1)], np.int8)
    assert eager.lookup(np.int8([0, 5, -5, 127, -128]), negated).tolist() == [0, -5, 5, -127, -128]


@pytest.mark.parametrize("source", ["u8", "s8"])
@pytest.mark.parametrize("dtype", ["u8", "s8"])
def test_every_code_has_its_entry(same, source, dtype):
    right = same(Lookup(source, dtype, 1), EVERY.view(NUMPY[source]), table(dtype))
    assert_array_equal(right, table(dtype), strict=True)


def test_any_shape_and_stride(run):
    x = np.random.default_rng(1).integers(-128, 128, (4, 3, 35)).astype(np.int8)
    for view in (x, x[::-1, :, ::2], x.T, x[:0]):
        assert_array_equal(run(Lookup("s8", "u8", 3), view, table("u8")), table("u8")[view.astype(np.uint8)])


def test_around_the_64_elements_of_a_vector(run):
    x = np.random.default_rng(1).integers(0, 256, (2, 3, 130)).astype(np.uint8)
    for n in (63, 64, 65, 127, 128, 129, 130):
        for view in (x[:, :, :n], np.ascontiguousarray(x[:, :, :n]), np.ascontiguousarray(x[:1, :, :n])):
            assert_array_equal(run(Lookup("u8", "s8", 3), view, table("s8")), table("s8")[view])


@pytest.mark.parametrize(
    ("error", "match", "x", "given"),
    [
        (DTypeMismatch, "no source s32; it has u8, s8", "s32", EVERY),
        (DTypeMismatch, "no dtype f32; it has u8, s8", "u8", np.zeros(256, np.float32)),
        (ShapeMismatch, r"table has shape \(2, 128\)", "u8", EVERY.reshape(2, 128)),
    ],
)
def test_what_cannot_be_looked_up_is_refused(error, match, x, given):
    with pytest.raises(error, match=match):
        ops.lookup(Pipeline("test").input("x", x, (3,)), given)


@pytest.mark.skipif(forge.jit_disabled(), reason="plain Python fuses nothing")
@pytest.mark.parametrize("codes", ["u8", "s8"])
@pytest.mark.parametrize("arithmetic", ["float", "fixed"])
def test_it_is_fused_behind_a_requantize_that_tiles_do_not_store_by_themselves(codes, arithmetic):
    rng = np.random.default_rng(2)
    pipe = Pipeline("test")
    acc = ops.gemm(pipe.input("a", "u8", ("M", 20)), rng.integers(-128, 128, (20, 70)).astype(np.int8), a_zero_point=9)
    y = ops.requantize(acc, multiplier=0.01, zero_point=5, dtype=codes, arithmetic=arithmetic)
    other = "s8" if codes == "u8" else "u8"
    pipe.output("fixed", ops.lookup(y, table(other)))
    given = {"a": rng.integers(0, 256, (13, 20)).astype(np.uint8)}
    want = SingleThreadExecutor("reference").run(pipe, given)["fixed"]
    for level in (None, "generic"):
        plan = TilingExecutor(2, isa=level).compile(pipe)
        if arithmetic == "fixed":
            assert len(plan.lowered.pipe.steps) == 1, plan.explain()
        else:
            assert "a table of codes that tiles store by themselves is a step of its own" in str(plan.explain())
        assert_array_equal(plan.run(given)["fixed"], want, strict=True)


@pytest.mark.skipif(forge.jit_disabled(), reason="plain Python fuses nothing")
def test_the_table_may_come_at_run_time_with_any_stride_and_be_followed_by_other_steps():
    rng = np.random.default_rng(3)
    pipe = Pipeline("test")
    acc = ops.gemm(pipe.input("a", "s8", ("M", 20)), rng.integers(-128, 128, (20, 40)).astype(np.int8))
    codes = ops.relu(ops.requantize(acc, multiplier=0.01, zero_point=-7, dtype="s8"), zero_point=-7)
    pipe.output("y", ops.relu(ops.lookup(codes, pipe.input("table", "s8", (256,)))))
    given = {"a": rng.integers(-128, 128, (13, 20)).astype(np.int8), "table": np.repeat(table("s8"), 3)[::3]}
    plan = TilingExecutor(1).compile(pipe)
    assert "is a step of its own" in plan.explain()
    assert_array_equal(plan.run(given)["y"], SingleThreadExecutor("reference").run(pipe, given)["y"], strict=True)
