"""int8 GEMM and requantize joined by an edge; a step put between them; the same run on another executor."""

import numpy as np

import tilework as tw

rng = np.random.default_rng(0)
a = rng.integers(-128, 128, (4, 64), dtype=np.int8)
b = rng.integers(-128, 128, (64, 8), dtype=np.int8)


def leaky(acc):
    return acc if acc > 0 else acc // 8


def build(between=None):
    pipe = tw.Pipeline("int8_gemm")
    acc = tw.ops.gemm(pipe.input("a", "s8", ("M", 64)), pipe.constant("b", b))  # s32 (M, 8)
    if between is not None:
        acc = tw.ops.map(between, acc, dtype="s32")
    pipe.output("y", tw.ops.requantize(acc, multiplier=0.002, dtype="s8"))
    return pipe


plain, with_step = build(), build(leaky)
for pipe in (plain, with_step):
    print(*pipe.edges, sep="\n")
    print(tw.SingleThreadExecutor().run(pipe, {"a": a})["y"])

on_reference = tw.SingleThreadExecutor(backend="reference").run(with_step, {"a": a})["y"]
on_cpu = tw.SingleThreadExecutor().run(with_step, {"a": a})["y"]
assert on_reference.tobytes() == on_cpu.tobytes()
print("both executors gave the same bytes")
