"""`tilework scheme`: figures, proofs and comparisons of quantization schemes on the weights of a file."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
from numpy.typing import NDArray

import tilework as tw
from tilework.primitives import dtypes
from tilework.primitives.errors import ArgumentError, FileFormatError

from ..progress import track
from ..targets import said

Weights = dict[str, NDArray[np.float32]]

# How safetensors spells the types that weights have.
_STORED = {"F64": "f64", "F32": "f32", "F16": "f16", "BF16": "bf16", "F8_E4M3": "f8e4m3fn", "F8_E5M2": "f8e5m2"}


def find(name: str) -> tw.Scheme:
    """A shipped scheme by name, or `file.py:name` for one that somebody wrote, or for a function that makes one."""
    path, colon, attribute = name.rpartition(":")
    if not (colon and path.endswith(".py")):
        return tw.schemes.get(name)
    if not Path(path).is_file():
        raise ArgumentError(f"there is no file {path!r}")
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    assert spec is not None
    loader = spec.loader
    assert loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(Path(path).resolve().parent))
    try:
        said(Path(path), lambda: loader.exec_module(module))
        found = getattr(module, attribute, None)
        if isinstance(found, FunctionType):
            found = said(Path(path), found)
    finally:
        sys.path.pop(0)
    if not isinstance(found, tw.Scheme):
        known = ", ".join(k for k, v in vars(module).items() if isinstance(v, tw.Scheme)) or "none"
        raise ArgumentError(f"{attribute!r} in {path} is no Scheme; it has {known}")
    return found


def load(path: str, tensors: Sequence[str] = ()) -> Weights:
    """The weight matrices of a .npz, .npy or .safetensors file, as float32 (N, K), by name.

    tensors   names to take; without any, everything real with two dimensions at least

    Dimensions after the first are one, as they are for the weights of a convolution.
    Raises ArgumentError for a name that is not there, FileFormatError for another kind of file.
    """
    file = Path(path)
    if not file.is_file():
        raise ArgumentError(f"there is no file {path!r}")
    if file.suffix == ".safetensors":
        found = _safetensors(file)
    elif file.suffix in (".npz", ".npy"):
        try:
            with file.open("rb") as raw:
                data = np.load(raw, allow_pickle=False)
                found = {file.stem: data} if isinstance(data, np.ndarray) else {name: data[name] for name in data.files}
        except Exception as error:  # zipfile and NumPy raise errors of many types for a damaged file
            raise FileFormatError(f"{path} cannot be read: {error}") from error
    else:
        raise FileFormatError(
            f"{path} ends in {file.suffix or 'nothing'!r}; weights come in .npz, .npy or .safetensors"
        )
    if missing := set(tensors) - set(found):
        raise ArgumentError(f"{path} has no {', '.join(sorted(missing))}; it has {', '.join(found) or 'nothing'}")
    weights = {
        name: np.ascontiguousarray(array.reshape(array.shape[0], -1), np.float32)
        for name, array in found.items()
        if (name in tensors or not tensors)
        and array.ndim >= 2
        and array.size
        and (array.dtype.kind == "f" or array.dtype.name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"))
    }
    if not weights:
        shown = ", ".join(f"{k}: {v.dtype} {v.shape}" for k, v in found.items()) or "nothing"
        raise ArgumentError(f"{path} has no matrix of real numbers; it has {shown}")
    return weights


def _safetensors(file: Path) -> dict[str, NDArray[Any]]:
    try:
        import safetensors
    except ImportError as error:
        raise ArgumentError(f"{file} needs the package safetensors: pip install 'tilework[safetensors]'") from error
    try:
        listed = safetensors.deserialize(file.read_bytes())
    except safetensors.SafetensorError as error:
        raise FileFormatError(f"{file} is no readable .safetensors file: {error}") from error
    return {
        name: np.frombuffer(found["data"], dtypes.get(_STORED[found["dtype"]]).numpy).reshape(found["shape"])
        for name, found in listed
        if found["dtype"] in _STORED
    }


def report(scheme: str, weights: str, tensors: Sequence[str], activations: str | None) -> dict[str, Any]:
    """Figures of one scheme on each matrix of a file, ready for JSON."""
    chosen = find(scheme)
    x = None if activations is None else next(iter(load(activations).values()))
    rows = []
    for name, w in track(list(load(weights, tensors).items()), "quantizing", lambda item: item[0]):
        fits = x is not None and x.shape[1] == w.shape[1]
        rows.append({"tensor": name, **chosen.report(w, x if fits else None).as_dict()})
    return {"scheme": chosen.name, "explained": chosen.explain(), "rows": rows}


def check(scheme: str, weights: str | None, tensors: Sequence[str], levels: Sequence[str] | None) -> dict[str, Any]:
    """The proof of one scheme: on planted weights, and on each matrix of a file."""
    chosen = find(scheme)
    data: Mapping[str, Any] = {"planted": None, **({} if weights is None else load(weights, tensors))}
    rows = []
    for name, w in track(list(data.items()), "checking", lambda item: item[0]):
        found = chosen.check(w, levels=levels)
        rows.append({"tensor": name, "text": str(found), **found.as_dict()})
    return {"scheme": chosen.name, "different": sum(row["different"] for row in rows), "rows": rows}


def compare(schemes: Sequence[str], weights: str, tensors: Sequence[str]) -> dict[str, Any]:
    """One row for each scheme, over all matrices of a file: errors add up, KL and shares are means by weight."""
    data = load(weights, tensors)
    rows = []
    layers: dict[str, dict[str, float | None]] = {}
    for name in track(list(schemes), "comparing", str):
        chosen = find(name)
        found = [chosen.report(w, timings=False) for w in data.values()]
        layers[chosen.name] = {name: _finite(r.sqnr_db) for name, r in zip(data, found, strict=True)}
        sizes = np.array([w.size for w in data.values()], np.float64)
        signal = np.array([float(np.vdot(w, w)) for w in data.values()])
        noise = signal / 10 ** (np.array([r.sqnr_db for r in found]) / 10)
        share = sizes / sizes.sum()
        clipped = [r.clipped for r in found]
        rows.append(
            {
                "scheme": chosen.name,
                "bits_per_weight": float(share @ [r.bits_per_weight for r in found]),
                "sqnr_db": _finite(10 * np.log10(signal.sum() / noise.sum()) if noise.sum() else np.inf),
                "output_sqnr_db": _finite(float(share @ [r.output_sqnr_db for r in found])),
                "output_kl": float(share @ [r.output_kl for r in found]),
                "max_abs": max(r.max_abs for r in found),
                "clipped": None if None in clipped else float(share @ clipped),
                "path": found[0].path.partition(":")[0],
            }
        )
    return {"weights": weights, "tensors": list(data), "rows": rows, "layers": layers}


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def show_report(result: Mapping[str, Any]) -> None:
    """Print what `report` found."""
    print(result["explained"])
    for row in result["rows"]:
        clipped = "-" if row["clipped"] is None else f"{row['clipped']:.2%}"
        print(
            f"\n{row['tensor']}  {row['shape'][0]} x {row['shape'][1]}\n"
            f"  weights   SQNR {row['sqnr_db']:.2f} dB, largest error {row['max_abs']:.4g}, cosine {row['cosine']:.6f}, "
            f"clipped {clipped}\n"
            f"  outputs   SQNR {row['output_sqnr_db']:.2f} dB, KL {row['output_kl']:.4g} nats\n"
            f"  memory    {row['bits_per_weight']:.3f} bits a weight, {row['nbytes']} bytes"
        )
        print("  times     " + ", ".join(f"{name} {ms:.3f} ms" for name, ms in row["times_ms"].items()))


def show_comparison(result: Mapping[str, Any]) -> None:
    """Print what `compare` found, as a table."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"{result['weights']}: {', '.join(result['tensors'][:4])}", title_justify="left")
    for name in ("scheme", "bits", "SQNR dB", "outputs dB", "outputs KL", "largest error", "clipped", "products"):
        table.add_column(name, justify="left" if name in ("scheme", "products") else "right")
    for row in result["rows"]:
        decibels = ["-" if row[k] is None else f"{row[k]:.2f}" for k in ("sqnr_db", "output_sqnr_db")]
        clipped = "-" if row["clipped"] is None else f"{row['clipped']:.2%}"
        figures = [
            f"{row['bits_per_weight']:.3f}",
            *decibels,
            f"{row['output_kl']:.3g}",
            f"{row['max_abs']:.3g}",
            clipped,
        ]
        table.add_row(row["scheme"], *figures, row["path"])
    Console(highlight=False, width=110).print(table)
