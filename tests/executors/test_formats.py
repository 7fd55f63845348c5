"""Shipped formats: small floats, microscaling, NVFP4, affine rules by name, bitsandbytes."""

import ml_dtypes
import numpy as np
import pytest

import tilework as tw
from tilework.bench.schemes.certificate import ML_DTYPES as ML
from tilework.kernels.reference import schemes as reference
from tilework.kernels.schemes import affine, minifloats, mx
from tilework.primitives.errors import ArgumentError


def numbers(values):
    """Values, the midpoints of neighbours, and what lies one step beside each; then what is far away."""
    finite = np.unique(values[np.isfinite(values)]).astype(np.float64)
    with np.errstate(over="ignore"):
        beyond = (finite * 1.3).astype(np.float32)
    points = np.concatenate([finite, (finite[1:] + finite[:-1]) / 2, beyond, [1e30, -1e30, 3e-45]]).astype(np.float32)
    points = np.concatenate(
        [points, np.nextafter(points, np.float32(np.inf)), np.nextafter(points, np.float32(-np.inf))]
    )
    return np.concatenate([points, np.float32([0.0, -0.0, np.nan, np.inf, -np.inf])])[None]


@pytest.mark.parametrize("name", ML)
def test_small_floats_in_plain_python_are_those_of_ml_dtypes(name):
    scheme, kind = tw.schemes.get(name), np.dtype(getattr(ml_dtypes, ML[name]))
    unsigned = f"u{kind.itemsize}"
    codes = np.arange(1 << scheme.bits, dtype=unsigned)
    if scheme.bits == 16:
        codes = codes[::97]
    values = codes.view(kind).astype(np.float32)
    decoded = np.array([scheme.captured_decode.main(int(c)) for c in codes], np.float32)
    np.testing.assert_array_equal(np.isnan(decoded), np.isnan(values))
    good = ~np.isnan(values)
    np.testing.assert_array_equal(decoded[good].view(np.uint32), values[good].view(np.uint32))
    x = numbers(values)
    with np.errstate(all="ignore"):
        wanted = x.astype(kind)
    found = reference.encode_codes(scheme, x, []).astype(unsigned).view(kind)
    a, b = found.astype(np.float32), wanted.astype(np.float32)
    np.testing.assert_array_equal(np.isnan(a), np.isnan(b))
    good = ~np.isnan(b)
    np.testing.assert_array_equal(a[good].view(np.uint32), b[good].view(np.uint32))


def test_saturating_floats_hold_infinity_at_the_largest():
    x = np.float32([[500, -1e9, np.inf, -np.inf, 448]])
    np.testing.assert_array_equal(tw.schemes.get("fp8_e4m3").fake_quantize(x), [[448, -448, 448, -448, 448]])


@pytest.mark.parametrize("name", ["mxfp6_e2m3_even", "nvfp4", "torch_uint8_tensor"])
def test_compiled_formats_agree_with_plain_python(name):
    found = tw.schemes.get(name).check(levels=())
    assert found, str(found)


@pytest.mark.parametrize(("mode", "expected"), [("floor", 1.0), ("ceil", 2.0), ("even", 2.0), ("rceil", 2.0)])
def test_scales_of_microscaling_differ_by_rule(mode, expected):
    """For an amax of 7 and E2M1: 2**(2 - 2); the ceiling, 2**(3 - 2); 7 rounds to 8 with one bit; 7 / 6 rounds up to 2."""
    fit = mx.fitting(mode, 2, 1, 6.0)
    assert float(fit(np.float32([7.0, -1.0]))[0]) == expected
    assert float(fit(np.float32([0.0]))[0]) == 2.0**-127
    assert np.isnan(fit(np.float32([np.nan, 1.0]))[0])


def test_named_rules_differ_where_they_are_said_to():
    scale, zero = np.float32(0.1), 3
    x = (np.arange(-40, 40) / 2).astype(np.float32) * scale  # on ties of x / scale
    codes = {rule: affine.coding(rule, 0.0, 255.0) for rule in affine.CODES}
    made = {rule: [float(fn(v, scale, zero)) for v in x] for rule, fn in codes.items()}
    assert made["onnx"] != made["torch"]
    assert made["torchao"] != made["torch_channel"]
    with pytest.raises(ArgumentError, match=r"codes are onnx, torch, torch_channel, torchao"):
        affine.affine("x", 8, "row", codes="tf")


def test_formats_are_what_their_tables_say():
    assert minifloats.FORMATS["e4m3"].maximum == 448
    assert minifloats.FORMATS["e5m2"].maximum == 57344
    assert minifloats.FORMATS["e3m2"].maximum == 28
    assert minifloats.FORMATS["e2m3"].maximum == 7.5
