"""Problems for this package's own kernels, by their names."""

from __future__ import annotations

import re
from dataclasses import astuple
from typing import Any

import numpy as np

from ... import ops
from ...kernels.linear import CodeFormat, Linear
from ...kernels.reference import linear as reference
from ...kernels.reference.gemm import bf16_bound, gemm_f32
from ...primitives.errors import ArgumentError
from ...primitives.pipeline import Pipeline
from ..cases import Case, Shape
from ..peers.conv import Shape as Window
from .problem import Array, Problem, dimensions, maker, random

_GEMM = re.compile(r"gemm_(f32|u8|s8|s16|f16|bf16)(u8|s8|s16|f16|bf16|f32)?(s32|f32)?")
_CONV = re.compile(r"conv_(f32|u8|s8|s16|f16|bf16)(u8|s8|s16|f16|bf16|f32)?(s32|f32)?")
SAMPLED_ROWS = 16  # of a float32 result that are compared with the written order of the sum


@maker("gemm_", "MxKxN")
def gemm(kernel: str, shape: Any, seed: int = 0, output: str = "") -> Problem:
    """A GEMM whose B is constant. output "u8": with bias, requantize and relu after it (u8 times s8)."""
    M, K, N = dimensions(shape, "MxKxN")
    found = _GEMM.fullmatch(kernel)
    a_dtype, b_dtype = (found[1], found[2] or found[1]) if found else ("", "")
    label, operations = f"{M}x{K}x{N}", 2.0 * M * K * N
    if (a_dtype, b_dtype) == ("u8", "s8"):
        case, output = Case.make(Shape(M, K, N), seed), output or "s32"
        pipe = case.pipeline(output)
        return Problem(
            kernel,
            label,
            pipe,
            {"a": case.a},
            kernel,
            operations,
            lambda: {"y": case.reference(output)},
            case=(case, output),
        )
    if output not in ("", "s32", "f32"):
        raise ArgumentError(f"{kernel} has no output {output!r} here; gemm_u8s8s32 has s32 and u8")
    rng = np.random.default_rng(seed)
    a, b = random(a_dtype or "u8", (M, K), rng), random(b_dtype or "u8", (K, N), rng)
    pipe = Pipeline(kernel)
    acc = ops.gemm(pipe.input("a", a_dtype, ("M", K)), pipe.constant("b", b))
    pipe.output("y", acc)
    step = pipe.steps[0].name
    if pipe.steps[0].kernel.name != kernel:
        raise ArgumentError(
            f"there is no {kernel}; {pipe.steps[0].kernel.name} is what multiplies {a_dtype} and {b_dtype}"
        )
    problem = Problem(kernel, label, pipe, {"a": a}, step, operations)
    if a.dtype.kind in "iu":
        problem.expected = lambda: {"y": _exact(a, b)}
    elif a_dtype == b_dtype == "bf16":
        problem.expected = lambda: {"y": (a.astype(np.float64) @ b.astype(np.float64)).astype(np.float32)}
        problem.allowed = {"y": bf16_bound(a, b)}
        problem.judge = "exact arithmetic, within the bound of bf16 products"
    else:
        problem.expected = lambda: {"y": _in_order(problem, a, b)}
        problem.judge = "the written order of the sum"
    return problem


def _exact(a: Array, b: Array) -> Array:
    """The sums modulo 2**32, from float64: in steps of K whose products and sums stay below 2**53."""
    total = np.zeros((a.shape[0], b.shape[1]), np.int64)
    for k in range(0, a.shape[1], 1 << 20):
        total += (a[:, k : k + (1 << 20)].astype(np.float64) @ b[k : k + (1 << 20)].astype(np.float64)).astype(np.int64)
    return total.astype(np.int32)


def _in_order(problem: Problem, a: Array, b: Array) -> Array:
    """float32 sums in their written order: some rows by the reference, and all by plain code that agrees with it there."""
    from ...executors.tiling import TilingExecutor

    plain = TilingExecutor(1, isa="generic", tuned=False).run(problem.pipe, problem.inputs)["y"]
    rows = np.unique(np.linspace(0, len(a) - 1, SAMPLED_ROWS).astype(int))
    np.testing.assert_array_equal(plain[rows], gemm_f32(a[rows], b))
    return plain


@maker("linear_", "MxKxN")
def linear(kernel: str, shape: Any, seed: int = 0, scheme: Any = None) -> Problem:
    """x (M, K) times weights (N, K) that stay packed codes: of a scheme, else 4 bits in blocks of 32 with zero points."""
    M, K, N = dimensions(shape, "MxKxN")
    compute = kernel.removeprefix("linear_")
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((M, K)).astype(np.float32)
    pipe = Pipeline(kernel)
    value = pipe.input("x", "f32", ("M", K))
    if scheme is None:
        form = CodeFormat(4, block=(1, 32), zero_point=True)
        weights: dict[str, Any] = {
            "codes": rng.integers(0, 256, (N, form.row_bytes(K)), dtype=np.uint8),
            "scale": (rng.uniform(0.5, 1.5, form.blocks(N, K)) * 0.01).astype(np.float32),
            "zero_point": rng.integers(0, 16, form.blocks(N, K)).astype(np.int32),
        }
        y = pipe.add(Linear(form, K, compute), x=value, **weights)
    else:
        w = (rng.standard_normal((N, K)) * 0.02).astype(np.float32)
        y = ops.linear(value, _scheme(scheme).quantize(w), compute=compute)
    pipe.output("y", y)
    step = next((s for s in pipe.order() if s.kernel.name.startswith("linear")), None)
    if step is None:
        raise ArgumentError(
            f"weights of {getattr(_scheme(scheme), 'name', scheme)} are decoded before a product with compute={compute!r}, "
            f"so no step decodes them inside; kernel linear_int8, linear_f32 or linear_bf16 may"
        )
    label = f"{M}x{K}x{N}" + (f" {getattr(_scheme(scheme), 'name', scheme)}" if scheme is not None else "")
    problem = Problem(step.kernel.name, label, pipe, {"x": x}, step.name, 2.0 * M * K * N)
    if compute == "bf16":
        _judge_rounded(problem, step, x)
    return problem


def _judge_rounded(problem: Problem, step: Any, x: Array) -> None:
    """A native product of bfloat16 is held to its bound around the exact product of the rounded operands."""
    data = {slot: value.data for slot, value in step.inputs.items() if slot != "x"}
    w = reference.decode(data.pop("codes"), step.kernel.format, step.kernel.K, *data.values())
    rounded = [reference.to_bf16(part).astype(np.float64) for part in (x, w)]
    problem.expected = lambda: {"y": (rounded[0] @ rounded[1].T).astype(np.float32)}
    problem.allowed = {"y": reference.linear_bf16_bound(x, w)}
    problem.judge = "exact arithmetic on rounded operands, within the bound of bf16 products"


def _scheme(given: Any) -> Any:
    """A scheme, or the shipped one of that name."""
    if not isinstance(given, str):
        return given
    import tilework

    return tilework.schemes.get(given)  # type: ignore[attr-defined]


@maker("conv_", "N,C,H,O,k,s,p,g")
def conv(kernel: str, shape: Any, seed: int = 0, layout: str = "NHWC") -> Problem:
    """A convolution of N images of C channels, H by H: O outputs, a window k by k, stride s, padding p, g groups."""
    given = Window.parse(shape if isinstance(shape, str) else ",".join(map(str, shape)))
    N, C, H, outputs, k, s, p, g = astuple(given)
    found = _CONV.fullmatch(kernel)
    x_dtype, w_dtype = (found[1], found[2] or found[1]) if found else ("u8", "s8")
    rng = np.random.default_rng(seed)
    image = (N, H, H, C) if layout == "NHWC" else (N, C, H, H)
    x, w = random(x_dtype, image, rng), random(w_dtype, (outputs, C // g, k, k), rng)
    pipe = Pipeline(kernel)
    y = ops.conv(pipe.input("x", x_dtype, image), w, strides=s, pads=p, groups=g, layout=layout)
    pipe.output("y", y)
    step = pipe.steps[-1]
    if step.kernel.name != kernel:
        raise ArgumentError(f"there is no {kernel}; {step.kernel.name} is what multiplies {x_dtype} and {w_dtype}")
    rows = (H + 2 * p - k) // s + 1
    operations = 2.0 * N * outputs * rows * rows * (C // g) * k * k
    return Problem(kernel, f"{N},{C},{H},{outputs},{k},{s},{p},{g} {layout}", pipe, {"x": x}, step.name, operations)
