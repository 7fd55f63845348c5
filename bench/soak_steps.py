"""Random configurations of every step on every executor, compared to the bit; prints which were covered.

python -m tilework.bench.soak_steps --count 100000 --seed 0
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from ..executors import SingleThreadExecutor, TilingExecutor
from ..kernels import ops
from ..kernels.elementwise import TABLE
from ..kernels.ops.tabled import tabled
from ..kernels.reduce import REDUCTIONS
from ..primitives import dtypes
from ..primitives.pipeline import Pipeline

EXECUTORS = {
    "single": SingleThreadExecutor,
    "tiled on 1": lambda: TilingExecutor(1),
    "tiled on 2": lambda: TilingExecutor(2),
}
LAYOUTS = ("contiguous", "transposed", "every second", "backwards")


def data(rng: Any, dtype: str, shape: tuple[int, ...], layout: str) -> Any:
    """An array of random values, of which some are at the ends of the type, in a layout."""
    kind = dtypes.get(dtype)
    stored = tuple(reversed(shape)) if layout == "transposed" else shape
    if layout == "every second":
        stored = (*shape[:-1], 2 * shape[-1]) if shape else shape
    if kind.is_float:
        with np.errstate(over="ignore"):
            x = (rng.standard_normal(stored) * 10.0 ** rng.integers(-2, 3)).astype(kind.numpy)
        special = np.array([0, -0.0, np.inf, -np.inf, np.nan, 1, -1], kind.numpy)
    elif dtype == "bool":
        x, special = rng.integers(0, 2, stored).astype(bool), np.array([True])
    else:
        x = rng.integers(kind.min, kind.max, stored, dtype=kind.numpy, endpoint=True)
        special = np.array([kind.min, kind.max, 0], kind.numpy)
    at = rng.random(stored) < 0.05
    x[at] = special[rng.integers(0, len(special), int(at.sum()))]
    if layout == "transposed":
        return x.T
    if layout == "every second" and shape:
        return x[..., ::2]
    return x[..., ::-1] if layout == "backwards" and shape else x


def configuration(rng: Any) -> tuple[str, str, str, Callable[..., Any], list[str], tuple[int, ...]]:
    """(step, type, granularity, op, types of its operands, shape) drawn at random."""
    rank = int(rng.integers(1, 4))
    shape = tuple(int(n) for n in rng.choice([0, 1, 2, 3, 7, 15, 16, 17, 33], rank))
    family = rng.choice(["table", "reduce", "row", "quantized", "dynamic"], p=[0.4, 0.2, 0.15, 0.15, 0.1])
    if family == "table":
        op = str(rng.choice(list(TABLE)))
        row = TABLE[op]
        dtype = str(rng.choice(row.types))
        types = ["bool" if row.condition and n == 0 else dtype for n in range(len(row.values))]
        return op, dtype, "", lambda *x: tabled(op, *x), types, shape
    if family == "reduce":
        op = str(rng.choice(list(REDUCTIONS)))
        axes = tuple(sorted(int(a) for a in rng.choice(rank, int(rng.integers(1, rank + 1)), replace=False)))
        return f"reduce {op}", str(rng.choice(REDUCTIONS[op])), "", lambda x: ops.reduce(op, x, axes), ["x"], shape
    if family == "row":
        name = str(rng.choice(["softmax", "log_softmax", "layer_norm", "rms_norm"]))
        axis = int(rng.integers(rank))
        return (
            name,
            str(rng.choice(["f32", "f16", "bf16"])),
            "",
            lambda x: getattr(ops, name)(x, axis=axis),
            ["x"],
            shape,
        )
    if family == "quantized":
        op = str(rng.choice(["mul", "sub", "maximum", "div"]))
        dtype, channel = str(rng.choice(["u8", "s8", "s16", "u16"])), bool(rng.integers(2))
        scale = rng.uniform(0.01, 1, shape[-1]).astype(np.float32) if channel else np.float32(0.07)

        def two(a: Any, b: Any) -> Any:
            return getattr(ops, op)(a, b, a_scale=scale, b_scale=0.3, scale=0.11, zero_point=1, dtype=dtype)

        return f"quantized {op}", dtype, "channel" if channel else "tensor", two, [dtype, dtype], shape
    how = str(rng.choice(["tensor", "row", "group"]))
    group = int(rng.choice([1, 4, 16])) if how == "group" else None
    dtype, symmetric = str(rng.choice(["u8", "s8"])), bool(rng.integers(2))

    def dynamic(x: Any) -> Any:
        return ops.dynamic_quantize(x, dtype, symmetric, how, group)

    return "dynamic quantize", str(rng.choice(["f32", "f16", "bf16"])), how, dynamic, ["x"], shape


def check(rng: Any, covered: Counter) -> None:
    """Draw one configuration and compare an executor with the reference; AssertionError names what differs."""
    step, dtype, granularity, op, types, shape = configuration(rng)
    layout, executor = str(rng.choice(LAYOUTS)), str(rng.choice(list(EXECUTORS)))
    types = [dtype if t == "x" else t for t in types]
    arrays = [data(rng, t, shape, layout) for t in types]
    pipe = Pipeline(step)
    found = op(*(pipe.input(f"x{n}", t, shape) for n, t in enumerate(types)))
    for n, value in enumerate(found if isinstance(found, tuple) else (found,)):
        pipe.output(f"y{n}", value)
    inputs = {f"x{n}": a for n, a in enumerate(arrays)}
    right = SingleThreadExecutor("reference").run(pipe, inputs)
    result = EXECUTORS[executor]().run(pipe, inputs)  # type: ignore[operator]
    for name, y in right.items():
        same = y == result[name]
        if dtypes.get(y.dtype).is_float:
            same |= np.isnan(y.astype(np.float64)) & np.isnan(result[name].astype(np.float64))
        assert np.all(same), f"{step} of {dtype} {shape} {layout} on {executor} ({granularity}): {name} differs"
    covered[step, dtype, granularity or "-", layout, executor] += 1


def main() -> None:
    """Run, and print how often each step met each type, granularity, layout and executor."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    given = parser.parse_args()
    covered: Counter = Counter()
    start, done = time.monotonic(), 0
    for done in range(1, given.count + 1):
        check(np.random.default_rng([given.seed, done]), covered)
        if time.monotonic() - start > given.seconds:
            break
    for position, what in enumerate(("step", "type", "granularity", "layout", "executor")):
        totals: Counter = Counter()
        for key, n in covered.items():
            totals[key[position]] += n
        print(f"{what}: " + ", ".join(f"{name} {n}" for name, n in sorted(totals.items())))
    print(
        f"{done} configurations, {len(covered)} distinct combinations, none differs; {time.monotonic() - start:.0f} s"
    )


if __name__ == "__main__":
    main()
