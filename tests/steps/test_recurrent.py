"""Recurrent layers: the same bits everywhere, and what the recurrence written in float64 says."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from tilework.executors import cutting, eager
from tilework.kernels import ops, recurrent
from tilework.primitives.errors import ArgumentError, DTypeMismatch, ShapeMismatch

GATES = {"rnn": 1, "gru": 3, "lstm": 4}


def weights(rng, cell, inputs, hidden):
    gates = GATES[cell]
    shapes = ((gates * hidden, inputs), (gates * hidden, hidden), (2 * gates * hidden,))
    return [(rng.standard_normal(s) / np.sqrt(hidden)).astype(np.float32) for s in shapes]


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def in_float64(cell, x, w, r, bias, h, c=None, linear=False):
    x, w, r, bias, h, c = (v if v is None else v.astype(np.float64) for v in (x, w, r, bias, h, c))
    of_x, of_h = np.split(bias, 2)
    found = []
    for given in x:
        a, b = given @ w.T + of_x, h @ r.T + of_h
        if cell == "rnn":
            h = np.tanh(a + b)
        elif cell == "lstm":
            i, o, f, g = np.split(a + b, 4, 1)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(c)
        else:
            (za, ra, na), (zb, rb, nb) = np.split(a, 3, 1), np.split(b, 3, 1)
            z, reset = sigmoid(za + zb), sigmoid(ra + rb)
            hidden = r.shape[1]
            inner = reset * nb if linear else (reset * h) @ r[2 * hidden :].T + of_h[2 * hidden :]
            h = (1 - z) * np.tanh(na + inner) + z * h
        found.append(h)
    return np.stack(found), h, c


@pytest.mark.parametrize(
    ("cell", "batch", "hidden", "options"),
    [
        ("rnn", 5, 64, {}),
        ("gru", 1, 17, {}),
        ("gru", 5, 16, {"linear_before_reset": True}),
        ("lstm", 6, 33, {}),
    ],
)
def test_layers_have_the_same_bits_everywhere(everywhere, rng, cell, batch, hidden, options):
    x = rng.standard_normal((4, batch, 7)).astype(np.float32)
    w, r, bias = weights(rng, cell, 7, hidden)
    states = [rng.standard_normal((batch, hidden)).astype(np.float32) for _ in range(1 + (cell == "lstm"))]
    found = everywhere(getattr(ops, cell), x, w, r, bias, *states, **options, tiles=False)
    right = in_float64(cell, x, w, r, bias, *states, linear=bool(options))
    for a, b in zip(found, right, strict=False):
        assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_every_option_of_an_lstm_has_the_same_bits_everywhere(everywhere, rng):
    x, (w, r, bias) = rng.standard_normal((5, 3, 4)).astype(np.float32), weights(rng, "lstm", 4, 6)
    h, c = rng.standard_normal((2, 3, 6)).astype(np.float32)
    holes = rng.standard_normal(18).astype(np.float32)
    options = {"reverse": True, "clip": 0.7, "input_forget": True, "lengths": np.array([2, 5, 0], np.int32)}
    options["activations"] = [("hard_sigmoid", 0.25, 0.5), ("elu", 0.5), "softsign"]
    y, last, cell = everywhere(ops.lstm, x, w, r, bias, h, c, holes, **options, tiles=False)
    assert (y[2:, 0] == 0).all()
    assert (y[:, 2] == 0).all()
    assert_array_equal(y[0, :2], last[:2])
    assert_array_equal(last[2], h[2])
    assert_array_equal(cell[2], c[2])


def test_a_sequence_cut_in_two_gives_what_the_whole_one_gives(rng):
    x, (w, r, bias) = rng.standard_normal((6, 2, 8)).astype(np.float32), weights(rng, "lstm", 8, 20)
    whole = eager.lstm(x, w, r, bias)
    first = eager.lstm(x[:2], w, r, bias)
    second = eager.lstm(x[2:], w, r, bias, *first[1:])
    assert_array_equal(np.concatenate([first[0], second[0]]), whole[0])
    assert_array_equal(second[2], whole[2])


def quantized(rng, w, kind, per_column):
    low, high = np.iinfo(kind).min, np.iinfo(kind).max
    shape = (w.shape[0], 1) if per_column else (1, 1)
    scale = np.full(shape, np.abs(w).max() / 100, np.float32) * (1 + 0.2 * rng.random(shape).astype(np.float32))
    zero = rng.integers(low // 2, high // 2, shape).astype(kind)
    codes = np.clip(np.rint(w / scale) + zero, low, high).astype(kind)
    return codes, scale.reshape(-1), zero.reshape(-1)


@pytest.mark.parametrize(
    ("cell", "batch", "hidden", "kind", "columns", "options"),
    [
        ("gru", 5, 64, np.uint8, True, {}),
        ("lstm", 1, 30, np.int8, None, {}),
        pytest.param("rnn", 1, 64, np.int8, False, {}, marks=pytest.mark.slow),
        pytest.param("gru", 3, 17, np.uint8, False, {"linear_before_reset": True}, marks=pytest.mark.slow),
        pytest.param("lstm", 4, 16, np.uint8, False, {}, marks=pytest.mark.slow),
    ],
)
def test_layers_on_codes_have_the_same_bits_everywhere_and_are_close(
    everywhere, rng, cell, batch, hidden, kind, columns, options
):
    x = rng.standard_normal((4, batch, 9)).astype(np.float32)
    w, r, bias = weights(rng, cell, 9, hidden)
    coded = [quantized(rng, v, kind, bool(columns)) for v in (w, r)]
    real = [(c.astype(np.float32) - z[:, None]) * s[:, None] for c, s, z in coded]
    options = {**options, "scales": tuple(s for _, s, _ in coded), "zero_points": tuple(z for *_, z in coded)}
    if columns is None:  # no zero points at all
        del options["zero_points"]
        real = [c.astype(np.float32) * s[:, None] for c, s, _ in coded]
    found = everywhere(getattr(ops, cell), x, coded[0][0], coded[1][0], bias, **options, tiles=False)
    state = np.zeros((batch, hidden), np.float32)
    right = in_float64(cell, x, *real, bias, state, state, "linear_before_reset" in options)
    assert_allclose(found[0], right[0], atol=0.05)


@pytest.mark.parametrize(
    ("cell", "hidden", "options"),
    [
        ("lstm", 70, {"reverse": True}),
        ("lstm", 40, {"scales": None}),
        ("gru", 33, {"linear_before_reset": True}),
        pytest.param("rnn", 130, {}, marks=pytest.mark.slow),
        pytest.param("gru", 33, {}, marks=pytest.mark.slow),
    ],
)
def test_threads_that_share_units_give_the_same_bits(everywhere, rng, monkeypatch, cell, hidden, options):
    monkeypatch.setattr(recurrent, "SHARED", 0)
    monkeypatch.setattr(cutting, "SMALL", 0)
    w, r, bias = weights(rng, cell, 5, hidden)
    if "scales" in options:
        coded = [quantized(rng, v, np.int8, True) for v in (w, r)]
        (w, r), options = (c for c, *_ in coded), {"scales": tuple(s for _, s, _ in coded)}
        options["zero_points"] = tuple(z for *_, z in coded)
    for length, batch in ((3, 1), (2, 3), (1, 2), (0, 2)):
        x = rng.standard_normal((length, batch, 5)).astype(np.float32)
        states = [rng.standard_normal((batch, hidden)).astype(np.float32) for _ in range(1 + (cell == "lstm"))]
        found = everywhere(getattr(ops, cell), x, w, r, bias, *states, **options, tiles=False)
        last = found[0][0 if options.get("reverse") else -1] if length else states[0]
        assert_array_equal(found[1], last)


def test_layers_say_what_they_cannot_take(rng):
    x, (w, r, bias) = rng.standard_normal((2, 1, 3)).astype(np.float32), weights(rng, "gru", 3, 4)
    with pytest.raises(ShapeMismatch, match=r"r has shape .12, 3.; \(3 H, H\)"):
        eager.gru(x, w, w, bias)
    with pytest.raises(DTypeMismatch, match="w is s8; f32 works, and s8 or u8 with scales="):
        eager.gru(x, w.astype(np.int8), r, bias)
    with pytest.raises(ArgumentError, match="no activation 'sine'; there is sigmoid"):
        eager.gru(x, w, r, bias, activations=["sine", "tanh"])
    with pytest.raises(TypeError, match="no option 'peep'"):
        eager.gru(x, w, r, bias, peep=1)
    with pytest.raises(ArgumentError, match="1 activations; 2 work"):
        eager.gru(x, w, r, bias, activations=["tanh"])
