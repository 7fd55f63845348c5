"""Fourier transforms: DFT and STFT of ONNX. The last axis holds real parts, or real and imaginary ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....primitives.sizes import floordiv
from ...arrays import array_function

Array = np.ndarray[Any, Any]


def _complex(x: Array) -> Array:
    return x[..., 0] if x.shape[-1] == 1 else x[..., 0] + x[..., 1] * x.dtype.type(1) * 1j


def _pairs(z: Array, dtype: Any) -> Array:
    return np.stack([z.real, z.imag], axis=-1).astype(dtype)


def _transformed(x: tuple[Any, ...], axis: int, inverse: int, onesided: int, length: Any = None) -> Any:
    real = inverse and onesided
    n = length if length is not None else 2 * (x[axis] - 1) if real else x[axis]
    n = floordiv(n, 2) + 1 if onesided and not inverse else n
    return [(*x[:axis], n, *x[axis + 1 : -1], 1 if real else 2)]


@array_function(_transformed)
def fourier(x: Array, axis: int, inverse: int, onesided: int, length: int | None = None) -> Array:
    """The discrete Fourier transform along an axis, cut or padded with zeros to `length`.

    onesided  only the first length // 2 + 1 frequencies; of an inverse, that is what x holds and the result is real
    """
    z = _complex(x)
    if inverse and onesided:
        found: Array = np.fft.irfft(z, 2 * (x.shape[axis] - 1) if length is None else length, axis)[..., None]
        return found.astype(x.dtype)
    z = (np.fft.ifft if inverse else np.fft.fft)(z, x.shape[axis] if length is None else length, axis)
    if onesided:
        z = np.take(z, np.arange(z.shape[axis] // 2 + 1), axis)
    return _pairs(z, x.dtype)


def _frames(x: tuple[Any, ...], *more: Any, step: int, length: int, onesided: int) -> Any:
    count = floordiv(x[1] - length, step) + 1
    return [(x[0], count, length // 2 + 1 if onesided else length, 2)]


@array_function(_frames)
def short_time_fourier(x: Array, window: Array | None = None, *, step: int, length: int, onesided: int) -> Array:
    """The transforms of windows of `length` samples of x (batch, samples, 1 or 2), one every `step` samples."""
    z = _complex(x)
    frames = np.lib.stride_tricks.sliding_window_view(z, length, axis=1)[:, ::step]
    if window is not None:
        frames = frames * window
    found = np.fft.fft(frames, axis=-1)
    return _pairs(found[..., : length // 2 + 1] if onesided else found, x.dtype)
