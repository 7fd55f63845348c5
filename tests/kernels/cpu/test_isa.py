"""Which instruction set levels there are, and that nothing beyond the one asked for is emitted."""

import os
import re
import subprocess
import sys
import time

import pytest

from tilework.kernels import forge
from tilework.kernels.cpu import isa
from tilework.kernels.cpu.gemm import plan as gemm_plan
from tilework.primitives.errors import ArgumentError

X86 = isa.target()[0].startswith("x86_64")
WIDE = re.compile(r"%zmm|%[xy]mm(1[6-9]|2\d|3[01])\b|%k[0-7]\b|vpdp")


@pytest.mark.skipif(not X86, reason="names of x86 processors")
@pytest.mark.parametrize(
    ("cpu", "best"),
    [
        ("x86-64", "generic"),
        ("haswell", "avx2"),
        ("skylake-avx512", "avx512"),
        ("cascadelake", "avx512_vnni"),
        ("znver5", "avx512_vnni"),
        ("sierraforest", "avx_vnni"),
    ],
)
def test_a_named_processor_has_its_own_features(cpu, best):
    assert isa.detect(isa.target()[0], cpu, "")[-1] == best


@pytest.mark.skipif(not X86, reason="x86 features")
def test_a_missing_feature_takes_the_level_away():
    assert isa.detect(isa.target()[0], "znver4", "-avx512vnni")[-1] == "avx512"
    assert isa.detect(isa.target()[0], "znver4", "-avx512vl") == ("generic", "avx2")


def test_aarch64_levels_come_from_the_feature_list():
    assert isa.detect("aarch64-linux-gnu", "generic", "+dotprod") == ("generic", "neon", "dotprod")
    assert isa.detect("aarch64-linux-gnu", "generic", "+dotprod,+i8mm")[-1] == "i8mm"


def test_an_unavailable_level_is_refused_with_those_that_exist(monkeypatch):
    with pytest.raises(ArgumentError, match=r"' is not available on .*: available are generic"):
        isa.select("i8mm" if X86 else "avx2")
    monkeypatch.setenv("TILEWORK_ISA", "sse9")
    with pytest.raises(ArgumentError, match="'sse9' is unknown: available are generic"):
        isa.select()


def test_the_environment_forces_a_level(monkeypatch):
    monkeypatch.setenv("TILEWORK_ISA", "generic")
    assert isa.select().name == "generic"


def assembly(level, store="s32"):
    family = gemm_plan.plan(64, 64, "u8", "s8", store, level=isa.select(level)).family
    fresh = f"{family.source()}# compiled, not loaded: {os.getpid()} {time.time_ns()}\n"
    entry = forge.entry(forge.Native(fresh, raw=True), 0, ())
    return entry.keep.get_asm_str()


@pytest.mark.skipif("avx2" not in [level.name for level in isa.available()], reason="needs AVX2")
def test_a_forced_level_emits_nothing_beyond_it():
    text = assembly("avx2")
    tiles = text[text.index("tile_vpmaddwd") :]
    bodies = re.findall(r"^tile_\S+:.*?\.size", tiles, re.M | re.S)
    assert len(bodies) == 6
    for body in bodies:
        assert "vpmaddwd" in body
        assert not WIDE.search(body)


@pytest.mark.skipif(not X86, reason="names an x86 processor")
@pytest.mark.parametrize(
    "named",
    [{"NUMBA_CPU_NAME": "haswell"}, {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": "+avx2,+fma,+bmi,+bmi2"}],
    ids=["name", "features"],
)
def test_a_named_lesser_machine_gets_no_instruction_beyond_it(named, tmp_path):
    code = (
        "from tilework.kernels.cpu import isa\n"
        "from tilework.kernels.cpu.gemm import plan as gemm_plan\n"
        "assert isa.select().name == 'avx2', isa.available()\n"
        "family = gemm_plan.plan(64, 40, 'u8', 's8', 'u8').family\n"
        "made = gemm_plan.addresses(family)[1].entry\n"
        "print(made.keep.get_asm_str())\n"
        "print(gemm_plan.driver().keep.get_asm_str())\n"
    )
    env = {**os.environ, **named, "TILEWORK_CACHE_DIR": str(tmp_path)}
    env.pop("TILEWORK_ISA", None)
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "vpmaddwd" in done.stdout
    assert not WIDE.search(done.stdout)
