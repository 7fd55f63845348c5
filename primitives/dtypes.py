"""Data types: the one table, and the packing of types smaller than a byte.

Names say kind and bits: u8 s8 f32, and f8e4m3fn for the small floats, spelled as in ml_dtypes without "float" and
underscores. Integers of 2 and 4 bits are stored packed: the first element in the lowest bits of the first byte, each
row (the innermost axis) padded to whole bytes. Every other type is stored one element to `itemsize` bytes: s4b and its
like are those integers in a byte each, as ml_dtypes' arrays hold them.
"""

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

import ml_dtypes
import numpy as np
from numpy.typing import ArrayLike, NDArray

from .errors import DTypeMismatch, QuantizationError, ShapeMismatch

Kind = Literal["bool", "uint", "int", "float", "scale"]


@dataclass(frozen=True, eq=False, repr=False)
class DType:
    """One row of the table. Compares equal to its name, and hashes like it, so that `dtype == "u8"` works.

    name      its one spelling, such as "u8"; aliases are for `get`
    bits      bits an element has when packed as tightly as its format allows
    kind      "bool", "uint", "int", "float", or "scale" for a power of two without sign (e8m0fnu)
    numpy     dtype of one stored element; uint8 for packed types, whose bytes hold `per_byte` elements
    code      dtype of one element by itself: `numpy`, but uint8 or int8 for packed types
    min, max  smallest and largest finite value
    per_byte  elements that share one stored byte: 1, or 2 and 4 for packed types
    """

    name: str
    bits: int
    kind: Kind
    numpy: np.dtype[Any]
    code: np.dtype[Any]
    min: int | float
    max: int | float
    per_byte: int = 1

    @property
    def itemsize(self) -> int:
        """Bytes of one stored element (of one stored byte, for packed types)."""
        return int(self.numpy.itemsize)

    @property
    def packed(self) -> bool:
        """Whether several elements share a byte."""
        return self.per_byte > 1

    @property
    def is_integer(self) -> bool:
        """Whether codes are integers, signed or not; bool is not."""
        return self.kind in ("uint", "int")

    @property
    def is_float(self) -> bool:
        """Whether values are floats; scale-only formats such as e8m0 are not."""
        return self.kind == "float"

    @property
    def is_signed(self) -> bool:
        """Whether there are values below 0."""
        return self.kind in ("int", "float")

    def row_nbytes(self, n: int) -> int:
        """Bytes that a row of n elements takes, padded to whole bytes."""
        return -(-n // self.per_byte) * self.itemsize

    def __eq__(self, other: object) -> bool:
        if isinstance(other, DType):
            return self.name == other.name
        if isinstance(other, str):
            return self.name == other
        return NotImplemented

    def __hash__(self) -> int:
        return hash(self.name)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"DType({self.name!r})"

    def __reduce__(self) -> tuple[Callable[[str], "DType"], tuple[str]]:
        return get, (self.name,)


DTypeLike: TypeAlias = DType | str | np.dtype[Any] | type[Any]


def _plain(name: str, kind: Kind, numpy_type: Any) -> DType:
    numpy = np.dtype(numpy_type)
    if kind == "bool":
        return DType(name, 8, kind, numpy, numpy, 0, 1)
    if kind in ("uint", "int"):
        ints = np.iinfo(numpy)
        return DType(name, ints.bits, kind, numpy, numpy, int(ints.min), int(ints.max))
    floats: Any = ml_dtypes.finfo(numpy)  # type: ignore[no-untyped-call]
    return DType(name, int(floats.bits), kind, numpy, numpy, float(floats.min), float(floats.max))


def _in_bytes(name: str, kind: Kind, bits: int, numpy_type: Any) -> DType:
    packed = _packed(name, kind, bits)
    return DType(name, bits, kind, np.dtype(numpy_type), packed.code, packed.min, packed.max)


def _packed(name: str, kind: Kind, bits: int) -> DType:
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if kind == "int" else (0, (1 << bits) - 1)
    code = np.dtype(np.int8 if kind == "int" else np.uint8)
    return DType(name, bits, kind, np.dtype(np.uint8), code, low, high, 8 // bits)


DTYPES: Mapping[str, DType] = MappingProxyType(
    {
        dtype.name: dtype
        for dtype in (
            _plain("bool", "bool", np.bool_),
            _packed("u2", "uint", 2),
            _packed("s2", "int", 2),
            _packed("u4", "uint", 4),
            _packed("s4", "int", 4),
            _plain("u8", "uint", np.uint8),
            _plain("s8", "int", np.int8),
            _plain("u16", "uint", np.uint16),
            _plain("s16", "int", np.int16),
            _plain("u32", "uint", np.uint32),
            _plain("s32", "int", np.int32),
            _plain("u64", "uint", np.uint64),
            _plain("s64", "int", np.int64),
            _plain("f4e2m1fn", "float", ml_dtypes.float4_e2m1fn),
            _plain("f6e2m3fn", "float", ml_dtypes.float6_e2m3fn),
            _plain("f6e3m2fn", "float", ml_dtypes.float6_e3m2fn),
            _plain("f8e3m4", "float", ml_dtypes.float8_e3m4),
            _plain("f8e4m3", "float", ml_dtypes.float8_e4m3),
            _plain("f8e4m3fn", "float", ml_dtypes.float8_e4m3fn),
            _plain("f8e4m3fnuz", "float", ml_dtypes.float8_e4m3fnuz),
            _plain("f8e4m3b11fnuz", "float", ml_dtypes.float8_e4m3b11fnuz),
            _plain("f8e5m2", "float", ml_dtypes.float8_e5m2),
            _plain("f8e5m2fnuz", "float", ml_dtypes.float8_e5m2fnuz),
            _plain("e8m0fnu", "scale", ml_dtypes.float8_e8m0fnu),
            _plain("f16", "float", np.float16),
            _plain("bf16", "float", ml_dtypes.bfloat16),
            _plain("f32", "float", np.float32),
            _plain("f64", "float", np.float64),
            _in_bytes("u2b", "uint", 2, ml_dtypes.uint2),
            _in_bytes("s2b", "int", 2, ml_dtypes.int2),
            _in_bytes("u4b", "uint", 4, ml_dtypes.uint4),
            _in_bytes("s4b", "int", 4, ml_dtypes.int4),
        )
    }
)


def _aliases() -> dict[str, str]:
    found = {"bool_": "bool", "boolean": "bool"}
    for bits in (2, 4, 8, 16, 32, 64):
        found |= {f"i{bits}": f"s{bits}", f"int{bits}": f"s{bits}", f"uint{bits}": f"u{bits}"}
    for bits in (16, 32, 64):
        found[f"float{bits}"] = f"f{bits}"
    found |= {"f2": "f16", "f4": "f32", "half": "f16", "double": "f64", "bfloat16": "bf16"}
    found |= {"fp16": "f16", "fp32": "f32", "fp64": "f64"}
    for name in DTYPES:
        if name[:2] in ("f4", "f6", "f8"):
            size, form = name[1], name[2:]
            found |= {form: name, f"fp{size}_{form}": name, f"f{size}_{form}": name, f"float{size}_{form}": name}
            found[f"fp{size}{form}"] = name
    # The short spellings of the OCP formats; f8e4m3 and f8e3m4 with infinities keep their full names.
    found |= {"e4m3": "f8e4m3fn", "fp8_e4m3": "f8e4m3fn", "fp8e4m3": "f8e4m3fn", "fp8": "f8e4m3fn"}
    found |= {"e2m1": "f4e2m1fn", "e2m3": "f6e2m3fn", "e3m2": "f6e3m2fn", "fp4": "f4e2m1fn"}
    found |= {"f4e2m1": "f4e2m1fn", "f6e2m3": "f6e2m3fn", "f6e3m2": "f6e3m2fn"}
    found |= {"fp4_e2m1": "f4e2m1fn", "fp6_e2m3": "f6e2m3fn", "fp6_e3m2": "f6e3m2fn"}
    found |= {"e8m0": "e8m0fnu", "f8e8m0": "e8m0fnu", "f8e8m0fnu": "e8m0fnu", "float8_e8m0fnu": "e8m0fnu"}
    return {alias: name for alias, name in found.items() if alias not in DTYPES}


ALIASES: Mapping[str, str] = MappingProxyType(_aliases())
_AMBIGUOUS = {
    "f8": "'f64' (8 bytes) or 'f8e4m3fn' (8 bits)",
    "f6": "'f6e2m3fn' or 'f6e3m2fn'",
    "int": "'s32' or 's64'",
    "uint": "'u32' or 'u64'",
    "float": "'f32' or 'f64'",
}

# ml_dtypes has its own one-byte element types for the packed integers.
_BY_NUMPY: dict[np.dtype[Any], DType] = {dtype.numpy: dtype for dtype in DTYPES.values() if not dtype.packed} | {
    np.dtype(ml_dtypes.int2): DTYPES["s2"],
    np.dtype(ml_dtypes.uint2): DTYPES["u2"],
    np.dtype(ml_dtypes.int4): DTYPES["s4"],
    np.dtype(ml_dtypes.uint4): DTYPES["u4"],
}


def get(x: DTypeLike) -> DType:
    """Return the data type that a name, an alias, a NumPy dtype or a scalar type stands for.

    "i8", like "s8" and "int8", is 8 bits; "f2" and "f4" are NumPy's spellings of f16 and f32. NumPy's own "u8"
    and "i8", 8 bytes, are np.uint64 and np.int64 here.

    Raises DTypeMismatch naming what was found and what is near it: an unknown name, or a dtype that is big-endian,
    complex, an object, a date, a text or a record.
    """
    if isinstance(x, DType):
        return x
    if isinstance(x, np.dtype):
        return _from_numpy(x)
    if isinstance(x, str):
        name = x if x in DTYPES else ALIASES.get(x, "")
        if name:
            return DTYPES[name]
        if x[:1] in ("<", ">", "=", "|"):
            return _from_numpy(_numpy_dtype(x))
        if x in _AMBIGUOUS:
            raise DTypeMismatch(f"data type {x!r} is ambiguous: write {_AMBIGUOUS[x]}")
        near = difflib.get_close_matches(x.lower(), [*DTYPES, *ALIASES], n=3, cutoff=0.5)
        hint = f"; did you mean {' or '.join(repr(n) for n in near)}?" if near else ""
        raise DTypeMismatch(f"no data type {x!r}{hint} There are {', '.join(DTYPES)}")
    if isinstance(x, type):
        return _from_numpy(_numpy_dtype(x))
    raise DTypeMismatch(f"a data type is a name, a NumPy dtype or a DType; found {type(x).__name__} {x!r}")


def _numpy_dtype(x: Any) -> np.dtype[Any]:
    try:
        numpy: np.dtype[Any] = np.dtype(x)
    except (TypeError, ValueError) as error:
        raise DTypeMismatch(
            f"no data type {x!r}: NumPy does not know it either. There are {', '.join(DTYPES)}"
        ) from error
    return numpy


def _from_numpy(numpy: np.dtype[Any]) -> DType:
    found = _BY_NUMPY.get(numpy)
    if found is not None:
        return found
    if not numpy.isnative and numpy.fields is None:
        native = numpy.newbyteorder("=")
        raise DTypeMismatch(
            f"found {numpy.str!r}, in the other byte order: only native order works; "
            f"a.astype({native.str!r}) converts it{_supported(native)}"
        )
    advice = {
        "c": "split it into a.real and a.imag",
        "O": "convert it with a.astype('float32') or another number type",
        "M": "a.view('int64') gives its ticks",
        "m": "a.view('int64') gives its ticks",
        "U": "text has to become numbers first",
        "S": "text has to become numbers first",
        "T": "text has to become numbers first",
        "f": "a.astype('float64') is the widest that works",
    }
    if numpy.fields is not None:
        names = ", ".join(repr(n) for n in numpy.names or ())
        what, hint = f"a record of {names}", "pass one field at a time, a[name]"
    else:
        what, hint = str(numpy), advice.get(numpy.kind, "convert it to a number type first")
    raise DTypeMismatch(f"no data type for NumPy's {what}: {hint}. There are {', '.join(DTYPES)}")


def _supported(numpy: np.dtype[Any]) -> str:
    return "" if numpy in _BY_NUMPY else f", but {numpy} has no data type here"


def _packable(dtype: DTypeLike) -> tuple[DType, int]:
    dtype = get(dtype)
    if dtype.bits not in (2, 4):
        raise DTypeMismatch(
            f"{dtype} takes a whole number of bytes and needs no packing; "
            f"{', '.join(d.name for d in DTYPES.values() if d.bits in (2, 4))} do"
        )
    return dtype, 8 // dtype.bits


def pack(codes: ArrayLike, dtype: DTypeLike) -> NDArray[np.uint8]:
    """Pack codes of 2 or 4 bits along the last axis, the first code in the lowest bits.

        byte = code[0] | code[1] << bits | ...

    codes   integers (..., n) within the range of dtype; for f4e2m1fn, values of that type or codes 0..15
    dtype   u4, s4, u2, s2, or f4e2m1fn where a format packs it

    Returns uint8 (..., ceil(n / per_byte)); the last byte of each row is filled up with zero bits.
    Raises QuantizationError for a code out of range, with its index.
    """
    dtype, per_byte = _packable(dtype)
    array = np.asarray(codes)
    if array.dtype == dtype.code and dtype.is_float:
        array = array.view(np.uint8)
    elif array.dtype in (np.dtype(ml_dtypes.int4), np.dtype(ml_dtypes.int2)):
        array = array.astype(np.int8)
    elif array.dtype in (np.dtype(ml_dtypes.uint4), np.dtype(ml_dtypes.uint2)):
        array = array.astype(np.uint8)
    if array.dtype.kind not in "iub":
        raise DTypeMismatch(f"packing {dtype} takes integer codes, found {array.dtype}; round them to integers first")
    if array.ndim == 0:
        raise ShapeMismatch(f"packing {dtype} goes along the last axis, found a scalar; give at least one axis")
    low, high = (0, 15) if dtype.is_float else (int(dtype.min), int(dtype.max))
    if array.size and (int(array.min()) < low or int(array.max()) > high):
        at = np.unravel_index(int(np.argmax((array < low) | (array > high))), array.shape)
        raise QuantizationError(
            f"code {array[at]} at {tuple(int(i) for i in at)} is outside {dtype}, which holds {low} to {high}"
        )
    mask = np.uint8((1 << dtype.bits) - 1)
    # Two's complement of a small negative code is the same in its low bits, whatever the width it came in.
    array = array.astype(np.uint8, copy=False) if array.dtype.kind != "i" else array.astype(np.int8).view(np.uint8)
    rest = -array.shape[-1] % per_byte
    if rest:
        array = np.concatenate([array, np.zeros((*array.shape[:-1], rest), np.uint8)], axis=-1)
    packed = array[..., 0::per_byte] & mask
    for i in range(1, per_byte):
        packed |= (array[..., i::per_byte] & mask) << np.uint8(dtype.bits * i)
    return packed


def unpack(packed: ArrayLike, dtype: DTypeLike, n: int) -> NDArray[Any]:
    """Undo `pack`: n codes a row, signed ones sign-extended.

    packed  uint8 (..., ceil(n / per_byte))
    n       codes in a row

    Returns an array (..., n) of `dtype.code`: uint8, int8, or the float type itself for f4e2m1fn.
    """
    dtype, per_byte = _packable(dtype)
    array = np.asarray(packed)
    if array.dtype != np.uint8:
        raise DTypeMismatch(f"packed {dtype} is bytes, uint8; found {array.dtype}")
    if array.ndim == 0 or n < 0 or array.shape[-1] != -(-n // per_byte):
        raise ShapeMismatch(
            f"{n} elements of {dtype} take {-(-n // per_byte)} bytes a row; found an array of shape {array.shape}"
        )
    codes = np.empty((*array.shape[:-1], array.shape[-1] * per_byte), np.uint8)
    mask = np.uint8((1 << dtype.bits) - 1)
    for i in range(per_byte):
        codes[..., i::per_byte] = (array >> np.uint8(dtype.bits * i)) & mask
    codes = np.ascontiguousarray(codes[..., :n]) if codes.shape[-1] != n else codes
    if dtype.is_float:
        return codes.view(dtype.code)
    if dtype.kind == "int":
        sign = np.uint8(1 << (dtype.bits - 1))
        return ((codes ^ sign) - sign).view(np.int8)  # wraps on purpose: x ^ s - s extends the sign bit s
    return codes
