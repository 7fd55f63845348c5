"""What passes over a row compute on sixteen float32 at a time (passes.py)."""

from __future__ import annotations

from ...floatops import f32, fabs, rint, scale, select, to_float, to_int
from ...vectormath import _exp_reduced


def value(x):
    return x


def value_twice(x):
    return x, x


def value_twice_and_magnitude(x):
    """For the least and the greatest element; the farthest one tells of NaN with fewer instructions than they would."""
    return x, x, fabs(x)


def magnitude(x):
    return fabs(x)


def square(x):
    return x * x


def square_from(x, mean):
    d = x - mean
    return d * d


def _exp_down(x):
    """exp of what is not above 0, with the bits of vectormath.exp and without its upper bound."""
    c = select(x < f32(-104.0), f32(-104.0), x)
    p, _, k = _exp_reduced(c, None)
    return scale(p, k)


def exponential(x, top):
    return _exp_down(x - top)


def exponential_capped(x, shift):
    """exp(x - shift), or 1 where that is above: an infinite sum is told by what it is shifted by, not by its terms."""
    d = x - shift
    return _exp_down(select(d > f32(0.0), f32(0.0), d))


def exponential_kept(x, top):
    e = _exp_down(x - top)
    return e, e


def times(x, factor):
    return x * factor


def exponential_times(x, top, factor):
    return _exp_down(x - top) * factor


def below(x, top, log_sum):
    return (x - top) - log_sum


def centred(x, mean, inverse):
    return (x - mean) * inverse


def centred_scaled(x, factor, mean, inverse):
    return (x - mean) * inverse * factor


def centred_affine(x, factor, bias, mean, inverse):
    return (x - mean) * inverse * factor + bias


def centred_channel(x, mean, inverse, factor, bias):
    return (x - mean) * inverse * factor + bias


def scaled(x, factor, inverse):
    return x * inverse * factor


def affine(x, factor, bias, inverse):
    return x * inverse * factor + bias


def codes(low, high):
    """The pass that quantizes to codes of a range: clip(rint(x / scale) + zero_point); NaN gives the zero point."""

    def code(x, step, zero_point):
        r = rint(x / step)
        far = f32(65536.0)
        r = select(r != r, f32(0.0), select(r > far, far, select(r < -far, -far, r)))
        q = r + zero_point
        return to_int(select(q < f32(low), f32(low), select(q > f32(high), f32(high), q)))

    return code


def flipped(x):
    """Four codes of s8, as the word whose bytes they are, with 128 added to each: codes of u8."""
    return x ^ -0x7F7F7F80


def interleaved(a, b, c, d):
    """Four bytes as the int32 whose bytes they are, the first one lowest."""
    return a | (b << 8) | (c << 16) | (d << 24)


def scaled_scores(x, factor):
    s = x * factor
    return s, s


def scaled_masked_scores(x, mask, factor):
    s = x * factor + mask
    return s, s


def code_scores(total, correction, k_scale, factor):
    s = to_float(total - correction) * factor * k_scale
    return s, s


def masked_code_scores(total, correction, k_scale, mask, factor):
    s = to_float(total - correction) * factor * k_scale + mask
    return s, s


def exponential_weighed(x, v_scale, top):
    """The weight times the scale of its value, which is kept; the weight, which is summed; the largest one kept."""
    e = _exp_down(x - top)
    w = e * v_scale
    return w, e, w


def to_weight_codes(w, inverse):
    """rint(w * inverse), at most 255; of NaN the lowest byte is 0."""
    x = w * inverse
    return x.primitive("nearest_int", select(x > f32(255.0), f32(255.0), x))


def add_code_sums(o, total, again, step):
    return o * again + to_float(total) * step


def new_tops(before, top):
    """Of rows: the largest score so far, what is subtracted from scores, and how what was summed before counts now.

    A row that is not seen gives -inf, which changes nothing. What is subtracted is 0 where nothing was seen yet.
    """
    top = select(before > top, before, select(before != before, before, top))
    zero = select(top > f32(-float("inf")), top, select(top != top, top, f32(0.0)))
    return top, zero, _exp_down(before - zero)


def new_sums(total, again, added):
    return total * again + added


def new_code_sums(total, again, added, most):
    """Also the inverse of a code's step, and the step."""
    return total * again + added, select(most > f32(0.0), f32(255.0) / most, f32(0.0)), most * f32(1 / 255)


def inverse_of(total):
    return select(total != f32(0.0), f32(1.0) / total, f32(0.0))
