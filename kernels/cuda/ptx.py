"""Every PTX instruction that a kernel of this package uses, by name; nothing else spells one.

A kernel calls them as `ptx.mma_m16n8k32_s8s8(...)`. Each entry says what it takes and gives and what PTX text stands for
it; kernels/cuda/seam.py makes a compiler intrinsic of it, and kernels/cuda/interpreter/instructions.py says what it does
as NumPy. Argument kinds: s32, s64, f32 in registers; "shared" and "global" are two arguments, an array or a pointer and
an element index, that become one address.

Float arithmetic is spelled here too: the compiler would contract `a * b + c` into a fused multiply-add, which changes
bits, so kernels call add, sub, mul and div, and fma where one rounding is meant.

Source: NVIDIA, "Parallel Thread Execution ISA", sections on each instruction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Instruction:
    """One name that kernels may call.

    results     kinds of what it gives, none, one, or several (a tuple)
    arguments   kinds of what it takes
    text        PTX; $0 .. are results then arguments
    pure        it only computes from its arguments: the compiler may move or merge it
    since       the first architecture that has it, as sm_NN
    collective  all lanes of a warp take part
    """

    name: str
    results: tuple[str, ...]
    arguments: tuple[str, ...]
    text: str
    pure: bool = True
    since: int = 70
    collective: bool = False

    def __call__(self, *args: Any) -> Any:
        raise TypeError(f"ptx.{self.name} runs in a kernel; kernels.cuda.interpreter.run executes one without a GPU")


INSTRUCTIONS: dict[str, Instruction] = {}


def _add(name: str, results: str, arguments: str, text: str, **more: Any) -> Instruction:
    made = Instruction(name, tuple(results.split()), tuple(arguments.split()), text, **more)
    INSTRUCTIONS[name] = made
    return made


# float32, each rounded once ------------------------------------------------------------------------------------------

add = _add("add", "f32", "f32 f32", "add.rn.f32 $0, $1, $2;")
sub = _add("sub", "f32", "f32 f32", "sub.rn.f32 $0, $1, $2;")
mul = _add("mul", "f32", "f32 f32", "mul.rn.f32 $0, $1, $2;")
div = _add("div", "f32", "f32 f32", "div.rn.f32 $0, $1, $2;")
fma = _add("fma", "f32", "f32 f32 f32", "fma.rn.f32 $0, $1, $2, $3;")
sqrt = _add("sqrt", "f32", "f32", "sqrt.rn.f32 $0, $1;")
rint = _add("rint", "f32", "f32", "cvt.rni.f32.f32 $0, $1;")
floor = _add("floor", "f32", "f32", "cvt.rmi.f32.f32 $0, $1;")
trunc = _add("trunc", "f32", "f32", "cvt.rzi.f32.f32 $0, $1;")
to_int = _add("to_int", "s32", "f32", "cvt.rzi.s32.f32 $0, $1;")  # saturates; NaN gives 0
to_int64 = _add("to_int64", "s64", "f32", "cvt.rzi.s64.f32 $0, $1;")  # saturates; NaN gives the smallest
to_float = _add("to_float", "f32", "s32", "cvt.rn.f32.s32 $0, $1;")
bits = _add("bits", "s32", "f32", "mov.b32 $0, $1;")
from_bits = _add("from_bits", "f32", "s32", "mov.b32 $0, $1;")
from_half = _add("from_half", "f32", "s32", "{ .reg .b16 l, h; mov.b32 {l, h}, $1; cvt.f32.f16 $0, l; }")

# Integer dot products: four bytes in each word, c + sum of a[i] * b[i] modulo 2**32 -----------------------------------

dp4a_s8s8 = _add("dp4a_s8s8", "s32", "s32 s32 s32", "dp4a.s32.s32 $0, $1, $2, $3;")
dp4a_u8s8 = _add("dp4a_u8s8", "s32", "s32 s32 s32", "dp4a.u32.s32 $0, $1, $2, $3;")
dp4a_s8u8 = _add("dp4a_s8u8", "s32", "s32 s32 s32", "dp4a.s32.u32 $0, $1, $2, $3;")
dp4a_u8u8 = _add("dp4a_u8u8", "s32", "s32 s32 s32", "dp4a.u32.u32 $0, $1, $2, $3;")
byte_permute = _add("byte_permute", "s32", "s32 s32 s32", "prmt.b32 $0, $1, $2, $3;")

# Unsigned division in 32 bits: an integer in a register has 64, whose division is many times slower.
div_u32 = _add("div_u32", "s32", "s32 s32", "div.u32 $0, $1, $2;")
rem_u32 = _add("rem_u32", "s32", "s32 s32", "rem.u32 $0, $1, $2;")

# Tensor cores: c + a @ b, with a 16 x K, b K x 8, in the fragment layouts of the warp's lanes ---------------------------


def _mma(name: str, shape: str, types: str, kind: str, a: int, b: int, since: int = 80) -> Instruction:
    regs = [f"${n}" for n in range(4 + a + b + 4)]
    groups = [regs[:4], regs[4 : 4 + a], regs[4 + a : 4 + a + b], regs[4 + a + b :]]
    text = f"mma.sync.aligned.{shape}.row.col.{types} " + ", ".join("{" + ", ".join(g) + "}" for g in groups) + ";"
    arguments = " ".join(["s32"] * (a + b) + [kind] * 4)
    return _add(name, " ".join([kind] * 4), arguments, text, pure=False, since=since, collective=True)


mma_m16n8k32_s8s8 = _mma("mma_m16n8k32_s8s8", "m16n8k32", "s32.s8.s8.s32", "s32", 4, 2)
mma_m16n8k32_u8s8 = _mma("mma_m16n8k32_u8s8", "m16n8k32", "s32.u8.s8.s32", "s32", 4, 2)
mma_m16n8k32_s8u8 = _mma("mma_m16n8k32_s8u8", "m16n8k32", "s32.s8.u8.s32", "s32", 4, 2)
mma_m16n8k32_u8u8 = _mma("mma_m16n8k32_u8u8", "m16n8k32", "s32.u8.u8.s32", "s32", 4, 2)
mma_m16n8k64_s4s4 = _mma("mma_m16n8k64_s4s4", "m16n8k64", "s32.s4.s4.s32", "s32", 4, 2)
mma_m16n8k16_bf16 = _mma("mma_m16n8k16_bf16", "m16n8k16", "f32.bf16.bf16.f32", "f32", 4, 2)
# Each lane gives the address of one row of 16 bytes: lanes 0-7 the first 8 x 8 matrix of 16-bit elements, and so on.
ldmatrix_x4 = _add(
    "ldmatrix_x4",
    "s32 s32 s32 s32",
    "shared",
    "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {$0, $1, $2, $3}, [$4];",
    pure=False,
    since=75,
    collective=True,
)

# Copies from global to shared memory that run behind the thread's back; bytes past the given number become zeros ------

cp_async16 = _add(
    "cp_async16",
    "",
    "shared global s32",
    "cp.async.cg.shared.global [$0], [$1], 16, $2;",
    pure=False,
    since=80,
)
cp_async_commit = _add("cp_async_commit", "", "", "cp.async.commit_group;", pure=False, since=80)
cp_async_wait0 = _add("cp_async_wait0", "", "", "cp.async.wait_group 0;", pure=False, since=80)
cp_async_wait1 = _add("cp_async_wait1", "", "", "cp.async.wait_group 1;", pure=False, since=80)

# Whole words and vectors of global memory, as wide as their alignment must be -------------------------------------------

load_x1 = _add("load_x1", "s32", "global", "ld.global.b32 $0, [$1];", pure=False)
load_x2 = _add("load_x2", "s32 s32", "global", "ld.global.v2.b32 {$0, $1}, [$2];", pure=False)
load_x4 = _add("load_x4", "s32 s32 s32 s32", "global", "ld.global.v4.b32 {$0, $1, $2, $3}, [$4];", pure=False)
store_x1 = _add("store_x1", "", "global s32", "st.global.b32 [$0], $1;", pure=False)
store_x2 = _add("store_x2", "", "global s32 s32", "st.global.v2.b32 [$0], {$1, $2};", pure=False)
store_x4 = _add("store_x4", "", "global s32 s32 s32 s32", "st.global.v4.b32 [$0], {$1, $2, $3, $4};", pure=False)
shared_x1 = _add("shared_x1", "s32", "shared", "ld.shared.b32 $0, [$1];", pure=False)
atomic_or = _add("atomic_or", "", "global s32", "red.global.or.b32 [$0], $1;", pure=False)

# Warp exchanges: the value of the lane whose number differs by a mask, lies above, or is given (own value past the end)

shfl_xor = _add(
    "shfl_xor", "s32", "s32 s32", "shfl.sync.bfly.b32 $0, $1, $2, 31, 0xffffffff;", pure=False, collective=True
)
shfl_down = _add(
    "shfl_down", "s32", "s32 s32", "shfl.sync.down.b32 $0, $1, $2, 31, 0xffffffff;", pure=False, collective=True
)
shfl_idx = _add(
    "shfl_idx", "s32", "s32 s32", "shfl.sync.idx.b32 $0, $1, $2, 31, 0xffffffff;", pure=False, collective=True
)
