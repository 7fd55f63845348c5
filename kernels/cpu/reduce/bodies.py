"""What passes over a row compute on sixteen float32 at a time (passes.py)."""

from __future__ import annotations

from ...floatops import f32, fabs, rint, select, to_int
from ...vectormath import exp


def value(x):
    return x


def value_twice(x):
    return x, x


def magnitude(x):
    return fabs(x)


def square(x):
    return x * x


def square_from(x, mean):
    d = x - mean
    return d * d


def exponential(x, top):
    return exp.fn(x - top)


def exponential_kept(x, top):
    e = exp.fn(x - top)
    return e, e


def times(x, factor):
    return x * factor


def exponential_times(x, top, factor):
    return exp.fn(x - top) * factor


def below(x, top, log_sum):
    return (x - top) - log_sum


def centred(x, mean, inverse):
    return (x - mean) * inverse


def centred_scaled(x, scale, mean, inverse):
    return (x - mean) * inverse * scale


def centred_affine(x, scale, bias, mean, inverse):
    return (x - mean) * inverse * scale + bias


def scaled(x, scale, inverse):
    return x * inverse * scale


def affine(x, scale, bias, inverse):
    return x * inverse * scale + bias


def codes(low, high):
    """The pass that quantizes to codes of a range: clip(rint(x / scale) + zero_point); NaN gives the zero point."""

    def code(x, scale, zero_point):
        r = rint(x / scale)
        far = f32(65536.0)
        r = select(r != r, f32(0.0), select(r > far, far, select(r < -far, -far, r)))
        q = r + zero_point
        return to_int(select(q < f32(low), f32(low), select(q > f32(high), f32(high), q)))

    return code
