"""NF4: sixteen levels that are equally likely for a normal distribution, times the largest magnitude of the block."""

import numpy as np

from .definition import Definition as Scheme
from .integers import absmax

# Source: Dettmers, Pagnoni, Holtzman and Zettlemoyer, "QLoRA: efficient finetuning of quantized LLMs", 2023; the levels
# of bitsandbytes.
NF4 = np.array(
    [
        -1.0,
        -0.6961928009986877,
        -0.5250730514526367,
        -0.39491748809814453,
        -0.28444138169288635,
        -0.18477343022823334,
        -0.09105003625154495,
        0.0,
        0.07958029955625534,
        0.16093020141124725,
        0.24611230194568634,
        0.33791524171829224,
        0.44070982933044434,
        0.5626170039176941,
        0.7229568362236023,
        1.0,
    ],
    np.float32,
)
MID = (NF4[1:] + NF4[:-1]) / np.float32(2)


def fit(x):
    m = absmax(x)
    return (m if m > 0.0 else np.float32(1),)


def encode(x, absmax):
    y = x / absmax
    code = 0
    for i in range(15):
        if y > MID[i]:
            code += 1
    return code


def decode(q, absmax):
    return NF4[q] * absmax


def minmax(x):
    lo = x[0]
    hi = x[0]
    for v in x:
        lo = min(lo, v)
        hi = max(hi, v)
    return (hi - lo) / 255.0 if hi > lo else np.float32(1), lo


def to_byte(x, scale, lo):
    return min(max(np.rint((x - lo) / scale), 0.0), 255.0)


def from_byte(q, scale, lo):
    return q * scale + lo


scales = Scheme("scales_u8", 8, 256, {"scale": "f32", "lo": "f32"}, minmax, to_byte, from_byte)

SCHEMES = [
    Scheme("nf4", 4, 64, {"absmax": "f32"}, fit, encode, decode),
    Scheme("nf4_double", 4, 64, {"absmax": scales}, fit, encode, decode),
]
