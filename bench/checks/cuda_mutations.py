"""Does the interpreter catch bugs? Kernels with one seeded mistake each, and whether a run of them shows it.

    python -m tilework.bench.checks.cuda_mutations --count 60 --seed 0

Mistakes are made by rule at places drawn from a seed: a barrier or a wait left out, a bound one too far, a condition
dropped, another lane, stage or fragment, an operator or constant changed. A mistake is caught where the interpreter
raises a fault or a result differs from the reference. What is not caught is named; it may be harmless.
"""

from __future__ import annotations

import ast
import linecache
import random
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from ...kernels.argmax import Argmax
from ...kernels.cuda import gemm_mma, gemm_simt
from ...kernels.cuda.argmax import build as build_argmax
from ...kernels.cuda.gemm import finish_of
from ...kernels.cuda.interpreter import KernelFault
from ...kernels.cuda.interpreter.launching import execute
from ...kernels.cuda.launch import Device, Launches
from ...kernels.cuda.quantize import build as build_quantize
from ...kernels.cuda.text import made
from ...kernels.gemm import Gemm
from ...kernels.quantize import Quantize
from ...kernels.reference.argmax import argmax
from ...kernels.reference.gemm import gemm_f32, gemm_int
from ...kernels.reference.quantize import quantize

ROW, COLUMN = ((0, 1), None), ((1, 1),)
SEEDS = (None, 1)


@dataclass(frozen=True)
class Case:
    """A step, its operands, and what must come out."""

    device: Device
    operands: tuple[Any, ...]
    right: Any


@dataclass(frozen=True)
class Mutation:
    """One mistake.

    rule     what was done
    kernel   to which kernel
    line     at which line of it, before and after
    """

    rule: str
    kernel: str
    line: str
    text: str
    number: int

    def __str__(self) -> str:
        return f"{self.kernel}: {self.rule} at line {self.number}: {self.line}"


# Rules: each yields, for a tree, functions that make one change in it -----------------------------------------------


def left_out(tree: ast.AST) -> Iterator[tuple[ast.AST, Callable[[], None]]]:
    """A barrier, a wait or a commit is missing."""
    for parent in ast.walk(tree):
        for field in ("body", "orelse"):
            statements = getattr(parent, field, None)
            if not isinstance(statements, list):
                continue
            for n, node in enumerate(statements):
                text = ast.unparse(node)
                if isinstance(node, ast.Expr) and any(
                    w in text for w in ("syncthreads", "cp_async_wait", "cp_async_commit")
                ):
                    yield (
                        node,
                        lambda s=statements, n=n, node=node: s.__setitem__(n, ast.copy_location(ast.Pass(), node)),
                    )


def one_too_far(tree: ast.AST) -> Iterator[tuple[ast.AST, Callable[[], None]]]:
    """A bound is off by one: < becomes <=."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Lt):
            yield node, lambda node=node: node.ops.__setitem__(0, ast.LtE())


def condition_dropped(tree: ast.AST) -> Iterator[tuple[ast.AST, Callable[[], None]]]:
    """Part of a mask is missing, or all of it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
            for n in range(len(node.values)):
                yield node, lambda node=node, n=n: node.values.__setitem__(n, ast.Constant(True))
        elif isinstance(node, ast.If):
            yield node.test, lambda node=node: setattr(node, "test", ast.Constant(True))


def other_lane(tree: ast.AST) -> Iterator[tuple[ast.AST, Callable[[], None]]]:
    """A lane, row or chunk is found by another mask or shift."""
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.BitAnd, ast.RShift, ast.BitXor)):
            if isinstance(node.right, ast.Constant) and isinstance(node.right.value, int):
                yield node, lambda node=node: setattr(node, "right", ast.Constant(node.right.value >> 1))
            elif isinstance(node.op, ast.BitXor):
                yield node, lambda node=node: setattr(node, "op", ast.Add())


def other_element(tree: ast.AST) -> Iterator[tuple[ast.AST, Callable[[], None]]]:
    """A fragment, a stage or an element of an array is taken from its neighbour."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            if isinstance(node.slice, ast.BinOp) and isinstance(node.slice.right, ast.Constant):
                yield node, lambda node=node: setattr(node.slice.right, "value", node.slice.right.value ^ 1)
            elif isinstance(node.slice, ast.Constant):
                yield node, lambda node=node: setattr(node.slice, "value", node.slice.value ^ 1)


def other_operator(tree: ast.AST) -> Iterator[tuple[ast.AST, Callable[[], None]]]:
    """+ is -, * is +."""
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub, ast.Mult)):
            other = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add}[type(node.op)]
            yield node, lambda node=node, other=other: setattr(node, "op", other())


def other_constant(tree: ast.AST) -> Iterator[tuple[ast.AST, Callable[[], None]]]:
    """A constant is one larger: a stage, a tile or a count is wrong."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, int):
            yield node, lambda node=node: setattr(node.value, "value", node.value.value + 1)
        elif (
            isinstance(node, ast.IfExp) and isinstance(node.orelse, ast.Constant) and isinstance(node.orelse.value, int)
        ):
            yield node, lambda node=node: setattr(node.orelse, "value", node.orelse.value + 1)


RULES = (left_out, one_too_far, condition_dropped, other_lane, other_element, other_operator, other_constant)


def mutations(name: str, text: str) -> list[Mutation]:
    """Every mistake that the rules make in a kernel's text."""
    found = []
    for rule in RULES:
        count = len(list(rule(_kernel_tree(text)[1])))
        for n in range(count):
            module, part = _kernel_tree(text)
            node, change = list(rule(part))[n]
            number = getattr(node, "lineno", 0)
            change()
            changed = ast.unparse(ast.fix_missing_locations(module)) + "\n"
            found.append(
                Mutation(rule.__name__.replace("_", " "), name, text.splitlines()[number - 1].strip(), changed, number)
            )
    return found


def _kernel_tree(text: str) -> tuple[ast.Module, ast.Module]:
    """The module, and the functions in it, which alone are changed."""
    module = ast.parse(text)
    return module, ast.Module([n for n in module.body if isinstance(n, ast.FunctionDef)], [])


# Cases ---------------------------------------------------------------------------------------------------------------


@cache
def cases() -> tuple[Case, ...]:
    """Small problems that reach every line of the kernels: off-tile sizes, several steps of K, zero points, ties."""
    rng = np.random.default_rng(0)

    def codes(dtype: Any, *shape: int) -> Any:
        info = np.iinfo(dtype)
        return aligned(rng.integers(info.min, info.max + 1, shape).astype(dtype))

    found = []
    tile = asdict(gemm_mma.SMALL)
    for m, k, n, zero_points in ((70, 208, 75, False), (33, 330, 130, True)):
        kernel = Gemm(
            "u8", "s8", a_zero_point=ROW if zero_points else None, b_zero_point=COLUMN if zero_points else None
        )
        a, b, za, zb = codes(np.uint8, m, k), codes(np.int8, k, n), codes(np.uint8, m, 1), codes(np.int8, n)
        more = (za, zb) if zero_points else ()
        right = gemm_int(a, b, *(more or (0, 0)))
        device = Device(lambda *o, kernel=kernel: gemm_mma.plan(kernel, o, finish_of(kernel), tile))
        found.append(Case(device, (a, b, *more), right))
        if m == 33:
            small = (a[:, :37], b[:37], *more)
            device = Device(lambda *o, kernel=kernel: gemm_simt.plan(kernel, o, finish_of(kernel)))
            found.append(Case(device, small, gemm_int(small[0], small[1], *more)))
    real = (
        aligned(rng.standard_normal((66, 19)).astype(np.float32)),
        aligned(rng.standard_normal((19, 67)).astype(np.float32)),
    )
    kernel = Gemm("f32", "f32")
    found.append(Case(Device(lambda *o: gemm_simt.plan(kernel, o, finish_of(kernel))), real, gemm_f32(*real)))
    x = aligned(rng.standard_normal((9, 64)).astype(np.float32))
    scale, zero = aligned(rng.random(64).astype(np.float32) + np.float32(0.01)), np.uint8(7)
    step = Quantize("f32", "u8", 2, COLUMN)
    right = quantize(x, scale, zero, lo=0, hi=255, dtype=np.uint8, scale_index=COLUMN, zero_point_index=())
    found.append(Case(build_quantize(step), (x, scale, np.asarray(zero)), right))
    ties = rng.integers(0, 4, (40, 9)).astype(np.float32)
    found.append(Case(build_argmax(Argmax("f32", "s32", 2, 1)), (ties,), argmax(ties, 1, dtype=np.int32)))
    return tuple(found)


def aligned(array: Any) -> Any:
    """A copy at a multiple of 256 bytes, as a device's memory is."""
    raw = np.empty(array.nbytes + 256, np.uint8)
    start = -raw.ctypes.data % 256
    found = raw[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    found[...] = array
    return found


def kernels() -> dict[str, str]:
    """Text of every generated kernel of the cases, by name."""
    found = {}
    for case in cases():
        for launch in case.device.plan(*case.operands, np.empty_like(case.right)).launches:
            file = launch.kernel.__code__.co_filename
            found[f"{launch.name} {file.split()[-1].rstrip('>')[:6]}"] = "".join(linecache.getlines(file))
    return found


def caught_by(mutation: Mutation | None) -> str | None:
    """How a run shows the mistake; None where every case is right all the same."""
    original = kernels()[mutation.kernel] if mutation else ""
    for case in cases():
        out = np.full_like(case.right, 77)

        def plan(*operands: Any, case: Case = case) -> Launches:
            launches = case.device.plan(*operands)
            changed = [
                replace(x, kernel=made(mutation.text, x.name)) if mutation and _is(x.kernel, original) else x
                for x in launches.launches
            ]
            return Launches(tuple(changed), launches.temporaries)

        if mutation and not any(_is(x.kernel, original) for x in case.device.plan(*case.operands, out).launches):
            continue
        for seed in SEEDS:
            out[...] = 77
            try:
                if execute(Device(plan), *case.operands, out, seed=seed):
                    return "a status"
            except KernelFault as fault:
                return fault.kind
            except (ArithmeticError, ValueError, IndexError, TypeError) as error:
                return type(error).__name__
            if out.tobytes() != case.right.tobytes():
                return "a wrong result"
    return None


def _is(kernel: Any, text: str) -> bool:
    return "".join(linecache.getlines(kernel.__code__.co_filename)) == text


def chosen(count: int, seed: int) -> list[Mutation]:
    """Mistakes drawn from a seed, the rules and kernels taking turns."""
    rng = random.Random(seed)
    groups: dict[str, list[Mutation]] = {}
    for name, text in kernels().items():
        for mutation in mutations(name, text):
            groups.setdefault(mutation.rule, []).append(mutation)
    for group in groups.values():
        rng.shuffle(group)
    found: list[Mutation] = []
    while len(found) < count and any(groups.values()):
        for group in groups.values():
            if group and len(found) < count:
                found.append(group.pop())
    return found


def main(argv: list[str] | None = None) -> int:
    """Print what was caught and how; 1 where less than nine in ten were."""
    import argparse

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(argv)
    assert caught_by(None) is None, "the kernels without a mistake are not right"
    found = [(mutation, caught_by(mutation)) for mutation in chosen(given.count, given.seed)]
    for mutation, how in found:
        print(f"{how or 'NOT CAUGHT':16} {mutation}")
    caught = sum(how is not None for _, how in found)
    print(f"caught {caught} of {len(found)}")
    return 0 if caught >= 0.9 * len(found) else 1


if __name__ == "__main__":
    raise SystemExit(main())
