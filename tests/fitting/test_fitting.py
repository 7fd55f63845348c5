"""Ranges, parameters, error feedback, migration, rotation, budgets."""

import itertools

import numpy as np
import pytest

import tilework as tw
from tilework import fitting
from tilework.primitives.errors import ArgumentError, QuantizationError, ShapeMismatch, Unsupported

INT4 = tw.schemes.get("int4_g32")


def normal(*shape, seed=0, size=1.0):
    return (np.random.default_rng(seed).standard_normal(shape) * size).astype(np.float32)


def outliers(rows=96, columns=64, seed=0):
    """Activations whose channels differ and depend on each other, as those of networks do."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, 24)) @ rng.standard_normal((24, columns)) * 0.3 + rng.standard_normal(
        (rows, columns)
    )
    x[:, 3] *= 30
    return x.astype(np.float32)


def output_error(w, x, y):
    return float(np.square(x.astype(np.float64) @ (y - w).T.astype(np.float64)).sum())


@pytest.mark.parametrize("make", [fitting.MinMax, fitting.Histogram])
def test_statistics_merge_to_what_one_would_have_seen(make):
    parts = [
        normal(100),
        normal(37, size=1e-3),
        np.array([5000.0, -0.0, 0.0]),
        np.full(9, 0.25),
        np.array([]),
        -normal(4),
    ]
    whole = make()
    for part in parts:
        whole.update(part)
    for order in list(itertools.permutations(range(6)))[::97]:
        left, right = make(), make()
        for n, k in enumerate(order):
            (left if n % 2 else right).update(parts[k])
        merged = left.merge(right)
        for name, value in vars(whole).items():
            if name != "extremes":
                np.testing.assert_array_equal(getattr(merged, name), value)
        assert merged.range() == whole.range()
    with pytest.raises(ArgumentError, match=r"one kind"):
        whole.merge(fitting.RunningMinMax())


def test_a_histogram_counts_everything_once():
    h = fitting.Histogram(64)
    x = np.concatenate([normal(1000), normal(10, size=1e4), np.zeros(5), [np.nan, np.inf, -np.inf, 1e-45]]).astype(
        np.float32
    )
    h.update(x)
    assert (h.count, h.nan, h.extremes.infinite, h.zeros) == (1019, 1, 2, 5)
    assert h.counts.sum() == 1019 - 3 - 5
    low, high = h.range("minmax")
    finite = x[np.isfinite(x)]
    assert (low, high) == (finite.min(), finite.max())
    a, b = h.range("percentile", percentile=90.0)
    assert low < a < b < high


@pytest.mark.parametrize("method", ["minmax", "percentile", "mse", "kl"])
@pytest.mark.parametrize("value", [0.0, 3.5, -1e-40])
def test_constant_data_has_its_own_range(method, value):
    found = fitting.calibrate([np.full(100, value, np.float32)] * 2, method)["x"]
    assert found == (np.float32(value), np.float32(value))
    fitting.qparams(*found)


def test_bad_data_is_left_out_or_named():
    found = fitting.calibrate(
        [{"a": np.array([1.0, np.nan, -2.0, np.inf])}, {"a": np.array([])}, {"b": [4.0]}], "running"
    )
    assert found == {"a": (-2.0, 1.0), "b": (4.0, 4.0)}
    with pytest.raises(QuantizationError, match=r"a: no finite value among 2 seen"):
        fitting.calibrate([{"a": np.array([np.nan, np.nan])}])
    with pytest.raises(QuantizationError, match=r"no batch"):
        fitting.calibrate([])
    with pytest.raises(ArgumentError, match=r"no method 'max'; it has minmax"):
        fitting.calibrate([1.0], "max")
    with pytest.raises(ArgumentError, match=r"cannot be merged; MinMax can"):
        fitting.RunningMinMax().merge(fitting.RunningMinMax())


def test_rare_outliers_do_not_set_the_range_of_mse_and_kl():
    x = np.concatenate([normal(20000), [60.0]])
    full = fitting.calibrate([x], "minmax")["x"]
    assert full[1] == 60.0
    for method in ("percentile", "mse", "kl"):
        low, high = fitting.calibrate([x], method, bits=4, percentile=99.9)["x"]
        assert high < 20, method
        assert low >= full[0]
    low, high = fitting.calibrate([x], "mse", bits=4, symmetric=True)["x"]
    assert low == -high


def test_ranges_of_channels_are_apart():
    m = fitting.MinMax(axis=1).update(np.array([[1.0, -2.0, np.nan], [3.0, 4.0, np.nan]]))
    low, high = m.range()
    np.testing.assert_array_equal(low, [1, -2, 0])
    np.testing.assert_array_equal(high, [3, 4, 0])


def test_qparams_follow_their_rule():
    scale, zero = fitting.qparams(-1.0, 3.0)
    assert (scale, zero) == (np.float32(4 / 255), 64)
    assert fitting.qparams(0.0, 0.0) == (1.0, 0)
    scale, zero = fitting.qparams([-1.0, 0.5], [1.0, 2.0], rule="torchao", bits=4, signed=True, symmetric=True)
    np.testing.assert_array_equal(zero, [0, 0])
    np.testing.assert_array_equal(scale, np.float32([1 / 7.5, 2 / 7.5]))
    with pytest.raises(QuantizationError, match=r"not finite"):
        fitting.qparams(0.0, np.nan)
    with pytest.raises(ArgumentError, match=r"no rule 'tf'; it has onnxruntime"):
        fitting.qparams(0, 1, rule="tf")


def test_searches_do_no_worse_than_the_schemes_own_fit():
    w, x = normal(24, 64) ** 3, normal(16, 64, seed=1)
    plain = INT4.quantize(w).dequantize()
    error = np.square(plain - w).sum()
    found = fitting.fit(INT4, w, "mse")
    assert found.scheme is INT4
    assert np.square(found.dequantize() - w).sum() < 0.97 * error
    blocks = np.square(found.dequantize() - w).reshape(24, 2, 32).sum(2) - np.square(plain - w).reshape(24, 2, 32).sum(
        2
    )
    assert (blocks <= 1e-6).all(), "no block may get worse"
    np.testing.assert_array_equal(fitting.fit(INT4, w, "absmax").codes, INT4.quantize(w).codes)
    kl = fitting.fit(INT4, w, "kl", x=x)
    assert INT4.report(w, x, timings=False).output_kl > 0
    assert np.isfinite(kl.dequantize()).all()
    assert fitting.fit(INT4, w, "percentile", percentile=90.0).dequantize().max() < w.max()
    with pytest.raises(ArgumentError, match=r"x, activations"):
        fitting.fit(INT4, w, "kl")
    assert fitting.fit(tw.schemes.get("nf4_double"), w, "mse").shape == w.shape


def test_error_feedback_brings_outputs_nearer():
    w, x = normal(20, 64, size=0.1), outliers()
    h = fitting.hessian(x)
    for scheme in (INT4, INT4.replace(block=48), INT4.replace(block="row")):
        plain = output_error(w, x, scheme.quantize(w).dequantize())
        q = fitting.error_feedback(scheme, w, h)
        assert q.scheme is scheme
        assert output_error(w, x, q.dequantize()) < 0.7 * plain
    with pytest.raises(Unsupported, match=r"int8_tensor has blocks tensor"):
        fitting.error_feedback(tw.schemes.get("int8_tensor"), w, h)
    with pytest.raises(ShapeMismatch, match=r"h is \(3, 3\)"):
        fitting.error_feedback(INT4, w, np.eye(3))


def test_error_feedback_with_independent_channels_is_plain_rounding():
    w = normal(6, 160, size=0.1)
    q = fitting.error_feedback(INT4, w, np.eye(160))
    np.testing.assert_array_equal(q.codes, INT4.quantize(w).codes)


def test_migrated_scales_keep_the_product_and_help():
    w, x = normal(20, 64, size=0.1), outliers()
    s = fitting.migrate(np.abs(x).max(axis=0), w)
    np.testing.assert_allclose((x / s) @ (w * s).T, x @ w.T, rtol=1e-4, atol=1e-3)
    assert np.ptp(np.log(np.abs(x / s).max(axis=0))) < np.ptp(np.log(np.abs(x).max(axis=0)))
    found, strength, share = fitting.search_migration(INT4, w, x)
    assert found.shape == (64,)
    assert 0 < strength <= 1
    assert share < 0.9
    assert (fitting.migrate(np.zeros(64), w) == 1).all()


@pytest.mark.parametrize("n", [1, 2, 12, 20, 64, 96, 384])
def test_hadamard_matrices_are_orthogonal(n):
    h = fitting.hadamard(n, seed=3)
    np.testing.assert_allclose(h.astype(np.float64) @ h.T, np.eye(n), atol=1e-6)
    np.testing.assert_allclose(np.abs(h), n**-0.5, rtol=1e-6)


def test_rotation_spreads_outliers():
    w, x = normal(20, 64, size=0.1), outliers()
    r = fitting.hadamard(64, seed=0)
    np.testing.assert_allclose(fitting.rotate(x, r) @ fitting.rotate(w, r).T, x @ w.T, rtol=1e-3, atol=1e-3)
    tokens = tw.schemes.get("int8_channel").replace(name="int4_token", bits=4)
    assert tokens.bits == 4
    with pytest.raises(Unsupported, match=r"matrix of 28 is known here; 24 and 32 work"):
        fitting.hadamard(28)


def test_the_budget_goes_where_it_counts():
    layers = {"calm": normal(16, 64, size=0.01), "loud": normal(16, 64, seed=1, size=1.0)}
    schemes = [tw.schemes.get(n) for n in ("int2_g32", "int4_g32", "int8_channel")]
    costs = fitting.sensitivities(layers, schemes)
    everything = sum(c["int8_channel"][0] for c in costs.values())
    assert fitting.allocate(costs, everything) == {"calm": "int8_channel", "loud": "int8_channel"}
    between = costs["calm"]["int2_g32"][0] + costs["loud"]["int8_channel"][0]
    assert fitting.allocate(costs, between) == {"calm": "int2_g32", "loud": "int8_channel"}
    for budget in np.linspace(costs["calm"]["int2_g32"][0] * 2, everything, 9):
        found = fitting.allocate(costs, budget)
        best = min(
            sum(costs[n][s][1] for n, s in zip(costs, pick, strict=True))
            for pick in itertools.product(costs["calm"], repeat=2)
            if sum(costs[n][s][0] for n, s in zip(costs, pick, strict=True)) <= budget
        )
        assert sum(costs[n][found[n]][0] for n in costs) <= budget
        assert sum(costs[n][found[n]][1] for n in costs) == pytest.approx(best)
    with pytest.raises(ArgumentError, match=r"the smallest schemes need"):
        fitting.allocate(costs, 10)


def test_activations_count_in_sensitivities():
    w, x = normal(8, 32), outliers(16, 32)
    plain = fitting.sensitivities({"a": w}, [INT4])["a"]["int4_g32"]
    felt = fitting.sensitivities({"a": w}, [INT4], {"a": x})["a"]["int4_g32"]
    assert plain[0] == felt[0]
    assert felt[1] > plain[1]
