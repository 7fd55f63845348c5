"""A residual's sum: an inverse is taken where all pairs of codes prove it, and both ways give the reference's codes."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import tilework as tw
from tilework.kernels import forge
from tilework.kernels.cpu import isa
from tilework.kernels.cpu.epilogues.residual import inverse

CODES, BETWEEN = (-9, 246), (-20, 235)


@pytest.mark.parametrize("scales", [(0.1, 0.07, 0.13), (0.2, 0.2, 0.2), (0.0313, 0.0271, 0.0417)])
def test_an_inverse_gives_the_code_of_every_pair(scales):
    found = inverse(CODES, (0, 255), scales, BETWEEN)
    assert found is not None
    one, other, sums = np.float32(scales)
    total = (np.arange(-9, 247).astype(np.float32) * one)[:, None] + np.arange(256).astype(np.float32) * other
    quotient, product = (np.rint(np.clip(t, *BETWEEN)) for t in (total / sums, total * np.float32(found)))
    assert_array_equal(product, quotient)


@pytest.mark.parametrize("scales", [(0.1, 0.1, 0.0), (0.3, 0.1, 0.2), (3e38, 3e38, 1.0)])
def test_there_is_none_where_ties_or_infinities_are(scales):
    assert inverse(CODES, (0, 255), scales, BETWEEN) is None


@pytest.mark.skipif(forge.jit_disabled(), reason="the reference runs instead")
@pytest.mark.parametrize("level", [isa.available()[0].name, isa.available()[-1].name])
@pytest.mark.parametrize("scales", [(0.1, 0.07, 0.13), (3e38, 3e38, 1.0)])
def test_all_pairs_of_codes_are_added_as_the_reference_adds_them(scales, level):
    a, r = np.zeros((256, 4), np.uint8), np.arange(256, dtype=np.uint8)[None].repeat(256, 0)
    a[:, 0] = np.arange(256)
    w = np.zeros((4, 256), np.int8)
    w[0] = 1
    pipe = tw.Pipeline("pairs")
    y = tw.ops.requantize(tw.ops.gemm(pipe.input("a", "u8", a.shape), w), np.float32(1), 0, "u8")
    one, other, sums = np.float32(scales)
    pipe.output("y", tw.ops.add(
        y, pipe.input("r", "u8", r.shape), a_scale=one, a_zero_point=0, b_scale=other, b_zero_point=3, scale=sums,
        zero_point=20, dtype="u8",
    ))  # fmt: skip
    expected = tw.SingleThreadExecutor("reference").run(pipe, {"a": a, "r": r})["y"]
    plan = tw.TilingExecutor(1, isa=level).compile(pipe)
    assert "fused: gemm_u8s8s32 + requantize_s32u8 + add_quantized" in plan.explain()
    assert_array_equal(plan.run({"a": a, "r": r})["y"], expected, strict=True)
