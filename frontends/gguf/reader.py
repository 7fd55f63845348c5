"""Reading a GGUF file: metadata and tensors, mapped and not copied, and nothing in the file trusted.

Counts and lengths are checked against the bytes that are left before anything is made of them, so that a damaged or
hostile file costs no more memory than its own size.
"""

from __future__ import annotations

import math
import mmap
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...primitives.archives import holdable
from ...primitives.errors import ArgumentError, FileFormatError, Unsupported
from .. import contents
from .layout import ALIGNMENT, ARRAY, BY_CODE, MAGIC, STRING, VALUES, VERSIONS, TensorType

if TYPE_CHECKING:
    from ...executors.schemes import QuantizedTensor

MOST_DIMENSIONS = 4
LONGEST_KEY = 1 << 16
DEEPEST = 4  # arrays of arrays


@dataclass(frozen=True)
class RawTensor:
    """A tensor as it lies in the file.

    shape   outermost axis first, as NumPy counts; the last is the one that blocks run along
    data    uint8, (rows..., bytes of a row): read-only, mapped
    """

    name: str
    type: TensorType
    shape: tuple[int, ...]
    data: np.ndarray[Any, Any]

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor in the file."""
        return int(self.data.nbytes)

    def numpy(self) -> np.ndarray[Any, Any]:
        """The elements of a type that is no block type, without a copy where alignment allows."""
        if self.type.plain is None:
            raise Unsupported(f"{self.name!r} is {self.type.name}, a block type; dequantize it")
        return self.data.view(self.type.plain).reshape(self.shape)

    def quantized(self, executor: Any = None) -> QuantizedTensor:
        """The tensor in its blocks, to multiply with: the file's own bytes, without a copy.

        Raises Unsupported for a type that is no block type.
        """
        from .blocks import quantized

        return quantized(self.data, self.type.name, self.shape, executor)


class Contents(contents.Contents[RawTensor]):
    """The tensors of a file by name, with its metadata."""

    def __init__(self, path: Path, version: int, metadata: dict[str, Any], tensors: dict[str, RawTensor]) -> None:
        self.path, self.version, self.metadata, self._tensors = path, version, metadata, tensors


class _Cursor:
    """A position in the bytes of a file; reading past the end is an error that says where."""

    def __init__(self, data: memoryview, name: str) -> None:
        self.data, self.name, self.at = data, name, 0

    def take(self, n: int, what: str) -> memoryview:
        if n < 0 or n > len(self.data) - self.at:
            left = len(self.data) - self.at
            raise FileFormatError(
                f"{self.name} is truncated or damaged: {what} needs {n} bytes at {self.at}, {left} are left"
            )
        found = self.data[self.at : self.at + n]
        self.at += n
        return found

    def number(self, dtype: Any, what: str) -> Any:
        dtype = np.dtype(dtype).newbyteorder("<")
        return np.frombuffer(self.take(dtype.itemsize, what), dtype)[0].item()

    def text(self, what: str, longest: int | None = None) -> str:
        n = self.number(np.uint64, f"the length of {what}")
        if longest is not None and n > longest:
            raise FileFormatError(f"{self.name}: {what} has {n} bytes; at most {longest} are read")
        try:
            return str(self.take(n, what), "utf-8")
        except UnicodeDecodeError:
            return str(bytes(self.data[self.at - n : self.at]), "utf-8", "surrogateescape")


def _value(cursor: _Cursor, kind: int, what: str, depth: int = 0) -> Any:
    if kind == STRING:
        return cursor.text(what)
    if kind == ARRAY:
        if depth == DEEPEST:
            raise FileFormatError(f"{cursor.name}: {what} nests arrays more than {DEEPEST} deep")
        inner = cursor.number(np.uint32, f"the element type of {what}")
        count = cursor.number(np.uint64, f"the length of {what}")
        if inner in VALUES:
            dtype = VALUES[inner].newbyteorder("<")
            return np.frombuffer(cursor.take(count * dtype.itemsize, what), dtype).copy()
        if count > len(cursor.data) - cursor.at:
            raise FileFormatError(f"{cursor.name} is truncated or damaged: {what} says {count} elements")
        return [_value(cursor, inner, what, depth + 1) for _ in range(count)]
    if kind not in VALUES:
        raise FileFormatError(
            f"{cursor.name}: {what} is of value type {kind}; {', '.join(map(str, VALUES))}, 8, 9 exist"
        )
    return cursor.number(VALUES[kind], what)


def read(path: str | os.PathLike[str]) -> Contents:
    """Return the metadata and the tensors of a GGUF file, whose bytes stay mapped as long as anything uses them.

    Raises ArgumentError where there is no file, FileFormatError where it is damaged or no GGUF, Unsupported for a
    version, byte order or tensor type that is not read.
    """
    path = Path(path)
    if not path.is_file():
        raise ArgumentError(f"there is no file {str(path)!r}")
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size < len(MAGIC) + 20:
            raise FileFormatError(f"{path.name} is no GGUF file: it is too short")
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    cursor = _Cursor(memoryview(mapped), path.name)
    if bytes(cursor.take(4, "the magic")) != MAGIC:
        raise FileFormatError(f"{path.name} is no GGUF file: it starts with {bytes(cursor.data[:4])!r}, not {MAGIC!r}")
    version = cursor.number(np.uint32, "the version")
    if version not in VERSIONS:
        swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
        reason = "is in big-endian order" if swapped in VERSIONS else f"is of version {version}"
        raise Unsupported(
            f"{path.name} {reason}; little-endian files of version {' and '.join(map(str, VERSIONS))} are read"
        )
    tensors = cursor.number(np.uint64, "the number of tensors")
    values = cursor.number(np.uint64, "the number of metadata values")
    metadata: dict[str, Any] = {}
    for n in range(values):
        key = cursor.text(f"metadata key {n}", LONGEST_KEY)
        if key in metadata:
            raise FileFormatError(f"{path.name}: metadata {key!r} is there twice")
        metadata[key] = _value(cursor, cursor.number(np.uint32, f"the type of {key!r}"), f"metadata {key!r}")
    headers = [_header(cursor, n) for n in range(tensors)]
    alignment = metadata.get("general.alignment", ALIGNMENT)
    if not isinstance(alignment, int) or not 1 <= alignment <= 1 << 20 or alignment & (alignment - 1):
        raise FileFormatError(f"{path.name}: general.alignment is {alignment!r}; a power of two to 2**20 is needed")
    start = -(-cursor.at // alignment) * alignment
    return Contents(path, version, metadata, _tensors(cursor, headers, start, alignment))


def _header(cursor: _Cursor, n: int) -> tuple[str, TensorType, tuple[int, ...], int]:
    name = cursor.text(f"the name of tensor {n}", LONGEST_KEY)
    where = f"{cursor.name}: tensor {name!r}"
    rank = cursor.number(np.uint32, f"the rank of tensor {name!r}")
    if rank > MOST_DIMENSIONS:
        raise FileFormatError(f"{where} has {rank} dimensions; at most {MOST_DIMENSIONS} exist")
    shape = tuple(cursor.number(np.uint64, f"a size of tensor {name!r}") for _ in range(rank))[::-1]
    code = cursor.number(np.uint32, f"the type of tensor {name!r}")
    offset = cursor.number(np.uint64, f"the offset of tensor {name!r}")
    if code not in BY_CODE:
        raise Unsupported(f"{where} is of type {code}; known are {', '.join(t.name for t in BY_CODE.values())}")
    kind = BY_CODE[code]
    if (shape[-1] if shape else 1) % kind.block:
        raise FileFormatError(
            f"{where} has rows of {shape[-1] if shape else 1} elements; {kind.name} has blocks of {kind.block}"
        )
    return name, kind, shape, offset


def _tensors(
    cursor: _Cursor, headers: list[tuple[str, TensorType, tuple[int, ...], int]], start: int, alignment: int
) -> dict[str, RawTensor]:
    found: dict[str, RawTensor] = {}
    data = np.frombuffer(cursor.data, np.uint8)
    for name, kind, shape, offset in headers:
        where = f"{cursor.name}: tensor {name!r}"
        row = (shape[-1] if shape else 1) // kind.block * kind.nbytes
        nbytes = math.prod(shape[:-1]) * row
        first = start + offset
        if not holdable((*shape, row)):
            raise FileFormatError(f"{where} has shape {shape}; no array has")
        if name in found:
            raise FileFormatError(f"{where} is there twice")
        if offset % alignment:
            raise FileFormatError(f"{where} starts at {offset}, which is no multiple of {alignment}")
        if first + nbytes > len(data):
            raise FileFormatError(
                f"{where} of shape {shape} takes {nbytes} bytes at {first}; the file ends at {len(data)}"
            )
        found[name] = RawTensor(name, kind, shape, data[first : first + nbytes].reshape(*shape[:-1], row))
    return found
