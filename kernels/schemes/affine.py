"""Integers by other libraries' rules, by name: how a scale and a zero point are found, and in which order x is divided,
shifted and rounded. Rounding is half to even throughout; real = (code - zero) * scale.

    codes    onnx          rint(x / scale) + zero                    ONNX QuantizeLinear, ONNX Runtime
             torch         rint(fma(x, 1 / scale, zero))             torch.quantize_per_tensor
             torch_channel rint(x * (1 / scale) + zero)              torch.quantize_per_channel, two roundings
             torchao       rint(x * (1 / scale)) + zero              torchao quantize_affine, torch fake_quantize
    fits     symmetric     scale = amax / ((most - least) / 2)       torchao SYMMETRIC, torch per-channel observers
             no_clip       the larger of min / least and max / most  torchao SYMMETRIC_NO_CLIPPING_ERR
             asymmetric    scale = (max - min) / (most - least), the range stretched to hold 0, and
                           zero = least - rint(min / scale)          torchao ASYMMETRIC, torch min-max observers

A scale is at least `eps`: 2**-126 in torchao, 2**-23 in torch's observers. ONNX Runtime finds scales in float64:
calibration's `qparams` has its rule.
"""

import numpy as np

from ...primitives.errors import ArgumentError
from ..floatops import fma
from .definition import Definition as Scheme

CODES = ("onnx", "torch", "torch_channel", "torchao")
FITS = ("symmetric", "no_clip", "asymmetric")
TORCH_EPS, TORCHAO_EPS = 2.0**-23, 2.0**-126


def coding(rule, least, most):
    """encode by a rule, held to least .. most."""

    def onnx(x, scale, zero):
        return min(max(np.rint(x / scale) + zero, least), most)

    def torch(x, scale, zero):
        return min(max(np.rint(fma(x, 1.0 / scale, np.float32(zero))), least), most)

    def torch_channel(x, scale, zero):
        return min(max(np.rint(x * (1.0 / scale) + zero), least), most)

    def torchao(x, scale, zero):
        return min(max(np.rint(x * (1.0 / scale)) + zero, least), most)

    return {"onnx": onnx, "torch": torch, "torch_channel": torch_channel, "torchao": torchao}[rule]


def fitting(rule, least, most, eps):
    """fit by a rule."""
    half, span = (most - least) / 2.0, most - least
    middle = float(int((most + least + 1.0) / 2.0))

    def symmetric(x):
        lo = np.float32(0)
        hi = np.float32(0)
        for v in x:
            lo = min(lo, v)
            hi = max(hi, v)
        return max(max(-lo, hi) / half, eps), middle

    def no_clip(x):
        lo = np.float32(0)
        hi = np.float32(0)
        for v in x:
            lo = min(lo, v)
            hi = max(hi, v)
        return max(max(lo / least, hi / most), eps), middle

    def asymmetric(x):
        lo = np.float32(0)
        hi = np.float32(0)
        for v in x:
            lo = min(lo, v)
            hi = max(hi, v)
        scale = max((hi - lo) / span, eps)
        return scale, min(max(least - np.rint(lo / scale), least), most)

    return {"symmetric": symmetric, "no_clip": no_clip, "asymmetric": asymmetric}[rule]


def decode(code, scale, zero):
    return (code - zero) * scale


def affine(name, bits, block, *, codes="torchao", fit="symmetric", signed=True, eps=TORCHAO_EPS):
    """A scheme of `bits`-bit integers by two named rules. Raises ArgumentError with the names that there are."""
    if codes not in CODES or fit not in FITS:
        raise ArgumentError(
            f"affine: codes={codes!r}, fit={fit!r}; codes are {', '.join(CODES)} and fits are {', '.join(FITS)}"
        )
    least, most = (-(2.0 ** (bits - 1)), 2.0 ** (bits - 1) - 1) if signed else (0.0, 2.0**bits - 1)
    if fit == "no_clip" and not signed:
        raise ArgumentError("affine: fit='no_clip' divides by the least code; it works with signed codes")
    return Scheme(
        name,
        bits,
        block,
        {"scale": "f32", "zero": "s32"},
        fitting(fit, least, most, eps),
        coding(codes, least, most),
        decode,
        signed=signed,
    )


SCHEMES = [
    affine("torchao_int8_channel", 8, "row"),
    affine("torchao_int4_g32", 4, 32),
    affine("torchao_uint4_g32", 4, 32, fit="asymmetric", signed=False),
    affine("onnx_uint8_tensor", 8, "tensor", codes="onnx", fit="asymmetric", signed=False),
    affine("onnx_int8_channel", 8, "row", codes="onnx"),
    affine("torch_uint8_tensor", 8, "tensor", codes="torch", fit="asymmetric", signed=False, eps=TORCH_EPS),
    affine("torch_int8_channel", 8, "row", codes="torch_channel", eps=TORCH_EPS),
]
