"""The ops: functions that take pipeline values, add a kernel and its edges, and return values.

Every argument may be a constant (a number, an array, a Buffer), a run-time argument or another value. What is known
when the op is called is checked then; errors say what was asked, what was found and what would work.
"""

from ..rounding import (quantize_multiplier as quantize_multiplier)
from .arithmetic import (abs, acosh, arccos, arcsin, arctan, asinh, atanh, bitwise_and, bitwise_not, bitwise_or, bitwise_xor, ceil, celu, cos, cosh, div, elu, equal, erf, exp, exp2, expm1, floor, fmod, gelu, gelu_tanh, greater, greater_equal, hard_sigmoid, hard_swish, isinf, isnan, leaky_relu, less, less_equal, log, log1p, log2, maximum, minimum, mish, mod, mul, multiply_add, neg, not_equal, pow, reciprocal, round, rsqrt, selu, shift_left, shift_right, shrink, sigmoid, sign, silu, sin, sinh, softplus, softsign, sqrt, sub, swish, tan, tanh, thresholded_relu, trunc, where)
from .conv import (conv, conv_transpose)
from .elementwise import (add, clip, lookup, map, relu)
from .gemm import (gemm)
from .moving import (arange, concat, cumsum, depth_to_space, expand, flatten, gather, gather_elements, gather_nd, one_hot, pad, reshape, resize, scatter_elements, scatter_nd, slice, space_to_depth, split, squeeze, tile, topk, transpose, trilu, unsqueeze)
from .quantize import (dequantize, quantize, requantize)
from .reduce import (argmax, argmin, batch_norm, dynamic_quantize, instance_norm, layer_norm, log_softmax, reduce, rms_norm, softmax)

__all__ = ["abs", "acosh", "add", "arange", "arccos", "arcsin", "arctan", "argmax", "argmin", "asinh", "atanh", "batch_norm", "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "ceil", "celu", "clip", "concat", "conv", "conv_transpose", "cos", "cosh", "cumsum", "depth_to_space", "dequantize", "div", "dynamic_quantize", "elu", "equal", "erf", "exp", "exp2", "expand", "expm1", "flatten", "floor", "fmod", "gather", "gather_elements", "gather_nd", "gelu", "gelu_tanh", "gemm", "greater", "greater_equal", "hard_sigmoid", "hard_swish", "instance_norm", "isinf", "isnan", "layer_norm", "leaky_relu", "less", "less_equal", "log", "log1p", "log2", "log_softmax", "lookup", "map", "maximum", "minimum", "mish", "mod", "mul", "multiply_add", "neg", "not_equal", "one_hot", "pad", "pow", "quantize", "reciprocal", "reduce", "relu", "requantize", "reshape", "resize", "rms_norm", "round", "rsqrt", "scatter_elements", "scatter_nd", "selu", "shift_left", "shift_right", "shrink", "sigmoid", "sign", "silu", "sin", "sinh", "slice", "softmax", "softplus", "softsign", "space_to_depth", "split", "sqrt", "squeeze", "sub", "swish", "tan", "tanh", "thresholded_relu", "tile", "topk", "transpose", "trilu", "trunc", "unsqueeze", "where"]
