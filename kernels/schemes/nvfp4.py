"""NVFP4: E2M1 elements, an E4M3 scale for each 16, and one float32 scale for the tensor.

`nvfp4` has both levels, the tensor's scale fitted as amax / (448 * 6). `nvfp4_block` has only the scales of blocks.
`with_tensor_scale(s)` has both with s given, and torchao's order of operations (prototype/mx_formats/nvfp4_tensor.py),
whose codes it equals, as `nvfp4_block` does.
"""

import numpy as np

from ..minifloat import e4m3_bits_sat, e4m3_value
from .definition import Definition as Scheme
from .integers import absmax
from .minifloats import FORMATS, rounding

LEVELS = FORMATS["e2m1"].values
code_of = rounding(FORMATS["e2m1"])
LEAST, MOST = 0.015625, 448.0  # of a block's scale: the smallest normal and the largest number of E4M3


def fit_blocks(x):
    return (min(max(absmax(x) / 6.0, LEAST), MOST),)


def encode(x, scale):
    return code_of(x * (1.0 / scale))


def decode(code, scale):
    return LEVELS[code] * scale


def fit_tensor(x):
    m = absmax(x)
    return (m / 448.0 if m > 0.0 else np.float32(1),)


def encode_scale(x, tensor_scale):
    return e4m3_bits_sat(min(max(x / tensor_scale, LEAST), MOST))


def decode_scale(code, tensor_scale):
    return e4m3_value(code) * tensor_scale


def fit_sixth(x):
    return (absmax(x) / 6.0,)


def with_tensor_scale(tensor_scale, name="nvfp4_given"):
    """Both levels, the tensor's scale known."""
    s = float(np.float32(tensor_scale))
    inverse = float(np.float32(1) / np.float32(s))

    def fit(x):
        return (min(max(absmax(x) / 6.0 / s, LEAST), MOST),)

    def encode_given(x, scale):
        return code_of(x * (inverse / scale))

    def decode_given(code, scale):
        return LEVELS[code] * (scale * s)

    return Scheme(name, 4, 16, {"scale": "e4m3"}, fit, encode_given, decode_given)


scales = Scheme("nvfp4_scales", 8, "tensor", {"tensor_scale": "f32"}, fit_tensor, encode_scale, decode_scale)
SCHEMES = [
    Scheme("nvfp4", 4, 16, {"scale": scales}, fit_sixth, encode, decode),
    Scheme("nvfp4_block", 4, 16, {"scale": "e4m3"}, fit_blocks, encode, decode),
]
