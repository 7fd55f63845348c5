"""Every operation of the table on every type that it has, and the ops made of it."""

import ctypes

import ml_dtypes
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from tilework.executors import TilingExecutor, eager
from tilework.kernels import forge, ops
from tilework.kernels.cpu.elementwise import elementwise_element
from tilework.kernels.elementwise import TABLE, Elementwise
from tilework.kernels.elementwise.table import WHOLE
from tilework.kernels.entry import OperandType, bits_view
from tilework.kernels.reference.elementwise.steps import elementwise
from tilework.primitives import dtypes
from tilework.primitives.errors import ArgumentError, DTypeMismatch
from tilework.primitives.pipeline import Pipeline
from tilework.primitives.quantization import QuantParams

F32 = np.float32
NAN_BITS = 0x7FC00000
SPECIAL = F32(
    [0, -0.0, 1, -1, 0.5, -0.5, 1.5, 2.5, np.inf, -np.inf, np.nan, 1e-45, -1e-40, 3e38, -3e38, 88, -104, 33554432]
)
CALL = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)


def data(source, count):
    """As many operands, in which special values meet each other."""
    rng = np.random.default_rng(3)
    kind = dtypes.get(source)
    if kind.is_float:
        pairs = [v.ravel() for v in np.meshgrid(*[SPECIAL] * count)]
        more = [(rng.standard_normal(400) * 4).astype(F32) for _ in range(count)]
        with np.errstate(over="ignore"):
            return [np.concatenate(x).astype(kind.numpy) for x in zip(pairs, more, strict=True)]
    if source == "bool":
        return [rng.integers(0, 2, 64).astype(bool) for _ in range(count)]
    ends = np.array([kind.min, kind.min + 1, 0, 1, 2, 7, kind.max - 1, kind.max], object)
    ends = np.array([*ends, *([-1, -2, -7] if kind.is_signed else [])], object).astype(kind.numpy)
    pairs = [v.ravel() for v in np.meshgrid(*[ends] * count)]
    more = [rng.integers(kind.min, kind.max, 300, dtype=kind.numpy, endpoint=True) for _ in range(count)]
    return [np.concatenate(x) for x in zip(pairs, more, strict=True)]


def bundle(kernels):
    """One tile function of many operations on one-dimensional operands: row n of the output is kernel n's."""
    preludes, body = [], []
    for n, kernel in enumerate(kernels):
        element = elementwise_element(kernel)
        preludes += element.prelude.split("\n")
        values = (["x0", "x1", "x2"] if kernel.row.condition else ["x1", "x2", "x1", "x2"])[: len(kernel.row.values)]
        names = dict(zip(kernel.row.values, values, strict=True))
        loaded = {slot: element.widen.get(slot, "{}").format(f"{x}[i]") for slot, x in names.items()}
        loaded |= {slot: f"n{k}[()]" for k, (slot, _) in enumerate(kernel.row.numbers)}
        target = "b" if kernel.dtype == "bool" else "y"
        body.append(f"    for i in range(i0, i1):\n        {target}[{n}, i] = {element.result.format(**loaded)}\n")
    head = "import numpy as np\nfrom numba import njit\nfrom tilework.kernels.cpu.scalar import *\n"
    return (
        head
        + "\n".join(dict.fromkeys(preludes))
        + ('\n\n@njit(error_model="numpy")\ndef tile(i0, i1, x0, x1, x2, n0, n1, b, y):\n' + "".join(body))
    )


def run_bundle(source, names):
    kernels = [Elementwise(op, source, 1, (((0, 1),),) * len(TABLE[op].values)) for op in names]
    x1, x2 = data(source, 2)
    x0 = np.arange(x1.size) % 3 == 0
    numbers = [np.asarray(F32(0.75)), np.asarray(F32(1.25))]
    code = dtypes.get(source).numpy
    logic, y = np.ones((len(names), x1.size), bool), np.full((len(names), x1.size * code.itemsize), 0x5A, np.uint8)
    y = y.view(code)
    operands = [x0, x1, x2, *numbers, logic, y]
    arrays = [bits_view(a) for a in operands]
    types = tuple(OperandType(dtypes.get(a.dtype).name, a.ndim) for a in operands)
    entry = CALL(forge.entry(forge.Native(bundle(kernels)), 1, types).address)
    words = np.array([w for a in arrays for w in (0, a.__array_interface__["data"][0], *a.shape, *a.strides)], np.int64)
    bases, ranges = np.zeros(1, np.int64), np.array([0, x1.size], np.int64)
    assert entry(bases.ctypes.data, words.ctypes.data, ranges.ctypes.data) == 0
    for n, kernel in enumerate(kernels):
        values = ([x0, x1, x2] if kernel.row.condition else [x1, x2, x1, x2])[: len(kernel.row.values)]
        right = elementwise(kernel.op, values, numbers[: len(kernel.row.numbers)])
        found = logic[n] if kernel.dtype == "bool" else y[n]
        wrong = bits_view(found) != bits_view(right)
        if not dtypes.get(source).is_integer and kernel.dtype != "bool":
            wrong &= ~(np.isnan(found.astype(F32)) & np.isnan(right.astype(F32)))
        assert not wrong.any(), (kernel.name, [v[wrong][:5] for v in values], found[wrong][:5], right[wrong][:5])


@pytest.mark.skipif(forge.jit_disabled(), reason="compares compiled code")
@pytest.mark.parametrize(
    "source",
    [
        "f32",
        "bool",
        *(pytest.param(t, marks=() if t in ("s8", "u8", "s64", "u32") else pytest.mark.slow) for t in WHOLE),
    ],
)
def test_compiled_operations_have_the_bits_of_the_reference(source):
    run_bundle(source, [op for op, row in TABLE.items() if source in row.types])


@pytest.mark.skipif(forge.jit_disabled(), reason="compares compiled code")
@pytest.mark.parametrize("source", ["f16", "bf16"])
def test_half_types_are_widened_and_rounded_once(source):
    run_bundle(source, ["add", "mul", "div", "maximum", "less", "where", "sigmoid", "neg"])


EXACT = {
    "exp": np.exp, "expm1": np.expm1, "log1p": np.log1p, "sin": np.sin, "cos": np.cos, "tan": np.tan, "sinh": np.sinh,
    "cosh": np.cosh, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh, "arcsin": np.arcsin,
    "arccos": np.arccos, "arctan": np.arctan, "softplus": lambda x: np.logaddexp(0, x),
    "softsign": lambda x: x / (1 + np.abs(x)), "mish": lambda x: x * np.tanh(np.logaddexp(0, x)),
    "hard_swish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
}  # fmt: skip


@pytest.mark.parametrize("op", EXACT)
def test_functions_are_within_4_ulp_of_float64(op):
    rng = np.random.default_rng(1)
    x = np.concatenate([(rng.standard_normal(2000) * s).astype(F32) for s in (0.01, 0.5, 3, 30)])
    with np.errstate(all="ignore"):
        right = EXACT[op](x.astype(np.float64))
        found = elementwise(op, [x])
        right32 = right.astype(F32)
    assert_array_equal(np.isnan(found), np.isnan(right32))
    finite = np.isfinite(right32) & (np.abs(right32) > 1e-37)
    apart = np.abs(found[finite].astype(np.float64) - right[finite]) / np.spacing(np.abs(right32[finite]))
    assert apart.max(initial=0) < (4 if op != "hard_swish" else 1e3)  # the sum x / 6 + 0.5 cancels near -3


def test_sine_of_large_arguments_is_reduced_exactly():
    x = F32([1e5, 1e10, 1e22, 1e38, -3.4e38, 31415926.0])
    assert_allclose(elementwise("sin", [x]), np.sin(x.astype(np.float64)), rtol=3e-7)
    assert_allclose(elementwise("cos", [x]), np.cos(x.astype(np.float64)), rtol=3e-7)


def test_power_is_within_2_ulp_and_keeps_the_special_cases_of_ieee():
    rng = np.random.default_rng(2)
    x, y = np.abs(rng.standard_normal(4000) * 9).astype(F32), (rng.standard_normal(4000) * 12).astype(F32)
    with np.errstate(all="ignore"):
        right = np.power(x.astype(np.float64), y.astype(np.float64))
    finite = (right < 3e38) & (right > 1e-37)
    found = elementwise("pow", [x, y])
    apart = np.abs(found.astype(np.float64) - right)[finite] / np.spacing(right[finite].astype(F32))
    assert apart.max() < 2
    a, b = (
        v.ravel() for v in np.meshgrid(SPECIAL, F32([0, -0.0, 1, 2, 3, -1, -2, -3, 0.5, -0.5, np.inf, -np.inf, np.nan]))
    )
    with np.errstate(all="ignore"):
        assert_allclose(elementwise("pow", [a, b]), np.power(a, b), rtol=1e-6)


def test_integer_corner_cases():
    def one(op, dtype, a, b):
        return int(elementwise(op, [np.array([a], dtype), np.array([b], dtype)])[0])

    assert one("div", np.int8, -128, -1) == -128
    assert [one("div", np.int32, a, b) for a, b in ((7, -2), (-7, 2), (5, 0))] == [-3, -3, 0]
    assert [one("mod", np.int32, a, b) for a, b in ((7, -2), (-7, 2), (5, 0))] == [-1, 1, 5]
    assert [one("fmod", np.int32, a, b) for a, b in ((7, -2), (-7, 2), (5, 0))] == [1, -1, 5]
    assert [one("pow", np.int8, 2, n) for n in (6, 7, 8, -1)] == [64, -128, 0, 0]
    assert [one("shift_left", np.uint8, 3, n) for n in (7, 8)] == [128, 0]
    assert [one("shift_right", np.int8, -3, n) for n in (1, 9)] == [-2, -1]


def test_operands_are_broadcast_everywhere(everywhere, rng):
    a, b = rng.standard_normal((4, 1, 5)).astype(F32), rng.standard_normal((7, 5)).astype(F32)
    assert_array_equal(everywhere(ops.sub, a, b), a - b)
    assert everywhere(ops.sub, a[:0], b).shape == (0, 7, 5)


def test_half_precision_ops_take_bfloat16(everywhere, rng):
    a = rng.standard_normal((3, 17)).astype(ml_dtypes.bfloat16)
    assert_array_equal(everywhere(ops.mul, a, a), (a.astype(F32) * a.astype(F32)).astype(ml_dtypes.bfloat16))


TWO_SIDED = {"a_scale": 0.05, "a_zero_point": 131, "b_scale": 0.2, "b_zero_point": -3, "scale": 0.11, "zero_point": 7}


@pytest.mark.parametrize("op", ["mul", "maximum"])
def test_two_sided_operations_take_codes_with_scales_of_their_own(everywhere, rng, op):
    a, b = rng.integers(0, 256, (5, 33)).astype(np.uint8), rng.integers(-128, 128, (33,)).astype(np.int8)
    found = everywhere(getattr(ops, op), a, b, dtype="s8", **TWO_SIDED)
    x, y = (a.astype(F32) - 131) * F32(0.05), (b.astype(F32) + 3) * F32(0.2)
    real = x * y if op == "mul" else np.maximum(x, y)
    assert_array_equal(found, np.clip(np.rint(real / F32(0.11)) + 7, -128, 127).astype(np.int8))


def test_scales_may_go_by_channel_on_one_side(everywhere, rng):
    q = QuantParams(np.linspace(0.1, 0.5, 6).astype(F32), 0, "s8", axis=1)
    a, b = rng.integers(-128, 128, (4, 6)).astype(np.int8), rng.integers(-128, 128, (4, 6)).astype(np.int8)

    def op(x, y):
        return ops.mul(x, y, a_scale=q.scale, b_scale=0.25, scale=0.5, dtype="s8")

    real = (a * q.scale.astype(F32)) * (b * F32(0.25))
    assert_array_equal(everywhere(op, a, b), np.clip(np.rint(real / F32(0.5)), -128, 127).astype(np.int8))


@pytest.mark.parametrize(("dtype", "op"), [(np.uint8, "sigmoid"), (np.int8, "gelu")])
def test_a_unary_operation_on_8_bit_codes_is_an_exact_table(dtype, op):
    codes = np.arange(256, dtype=np.uint8).view(dtype)
    pipe = Pipeline()
    x = pipe.input("x", dtypes.get(codes.dtype), (256,), quant=QuantParams(0.04, 3, dtypes.get(codes.dtype).name))
    pipe.output("y", getattr(ops, op)(x, to=QuantParams(0.01, 5, "u8")))
    assert [step.kernel.name for step in pipe.steps] == [f"lookup_{dtypes.get(codes.dtype).name}u8"]
    real = elementwise(op, [(codes.astype(F32) - 3) * F32(0.04)])
    right = np.clip(np.rint(real / F32(0.01)) + 5, 0, 255).astype(np.uint8)
    assert_array_equal(TilingExecutor(1).run(pipe, {"x": codes})["y"], right)


def test_a_unary_operation_on_16_bit_codes_is_computed(everywhere):
    codes = np.arange(-300, 300, 7).astype(np.int16)
    found = everywhere(ops.tanh, codes, x_scale=0.01, scale=1 / 32767, dtype="s16")
    real = elementwise("tanh", [codes.astype(F32) * F32(0.01)])
    assert_array_equal(found, np.clip(np.rint(real / F32(1 / 32767)), -32768, 32767).astype(np.int16))


def test_an_operation_is_fused_into_the_product_before_it(rng):
    a, w = rng.standard_normal((9, 32)).astype(F32), rng.standard_normal((32, 24)).astype(F32)
    pipe = Pipeline()
    pipe.output("y", ops.mish(ops.gemm(pipe.input("a", "f32", ("M", 32)), pipe.constant(w))))
    plan = TilingExecutor(1).compile(pipe)
    found = plan.run({"a": a})["y"]
    assert len(plan.lowered.pipe.steps) == (1 if not forge.jit_disabled() else 2)
    assert_array_equal(found, TilingExecutor(1, fuse=False).run(pipe, {"a": a})["y"])


def test_parameters_are_given_by_name():
    x = F32([-2, 0.25, 3])
    assert_array_equal(eager.leaky_relu(x, 0.5), F32([-1, 0.25, 3]))
    assert_array_equal(eager.hard_sigmoid(x, alpha=0.5, beta=0.0), F32([0, 0.125, 1]))


@pytest.mark.parametrize(
    ("error", "text", "call"),
    [
        (DTypeMismatch, "operands of one type", lambda p: ops.sub(p.input("a", "u8", (3,)), np.zeros(3, F32))),
        (DTypeMismatch, "f32, f16, bf16 work", lambda p: ops.sigmoid(p.input("a", "s32", (3,)))),
        (ArgumentError, "need scale=", lambda p: ops.mul(p.input("a", "u8", (3,)), np.zeros(3, np.uint8), a_scale=1.0)),
        (
            ArgumentError,
            "codes with scales",
            lambda p: ops.mul(p.input("a", "u8", (3,), quant=QuantParams(0.1, 3, "u8")), np.zeros(3, np.uint8)),
        ),
        (TypeError, "unexpected keyword", lambda p: ops.exp(p.input("a", "f32", (3,)), alpha=3)),
    ],
)
def test_what_does_not_fit_is_named(error, text, call):
    with pytest.raises(error, match=text):
        call(Pipeline())
