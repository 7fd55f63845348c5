"""Random convolutions with what may follow them, and their comparison with the reference, bit for bit.

A case is made from its seed alone. bench/checks/soak_convolutions.py runs as many as one likes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

import tilework as tw
from tilework.kernels.window import SPATIAL

Ints = tuple[int, ...]
NUMPY = {
    "u8": np.uint8, "s8": np.int8, "s16": np.int16, "f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16,
}  # fmt: skip
REAL = ("f32", "f16", "bf16")
PAIRS = [
    ("u8", "s8"), ("u8", "s8"), ("u8", "s8"), ("s8", "s8"), ("u8", "u8"), ("s8", "u8"), ("s16", "s16"),
    ("f32", "f32"), ("f32", "f32"), ("f16", "f32"), ("bf16", "f32"), ("bf16", "bf16"),
]  # fmt: skip
# What is compiled in: how many vectors of outputs, the groups of real numbers, and for depthwise kernels their windows.
# Few of each, so that thousands of cases share what is compiled; all other sizes are numbers of the run. The first
# NARROW seeds, which tests run, draw outputs and channels from as few; the others draw at large what costs little.
NARROW = 100
GROUPS = [(1, 0, 0)] * 8 + [(2, 3, 5), (3, 1, 17), (2, 8, 16), (4, 4, 4), (5, 2, 8), (6, 1, 2), (2, 0, 70)]
DEPTHWISE = (1, 3, 16, 20, 64, 70, 144)
WINDOWS: dict[int, list[tuple[Ints, Ints, Ints]]] = {  # kernel, strides, dilations
    1: [((3,), (1,), (1,)), ((5,), (2,), (1,)), ((4,), (1,), (2,))],
    2: [((3, 3), (1, 1), (1, 1)), ((3, 3), (2, 2), (1, 1)), ((5, 5), (1, 1), (1, 1)), ((2, 3), (1, 1), (2, 2)),
        ((1, 1), (3, 2), (1, 1))],
    3: [((3, 3, 3), (1, 1, 1), (1, 1, 1)), ((2, 3, 2), (1, 2, 1), (1, 1, 1))],
}  # fmt: skip


@dataclass
class Case:
    """
    text   what it is; cases with the same text differ in their numbers alone
    kinds  of which kinds it is, for counting
    bound  by how much each number of the result may differ, where the instructions round elsewhere; else None
    """

    seed: int
    pipe: Any
    inputs: dict[str, Any]
    text: str
    kinds: tuple[str, ...]
    bound: Any = None


def leaky(v, scale):
    r = np.rint(np.float32(v) * scale)
    return r if r > 0 else r * 0.125


def codes(rng, dtype, shape):
    if dtype in REAL:
        return rng.normal(size=shape).astype(NUMPY[dtype])
    if dtype == "s16":
        return rng.integers(-300, 301, shape).astype(np.int16)  # whose sums fit int32
    info = np.iinfo(NUMPY[dtype])
    if rng.random() < 0.2:
        return rng.choice(np.array([info.min, info.max], NUMPY[dtype]), shape)
    return rng.integers(info.min, info.max + 1, shape).astype(NUMPY[dtype])


def make(seed: int) -> Case:
    rng = np.random.default_rng(seed)

    def pick(*given):
        return given[int(rng.integers(len(given)))]

    if rng.random() < 0.15:
        return pool(seed, rng, pick)
    spatial = pick(1, 2, 2, 2, 2, 3)
    x_dtype, w_dtype = pick(*PAIRS)
    real, symmetric = x_dtype in REAL, x_dtype in REAL or x_dtype == "s16"
    transposed = rng.random() < 0.15
    most = {1: 9, 2: 5, 3: 3}[spatial]
    kernel = [int(rng.integers(1, most + 1)) if rng.random() < 0.5 else min(3, most) for _ in range(spatial)]
    strides = [pick(1, 1, 1, 2, 3) for _ in range(spatial)]
    dilations = [pick(1, 1, 1, 2) for _ in range(spatial)]
    at_large = seed >= NARROW and rng.random() < 0.4
    groups, inside, each = pick(*GROUPS)
    if at_large and groups > 1 and not real:
        groups, inside, each = (int(rng.integers(1, n)) for n in (9, 10, 24))
    large = False
    if rng.random() < 0.25:
        groups, inside, each = int(rng.integers(1, 150)) if at_large and not real else pick(*DEPTHWISE), 1, 1
        if transposed:
            kernel, strides, dilations = [3] * spatial, [2] * spatial, [1] * spatial
        large = real and not transposed and rng.random() < 0.4
    if groups > 1 and not transposed and not (at_large and (inside * each > 1 or rng.random() < 0.2)):
        kernel, strides, dilations = (list(x) for x in pick(*WINDOWS[spatial]))
    inside = inside or (int(rng.integers(1, 50)) if at_large else pick(1, 2, 3, 4, 5, 8, 16, 17))
    if not each:
        few = (1, 16, 17, 40, 70) if (x_dtype, w_dtype) == ("u8", "s8") else (5, 16, 70)
        each = int(rng.integers(1, 100)) if at_large else pick(*few)
    if x_dtype == "s16":
        inside = max(1, min(inside, 300 // int(np.prod(kernel))))  # whose sums fit int32
    if transposed:
        each = min(each, 16)
        strides = [2] * spatial if rng.random() < 0.5 else [1, *[2] * (spatial - 1)]
    if real:
        inside, each = min(inside, 8), min(each, 17)
        groups = min(groups, 20 if large or spatial > 1 else 70)
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    least = {1: 100, 2: 40, 3: 12}[spatial] if large else {1: 40, 2: 12, 3: 6}[spatial]
    image = [int(rng.integers(least // 2 if large else 1, least)) for _ in range(spatial)]
    pads = [int(rng.integers(0, r)) for r in (*reach, *reach)] if rng.random() < 0.7 else [0] * (2 * spatial)
    if transposed:
        pads = [0] * (2 * spatial) if rng.random() < 0.4 else [min(p, 1) for p in pads]
        image = [max(n, 2) for n in image]
    else:
        image = [max(n, r - a - b) for n, r, a, b in zip(image, reach, pads[:spatial], pads[spatial:], strict=True)]
    if rng.random() < 0.03:
        pads, image = [(r // 2) for r in (*reach, *reach)], [0, *image[1:]]
        transposed = False
    batch = pick(1, 1, 1, 2, 3, 0)
    inner = SPATIAL[spatial]
    first, last = f"NC{inner}", f"N{inner}C"
    layout, out_layout = pick((first, first), (last, last), (last, last), (first, last), (last, first))
    w_layout = pick(f"OI{inner}", f"{inner}IO", f"O{inner}I", f"IO{inner}")
    sizes = dict(zip(inner, image, strict=True)) | {"N": batch, "C": groups * inside}
    taken = dict(zip(inner, kernel, strict=True)) | {"O": groups * each, "I": inside}
    if transposed:
        taken |= {"I": groups * inside, "O": each}
    shape, outputs = tuple(sizes[a] for a in layout), groups * each
    x, w = codes(rng, x_dtype, shape), codes(rng, w_dtype, tuple(taken[a] for a in w_layout))
    pipe = tw.Pipeline("random")
    inputs: dict[str, Any] = {"x": x}
    dynamic = rng.random() < 0.3
    declared = tuple(f"n{d}" if dynamic and a != "C" else n for d, (a, n) in enumerate(zip(layout, shape, strict=True)))
    xv: Any = pipe.input("x", x_dtype, declared)
    wv: Any = w
    if rng.random() < 0.1 and x_dtype != "s16":  # their sums are proven to fit from the weights
        wv, inputs["w"] = pipe.input("w", w_dtype, w.shape), w
    more: dict[str, Any] = {}
    if not symmetric:
        for slot, dtype, many in (("a_zero_point", x_dtype, 1), ("b_zero_point", w_dtype, outputs)):
            info = np.iinfo(NUMPY[dtype])
            if rng.random() < (0.7 if slot[0] == "a" else 0.25):
                each_one = slot[0] == "b" and rng.random() < 0.5
                zero = rng.integers(info.min, info.max + 1, (many,) if each_one else ()).astype(NUMPY[dtype])
                if rng.random() < 0.15:
                    more[slot], inputs[slot] = pipe.input(slot, dtype, zero.shape), zero
                else:
                    more[slot] = zero
    op = tw.ops.conv_transpose if transposed else tw.ops.conv
    if transposed and rng.random() < 0.3:
        more["out_pads"] = [int(rng.integers(0, s)) for s in strides]
    bias = None
    if rng.random() < 0.6:
        bias = rng.normal(size=outputs).astype(np.float32) if real else rng.integers(-5000, 5000, outputs, np.int32)
    y = op(
        xv, wv, bias, strides=strides, pads=pads, dilations=dilations, groups=groups, layout=layout,
        out_layout=out_layout, w_layout=w_layout, **more,
    )  # fmt: skip
    channel = out_layout.index("C")
    follow = pick("", "requantize", "requantize", "relu", "fixed", "user", "residual", "table")
    if x_dtype == "s16":
        follow = pick("", "requantize", "fixed")
    bound = None
    if x_dtype == w_dtype == "bf16":
        follow, bound = "", _bf16_bound(op, x, w, inside * int(np.prod(kernel)), {
            "strides": strides, "pads": pads, "dilations": dilations, "groups": groups, "layout": layout,
            "out_layout": out_layout, "w_layout": w_layout, **more,
        })  # fmt: skip
    y = _followed(rng, pipe, inputs, y, follow, real, channel, outputs, op, (sizes, kernel, strides, pads, dilations))
    pipe.output("y", y)
    text = (
        f"{x_dtype}{w_dtype} {'transposed ' * transposed}{layout}{shape} {w_layout}{w.shape} to {out_layout} "
        f"strides {strides} pads {pads} dilations {dilations} groups {groups} {sorted(more)} then {follow}"
    )
    kinds = _kinds(transposed, inside, each, groups, follow, x_dtype, w_dtype, more, inputs, dynamic)
    kinds += _sizes(batch, image, kernel, strides, pads, reach)
    kinds += (f"{layout} to {out_layout}", f"weights {w_layout}", *(["dilated"] if max(dilations) > 1 else []))
    return Case(seed, pipe, inputs, text, kinds, bound)


def _kinds(transposed, inside, each, groups, follow, x_dtype, w_dtype, more, inputs, dynamic):
    """What a convolution computes, as names to count."""
    form = "transposed" if transposed else "dense" if groups == 1 else "depthwise" if inside == each == 1 else "grouped"
    found = [f"convolution, {form}", f"types {x_dtype} {w_dtype}", f"then {follow or 'nothing'}"]
    for slot, name in (("a_zero_point", "zero point of x"), ("b_zero_point", "zero point of weights")):
        if slot in more:
            given = more[slot]
            many = " each" if len(given.shape) else ""
            found.append(f"{name}{many}{', an input' if slot in inputs else ''}")
    if "w" in inputs:
        found.append("weights an input")
    if dynamic:
        found.append("sizes known at run time")
    if inside * groups == 1:
        found.append("one channel")
    return tuple(found)


def _sizes(batch, image, kernel, strides, pads, reach):
    """What is out of the ordinary about the sizes of a window and an image."""
    spatial = len(image)
    found = [f"{spatial}-D", f"batch {batch}"]
    if 0 in image:
        found.append("no pixel")
    if all(n == 1 for n in image):
        found.append("one pixel")
    if any(s > k for s, k in zip(strides, kernel, strict=True)):
        found.append("stride larger than the kernel")
    if any(r > n for r, n in zip(reach, image, strict=True)):
        found.append("kernel larger than the image")
    if pads[:spatial] != pads[spatial:]:
        found.append("asymmetric padding")
    elif any(pads):
        found.append("symmetric padding")
    return tuple(found)


def _followed(rng, pipe, inputs, y, follow, real, channel, outputs, op, geometry):
    if real:
        if follow in ("requantize", "fixed"):
            return tw.ops.quantize(tw.ops.relu(y), 0.05, 7, "u8")
        return tw.ops.map(leaky, y, scale=1.5) if follow == "user" else tw.ops.relu(y) if follow == "relu" else y
    scale = (rng.random(outputs) * 3e-3 + 1e-6).astype(np.float32)
    if follow in ("", "user"):
        along = scale.reshape([-1 if d == channel else 1 for d in range(len(y.shape))])
        return tw.ops.map(leaky, y, scale=along, dtype="f32") if follow else y
    if follow == "fixed":
        return tw.ops.requantize(y, scale, 5, "s8", arithmetic="fixed", axis=channel)
    y = tw.ops.requantize(y, scale, 9, "u8", axis=channel)
    if follow == "relu":
        return tw.ops.relu(y, 9)
    if follow == "table":
        return tw.ops.lookup(y, np.arange(255, -1, -1).astype(np.uint8))
    if follow == "residual":
        shape = tuple(n if isinstance(n, int) else None for n in y.shape)
        if None in shape:
            return y
        inputs["r"] = rng.integers(0, 256, shape).astype(np.uint8)
        r = pipe.input("r", "u8", shape)
        return tw.ops.add(
            y, r, a_scale=0.1, a_zero_point=9, b_scale=0.07, b_zero_point=3, scale=0.13, zero_point=20, dtype="u8"
        )
    return y


def _bf16_bound(op, x, w, depth, window):
    """Twice gemm.bf16_bound of each window: the reference rounds as well."""
    pipe = tw.Pipeline("bound")
    x, w = (np.abs(a.astype(np.float32)) for a in (x, w))
    pipe.output("y", op(pipe.input("x", "f32", x.shape), w, **window))
    sums = tw.SingleThreadExecutor("reference").run(pipe, {"x": x})["y"].astype(np.float64)
    largest = max(1.0, float(x.max(initial=0)), float(w.max(initial=0)))
    # the bias is added after, in float32
    return 2.02 * ((depth + 1) * 2.0**-23 * sums + (2 * depth + 2) * 2.0**-126 * largest) + 2.0**-22


def pool(seed, rng, pick) -> Case:
    """Pooling of every kind."""
    spatial, dtype = pick(1, 2, 2, 2, 3), pick("u8", "s8", "f32")
    inner = SPATIAL[spatial]
    layout = pick(f"NC{inner}", f"N{inner}C")
    sizes = {"N": pick(1, 1, 2, 0), "C": pick(1, 3, 16, 20, 70)} | {a: int(rng.integers(1, 14)) for a in inner}
    kind = pick("max_pool", "average_pool", "average_pool", "global_max_pool", "global_average_pool",
                "adaptive_max_pool", "adaptive_average_pool")  # fmt: skip
    more: dict[str, Any] = {"layout": layout}
    if kind in ("max_pool", "average_pool"):
        kernel = [int(rng.integers(1, 5)) for _ in range(spatial)]
        more |= {
            "dilations": [pick(1, 1, 2) for _ in range(spatial)], "strides": [pick(1, 2, 3, 6) for _ in range(spatial)],
            "ceil_mode": bool(rng.integers(2)),
        }  # fmt: skip
        reach = [(k - 1) * d + 1 for k, d in zip(kernel, more["dilations"], strict=True)]
        pads = [int(rng.integers(0, r)) for r in (*reach, *reach)] if rng.random() < 0.7 else [0] * (2 * spatial)
        for a, r, p, q in zip(inner, reach, pads[:spatial], pads[spatial:], strict=True):
            sizes[a] = max(sizes[a], r - p - q, 1)
        given, more["pads"] = [kernel], pads
        if kind == "average_pool":
            more["count_include_pad"] = bool(rng.integers(2))
    elif kind.startswith("adaptive"):
        given = [[int(rng.integers(1, 9)) for _ in range(spatial)]]
    else:
        given = []
    if "average" in kind and dtype != "f32" and rng.random() < 0.8:
        info = np.iinfo(NUMPY[dtype])
        target = pick("u8", "s8")
        more |= {
            "x_zero_point": int(rng.integers(info.min, info.max + 1)), "multiplier": float(rng.uniform(0.1, 3)),
            "zero_point": int(rng.integers(0, 120)), "dtype": target,
        }  # fmt: skip
    shape = tuple(sizes[a] for a in layout)
    x = codes(rng, dtype, shape)
    pipe = tw.Pipeline("random")
    y = getattr(tw.ops, kind)(pipe.input("x", dtype, shape), *given, **more)
    if rng.random() < 0.3:
        y = tw.ops.relu(y)
    pipe.output("y", y)
    ones = [1] * spatial
    window = (
        (given[0], more["strides"], more["pads"], reach) if "pads" in more else (ones, ones, 2 * [0] * spatial, ones)
    )
    kinds = (kind, f"{kind} of {dtype}", *_sizes(sizes["N"], [sizes[a] for a in inner], *window))
    return Case(seed, pipe, {"x": x}, f"{kind} {dtype}{shape} {given} {more}", kinds)


def compare(case: Case, ways: list[dict[str, Any]]) -> list[str]:
    """What differs from the reference in each way to run (options of TilingExecutor)."""
    expected = reference(case)
    wrong = []
    for way in ways:
        out = run(case, expected, way)
        if not same(case, out, expected):
            wrong.append(f"seed {case.seed} {way}: {int((out != expected).sum())} of {out.size}; {case.text}")
    return wrong


def reference(case: Case) -> Any:
    """What the reference gives."""
    return tw.SingleThreadExecutor("reference").run(case.pipe, case.inputs)["y"]


def run(case: Case, like: Any, way: dict[str, Any]) -> Any:
    """What TilingExecutor(**way) writes over bytes that are not its own; like: an array of the result's shape."""
    out = np.full(like.shape, 99, like.dtype)
    tw.TilingExecutor(**way).compile(case.pipe).run(case.inputs, out={"y": out})
    return out


def same(case: Case, out: Any, expected: Any) -> bool:
    """Whether a result is the reference's: to the bit, or within the bound that the case has; any NaN is a NaN."""
    if out.tobytes() == expected.tobytes():
        return True
    if out.dtype.kind != "f" or not np.array_equal(np.isnan(out), np.isnan(expected)):
        return False
    a, b = out[~np.isnan(out)], expected[~np.isnan(out)]
    if case.bound is not None:
        return bool((np.abs(out - expected) <= case.bound).all())
    return a.tobytes() == b.tobytes()
