"""Does the self-test find faults? One mistake at a time, in kernels, packer and planner, and whether it is seen.

    python -m tilework.bench.prove.planted                all of them, about 15 s each
    python -m tilework.bench.prove.planted --only pack    those whose file holds this text

Each mistake is put into a copy of the package, and the self-test runs there on the steps that may show it, in a
process and with a compile cache of its own, until something differs or its time is over. What is missed is named.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2]
ROOMS = ("primitives", "kernels", "executors", "frontends", "bench")


@dataclass(frozen=True)
class Fault:
    """A text of a file, what takes its place, and where it may show.

    steps    part of "step, type, granularity"
    levels   only on a lower instruction set level
    """

    file: str
    old: str
    new: str
    steps: str
    levels: bool = False


FAULTS = (
    # The packers of B: constants of convolutions, and of products
    Fault(
        "kernels/cpu/packing.py", "total = total - 128 * b.shape[0]", "total = total - 127 * b.shape[0]", "conv, u8 u8"
    ),
    Fault(
        "kernels/cpu/packing.py",
        "for p in range(whole * group, layout.K):",
        "for p in range(whole * group, layout.K - 1):",
        "gemm, u8 s8",
    ),
    Fault(
        "kernels/cpu/packing.py",
        "piece = b[:, first : first + width]",
        "piece = b[:, first : first + min(width, 48)]",
        "gemm, u8 s8",
    ),
    Fault("kernels/cpu/packing.py", 'return -128 if dtype == "u8" and', 'return 0 if dtype == "u8" and', "conv, u8 u8"),
    Fault(
        "kernels/cpu/packing.py",
        "(start - za * sums.astype(np.int64))",
        "(start + za * sums.astype(np.int64))",
        "conv, u8 s8, of the tensor",
    ),
    Fault("kernels/cpu/packing.py", "255 * int(low) < -32768", "255 * int(low) < -65536", "gemm, u8 s8, no zero", True),
    Fault("kernels/cpu/pack_b.py", "value -= flip", "value -= flip + 1", "gemm, u8 u8, of the tensor"),
    Fault(
        "kernels/cpu/pack_b.py",
        "if fast < width or depth % group or depth == 0:",
        "if fast < width or depth == 0:",
        "gemm, u8 s8",
    ),
    Fault(
        "kernels/cpu/pack_b.py",
        "put_s32(columns + 2 * plane, n, total)",
        "put_s32(columns + 2 * plane, n, total + 1)",
        "gemm, u8 s8, of rows",
    ),
    Fault("kernels/cpu/pack_b.py", "zb = block[34]", "zb = 0", "gemm, u8 u8, of the tensor"),
    # What follows a product
    Fault(
        "kernels/cpu/finish.py",
        "b.shl(one, b.sub(t, one))",
        "b.shl(one, b.sub(b.sub(t, one), one))",
        "gemm, u8 s8",
    ),
    Fault("kernels/cpu/finish.py", "vectors = (width + lanes - 1) // lanes", "vectors = width // lanes", "gemm, u8 s8"),
    Fault(
        "kernels/cpu/finish.py",
        "for m in range(ranges[2], ranges[3]):",
        "for m in range(ranges[2], max(ranges[2] + 1, ranges[3] - 1)):",
        "gemm",
    ),
    # Rounding, saturation, special values
    Fault(
        "kernels/cpu/scalar.py",
        "def half_even(r, seed, index):\n    return rint32(r)",
        "def half_even(r, seed, index):\n    return floor32(r + _HALF)",
        "quantize to",
    ),
    Fault("kernels/cpu/scalar.py", "if rest < np.uint32(0x400):", "if rest < np.uint32(0x200):", "quantize to"),
    Fault(
        "kernels/cpu/quantize.py",
        'wide = "np.int64" if kernel.source == "s32" else "np.int32"',
        'wide = "np.int32" if kernel.source == "s32" else "np.int8"',
        "dequantize",
    ),
    Fault(
        "kernels/cpu/reduce/dynamic.py",
        "return usable(max(abs(lo), abs(hi)) / np.float32(high))",
        "return usable(abs(hi) / np.float32(high))",
        "dynamic",
    ),
    Fault(
        "kernels/cpu/reduce/dynamic.py",
        "return scale if _ZERO < scale < _INFINITY else _ONE",
        "return scale if _ZERO < scale else _ONE",
        "dynamic",
    ),
    Fault(
        "kernels/cpu/cast.py",
        "(largest, largest | sign) if inside else",
        "(largest, largest | sign) if saturate else",
        "cast to f16",
    ),
    Fault("kernels/cpu/cast.py", "bias = one >> fraction", "bias = (one >> fraction) + 1", "cast to f8e5m2"),
    # Loops over views
    Fault(
        "kernels/cpu/nest.py",
        'tests.append(f"{row}.strides[{n - 1}] == {row}.strides[{n}] * {row}.shape[{n}]")',
        'tests.append("True")',
        "abs",
    ),
    Fault(
        "kernels/cpu/nest.py",
        'tests = [f"{name}0 == 0", f"{name}1 == {self.out}.shape[{axis}]"]',
        'tests = [f"{name}0 == 0"]',
        "neg",
    ),
    Fault(
        "kernels/cpu/lookup.py",
        "end = b.and_(length, e.i64(-group))",
        "end = b.and_(b.add(length, e.i64(1)), e.i64(-group))",
        "lookup",
    ),
    Fault(
        "kernels/cpu/lookup.py",
        'b.icmp_signed("<", codes, e.constant(kind, 0)), high, low',
        'b.icmp_signed("<=", codes, e.constant(kind, 0)), high, low',
        "lookup",
    ),
    # Windows
    Fault(
        "kernels/cpu/conv/band.py",
        "z % block[w.UD] == 0 and z // block[w.UD] < depth",
        "z % block[w.UD] == 0 and z // block[w.UD] <= depth",
        "conv",
    ),
    Fault(
        "kernels/cpu/conv/band.py",
        "fill(pixel + have * channels * size, padding, (reach - before - have) * channels)",
        "fill(pixel + have * channels * size, 0, (reach - before - have) * channels)",
        "conv",
    ),
    Fault("kernels/cpu/conv/band.py", "y = first + r - block[w.PH]", "y = first + r - block[w.PW]", "conv"),
    Fault(
        "kernels/cpu/pool.py", "end = n + after if padding else n", "end = n + before if padding else n", "average_pool"
    ),
    Fault(
        "kernels/cpu/pool.py",
        "np.int32(taps * np.int64(x_zero[()]))",
        "np.int32(zc * yc * qc * np.int64(x_zero[()]))",
        "average_pool",
    ),
    Fault(
        "kernels/cpu/pool.py",
        "row[i] > out[i] or row[i] != row[i] else",
        "row[i] > out[i] else",
        "max_pool, f32",
    ),
    # Moving data
    Fault(
        "kernels/cpu/moving/gather.py",
        'f"{pad}    {place} += {extent}",',
        'f"{pad}    {place} += {extent} - 1",',
        "gather",
    ),
    Fault(
        "kernels/cpu/moving/order.py",
        "if v > values[mid] or (v != v and values[mid] == values[mid]):",
        "if v >= values[mid] or (v != v and values[mid] == values[mid]):",
        "topk",
    ),
    Fault("kernels/cpu/moving/order.py", "'>=' if kernel.upper else '<='", "'>' if kernel.upper else '<='", "trilu"),
    Fault("kernels/cpu/moving/order.py", "or place + {kernel.depth} ==", "or place + {kernel.depth} + 1 ==", "one_hot"),
    Fault(
        "kernels/cpu/moving/resample.py",
        "result += y.dtype.type(w) * x[min(max(z, 0), n - 1)]",
        "result += y.dtype.type(w) * x[min(max(z, 0), n - 2)]",
        "resize",
    ),
    Fault(
        "kernels/moving/copy.py",
        "if all(step == 0 for step in from_):",
        "if any(step == 0 for step in from_):",
        "expand",
    ),
    # The planner
    Fault(
        "executors/cutting.py",
        "bounds = [min(units * i // c * axis.multiple, n) for i in range(c)] + [n]",
        "bounds = [min(units * i // c * axis.multiple, n) for i in range(c)] + [n - n % axis.multiple]",
        "gemm",
    ),
    Fault(
        "executors/cutting.py",
        "bounds = [min(i * tile[axis.name], n) for i in range(c + 1)]",
        "bounds = [min(i * tile[axis.name], n) for i in range(c)]",
        "softmax",
    ),
    Fault("executors/bound.py", "np.copyto(results[name], self._array(value, memory, external))", "pass", "reshape"),
    Fault(
        "executors/binding.py",
        "for value in [*step.inputs.values(), *step.outputs.values()]:\n                last[value.name] = n",
        "for value in step.outputs.values():\n                last[value.name] = n",
        "network",
    ),
)


def copied(target: Path) -> Path:
    """The package, without its tests, in a folder of its own; the folder to put on the path."""
    place = target / "tilework"
    place.mkdir(parents=True)
    for file in PACKAGE.glob("*.py"):
        shutil.copy(file, place)
    for room in ROOMS:
        shutil.copytree(PACKAGE / room, place / room, ignore=shutil.ignore_patterns("__pycache__"))
    return target


def misplaced() -> list[str]:
    """Faults whose text is not in its file exactly once, and so cannot be put there."""
    found = []
    for fault in FAULTS:
        times = (PACKAGE / fault.file).read_text(encoding="utf-8").count(fault.old)
        if times != 1:
            found.append(f"{fault.file}: {fault.old!r} is there {times} times")
    return found


def seen(fault: Fault, folder: Path, seconds: float, count: int) -> str | None:
    """What the self-test says of the package in `folder` with this fault; None where it says nothing."""
    file = folder / "tilework" / fault.file
    right = file.read_text(encoding="utf-8")
    file.write_text(right.replace(fault.old, fault.new), encoding="utf-8")
    report = folder / "found.json"
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "tilework.bench.prove", "--steps", fault.steps, "--stop", "--json", str(report)]
    command += ["--count", str(count), *(["--other-level", "1"] if fault.levels else [])]
    environment = {**os.environ, "PYTHONPATH": str(folder), "TILEWORK_CACHE_DIR": str(folder / "cache")}
    try:
        run = subprocess.run(
            [*command, "--minutes", str(seconds / 60), "--seed", "5"],
            env=environment, cwd=folder, capture_output=True, text=True, timeout=20 * seconds + 120, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return "it hangs"
    finally:
        file.write_text(right, encoding="utf-8")
    if not report.exists():
        last = run.stderr.strip().splitlines()
        return f"the process ends with {run.returncode}: {last[-1] if last else ''}"
    failures = json.loads(report.read_text(encoding="utf-8"))["failures"]
    return failures[0]["text"].strip().splitlines()[-1] if failures else None


def main(given: list[str] | None = None) -> int:
    """Plant all faults, print which are found; 1 where one is missed."""
    parser = argparse.ArgumentParser(prog="python -m tilework.bench.prove.planted", description=__doc__)
    parser.add_argument("--only", default="", help="faults whose file holds this text")
    parser.add_argument("--first", type=int, default=1, help="begin with this one")
    parser.add_argument("--count", type=int, default=20_000, help="configurations that may be tried for each")
    parser.add_argument("--seconds", type=float, default=300, help="how long the self-test may look for each")
    options = parser.parse_args(given)
    wrong = misplaced()
    if wrong:
        parser.error("; ".join(wrong))
    chosen = [f for f in FAULTS if options.only in f.file][options.first - 1 :]
    missed = []
    with tempfile.TemporaryDirectory() as folder:
        place = copied(Path(folder) / "copy")
        for n, fault in enumerate(chosen, 1):
            start = time.monotonic()
            text = seen(fault, place, options.seconds, options.count)
            took = time.monotonic() - start
            print(
                f"{n}/{len(chosen)} {fault.file}: {fault.old.splitlines()[0][:60]!r}: {text or 'MISSED'} ({took:.0f} s)",
                flush=True,
            )
            if text is None:
                missed.append(fault)
    print(f"{len(chosen) - len(missed)} of {len(chosen)} planted faults found")
    for fault in missed:
        print(f"missed: {fault.file}: {fault.old!r} became {fault.new!r} (tried on {fault.steps})")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
