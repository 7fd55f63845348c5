"""Every kernel compiled to PTX and assembled, without a driver: no spills, few registers, the wanted instructions."""

import math
from dataclasses import asdict

import ml_dtypes
import numpy as np
import pytest

from tilework.kernels.argmax import Argmax
from tilework.kernels.conv import Conv
from tilework.kernels.cuda import gemm_mma, ptx
from tilework.kernels.cuda.gemm import finish_of
from tilework.kernels.cuda.launch import Device, Launch
from tilework.kernels.cuda.text import made
from tilework.kernels.elementwise import Add, AddQuantized, Clip, Elementwise, Relu
from tilework.kernels.gemm import Gemm
from tilework.kernels.linear import CodeFormat, Linear
from tilework.kernels.lookup import Lookup
from tilework.kernels.map import Map
from tilework.kernels.moving.copy import Copy
from tilework.kernels.moving.gather import Gather
from tilework.kernels.quantize import Dequantize, Quantize
from tilework.kernels.reduce import DynamicQuantize, Normalize, Reduce, Softmax
from tilework.kernels.requantize import Requantize
from tilework.kernels.rounding import ROUNDINGS

CHANNEL = ((1, 1),)


def gelu(v, scale):
    x = np.float32(v) * scale
    return x * 0.5 * (1.0 + math.erf(x * 0.70710678))


def leaky(v, scale):
    r = np.rint(np.float32(v) * scale)
    return r if r > 0 else r * 0.125


def empty(dtype, *shape):
    return np.zeros(shape, dtype)


SCRATCH = np.zeros(64, np.uint8)
F, U8, S8, S32, BF16 = np.float32, np.uint8, np.int8, np.int32, ml_dtypes.bfloat16
MAPPED = ("s32", "f32"), "f32", 2, (((0, 1), (1, 1)), ()), ("scale",)
SQUARE = 64, 64

# name: (kernel, operands, largest number of registers, {instruction: least count}), for sm_75 and up
ELEMENTS = {
    "quantize": (Quantize(), (empty(F, *SQUARE), F(1), U8(3), empty(U8, *SQUARE)), 40, {"div.rn.f32": 4, "ld.global.v4.b32": 1}),
    "quantize f16 per channel": (
        Quantize("f16", "s16", 2, CHANNEL, CHANNEL),
        (empty(np.float16, *SQUARE), empty(F, 64), empty(np.int16, 64), empty(np.int16, *SQUARE)),
        48,
        {"ld.global.v2.b32": 1},
    ),
    "quantize bf16 to s32, odd width": (
        Quantize("bf16", "s32", 2),
        (empty(BF16, 5, 7), F(1), S32(3), empty(S32, 5, 7)),
        40,
        {"cvt.rzi.s64.f32": 1},
    ),
    **{
        f"quantize {rounding}": (
            Quantize(rounding=rounding),
            (empty(F, *SQUARE), F(1), U8(3), *((np.uint64(1),) if rounding == "stochastic" else ()), empty(U8, *SQUARE)),
            48,
            {},
        )
        for rounding in ROUNDINGS[1:]
    },
    "dequantize": (Dequantize(), (empty(U8, *SQUARE), F(1), U8(3), empty(F, *SQUARE)), 32, {"st.global.v4.b32": 1}),
    "requantize": (
        Requantize("s8", 2, CHANNEL),
        (empty(S32, *SQUARE), empty(F, 64), S8(3), S32(-128), S32(127), empty(S8, *SQUARE)),
        48,
        {"mul.rn.f32": 4, "cvt.rni.f32.f32": 4},
    ),
    "requantize fixed": (
        Requantize("u8", 2, arithmetic="fixed"),
        (empty(S32, *SQUARE), S32(2**30), S32(1), U8(3), S32(0), S32(255), empty(U8, *SQUARE)),
        40,
        {},
    ),
    "add": (Add("f32", 2), (empty(F, *SQUARE),) * 3, 32, {"add.rn.f32": 4}),
    "add quantized": (
        AddQuantized(),
        (empty(U8, *SQUARE), empty(U8, *SQUARE), *(F(1), U8(1)) * 3, empty(U8, *SQUARE)),
        40,
        {"div.rn.f32": 4},
    ),
    "relu": (Relu("s8", 2), (empty(S8, *SQUARE), S8(0), empty(S8, *SQUARE)), 32, {}),
    "clip": (Clip("f32", 2), (empty(F, *SQUARE), F(0), F(6), empty(F, *SQUARE)), 32, {}),
    "lookup": (Lookup(), (empty(U8, *SQUARE), empty(U8, 256), empty(U8, *SQUARE)), 32, {"ld.global.b32": 1}),
    "map gelu": (Map(gelu, *MAPPED), (empty(S32, *SQUARE), F(1), empty(F, *SQUARE)), 48, {"fma.rn.f32": 16}),
    "map leaky": (Map(leaky, *MAPPED), (empty(S32, *SQUARE), F(1), empty(F, *SQUARE)), 32, {"mul.rn.f32": 4}),
    "elementwise gelu": (
        Elementwise("gelu", "bf16", 2, (((0, 1), (1, 1)),)), (empty(BF16, *SQUARE), empty(BF16, *SQUARE)), 64, {"fma.rn.f32": 16}
    ),
    "elementwise pow of integers": (
        Elementwise("pow", "s32", 2, (((0, 1), (1, 1)),) * 2), (empty(S32, *SQUARE),) * 3, 64, {}
    ),
    "reduce sum": (Reduce("sum", "s8"), (empty(S8, *SQUARE), empty(S8, 64), SCRATCH), 40, {"shfl.sync": 8}),
    "reduce log_sum_exp": (
        Reduce("log_sum_exp", "f32"), (empty(F, *SQUARE), empty(F, 64), SCRATCH), 48, {"shfl.sync": 10}
    ),
    "softmax": (Softmax(), (empty(F, *SQUARE), empty(F, *SQUARE), SCRATCH), 48, {"shfl.sync": 10, "fma.rn.f32": 10}),
    "layer norm": (
        Normalize(bias=True), (empty(F, *SQUARE), empty(F, 64), empty(F, 64), F(0), empty(F, *SQUARE), SCRATCH),
        48, {"sqrt.rn.f32": 1}
    ),
    "dynamic quantize": (
        DynamicQuantize(), (empty(F, *SQUARE), empty(U8, *SQUARE), empty(F, 64), empty(U8, 64), SCRATCH), 48, {"div.rn.f32": 2}
    ),
    "copy": (Copy(1, (4, 5, 6)), (empty(U8, 6, 5, 4).transpose(2, 1, 0), empty(U8, 4, 5, 6)), 40, {}),
    "gather": (Gather(), (empty(np.uint32, *SQUARE), empty(np.int64, 9), empty(np.uint32, 9, 64)), 40, {}),
    "argmax": (Argmax("f32", "s64", 2, 1), (empty(F, *SQUARE), empty(np.int64, 64)), 40, {}),
}  # fmt: skip


def launches(device_of, kernel, operands, variant=None):
    return device_of(kernel, variant).plan(*map(np.asarray, operands)).launches


def check(built, registers, wanted):
    assert built.spills == 0
    assert built.registers <= registers
    assert built.count("call") == 0, "a call that was not inlined"
    assert not built.count("ld.local"), "an array of a thread that is not in registers"
    found = {name: built.count(name) for name in wanted}
    assert all(found[name] >= n for name, n in wanted.items()), found


@pytest.mark.parametrize("name", ELEMENTS)
def test_element_wise_kernels_assemble_within_their_registers(device_of, assembled, name):
    kernel, operands, registers, wanted = ELEMENTS[name]
    for launch in launches(device_of, kernel, operands):
        for cc in ((8, 0), (9, 0)):
            check(assembled(launch, cc), registers, wanted)


@pytest.mark.parametrize("name", ["quantize", "requantize", "map gelu", "lookup"])
def test_kernels_without_newer_instructions_assemble_for_turing(device_of, assembled, name):
    kernel, operands, registers, wanted = ELEMENTS[name]
    for launch in launches(device_of, kernel, operands):
        check(assembled(launch, (7, 5)), registers, wanted)


@pytest.mark.parametrize("cc", [(8, 0), (9, 0)], ids=["sm_80", "sm_90"])
@pytest.mark.parametrize("tile", [gemm_mma.LARGE, gemm_mma.SMALL], ids=["large", "small"])
def test_tensor_core_gemm_has_what_makes_it_fast(assembled, cc, tile):
    kernel = Gemm("u8", "s8", a_zero_point=(), b_zero_point=CHANNEL)
    device = Device(lambda *operands: gemm_mma.plan(kernel, operands, finish_of(kernel), asdict(tile)))
    operands = (empty(U8, 256, 256), empty(S8, 256, 256), empty(U8), empty(S8, 256), empty(S32, 256, 256))
    *packing, product = device.plan(*operands).launches
    for launch in packing:
        check(assembled(launch, cc), 48, {})
    tiles = tile.bm // tile.wm // 16 * (tile.bn // tile.wn // 8)
    per_half = tile.bm // tile.wm // 16 + tile.bn // tile.wn // 16
    check(assembled(product, cc), 168, {"mma.sync": 2 * tiles, "ldmatrix.sync": 2 * per_half, "cp.async.cg": 4})
    assert assembled(product, cc).shared <= 48 * 1024


@pytest.mark.parametrize("types", [("u8", "s8"), ("f32", "f32"), ("f16", "bf16"), ("s16", "s16")], ids="".join)
def test_gemm_without_tensor_cores_assembles(device_of, assembled, types):
    kernel = Gemm(*types)
    known = {"u8": U8, "s8": S8, "s16": np.int16, "f32": F, "f16": np.float16, "bf16": BF16}
    out = empty(F if kernel.real else S32, 65, 66)
    operands = (empty(known[types[0]], 65, 40), empty(known[types[1]], 40, 66), out)
    for launch in launches(device_of, kernel, operands, "simt"):
        for cc in ((7, 5), (9, 0)):
            check(assembled(launch, cc), 96, {"fma.rn.f32": 16} if kernel.real else {})


def call_of(instruction):
    """A kernel that is one instruction: its arguments from memory, its results to memory."""
    arguments, n = [], 0
    for kind in instruction.arguments:
        if kind in ("shared", "global"):
            arguments.append("shared, 0" if kind == "shared" else "words, 0")
            continue
        arguments.append({"s32": "words[{0}]", "f32": "reals[{0}]", "s64": "np.int64(words[{0}])"}[kind].format(n))
        n += 1
    results = len(instruction.results)
    stores = {0: [], 1: ["out = found"]}.get(results, [f"out = found[{k}]" for k in range(results)])
    kinds = dict.fromkeys(instruction.results)
    where = "reals" if "f32" in kinds else "words"
    lines = "".join(f"    {where}[{k}] = {line.removeprefix('out = ')}\n" for k, line in enumerate(stores))
    text = (
        "import numpy as np\nfrom tilework.kernels.cuda import ptx\nfrom tilework.kernels.cuda.seam import cuda\n\n\n"
        f"def one(words, reals):\n    shared = cuda.shared.array(64, np.int32)\n    shared[cuda.threadIdx.x] = 1\n"
        f"    cuda.syncthreads()\n    {'found = ' if results else ''}ptx.{instruction.name}({', '.join(arguments)})\n{lines}"
    )
    return made(text, "one")


@pytest.mark.parametrize("name", ptx.INSTRUCTIONS)
def test_every_instruction_assembles_where_it_is_said_to_exist(assembled, name):
    instruction = ptx.INSTRUCTIONS[name]
    launch = Launch(call_of(instruction), ("s32*", "f32*"), (1, 1, 1), (32, 1, 1), (), (0, 1))
    cc = max(instruction.since, 75)
    assembled(launch, (cc // 10, cc % 10))


@pytest.mark.parametrize("types", [("u8", "s8"), ("f32", "f32")], ids="".join)
def test_convolution_assembles(device_of, assembled, types):
    known, out = {"u8": U8, "s8": S8, "f32": F}, F if types[0] == "f32" else S32
    kernel = Conv(*types, (3, 3), (1, 1), (1, 1), (1, 1))
    x, w = empty(known[types[0]], 1, 1, 9, 9, 8), empty(known[types[1]], 1, 8, 1, 3, 3, 8)
    for launch in launches(device_of, kernel, (x, w, empty(out, 1, 1, 9, 9, 8))):
        for cc in ((8, 0), (9, 0)):
            check(assembled(launch, cc), 128, {})


@pytest.mark.parametrize("compute", ["f32", "bf16", "int8"])
def test_products_with_packed_codes_assemble(device_of, assembled, compute):
    kernel = Linear(CodeFormat(4, False, "bits", (1, 16), "affine", True), 64, compute)
    operands = (empty(F, 70, 64), empty(U8, 66, 32), empty(F, 66, 4), empty(S32, 66, 4), empty(F, 70, 66))
    for launch in launches(device_of, kernel, operands):
        for cc in ((8, 0), (9, 0)):
            check(assembled(launch, cc), 128, {})


@pytest.mark.parametrize("m", [1, 16])
def test_few_rows_assemble_with_dot_products(device_of, assembled, m):
    operands = (empty(U8, m, 64), empty(S8, 64, 66), empty(S32, m, 66))
    *_, product = launches(device_of, Gemm("u8", "s8"), operands)
    for cc in ((7, 5), (8, 0), (9, 0)):
        check(assembled(product, cc), 128, {"dp4a.u32.s32": 4 * m, "ld.global.v4.b32": 1 + m})
