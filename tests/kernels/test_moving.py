"""Data movement: every step against NumPy or its meaning, on the reference, one thread and several, bit for bit."""

import itertools

import ml_dtypes
import numpy as np
import pytest

import tilework as tw
from tilework.kernels import ops
from tilework.kernels.moving.gather import Gather, GatherElements, GatherND
from tilework.kernels.moving.order import CumSum, OneHot, TopK, Trilu
from tilework.kernels.moving.resize import Resize
from tilework.primitives.errors import ArgumentError, DTypeMismatch, ShapeMismatch, SizeError, Unsupported

RNG = np.random.default_rng(7)
X = RNG.standard_normal((3, 5, 7)).astype(np.float32)
IMAGE = RNG.standard_normal((1, 8, 4, 6)).astype(np.float32)
EXECUTORS = (
    lambda: tw.SingleThreadExecutor("reference"),
    lambda: tw.SingleThreadExecutor(debug=True),
    lambda: tw.TilingExecutor(threads=2),
)


def run(build, **inputs):
    """The results on every executor, equal to the bit, and run by no reference or Python kernel."""
    results = []
    for make in EXECUTORS:
        pipe = tw.Pipeline("moving")
        values = {name: pipe.input(name, array.dtype, array.shape) for name, array in inputs.items()}
        built = build(**values)
        for n, y in enumerate(built if isinstance(built, tuple) else (built,)):
            pipe.output(f"y{n}", y)
        results.append(make().run(pipe, inputs))
    for other in results[1:]:
        for name, y in results[0].items():
            assert other[name].shape == y.shape
            assert other[name].tobytes() == y.tobytes(), name
    found = [results[1][name] for name in sorted(results[1])]
    return found if len(found) > 1 else found[0]


def same(found, wanted):
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    assert found.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("dtype", [np.int8, ml_dtypes.bfloat16, np.float32, np.float64, np.bool_])
@pytest.mark.parametrize("perm", [(2, 0, 1), (0, 2, 1), (1, 0, 2)])
def test_transpose(dtype, perm):
    x = RNG.integers(0, 100, (3, 18, 33)).astype(dtype)
    same(run(lambda x: ops.transpose(x, perm), x=x), x.transpose(perm))


def test_views_of_strided_inputs():
    x = RNG.standard_normal((14, 10, 6)).astype(np.float32)[::-2, ::3, ::-1]
    same(run(lambda x: ops.transpose(x, (1, 2, 0)), x=x), x.transpose(1, 2, 0))
    same(run(lambda x: ops.reshape(x, (-1, 4)), x=x), x.reshape(-1, 4))


CUTS = (-9, -7, -2, 0, 1, 6, 9, 2**62, -(2**62))


def test_slice_clamps_as_python_does():
    for start, stop, step in itertools.product(CUTS, CUTS, (1, 3, -1, -2)):
        if step < 0 and start < -7:
            continue  # ONNX starts such a cut at the first element, Python before it
        found = tw.eager.slice(X, [start], [stop], [2], [step])
        same(found, X[:, :, start : None if step < 0 and stop < -7 else stop : step])
    same(run(lambda x: ops.slice(x, [1, -1], [2**62, -(2**62)], [0, 2], [1, -2]), x=X), X[1:, :, ::-2])


def test_symbolic_slices_have_the_length_that_they_take():
    for cut in itertools.product((0, 1, -3), (2**62, 4, -1), (1, 2)):
        start, stop, step = cut
        pipe = tw.Pipeline("p")
        pipe.output("y", ops.slice(pipe.input("x", "f32", ("N",)), [start], [stop], [0], [step]))
        plan = tw.SingleThreadExecutor("reference").compile(pipe)
        for n in (0, 1, 2, 5, 9):
            x = np.arange(n, dtype=np.float32)
            same(plan.run({"x": x})["y"], x[start:stop:step])


def test_joins():
    same(run(lambda x: ops.concat([x, ops.slice(x, [0], [2], [1]), x], 1), x=X), np.concatenate([X, X[:, :2], X], 1))
    wanted = np.pad(X[:, :, 1:], [(1, 2), (0, 0), (0, 3)], constant_values=2.5)
    same(run(lambda x: ops.pad(x, [(1, 2), (0, 0), (-1, 3)], value=2.5), x=X), wanted)
    for kind in (np.float16, np.float64, ml_dtypes.bfloat16):  # a value that the type holds, or rounds
        x = np.ones(2, kind)
        same(tw.eager.pad(x, [(1, 0)], value=0.1), np.array([0.1, 1, 1]).astype(kind))
    same(tw.eager.pad(np.zeros(2, bool), [(0, 1)], value=True), np.array([False, False, True]))
    for mode in ("edge", "reflect", "wrap"):
        widths = [(1, 2), (0, 0), (9, 3)]
        same(run(lambda x, mode=mode, widths=widths: ops.pad(x, widths, mode), x=X), np.pad(X, widths, mode))
    parts = run(lambda x: ops.split(x, [1, 0, 4], 1), x=X)
    for found, wanted in zip(parts, np.split(X, [1, 1], 1), strict=True):
        same(found, wanted)


def test_repeats_and_shapes():
    same(run(lambda x: ops.tile(x, [2, 1, 3]), x=X), np.tile(X, (2, 1, 3)))
    same(run(lambda x: ops.expand(x, (2, 3, 4, 7)), x=X[:, :1]), np.broadcast_to(X[:, :1], (2, 3, 4, 7)))
    same(run(lambda x: ops.squeeze(ops.unsqueeze(x, [0, -1])), x=X), X)
    same(run(lambda x: ops.flatten(x, 2), x=X), X.reshape(15, 7))
    n, _, h, w = IMAGE.shape
    dcr = IMAGE.reshape(n, 2, 2, 2, h, w).transpose(0, 3, 4, 1, 5, 2).reshape(n, 2, 2 * h, 2 * w)
    crd = IMAGE.reshape(n, 2, 2, 2, h, w).transpose(0, 1, 4, 2, 5, 3).reshape(n, 2, 2 * h, 2 * w)
    same(run(lambda x: ops.depth_to_space(x, 2), x=IMAGE), dcr)
    same(run(lambda x: ops.depth_to_space(x, 2, "CRD"), x=IMAGE), crd)
    same(run(lambda x: ops.space_to_depth(x, 2), x=dcr), IMAGE)


def test_run_time_sizes():
    pipe = tw.Pipeline("p")
    x = pipe.input("x", "f32", ("N", 5, "2*K"))
    flat = ops.reshape(ops.transpose(x, (0, 2, 1)), (-1, 10))
    pipe.output("y", ops.reshape(flat, ("N", "K", 10)))
    plan = tw.TilingExecutor(threads=2).compile(pipe)
    for n, k in ((4, 3), (1, 1), (0, 2)):
        data = RNG.standard_normal((n, 5, 2 * k)).astype(np.float32)
        same(plan.run({"x": data})["y"], data.transpose(0, 2, 1).reshape(n, k, 10))
    with pytest.raises(SizeError, match="no operand has"):
        ops.reshape(x, ("Q", -1))


INDICES = np.array([[1, -1], [0, 2]])


def test_gathers():
    same(run(lambda x: ops.gather(x, INDICES, 1), x=X), X[:, INDICES])
    same(run(lambda x: ops.gather(x, np.array(-2), 2), x=X), X[:, :, -2])
    each = RNG.integers(-5, 5, (3, 4, 7))
    same(run(lambda x: ops.gather_elements(x, each, 1), x=X), np.take_along_axis(X, each, 1))
    same(run(lambda x: ops.gather_nd(x, np.array([[0, 1], [2, -1]])), x=X), X[[0, 2], [1, -1]])
    batched = RNG.integers(0, 5, (3, 2, 1))
    wanted = np.stack([X[n][batched[n, :, 0]] for n in range(3)])
    same(run(lambda x: ops.gather_nd(x, batched, 1), x=X), wanted)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_an_index_outside_is_named(executor):
    for build in (
        lambda x, i: ops.gather(x, i, 1),
        lambda x, i: ops.scatter_nd(x, ops.unsqueeze(i, [1]), ops.gather(x, ops.clip(i, 0, 2), 0)),
    ):
        pipe = tw.Pipeline("p")
        pipe.output("y", build(pipe.input("x", "f32", X.shape), pipe.input("i", "s64", (2,))))
        with pytest.raises(ArgumentError, match="outside"):
            executor().run(pipe, {"x": X, "i": np.array([0, 5])})


COMBINED = {"none": lambda old, new: new, "add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


@pytest.mark.parametrize(
    ("dtype", "reduction"), [("f4", "none"), ("f4", "add"), ("i8", "mul"), ("i1", "max"), ("f4", "min"), ("?", "add")]
)
def test_scatters_apply_what_meets_in_order_along_any_axis_at_any_depth(dtype, reduction):
    x = (X * 3).astype(dtype)
    every = reduction == "add" and dtype != "?"
    for axis in range(3) if every else (1,):
        each = RNG.integers(-x.shape[axis], x.shape[axis], (2, 4, 3))
        new = RNG.integers(-4, 5, each.shape).astype(dtype)
        wanted = x.copy()
        for at in np.ndindex(each.shape):
            place = (*at[:axis], each[at], *at[axis + 1 :])
            wanted[place] = COMBINED[reduction](wanted[place], new[at])
        same(run(lambda x, i, u, axis=axis: ops.scatter_elements(x, i, u, axis, reduction), x=x, i=each, u=new), wanted)
    for depth in (1, 2, 3) if every else (2,):
        rows = np.stack([RNG.integers(-n, n, (4, 2)) for n in x.shape[:depth]], -1)
        new = RNG.integers(-4, 5, (4, 2, *x.shape[depth:])).astype(dtype)
        wanted = x.copy()
        for at in np.ndindex(rows.shape[:-1]):
            place = tuple(rows[at])
            wanted[place] = COMBINED[reduction](wanted[place], new[at])
        same(run(lambda x, i, u: ops.scatter_nd(x, i, u, reduction), x=x, i=rows, u=new), wanted)


def test_short_floats_that_are_scattered_are_rounded_once():
    x = np.array([1, 2], ml_dtypes.bfloat16)
    found = run(lambda x, u: ops.scatter_nd(x, np.zeros((3, 1), np.int64), u, "add"), x=x, u=np.full(3, 2**-8, x.dtype))
    same(found, np.array([1 + 3 * 2**-8, 2], ml_dtypes.bfloat16))


def test_order():
    wanted = np.flip(np.cumsum(np.flip(X.astype(np.float64), 1), 1), 1) - X
    found = run(lambda x: ops.cumsum(x, 1, exclusive=True, reverse=True), x=X)
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    ties = np.round(X).astype(np.float32)
    ties[0, 0, :2] = np.nan
    for largest, axis in itertools.product((True, False), (1, 2)):
        values, indices = run(lambda x, axis=axis, largest=largest: ops.topk(x, 3, axis, largest), x=ties)
        same(np.take_along_axis(ties, indices, axis), values)
    classes = RNG.integers(-4, 4, (2, 3))
    same(run(lambda i: ops.one_hot(i, 4), i=classes), np.eye(4, dtype=np.float32)[classes])
    same(run(lambda x: ops.trilu(x, 1), x=X), np.triu(X, 1))
    same(run(lambda x: ops.trilu(x, -1, upper=False), x=X), np.tril(X, -1))
    same(run(lambda x: ops.arange(x, 5, 2.0, 0.5, "f32"), x=X), np.arange(2, 4.5, 0.5, dtype=np.float32))


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_resize(mode):
    for axis, n, antialias in ((2, 9, False), (3, 3, True), (3, 13, False)):
        found = run(
            lambda x, axis=axis, n=n, antialias=antialias: ops.resize(x, axis, n, mode, antialias=antialias), x=IMAGE
        )
        assert found.shape[axis] == n


def test_many_of_the_top_are_in_the_same_order():
    x = np.round(RNG.standard_normal((3, 50)), 1).astype(np.float32)
    x[1, [4, 9, 30]] = np.nan
    x[2, :] = 1
    for k, largest in ((17, True), (50, False), (33, True)):
        values, indices = run(lambda x, k=k, largest=largest: ops.topk(x, k, 1, largest), x=x)
        order = np.lexsort((np.broadcast_to(np.arange(50), x.shape), -x if largest else x))
        order = (
            np.array([sorted(row, key=lambda i, r=r: not np.isnan(x[r, i])) for r, row in enumerate(order)])
            if largest
            else order
        )
        same(indices, np.ascontiguousarray(order[:, :k].astype(np.int64)))
        same(values, np.take_along_axis(x, indices, 1))


@pytest.mark.parametrize("axis", [0, 1])
def test_sums_along_other_axes_than_the_last(axis):
    for exclusive, reverse in itertools.product((False, True), repeat=2):
        run(lambda x, e=exclusive, r=reverse: ops.cumsum(x, axis, e, r), x=X)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_rows_longer_than_a_block_of_weights_are_resized(mode):
    x = RNG.standard_normal((2, 3, 150)).astype(np.float32)
    x[0, 0, :3] = np.inf, np.nan, -0.0
    for n, rule in ((300, "half_pixel"), (129, "align_corners"), (1, "pytorch_half_pixel")):
        run(lambda x, n=n, rule=rule: ops.resize(x, 2, n, mode, coordinates=rule), x=x)


def test_resize_by_two_repeats_elements():
    same(run(lambda x: ops.resize(x, 3, 12, coordinates="asymmetric", rounding="floor"), x=IMAGE), IMAGE.repeat(2, 3))
    for rules in ({"coordinates": "asymmetric", "rounding": "floor"}, {}):  # by a factor that is known ahead
        x = np.arange(2 * 5, dtype=np.uint8).reshape(2, 5)
        same(run(lambda x, rules=rules: ops.resize(x, 1, 15, scale=3.0, **rules), x=x), x.repeat(3, 1))
    halves = tw.eager.resize(np.array([0.0, 1.0], np.float32), 0, 4, "linear")
    same(halves, np.array([0.0, 0.25, 0.75, 1.0], np.float32))


def test_zero_sizes():
    empty = np.zeros((0, 3), np.float32)
    assert tw.eager.transpose(empty).shape == (3, 0)
    assert tw.eager.concat([empty, empty], 0).shape == (0, 3)
    same(tw.eager.pad(empty, [(1, 0), (0, 0)]), np.zeros((1, 3), np.float32))
    assert tw.eager.gather(np.ones((4, 3), np.float32), np.zeros(0, np.int64)).shape == (0, 3)


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda x: ops.reshape(x, (-1, -1)), ArgumentError, "more than once"),
        (lambda x: ops.reshape(x, (4, -1)), ShapeMismatch, "does not divide"),
        (lambda x: ops.reshape(x, (4, 4)), ShapeMismatch, "16"),
        (lambda x: ops.squeeze(x, [0]), ShapeMismatch, "not 1"),
        (lambda x: ops.transpose(x, (0, 0, 1)), ArgumentError, "perm"),
        (lambda x: ops.slice(x, [0], [1], [0], [0]), ArgumentError, "step is 0"),
        (lambda x: ops.concat([x, ops.transpose(x)], 0), ShapeMismatch, "x1"),
        (lambda x: ops.pad(x, [(1, 1)]), ArgumentError, "3 dimensions"),
        (lambda x: ops.topk(x, 8), ArgumentError, "k is 8"),
        (lambda x: ops.resize(x, 0, 4, "bilinear"), DTypeMismatch, "bilinear"),
        (lambda x: ops.expand(x, (2, 5, 7)), ShapeMismatch, "axis"),
    ],
)
def test_mistakes_are_named(build, error, message):
    pipe = tw.Pipeline("p")
    with pytest.raises(error, match=message):
        build(pipe.input("x", "f32", X.shape))


def test_packed_types_are_refused():
    pipe = tw.Pipeline("p")
    with pytest.raises(Unsupported, match="unpack"):
        ops.transpose(pipe.input("x", "u4", (2, 2)))


def test_space_to_depth_undoes_depth_to_space():
    for mode in ("DCR", "CRD"):
        same(tw.eager.space_to_depth(tw.eager.depth_to_space(IMAGE, 2, mode), 2, mode), IMAGE)


@pytest.mark.parametrize(
    "kernel",
    [
        Resize("u8", 4, 2), OneHot("f32", 2, 1, 5), Gather("f32", 3, 1, 2), GatherElements("f32", 3, 1),
        GatherND("f32", 4, 3, 2, 1), CumSum("f32", 3, 1), TopK("f32", 3, 1, 2), Trilu("f32", 3),
    ],
    ids=lambda kernel: kernel.name,
)  # fmt: skip
def test_results_follow_every_axis_that_may_be_cut_between_threads(kernel):
    split = {axis.name for axis in kernel.index_space().axes if axis.split}
    for spec in kernel.signature():
        assert not spec.writes or split <= set(spec.follows), spec
