"""A scheme inside a pipeline leaves what it leaves outside of one."""

import numpy as np
import pytest

import tilework as tw
from tilework.primitives.errors import DTypeMismatch, ShapeMismatch, Unsupported


def halves(x):
    return np.rint(x * np.float32(2))


def halved(q):
    return np.float32(q) * np.float32(0.5)


HALVES = tw.Scheme("halves", 8, "row", {}, encode=halves, decode=halved, signed=True)


@pytest.mark.parametrize("scheme", [tw.schemes.get("int4_g32"), tw.schemes.get("int8_tensor"), HALVES])
def test_a_scheme_in_a_pipeline_is_the_scheme_outside(scheme):
    x = np.random.default_rng(0).standard_normal((9, 65)).astype(np.float32)
    pipe = tw.Pipeline()
    pipe.output("y", tw.ops.fake_quantize(pipe.input("x", "f32", ("N", 65)), scheme))
    wanted = scheme.fake_quantize(x)
    for executor in (tw.TilingExecutor(threads=2), tw.SingleThreadExecutor(backend="reference")):
        assert executor.run(pipe, {"x": x})["y"].tobytes() == wanted.tobytes()


def test_codes_in_a_pipeline_are_those_of_a_quantized_tensor():
    x = np.random.default_rng(1).standard_normal((5, 64)).astype(np.float32)
    scheme = tw.schemes.get("int4_g32")
    pipe = tw.Pipeline()
    codes, scale = tw.ops.encode(pipe.input("x", "f32", ("N", "K")), scheme)
    pipe.output("codes", codes)
    pipe.output("scale", scale)
    found = tw.TilingExecutor(threads=1).run(pipe, {"x": x})
    q = scheme.quantize(x)
    np.testing.assert_array_equal(found["codes"], q.codes, strict=True)
    np.testing.assert_array_equal(found["scale"], q.params["scale"], strict=True)


def test_what_it_cannot_take_is_named():
    pipe = tw.Pipeline()
    scheme = tw.schemes.get("int4_g32")
    with pytest.raises(DTypeMismatch, match="x is s32; f32 works"):
        tw.ops.fake_quantize(pipe.input("a", "s32", ("N", 64)), scheme)
    with pytest.raises(ShapeMismatch, match="with a known K"):
        tw.ops.fake_quantize(pipe.input("b", "f32", ("N", "K")), tw.schemes.get("int8_tensor"))
    nested = tw.Scheme("nested", 4, 64, {"scale": HALVES}, lambda x: (x[0],), halves, lambda q, scale: q * scale)
    with pytest.raises(Unsupported, match="scale of nested is stored by another scheme"):
        tw.ops.fake_quantize(pipe.input("c", "f32", ("N", 64)), nested)
