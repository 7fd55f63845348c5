"""Everything that needs a GPU, in one command: first what is computed, then how fast.

    python -m tilework.bench.gpu_check [--device 0] [--json] [--quick]

1. Instructions: dot products, tensor-core products in every fragment position, ldmatrix, byte permute and exchanges,
   each against the interpreter, which models them. A difference means that the model, and with it every test that ran
   without a GPU, is wrong.
2. Steps: each kernel in a pipeline on the device, against the reference, byte for byte.
3. Speed (bench/gpu/), with the second-level cache warm and emptied: int8 products against cuBLAS and Triton, packed
   weights, quantize and dequantize against a copy and torch, a long pipeline's replay against a graph of empty kernels.

Stops with status 1 where a byte differs. Every part has its seconds, less than 8 minutes together, and what finds none
left is named; without a device it says so and checks nothing.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

import tilework as tw

from ..executors.cuda.driver import Driver
from ..executors.cuda.graph import OWN, Assembly, Buffer, own_buffers
from ..executors.recording import Operand
from ..kernels.cuda import ptx
from ..kernels.cuda.interpreter import run as interpret
from ..kernels.cuda.launch import At, Launch
from ..kernels.cuda.text import made
from ..primitives.errors import TileworkError, Unsupported
from .gpu import report
from .gpu.cases import BUDGETS, QUICK, Bench, Sizes
from .gpu.clock import Budget

Array = np.ndarray[Any, Any]
SECONDS = {"instructions": 60.0, "steps": 120.0}
WARPS = 64
MODELLED = (
    "dp4a",
    "mma_",
    "ldmatrix",
    "byte_permute",
    "shfl",
    "to_int",
    "rint",
    "floor",
    "trunc",
    "from_half",
    "div",
    "sqrt",
    "fma",
)


# 1. Instructions -------------------------------------------------------------------------------------------------------


def instruction_kernel(instruction: ptx.Instruction) -> Any:
    """One instruction per thread: its arguments from rows of `given`, its results to rows of `found`."""
    args, n, shared = [], 0, []
    for kind in instruction.arguments:
        if kind == "shared":
            shared = [
                "    memory = cuda.shared.array(1024, np.int8)",
                "    for k in range(8):",
                "        value = given[thread * 8 + k]",
                "        for b in range(4):",
                "            memory[thread * 32 + k * 4 + b] = (value >> (8 * b)) & 255",
                "    cuda.syncthreads()",
            ]
            args.append("memory, thread * 32")
            continue
        word = f"np.int32(given[{n} * total + number])"
        args.append({"s32": word, "f32": f"ptx.from_bits({word})"}[kind])
        n += 1
    lines = [f"    found_ = ptx.{instruction.name}({', '.join(args)})"]
    several = len(instruction.results) > 1
    for k, kind in enumerate(instruction.results):
        value = f"found_[{k}]" if several else "found_"
        text = {"f32": f"ptx.bits({value})", "s64": f"np.int32({value})", "s32": value}[kind]
        lines.append(f"    found[{k} * total + number] = {text}")
    source = (
        "import numpy as np\nfrom tilework.kernels.cuda import ptx\nfrom tilework.kernels.cuda.seam import cuda\n\n\n"
        f"def try_{instruction.name}(given, found, total):\n    thread = cuda.threadIdx.x\n"
        "    number = cuda.blockIdx.x * 32 + thread\n" + "\n".join([*shared, *lines]) + "\n"
    )
    return made(source, f"try_{instruction.name}")


def arguments(instruction: ptx.Instruction, rng: np.random.Generator) -> Iterator[Array]:
    """Words (argument, thread) to try: random ones, and for products each place of A and of B by itself."""
    count = max(8, sum(kind not in ("shared", "global") for kind in instruction.arguments))
    reals = "f32" in instruction.arguments
    for _ in range(4):
        words = rng.integers(-(2**31), 2**31, (count, 32 * WARPS)).astype(np.int32)
        if reals and "bf16" in instruction.name:
            small = (rng.integers(-8, 9, (*words.shape, 2)).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
            words[:6] = np.ascontiguousarray(small).view(np.int32)[:6, :, 0]
            words[6:] = 0
        elif reals:
            words[: count // 2] = (
                rng.standard_normal((count // 2, 32 * WARPS)).astype(np.float32).view(np.int32) if count > 1 else words
            )
        if instruction.name.startswith("shfl"):
            words[1] &= 31
        yield words
    if instruction.name.startswith("mma_m16n8k32"):
        for register in range(6):  # one byte of one lane is 1 and the other matrix has a different number everywhere
            cases = np.zeros((count, 32 * 4, 32), np.int32)
            for lane in range(32):
                for byte in range(4):
                    cases[register, lane * 4 + byte, lane] = 1 << (8 * byte)
            other = slice(4, 6) if register < 4 else slice(0, 4)
            cases[other] = rng.integers(-(2**31), 2**31, (other.stop - other.start, 1, 32)).astype(np.int32)
            yield cases.reshape(count, -1)


def check_instruction(driver: Driver, instruction: ptx.Instruction) -> str | None:
    """What differs between the device and the interpreter, or None."""
    kernel = instruction_kernel(instruction)
    rng = np.random.default_rng(0)
    for words in arguments(instruction, rng):
        total = words.shape[1]
        results = []
        for where in ("device", "interpreter"):
            found = np.zeros((len(instruction.results), total), np.int32)
            if where == "device":
                launch_once(driver, kernel, words, found, total)
            else:
                given = np.ascontiguousarray(words).reshape(-1).copy()
                interpret(kernel, (total // 32,), (32,), (given, found.reshape(-1), total))
            results.append(found)
        if not np.array_equal(results[0], results[1]):
            place = np.argwhere(results[0] != results[1])[0]
            return f"result {place[0]} of thread {place[1]}: {results[0][tuple(place)]} but {results[1][tuple(place)]}"
    return None


def launch_once(driver: Driver, kernel: Any, given: Array, found: Array, total: int) -> None:
    """Run a kernel over two arrays on the device."""
    launch = Launch(kernel, ("s32*", "s32*", "s64"), (total // 32, 1, 1), (32, 1, 1), (At(0), At(1), total), (1,))
    buffers = [*own_buffers(0), Buffer("given", "input", given.nbytes), Buffer("found", "output", found.nbytes)]
    operands = [Operand.make(OWN, 0, np.int32, given.shape), Operand.make(OWN + 1, 0, np.int32, found.shape)]
    pipe = tw.Pipeline()
    tw.ops.add(pipe.input("a", "s32", (1,)), pipe.input("b", "s32", (1,)))
    step = pipe.steps[0]  # stands for the step
    assembly = Assembly(buffers)
    assembly.add(step, step.kernel, [launch], (), operands)
    graph = assembly.graph()
    loaded = driver.load(graph, {}, lambda memory: None)
    with driver.entered():
        memory = loaded.take({}, None)
        memory.fill(OWN, given)
        driver.run(graph, memory, lambda node, m: None)
        memory.download([OWN + 1])
        memory.finish("an instruction")
        found[...] = memory.view(OWN + 1, found.shape, np.int32)
        loaded.give(memory)
        loaded.close()


# 2. Steps --------------------------------------------------------------------------------------------------------------


def leaky(v: Any, scale: Any) -> Any:
    r = np.rint(np.float32(v) * scale)
    return r if r > 0 else r * 0.125


def step_cases() -> dict[str, tuple[Callable[..., Any], tuple[Array, ...]]]:
    """{name: (what to build over inputs, the inputs)}: every kernel, at sizes off and on its tiles."""
    rng = np.random.default_rng(0)
    ops = tw.ops

    def codes(dtype: Any, *shape: int) -> Array:
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max + 1, shape).astype(dtype)

    real = rng.standard_normal((33, 260)).astype(np.float32)
    acc = rng.integers(-100000, 100000, (33, 260)).astype(np.int32)
    found: dict[str, tuple[Callable[..., Any], tuple[Array, ...]]] = {
        "quantize": (lambda x: ops.quantize(x, np.float32(0.01), 128, "u8"), (real,)),
        "quantize stochastic": (
            lambda x: ops.quantize(x, np.float32(0.01), 0, "s8", rounding="stochastic", seed=7),
            (real,),
        ),
        "dequantize": (lambda x: ops.dequantize(x, np.float32(0.01), 3), (codes(np.uint8, 33, 260),)),
        "requantize": (lambda x: ops.requantize(x, np.float32(0.001), 3, "s8"), (acc,)),
        "map": (lambda x: ops.map(leaky, x, scale=np.float32(0.01), dtype="f32"), (acc,)),
        "gelu, exp, tanh": (lambda x: (ops.gelu(x), ops.exp(x), ops.tanh(x)), (real,)),
        "add, relu, clip": (lambda x: (ops.add(x, x), ops.relu(x), ops.clip(x, -1.0, 1.0)), (real,)),
        "argmax": (lambda x: ops.argmax(x), (real,)),
        "softmax": (lambda x: (ops.softmax(x), ops.log_softmax(x, axis=0)), (real,)),
        "layer norm": (lambda x: ops.layer_norm(x), (real,)),
        "reductions": (lambda x: tuple(ops.reduce(op, x, axes=(1,)) for op in ("sum", "max", "l2")), (real,)),
        "dynamic quantize": (lambda x: ops.dynamic_quantize(x, granularity="row"), (real,)),
        "transpose": (lambda x: ops.transpose(x), (real,)),
        "gather": (lambda x, i: ops.gather(x, i, axis=0), (real, np.array([3, 0, -1], np.int64))),
        "gemm f32": (lambda a, b: ops.gemm(a, b), (real[:, :70], real[:30].T[:70].copy())),
    }
    for m, k, n in ((1, 64, 64), (64, 64, 64), (65, 200, 130), (128, 1024, 256), (1000, 768, 300)):
        a, b = codes(np.uint8, m, k), codes(np.int8, k, n)
        found[f"gemm {m} x {k} x {n}"] = (lambda a, b: ops.gemm(a, b, a_zero_point=128, b_zero_point=3), (a, b))
        found[f"fused gemm {m} x {k} x {n}"] = (
            lambda a, b: ops.requantize(ops.gemm(a, b, a_zero_point=7), np.float32(0.0003), 9, "u8"),
            (a, b),
        )
    return found


def check_step(device: str, build: Callable[..., Any], arrays: tuple[Array, ...]) -> str | None:
    """What differs between the device and the reference, or None."""
    pipe = tw.Pipeline()
    inputs = [pipe.input(f"x{n}", tw.dtypes.get(x.dtype), x.shape) for n, x in enumerate(arrays)]
    made_of = build(*inputs)
    for n, value in enumerate(made_of if isinstance(made_of, tuple) else (made_of,)):
        pipe.output(f"y{n}", value)
    given = {f"x{n}": x for n, x in enumerate(arrays)}
    right = tw.SingleThreadExecutor("reference").run(pipe, given)
    plan = tw.CudaExecutor(device).compile(pipe)
    for _ in range(2):
        found = plan.run(given)
        for name, array in right.items():
            if found[name].tobytes() != array.tobytes():
                wrong = np.argwhere(found[name] != array)
                where = tuple(int(x) for x in wrong[0]) if len(wrong) else ()
                return f"{name}{list(where)}: {found[name][where]!r} but {array[where]!r}; {len(wrong)} differ"
    return None


def main(argv: list[str] | None = None) -> int:
    import argparse

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--json", action="store_true", dest="as_json")
    parser.add_argument("--quick", action="store_true", help="small sizes, to try the check itself")
    given = parser.parse_args(argv)
    start = time.perf_counter()
    try:
        driver = Driver(given.device)
    except Unsupported as error:
        print(f"no GPU was checked: {error}")
        return 2
    device = driver.name
    wrong: dict[str, str] = {}

    def say(text: str) -> None:
        if not given.as_json:
            print(f"{time.perf_counter() - start:6.1f} s  {text}", flush=True)

    say(repr(driver))
    left_out: list[str] = []

    def tried(seconds: float, checks: Iterator[tuple[str, Callable[[], str | None]]], right: str) -> None:
        budget = Budget(seconds)
        for name, check in checks:
            if budget.has_time_for(name):
                outcome = attempt(check)
                say(f"{name}: {outcome or right}")
                if outcome:
                    wrong[name] = outcome
        left_out.extend(budget.left_out)

    known = {
        f"ptx.{name}": partial(check_instruction, driver, instruction)
        for name, instruction in ptx.INSTRUCTIONS.items()
        if name.startswith(MODELLED) and instruction.since <= 10 * driver.cc[0] + driver.cc[1]
    }
    tried(SECONDS["instructions"], iter(known.items()), "as modelled")
    steps = {name: partial(check_step, device, *case) for name, case in step_cases().items()}
    tried(SECONDS["steps"], iter(steps.items()), "the same bytes")
    figures: dict[str, Any] = {}
    if not wrong:
        figures = Bench(driver, QUICK if given.quick else Sizes(), say, BUDGETS).run()
        wrong |= {row["case"]: row["wrong"] for row in figures["rows"] if row["wrong"]}
    if given.as_json:
        print(json.dumps({"device": repr(driver), "wrong": wrong, "left_out": left_out, "speed": figures}))
    else:
        for name in left_out:
            print(f"no time was left for {name}")
        if figures:
            report.show(repr(driver), figures)
        if wrong:
            print(f"{len(wrong)} checks failed: {', '.join(wrong)}")
    driver.close()
    return 1 if wrong else 0


def attempt(check: Callable[[], str | None]) -> str | None:
    """What a check found, or the error that it ended with, so that the others still run."""
    try:
        return check()
    except (TileworkError, ArithmeticError, LookupError, TypeError, ValueError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    raise SystemExit(main())
