"""Grouped convolutions whose weights have zero points: differences of 9 bits, and zero points between merged groups."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import tilework as tw
from tilework.kernels import forge
from tilework.kernels.cpu import isa
from tilework.kernels.cpu.depthwise.weights import part, parts

LEVELS = [level.name for level in isa.available()]
NUMPY = {"u8": np.uint8, "s8": np.int8}
# dtype of weights, their least and greatest code, zero point, and how many s8 a difference is the sum of
DEPTHWISE = [("s8", -128, 127, None, 1), ("u8", 0, 255, 128, 1), ("u8", 0, 255, 100, 2), ("u8", 0, 255, 0, 3),
             ("s8", -128, 127, 127, 2)]  # fmt: skip


def check(x, w, zero, groups, late, levels=LEVELS):
    """Compare with the reference; late: which of the weights, both zero points and the bias are inputs. Gives a plan."""
    pipe, given = tw.Pipeline("grouped"), {"x": x}

    def operand(name, dtype, value):
        if name not in late or value is None:
            return value
        given[name] = np.asarray(value, NUMPY.get(dtype, np.int32))
        return pipe.input(name, dtype, given[name].shape)

    kind, weights = ("u8" if array.dtype == np.uint8 else "s8" for array in (x, w))
    zeros = operand("a", kind, NUMPY[kind](77)), operand("b", weights, zero)
    bias = operand("bias", "s32", np.arange(w.shape[0]) * 999 - 5000)
    y = tw.ops.conv(
        pipe.input("x", kind, x.shape), operand("w", weights, w), np.asarray(bias, np.int32) if "bias" not in late
        else bias, pads=1, groups=groups, layout="NHWC", a_zero_point=zeros[0], b_zero_point=zeros[1],
    )  # fmt: skip
    pipe.output("acc", y)
    pipe.output("y", tw.ops.requantize(y, np.float32(1e-3), 9, "u8"))
    expected = tw.SingleThreadExecutor("reference").run(pipe, given)
    for level in levels:
        plan = tw.TilingExecutor(1, isa=level).compile(pipe)
        for name, out in plan.run(given).items():
            assert_array_equal(out, expected[name], strict=True, err_msg=f"{level} {name}")
    return plan


@pytest.mark.parametrize("value", [-256, -255, -129, -128, 0, 127, 128, 254, 255])
def test_a_difference_is_the_sum_of_its_parts(value):
    many = parts(min(value, 0), max(value, 0))
    pieces = [int(part(np.int64(value), n)) for n in range(many)]
    assert sum(pieces) == value
    assert all(-128 <= piece <= 127 for piece in pieces)
    assert many == 1 or pieces[-1]


@pytest.mark.parametrize(("dtype", "low", "high", "zero", "many"), DEPTHWISE)
def test_depthwise_weights_less_their_zero_points(dtype, low, high, zero, many):
    rng = np.random.default_rng(0)
    x = rng.choice(np.array([0, 200, 255], np.uint8), (1, 5, 6, 20))
    w = rng.choice(np.array([low, high, (low + high) // 2], NUMPY[dtype]), (20, 1, 3, 3))
    zero = None if zero is None else NUMPY[dtype](zero)
    levels = LEVELS if (dtype, many) == ("u8", 2) else LEVELS[-1:]
    for late in ("", "a bias", "b", "w b"):
        plan = check(x, w, zero, 20, late.split(), levels if late in ("", "w b") else LEVELS[-1:])
        if LEVELS[-1] == "avx512_vnni" and not forge.jit_disabled():
            assert "depthwise_panels" in plan.explain()


@pytest.mark.parametrize("late", ["", "w", "a b"])
@pytest.mark.parametrize(("inside", "each"), [(2, 3), (3, 1)])
def test_between_merged_groups_lie_zero_points(inside, each, late):
    rng = np.random.default_rng(1)
    x = rng.integers(-128, 128, (2, 4, 5, 5 * inside)).astype(np.int8)
    w = rng.integers(0, 256, (5 * each, inside, 3, 3)).astype(np.uint8)
    check(x, w, rng.integers(0, 256, 5 * each).astype(np.uint8), 5, late.split())


def test_pairs_of_products_fit_in_the_matrix_of_merged_groups():
    x, w = np.full((1, 3, 3, 6), 255, np.uint8), np.zeros((2, 3, 3, 3), np.int8)
    w[:, :, 1, 1] = [28, 100, 100]  # a pair of one group, and one across the first channels of the second, do not fit
    check(x, w, None, 2, [])
