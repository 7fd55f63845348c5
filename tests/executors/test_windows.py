"""Stages of steps that read through windows: tiles compute their halos, and the bytes are those of the whole."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from tilework.executors import SingleThreadExecutor, TilingExecutor, chaining, cutting
from tilework.executors.verify import verify
from tilework.kernels import factory, forge, ops
from tilework.primitives.errors import PipelineError
from tilework.primitives.kernel import Affine, ArgSpec, Axis, IndexSpace
from tilework.primitives.pipeline import Pipeline


@dataclass(frozen=True)
class Window:
    """y[n] = sum of x[step * n - before .. step * n + after], x being zero outside."""

    step: int = 1
    before: int = 1
    after: int = 1
    multiple: int = 1
    name = "window"

    def signature(self):
        follows = (Affine("n", self.step, self.before, self.after), None)
        size = "N" if self.step == 1 else f"ceildiv(N, {self.step})"
        return (
            ArgSpec("x", "s32", shape=("N", "C"), follows=follows),
            ArgSpec("y", "s32", "write", shape=(size, "C"), follows=("n", None)),
        )

    def index_space(self):
        return IndexSpace((Axis("n", "N" if self.step == 1 else f"ceildiv(N, {self.step})", multiple=self.multiple),))

    def execute(self, ctx):
        ctx.sweep(self, ctx.read("x"), ctx.write("y"))


SOURCE = """from numba import njit
import numpy as np

@njit(nogil=True, error_model="numpy")
def tile(n0, n1, x, y, step, before, after):
    for n in range(n0, n1):
        for c in range(x.shape[1]):
            total = np.int32(0)
            for p in range(max(0, step * n - before), min(x.shape[0], step * n + after + 1)):
                total += x[p, c]
            y[n, c] = total
"""


@pytest.fixture(autouse=True, scope="module")
def _registered():
    def build(kernel):
        words = (kernel.step, kernel.before, kernel.after)
        return factory.WithParams(forge.Native(SOURCE), lambda *operands: words)

    factory.register("window", backend="cpu")(build)
    yield
    factory.unregister("window", "cpu")


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    """Nothing is too small to be chained or cut."""
    for module, name, value in (
        (chaining, "WORTH", 0),
        (chaining, "LEAST_ROWS", 4),
        (chaining, "L2", 4000),
        (chaining, "MOST_AGAIN", 10.0),
        (cutting, "SMALL", 0),
    ):
        monkeypatch.setattr(module, name, value)


def windows(*kernels, tail=None):
    pipe = Pipeline("windows")
    h = pipe.input("x", "s32", ("N", 5))
    for kernel in kernels:
        h = pipe.add(kernel, x=h)
    pipe.output("y", h if tail is None else tail(pipe, h))
    return pipe


CASES = {
    "two": windows(Window(), Window()),
    "wide": windows(Window(1, 3, 0), Window(1, 0, 5), Window(1, 2, 2)),
    "strided": windows(Window(), Window(2, 1, 1), Window()),
    "strided twice": windows(Window(2, 0, 1), Window(3, 1, 1), Window()),
    "multiples": windows(Window(1, 1, 1, 4), Window(1, 1, 1, 6), Window(1, 1, 1, 1)),
    "relu between": windows(Window(), Window(), tail=lambda pipe, h: pipe.add(Window(), x=ops.relu(h))),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("threads", [1, 3])
def test_windows_chain_to_the_same_bytes(name, threads):
    pipe = CASES[name]
    plan = TilingExecutor(threads).compile(pipe)
    chained = 0
    for n in (1, 2, 7, 48, 97, 300):
        x = np.random.default_rng(n).integers(-1000, 1000, (n, 5), dtype=np.int32)
        whole = SingleThreadExecutor().run(pipe, {"x": x})["y"]
        assert_array_equal(plan.run({"x": x})["y"], whole, strict=True)
        assert_array_equal(TilingExecutor(threads, chain=False).run(pipe, {"x": x})["y"], whole, strict=True)
        chained += len(plan.prepare({"x": x.shape}).chains)
    assert chained > 0
    assert "is done twice, at the tiles' edges" in plan.explain()


def test_what_is_kept_is_written_once_and_ends_the_stage_before_a_window():
    pipe = Pipeline("kept")
    a = pipe.add(Window(), x=pipe.input("x", "s32", ("N", 5)))
    b = pipe.add(Window(), x=a)
    c = pipe.add(Window(), x=b)
    pipe.output("b", b)
    pipe.output("c", c)
    plan = TilingExecutor(2).compile(pipe)
    x = np.random.default_rng(0).integers(-1000, 1000, (300, 5), dtype=np.int32)
    found, right = plan.run({"x": x}), SingleThreadExecutor().run(pipe, {"x": x})
    assert all(found[k].tobytes() == right[k].tobytes() for k in ("b", "c"))
    (chain,) = plan.prepare({"x": x.shape}).chains
    assert [s.name for s in chain.steps] == ["window", "window.2"]


def test_a_residual_around_two_windows_stays_in_the_stage():
    pipe = Pipeline("residual")
    first = pipe.add(Window(), x=pipe.input("x", "s32", ("N", 5)))
    second = pipe.add(Window(1, 2, 2), x=pipe.add(Window(), x=first))
    pipe.output("y", ops.add(second, first))
    x = np.random.default_rng(0).integers(-1000, 1000, (300, 5), dtype=np.int32)
    plan = TilingExecutor(3).compile(pipe)
    assert_array_equal(plan.run({"x": x})["y"], SingleThreadExecutor().run(pipe, {"x": x})["y"], strict=True)
    (chain,) = plan.prepare({"x": x.shape}).chains
    assert len(chain.steps) == 4


def test_halos_that_cost_more_than_they_save_are_not_computed_twice(monkeypatch):
    monkeypatch.setattr(chaining, "MOST_AGAIN", 1.0)
    plan = TilingExecutor(2).compile(CASES["two"])
    assert not [c for c in plan.prepare({"x": (300, 5)}).chains if c.tile < c.size]


def test_a_chain_with_a_row_too_few_is_found_out():
    plan = TilingExecutor(2).compile(CASES["two"])
    binding = plan.prepare({"x": (300, 5)})
    (chain,) = binding.chains
    verify(binding.laid, binding.placed, binding.shapes, [chain], ())

    def changed(*moved):
        """The binding's steps, the tiles of which begin and end elsewhere."""
        stage = binding.laid[0].stages[0]
        rows = tuple(replace(row, ranges=row.ranges + np.array(by)) for row, by in zip(stage.rows, moved, strict=True))
        return [replace(binding.laid[0], stages=[replace(stage, rows=rows)]), *binding.laid[1:]]

    with pytest.raises(PipelineError, match=r"'window.2' reads more of what 'window' writes than its tile has of it"):
        verify(changed([0, -1], [0, 0]), binding.placed, binding.shapes, [chain], ())
    with pytest.raises(PipelineError, match=r"write parts of 'window.2.y' twice"):
        verify(changed([-5, 5], [0, 1]), binding.placed, binding.shapes, [chain], ())


def test_values_that_overlap_while_alive_are_found_out():
    pipe = Pipeline("alive")
    x = pipe.input("x", "s32", ("N", 5))
    a, b = pipe.add(Window(), x=x), pipe.add(Window(), x=x)
    pipe.output("y", ops.add(pipe.add(Window(), x=a), pipe.add(Window(), x=b)))
    binding = TilingExecutor(1, chain=False).compile(pipe).prepare({"x": (300, 5)})
    verify(binding.laid, binding.placed, binding.shapes, (), ())
    one = binding.placed["window.y"]
    wrong = dict(binding.placed) | {"window.2.y": replace(one, offset=one.offset + 8)}
    with pytest.raises(PipelineError, match="are alive together and overlap in the arena"):
        verify(binding.laid, wrong, binding.shapes, (), ())


def test_explain_counts_the_bytes_that_no_longer_travel():
    plan = TilingExecutor(2).compile(CASES["two"])
    plan.prepare({"x": (300, 5)})
    assert (
        f"{2 * 300 * 5 * 4} bytes no longer travel, there and back, in a thread's own tile: window.y" in plan.explain()
    )
    pipe = Pipeline("fused")
    acc = ops.gemm(pipe.input("x", "u8", ("M", 16)), np.ones((16, 8), np.int8))
    pipe.output("y", ops.requantize(acc, multiplier=np.float32(0.1)))
    plan = TilingExecutor(1).compile(pipe)
    plan.prepare({"x": (10, 16)})
    assert f"{2 * 10 * 8 * 4} bytes no longer travel, there and back, in registers: gemm_u8s8s32.acc" in plan.explain()
