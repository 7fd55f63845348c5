"""pow, expm1, log1p and the hyperbolic functions as written sequences (vectormath.py says what that is)."""

from __future__ import annotations

from .floatops import INF, NAN, bits, copysign, f32, fabs, fma, from_bits, rint, scale, select, sqrt, to_float, trunc
from .sequence import sequence
from .vectormath import LN2, LOG2E, _exp_reduced, exp, log

THIRD = f32(0.333333343)
LOG2E_LOW = f32(1.92596303e-08)
SMALLEST_NORMAL = f32(1.17549435e-38)


@sequence("f->f")
def expm1(x):
    """e**x - 1. 2 ulp, relative near 0 too."""
    c = select(x > f32(89.0), f32(89.0), x)
    c = select(c < f32(-30.0), f32(-30.0), c)
    p, p_low, k = _exp_reduced(c, None)
    near = (p - f32(1.0)) + p_low
    y = select(k == 0, near, scale(p, k) - f32(1.0))
    y = select(fabs(x) < f32(1e-8), x, y)
    return select(x != x, NAN, y)


@sequence("f->f")
def log1p(x):
    """Natural logarithm of 1 + x. 2 ulp, relative near 0 too; -inf at -1, NaN below."""
    u = x + f32(1.0)
    correction = select(u < INF, (x - (u - f32(1.0))) / u, f32(0.0))
    y = log.fn(u) + select(u > f32(0.0), correction, f32(0.0))
    return select(fabs(x) < f32(1e-8), x, y)


def _log2_pair(x):
    """Return log2 of x > 0, finite, as a sum of two float32: about 2**-33 of its size off.

    ln(1 + f) = f - f**2 / 2 + f**3 * Q(f), the first two terms carried as sums of two float32.
    """
    tiny = x < SMALLEST_NORMAL
    i = bits(select(tiny, x * f32(8388608.0), x))
    k = (i - 0x3F2AAAAB) >> 23  # 0x3f2aaaab is 2/3
    f = from_bits(i - (k << 23)) - f32(1.0)
    s = f * f
    s_low = fma(f, f, -s)
    q = fma(f, f32(0.104138233), f32(-0.109668314))
    for c in (
        0.0872715488,
        -0.0968850181,
        0.111328252,
        -0.125156552,
        0.142851353,
        -0.166663498,
        0.200000063,
        -0.25000003,
    ):
        q = fma(q, f, f32(c))
    p = fma(q, f, THIRD)
    p_low = fma(q, f, THIRD - p) + f32(-1.00217333e-08)
    u = s * f
    u_low = fma(s, f, -u) + s_low * f
    cubic = u * p
    cubic_low = fma(u, p, -cubic) + fma(u, p_low, u_low * p)
    half = s * f32(-0.5)
    h = f + half
    h_low = (half - (h - f)) + s_low * f32(-0.5)
    g = h + cubic
    z = g - h
    h, h_low = g, ((h - (g - z)) + (cubic - z)) + (h_low + cubic_low)
    y = h * LOG2E
    y_low = fma(h, LOG2E, -y) + fma(h, LOG2E_LOW, h_low * LOG2E)
    e = to_float(k) - select(tiny, f32(23.0), f32(0.0))
    total = e + y
    low = ((e - total) + y) + y_low
    high = total + low
    return high, low - (high - total)


@sequence("ff->f")
def power(x, y):
    """x**y as IEEE's pow: 1 where y is 0 or x is 1, NaN for a negative x and a fraction y. 2 ulp."""
    a = fabs(x)
    inside = select((a > f32(0.0)) & (a < INF), a, f32(1.0))
    high, low = _log2_pair(inside)
    bounded = select(y > f32(1e10), f32(1e10), select(y < f32(-1e10), f32(-1e10), y))
    bounded = select(y != y, f32(0.0), bounded)
    t = high * bounded
    t_low = fma(high, bounded, -t) + low * bounded
    t_low = select(fabs(t) < f32(300.0), t_low, f32(0.0))
    c = select(t > f32(300.0), f32(300.0), select(t < f32(-300.0), f32(-300.0), t))
    n = rint(c)
    r = (c - n) + t_low
    q = fma(r, f32(0.000153264627), f32(0.00133908063))
    q = fma(q, r, f32(0.00961850584))
    q = fma(q, r, f32(0.0555036993))
    q = fma(q, r, f32(0.240226477))
    q = fma(q, r, f32(0.693147182))
    p = fma(q, r, f32(1.0))
    k = select(n > f32(129.0), f32(129.0), select(n < f32(-170.0), f32(-170.0), n))
    magnitude = scale(p, _whole(k))
    up = y > f32(0.0)
    magnitude = select(a == f32(0.0), select(up, f32(0.0), INF), magnitude)
    magnitude = select(a == INF, select(up, INF, f32(0.0)), magnitude)
    whole = (trunc(y) == y) | (fabs(y) == INF)
    half = y * f32(0.5)
    odd = whole & (trunc(half) != half) & (fabs(y) < f32(16777216.0))
    negative = bits(x) < 0
    result = select(negative & odd, -magnitude, magnitude)
    result = select(negative & (a != f32(0.0)) & (a < INF) & (trunc(y) != y), NAN, result)
    result = select((x == f32(-1.0)) & (fabs(y) == INF), f32(1.0), result)
    result = select((x != x) | (y != y), NAN, result)
    return select((y == f32(0.0)) | (x == f32(1.0)), f32(1.0), result)


def _whole(n):
    """Return an integral float32 of less than 2**22 as int32."""
    return bits(n + f32(12582912.0)) - 0x4B400000


@sequence("f->f")
def sinh(x):
    """Hyperbolic sine. 3 ulp."""
    a = fabs(x)
    e = expm1.fn(a)
    t = exp.fn(a * f32(0.5))
    large = (t * f32(0.5)) * t
    return copysign(select(a < f32(9.0), f32(0.5) * (e + e / (e + f32(1.0))), large), x)


@sequence("f->f")
def cosh(x):
    """Hyperbolic cosine. 3 ulp."""
    a = fabs(x)
    e = exp.fn(a)
    t = exp.fn(a * f32(0.5))
    return select(a < f32(9.0), f32(0.5) * (e + f32(1.0) / e), (t * f32(0.5)) * t)


@sequence("f->f")
def asinh(x):
    """Inverse hyperbolic sine. 4 ulp."""
    a = fabs(x)
    s = a * a
    near = log1p.fn(a + s / (f32(1.0) + sqrt(s + f32(1.0))))
    return copysign(select(a < f32(1e9), near, log.fn(a) + LN2), x)


@sequence("f->f")
def acosh(x):
    """Inverse hyperbolic cosine; NaN below 1. 4 ulp."""
    t = x - f32(1.0)
    y = select(x < f32(1e9), log1p.fn(t + sqrt(t + t + t * t)), log.fn(x) + LN2)
    return select(x < f32(1.0), NAN, y)


@sequence("f->f")
def atanh(x):
    """Inverse hyperbolic tangent; infinite at 1 and -1, NaN beyond. 4 ulp."""
    a = fabs(x)
    return copysign(f32(0.5) * log1p.fn((a + a) / (f32(1.0) - a)), x)
