"""map compiled from the captured function: the same bits as plain Python, vectorised, and refused by name and line."""

import importlib
import os
import re
import sys
import time

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from tilework.executors import SingleThreadExecutor, TilingExecutor
from tilework.kernels import factory, forge, ops
from tilework.kernels.entry import OperandType
from tilework.kernels.map import Map
from tilework.kernels.vectormath import sigmoid
from tilework.primitives import Pipeline
from tilework.primitives.errors import CaptureError

F32 = np.float32
EACH = (((0, 1),),)
TABLE = F32([0.5, -1.25, 3, np.inf])
LEVELS = np.int32([7, -3, 100])


def adversarial():
    """Ties, infinities, NaN, subnormals, both zeros, the ends of every integer type, and random bit patterns."""
    ties = np.arange(-140, 140) / F32(2)
    ends = F32([127, 128, 255, 256, 32767, 32768, 65535, 65536, 2**31, 2**32, 3e38])
    special = F32([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, -1e-45, 1.1754942e-38, 1.1754944e-38, 88.8, -104.1])
    patterns = np.random.default_rng(0).integers(0, 2**32, 200, dtype=np.uint32).view(F32)
    with np.errstate(all="ignore"):
        return np.concatenate([ties, ends, -ends, np.nextafter(ends, F32(0)), special, patterns]).astype(F32)


def steep(x):
    return x * sigmoid(1.702 * x)


def bent(x, slope):
    if x > 1.5:
        return np.rint(x) * slope
    y = min(x, 4.0) if x != 0 else 0.25
    return max(y / 3, -2) + np.exp(-abs(x))


def looked_up(i):
    return TABLE[i & 3] * LEVELS[i % 3] + i


def shifted(a, b):
    return (a << 3) - (b >> 1) * 7 ^ b


def test_floats_have_the_bits_of_plain_python(same):
    same(Map(steep, ("f32",), "f32", 1, EACH), adversarial())
    same(Map(bent, ("f32", "f32"), "f32", 1, (*EACH, ()), ("slope",)), adversarial(), F32(-0.3))


@pytest.mark.parametrize("dtype", ["s8", "u16", "s32", "bool"])
def test_results_become_any_type_as_plain_python_makes_them(same, dtype):
    same(Map(steep, ("f32",), dtype, 1, EACH), adversarial())


@pytest.mark.parametrize("source", ["u8", "s16", "s32"])
def test_integers_have_the_bits_of_plain_python(same, source):
    info = np.iinfo(dict(u8=np.uint8, s16=np.int16, s32=np.int32)[source])
    ends = [info.min, info.min + 1, 0, 1, 2, info.max - 1, info.max]
    rng = np.random.default_rng(1)
    a, b = ([*ends, *rng.integers(info.min, info.max, 60)] for _ in range(2))
    kernel = Map(shifted, (source, source), "s16", 1, EACH * 2)
    same(kernel, np.array(a, info.dtype), np.array(b[::-1], info.dtype))


def test_closures_over_arrays_are_tables(same):
    found = same(Map(looked_up, ("s32",), "f32", 1, EACH), np.int32([0, 1, 2, 3, -1, 2**31 - 1]))
    assert_array_equal(found[:3], F32([3.5, 4.75, 302]))


def test_every_tail_gives_the_same_bits(run_on):
    kernel = Map(steep, ("f32",), "f32", 1, EACH)
    x = np.resize(adversarial()[::7], 71)
    right = run_on("reference", kernel, x)
    for n in range(71):
        assert_array_equal(run_on("cpu", kernel, x[:n]), right[:n], strict=True)


def test_strides_and_broadcast_operands_give_the_same_bits(same):
    each, rows = ((0, 1), (1, 1)), ((0, 1), None)
    kernel = Map(bent, ("f32", "f32"), "f32", 2, (each, rows))
    x, slopes = np.resize(adversarial(), (9, 34)), F32([[2], [-1], [0.5], [0], [3], [np.nan], [1], [1], [7]])
    for view in (x, x[::-1, ::2], np.asfortranarray(x), np.broadcast_to(x[0], (9, 34))):
        same(kernel, view, slopes)


def test_scalars_may_come_at_run_time():
    pipe = Pipeline("test")
    x = pipe.input("x", "f32", ("N",))
    pipe.output("y", ops.map(bent, x, slope=pipe.argument("s", "f32")))
    values = adversarial()
    for slope in (2.0, -0.5):
        want = SingleThreadExecutor("reference").run(pipe, {"x": values, "s": slope})["y"]
        for executor in (SingleThreadExecutor(), TilingExecutor(2)):
            assert_array_equal(executor.run(pipe, {"x": values, "s": slope})["y"], want, strict=True)


def test_an_edited_function_gives_the_edited_result(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    file = tmp_path / "edited_function.py"

    def result(text):
        file.write_text(text)
        importlib.invalidate_caches()
        sys.modules.pop("edited_function", None)
        pipe = Pipeline("test")
        pipe.output("y", ops.map(importlib.import_module("edited_function").fn, pipe.input("x", "f32", (2,))))
        return TilingExecutor(1).run(pipe, {"x": F32([1, 2])})["y"].tolist()

    assert result("def fn(x):\n    return x * 3\n") == [3, 6]
    assert result("def fn(x):\n    return x - 10\n") == [-9, -8]


def test_a_changed_closure_gives_the_changed_result():
    def made(factor):
        pipe = Pipeline("test")
        pipe.output("y", ops.map(lambda x: x * factor, pipe.input("x", "f32", (1,))))
        return TilingExecutor(1).run(pipe, {"x": F32([8])})["y"].tolist()

    assert [made(2), made(0.5)] == [[16], [4]]


def test_what_cannot_be_captured_is_refused_when_the_op_is_called():
    x = Pipeline("test").input("x", "f32", (2,))

    def opens(v):
        y = v * 2
        return open(y)

    line = opens.__code__.co_firstlineno + 2
    with pytest.raises(CaptureError, match=rf"^opens \(test_map_compiled.py, line {line}\): calls 'open'"):
        ops.map(opens, x)
    with pytest.raises(CaptureError, match="returns 2 values; map takes one"):
        ops.map(lambda v: (v, v), x)
    with pytest.raises(CaptureError, match="takes 1 arguments; 2 were given"):
        Map(steep, ("f32", "f32"), "f32", 1, EACH * 2)


def test_the_captured_variant_runs_unless_python_is_asked_for(monkeypatch):
    kernel = Map(steep, ("f32",), "f32", 1, EACH)
    for disabled, variant in ((False, "captured"), (True, "interpreted")):
        monkeypatch.setattr("tilework.kernels.cpu.map.jit_disabled", lambda disabled=disabled: disabled)
        assert factory.find("map", "cpu", kernel=kernel).variant == variant


@pytest.mark.skipif(forge.jit_disabled(), reason="looks at compiled code")
@pytest.mark.parametrize("fn", [steep, lambda x: np.floor(x / 3) if x > 0 else x * 0.125], ids=["steep", "branch"])
def test_the_loop_is_vectorised(fn):
    native = factory.get("map", "cpu", kernel=Map(fn, ("f32",), "u8", 1, EACH)).tile
    fresh = forge.Native(f"{native.source}# compiled, not loaded: {os.getpid()} {time.time_ns()}\n")
    keep = forge.entry(fresh, 1, (OperandType("f32", 1), OperandType("u8", 1)), 1).keep
    text = keep.get_asm_str()
    assert re.search(r"v?(mul|div)ps\b.*[xyz]mm|fmul\s+v\d+\.4s|fdiv\s+v\d+\.4s", text)
