"""Reading safetensors: tensors mapped and not copied, and nothing in the file trusted.

A file is eight bytes of length, a JSON header that names types, shapes and places, and the bytes of all tensors. Every
place is checked against the file before anything is made of it.
Source: the format's README (safetensors), whose rules on size, order and holes of the header are kept.
"""

from __future__ import annotations

import json
import math
import mmap
import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeGuard

import ml_dtypes
import numpy as np

from ...primitives.archives import holdable
from ...primitives.errors import ArgumentError, FileFormatError, Unsupported
from .. import contents

Array = np.ndarray[Any, Any]

LARGEST_HEADER = 100_000_000  # bytes, as the format has it
LARGEST_JSON = 64 << 20  # bytes of an index or a configuration beside the tensors
MOST_DIMENSIONS = 32
INDEX = "model.safetensors.index.json"
CONFIGURATIONS = ("config.json", "quantize_config.json", "quant_config.json")
TYPES: Mapping[str, np.dtype[Any]] = MappingProxyType(
    {
        name: np.dtype(kind)
        for name, kind in {
            "BOOL": np.bool_,
            "U8": np.uint8,
            "I8": np.int8,
            "U16": np.uint16,
            "I16": np.int16,
            "U32": np.uint32,
            "I32": np.int32,
            "U64": np.uint64,
            "I64": np.int64,
            "F16": np.float16,
            "BF16": ml_dtypes.bfloat16,
            "F32": np.float32,
            "F64": np.float64,
            "F8_E4M3": ml_dtypes.float8_e4m3fn,
            "F8_E5M2": ml_dtypes.float8_e5m2,
            "F8_E8M0": ml_dtypes.float8_e8m0fnu,
            "C64": np.complex64,
        }.items()
    }
)


class Contents(contents.Contents[Array]):
    """The tensors of a checkpoint by name: read-only arrays on the file's own bytes.

    metadata   text by name, of all files
    config     what config.json, or a configuration of quantization, beside the file says; {} where there is none
    """

    def __init__(self, path: Path, tensors: dict[str, Array], metadata: dict[str, str], config: dict[str, Any]) -> None:
        self.path, self._tensors, self.metadata, self.config = path, tensors, metadata, config

    def quantized(self, config: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The weights that are codes, as QuantizedTensors; see `checkpoints.quantized`."""
        from .checkpoints import quantized

        return quantized(self, config)


def read(path: str | os.PathLike[str]) -> Contents:
    """The tensors of a file, or of a folder: those that its index names, or of all its files.

    Raises ArgumentError where there is nothing, FileFormatError where a file is damaged or an index names what is not
    there, Unsupported for a type of elements that is not known.
    """
    path = Path(path)
    tensors: dict[str, Array] = {}
    metadata: dict[str, str] = {}
    for file in _files(path):
        found, text = _read_file(file)
        for name in found:
            if name in tensors:
                raise FileFormatError(f"{file.name}: tensor {name!r} is in another file too")
        tensors |= found
        metadata |= text
    folder = path if path.is_dir() else path.parent
    return Contents(path, tensors, metadata, _configuration(folder))


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise ArgumentError(f"there is no file {str(path)!r}")
    if not (path / INDEX).is_file():
        found = sorted(path.glob("*.safetensors"))
        if not found:
            raise ArgumentError(f"{str(path)!r} holds no safetensors files")
        return found
    names = read_json(path / INDEX).get("weight_map")
    if not isinstance(names, dict) or not all(isinstance(n, str) for n in names.values()):
        raise FileFormatError(f"{INDEX} has no weight_map of names to files")
    found = []
    for name in sorted(set(names.values())):
        if Path(name).name != name or not (path / name).is_file():
            raise FileFormatError(f"{INDEX} names the file {name!r}, which is not in its folder")
        found.append(path / name)
    return found


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file of bounded size."""
    if path.stat().st_size > LARGEST_JSON:
        raise FileFormatError(f"{path.name} has {path.stat().st_size} bytes; at most {LARGEST_JSON} are read")
    return _object(path.read_bytes(), path.name)


def _object(data: bytes, what: str) -> dict[str, Any]:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise FileFormatError(f"{what} has a name twice")
        return found

    try:
        found = json.loads(data.decode("utf-8"), object_pairs_hook=once)
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise FileFormatError(f"{what} is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise FileFormatError(f"{what} is no JSON object")
    return found


def _configuration(folder: Path) -> dict[str, Any]:
    for name in CONFIGURATIONS:
        if (folder / name).is_file():
            found = read_json(folder / name)
            if name != "config.json" or "quantization_config" in found:
                return found
    return read_json(folder / "config.json") if (folder / "config.json").is_file() else {}


def _read_file(path: Path) -> tuple[dict[str, Array], dict[str, str]]:
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size < 10:
            raise FileFormatError(f"{path.name} is no safetensors file: it is too short")
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    length = int.from_bytes(mapped[:8], "little")
    if length > min(size - 8, LARGEST_HEADER):
        raise FileFormatError(
            f"{path.name} is no safetensors file, or truncated: its header has {length} bytes; {size - 8} are there, and "
            f"at most {LARGEST_HEADER} are read"
        )
    header = _object(mapped[8 : 8 + length], f"the header of {path.name}")
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise FileFormatError(f"{path.name}: __metadata__ is not text by name")
    data = np.frombuffer(mapped, np.uint8)[8 + length :]
    tensors, places = {}, []
    for name, facts in header.items():
        tensors[name], place = _tensor(f"{path.name}: tensor {name!r}", facts, data)
        places.append((*place, name))
    end = 0
    for first, last, name in sorted(places):
        if first != end:
            raise FileFormatError(f"{path.name}: tensor {name!r} starts at {first}, where {end} is expected")
        end = last
    if end != len(data):
        raise FileFormatError(f"{path.name} has {len(data)} bytes of tensors, of which {end} are named")
    return tensors, metadata


def _tensor(where: str, facts: Any, data: Array) -> tuple[Array, tuple[int, int]]:
    if not isinstance(facts, dict):
        raise FileFormatError(f"{where} is described by {type(facts).__name__}, not by an object")
    kind, shape, place = facts.get("dtype"), facts.get("shape"), facts.get("data_offsets")
    if not isinstance(kind, str) or kind not in TYPES:
        raise Unsupported(f"{where} is of type {str(kind)[:40]!r}; {', '.join(TYPES)} are known")
    if not _whole(shape) or len(shape) > MOST_DIMENSIONS or not holdable(shape):
        raise FileFormatError(
            f"{where} has shape {str(shape)[:80]}; at most {MOST_DIMENSIONS} whole numbers are needed, of an array that "
            f"an address space holds"
        )
    if not _whole(place) or len(place) != 2 or place[0] > place[1]:
        raise FileFormatError(f"{where} has data_offsets {str(place)[:80]}; a first and a last byte are needed")
    first, last = place
    nbytes = math.prod(shape) * TYPES[kind].itemsize
    if last > len(data):
        raise FileFormatError(f"{where} ends at {last}; the file is truncated, and has {len(data)} bytes of tensors")
    if last - first != nbytes:
        raise FileFormatError(
            f"{where} of shape {tuple(shape)} and type {kind} takes {nbytes} bytes, not {last - first}"
        )
    return data[first:last].view(TYPES[kind]).reshape(shape), (first, last)


def _whole(found: Any) -> TypeGuard[list[int]]:
    return isinstance(found, list) and all(type(n) is int and 0 <= n < 1 << 48 for n in found)
