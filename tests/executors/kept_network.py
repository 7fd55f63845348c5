"""A small network for the tests of kept plans, in whichever process."""

import numpy as np

import tilework as tw


def network(identity="a network"):
    rng = np.random.default_rng(0)
    pipe = tw.Pipeline("net")
    x = pipe.input("x", "u8", ("M", 40))
    w = pipe.constant("w", rng.integers(-128, 128, (40, 24)).astype(np.int8))
    acc = tw.ops.add(tw.ops.gemm(x, w, a_zero_point=7), rng.integers(-999, 999, 24).astype(np.int32))
    m = rng.random(24).astype(np.float32) / 500
    pipe.output("y", tw.ops.requantize(acc, multiplier=m, zero_point=3, dtype="u8"))
    pipe.output("sum", tw.ops.reduce("sum", tw.ops.dequantize(pipe.outputs["y"], 0.25, 3), 1))
    pipe.identity = identity
    return pipe


def image(m=9):
    return np.random.default_rng(m).integers(0, 256, (m, 40)).astype(np.uint8)
