"""The certificate of element formats: it holds for ours, and finds what was planted."""

import math
import re

import numpy as np
import pytest

import tilework as tw
from tilework.bench.schemes import certificate
from tilework.kernels.schemes.minifloats import FORMATS
from tilework.primitives.errors import ArgumentError, Unsupported

VALUES = FORMATS["e4m3"].values


def decode(code):
    return VALUES[code]


def good(x):
    a = abs(x)
    if a != a:
        return 0x7F
    if a >= 464.0:
        return 0xFE if x < 0.0 else 0x7E
    if a == 0.0:
        return 0x80 if np.copysign(1.0, x) < 0.0 else 0
    e = max(math.frexp(a)[1] - 1, -6)
    code = min(((e + 6) << 3) + int(np.rint(math.ldexp(a, 3 - e))), 0x7E)
    return code | 0x80 if np.copysign(1.0, x) < 0.0 else code


def ties_away(x):
    a = abs(x)
    if a == 0.0 or a != a or a >= 464.0:
        return good(x)
    e = max(math.frexp(a)[1] - 1, -6)
    code = min(((e + 6) << 3) + int(np.floor(math.ldexp(a, 3 - e) + 0.5)), 0x7E)
    return code | 0x80 if x < 0.0 else code


def no_subnormals(x):
    return good(0.0 * x) if abs(x) < 0.015625 else good(x)


def overflow_wraps(x):
    return 0 if x > 448.0 else good(x)


def a_single_input(x):
    return 1 if x == 1.5 else good(x)


@pytest.mark.parametrize(
    ("encode", "first"),
    [
        (good, ""),
        (ties_away, r"has code 1, expected 0"),
        (no_subnormals, r"has code 0, expected 1"),
        (overflow_wraps, r"has code 0, expected 126"),
        (a_single_input, r"1\.5"),
    ],
    ids=lambda v: getattr(v, "__name__", ""),
)
def test_planted_faults_are_found(encode, first):
    found = certificate.certify(tw.Scheme("mine_e4m3", 8, "tensor", {}, None, encode, decode), quick=True)
    assert found.inputs > 20_000
    assert bool(found) == (not first), str(found)
    if first:
        assert re.search(first, found.first), found.first
        assert "differ; first: " in str(found)


@pytest.mark.parametrize("name", ["fp8_e4m3_nonsat", "fp6_e3m2", "fp4_e2m1"])
def test_ours_hold_against_both_references(name):
    scheme = tw.schemes.get(name)
    for against in ("exact", "ml_dtypes"):
        found = certificate.certify(scheme, against, quick=True)
        assert found, str(found)
        assert not found.whole


def test_what_cannot_be_certified_is_named():
    with pytest.raises(ArgumentError, match=r"int4_g32 has parameters"):
        certificate.certify(tw.schemes.get("int4_g32"))
    with pytest.raises(Unsupported, match=r"ml_dtypes has no format fp8_e4m3;"):
        certificate.certify(tw.schemes.get("fp8_e4m3"), "ml_dtypes")
