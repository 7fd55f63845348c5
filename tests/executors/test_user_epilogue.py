"""The user's functions inside a GEMM: fused wherever they stand, with the bits of the separate steps, and vectorised."""

import os
import re
import time

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from tilework.executors import SingleThreadExecutor, TilingExecutor
from tilework.kernels import forge, ops
from tilework.kernels.cpu import isa
from tilework.kernels.cpu.epilogues import user_finish
from tilework.kernels.vectormath import gelu_tanh, sigmoid, tanh
from tilework.primitives import Pipeline

pytestmark = pytest.mark.skipif(forge.jit_disabled(), reason="plain Python fuses nothing")

F32 = np.float32
K = 40
LEVELS = [level.name for level in isa.available() if level.name in ("generic", "avx2", "avx512")] or [None]
TABLE = F32([0.25, -0.5, 1, 8])


def steep(x):
    return x * sigmoid(1.702 * x)


def bent(x, slope):
    return x if x > 0 else x * slope


def gated(x, gate):
    return np.rint(x * tanh(gate))


def halved(x):
    return (x >> 1) + 3


def looked_up(i):
    return TABLE[i & 3] + i


def columns(rng, n, dtype=np.float32):
    return (rng.random(n) * 0.01 + 0.002).astype(np.float32) if dtype == np.float32 else rng.integers(-99, 99, n, dtype)


def steep_codes(acc, rng, n, extra):
    real = ops.dequantize(ops.add(acc, columns(rng, n, np.int32)), scale=columns(rng, n))
    return ops.quantize(ops.map(steep, real), scale=F32(0.04), zero_point=9, dtype="u8")


def codes_per_channel(acc, rng, n, extra):
    real = ops.map(bent, ops.dequantize(acc, scale=F32(0.003)), slope=columns(rng, n))
    zero = rng.integers(-5, 5, n).astype(np.int8)
    return ops.quantize(real, scale=columns(rng, n) * F32(5), zero_point=zero, dtype="s8", axis=-1)


def sums_first(acc, rng, n, extra):
    return ops.requantize(ops.map(halved, acc, dtype="s32"), multiplier=columns(rng, n), zero_point=3, dtype="u8")


def codes_last(acc, rng, n, extra):
    codes = ops.requantize(acc, multiplier=F32(0.004), zero_point=-2, dtype="s8")
    return ops.relu(ops.map(looked_up, codes, dtype="s16"))


def with_elements(acc, rng, n, extra):
    return ops.map(gated, ops.dequantize(acc, scale=F32(0.003)), extra, dtype="s16")


def with_rows_and_arguments(acc, rng, n, extra):
    pipe = acc.pipeline
    slope = pipe.argument("slope", "f32")
    rows = pipe.input("rows", "f32", ("M", 1))
    return ops.map(lambda v, r, s: bent(v * r, s), acc, rows, slope)


def every_real_step(acc, rng, n, extra):
    real = ops.dequantize(ops.map(halved, ops.add(acc, 5 - acc.shape[-1]), dtype="s32"), scale=columns(rng, n))
    real = ops.clip(ops.add(real, extra), lo=-columns(rng, n), hi=acc.pipeline.argument("slope", "f32"))
    codes = ops.quantize(
        ops.relu(real), scale=columns(rng, n) * F32(0.1), zero_point=rng.integers(0, 9, n).astype(np.uint8)
    )
    return ops.dequantize(codes, scale=F32(0.25), zero_point=3) if n % 2 else codes


def every_code_step(acc, rng, n, extra):
    codes = ops.requantize(ops.map(halved, acc, dtype="s32"), multiplier=0.0071, dtype="u16", arithmetic="fixed")
    residual = rng.integers(-128, 128, (1, n)).astype(np.int8)
    scales = dict(a_scale=0.3, b_scale=0.7, b_zero_point=-4, scale=0.9, zero_point=100)
    codes = ops.add(codes, residual, **scales, dtype="u8")
    return ops.map(lambda v: v > 99, ops.relu(ops.clip(codes, lo=3, hi=140), zero_point=90), dtype="bool")


CHAINS = [
    every_real_step,
    every_code_step,
    steep_codes,
    codes_per_channel,
    sums_first,
    codes_last,
    with_elements,
    with_rows_and_arguments,
]


def built(chain, n, k=K):
    pipe, rng = Pipeline("test"), np.random.default_rng(n)
    a = pipe.input("a", "u8", ("M", k))
    extra = pipe.input("extra", "f32", ("M", n)) if chain in (with_elements, every_real_step) else None
    acc = ops.gemm(a, rng.integers(-128, 128, (k, n)).astype(np.int8), a_zero_point=7)
    pipe.output("y", chain(acc, rng, n, extra))
    return pipe


def inputs(pipe, m):
    rng = np.random.default_rng(m)
    given = {"a": rng.integers(0, 256, (m, K)).astype(np.uint8)}
    wanted = {**pipe.values}
    n = pipe.outputs["y"].shape[-1]
    if "extra" in wanted:
        given["extra"] = rng.normal(size=(m, n)).astype(np.float32)
        given["extra"].flat[::7] = np.inf, np.nan, 0.0, 1e-42, -np.inf
    if "rows" in wanted:
        given["rows"] = rng.normal(size=(m, 1)).astype(np.float32)
    if "slope" in wanted:
        given["slope"] = 0.125
    return given


@pytest.mark.parametrize("chain", CHAINS, ids=lambda chain: chain.__name__)
@pytest.mark.parametrize("level", LEVELS)
def test_the_fused_result_has_the_bits_of_the_separate_steps(chain, level):
    for n in (70, 5):
        pipe = built(chain, n)
        for m, threads in ((1, 1), (29, 2)):
            given = inputs(pipe, m)
            want = SingleThreadExecutor("reference").run(pipe, given)["y"]
            plan = TilingExecutor(threads, isa=level).compile(pipe)
            assert len(plan.lowered.pipe.steps) == 1, plan.explain()
            assert_array_equal(plan.run(given)["y"], want, strict=True)


def test_outputs_and_operands_may_have_any_strides():
    pipe = built(with_elements, 70)
    given = inputs(pipe, 13)
    want = SingleThreadExecutor("reference").run(pipe, given)["y"]
    given["extra"] = np.asfortranarray(given["extra"])
    whole = np.full((13, 150), 77, np.int16)
    TilingExecutor(2).run(pipe, given, out={"y": whole[:, 4:144:2]})
    assert_array_equal(whole[:, 4:144:2], want)
    for beside in (whole[:, 5:145:2], whole[:, :4], whole[:, 144:]):
        assert (beside == 77).all()


def test_a_batch_of_products_is_fused():
    rng = np.random.default_rng(0)
    pipe = Pipeline("test")
    a = pipe.input("a", "s8", (2, 3, 5, 9))
    acc = ops.gemm(a, rng.integers(-128, 128, (3, 9, 33)).astype(np.int8))
    per_batch = rng.normal(size=(2, 1, 1, 33)).astype(np.float32)
    pipe.output("y", ops.map(lambda v, s: v * s, acc, per_batch))
    given = {"a": rng.integers(-128, 128, (2, 3, 5, 9)).astype(np.int8)}
    plan = TilingExecutor(2).compile(pipe)
    assert "gemm_s8s8s32 + map (fused" in plan.explain()
    assert_array_equal(plan.run(given)["y"], SingleThreadExecutor("reference").run(pipe, given)["y"], strict=True)


def test_a_split_depth_and_given_tiles_change_no_bit():
    pipe = built(steep_codes, 70)
    given = inputs(pipe, 29)
    want = SingleThreadExecutor("reference").run(pipe, given)["y"]
    step = pipe.steps[0].name
    for tile in ({"kc": 16}, {"mr": 3, "nr": isa.select().lanes}, {"mc": 8, "kc": 8}):
        assert_array_equal(TilingExecutor(1, tile={step: tile}).run(pipe, given)["y"], want, strict=True)


def test_what_is_not_fused_is_said():
    pipe = Pipeline("test")
    acc = ops.gemm(pipe.input("a", "u8", ("M", K)), np.ones((K, 8), np.int8))
    real = ops.map(steep, ops.dequantize(acc, scale=F32(0.01)))
    pipe.output("y", ops.quantize(real, scale=pipe.argument("s", "f32"), dtype="u8"))
    plan = TilingExecutor(1).compile(pipe)
    assert "scale is known only at run time" in plan.explain()
    given = {"a": np.full((3, K), 9, np.uint8), "s": 0.5}
    assert_array_equal(plan.run(given)["y"], SingleThreadExecutor("reference").run(pipe, given)["y"], strict=True)


FUNCTIONS = {
    "steep": steep,
    "gelu": gelu_tanh.fn if not callable(gelu_tanh) else lambda x: gelu_tanh(x),
    "leaky": lambda x: x if x > 0 else x * 0.125,
    "branches": lambda x: np.rint(x) if x > 4 else (np.floor(x) if x < -4 else x * x),
    "clipped": lambda x: min(max(x, -1.0), 6.0) * (1.0 / 6.0),
    "rooted": lambda x: np.sqrt(abs(x)) / (1 + x * x),
    "logarithm": lambda x: np.log(1 + np.exp(-abs(x))) + max(x, 0.0),
    "integers": lambda x: (int(x) & 15) * 0.5 + (int(x) >> 3),
    "selected": lambda x: np.where(x != x, 0.0, np.sign(x)),
    "tanh": lambda x: np.tanh(x * 0.5) + 1,
}
SCALAR_FLOAT = re.compile(r"\bv?((add|sub|mul|div|min|max|sqrt|round|rndscale|fn?m(add|sub)\d+|cmp\w*|u?comi)s[sd])\b")
SCALAR_CONVERSION = re.compile(r"\bv?(cvtt?s[sd]2\w+|cvtu?si2s[sd])\b")


@pytest.mark.parametrize("level", [name for name in LEVELS if name and isa.LEVELS[name].arch != "aarch64"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_scalar_float_instruction_is_left(name, level):
    pipe = Pipeline("test")
    acc = ops.gemm(pipe.input("a", "u8", ("M", K)), np.ones((K, 70), np.int8))
    real = ops.map(FUNCTIONS[name], ops.dequantize(acc, scale=F32([0.01] * 70)))
    pipe.output("y", ops.quantize(real, scale=F32(0.02), dtype="u8"))
    stages = [
        user_finish.Stage(step.kernel, at, step.inputs)
        for step, at in zip(pipe.order()[1:], ("x", "x0", "x"), strict=True)
    ]
    made, _ = user_finish.user_finish(level, stages)
    fresh = f"{made.source()}# compiled, not loaded: {os.getpid()} {time.time_ns()}\n"
    keep = forge.entry(forge.Native(fresh, raw=True), 2, ()).keep
    text = keep.get_asm_str()
    assert re.search(r"\bv?mulps\b", text)
    assert not SCALAR_FLOAT.findall(text)
    assert not SCALAR_CONVERSION.findall(text)
