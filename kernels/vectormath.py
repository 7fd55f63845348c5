"""exp, log, erf, tanh, gelu and the rest, each as one written sequence of IEEE float32 operations.

A sequence uses + - * / and the operations of floatops.py and nothing else: no branch, no table, no library call. It
gives the same bits under plain Python, NumPy, every instruction set and CUDA, and a loop that calls it vectorises.

    >>> exp(1.0)
    np.float32(2.7182817)

Called on numbers it returns a NumPy scalar, on arrays an array. Accuracy over all 2**32 inputs is stated at each
function, as the largest distance in ulp from the correctly rounded result (bench/checks/vectormath.py measures it).
Every NaN result is the quiet NaN 0x7fc00000. Subnormal inputs and results are exact like any other: nothing flushes.

Coefficients are minimax fits (Lawson's algorithm) rounded to float32 one by one, from the lowest power up.
"""

from __future__ import annotations

from .floatops import (
    INF,
    NAN,
    bits,
    ceil,
    copysign,
    f32,
    fabs,
    floor,
    fma,
    from_bits,
    rint,
    scale,
    select,
    sqrt,
    to_float,
    trunc,
)
from .sequence import register, sequence

TO_INTEGER = f32(12582912.0)  # 1.5 * 2**23: adding it rounds to an integer, held in the low bits of the sum
TO_INTEGER_BITS = 0x4B400000
LOG2E = f32(1.44269502)
LN2 = f32(0.693147182)
LN2_LOW = f32(-1.90465421e-09)
SIGN = -0x80000000


def _exp_reduced(x, low):
    """Return (p, p_low, k) with exp(x + low) = (p + p_low) * 2**k, for -200 < x < 130 and a tiny low.

    k = rint(x / ln 2), |r| <= ln 2 / 2, and p = 1 + r + r**2 * Q(r), relative error of Q's fit 2**-28.2.
    """
    t = fma(x, LOG2E, TO_INTEGER)
    n = t - TO_INTEGER
    k = bits(t) - TO_INTEGER_BITS
    r0 = fma(n, -LN2, x)  # exact: both are multiples of 2**-24 or r is tiny
    r = fma(n, -LN2_LOW, r0)
    if low is not None:
        r = r + low
    s = r * r
    q = fma(s, f32(0.00138210552), fma(r, f32(0.00836867467), f32(0.0416682623)))
    q = fma(s, q, fma(r, f32(0.166665211), f32(0.49999994)))
    w = fma(q, s, r)
    p = w + f32(1.0)
    return p, (f32(1.0) - p) + w, k


@sequence("f->f")
def exp(x):
    """e**x. 1 ulp."""
    c = select(x > f32(89.0), f32(89.0), x)
    c = select(c < f32(-104.0), f32(-104.0), c)
    p, _, k = _exp_reduced(c, None)
    return select(x != x, NAN, scale(p, k))


@sequence("f->f")
def exp2(x):
    """2**x. 1 ulp; exact for integers."""
    c = select(x > f32(129.0), f32(129.0), x)
    c = select(c < f32(-151.0), f32(-151.0), c)
    t = c + TO_INTEGER
    r = c - (t - TO_INTEGER)
    q = fma(r, f32(0.000153264627), f32(0.00133908063))
    q = fma(q, r, f32(0.00961850584))
    q = fma(q, r, f32(0.0555036993))
    q = fma(q, r, f32(0.240226477))
    q = fma(q, r, f32(0.693147182))
    p = fma(q, r, f32(1.0))
    return select(x != x, NAN, scale(p, bits(t) - TO_INTEGER_BITS))


def _log_reduced(x):
    """Return (k, f, s, r) of x = 2**k * (1 + f), |f| <= 1/3, s = f * f, ln(1 + f) = f + s * r; x > 0, finite."""
    tiny = x < f32(1.17549435e-38)
    i = bits(select(tiny, x * f32(8388608.0), x))
    k = (i - 0x3F2AAAAB) >> 23  # 0x3f2aaaab is 2/3
    f = from_bits(i - (k << 23)) - f32(1.0)
    s = f * f
    r = fma(f, f32(-0.128800541), f32(0.139845937))
    r = fma(r, f, f32(-0.121874779))
    r = fma(r, f, f32(0.14005734))
    r = fma(r, f, f32(-0.166801959))
    r = fma(r, f, f32(0.200104266))
    r = fma(r, f, f32(-0.249998063))
    r = fma(r, f, f32(0.333332151))
    r = fma(r, f, f32(-0.5))
    return to_float(k) - select(tiny, f32(23.0), f32(0.0)), f, s, r


def _log_special(x, y):
    y = select(x < INF, y, INF)
    return select(x > f32(0.0), y, select(x == f32(0.0), -INF, NAN))


@sequence("f->f")
def log(x):
    """Natural logarithm. 1 ulp; log(0) is -inf, NaN below."""
    k, f, s, r = _log_reduced(x)
    return _log_special(x, fma(k, LN2, fma(s, r, fma(k, LN2_LOW, f))))


@sequence("f->f")
def log2(x):
    """Logarithm to base 2. 1 ulp; exact for powers of two; log2(0) is -inf, NaN below."""
    k, f, s, r = _log_reduced(x)
    y = f * LOG2E
    low = fma(f, f32(1.92596303e-08), fma(f, LOG2E, -y))  # f * log2(e) = y + low
    low = fma(s * r, LOG2E, low)
    h = k + y
    return _log_special(x, h + (((k - h) + y) + low))


@sequence("f->f")
def tanh(x):
    """Hyperbolic tangent. 2 ulp.

    x + x**3 * P(x**2) below 0.6, else 1 - 2 / (exp(2x) + 1).
    """
    a = fabs(x)
    c = select(a > f32(9.5), f32(9.5), a)
    p, _, k = _exp_reduced(c + c, None)
    e = from_bits(bits(p) + (k << 23))
    large = f32(1.0) - f32(2.0) / (e + f32(1.0))
    s = x * x
    q = fma(s, f32(-0.00589796668), f32(0.0207986254))
    q = fma(q, s, f32(-0.0537847169))
    q = fma(q, s, f32(0.133319363))
    q = fma(q, s, f32(-0.333332986))
    small = fma(q * s, a, a)
    y = copysign(select(a < f32(0.6), small, large), x)
    return select(x != x, NAN, y)


@sequence("f->f")
def erf(x):
    """Error function. 2 ulp.

    x + x * P(x**2) below 1, else 1 - exp(-x * Q(x)).
    """
    a = fabs(x)
    c = select(a > f32(4.0), f32(4.0), a)
    t = fma(c, f32(1.12317703e-05), f32(-0.000322812324))
    t = fma(t, c, f32(0.00364250573))
    t = fma(t, c, f32(-0.0237621833))
    t = fma(t, c, f32(0.106237039))
    t = fma(t, c, f32(0.635151207))
    t = fma(t, c, f32(0.128648520))
    p, _, k = _exp_reduced(-fma(t, c, c), None)
    e = from_bits(bits(p) + (k << 23))
    large = copysign(f32(1.0) - e, x)
    s = x * x
    q = fma(s, f32(7.80690316e-05), f32(-0.00079978531))
    q = fma(q, s, f32(0.0051871622))
    q = fma(q, s, f32(-0.0268533472))
    q = fma(q, s, f32(0.112835787))
    q = fma(q, s, f32(-0.37612626))
    q = fma(q, s, f32(0.128379166))
    small = fma(q, x, x)
    y = select(a < f32(1.0), small, large)
    return select(x != x, NAN, y)


@sequence("f->f")
def sigmoid(x):
    """1 / (1 + exp(-x)). 2 ulp, relative in the lower tail too."""
    a = -fabs(x)
    c = select(a < f32(-104.0), f32(-104.0), a)
    p, _, k = _exp_reduced(c, None)
    e = scale(p, k)
    y = select(x < f32(0.0), e, f32(1.0)) / (f32(1.0) + e)
    return select(x != x, NAN, y)


def _times_logistic(x, a, low):
    """Return x / (1 + exp(-|y|)) for x >= 0 and x * exp(-|y|) / (1 + exp(-|y|)) below; a + low = -|y|, a > -120.

    `x` is clamped below by the caller. The scale 2**k comes last, so that the tail keeps its relative accuracy.
    """
    p, p_low, k = _exp_reduced(a, low)
    negative = x < f32(0.0)
    e = scale(p, k)
    d = e + f32(1.0)
    p_low = fma(-p, (f32(1.0) - d) + e, p_low)  # what d lost, given to p: exact where e is small
    n = select(negative, fma(x, p, x * p_low), x)
    y = scale(n / d, select(negative, k, 0))
    return select(x != x, NAN, y)


@sequence("f->f")
def silu(x):
    """x * sigmoid(x). 2 ulp, relative in the lower tail too; silu(-inf) is -0."""
    x = select(x < f32(-110.0), f32(-110.0), x)
    a = -fabs(x)
    return _times_logistic(x, select(a < f32(-110.0), f32(-110.0), a), None)


TWO_64 = 2.0**64
GELU_S = [  # from the highest power of u - 1/2 down
    f32(c * TWO_64)
    for c in (
        0.0830303207,
        0.0880838484,
        -0.132809982,
        -0.159077704,
        0.296750605,
        0.144164607,
        -0.899641156,
        1.36931002,
        -1.28920293,
        0.865898788,
    )
]


@sequence("f->f")
def gelu(x):
    """x * Phi(x), Phi the normal distribution: gelu as it is defined, with erf. 2 ulp, relative in the lower tail too.

    NaN at -inf, as the formula gives it.

    gelu(x) = max(x, 0) - a * Phi(-a), a = |x|, and with u = a / (a + 3.359375) and h = a**2 + 5/16

        a * Phi(-a) = exp(-h / 2) * u * S(u),    S fitted to (a + 3.359375) * Phi(-a) * exp(h / 2), 2**-27.8

    What u, u - 1/2 and h lost to rounding is added to first order; the factor of the first is fitted as a line of S.
    S also holds what the float32 nearest to ln 2 lacks, over all of h. 5/16 keeps S off 1/2 in the tail, just above
    which a rounding is largest. S is carried times 2**64, so that the exponent of the power of two can be added as
    bits, and the last operation alone rounds to a subnormal.
    """
    i = bits(x)
    a = fabs(x)
    a = select(a > f32(14.6), f32(14.6), a)
    u = a / (a + f32(3.359375))
    u_low = fma(-u, a, fma(-u, f32(3.359375), a))  # in units that the line of S below turns into those of u
    z = u - f32(0.5)
    z_low = (z + f32(0.5)) - u
    s = GELU_S[0]
    for coefficient in GELU_S[1:]:
        s = fma(s, z, coefficient)
    h = fma(a, a, f32(0.3125))
    low = fma(a, a, f32(0.3125) - h) - (
        z_low + (z_low + z_low)
    )  # S falls by about exp(-3 / 2 * z) where z_low is not 0
    t = fma(h, LOG2E * f32(-0.5), TO_INTEGER)
    r = fma(t - TO_INTEGER, LN2 + LN2, h) + low  # exp(-h / 2) = exp(-r / 2) * 2**k, |r| <= ln 2
    r2 = r * r
    q = fma(r2, f32(4.31907974e-05), fma(r, f32(-0.000523042167), f32(0.00520853279)))
    q = fma(r2, q, fma(r, f32(-0.0416663028), f32(0.24999997)))
    m = fma(s, fma(q, r2, -r), s + s)  # 2 * S * exp(-r / 2)
    y = fma(u, m, u_low * fma(s, f32(0.193276361 / TWO_64), f32(-0.113574915)) * m)
    y = from_bits(bits(y) + (bits(t) << 23))  # the low bits of t are k
    above = from_bits(select(i > -1, i, SIGN))  # x, and -0 below 0
    return select(x > -INF, fma(y, f32(-0.5 / TWO_64), above), NAN)


@sequence("f->f")
def gelu_tanh(x):
    """0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3))). 2 ulp, relative in the lower tail too.

    Equal to x * sigmoid(x * (A + B * x**2)), whose argument is carried as a sum of two float32. NaN at -inf.
    """
    x = select(x > -INF, select(x < f32(-11.0), f32(-11.0), x), NAN)
    a = fabs(x)
    a = select(a > f32(11.0), f32(11.0), a)
    s = a * a
    s_low = fma(a, a, -s)
    b = s * f32(0.0713548139)
    b_low = fma(s, f32(2.39883247e-09), fma(s_low, f32(0.0713548139), fma(s, f32(0.0713548139), -b)))
    w = b + f32(1.59576917)
    z = w - b
    w_low = (b - (w - z)) + (f32(1.59576917) - z) + (b_low + f32(-4.53406805e-08))
    y = w * a
    y_low = fma(w_low, a, fma(w, a, -y))
    return _times_logistic(x, -y, -y_low)


@sequence("f->f")
def rsqrt(x):
    """1 / sqrt(x). 1 ulp; inf at 0, -inf at -0, NaN below."""
    return select(x < f32(0.0), NAN, f32(1.0) / sqrt(x))


@sequence("f->f")
def reciprocal(x):
    """1 / x, correctly rounded."""
    return f32(1.0) / x


@sequence("f->f")
def round_half_away(x):
    """Round to the nearest integer, ties away from zero."""
    t = trunc(x)
    return select(fabs(x - t) >= f32(0.5), t + copysign(f32(1.0), x), t)


@sequence("fi->f")
def ldexp(x, n):
    """x * 2**n with one rounding, for every n."""
    n = select(n > 400, 400, select(n < -400, -400, n))
    for _ in range(2):  # 2**-102 keeps 24 bits above the subnormals until the last product
        step = select(n > 127, 127, select(n < -126, -102, 0))
        x, n = x * from_bits((step + 127) << 23), n - step
    n = select(n > 127, 127, select(n < -126, -126, n))
    return x * from_bits((n + 127) << 23)


def _frexp(x):
    """Return (biased exponent, bits of the fraction in [0.5, 1)) and whether x is zero, infinite or NaN."""
    tiny = fabs(x) < f32(1.17549435e-38)
    i = bits(select(tiny, x * f32(16777216.0), x))
    biased = ((i >> 23) & 255) - select(tiny, 24, 0)
    return biased, (i & MANTISSA_AND_SIGN) | HALF, (x == f32(0.0)) | (fabs(x) == INF) | (x != x)


MANTISSA_AND_SIGN, HALF = -0x7F800001, 0x3F000000


@sequence("f->f")
def frexp_mantissa(x):
    """The fraction of frexp, in [0.5, 1); x itself where it is zero, infinite or NaN."""
    _, fraction, special = _frexp(x)
    return select(special, x, from_bits(fraction))


@sequence("f->i")
def frexp_exponent(x):
    """The exponent of frexp; 0 where x is zero, infinite or NaN."""
    biased, _, special = _frexp(x)
    return select(special, 0, biased - 126)


for _primitive in (fma, copysign):
    register(_primitive, "ff->f" if _primitive is copysign else "fff->f")
for _primitive in (sqrt, rint, floor, ceil, trunc, fabs):
    register(_primitive, "f->f")
