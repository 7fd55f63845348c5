"""sin, cos, tan and their inverses as written sequences (vectormath.py says what that is).

Arguments of any size are reduced by multiples of pi / 2: x * 2/pi is summed exactly enough from products with pieces
of 2/pi, each of which is first reduced modulo 4, so that no table and no branch is needed.
"""

from __future__ import annotations

from .floatops import NAN, copysign, f32, fabs, fma, rint, select, sqrt, to_int
from .sequence import sequence

# 2/pi in pieces of 24 bits, each times 2**60, so that the last is no subnormal worth speaking of
_BITS = (0xA2F983, 0x6E4E44, 0x1529FC, 0x2757D1, 0xF534DD, 0xC0DB62, 0x95993C, 0x439041)
TWO_OVER_PI = [f32(float(n) * 2.0 ** (60 - 24 * (k + 1))) for k, n in enumerate(_BITS)]
HALF_PI = f32(1.5707964)
HALF_PI_LOW = f32(-4.371139e-08)
DOWN = f32(2.0**-60)


def _sum(a, b):
    """Return a + b and what its rounding lost."""
    s = a + b
    z = s - a
    return s, (a - (s - z)) + (b - z)


def _modulo_4(x):
    """Return x - 4 * rint(x / 4), which is exact."""
    return fma(rint(x * f32(0.25)), f32(-4.0), x)


def _quarters(x):
    """Return (n, r, r_low): x = n * pi/2 + r + r_low modulo 2 pi, |r| <= pi/4, n in -4 .. 4; NaN where x is not finite."""
    y = x * DOWN
    high, low = f32(0.0), f32(0.0)
    for piece in TWO_OVER_PI:
        p = y * piece
        for part in (p, fma(y, piece, -p)):
            high, lost = _sum(high, _modulo_4(part))
            low = low + lost
    high, lost = _sum(_modulo_4(high), low)
    n = rint(high)
    f, f_low = _sum(high - n, lost)
    r = f * HALF_PI
    r_low = fma(f, HALF_PI, -r) + fma(f, HALF_PI_LOW, f_low * HALF_PI)
    near = fabs(x) < f32(0.7853982)
    return to_int(select(near, f32(0.0), n)), select(near, x, r), select(near, f32(0.0), r_low)


def _sin_poly(r, low):
    s = r * r
    q = fma(s, f32(-1.9515295891e-4), f32(8.3321608736e-3))
    q = fma(q, s, f32(-1.6666654611e-1))
    return r + fma(q * s, r, low)


def _cos_poly(r, low):
    s = r * r
    q = fma(s, f32(2.443315711809948e-5), f32(-1.388731625493765e-3))
    q = fma(q, s, f32(4.166664568298827e-2))
    half = s * f32(0.5)
    w = f32(1.0) - half
    return w + (((f32(1.0) - w) - half) + fma(q * s, s, -(r * low)))


def _turned(x, shift):
    n, r, low = _quarters(x)
    n = n + shift
    y = select((n & 1) == 0, _sin_poly(r, low), _cos_poly(r, low))
    y = select((n & 2) == 0, y, -y)
    return select(x - x == f32(0.0), y, NAN)


@sequence("f->f")
def sin(x):
    """Sine of any float32. 2 ulp; NaN for infinities."""
    return _turned(x, 0)


@sequence("f->f")
def cos(x):
    """Cosine of any float32. 2 ulp; NaN for infinities."""
    return _turned(x, 1)


@sequence("f->f")
def tan(x):
    """Tangent of any float32. 4 ulp; NaN for infinities."""
    n, r, low = _quarters(x)
    s, c = _sin_poly(r, low), _cos_poly(r, low)
    odd = (n & 1) != 0
    y = select(odd, -c, s) / select(odd, s, c)
    return select(x - x == f32(0.0), y, NAN)


@sequence("f->f")
def arctan(x):
    """Inverse tangent. 2 ulp."""
    a = fabs(x)
    steep, middle = a > f32(2.4142135), a > f32(0.41421357)
    top = select(steep, f32(-1.0), select(middle, a - f32(1.0), a))
    bottom = select(steep, a, select(middle, a + f32(1.0), f32(1.0)))
    t = top / bottom
    s = t * t
    q = fma(s, f32(8.05374449538e-2), f32(-1.38776856032e-1))
    q = fma(q, s, f32(1.99777106478e-1))
    q = fma(q, s, f32(-3.33329491539e-1))
    y = fma(q * s, t, t)
    return copysign(select(steep, HALF_PI, select(middle, f32(0.7853982), f32(0.0))) + y, x)


def _arcsin_poly(s, t):
    q = fma(s, f32(4.2163199048e-2), f32(2.4181311049e-2))
    q = fma(q, s, f32(4.5470025998e-2))
    q = fma(q, s, f32(7.4953002686e-2))
    q = fma(q, s, f32(1.6666752422e-1))
    return fma(q * s, t, t)


@sequence("f->f")
def arcsin(x):
    """Inverse sine; NaN beyond 1 and -1. 3 ulp."""
    a = fabs(x)
    steep = a > f32(0.5)
    s = select(steep, f32(0.5) * (f32(1.0) - a), a * a)
    y = _arcsin_poly(s, select(steep, sqrt(s), a))
    return copysign(select(steep, HALF_PI - (y + y), y), x)


@sequence("f->f")
def arccos(x):
    """Inverse cosine; NaN beyond 1 and -1. 3 ulp."""
    a = fabs(x)
    steep = a > f32(0.5)
    s = select(steep, f32(0.5) * (f32(1.0) - a), a * a)
    y = _arcsin_poly(s, select(steep, sqrt(s), a))
    double = y + y
    far = select(x < f32(0.0), f32(3.1415927) - double, double)
    return select(steep, far, HALF_PI - copysign(y, x))
