"""What the generated tiles look like: in registers, vectorised to the last instruction, and for AArch64 too."""

import re

import llvmlite.binding as llvm
import pytest
from llvmlite import ir

from tilework.kernels.cpu import isa
from tilework.kernels.cpu.epilogues.real_epilogue import After
from tilework.kernels.cpu.gemm import microkernel
from tilework.kernels.cpu.gemm.microkernel import Tile

SCALAR_FLOAT = re.compile(r"\bv?(cvt\w+s[sd]|cvts[is]\w+|mulss|addss|minss|maxss|roundss|mulsd|addsd|divss)\b")


@pytest.fixture(scope="module")
def assemble():
    """Return `assemble(tile, triple, cpu, features)`: the assembly of one tile."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()

    def assemble(tile, triple=None, cpu=None, features=None):
        attributes = () if triple else isa.restriction(isa.LEVELS[tile.level])
        own = isa.target()
        triple, cpu, features = triple or own[0], cpu or own[1], own[2] if features is None else features
        module = ir.Module("tile")
        module.triple = triple
        microkernel.emit(module, tile, attributes).linkage = "external"
        machine = llvm.Target.from_triple(triple).create_target_machine(cpu=cpu, features=features, opt=3)
        parsed = llvm.parse_assembly(str(module))
        parsed.verify()
        builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=3))
        builder.getModulePassManager().run(parsed, builder)
        return machine.emit_assembly(parsed)

    return assemble


def inner_loop(text, op):
    """The basic block with most multiplications."""
    return max(re.split(r"\n\.L\w+:", text), key=lambda block: len(re.findall(rf"\b({op})\b", block)))


NATIVE = [level.name for level in isa.available() if level.arch == "x86_64"]
SIZES = {"avx512_vnni": (6, 4), "avx512": (6, 4), "avx2": (6, 2), "avx_vnni": (6, 2)}


@pytest.mark.parametrize("name", NATIVE)
def test_the_inner_loop_keeps_its_accumulators_in_registers(assemble, name):
    rows, vectors = SIZES[name]
    text = assemble(Tile(name, isa.LEVELS[name].dot, rows, vectors))
    loop = inner_loop(text, isa.LEVELS[name].dot)
    count = len(re.findall(rf"\b{isa.LEVELS[name].dot}\b", loop))
    assert count >= rows * vectors
    assert not re.search(r"mm\d+, \S*\((%rsp|%rbp)\)|\((%rsp|%rbp)\), %[xyz]mm", loop), loop


@pytest.mark.parametrize("name", NATIVE)
@pytest.mark.parametrize("store", ["u8", "s8", "f32"])
def test_the_epilogue_has_no_scalar_float_instruction(assemble, name, store):
    rows, vectors = SIZES[name]
    text = assemble(Tile(name, isa.LEVELS[name].dot, rows, vectors, store))
    assert not SCALAR_FLOAT.search(text)
    assert len(re.findall(r"\bvcvtdq2ps\b", text)) == rows * vectors
    if store != "f32":
        assert len(re.findall(r"\bvcvtps2dq\b", text)) == rows * vectors


@pytest.mark.parametrize("name", NATIVE)
def test_float_tiles_stay_in_registers_and_are_one_chain_each(assemble, name):
    rows, vectors = SIZES[name]
    text = assemble(Tile(name, "fma", rows, vectors, "f32", after=After("f32", True, ("relu",))))
    loop = inner_loop(text, r"vfmadd\d+ps")
    assert len(re.findall(r"\bvfmadd\d+ps\b", loop)) % (rows * vectors) == 0
    assert not re.search(r"mm\d+, \S*\((%rsp|%rbp)\)|\((%rsp|%rbp)\), %[xyz]mm", loop), loop
    assert not SCALAR_FLOAT.search(text)
    assert "vaddps" not in assemble(Tile(name, "fma", 1, 1, "f32")), "partial sums would change the order"


@pytest.mark.skipif(not isa.multiplies_bf16(isa.select()), reason="no bf16 instruction")
def test_bf16_tiles_stay_in_registers(assemble):
    level = isa.select()
    loop = inner_loop(assemble(Tile(level.name, "vdpbf16ps", *SIZES[level.name], "f32")), "vdpbf16ps")
    assert len(re.findall(r"\bvdpbf16ps\b", loop)) == SIZES[level.name][0] * SIZES[level.name][1]
    assert not re.search(r"mm\d+, \S*\((%rsp|%rbp)\)|\((%rsp|%rbp)\), %[xyz]mm", loop), loop


@pytest.mark.parametrize("store", ["f32", "u8"])
def test_without_an_instruction_the_chain_needs_no_library(assemble, store):
    text = assemble(Tile("generic", "fma", 2, 2, store, after=After(store)))
    assert "fma" not in text.replace("tile_fma", "")


@pytest.mark.skipif(not isa.target()[0].startswith("x86_64"), reason="assembled for x86-64")
def test_the_generic_level_becomes_pmaddwd_on_the_baseline(assemble):
    text = assemble(Tile("generic", "plain", 4, 2), "x86_64-unknown-linux-gnu", "x86-64", "")
    assert len(re.findall(r"\bpmaddwd\b", inner_loop(text, "pmaddwd"))) >= 8
    assert not re.search(r"\bv[a-z]+\b.*mm|ymm", text)


@pytest.mark.parametrize(
    ("name", "features", "op"),
    [("neon", "+neon", "smlal2?|smull2?"), ("dotprod", "+dotprod", "sdot"), ("i8mm", "+dotprod,+i8mm", "usdot|sudot")],
)
def test_aarch64_tiles_assemble_without_spills(assemble, name, features, op):
    """Assembled only: there is no AArch64 machine here to run them on."""
    text = assemble(Tile(name, isa.LEVELS[name].dot, 6, 4, "u8"), "aarch64-linux-gnu", "generic", features)
    loop = inner_loop(text, op)
    assert len(re.findall(rf"\b({op})\b", loop)) >= 24
    if name != "neon":
        assert re.search(rf"\b({op})\b.*\[[0-3]\]", loop), "no by-element form"
        assert not re.search(r"\b(str|stp|ldr|ldp)\s+q.*\[sp", loop), "vector spills"


@pytest.mark.parametrize(
    "options", [{"addressing": "table", "segmented": True}, {"resume": True}, {"terms": 2, "flip_a": True}]
)
def test_every_variant_can_be_emitted(assemble, options):
    level = isa.available()[-1]
    text = assemble(Tile(level.name, level.dot, 3, 2, **options))
    assert "tile_" in text
