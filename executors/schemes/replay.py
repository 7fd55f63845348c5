"""Runs a scheme's generated steps in another process, which compiles for a lesser processor.

`python -m tilework.executors.schemes.replay FOLDER` reads what `run` left there: text, arrays and numbers, no pickles.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...kernels.factory import WithParams
from ...kernels.schemes.packing import pack, unpack
from ...kernels.schemes.steps import SchemeDecode, SchemeEncode, SchemeFit
from ...primitives.errors import ArgumentError, KernelFailed

if TYPE_CHECKING:
    from .scheme import Scheme

Array = np.ndarray[Any, Any]

# Instruction set levels as processors that LLVM knows. Dot products, in which other levels differ, are in no scheme.
PROCESSORS = {"generic": "x86-64", "avx2": "x86-64-v3", "avx512": "x86-64-v4"}


def levels() -> tuple[str, ...]:
    """The levels that this machine can run beside its best."""
    from ...kernels.cpu import isa

    present = [level.name for level in isa.available()]
    return tuple(name for name in present[:-1] if name in PROCESSORS) if isa.host_arch() == "x86_64" else ()


def run(scheme: Scheme, x: Array, python: Mapping[str, Array], level: str) -> dict[str, Array]:
    """Parameters, codes and weights as a process made for `level` has them, each step given plain Python's inputs."""
    if level not in PROCESSORS:
        raise ArgumentError(f"instruction set {level!r} has no process of its own; {', '.join(PROCESSORS)} have")
    from ..tiles import choose, facts_of

    columns = x.shape[1]
    used = [python.get(f"decoded {p.name}", python[f"parameter {p.name}"]) for p in scheme.stored]
    codes = pack(python["code"], scheme.bits)
    fitted = [np.zeros_like(python[f"parameter {p.name}"]) for p in scheme.stored]
    steps: list[tuple[Any, list[Array], int]] = []
    if fitted:
        steps.append((SchemeFit(scheme), [x, *fitted], len(fitted)))
    if scheme.encodes:
        steps.append((SchemeEncode(scheme), [x, *used, np.zeros_like(codes)], 1))
    steps.append((SchemeDecode(scheme, columns), [codes, *used, np.zeros_like(x)], 1))
    with tempfile.TemporaryDirectory() as folder:
        described = []
        arrays: dict[str, Array] = {}
        for n, (kernel, operands, written) in enumerate(steps):
            _, built = choose(kernel, "cpu", facts_of(kernel, tuple(operands)))
            rows = x.shape[0] if kernel.index_space().axes[0].name == "n" else operands[1].shape[0]
            params = built.params(*operands) if isinstance(built, WithParams) else ()
            native = built.tile if isinstance(built, WithParams) else built
            described.append(
                {
                    "source": native.source,
                    "params": list(map(int, params)),
                    "rows": rows,
                    "types": [o.dtype.name for o in operands],
                    "written": written,
                }
            )
            arrays |= {
                f"{n}_{i}": o if o.dtype.kind in "iuf" and o.dtype.itemsize > 1 else o.view(np.uint8)
                for i, o in enumerate(operands)
                if o.dtype.name != "bfloat16"
            }
            arrays |= {f"{n}_{i}": o.view(np.uint16) for i, o in enumerate(operands) if o.dtype.name == "bfloat16"}
        Path(folder, "steps.json").write_text(json.dumps(described), encoding="utf-8")
        np.savez(Path(folder, "arrays.npz"), allow_pickle=False, **arrays)
        environment = {**os.environ, "NUMBA_CPU_NAME": PROCESSORS[level]}
        environment.pop("NUMBA_CPU_FEATURES", None)
        environment.pop("TILEWORK_ISA", None)
        root = str(Path(__file__).resolve().parents[3])
        environment["PYTHONPATH"] = os.pathsep.join(
            filter(None, [*_package_path(root), os.environ.get("PYTHONPATH", "")])
        )
        done = subprocess.run(
            [sys.executable, "-m", f"{__package__}.replay", folder], env=environment, capture_output=True, text=True
        )
        if done.returncode:
            raise KernelFailed(f"the process for {level} failed:\n{done.stderr[-2000:]}")
        with np.load(Path(folder, "results.npz"), allow_pickle=False) as results:
            made = {name: results[name] for name in results.files}
    found: dict[str, Array] = {}
    offset = len(steps) - 2
    if not scheme.encodes:
        return {"code": python["code"], "weight": made[f"{offset + 1}_0"]}
    for i, p in enumerate(scheme.stored):
        found[f"parameter {p.name}"] = made[f"0_{i}"].view(p.numpy)
        if p.name in scheme.nested:
            found[f"decoded {p.name}"] = python[f"decoded {p.name}"]
    found["code"] = unpack(made[f"{offset}_0"], scheme.bits, scheme.codes_in_row(columns), scheme.signed)
    found["weight"] = made[f"{offset + 1}_0"]
    return found


def _package_path(root: str) -> list[str]:
    """The folder that `tilework` was imported from, where Python finds it only through sys.path."""
    return [root] if root in sys.path else []


def main(folder: str) -> None:
    """Run the steps that lie in a folder, and leave what they wrote there."""
    from ...kernels import forge
    from ...primitives import dtypes
    from ..tiles import run_whole

    described = json.loads(Path(folder, "steps.json").read_text(encoding="utf-8"))
    results: dict[str, Array] = {}
    with np.load(Path(folder, "arrays.npz"), allow_pickle=False) as arrays:
        for n, step in enumerate(described):
            operands = tuple(
                np.ascontiguousarray(arrays[f"{n}_{i}"]).view(_numpy(dtypes, name))
                for i, name in enumerate(step["types"])
            )
            tile = WithParams(forge.Native(step["source"]), lambda *_, given=tuple(step["params"]): given)
            status = run_whole(tile, operands, [step["rows"]], ())
            if status:
                raise KernelFailed(f"step {n} returned status {status}")
            for i, array in enumerate(operands[len(operands) - step["written"] :]):
                plain = array.dtype.kind in "iuf" and array.dtype.itemsize > 1
                results[f"{n}_{i}"] = array if plain else array.view(f"u{array.dtype.itemsize}")
    np.savez(Path(folder, "results.npz"), allow_pickle=False, **results)


def _numpy(dtypes: Any, name: str) -> Any:
    return dtypes.get(name).numpy if name not in ("uint8", "int8") else np.dtype(name)


if __name__ == "__main__":
    main(sys.argv[1])
