"""Results that are streamed past the caches: the same bits as ordinary stores give, wherever they lie."""

import numpy as np
import pytest

import tilework as tw
from tilework.kernels import ops
from tilework.kernels.cpu import isa as levels
from tilework.kernels.cpu import stores

F32 = np.float32
RNG = np.random.default_rng(11)
GAMMA = RNG.standard_normal(1500).astype(F32)
STEPS = {
    "add": lambda x: ops.add(x, np.arange(x.shape[-1], dtype=F32)),
    "quantize": lambda x: ops.quantize(x, 0.05, 128),
    "quantize by blocks": lambda x: ops.quantize(
        x, np.full((*x.shape[:-1], x.shape[-1] // 4), 0.05, F32), axis=1, block=4
    ),
    "dequantize": lambda x: ops.dequantize(ops.quantize(x, 0.05, 128)),
    "cast": lambda x: ops.cast(x, "f16"),
    "mapped": lambda x: ops.map(lambda v: v * v + 1.0, x, dtype="f32"),
    "rms norm": lambda x: ops.rms_norm(x, GAMMA[: x.shape[-1]]),
    "dynamic quantize": lambda x: ops.dynamic_quantize(x, granularity="row"),
    "dynamic quantize, whole": lambda x: ops.dynamic_quantize(x),
    "transpose": lambda x: ops.transpose(x, (1, 0)),
    "transpose f64": lambda x: ops.transpose(ops.cast(x, "f64"), (1, 0)),
    "transpose f16": lambda x: ops.transpose(ops.cast(x, "f16"), (1, 0)),
}


def results(name, x, threads, isa=None, out=None):
    pipe = tw.Pipeline(name)
    made = STEPS[name](pipe.input("x", x.dtype, x.shape))
    for n, y in enumerate(made if isinstance(made, tuple) else (made,)):
        pipe.output(f"y{n}", y)
    return tw.TilingExecutor(threads=threads, isa=isa).compile(pipe).run({"x": x}, out=out)


@pytest.fixture
def streamed(monkeypatch):
    """Call it, and what runs after is streamed whatever its size."""

    def begin():
        monkeypatch.setattr(stores, "least_bytes", lambda: 1)

    return begin


@pytest.mark.parametrize("name", STEPS)
def test_streamed_results_have_the_same_bits(name, streamed):
    # rows of a line's length, of a piece's, around them, too short ones, and one longer than a whole row may be
    arrays = [
        RNG.standard_normal(shape).astype(F32) for shape in [(7, 1028), (33, 132), (16, 1024), (96, 16), (3, 5000)]
    ]
    arrays = [x for x in arrays if "norm" not in name or x.shape[-1] <= GAMMA.size]
    plain = [results(name, x, 1) for x in arrays]
    streamed()
    for x, wanted in zip(arrays, plain, strict=True):
        for threads in (1, 2):
            found = results(name, x, threads)
            for slot, y in wanted.items():
                assert found[slot].tobytes() == y.tobytes(), (x.shape, threads, slot)


@pytest.mark.parametrize("isa", [level.name for level in levels.available()])
def test_streamed_results_have_the_same_bits_at_every_level(isa, streamed):
    x = RNG.standard_normal((9, 1028)).astype(F32)
    names = ("add", "quantize", "dynamic quantize", "rms norm", "transpose")
    plain = [results(name, x, 1, isa) for name in names]
    streamed()
    for name, wanted in zip(names, plain, strict=True):
        found = results(name, x, 1, isa)
        assert all(found[slot].tobytes() == y.tobytes() for slot, y in wanted.items()), name


@pytest.mark.parametrize("offset", [0, 4, 20, 60])
def test_nothing_beside_a_streamed_result_is_touched(offset, streamed):
    x = RNG.standard_normal((48, 1040)).astype(F32)
    for name, shape in (("add", x.shape), ("transpose", x.shape[::-1])):
        wanted = results(name, x, 1)["y0"]
        streamed()
        memory = np.full(x.nbytes + 256, 0xA5, np.uint8)
        start = -memory.ctypes.data % 64 + offset
        y = memory[start : start + x.nbytes].view(F32).reshape(shape)
        results(name, x, 2, out={"y0": y})
        assert y.tobytes() == wanted.tobytes()
        assert (memory[:start] == 0xA5).all()
        assert (memory[start + x.nbytes :] == 0xA5).all()


def test_what_only_passes_between_steps_of_a_stage_is_not_streamed(streamed, monkeypatch):
    asked = []

    def noted(result, operands):
        asked.append(bool(getattr(result, "passing", False)))
        return streams(result, operands)

    streams = stores.streams
    monkeypatch.setattr("tilework.kernels.cpu.nest.streams", noted)
    x = RNG.standard_normal((4096, 512)).astype(F32)
    pipe = tw.Pipeline("stage")
    pipe.output("y", ops.softmax(ops.exp(ops.softmax(pipe.input("x", "f32", x.shape)))))
    wanted = tw.TilingExecutor(threads=1, chain=False).compile(pipe).run({"x": x})["y"]
    streamed()
    asked.clear()
    assert tw.TilingExecutor(threads=1).compile(pipe).run({"x": x})["y"].tobytes() == wanted.tobytes()
    assert True in asked
    assert streams(x, (x, x)) == 1


def test_small_results_are_not_streamed():
    x = np.zeros((64, 64), F32)
    assert stores.streams(x, (x, x)) == 0
    large = np.broadcast_to(x[0, 0], (1 << 20, 1 << 10))
    assert stores.streams(large, (large, large)) == 1
