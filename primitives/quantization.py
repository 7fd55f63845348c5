"""QuantParams: what codes stand for. real = scale * (code - zero_point).

Granularity is said by axis and block: none of them, one scale for the whole tensor; an axis, one for each index of
it; an axis and a block, one for each group of `block` elements along it; two blocks, one for each rectangle.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import dtypes
from .dtypes import DType, DTypeLike
from .errors import DTypeMismatch, QuantizationError, ShapeMismatch

Axes: TypeAlias = int | tuple[int, int] | None
Block: TypeAlias = int | tuple[int, int] | None

SCALE_DTYPES = ("f32", "f16", "bf16", "e8m0fnu", "f8e4m3fn")
_LARGEST_BLOCK = 2**31 - 1
_TINY = float(np.finfo(np.float32).tiny)  # smallest scale that from_range makes: dividing by less may flush to zero


class QuantParams:
    """Scales and zero points of a quantized tensor, checked when made and never changed.

        real = scale * (code - zero_point)

    scale       a number, or an array: (C,) for a channel axis; for groups and 2-D blocks, the shape of the tensor
                with the blocked axes counting blocks, ceil(n / block). f32, f16, bf16, e8m0fnu and f8e4m3fn stay what
                they are, anything else becomes f32. Finite and positive
    zero_point  the code of real 0: an integer in the range of dtype, or an array of the shape of scale. 0 for float
                codes
    dtype       type of the codes: integers up to 32 bits, floats of 4 to 8 bits
    axis        None: the whole tensor; an int: that axis, negative from the end; for a 2-D block the two axes, by
                default the last two
    block       elements along axis that share a scale, or (rows, columns); -1: the whole axis. The last block of an
                axis may be shorter

    Raises QuantizationError, or DTypeMismatch, saying what was asked and what works.
    """

    __slots__ = ("axis", "block", "dtype", "scale", "zero_point")

    scale: NDArray[Any]
    zero_point: NDArray[Any]
    dtype: DType
    axis: Axes
    block: Block

    def __init__(
        self,
        scale: ArrayLike,
        zero_point: ArrayLike = 0,
        dtype: DTypeLike = "u8",
        axis: Axes = None,
        block: Block = None,
    ) -> None:
        codes = _code_type(dtype)
        factors = _scales(scale)
        axis, block = _axes(axis), _blocks(block)
        zeros = _zero_points(zero_point, codes)
        if axis is None and block is None:
            if factors.size != 1:
                raise QuantizationError(
                    f"scale has shape {factors.shape} but no axis; "
                    f"give axis= for one scale a channel, or a single scale for the tensor"
                )
            factors = factors.reshape(())
            if zeros.size != 1:
                raise QuantizationError(
                    f"zero_point has shape {zeros.shape} but there is one scale; give one zero point"
                )
            zeros = zeros.reshape(())
        elif block is None:
            if isinstance(axis, tuple):
                raise QuantizationError(f"axis {axis} names two axes, which needs block=(rows, columns)")
            if factors.ndim != 1:
                raise QuantizationError(
                    f"scale has shape {factors.shape}; along channel axis {axis} it is one-dimensional, one a channel"
                )
        else:
            axis = _blocked_axes(axis, block, factors.ndim)
        if zeros.shape not in ((), factors.shape):
            raise QuantizationError(
                f"zero_point has shape {zeros.shape}; it is one integer or has the shape of scale, {factors.shape}"
            )
        factors.setflags(write=False)
        zeros.setflags(write=False)
        self._keep(factors, zeros, codes, axis, block)

    def _keep(self, scale: NDArray[Any], zeros: NDArray[Any], dtype: DType, axis: Axes, block: Block) -> None:
        for name, value in zip(
            ("scale", "zero_point", "dtype", "axis", "block"), (scale, zeros, dtype, axis, block), strict=True
        ):
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"QuantParams never change: make another one instead of setting {name!r}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"QuantParams never change: {name!r} stays")

    # Making them from data ---------------------------------------------------------------------------------------

    @classmethod
    def from_range(
        cls,
        low: ArrayLike,
        high: ArrayLike,
        dtype: DTypeLike = "u8",
        symmetric: bool = False,
        axis: Axes = None,
        block: Block = None,
    ) -> "QuantParams":
        """Return the parameters that spread a range of real values over the codes, so that real 0 is a code.

            low, high = min(low, 0), max(high, 0)
            scale = (high - low) / (qmax - qmin);  zero_point = qmin + rint(-low / scale)
            symmetric, and for float codes: scale = max(-low, high) / (qmax - middle), zero_point = middle

        low, high  numbers, or arrays of the shape that scale shall have; in float64
        middle     0 for signed codes, 2**(bits - 1) for unsigned ones

        A range of nothing but 0 gives scale 1 and code 0; a scale below 2**-126 becomes 2**-126, which keeps the
        error within half a step. Raises QuantizationError where low > high or a bound is not finite.
        """
        codes = _code_type(dtype)
        lows, highs = np.asarray(low, np.float64), np.asarray(high, np.float64)
        if not (np.isfinite(lows).all() and np.isfinite(highs).all()):
            raise QuantizationError(
                f"the range {_brief(lows)} to {_brief(highs)} is not finite; leave NaN and inf out of it"
            )
        if (lows > highs).any():
            raise QuantizationError(f"the range {_brief(lows)} to {_brief(highs)} ends before it begins")
        lows, highs = np.broadcast_arrays(np.minimum(lows, 0.0), np.maximum(highs, 0.0))
        qmin, qmax = float(codes.min), float(codes.max)
        if symmetric or codes.is_float:
            middle = 0.0 if codes.is_signed else float(2 ** (codes.bits - 1))
            exact = np.maximum(-lows, highs) / (qmax - middle)
        else:
            exact = highs / (qmax - qmin) - lows / (qmax - qmin)  # not (high - low) / ..., which may overflow
        exact = np.maximum(np.where(exact > 0, exact, 1.0), _TINY)
        with np.errstate(over="ignore"):
            scale = exact.astype(np.float32)
        if symmetric or codes.is_float:
            zeros = np.full(scale.shape, middle, np.int64)
        else:
            nearest = np.where(lows < highs, qmin + np.rint(-lows / exact), 0)
            zeros = np.clip(nearest, qmin, qmax).astype(np.int64)
        return cls(scale, zeros, codes, axis, block)

    @classmethod
    def symmetric(
        cls, absmax: ArrayLike, dtype: DTypeLike = "s8", axis: Axes = None, block: Block = None
    ) -> "QuantParams":
        """`from_range(-absmax, absmax, symmetric=True)`: real 0 is the middle code, the largest code is absmax."""
        most = np.asarray(absmax, np.float64)
        if (most < 0).any():
            raise QuantizationError(f"absmax {_brief(most)} is negative; it is the largest absolute value")
        return cls.from_range(-most, most, dtype, True, axis, block)

    # What they say -----------------------------------------------------------------------------------------------

    @property
    def granularity(self) -> str:
        """ "tensor", "channel", "group" or "block" """
        if isinstance(self.block, tuple):
            return "block"
        if self.block is not None:
            return "group"
        return "tensor" if self.axis is None else "channel"

    @property
    def scale_dtype(self) -> DType:
        """What the scales are stored as."""
        return dtypes.get(self.scale.dtype)

    @property
    def is_symmetric(self) -> bool:
        """Whether every zero point is 0, so that it need not be subtracted."""
        return not self.zero_point.any()

    def validate_for(self, shape: Sequence[int]) -> None:
        """Raise QuantizationError, with the shape that scale should have, unless this fits a tensor of this shape."""
        sizes = tuple(int(n) for n in shape)
        if self.axis is None:
            return
        if isinstance(self.axis, int) and self.block is None:
            axis = self._axis_in(self.axis, len(sizes), sizes)
            if self.scale.shape != (sizes[axis],):
                raise QuantizationError(
                    f"axis {self.axis} of shape {sizes} has {sizes[axis]} channels and needs as many scales; "
                    f"found {self.scale.size}"
                )
            return
        expected = list(sizes)
        for axis, block in self._block_of_axis():
            i = self._axis_in(axis, len(sizes), sizes)
            expected[i] = -(-sizes[i] // (block if block > 0 else max(sizes[i], 1)))
        if self.scale.shape != tuple(expected):
            raise QuantizationError(
                f"{self.granularity} {self.block} along axis {self.axis} of shape {sizes} needs scales of shape "
                f"{tuple(expected)}; found {self.scale.shape}"
            )

    def expand(self, shape: Sequence[int]) -> tuple[NDArray[np.float32], NDArray[Any]]:
        """Return (scale, zero_point) that broadcast against codes of this shape.

        scale is float32; zero_point is int32, or int64 for codes of 32 bits, so that `code - zero_point` is exact.
        Groups are repeated to full length along their axis, unless one covers it all.
        """
        self.validate_for(shape)
        sizes = tuple(int(n) for n in shape)
        return self._expanded(self.scale.astype(np.float32), sizes), self._expanded(self._wide_zero_point(), sizes)

    def transposed(self, perm: Sequence[int]) -> "QuantParams":
        """The parameters of the transposed tensor, `tensor.transpose(perm)`: axes move along."""
        ndim = len(perm)
        order = [int(p) % ndim if ndim else 0 for p in perm]
        if sorted(order) != list(range(ndim)):
            raise ShapeMismatch(f"{tuple(perm)} is not a permutation of {ndim} axes")
        if self.axis is None:
            return self
        if isinstance(self.axis, tuple):
            rows, columns = (order.index(self._axis_in(a, ndim)) for a in self.axis)
            moved: Axes = (rows, columns)
        else:
            moved = order.index(self._axis_in(self.axis, ndim))
        if self.block is None:
            return QuantParams(self.scale, self.zero_point, self.dtype, moved)
        zeros = self.zero_point.transpose(order) if self.zero_point.ndim else self.zero_point
        return QuantParams(self.scale.transpose(order), zeros, self.dtype, moved, self.block)

    def sliced(self, axis: int, start: int, stop: int, shape: Sequence[int]) -> "QuantParams":
        """The parameters of `tensor[start:stop]` along an axis, for a tensor of this shape.

        Raises QuantizationError where the cut goes through a group.
        """
        self.validate_for(shape)
        if self.axis is None:
            return self
        ndim = len(shape)
        cut = self._axis_in(axis, ndim)
        if isinstance(self.axis, int) and self.block is None:
            if self._axis_in(self.axis, ndim) != cut:
                return self
            zeros = self.zero_point[start:stop] if self.zero_point.ndim else self.zero_point
            return QuantParams(self.scale[start:stop], zeros, self.dtype, self.axis)
        blocks = {self._axis_in(a, ndim): b if b > 0 else max(int(shape[a]), 1) for a, b in self._block_of_axis()}
        block = blocks.get(cut, 1)
        if start % block or (stop % block and stop != shape[cut]):
            raise QuantizationError(f"axis {axis} is cut at multiples of its block {block} only; asked {start}:{stop}")
        index = (*[slice(None)] * cut, slice(start // block, -(-stop // block)))
        zeros = self.zero_point[index] if self.zero_point.ndim else self.zero_point
        return QuantParams(self.scale[index], zeros, self.dtype, self.axis, self.block)

    # Saving, comparing -------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Plain names and values, scale and zero point as arrays; `from_dict` takes them back, also as lists."""
        return {
            "scale": self.scale,
            "scale_dtype": self.scale_dtype.name,
            "zero_point": self.zero_point,
            "dtype": self.dtype.name,
            "axis": self.axis,
            "block": self.block,
        }

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> "QuantParams":
        """Undo `to_dict`, also after a way through JSON that made lists of arrays and tuples."""
        try:
            scale = np.asarray(saved["scale"])
            if "scale_dtype" in saved:
                scale = scale.astype(dtypes.get(saved["scale_dtype"]).numpy)
            axis, block = (tuple(x) if isinstance(x, list) else x for x in (saved["axis"], saved["block"]))
            return cls(scale, np.asarray(saved["zero_point"]), saved["dtype"], axis, block)
        except (KeyError, IndexError) as error:
            raise QuantizationError(f"saved parameters lack {error}; to_dict writes all of them") from None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, QuantParams):
            return NotImplemented
        return self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __reduce__(self) -> tuple[Any, ...]:
        return QuantParams, (self.scale, self.zero_point, self.dtype, self.axis, self.block)

    def __repr__(self) -> str:
        text = f"QuantParams({_brief(self.scale)}, {_brief(self.zero_point)}, {self.dtype.name!r}"
        text += f", axis={self.axis}" if self.axis is not None else ""
        text += f", block={self.block}" if self.block is not None else ""
        return text + (f"; {self.scale_dtype} scales)" if self.scale_dtype != "f32" else ")")

    # Inside ------------------------------------------------------------------------------------------------------

    def _key(self) -> tuple[Any, ...]:
        zeros = np.broadcast_to(self.zero_point, self.scale.shape)
        scale = self.scale
        return (
            self.dtype.name,
            self.axis,
            self.block,
            self.scale_dtype.name,
            scale.shape,
            scale.tobytes(),
            zeros.tobytes(),
        )

    def _wide_zero_point(self) -> NDArray[Any]:
        return self.zero_point.astype(np.int64 if self.dtype.bits == 32 else np.int32)

    def _block_of_axis(self) -> list[tuple[int, int]]:
        if isinstance(self.axis, tuple) and isinstance(self.block, tuple):
            return list(zip(self.axis, self.block, strict=True))
        assert isinstance(self.axis, int)
        assert isinstance(self.block, int)  # __init__ made sure
        return [(self.axis, self.block)]

    def _axis_in(self, axis: int, ndim: int, shape: object = None) -> int:
        if not -ndim <= axis < ndim:
            of = f"shape {shape}" if shape is not None else f"{ndim} dimensions"
            raise QuantizationError(f"axis {axis} is out of range for {of}; it goes from {-ndim} to {ndim - 1}")
        return axis % ndim

    def _expanded(self, array: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
        if not array.ndim or self.axis is None:
            return array
        if isinstance(self.axis, int) and self.block is None:
            tail = len(shape) - 1 - self._axis_in(self.axis, len(shape))
            return array.reshape(array.shape + (1,) * tail)
        for axis, block in self._block_of_axis():
            i = self._axis_in(axis, len(shape))
            if block > 0 and array.shape[i] > 1:
                array = np.take(np.repeat(array, block, i), range(shape[i]), i)
        return array


def _code_type(dtype: DTypeLike) -> DType:
    codes = dtypes.get(dtype)
    small_float = codes.is_float and codes.bits <= 8
    if not (small_float or (codes.is_integer and codes.bits <= 32)):
        works = ", ".join(
            d.name for d in dtypes.DTYPES.values() if (d.is_integer and d.bits <= 32) or (d.is_float and d.bits <= 8)
        )
        raise DTypeMismatch(f"codes of type {codes} cannot be quantized values; {works} can")
    return codes


def _scales(scale: ArrayLike) -> NDArray[Any]:
    given = np.asarray(scale)
    if given.dtype.kind in "OUSMmc" or given.dtype.kind == "b":
        raise DTypeMismatch(f"scale is {given.dtype}; it is made of real numbers")
    kept = dtypes.get(given.dtype) if given.dtype.isnative and given.dtype != np.longdouble else None
    with np.errstate(all="ignore"):
        stays = kept is not None and kept.name in SCALE_DTYPES
        factors = np.array(given, order="C", copy=True) if stays else given.astype(np.float32)
        wide = factors.astype(np.float64)
    bad = ~(np.isfinite(wide) & (wide > 0))
    if bad.any():
        at = np.unravel_index(int(np.argmax(bad)), bad.shape)
        where = f" at {tuple(int(i) for i in at)}" if bad.ndim else ""
        was = given[at]
        why = (
            "" if stays or float(was) == float(wide[at]) or math.isnan(float(was)) else f", which is {wide[at]} as f32"
        )
        raise QuantizationError(f"scale {was}{where}{why}; a scale is finite and greater than 0")
    return factors


def _zero_points(zero_point: ArrayLike, codes: DType) -> NDArray[Any]:
    zeros = np.asarray(zero_point)
    if zeros.dtype.kind not in "iu" and zeros.size:
        found = dtypes.get(zeros.dtype)
        if found.packed or (codes.is_float and found == codes and not zeros.astype(np.float32).any()):
            zeros = zeros.astype(np.int8)  # ml_dtypes' own small integers, or the 0 of a float type
        else:
            raise DTypeMismatch(f"zero_point is {found}; it is an integer, the code that stands for real 0")
    low, high = (0, 0) if codes.is_float else (int(codes.min), int(codes.max))
    if zeros.size and (int(zeros.min()) < low or int(zeros.max()) > high):
        bad = (zeros < low) | (zeros > high)
        at = np.unravel_index(int(np.argmax(bad)), bad.shape)
        where = f" at {tuple(int(i) for i in at)}" if bad.ndim else ""
        text = "which has none but 0" if codes.is_float else f"which holds {low} to {high}"
        raise QuantizationError(f"zero_point {zeros[at]}{where} is outside {codes}, {text}")
    return np.array(zeros, np.int8 if codes.is_float else codes.code, order="C", copy=True)


def _axes(axis: Any) -> Axes:
    if axis is None or _is_int(axis):
        return None if axis is None else int(axis)
    if isinstance(axis, (tuple, list)) and len(axis) == 2 and all(_is_int(a) for a in axis):
        return (int(axis[0]), int(axis[1]))
    raise QuantizationError(f"axis is an int, or two of them for a 2-D block; found {axis!r}")


def _blocks(block: Any) -> Block:
    if block is None:
        return None
    sizes = tuple(block) if isinstance(block, (tuple, list)) else (block,)
    good = all(_is_int(b) and (b == -1 or 1 <= b <= _LARGEST_BLOCK) for b in sizes)
    if not good or len(sizes) not in (1, 2):
        raise QuantizationError(
            f"block {block!r} is neither a number of elements from 1 to 2**31 - 1, nor -1 for the whole axis, "
            f"nor two of these, (rows, columns)"
        )
    if isinstance(block, (tuple, list)):
        if len(sizes) == 1:
            raise QuantizationError(f"block {block!r} has one size; write it as the int {sizes[0]}, or give two")
        return (int(sizes[0]), int(sizes[1]))
    return int(sizes[0])


def _blocked_axes(axis: Axes, block: Block, ndim: int) -> Axes:
    """Check the axes of groups against the rank, which the array of scales has too."""
    if isinstance(block, tuple):
        pair = (-2, -1) if axis is None else axis
        if not isinstance(pair, tuple):
            raise QuantizationError(f"block {block} has two sizes and needs two axes; found axis {axis}")
    elif axis is None or isinstance(axis, tuple):
        raise QuantizationError(f"block {block} needs the one axis that it goes along; found axis {axis}")
    else:
        pair = (axis, axis)
    for a in pair:
        if not -ndim <= a < ndim:
            raise QuantizationError(
                f"axis {a} is out of range: scales of blocks have the rank of the tensor; scale has {ndim} dimensions"
            )
    first, second = (a % ndim for a in pair)
    if isinstance(block, tuple) and first == second:
        raise QuantizationError(f"block {block} needs two different axes; found axis {axis}")
    return (first, second) if isinstance(block, tuple) else first


def _is_int(n: Any) -> bool:
    return isinstance(n, (int, np.integer)) and not isinstance(n, bool)


def _brief(array: NDArray[Any]) -> str:
    if array.size == 1:
        return f"{array.reshape(())[()]:g}" if array.dtype.kind == "f" else str(array.reshape(())[()])
    return f"<{array.dtype} {array.shape}>"
