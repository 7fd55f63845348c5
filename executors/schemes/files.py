"""Quantized tensors in files: .npz, or .safetensors (extra `safetensors`). Arrays and a description; never code."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ...kernels.schemes import shipped
from ...kernels.schemes.definition import Definition, as_matrix
from ...primitives import archives
from ...primitives.errors import ArgumentError, FileFormatError, TileworkError
from ...primitives.placing import placed
from .running import Array, Encoded
from .tensor import QuantizedTensor

DESCRIPTION = "tilework.schemes"
FORMAT = 1


def save(path: Any, tensors: Mapping[str, QuantizedTensor]) -> None:
    """Write tensors by name, the whole file or none. The ending of the path, .npz or .safetensors, is the format."""
    arrays: dict[str, Array] = {}
    described: dict[str, Any] = {}
    for name, q in tensors.items():
        prefix = f"{name}." if name else ""
        described[name] = {"scheme": q.scheme.name, "digest": q.scheme.digest, "shape": list(q.shape)}
        flatten(q.scheme, q._encoded, prefix, arrays)
    text = json.dumps({"format": FORMAT, "tensors": described})
    path = Path(path)
    if path.suffix == ".npz":
        arrays = {DESCRIPTION: np.frombuffer(text.encode(), np.uint8), **arrays}
        with placed(path) as part, zipfile.ZipFile(part, "w", zipfile.ZIP_STORED) as archive:
            for name, array in arrays.items():
                with archive.open(archives.member(f"{name}.npy"), "w", force_zip64=True) as file:
                    np.lib.format.write_array(file, array, allow_pickle=False)
    elif path.suffix == ".safetensors":
        with placed(path) as part:
            _safetensors().numpy.save_file(arrays, str(part), {DESCRIPTION: text})
    else:
        raise FileFormatError(f"{path} ends in {path.suffix or 'nothing'!r}; .npz and .safetensors can be written")


def flatten(scheme: Definition, encoded: Encoded, prefix: str, arrays: dict[str, Array]) -> None:
    """Put the arrays of a tensor into `arrays` by name, those of nested schemes after their parameter's name."""
    arrays[f"{prefix}codes"] = np.ascontiguousarray(encoded.codes)
    for name, kept in encoded.params.items():
        if isinstance(kept, Encoded):
            flatten(scheme.nested[name], kept, f"{prefix}{name}.", arrays)
            continue
        plain = np.ascontiguousarray(kept)
        if plain.dtype.kind not in "iuf" or plain.dtype.itemsize == 1:
            plain = plain.view({1: np.uint8, 2: np.uint16}[plain.dtype.itemsize])
        arrays[f"{prefix}{name}"] = plain


def load(path: Any, schemes: Mapping[str, Definition] | None = None) -> dict[str, QuantizedTensor]:
    """Read what `save` wrote: {name: tensor}.

    schemes   {name: scheme} for those that are not shipped: a file holds no functions

    Raises FileFormatError where the file is damaged or no such file, names a scheme that is not known here, or was
    written by a scheme of the same name and other functions.
    """
    from .scheme import get

    text, arrays = _read(Path(path))
    try:
        described = json.loads(text)["tensors"]
        items = [
            (str(n), str(d["scheme"]), str(d["digest"]), tuple(map(int, d["shape"]))) for n, d in described.items()
        ]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise FileFormatError(f"{path}: the description of its tensors cannot be read: {error!r}") from None
    found = {}
    for name, scheme_name, digest, shape in items:
        scheme = (schemes or {}).get(scheme_name)
        if scheme is None and shipped.is_shipped(scheme_name):
            scheme = get(scheme_name)
        if scheme is None:
            raise FileFormatError(f"{path}: {name!r} is in scheme {scheme_name!r}, which is not shipped; give scheme=")
        if scheme.digest != digest:
            raise FileFormatError(
                f"{path}: {name!r} was written by a scheme {scheme_name!r} with other functions, block or storage; "
                f"give the one that wrote it"
            )
        try:
            columns = as_matrix(shape, name)[1]
            encoded = gather(scheme, f"{name}." if name else "", columns, shape, arrays)
            found[name] = QuantizedTensor(scheme, encoded, shape)
        except (TileworkError, KeyError, ValueError) as error:
            raise FileFormatError(f"{path}: {name!r} does not fit its scheme {scheme_name}: {error}") from None
    return found


def gather(
    scheme: Definition, prefix: str, columns: int, shape: tuple[int, ...], arrays: Mapping[str, Array]
) -> Encoded:
    """What `flatten` took apart; the bytes of an array are viewed as what its scheme stores."""
    rows = as_matrix(shape, "a tensor")[0]
    grid = scheme.grid(rows, columns)
    params: dict[str, Array | Encoded] = {}
    for parameter in scheme.stored:
        inner = scheme.nested.get(parameter.name)
        if inner is not None:
            flat = (1, grid[0] * grid[1]) if isinstance(inner.block, int) else grid
            params[parameter.name] = gather(inner, f"{prefix}{parameter.name}.", flat[1], flat, arrays)
            continue
        array = arrays[f"{prefix}{parameter.name}"]
        params[parameter.name] = array if array.dtype == parameter.numpy else array.view(parameter.numpy)
    return Encoded(arrays[f"{prefix}codes"], params, columns)


def _read(path: Path) -> tuple[str, dict[str, Array]]:
    if path.suffix == ".npz":
        try:
            with archives.Clamped(path) as opened, zipfile.ZipFile(opened) as file:
                archives.check_stored(file, archives.length_of(path), path)
                arrays = {name.removesuffix(".npy"): archives.array(file.read(name)) for name in file.namelist()}
            text = arrays.pop(DESCRIPTION).tobytes().decode()
        except KeyError:
            raise FileFormatError(f"{path} holds no quantized tensors: it has no entry {DESCRIPTION!r}") from None
        except (FileNotFoundError, MemoryError):
            raise
        except Exception as error:  # zipfile and NumPy raise errors of many types for a damaged archive
            raise FileFormatError(f"{path} is no readable .npz archive: {error}") from None
        return text, arrays
    if path.suffix == ".safetensors":
        library = _safetensors()
        try:
            with library.safe_open(str(path), framework="np") as file:
                text = (file.metadata() or {})[DESCRIPTION]
                arrays = {name: file.get_tensor(name) for name in file.keys()}
        except KeyError:
            raise FileFormatError(f"{path} holds no quantized tensors: its metadata has no {DESCRIPTION!r}") from None
        except library.SafetensorError as error:
            raise FileFormatError(f"{path} is no readable .safetensors file: {error}") from None
        return text, arrays
    raise FileFormatError(f"{path} ends in {path.suffix or 'nothing'!r}; .npz and .safetensors can be read")


def _safetensors() -> Any:
    try:
        import safetensors
        import safetensors.numpy
    except ImportError as error:
        raise ArgumentError(
            f".safetensors files need the package safetensors: pip install 'tilework[safetensors]' ({error})"
        ) from None
    return safetensors
