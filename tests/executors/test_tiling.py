"""The tiled executor by itself: index spaces, tiles of every size, scratch of every thread, taps, and its fast way."""

from dataclasses import dataclass

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from tilework.executors import SingleThreadExecutor, TilingExecutor
from tilework.executors.tiling import default_threads
from tilework.kernels import factory, forge, ops
from tilework.primitives.errors import ArgumentError, ShapeMismatch, TileworkError
from tilework.primitives.kernel import Affine, ArgSpec, Axis, IndexSpace
from tilework.primitives.pipeline import Pipeline

# A kernel of three axes, one of which cannot be cut and one of which is cut at multiples of 4 only. It says so itself
# where it was cut elsewhere. It sums over k, so that a tile that ran twice or not at all shows.


@dataclass(frozen=True)
class Sum3:
    name = "sum3"
    statuses = None

    def signature(self):
        return (
            ArgSpec("x", "s32", shape=("B", "M", "K", "N"), follows=("b", "m", None, "n")),
            ArgSpec("y", "s32", "write", shape=("B", "M", "N"), follows=("b", "m", "n")),
        )

    def index_space(self):
        return IndexSpace((Axis("b", "B"), Axis("m", "M", multiple=4), Axis("n", "N", split=False)))

    def execute(self, ctx):
        ctx.sweep(self, ctx.read("x"), ctx.write("y"))


SUM3 = """from numba import njit
import numpy as np

@njit(nogil=True, error_model="numpy")
def tile(b0, b1, m0, m1, n0, n1, x, y):
    if n0 != 0 or n1 != y.shape[2] or m0 % 4 != 0 or (m1 % 4 != 0 and m1 != y.shape[1]):
        return np.int32(5)
    for b in range(b0, b1):
        for m in range(m0, m1):
            for n in range(n0, n1):
                total = np.int32(0)
                for k in range(x.shape[2]):
                    total += x[b, m, k, n]
                y[b, m, n] = total
    return np.int32(0)
"""


@dataclass(frozen=True)
class Blur:
    """y[n] = x[n - 1] + x[n] + x[n + 1], x being zero outside: its operand is needed with a halo."""

    name = "blur"

    def signature(self):
        return (
            ArgSpec("x", "s32", shape=("N", "C"), follows=(Affine("n", 1, 1, 1), None)),
            ArgSpec("y", "s32", "write", shape=("N", "C"), follows=("n", None)),
        )

    def index_space(self):
        return IndexSpace((Axis("n", "N"),))

    def execute(self, ctx):
        ctx.sweep(self, ctx.read("x"), ctx.write("y"))


BLUR = """from numba import njit

@njit(nogil=True, error_model="numpy")
def tile(n0, n1, x, y):
    for n in range(n0, n1):
        for c in range(x.shape[1]):
            y[n, c] = x[n, c]
            if n > 0:
                y[n, c] += x[n - 1, c]
            if n + 1 < x.shape[0]:
                y[n, c] += x[n + 1, c]
"""


@dataclass(frozen=True)
class Scratchy:
    """Each tile fills its thread's scratch with its first row, and hands it on to a second loop: row m becomes m."""

    name = "scratchy"

    def signature(self):
        return (
            ArgSpec("x", "s32", shape=("M", "N"), follows=("m", None)),
            ArgSpec("y", "s32", "write", shape=("M", "N"), follows=("m", None)),
        )

    def index_space(self):
        return IndexSpace((Axis("m", "M"),))

    def execute(self, ctx):
        x, y = ctx.read("x"), ctx.write("y")
        first, second = ctx.scratch(4 * x.shape[1]), ctx.scratch(4 * x.shape[1])
        ctx.sweep(self, x, first.view(np.int32), second.view(np.int32), y)


SCRATCHY = """from numba import njit

@njit(nogil=True, error_model="numpy")
def tile(m0, m1, x, first, second, y):
    for m in range(m0, m1):
        for n in range(x.shape[1]):
            first[n] = m
        for n in range(x.shape[1]):
            second[n] = first[n] + 1
        for n in range(x.shape[1]):
            y[m, n] = x[m, n] + second[n] - 1
"""


@pytest.fixture(autouse=True, scope="module")
def _registered():
    for name, source in (("sum3", SUM3), ("blur", BLUR), ("scratchy", SCRATCHY)):
        factory.register(name, backend="cpu")(lambda source=source: forge.Native(source))
    yield
    for name in ("sum3", "blur", "scratchy"):
        factory.unregister(name, "cpu")


def blurred(x):
    padded = np.pad(x, ((1, 1), (0, 0)))
    return padded[:-2] + padded[1:-1] + padded[2:]


THREADS = [1, 2, 3]


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize(
    "shape", [(1, 1, 1, 1), (3, 9, 2, 5), (1, 127, 40, 33), (7, 64, 3, 64), (2, 0, 3, 4), (5, 3, 0, 2)]
)
def test_three_axes_are_cut_only_where_they_may_be(threads, shape):
    pipe = Pipeline("p")
    pipe.output("y", pipe.add(Sum3(), x=pipe.input("x", "s32", ("B", "M", "K", "N"))))
    x = np.random.default_rng(0).integers(-9, 9, shape, np.int32)
    right = x.sum(2, dtype=np.int32)
    for executor in (TilingExecutor(threads=threads), SingleThreadExecutor()):
        assert_array_equal(executor.run(pipe, {"x": x})["y"], right, strict=True)
    assert_array_equal(TilingExecutor(threads=threads).run(pipe, {"x": x[::-1, :, :, ::-1]})["y"], right[::-1, :, ::-1])


@pytest.mark.parametrize(
    "tile", [{"b": 1}, {"m": 4}, {"b": 2, "m": 8}, {"m": 400}, {"n": 33}, {"b": 1, "m": 4, "n": 99}]
)
@pytest.mark.parametrize("threads", THREADS)
def test_tiles_of_any_size_give_the_same(tile, threads):
    pipe = Pipeline("p")
    pipe.output("y", pipe.add(Sum3(), x=pipe.input("x", "s32", ("B", "M", "K", "N"))))
    x = np.random.default_rng(0).integers(-9, 9, (3, 13, 4, 33), np.int32)
    plan = TilingExecutor(threads=threads, tile={"sum3": tile}).compile(pipe)
    assert_array_equal(plan.run({"x": x})["y"], x.sum(2, dtype=np.int32), strict=True)
    counts = [-(-n // tile.get(a, n)) for a, n in zip("bmn", (3, 13, 33), strict=True)]
    assert f"tiles {' x '.join(map(str, counts))}" in plan.explain()


@pytest.mark.parametrize(
    ("tile", "says"),
    [
        ({"sum3": {"q": 1}}, "has no axis 'q'; it has b, m, n"),
        ({"sum3": {"m": 3}}, "tile m=3 of kernel 'sum3': a positive multiple of 4 is needed"),
        ({"sum3": {"b": 0}}, "a positive multiple of 1 is needed"),
        ({"sum3": {"n": 5}}, "axis 'n' of kernel 'sum3' cannot be split"),
        ({"sum4": {"b": 1}}, "tile= names step 'sum4'; the plan has sum3"),
    ],
)
def test_a_tile_that_cannot_be_is_refused(tile, says):
    pipe = Pipeline("p")
    pipe.output("y", pipe.add(Sum3(), x=pipe.input("x", "s32", ("B", "M", "K", "N"))))
    with pytest.raises(ArgumentError, match=says):
        TilingExecutor(threads=1, tile=tile).run(pipe, {"x": np.zeros((2, 8, 1, 33), np.int32)})


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("n", [1, 2, 3, 1000, 5000])
def test_a_halo_is_there_however_the_steps_are_cut(threads, n):
    pipe = Pipeline("p")
    x = pipe.input("x", "s32", ("N", 16))
    y = x
    for _ in range(3):
        y = pipe.add(Blur(), x=ops.relu(y))
    pipe.output("y", y)
    given = np.random.default_rng(0).integers(-9, 9, (n, 16), np.int32)
    right = given
    for _ in range(3):
        right = blurred(np.maximum(right, 0))
    assert_array_equal(TilingExecutor(threads=threads).run(pipe, {"x": given})["y"], right, strict=True)


@pytest.mark.parametrize("threads", THREADS)
def test_every_thread_has_scratch_of_its_own_for_any_number_of_tiles(threads):
    """The fault of numba/numba#9529: an array made in a parallel loop was one for all iterations of a worker."""
    pipe = Pipeline("p")
    pipe.output("y", pipe.add(Scratchy(), x=pipe.input("x", "s32", ("M", "N"))))
    m = 8 * threads * 6
    x = np.zeros((m, 200), np.int32)
    right = np.repeat(np.arange(m, dtype=np.int32)[:, None], 200, 1)
    for tiles in (1, threads, threads + 1, 8 * threads, m):
        plan = TilingExecutor(threads=threads, tile={"scratchy": {"m": -(-m // tiles)}}).compile(pipe)
        for _ in range(3):
            assert_array_equal(plan.run({"x": x})["y"], right)
    assert_array_equal(SingleThreadExecutor().run(pipe, {"x": x})["y"], right)


# Taps and plans ---------------------------------------------------------------------------------------------------


def network():
    rng = np.random.default_rng(0)
    pipe = Pipeline("p")
    x = pipe.input("x", "u8", ("M", 16))
    acc = ops.gemm(x, rng.integers(-9, 9, (16, 8), np.int8))
    s = pipe.state("s", "s32", (8,), 1)
    pipe.update(s, ops.add(s, np.int32(1)))
    y = ops.requantize(ops.add(acc, s), multiplier=0.05, dtype="s8")
    pipe.output("y", ops.relu(y))
    return pipe


def test_a_tap_gives_what_the_reference_gives_and_goes_on_with_the_states():
    pipe = network()
    feed = {"x": np.arange(48, dtype=np.uint8).reshape(3, 16)}
    plan, reference = TilingExecutor(threads=2).compile(pipe), SingleThreadExecutor("reference")
    names = [v.name for step in pipe.order() for v in step.outputs.values()]
    tapped = Pipeline.load(saved(pipe))
    for name in names:
        tapped.output(name, tapped.values[name])
    other = reference.compile(tapped)
    for n in range(4):
        taps = names if n % 2 else names[:1]
        found, right = plan.run(feed, tap=taps), other.run(feed)
        assert set(found) == {"y", *taps}
        for name, array in found.items():
            assert_array_equal(array, right[name], strict=True)
    assert_array_equal(plan.run(feed)["y"], other.run(feed)["y"])
    assert_array_equal(plan.state["s"], other.state["s"])
    with pytest.raises(ArgumentError, match="there is no value 'nothing' to tap; the steps write"):
        plan.run(feed, tap=["nothing"])


def saved(pipe):
    import io

    file = io.BytesIO()
    pipe.save(file)
    file.seek(0)
    return file


def test_sizes_are_checked_when_a_plan_is_made_for_them():
    plan = TilingExecutor(threads=1).compile(network(), {"x": (4, 16)})
    assert "M = 4" in plan.explain()
    with pytest.raises(ShapeMismatch, match="axis 1 is 15, but 16 is asked for"):
        TilingExecutor(threads=1).compile(network(), {"x": (4, 15)})
    with pytest.raises(ArgumentError, match="shapes= lacks 'x', whose size is not fixed"):
        TilingExecutor(threads=1).compile(network(), {})
    with pytest.raises(ArgumentError, match="there is no input 'z'; there is x"):
        TilingExecutor(threads=1).compile(network(), {"z": (4, 16)})


def test_other_sizes_compile_nothing():
    plan = TilingExecutor(threads=2).compile(network())
    plan.run({"x": np.zeros((5, 16), np.uint8)})
    before = forge.Counts.compiled, forge.Counts.loaded
    for m in (1, 6, 64, 333):
        plan.run({"x": np.zeros((m, 16), np.uint8)})
    assert (forge.Counts.compiled, forge.Counts.loaded) == before


def test_the_number_of_threads_comes_from_the_environment(monkeypatch):
    monkeypatch.setenv("TILEWORK_NUM_THREADS", "3")
    assert default_threads() == TilingExecutor().threads == 3
    assert TilingExecutor(threads=1).threads == 1
    for wrong in ("0", "-1", "many", ""):
        monkeypatch.setenv("TILEWORK_NUM_THREADS", wrong)
        with pytest.raises(ArgumentError, match="a positive integer is needed"):
            default_threads()


# The fast way: after a first run, a call whose arrays are as they were goes straight to native code -----------------


@pytest.fixture
def plan():
    pipe = Pipeline("p")
    x, w = pipe.input("x", "f32", ("M", 4)), pipe.input("w", "f32", (4, 4))
    pipe.output("y", ops.add(x, np.float32(1)))
    pipe.output("z", ops.relu(w))
    plan = TilingExecutor(threads=1).compile(pipe)
    for _ in range(3):
        plan.run({"x": np.zeros((3, 4), np.float32), "w": np.zeros((4, 4), np.float32)})
    return plan


X = np.arange(12, dtype=np.float32).reshape(3, 4) - 5
W = np.arange(16, dtype=np.float32).reshape(4, 4) - 8


class Sub(np.ndarray):
    pass


SAME = {
    "other arrays": (X.copy(), W.copy()),
    "another order of the keys": (X, W),
    "more rows": (np.arange(40, dtype=np.float32).reshape(10, 4), W),
    "no rows": (np.zeros((0, 4), np.float32), W),
    "one row": (X[:1], W),
    "Fortran order": (np.asfortranarray(X), np.asfortranarray(W)),
    "reversed": (X[::-1], W[:, ::-1]),
    "every other": (np.repeat(X, 2, 1)[:, ::2], W),
    "the same array twice": (W, W),
    "read-only": (np.frombuffer(X.tobytes(), np.float32).reshape(3, 4), W),
    "a subclass": (X.view(Sub), W),
    "a new dtype object": (X.astype(np.dtype("<f4", copy=True)), W),
    "broadcast": (np.broadcast_to(X[:1], (3, 4)), W),
}


@pytest.mark.parametrize(("x", "w"), SAME.values(), ids=SAME)
def test_the_fast_way_takes_what_the_ordinary_way_takes(plan, x, w):
    for _ in range(2):
        for feed in ({"x": x, "w": w}, {"w": w, "x": x}):
            y, z = np.full(x.shape, 7, np.float32), np.full((8, 8), 7, np.float32)
            found = plan.run(feed)
            assert_array_equal(found["y"], np.asarray(x) + 1, strict=True)
            assert_array_equal(found["z"], np.maximum(w, 0), strict=True)
            plan.run(feed, out={"y": y, "z": z[::2, ::2]})
            assert_array_equal(y, np.asarray(x) + 1, strict=True)
            assert_array_equal(z[::2, ::2], np.maximum(w, 0))
            assert (z[1::2] == 7).all()


def unaligned(x):
    block = np.zeros(x.nbytes + 1, np.uint8)
    view = block[1:].view(x.dtype).reshape(x.shape)
    view[...] = x
    return view


DIFFERENT = {
    "another type of the same size": (X.view(np.int32), W),
    "the other byte order": (X.astype(">f4"), W),
    "unaligned": (unaligned(X), W),
    "another inner size": (X[:, :3].copy(), W),
    "another rank": (X[None], W),
    "a scalar": (np.float32(3), W),
    "None": (None, W),
    "a string": ("x", W),
    "a smaller weight": (X, W[:3]),
    "objects": (X.astype(object), W),
}


@pytest.mark.parametrize(("x", "w"), DIFFERENT.values(), ids=DIFFERENT)
def test_the_fast_way_refuses_what_the_ordinary_way_refuses(plan, x, w):
    with pytest.raises(TileworkError):
        plan.run({"x": x, "w": w})
    assert_array_equal(plan.run({"x": X, "w": W})["y"], X + 1)


def test_the_fast_way_checks_the_callers_outputs(plan):
    def fresh():
        return np.zeros((3, 4), np.float32)

    frozen, block = fresh(), np.zeros(40, np.float32)
    frozen.flags.writeable = False
    for out in (
        {"y": frozen},
        {"y": fresh().astype(">f4")},
        {"y": fresh().view(np.int32)},
        {"y": unaligned(fresh())},
        {"y": np.zeros((4, 3), np.float32)},
        {"y": np.zeros(12, np.float32)},
        {"y": np.zeros((2, 4), np.float32)},
        {"y": None},
        {"y": "y"},
        {"nothing": fresh()},
        {"y": block[:12].reshape(3, 4), "z": block[8:24].reshape(4, 4)},
        {"z": np.lib.stride_tricks.as_strided(block, (4, 4), (4, 4))},
    ):
        with pytest.raises(TileworkError):
            plan.run({"x": X, "w": W}, out=out)
        assert_array_equal(plan.run({"x": X, "w": W})["z"], np.maximum(W, 0))
    assert not frozen.any()
    assert not block.any()
    x = np.zeros((4, 4), np.float32)
    for feed, out in (
        ({"x": x, "w": W}, {"z": x}),
        ({"x": x[:3], "w": x}, {"y": x[1:]}),
        ({"x": X, "w": x}, {"y": x[:3]}),
    ):
        with pytest.raises(ValueError, match="overlaps"):
            plan.run(feed, out=out)
    assert not x.any()


def test_arrays_may_go_away_and_change_between_runs(plan):
    rng = np.random.default_rng(0)
    for _ in range(200):
        x, w = rng.normal(size=(3, 4)).astype(np.float32), rng.normal(size=(4, 4)).astype(np.float32)
        found = plan.run({"x": x, "w": w})
        right = x + 1, np.maximum(w, 0)
        del x, w
        assert_array_equal(found["y"], right[0])
        assert_array_equal(found["z"], right[1])
