"""Parameters of blocks in few bytes: whatever the form, the same float32 come back, in NumPy and in products."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from tilework.executors import TilingExecutor
from tilework.kernels.cpu import isa
from tilework.kernels.cpu.linear.numbers import SHARED, kept
from tilework.kernels.linear import CodeFormat, Linear
from tilework.kernels.reference import linear as meaning
from tilework.primitives.pipeline import Pipeline

LEVELS = [level.name for level in isa.available()]


def shared(rng, shape, blocks, low=-32, high=64, factors=(1e-7, 1e-2)):
    """Integers times a float16 for every so many neighbours; some factors are subnormal."""
    groups = -(-shape[1] // blocks)
    factor = np.exp(rng.uniform(*np.log(factors), (shape[0], groups))).astype(np.float16).astype(np.float32)
    return rng.integers(low, high, shape).astype(np.float32) * np.repeat(factor, blocks, axis=1)[:, : shape[1]]


def back(numbers, n):
    values = numbers.values[n].astype(np.float32)
    if numbers.form == "power":
        return (numbers.values[n].astype(np.uint32) << 23).view(np.float32)
    if numbers.form == "shared":
        factor = np.repeat(numbers.factors[n].astype(np.float32), numbers.shared, axis=1)
        return values * factor[:, : values.shape[1]]
    return values


@pytest.mark.parametrize("blocks", SHARED)
def test_integers_times_a_shared_factor_become_bytes(blocks):
    rng = np.random.default_rng(blocks)
    shape = (300, 3 * blocks + 1)
    scale, offset = shared(rng, shape, blocks, 0), -shared(rng, shape, blocks, 0)
    scale[1], offset[2] = 0.0, -0.0
    found = kept([scale, offset])
    assert (found.form, found.shared) == ("shared", blocks)
    for n, right in enumerate((scale, offset)):
        assert_array_equal(back(found, n).view(np.uint32), right.view(np.uint32))


def test_signed_integers_share_a_factor_too():
    scale = shared(np.random.default_rng(3), (90, 32), 16, -128, 128)
    found = kept([scale])
    assert found.form == "shared"
    assert_array_equal(back(found, 0), scale)


def test_powers_of_two_and_halves_are_seen():
    rng = np.random.default_rng(4)
    powers = np.exp2(rng.integers(-126, 128, (70, 20))).astype(np.float32)
    powers[0] = 0
    halves = rng.standard_normal((70, 20)).astype(np.float16).astype(np.float32)
    halves[0, :3] = -0.0, 2.0**-24, 65504
    for given, form in ((powers, "power"), (halves, "f16")):
        found = kept([given])
        assert found.form == form
        assert_array_equal(back(found, 0).view(np.uint32), given.view(np.uint32))


@pytest.mark.parametrize("strange", [np.nan, np.inf, 1e-45, 70000.5, 1 / 3])
def test_what_no_form_gives_back_stays_float32(strange):
    given = shared(np.random.default_rng(5), (100, 16), 16)
    given[-1, 7] = strange  # behind the rows that are tried first
    found = kept([given])
    assert found.form == "f32"
    assert_array_equal(back(found, 0), given)


def test_one_zero_of_the_other_sign_is_not_lost():
    given = shared(np.random.default_rng(6), (8, 16), 16, 1)
    given[0, :2] = 0.0, -0.0
    assert_array_equal(back(kept([given]), 0).view(np.uint32), given.view(np.uint32))


FORMATS = {
    "5 bits": (CodeFormat(5, block=(1, 32), kind="offset"), "shared", 8),
    "6 bits": (CodeFormat(6, signed=True, block=(1, 16)), "shared", 16),
    "3 bits": (CodeFormat(3, block=(1, 40)), "f16", 0),
    "table": (CodeFormat(3, block=(1, 32), kind="table"), "power", 0),
}


@pytest.mark.parametrize("level", sorted({LEVELS[0], LEVELS[-1]}))
@pytest.mark.parametrize("name", FORMATS)
def test_products_have_the_bits_of_the_reference(name, level):
    fmt, form, blocks = FORMATS[name]
    rng = np.random.default_rng(7)
    N, K = 65, 32 * 19 + (8 if form != "power" else 0)  # groups and blocks that are not whole at the end
    made = {"codes": rng.integers(0, 256, (N, fmt.row_bytes(K)), dtype=np.uint8)}
    for slot in fmt.parameters:
        shape = fmt.blocks(N, K)
        made[slot] = (
            shared(rng, shape, blocks)
            if form == "shared"
            else (rng.standard_normal(shape) / 512).astype(np.float16).astype(np.float32)
            if form == "f16"
            else np.exp2(rng.integers(-9, 3, shape)).astype(np.float32)
        )
    assert kept([made[slot] for slot in fmt.parameters]).form == form
    if fmt.kind == "table":
        made["table"] = np.array([0, 0.5, 1, 3, -0.5, -1, -2, 6], np.float32)
    kernel = Linear(fmt, K)
    pipe = Pipeline("linear")
    pipe.output("y", pipe.add(kernel, x=pipe.input("x", "f32", ("M", K)), **made))
    plan = TilingExecutor(threads=1, isa=level).compile(pipe)
    for M in (2, 15):  # a packed panel, and an unpacked one
        x = rng.standard_normal((M, K)).astype(np.float32)
        out = np.full((M, N), np.nan, np.float32)
        plan.run({"x": x}, out={"y": out})
        assert_array_equal(out, meaning.linear(kernel, x, *made.values()))
