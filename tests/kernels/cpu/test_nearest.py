"""Codes that are whole numbers nearest to quotients are found without a division, and are those of the division."""

import numpy as np
import pytest

from tilework.kernels.cpu import isa, nearest
from tilework.kernels.cpu.schemes import divided as scheme_divided
from tilework.kernels.reference import schemes as reference
from tilework.kernels.schemes.definition import Definition as Scheme
from tilework.kernels.schemes.packing import unpack
from tilework.kernels.schemes.shipped import definition
from tilework.kernels.schemes.steps import SchemeEncode
from tilework.primitives import dtypes


def unit(x):
    return (np.float32(1), 3)


def offset(x):
    return (np.float32(1), np.float32(0))


def with_zero(x, scale, zero):
    return min(max(np.rint(x / scale) + zero, 0.0), 15.0)


def from_low(x, scale, low):
    y = (x - low) / (scale * 2.0)
    return np.clip(np.rint(y), -3.0, 3.0)


def weight(q, scale, zero):
    return (q - zero) * scale


ZERO = Scheme("zero", 4, 32, {"scale": "f32", "zero": "s32"}, unit, with_zero, weight)
LOW = Scheme("low", 4, 100, {"scale": "f32", "low": "f32"}, offset, from_low, weight, signed=True)
INT8 = definition("int8_channel")


def test_what_is_a_rounded_quotient_is_found():
    assert scheme_divided.quotient(ZERO) == nearest.Quotient("s0", "", "s1", 0, 15)
    assert scheme_divided.quotient(LOW) == nearest.Quotient("s0 * f32(2.0)", "-s1", "", -3, 3)
    assert scheme_divided.quotient(INT8) == nearest.Quotient("s0", "", "", -127, 127)
    others = {
        "a factor": lambda x, scale, zero: np.rint(x * scale) + zero,
        "no whole number": lambda x, scale, zero: np.rint(x / scale) + 0.5,
        "another rounding": lambda x, scale, zero: np.floor(x / scale) + zero,
        "a branch": lambda x, scale, zero: np.rint(x / scale) if x > 0 else 0.0,
        "a divisor with the weight in it": lambda x, scale, zero: np.rint(x / (scale + x)),
        "more than a shift": lambda x, scale, zero: np.rint((x * 2.0) / scale),
    }
    for what, encode in others.items():
        assert scheme_divided.quotient(ZERO.replace(encode=encode)) is None, what
    assert scheme_divided.quotient(ZERO.replace(block=15)) is None
    assert scheme_divided.quotient(definition("nf4")) is None


def parameters(scheme, rows, blocks, kind, rng):
    """Divisors that are usual, powers of two of all sizes, or any bits; zero points that are usual, or far off."""
    shape = (rows, blocks)
    scale = {
        "usual": lambda: rng.random(shape, dtype=np.float32) + np.float32(0.01),
        "powers": lambda: np.exp2(rng.integers(-149, 128, shape)).astype(np.float32),
        "bits": lambda: rng.integers(0, 2**32, shape, dtype=np.uint64).astype(np.uint32).view(np.float32),
    }[kind]()
    made = [scale]
    for stored in scheme.stored[1:]:
        if stored.kind == "i":
            made.append(rng.choice([0, 1, 3, 15, -4, 256, 257, 2**24 + 1, -(2**31)], shape).astype(np.int32))
        else:
            made.append(rng.standard_normal(shape).astype(np.float32))
    return made


def weights(scheme, params, columns, kind, rng):
    """Ties and their neighbours, any bits, or quotients of all sizes."""
    across = scheme.edges[1] if scheme.edges[1] > 0 else columns
    scale = params[0][:, np.arange(columns) // across]
    shape = scale.shape
    with np.errstate(all="ignore"):
        if kind == "ties":
            tie = (scale * (rng.integers(-20, 21, shape) + np.float32(0.5))).astype(np.float32)
            return np.nextafter(tie, tie + rng.integers(-1, 2, shape).astype(np.float32))
        if kind == "bits":
            return rng.integers(0, 2**32, shape, dtype=np.uint64).astype(np.uint32).view(np.float32)
        return (scale * rng.standard_normal(shape) * np.exp2(rng.integers(-30, 40, shape))).astype(np.float32)


CASES = [(ZERO, level.name) for level in isa.available()] + [(s, isa.available()[-1].name) for s in (LOW, INT8)]


@pytest.mark.parametrize(("scheme", "level"), CASES, ids=lambda c: getattr(c, "name", c))
def test_codes_are_those_of_the_division(scheme, level, monkeypatch):
    from tilework.executors.tiles import _ENTRY, _NO_BASES
    from tilework.kernels import factory, forge
    from tilework.kernels.entry import OperandType, bits_view

    monkeypatch.setenv("TILEWORK_ISA", level)
    rng = np.random.default_rng(0)
    rows, kernel, entry = 9, SchemeEncode(scheme), None
    for divisors in ("usual", "powers", "bits"):
        for numbers in ("ties", "bits", "sizes"):
            for columns in (15, 16, 47, 129, 700):
                blocks = scheme.grid(rows, columns)[1]
                params = parameters(scheme, rows, blocks, divisors, rng)
                x = np.ascontiguousarray(weights(scheme, params, columns, numbers, rng))
                codes = np.full((rows, scheme.row_bytes(columns)), 0x5A, np.uint8)
                operands = (x, *params, codes)
                names = tuple(dtypes.get(o.dtype).name for o in operands)
                built = factory.get(kernel.name, "cpu", kernel=kernel, dtypes=names, ranks=(2,) * len(operands))
                if isinstance(built, factory.Whole):
                    pytest.skip("native code is not made here")
                extra = built.params(*operands)
                types = tuple(OperandType(n, o.ndim) for n, o in zip(names, operands, strict=True))
                entry = _ENTRY(forge.entry(built.tile, 1, types, len(extra)).address)
                views = [bits_view(o) for o in operands]
                words = [w for v in views for w in (0, v.__array_interface__["data"][0], *v.shape, *v.strides)]
                block, bounds = np.array([*words, *extra], np.int64), np.array([0, rows], np.int64)
                assert entry(_NO_BASES.ctypes.data, block.ctypes.data, bounds.ctypes.data) == 0
                with np.errstate(all="ignore"):
                    wanted = divided(scheme, x, params, columns)
                found = unpack(codes, scheme.bits, columns, scheme.signed)
                np.testing.assert_array_equal(found, wanted, err_msg=f"{divisors} {numbers} {columns}")
    sample = np.ascontiguousarray(x[:2, :200])
    np.testing.assert_array_equal(
        reference.encode(scheme, sample, [p[:2] for p in params]), packed(scheme, sample, params)
    )


def divided(scheme, x, params, columns):
    """The codes of each scheme, its arithmetic on whole arrays."""
    across = scheme.edges[1] if scheme.edges[1] > 0 else columns
    scale, *rest = (p[:, np.arange(columns) // across] for p in params)
    if scheme is ZERO:
        y = np.rint(x / scale) + rest[0].astype(np.float32)
        least, most = 0, 15
    elif scheme is LOW:
        y = np.rint((x - rest[0]) / (scale * np.float32(2)))
        least, most = -3, 3
    else:
        y = np.rint(x / scale)
        least, most = -127, 127
    return np.clip(np.where(np.isnan(y), 0, y), least, most).astype(np.int64)


def packed(scheme, x, params):
    from tilework.kernels.schemes.packing import pack

    with np.errstate(all="ignore"):
        return pack(divided(scheme, x, [p[:2] for p in params], x.shape[1]).astype(np.int32), scheme.bits)
