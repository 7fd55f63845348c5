"""Arithmetic, comparisons, logic, functions and activations, element by element (kernels/elementwise/table.py)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...primitives.errors import ArgumentError
from ...primitives.pipeline import Value
from ...primitives.quantization import QuantParams
from .given import Operand
from .tabled import binary, quantized, tabled, unary

sub = binary("sub", "a - b; integers modulo 2**bits.")
mul = binary("mul", "a * b; integers modulo 2**bits.")
div = binary("div", "a / b; integers toward zero, and 0 where b is 0.")
mod = binary("mod", "Remainder of a / b: of integers with the sign of b, of real numbers as fmod.")
fmod = binary("fmod", "Remainder of a / b with the sign of a; a where an integer b is 0.")
pow = binary("pow", "a to the power of b.")
minimum = binary("minimum", "The smaller of a and b; NaN if either is.")
maximum = binary("maximum", "The larger of a and b; NaN if either is.")
equal = binary("equal", "Whether a == b, as bool.")
not_equal = binary("not_equal", "Whether a != b, as bool.")
less = binary("less", "Whether a < b, as bool.")
less_equal = binary("less_equal", "Whether a <= b, as bool.")
greater = binary("greater", "Whether a > b, as bool.")
greater_equal = binary("greater_equal", "Whether a >= b, as bool.")
bitwise_and = binary("bitwise_and", "a & b of integers or bool.")
bitwise_or = binary("bitwise_or", "a | b of integers or bool.")
bitwise_xor = binary("bitwise_xor", "a ^ b of integers or bool.")
shift_left = binary("shift_left", "a << b; 0 where b is outside 0 .. bits - 1.")
shift_right = binary("shift_right", "a >> b; only the sign is left where b is outside 0 .. bits - 1.")
bitwise_not = unary("bitwise_not", "~x of integers or bool.")
neg = unary("neg", "-x; integers modulo 2**bits.")
abs = unary("abs", "Magnitude; the least integer stays as it is.")
sign = unary("sign", "-1, 0 or 1; NaN for NaN.")
floor = unary("floor", "Round down.")
ceil = unary("ceil", "Round up.")
trunc = unary("trunc", "Round toward zero.")
round = unary("round", "Round to the nearest integer, ties to even.")
isnan = unary("isnan", "Whether x is NaN, as bool.")
isinf = unary("isinf", "Whether x is infinite, as bool.")
exp = unary("exp", "e**x.")
exp2 = unary("exp2", "2**x.")
expm1 = unary("expm1", "e**x - 1.")
log = unary("log", "Natural logarithm.")
log2 = unary("log2", "Logarithm to base 2.")
log1p = unary("log1p", "ln(1 + x).")
sqrt = unary("sqrt", "Square root; NaN below zero.")
rsqrt = unary("rsqrt", "1 / sqrt(x).")
reciprocal = unary("reciprocal", "1 / x.")
sin = unary("sin", "Sine.")
cos = unary("cos", "Cosine.")
tan = unary("tan", "Tangent.")
arcsin = unary("arcsin", "Inverse sine.")
arccos = unary("arccos", "Inverse cosine.")
arctan = unary("arctan", "Inverse tangent.")
sinh = unary("sinh", "Hyperbolic sine.")
cosh = unary("cosh", "Hyperbolic cosine.")
tanh = unary("tanh", "Hyperbolic tangent.")
asinh = unary("asinh", "Inverse hyperbolic sine.")
acosh = unary("acosh", "Inverse hyperbolic cosine.")
atanh = unary("atanh", "Inverse hyperbolic tangent.")
erf = unary("erf", "Error function.")
sigmoid = unary("sigmoid", "1 / (1 + e**-x).")
silu = unary("silu", "x * sigmoid(x).")
gelu = unary("gelu", "x * Phi(x), Phi the normal distribution.")
gelu_tanh = unary("gelu_tanh", "0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3))).")
softplus = unary("softplus", "ln(1 + e**x).")
softsign = unary("softsign", "x / (1 + |x|).")
mish = unary("mish", "x * tanh(softplus(x)).")
hard_swish = unary("hard_swish", "x * max(0, min(1, x / 6 + 0.5)).")
hard_sigmoid = unary("hard_sigmoid", "max(0, min(1, alpha * x + beta)).")
elu = unary("elu", "x where it is not negative, else alpha * (e**x - 1).")
celu = unary("celu", "max(0, x) + min(0, alpha * (e**(x / alpha) - 1)).")
selu = unary("selu", "gamma * x where x is positive, else gamma * alpha * (e**x - 1).")
swish = unary("swish", "x * sigmoid(alpha * x).")
thresholded_relu = unary("thresholded_relu", "x where it is above alpha, else 0.")
shrink = unary("shrink", "x + bias below -bound, x - bias above bound, else 0.")


def leaky_relu(
    x: Operand,
    slope: Operand = 0.01,
    *,
    x_scale: Operand = None,
    x_zero_point: Operand = None,
    slope_scale: Operand = None,
    slope_zero_point: Operand = None,
    scale: Operand = None,
    zero_point: Operand = None,
    dtype: Any = None,
    to: QuantParams | None = None,
) -> Value:
    """x where it is not negative, else slope * x: leaky relu, and prelu where `slope` is an array.

    x, slope  f32 f16 bf16, broadcast. With `scale` or `to`, x is codes, and slope is a number or codes with a scale of
              their own
    """
    if scale is None and to is None:
        return tabled("leaky_relu", x, slope)
    if isinstance(slope, (int, float)):  # a number is the code 1, 0 or -1 at a scale of its size
        if slope_scale is not None or slope_zero_point is not None:
            raise ArgumentError("leaky_relu: slope_scale and slope_zero_point belong to codes; slope is a number")
        slope_scale, slope = np.float32(np.abs(slope) or 1.0), np.sign(slope).astype(np.int8)
        slope_zero_point = np.int8(0)
    pairs = [(x_scale, x_zero_point), (slope_scale, slope_zero_point)]
    return quantized("leaky_relu", [x, slope], pairs, (scale, zero_point, dtype, to))


def where(condition: Operand, a: Operand, b: Operand) -> Value:
    """a where the condition holds, else b.

    condition  bool, broadcast with a and b
    a, b       of one type
    """
    return tabled("where", condition, a, b)


def multiply_add(x: Operand, factor: Operand, term: Operand) -> Value:
    """x * factor + term, rounded after each; operands are f32, f16 or bf16 of one type, broadcast."""
    return tabled("multiply_add", x, factor, term)
