"""Activations of networks as written sequences (vectormath.py says what that is); sources: the ONNX operators' text."""

from __future__ import annotations

from .floatops import f32, fabs, select
from .powers import expm1, log1p
from .scalarops import maximum, minimum
from .sequence import sequence
from .vectormath import exp, sigmoid

ZERO, ONE = f32(0.0), f32(1.0)


@sequence("ff->f")
def leaky_relu(x, slope):
    """x where it is not negative, else slope * x."""
    return select(x < ZERO, slope * x, x)


@sequence("ff->f")
def thresholded_relu(x, alpha):
    """x where it is above alpha, else 0; NaN stays."""
    return select((x > alpha) | (x != x), x, ZERO)


@sequence("ff->f")
def elu(x, alpha):
    """x where it is not negative, else alpha * (e**x - 1)."""
    return select(x < ZERO, alpha * expm1.fn(minimum.fn(x, ZERO)), x)


@sequence("fff->f")
def selu(x, alpha, gamma):
    """gamma * x where x is positive, else gamma * (alpha * (e**x - 1))."""
    return gamma * select(x > ZERO, x, alpha * expm1.fn(minimum.fn(x, ZERO)))


@sequence("ff->f")
def celu(x, alpha):
    """max(0, x) + min(0, alpha * (e**(x / alpha) - 1))."""
    return maximum.fn(x, ZERO) + minimum.fn(ZERO, alpha * expm1.fn(x / alpha))


@sequence("fff->f")
def hard_sigmoid(x, alpha, beta):
    """max(0, min(1, alpha * x + beta))."""
    return maximum.fn(minimum.fn(alpha * x + beta, ONE), ZERO)


@sequence("f->f")
def hard_swish(x):
    """x * max(0, min(1, x / 6 + 0.5)), with x / 6 as a product."""
    return x * hard_sigmoid.fn(x, f32(1.0 / 6.0), f32(0.5))


@sequence("ff->f")
def swish(x, alpha):
    """x * sigmoid(alpha * x)."""
    return x * sigmoid.fn(alpha * x)


@sequence("f->f")
def softplus(x):
    """ln(1 + e**x), as max(x, 0) + ln(1 + e**-|x|)."""
    return maximum.fn(x, ZERO) + log1p.fn(exp.fn(-fabs(x)))


@sequence("f->f")
def softsign(x):
    """x / (1 + |x|)."""
    return x / (ONE + fabs(x))


@sequence("f->f")
def mish(x):
    """x * tanh(ln(1 + e**x)), as x * n / (n + 2) with n = e**x * (e**x + 2). 3 ulp; 2**-143 near -100."""
    e = exp.fn(minimum.fn(x, f32(20.0)))
    n = e * (e + f32(2.0))
    return select(x > f32(20.0), x, x * (n / (n + f32(2.0))))


@sequence("fff->f")
def shrink(x, bias, bound):
    """x + bias below -bound, x - bias above bound, else 0; NaN stays."""
    return select(x < -bound, x + bias, select(x > bound, x - bias, select(x == x, ZERO, x)))


@sequence("fff->f")
def multiply_add(x, factor, term):
    """x * factor + term, rounded twice."""
    return x * factor + term
