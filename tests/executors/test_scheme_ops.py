"""Schemes inside pipelines: activations of any rank, dynamic and static, and caches of keys that stay codes."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import tilework as tw
from tilework import Pipeline, SingleThreadExecutor, TilingExecutor, ops
from tilework.primitives.errors import ArgumentError, QuantizationError, ShapeMismatch, Unsupported

EXECUTORS = [SingleThreadExecutor("reference"), TilingExecutor(1), TilingExecutor(2)]


def numbers(*shape, seed=0):
    x = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    x.reshape(-1)[::7] = 0
    return x


@pytest.mark.parametrize(("name", "shape"), [("int8_channel", (2, 3, 40)), ("int4_g32_asym", (5, 70)), ("nf4", (130,))])
def test_activations_of_any_rank_are_quantized_at_run_time(name, shape):
    scheme, x = tw.schemes.get(name), numbers(*shape)
    pipe = Pipeline("activations")
    value = pipe.input("x", "f32", ("T", *shape[1:]) if len(shape) > 1 else shape)
    pipe.output("y", ops.fake_quantize(value, scheme))
    pipe.output("codes", ops.encode(value, scheme)[0])
    q = scheme.quantize(x)
    for executor in EXECUTORS:
        found = executor.run(pipe, {"x": x})
        assert_array_equal(found["y"], q.dequantize(), strict=True)
        assert_array_equal(found["codes"], q.codes.reshape(found["codes"].shape))


def test_static_parameters_are_those_of_the_calibration():
    scheme, x = tw.schemes.get("int8_tensor_asym"), numbers(3, 4, 20)
    static = scheme.fit_params(numbers(6, 20, seed=1))
    pipe = Pipeline("static")
    pipe.output("y", ops.fake_quantize(pipe.input("x", "f32", ("B", "T", 20)), scheme, static))
    right = scheme.quantize(x, static).dequantize()
    assert not np.array_equal(right, scheme.fake_quantize(x))
    for executor in EXECUTORS[1:]:
        assert_array_equal(executor.run(pipe, {"x": x})["y"], right, strict=True)


@pytest.mark.parametrize("name", ["int8_channel", "int4_g32_asym", "mxfp4"])
def test_keys_that_stay_codes_from_run_to_run(name):
    """What comes back are the rows so far, each as the scheme leaves it, and zeros of the scheme behind them."""
    scheme = tw.schemes.get(name)
    B, G, C, D = 2, 3, 6, 40
    pipe = Pipeline("cache")
    cache = ops.scheme_cache(pipe, "keys", scheme, (B, G, C, D))
    pipe.output("keys", cache.append(pipe.input("new", "f32", (B, G, "T", D)), pipe.input("at", "s64", ())))
    assert pipe.values["keys_codes"].data.nbytes < B * G * C * D * 4 / 3.9
    for executor in EXECUTORS[1:]:
        plan, right, at = executor.compile(pipe), np.zeros((B, G, C, D), np.float32), 0
        for n, rows in enumerate((3, 1, 2)):
            new = numbers(B, G, rows, D, seed=n)
            right[:, :, at : at + rows] = scheme.quantize(new).dequantize()
            found = plan.run({"new": new, "at": np.int64(at)})["keys"]
            at += rows
            assert_array_equal(found[:, :, :at], right[:, :, :at])
        with pytest.raises(ArgumentError, match="end behind the cache"):
            plan.run({"new": numbers(B, G, 1, D), "at": np.int64(C)})


def test_what_cannot_be_is_said():
    pipe = Pipeline("refused")
    x = pipe.input("x", "f32", ("N", 64))
    with pytest.raises(ShapeMismatch, match="known at run time only"):
        ops.encode(x, tw.schemes.get("int4_g32"), {"scale": 1.0})
    with pytest.raises(ArgumentError, match="int8_tensor has scale"):
        ops.encode(x, tw.schemes.get("int8_tensor"), {"step": 1.0})
    with pytest.raises(QuantizationError, match="NaN"):
        ops.encode(x, tw.schemes.get("int8_tensor"), {"scale": np.nan})
    with pytest.raises(Unsupported, match="stored by another scheme"):
        ops.encode(x, tw.schemes.get("nf4_double"))
    with pytest.raises(Unsupported, match="blocks within a row"):
        ops.scheme_cache(pipe, "keys", tw.schemes.get("int8_tensor"), (1, 1, 4, 8))
    wide = tw.schemes.get("int4_g32_asym").replace(name="wide_zero", params={"scale": "f32", "zero": "s16"})
    with pytest.raises(Unsupported, match="keeps s16"):
        ops.scheme_cache(pipe, "keys", wide, (1, 1, 4, 32))
    codes, scale = ops.encode(x, tw.schemes.get("int8_channel"))
    with pytest.raises(ArgumentError, match="0 parameters; int8_channel has scale"):
        ops.decode(codes, [], tw.schemes.get("int8_channel"), 64)
    assert ops.decode(codes, [scale], tw.schemes.get("int8_channel"), 64).shape == x.shape


def attending(scheme, how, heads, shared, C, D):
    """Attention over caches that are taken in their codes (extend), or decoded as a whole (append)."""
    pipe = Pipeline("attending")
    q, start = pipe.input("q", "f32", (1, heads, "T", D)), pipe.argument("start", "s64")
    rows = []
    for name in ("keys", "values"):
        cache = ops.scheme_cache(pipe, name, scheme, (1, shared, C, D))
        rows.append(getattr(cache, how)(pipe.input(name[0], "f32", (1, shared, "T", D)), start))
    pipe.output("y", ops.attention(q, *rows, causal=True, offset=start))
    return pipe


@pytest.mark.parametrize(("name", "fused"), [("int8_channel", True), ("int4_g32_asym", True), ("q8_0", False)])
def test_attention_decodes_a_cache_as_it_reads_it(name, fused):
    """The bits of decoding it first: for several tokens, and for one whose heads share keys."""
    scheme, (heads, shared, C, D) = tw.schemes.get(name), (6, 2, 70, 40 if fused else 64)
    whole = TilingExecutor(1).compile(attending(scheme, "append", heads, shared, C, D))
    pipe = attending(scheme, "extend", heads, shared, C, D)
    assert ("attention_coded" in [step.kernel.name for step in pipe.steps]) == fused
    plans, at = [executor.compile(pipe) for executor in EXECUTORS], 0
    for n, rows in enumerate((66, 1, 3)):
        sizes = {"q": heads, "k": shared, "v": shared}
        given = {slot: numbers(1, count, rows, D, seed=n + count) for slot, count in sizes.items()}
        given["start"] = np.int64(at)
        right = whole.run(given)["y"]
        for plan in plans:
            assert_array_equal(plan.run(given)["y"], right, strict=True)
        at += rows
