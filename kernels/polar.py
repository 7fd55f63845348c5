"""The angle and the length of a vector of two numbers, as written sequences (vectormath.py says what that is)."""

from __future__ import annotations

from .floatops import INF, NAN, bits, copysign, f32, fabs, fma, select, sqrt
from .sequence import sequence

PI = f32(3.1415927)
PI_LOW = f32(-8.742278e-08)  # pi is the sum of both
HALF_PI, QUARTER_PI = f32(1.5707964), f32(0.7853982)
HUGE, TINY = f32(2.0**60), f32(2.0**-60)  # squares of what lies between are neither infinite nor subnormal


@sequence("ff->f")
def arctan2(y, x):
    """The angle of (x, y) from the first axis, in -pi .. pi, with the zeros and infinities of IEEE 754. 3 ulp.

    The quotient of the tangent is reduced by pi / 2 or pi / 4 before it is taken, as arctan reduces it.
    """
    a, b = fabs(y), fabs(x)
    both = (a == INF) & (b == INF)
    huge, tiny = (a > HUGE) | (b > HUGE), (a < TINY) & (b < TINY)
    by = select(
        huge, f32(0.25), select(tiny, f32(2.0**60), f32(1.0))
    )  # so that a + b is finite, and no edge below subnormal
    a = select(both, f32(1.0), a * by)
    b = select(both, f32(1.0), b * by)
    steep, middle = a * f32(0.41421357) > b, a > b * f32(0.41421357)
    top = select(steep, -b, select(middle, a - b, a))
    bottom = select(steep, a, select(middle, a + b, b))
    t = select(a == f32(0.0), f32(0.0), top / bottom)
    s = t * t
    q = fma(s, f32(8.05374449538e-2), f32(-1.38776856032e-1))
    q = fma(q, s, f32(1.99777106478e-1))
    q = fma(q, s, f32(-3.33329491539e-1))
    r = select(steep, HALF_PI, select(middle, QUARTER_PI, f32(0.0))) + fma(q * s, t, t)
    r = select(bits(x) < 0, PI - (r - PI_LOW), r)
    return select((x == x) & (y == y), copysign(r, y), NAN)


@sequence("ff->f")
def hypot(x, y):
    """sqrt(x**2 + y**2) without overflow in between; infinite where one of both is. 1 ulp."""
    a, b = fabs(x), fabs(y)
    most = select(a > b, a, b)
    down = select(most > HUGE, f32(2.0**-90), select(most < TINY, f32(2.0**90), f32(1.0)))
    up = select(most > HUGE, f32(2.0**90), select(most < TINY, f32(2.0**-90), f32(1.0)))
    a, b = a * down, b * down
    r = sqrt(fma(a, a, b * b)) * up
    infinite = (fabs(x) == INF) | (fabs(y) == INF)
    return select(infinite, INF, select((x == x) & (y == y), r, NAN))
