"""Steps over rows of tables: what they compute, on every backend, and the same whatever the batches are."""

import numpy as np
import pytest

import tilework as tw
from tilework.primitives.errors import ArgumentError, DTypeMismatch, ShapeMismatch

EXECUTORS = (
    tw.SingleThreadExecutor(backend="reference"),
    tw.SingleThreadExecutor(),
    tw.TilingExecutor(threads=1),
    tw.TilingExecutor(threads=3),
)


def on_all(pipe, inputs):
    """The outputs, which are the same bytes on every executor."""
    found = [executor.run(pipe, inputs) for executor in EXECUTORS]
    for other in found[1:]:
        assert {n: x.tobytes() for n, x in other.items()} == {n: x.tobytes() for n, x in found[0].items()}
    return found[0]


def batches_of(columns, sizes):
    at = 0
    for size in sizes:
        yield {name: x[at : at + size] for name, x in columns.items()}
        at += size


def last_of(pipe, columns, sizes, executor):
    """What the outputs are after the last of several batches."""
    plan = executor.compile(pipe)
    for batch in batches_of(columns, sizes):
        found = plan.run(batch)
    return found


def test_compact_keeps_the_rows_that_a_mask_chooses():
    rng = np.random.default_rng(0)
    for n in (0, 1, 7, 64, 1001):
        pipe = tw.Pipeline()
        mask, x, y = (pipe.input(s, t, ("N",)) for s, t in (("m", "bool"), ("x", "f32"), ("y", "s64")))
        count, a, b = tw.ops.compact(mask, x, y)
        again, c = tw.ops.compact(tw.ops.greater(a, np.float32(0)), a, valid=count)
        for name, value in (("count", count), ("a", a), ("b", b), ("again", again), ("c", c)):
            pipe.output(name, value)
        given = {"m": rng.random(n) < 0.4, "x": rng.standard_normal(n).astype(np.float32), "y": np.arange(n)}
        found = on_all(pipe, given)
        m, x = given["m"], given["x"]
        assert found["count"] == m.sum()
        np.testing.assert_array_equal(found["a"], np.concatenate([x[m], np.zeros(n - m.sum(), np.float32)]))
        np.testing.assert_array_equal(found["b"][: m.sum()], np.flatnonzero(m))
        assert found["again"] == (x[m] > 0).sum()
        np.testing.assert_array_equal(found["c"][: found["again"]], x[m][x[m] > 0])


@pytest.mark.parametrize(
    ("dtype", "descending"),
    [("f32", False), ("f32", True), ("f64", True), ("s64", False), ("u8", True), ("s16", False)],
)
def test_sort_order_is_stable_and_puts_nan_last(dtype, descending):
    rng = np.random.default_rng(1)
    stored = tw.dtypes.get(dtype).numpy
    pipe = tw.Pipeline()
    x = pipe.input("x", dtype, ("N",))
    pipe.output("order", tw.ops.sort_order(x, descending))
    pipe.output("part", tw.ops.sort_order(x, descending, valid=pipe.argument("valid", "s64")))
    for n in (0, 1, 2, 257, 1000):
        if dtype.startswith("f"):
            values = rng.choice([-np.inf, -1.5, -0.0, 0.0, 1e-40, 3.0, np.inf, np.nan, -np.nan], n).astype(stored)
        else:
            limits = np.iinfo(stored)
            values = rng.choice([limits.min, limits.max, 0, 1, 5], n).astype(stored)
        found = on_all(pipe, {"x": values, "valid": n // 2})
        plain = [float(v) if dtype.startswith("f") else int(v) for v in values]
        key = lambda i: (plain[i] != plain[i], 0 if plain[i] != plain[i] else -plain[i] if descending else plain[i])  # noqa: B023, E731
        assert found["order"].tolist() == sorted(range(n), key=key)
        assert found["part"].tolist() == [*sorted(range(n // 2), key=key), *range(n // 2, n)]


def test_a_join_finds_every_key():
    rng = np.random.default_rng(2)
    right = rng.choice(2**62, 100, replace=False) - 2**61
    names = rng.standard_normal(100).astype(np.float32)
    left = np.concatenate([rng.choice(right, 500), [0, 1, -1, 2**63 - 1, -(2**63)]])
    pipe = tw.Pipeline()
    at = tw.ops.join(pipe.input("left", "s64", ("N",)), right)
    pipe.output("at", at)
    pipe.output("names", tw.ops.take(names, at, default=-7))
    found = on_all(pipe, {"left": left})
    places = {int(k): n for n, k in enumerate(right)}
    wanted = np.array([places.get(int(k), -1) for k in left])
    np.testing.assert_array_equal(found["at"], wanted)
    np.testing.assert_array_equal(found["names"], np.where(wanted >= 0, names[wanted], np.float32(-7)))


def test_a_join_refuses_a_key_that_is_there_twice():
    pipe = tw.Pipeline()
    pipe.output("y", tw.ops.join(pipe.input("x", "s32", ("N",)), pipe.input("keys", "s32", (3,))))
    for executor in EXECUTORS:
        with pytest.raises(ArgumentError, match="there twice"):
            executor.run(pipe, {"x": np.zeros(3, np.int32), "keys": np.array([4, 5, 4], np.int32)})


def test_keys_are_numbered_as_they_first_come_in_any_batches():
    rng = np.random.default_rng(3)
    keys = rng.integers(-50, 50, 2000) * 10**15
    pipe = tw.Pipeline()
    codes, found, used = tw.ops.key_codes(pipe.input("k", "s64", ("N",)), most=100)
    for name, value in (("codes", codes), ("found", found), ("used", used)):
        pipe.output(name, value)
    whole = on_all(pipe, {"k": keys})
    order = list(dict.fromkeys(keys.tolist()))
    assert whole["codes"].tolist() == [order.index(k) for k in keys.tolist()]
    assert whole["found"][: whole["used"][0]].tolist() == order
    parts = last_of(pipe, {"k": keys}, [1, 999, 1000], EXECUTORS[3])
    np.testing.assert_array_equal(parts["codes"], whole["codes"][1000:])
    np.testing.assert_array_equal(parts["found"], whole["found"])
    with pytest.raises(ArgumentError, match="more"):
        EXECUTORS[2].run(pipe, {"k": np.arange(101)})


def grouped(groups):
    pipe = tw.Pipeline()
    codes, x, y, m = (
        pipe.input(s, t, ("N",)) for s, t in (("codes", "s32"), ("x", "f32"), ("y", "s32"), ("m", "bool"))
    )
    wanted = {
        "sum": ("sum", x), "mean": ("mean", x), "least": ("min", x), "most": ("max", x), "whole": ("sum", y),
        "low": ("min", y), "rows": "count",
    }  # fmt: skip
    for name, value in tw.ops.group_by(codes, groups, wanted, where=m).items():
        pipe.output(name, value)
    pipe.output("quantiles", tw.ops.quantiles(x, [0.0, 0.5, 0.99, 1.0], codes, groups, where=m, bits=16))
    pipe.output("rolled", tw.ops.rolling(x, "sum", 5))
    pipe.output("highest", tw.ops.rolling(y, "max", 3))
    return pipe


def table(n, groups, seed=4):
    rng = np.random.default_rng(seed)
    x = (rng.standard_normal(n) * 10.0 ** rng.integers(-6, 7, n)).astype(np.float32)
    y = rng.integers(-(2**31), 2**31, n).astype(np.int32)
    return {"codes": rng.integers(0, groups, n).astype(np.int32), "x": x, "y": y, "m": rng.random(n) < 0.7}


@pytest.mark.parametrize("n", [0, 1, 9, 1500])
def test_groups_are_what_numpy_says(n):
    groups, columns = 7, table(n, 7)
    found = on_all(grouped(groups), columns)
    for g in range(groups):
        chosen = columns["m"] & (columns["codes"] == g)
        x, y = columns["x"][chosen], columns["y"][chosen]
        assert found["rows"][g] == len(x)
        assert found["whole"][g] == y.sum(dtype=np.int64)
        exact = x.astype(np.float64).sum()
        assert abs(found["sum"][g] - exact) <= len(x) * 2**-52 * np.abs(x.astype(np.float64)).sum()
        assert found["least"][g] == x.min(initial=np.inf)
        assert found["most"][g] == x.max(initial=-np.inf)
        if len(x):
            assert found["mean"][g] == found["sum"][g] / len(x)
            right = np.quantile(x, [0.0, 0.5, 0.99, 1.0], method="inverted_cdf")
            np.testing.assert_allclose(found["quantiles"][g], right, rtol=2**-7)
        else:
            assert np.isnan(found["mean"][g])
            assert np.isnan(found["quantiles"][g]).all()
    padded = np.concatenate([np.zeros(4, np.float32), columns["x"]])
    right = padded[: n or 0].copy()
    for j in range(1, 5):
        right = right + padded[j : j + n]
    np.testing.assert_array_equal(found["rolled"], right)


def test_batches_of_any_size_give_the_same_bytes():
    columns, pipe = table(3000, 7, seed=5), grouped(7)
    whole = EXECUTORS[2].run(pipe, columns)
    kept = [name for name in whole if name not in ("rolled", "highest")]
    for sizes, executor in (([3000], 3), ([1, 2, 2997], 3), ([1000, 1000, 1000], 2), ([1499, 1501], 0)):
        found = last_of(pipe, columns, sizes, EXECUTORS[executor])
        assert {n: found[n].tobytes() for n in kept} == {n: whole[n].tobytes() for n in kept}
        np.testing.assert_array_equal(found["rolled"], whole["rolled"][-sizes[-1] :])
        np.testing.assert_array_equal(found["highest"], whole["highest"][-sizes[-1] :])


def test_filtered_rows_group_by_their_number():
    columns = table(999, 5, seed=6)
    pipe = tw.Pipeline()
    codes, x, m = (pipe.input(s, t, ("N",)) for s, t in (("codes", "s32"), ("x", "f32"), ("m", "bool")))
    count, codes, x = tw.ops.compact(m, codes, x)
    for name, value in tw.ops.group_by(codes, 5, {"sum": ("sum", x), "rows": "count"}, valid=count).items():
        pipe.output(name, value)
    del columns["y"]
    whole = on_all(pipe, columns)
    assert whole["rows"].sum() == columns["m"].sum()
    found = last_of(pipe, columns, [333, 333, 333], EXECUTORS[3])
    assert found["sum"].tobytes() == whole["sum"].tobytes()


def test_what_cannot_be_is_named():
    pipe = tw.Pipeline()
    x, codes = pipe.input("x", "f32", ("N",)), pipe.input("codes", "s32", ("N",))
    with pytest.raises(ArgumentError, match=r"'median', .*works"):
        tw.ops.group_by(codes, 3, {"y": ("median", x)})
    with pytest.raises(ShapeMismatch, match="one dimension works"):
        tw.ops.compact(pipe.input("m", "bool", ("N", 2)), x)
    with pytest.raises(DTypeMismatch, match="mask is f32; bool works"):
        tw.ops.compact(x, x)
    with pytest.raises(DTypeMismatch, match="one type works"):
        tw.ops.join(codes, np.arange(3))
    pipe = tw.Pipeline()
    x, codes = pipe.input("x", "f32", ("N",)), pipe.input("codes", "s32", ("N",))
    pipe.output("y", tw.ops.group_by(codes, 3, {"y": ("sum", x)})["y"])
    for executor in EXECUTORS:
        with pytest.raises(ArgumentError, match="a code is not between 0"):
            executor.run(pipe, {"x": np.ones(2, np.float32), "codes": np.array([0, 3], np.int32)})
