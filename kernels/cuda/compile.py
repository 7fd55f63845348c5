"""From a kernel's function to PTX, and from PTX to a device's own code, with no driver and no device.

    >>> built = build(kernel, ("f32*", "u8*", "s64"), cc=(9, 0))
    >>> built.registers, built.spills, built.count("mma.sync")

PTX comes from numba-cuda and NVVM, machine code from ptxas; both are in the extra `cuda-check`. What ptxas says about
registers and spilled bytes is kept, because a kernel that spills is slow and nothing else shows it here.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...primitives.errors import Unsupported
from . import seam
from .launch import Launch

CHECK = "pip install 'tilework[cuda-check]'"


@dataclass(frozen=True)
class Built:
    """A kernel for one architecture.

    entry      the kernel's name in the code
    registers  of a thread
    spills     bytes of registers stored to memory for want of them, and of the stack
    shared     bytes of shared memory of a block
    """

    entry: str
    ptx: str
    cubin: bytes
    registers: int
    spills: int
    shared: int

    def count(self, instruction: str) -> int:
        """How often the PTX has an instruction, by how it begins: "mma.sync" counts all shapes."""
        return len(re.findall(rf"(?:^|[\s;]){re.escape(instruction)}(?=[\s.;])", self.ptx))


def to_ptx(kernel: Callable[..., Any], parameters: tuple[str, ...], cc: tuple[int, int], threads: int = 0) -> str:
    """PTX text for an architecture, such as (9, 0). threads: of a block, where ptxas may count on it."""
    cuda = seam.compiler()
    with seam.without_driver(cc):
        bounds = {"launch_bounds": (threads,)} if threads else {}
        text, _ = cuda.compile(
            seam.lowered(kernel), _signature(parameters), cc=cc, device=False, abi="numba", output="ptx", **bounds
        )
    return text.decode() if isinstance(text, bytes) else text


def entry_of(ptx: str) -> str:
    """The name of the kernel in its PTX."""
    found = re.search(r"\.visible \.entry (\w+)\(", ptx)
    assert found is not None
    return found[1]


def build(kernel: Callable[..., Any], parameters: tuple[str, ...], cc: tuple[int, int], threads: int = 0) -> Built:
    """Compile and assemble. Raises Unsupported where a tool is missing, or ptxas refuses, with what it said."""
    ptx = to_ptx(kernel, parameters, cc, threads)
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
        source.write_text(ptx, encoding="utf-8")
        done = subprocess.run(
            [ptxas(), "-v", f"-arch=sm_{cc[0]}{cc[1]}", str(source), "-o", str(target)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise Unsupported(f"ptxas refuses {kernel.__name__!r} for sm_{cc[0]}{cc[1]}: {done.stderr.strip()[:2000]}")
        cubin = target.read_bytes()
    said = done.stderr
    stack = [int(n) for n in re.findall(r"(\d+) bytes (?:stack frame|spill stores|spill loads)", said)]
    return Built(
        entry_of(ptx),
        ptx,
        cubin,
        int((re.search(r"Used (\d+) registers", said) or [0, 0])[1]),
        sum(stack),
        int((re.search(r"(\d+) bytes smem", said) or [0, 0])[1]),
    )


def build_launch(launch: Launch, cc: tuple[int, int]) -> Built:
    return build(launch.kernel, launch.parameters, cc, launch.threads)


def ptxas() -> str:
    """The assembler: that of the wheel beside numba-cuda, or one on the path. Raises Unsupported without one."""
    packages = Path(sysconfig.get_paths()["platlib"]) / "nvidia"
    for found in sorted(packages.glob("*/bin/ptxas")):
        return str(found)
    on_path = shutil.which("ptxas")
    if on_path is None:
        raise Unsupported(f"ptxas is not installed; {CHECK} brings it")
    return on_path


def missing() -> str | None:
    """What keeps kernels from being compiled and assembled here, or None."""
    try:
        seam.compiler()
        ptxas()
    except Unsupported as error:
        return str(error)
    return None


def _signature(parameters: tuple[str, ...]) -> Any:
    from numba.cuda import types

    scalars = {
        "u8": types.uint8,
        "s8": types.int8,
        "u16": types.uint16,
        "s16": types.int16,
        "u32": types.uint32,
        "s32": types.int32,
        "u64": types.uint64,
        "s64": types.int64,
        "f32": types.float32,
    }
    return types.void(*(types.CPointer(scalars[p[:-1]]) if p.endswith("*") else scalars[p] for p in parameters))
