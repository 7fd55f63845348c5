"""Plain functions over all blocks at once give the bits that CPython gives, block by block and weight by weight."""

import math

import numpy as np
import pytest

import tilework as tw
from tilework import Scheme
from tilework.bench.checks import scheme_lanes
from tilework.bench.checks import schemes as check_schemes
from tilework.bench.checks.lanes import Lanes
from tilework.executors.schemes import checking
from tilework.kernels.capture import capture

LEVELS = np.array([-6.0, -2.0, -0.5, 0.0, 0.25, 1.0, 3.0, 7.0], np.float32)
PAIRS = np.array([[0.0, 1.0], [-1.0, 0.5], [2.0, -2.0], [0.25, 0.25]], np.float32)


def largest(x):
    m = np.float32(0)
    for v in x:
        if not v == v:
            continue
        if abs(v) > 1e30:
            break
        m = max(m, abs(v))
    return m


def fit(x):
    m = largest(x)
    if m == 0.0:
        return np.float32(1), 0
    halvings = 0
    while m > 4.0:
        m = m * 0.5
        halvings += 1
        if halvings > 40:
            return np.float32(2), 7
    return m, halvings


def encode(x, scale, halvings, index):
    y = math.ldexp(x, -halvings) / scale
    if index % 5 == 3:
        y = -y
    best, far = 0, np.float32(1e30)
    for i in range(len(LEVELS)):
        d = abs(y - LEVELS[i])
        if d < far:
            best, far = i, d
    return best


def decode(q, scale, halvings, index):
    y = LEVELS[q] * scale
    for _ in range(halvings):
        y = y * 2.0
    return -y if index % 5 == 3 else y


def fit_pairs(x):
    total = np.float32(0)
    for i in range(0, len(x), 2):
        total += math.sqrt(x[i] * x[i])
    return total / len(x) + 0.125, np.tanh(total)


def encode_pairs(x, codes, scale, bend):
    for i in range(len(codes)):
        a = x[2 * i]
        b = x[2 * i + 1] if 2 * i + 1 < len(x) else np.float32(0)
        best, far = 0, np.float32(1e38)
        for j in range(4):
            d = abs(a - PAIRS[j, 0] * scale) + abs(b - PAIRS[j, 1] * scale) + bend
            if d < far:
                best, far = j, d
        codes[i] = best


def decode_pairs(codes, x, scale, bend):
    seen = np.zeros(4, np.int32)
    for i in range(len(codes)):
        seen[codes[i]] += 1
    for i in range(len(x)):
        x[i] = PAIRS[codes[i // 2], i % 2] * scale + seen[codes[i // 2]]


BRANCHING = Scheme("branching", 3, 7, {"scale": "f16", "halvings": "u8"}, fit, encode, decode)
VECTOR = Scheme(
    "pairs", 2, 14, {"scale": "bf16", "bend": "f32"}, fit_pairs, vector=2, encode_block=encode_pairs,
    decode_block=decode_pairs,
)  # fmt: skip


@pytest.mark.parametrize("name", ["int4_g32_asym", "ternary", "nf4_double", "mxfp4", "q4_0", "q3_k", "iq2_s"])
def test_shipped_schemes(name):
    scheme, rng = tw.schemes.get(name), np.random.default_rng(3)
    blocks = (scheme.block,) if scheme.block_bytes else (scheme.block, 1, (2, 9))
    for block in blocks:
        made = scheme if block == scheme.block else scheme.replace(block=block)
        x = check_schemes.data(rng, 5, 23 if scheme.block_bytes is None else 300)
        same(made, x)


@pytest.mark.parametrize("scheme", [BRANCHING, BRANCHING.replace(block=(3, 5)), VECTOR], ids=["row", "tile", "pairs"])
def test_loops_that_lanes_leave_at_different_times(scheme):
    x = check_schemes.data(np.random.default_rng(4), 11, 33)
    same(scheme, x)
    assert not any(checking.apart(a, b).any() for a, b in zip(*map(dict.values, checked(scheme, x)), strict=True))


def checked(scheme, x):
    return scheme_lanes.parts(scheme, x), checking.native(scheme, x)


def same(scheme, x):
    right, found = checking.literal(scheme, x), scheme_lanes.parts(scheme, x)
    assert right.keys() == found.keys()
    for part, wanted in right.items():
        assert (found[part].dtype, found[part].shape) == (wanted.dtype, wanted.shape), part
        assert not checking.apart(wanted, found[part]).any(), part


def collatz(n, most):
    steps = 0
    while n != 1:
        if steps == most:
            return -1
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    return steps


def test_a_while_loop_ends_for_each_lane_by_itself():
    made = capture(collatz, ("i", "i"))
    n = np.arange(1, 200, dtype=np.int32)
    found = Lanes(made).run(n.size, n, 60)
    assert found.tolist() == [made.interpreted(int(v), 60) for v in n]
    assert -1 in found


def test_a_wrong_kernel_is_counted(monkeypatch):
    right = checking.native

    def faulty(scheme, x):
        found = right(scheme, x)
        found["code"] = found["code"].copy()
        found["code"][0, 0] ^= 1
        return found

    monkeypatch.setattr(checking, "native", faulty)
    found = check_schemes.run(2000, ["int4_g32"], sample=50)
    assert found.different > 0
    assert (found.sample_different, found.sampled > 0) == (0, True)


def test_the_code_of_a_nan_that_operations_made_does_not_hang_on_its_sign():
    scheme = tw.schemes.get("nvfp4")
    x = np.ones((4, 48), np.float32)
    x[0, :3] = np.inf, np.nan, -np.nan
    x[1, 5] = -np.inf
    wanted = checking.literal(scheme, x)
    for found in (checking.native(scheme, x), scheme_lanes.parts(scheme, x)):
        np.testing.assert_array_equal(found["code"], wanted["code"])
    assert set(wanted["code"][0, :3]) == {8}
