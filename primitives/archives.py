"""Archives of arrays (.npz and its kin) that somebody else may have written: nothing is taken that is not there.

NumPy reserves memory for as many elements as a header says before it reads one, and unpacks what was packed to a
thousandth of its size. Here a member is as large as its bytes in the file, and an array is a view of them.
"""

from __future__ import annotations

import io
import math
import os
import zipfile
from collections.abc import Iterable
from typing import Any

import numpy as np

from .errors import FileFormatError
from .given import MOST_DIMENSIONS

ENCRYPTED = 1  # of a member's flags


class Clamped(io.BufferedReader):
    """A file of which no more is asked than it has: Python reserves what a damaged directory says before it reads."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(io.FileIO(path))
        self._length = os.fstat(self.fileno()).st_size

    def read(self, size: int | None = -1) -> bytes:
        left = max(self._length - self.tell(), 0)
        return super().read(left if size is None or size < 0 else min(size, left))


def check_stored(archive: zipfile.ZipFile, length: int, where: object) -> None:
    """FileFormatError for members that are compressed, or that have more bytes together than the file of `length`."""
    members = archive.infolist()
    if any(info.compress_type != zipfile.ZIP_STORED or info.flag_bits & ENCRYPTED for info in members):
        raise FileFormatError(f"{where}: compressed members or encrypted ones; arrays are stored as they are")
    total = sum(info.file_size for info in members)
    if total > length:
        raise FileFormatError(f"{where}: members of {total} bytes in a file of {length}")


def member(name: str) -> zipfile.ZipInfo:
    """A stored member to write. It has no date: files are the same bytes each time, and no year is too early for zip."""
    found = zipfile.ZipInfo(name)
    found.external_attr = 0o600 << 16
    return found


def holdable(shape: Iterable[int], itemsize: int = 8) -> bool:
    """Whether NumPy makes arrays of this shape: one without elements has sizes too, and they may be absurd."""
    sizes = [n for n in shape if n]
    return len(sizes) <= MOST_DIMENSIONS and math.prod(sizes) * max(itemsize, 1) < 2**63


def length_of(source: str | os.PathLike[str] | io.IOBase) -> int:
    """Bytes of a file."""
    if not isinstance(source, io.IOBase):
        return os.stat(source).st_size
    at = source.tell()
    end = source.seek(0, os.SEEK_END)
    source.seek(at)
    return end


def array(raw: bytes) -> np.ndarray[Any, Any]:
    """The array of an .npy member, a read-only view of its bytes; FileFormatError where it has others than it says."""
    file = io.BytesIO(raw)
    version = np.lib.format.read_magic(file)
    if version != (1, 0):
        raise FileFormatError(f"an array of .npy version {version}; 1.0 is written")
    try:
        shape, transposed, dtype = np.lib.format.read_array_header_1_0(file)
    except Exception as error:  # NumPy parses it as Python, and a damaged one raises errors of many types
        raise FileFormatError(f"the header of an array cannot be read: {error}") from None
    left = len(raw) - file.tell()
    if (
        dtype.hasobject
        or dtype.names
        or transposed
        or math.prod(shape) * dtype.itemsize != left
        or min(shape, default=0) < 0
        or not holdable(shape, dtype.itemsize)
    ):
        raise FileFormatError(f"an array of {dtype} {shape} in {left} bytes; plain numbers in C order are written")
    return np.frombuffer(raw, dtype, offset=file.tell()).reshape(shape) if left else np.zeros(shape, dtype)
