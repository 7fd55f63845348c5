"""Instruction set levels of the CPU backend: what each needs, which ones Numba's target has, and which one to use.

Numba compiles for the processor that NUMBA_CPU_NAME and NUMBA_CPU_FEATURES name, or for the host. That target, and not
the host, decides: LLVM itself is asked what it would emit for it, so no instruction beyond the named machine appears.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import llvmlite.binding as llvm
from numba.core import config

from ...primitives.errors import ArgumentError

if config.CPU_NAME is not None and config.CPU_FEATURES is None:
    # Numba would add the host's features to a processor that is only named; here a name stands for its own features.
    config.CPU_FEATURES = ""


@dataclass(frozen=True)
class Level:
    """One instruction set level.

    arch          "x86_64", "aarch64", or "" for any
    features      LLVM feature names that it needs
    vector_bytes  width of the vectors that the micro-kernels use
    registers     how many vector registers there are
    dot           how int8 products are summed (kernels/cpu/dot.py)
    masked        whether a masked store is as cheap as a plain one
    """

    name: str
    arch: str
    features: tuple[str, ...]
    vector_bytes: int
    registers: int
    dot: str
    masked: bool = False

    @property
    def lanes(self) -> int:
        """32-bit elements in a vector."""
        return self.vector_bytes // 4


_AVX2 = ("avx2", "fma")
_AVX512 = ("avx512f", "avx512bw", "avx512vl", "avx512dq")
LEVELS: dict[str, Level] = {
    level.name: level
    for level in (  # from the least to the most preferred
        Level("generic", "", (), 16, 16, "plain"),
        Level("avx2", "x86_64", _AVX2, 32, 16, "vpmaddwd"),
        Level("avx512", "x86_64", _AVX512, 64, 32, "vpmaddwd", masked=True),
        Level("avx_vnni", "x86_64", (*_AVX2, "avxvnni"), 32, 16, "vpdpbusd"),
        Level("avx512_vnni", "x86_64", (*_AVX512, "avx512vnni"), 64, 32, "vpdpbusd", masked=True),
        Level("neon", "aarch64", ("neon",), 16, 32, "plain"),
        Level("dotprod", "aarch64", ("neon", "dotprod"), 16, 32, "sdot"),
        Level("i8mm", "aarch64", ("neon", "dotprod", "i8mm"), 16, 32, "usdot"),
    )
}

# Code that LLVM turns into one telling instruction wherever the target has the feature.
_PROBE = """
define void @avx2(ptr %p) {{
  %x = load <8 x i32>, ptr %p, align 4
  %y = add <8 x i32> %x, %x
  store <8 x i32> %y, ptr %p, align 4
  ret void
}}
define void @avx512(ptr %p) {{
  %x = load <64 x i8>, ptr %p, align 4
  %y = add <64 x i8> %x, %x
  store <64 x i8> %y, ptr %p, align 4
  ret void
}}
define void @fma(ptr %p) {{
  %x = load <4 x float>, ptr %p, align 4
  %y = call <4 x float> @llvm.fma.v4f32(<4 x float> %x, <4 x float> %x, <4 x float> %x)
  store <4 x float> %y, ptr %p, align 4
  ret void
}}
declare <4 x float> @llvm.fma.v4f32(<4 x float>, <4 x float>, <4 x float>)
define void @bf16(ptr %p) {{
  %x = load <16 x float>, ptr %p, align 4
  %y = fptrunc <16 x float> %x to <16 x bfloat>
  store <16 x bfloat> %y, ptr %p, align 4
  ret void
}}
define void @f16(ptr %p) {{
  %x = load <8 x float>, ptr %p, align 4
  %y = fptrunc <8 x float> %x to <8 x half>
  store <8 x half> %y, ptr %p, align 4
  ret void
}}
define i32 @vnni(ptr %p, ptr %q) {{
  %x = load <{n} x i8>, ptr %p, align 4
  %y = load <{n} x i8>, ptr %q, align 4
  %u = zext <{n} x i8> %x to <{n} x i32>
  %s = sext <{n} x i8> %y to <{n} x i32>
  %m = mul <{n} x i32> %u, %s
  %r = call i32 @llvm.vector.reduce.add.v{n}i32(<{n} x i32> %m)
  ret i32 %r
}}
declare i32 @llvm.vector.reduce.add.v{n}i32(<{n} x i32>)
"""


def target() -> tuple[str, str, str]:
    """(triple, processor, features) that Numba compiles for."""
    from numba.core.registry import cpu_target

    return _names(cpu_target.target_context.codegen())


@lru_cache(maxsize=4)
def _names(codegen: Any) -> tuple[str, str, str]:
    """Asking costs half a millisecond, and a plan asks often."""
    triple, cpu, features = codegen.magic_tuple()
    return triple, cpu, features or ""


def host_arch() -> str:
    """The first part of the target's triple, "arm64" being "aarch64"."""
    triple = target()[0]
    return "aarch64" if triple.startswith(("aarch64", "arm64")) else triple.partition("-")[0]


@lru_cache(maxsize=8)
def detect(triple: str, cpu: str, features: str) -> tuple[str, ...]:
    """Names of the levels that code for this target may use, from the least to the most preferred."""
    listed = {f[1:]: f[0] == "+" for f in features.split(",") if f}
    arch = "aarch64" if triple.startswith(("aarch64", "arm64")) else triple.partition("-")[0]
    found = _probe_x86(triple, cpu, features) if arch == "x86_64" else set()
    if arch == "aarch64":
        found = {"neon"} | {f for f, on in listed.items() if on}
    present = []
    for level in LEVELS.values():
        if level.arch not in ("", arch) or any(listed.get(f) is False for f in level.features):
            continue
        if all(f in found for f in level.features):
            present.append(level.name)
    return tuple(present)


def _probe_x86(triple: str, cpu: str, features: str) -> set[str]:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    found: set[str] = set()
    machine = llvm.Target.from_triple(triple).create_target_machine(cpu=cpu, features=features, opt=2)
    text = machine.emit_assembly(llvm.parse_assembly(_PROBE.format(n=64)))
    if "ymm" in text:
        found.add("avx2")
    if "vfmadd" in text:
        found.add("fma")
    if re.search(r"vcvtps2ph\b.*%ymm", text):
        found.add("f16c")
    if "zmm" in text:
        found.update(_AVX512)
        if re.search(r"vcvtneps2bf16\b.*, %ymm", text):
            found.add("avx512bf16")
    if "vpdpbusd" in text:
        # the short encoding is AVX-VNNI's; without AVX-512 it is the only one there can be
        if "zmm" in text:
            found.add("avx512vnni")
        if "zmm" not in text or "{vex}" in text or "+avxvnni," in features + ",":
            found.add("avxvnni")
    return found


def available() -> tuple[Level, ...]:
    """The levels that this process may use, the preferred one last."""
    return tuple(LEVELS[name] for name in detect(*target()))


def select(name: str | None = None) -> Level:
    """The level to compile for: `name`, else what TILEWORK_ISA names, else the best available.

    Raises ArgumentError if the level is unknown or the target lacks it.
    """
    present = available()
    asked = name or os.environ.get("TILEWORK_ISA") or present[-1].name
    for level in present:
        if level.name == asked:
            return level
    known = "unknown" if asked not in LEVELS else f"not available on {target()[1]}"
    raise ArgumentError(
        f"instruction set {asked!r} is {known}: available are {', '.join(level.name for level in present)}"
    )


def has(feature: str) -> bool:
    """Whether the target's feature list names this LLVM feature."""
    return f"+{feature}" in target()[2].split(",")


def multiplies_bf16(level: Level) -> bool:
    """Whether code for this level may use vdpbf16ps: the target has it, and the level is not held below its best."""
    return level.name == available()[-1].name and _has_beside("avx512bf16", *target())


def converts_f16(level: Level) -> bool:
    """Whether code for this level may use vcvtps2ph, which all processors with AVX2 have."""
    return level.name != "generic" and _has_beside("f16c", *target())


@lru_cache(maxsize=8)
def _has_beside(feature: str, triple: str, cpu: str, features: str) -> bool:
    """Whether the target has a feature that no level asks for."""
    if f"-{feature}" in features.split(",") or not triple.startswith("x86_64"):
        return False
    return feature in _probe_x86(triple, cpu, features)


def restriction(level: Level) -> tuple[str, ...]:
    """Function attributes that hold LLVM to a level below the best one; none are needed for the best."""
    if level.name == available()[-1].name:
        return ()
    base = {"x86_64": "x86-64", "aarch64": "generic"}.get(target()[0].partition("-")[0])
    if base is None:
        return ()
    features = ",".join(f"+{f}" for f in level.features)
    return (f'"target-cpu"="{base}"', f'"tune-cpu"="{target()[1]}"', f'"target-features"="{features}"')
